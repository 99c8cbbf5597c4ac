"""One interface to all routers: flows on a fabric in, a spine for every flow out."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from codesign_base import InfeasibleError, InputError
from routing.clos.fabric import Clos, IntArray
from routing.clos.flows import Flows


@dataclass(frozen=True, eq=False)
class Assignment:
    """A spine for every flow.

    Parameters
    ----------
    spine : int64 array, shape (flows,)
        -1 for flows within a ToR.
    method : str
        The router that chose it.
    optimal : bool
        Whether the router proved it optimal in its own objective.
    """

    spine: IntArray
    method: str
    optimal: bool = False

    def __post_init__(self) -> None:
        self.spine.setflags(write=False)


Router = Callable[[Clos, Flows, int, "Assignment | None", "float | None"], Assignment]


def _random(
    clos: Clos, flows: Flows, seed: int, previous: Assignment | None, limit: float | None
) -> Assignment:
    """Draw every flow's spine at random among those that are live for it."""
    rng = np.random.default_rng(seed)
    live = (clos.up[flows.source_tor] > 0) & (clos.down.T[flows.target_tor] > 0)
    ways = live.sum(axis=1)
    pick = (rng.random(flows.count) * ways).astype(np.int64)
    spine = np.argmax(np.cumsum(live, axis=1) > pick[:, None], axis=1).astype(np.int64)
    spine[~flows.crosses] = -1
    return Assignment(spine, "random")


METHODS: dict[str, Router] = {"random": _random}


def route(
    clos: Clos,
    flows: Flows,
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
    flows : Flows
        What is sent.
    method : str
        A name in `METHODS`.
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
    if method not in METHODS:
        raise InputError(f"router {method!r} is unknown; choose one of {', '.join(METHODS)}")
    flows.check_fits(clos)
    if previous is not None and previous.spine.shape != (flows.count,):
        raise InputError(
            f"previous has {previous.spine.size} spines for {flows.count} flows; give one a flow"
        )
    check_connected(clos, flows)
    return METHODS[method](clos, flows, seed, previous, time_limit)


def check_connected(clos: Clos, flows: Flows) -> None:
    """Raise InfeasibleError if a flow has no live path."""
    reach = (clos.up > 0).astype(np.float64) @ (clos.down > 0).astype(np.float64)
    cut = flows.crosses & (reach[flows.source_tor, flows.target_tor] == 0)
    if cut.any():
        flow = int(np.flatnonzero(cut)[0])
        raise InfeasibleError(
            f"flow {flow} from ToR {flows.source_tor[flow]} to ToR {flows.target_tor[flow]} has "
            "no spine with live links to both; repair one or take the flow out"
        )
