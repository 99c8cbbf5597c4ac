"""One interface to all routers: flows on a fabric in, a spine for every flow out."""

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Ints, SmallInts
from codesign_base.counted import counted
from routing.clos.assignment import Assignment, check_connected
from routing.clos.fabric import Clos
from routing.clos.flows import ClosFlows
from routing.clos.paths import clos_paths
from routing.clos.placing import color, greedy, greedy_sorted
from routing.clos.spreading import anneal_spines, draw_random, hash_ecmp

ROUTERS = (
    "ecmp", "random", "greedy", "greedy-sorted", "edge-coloring", "annealing", "optimum", "best",
)  # fmt: skip
OBLIVIOUS = ("ecmp", "random")
"""Methods that look at no load."""


def check_method(method: str) -> None:
    """Raise InputError if a method is unknown."""
    if method not in ROUTERS:
        raise InputError(f"method {method!r} is unknown; choose one of {', '.join(ROUTERS)}")


def route(
    clos: Clos,
    flows: ClosFlows,
    method: str,
    *,
    seed: int = 0,
    previous: Assignment | None = None,
    time_limit: float | None = None,
) -> Assignment:
    """Choose a spine for every flow.

    Parameters
    ----------
    clos : Clos
        The fabric as it is now.
    flows : ClosFlows
        What is sent.
    method : str
        A name in `ROUTERS`.
    seed : int, default 0
        For methods that draw random numbers.
    previous : Assignment, optional
        What holds now for the same flows; methods that improve an assignment may start there.
    time_limit : float, optional
        Seconds of work (deterministic time, not the wall clock) for methods that search.

    Returns
    -------
    Assignment

    Raises
    ------
    InputError
        If the method is unknown or cannot handle this fabric or these flows.
    InfeasibleError
        If no spine is live between the ToRs of a flow.
    """
    check_method(method)
    flows.check_fits(clos)
    if previous is not None and previous.spine.shape != (flows.count,):
        raise InputError(
            f"previous has {counted(previous.spine.size, 'spine')} for "
            f"{counted(flows.count, 'flow')}; give one a flow"
        )
    check_connected(clos, flows)
    if method == "optimum":
        from routing.clos.optimum import optimum

        return optimum(clos, flows, seed=seed, previous=previous, time_limit=time_limit)
    spine = _spines(clos, flows, method, seed, previous)
    return Assignment(np.asarray(spine, dtype=np.int64))


def _spines(
    clos: Clos, flows: ClosFlows, method: str, seed: int, previous: Assignment | None
) -> Ints | SmallInts:
    if method == "best":
        from routing.clos.best import best_spines

        return best_spines(clos, flows, seed, previous)
    if method == "ecmp":
        return hash_ecmp(clos, flows, seed)
    if method == "random":
        return draw_random(clos, flows, seed)
    paths = clos_paths(clos, flows)
    if method == "annealing":
        return anneal_spines(clos, flows, paths, seed)
    place = {"greedy": greedy, "greedy-sorted": greedy_sorted, "edge-coloring": color}
    return place[method](clos, flows, paths)
