"""One interface to all routers: flows on a fabric in, a spine for every flow out."""

from collections.abc import Callable

import numpy as np

from codesign_base import InputError
from routing.clos.assignment import Assignment, check_connected
from routing.clos.fabric import Clos
from routing.clos.flows import Flows
from routing.clos.paths import clos_paths
from routing.clos.placing import color, greedy, greedy_sorted
from routing.clos.spreading import anneal_spines, draw_random, hash_ecmp

Router = Callable[[Clos, Flows, int, Assignment | None, float | None], Assignment]


def _ecmp(
    clos: Clos, flows: Flows, seed: int, previous: Assignment | None, limit: float | None
) -> Assignment:
    return Assignment(hash_ecmp(clos, flows, seed), "ecmp")


def _random(
    clos: Clos, flows: Flows, seed: int, previous: Assignment | None, limit: float | None
) -> Assignment:
    return Assignment(draw_random(clos, flows, seed), "random")


def _greedy(
    clos: Clos, flows: Flows, seed: int, previous: Assignment | None, limit: float | None
) -> Assignment:
    return Assignment(greedy(clos, flows, clos_paths(clos, flows)).astype(np.int64), "greedy")


def _greedy_sorted(
    clos: Clos, flows: Flows, seed: int, previous: Assignment | None, limit: float | None
) -> Assignment:
    way = greedy_sorted(clos, flows, clos_paths(clos, flows))
    return Assignment(way.astype(np.int64), "greedy-sorted")


def _edge_coloring(
    clos: Clos, flows: Flows, seed: int, previous: Assignment | None, limit: float | None
) -> Assignment:
    return Assignment(color(clos, flows, clos_paths(clos, flows)).astype(np.int64), "edge-coloring")


def _annealing(
    clos: Clos, flows: Flows, seed: int, previous: Assignment | None, limit: float | None
) -> Assignment:
    way = anneal_spines(clos, flows, clos_paths(clos, flows), seed)
    return Assignment(way.astype(np.int64), "annealing")


def _optimum(
    clos: Clos, flows: Flows, seed: int, previous: Assignment | None, limit: float | None
) -> Assignment:
    from routing.clos.optimum import optimum

    return optimum(clos, flows, seed=seed, previous=previous, time_limit=limit)


def _best(
    clos: Clos, flows: Flows, seed: int, previous: Assignment | None, limit: float | None
) -> Assignment:
    from routing.clos.best import best_spines

    return Assignment(best_spines(clos, flows, seed, previous), "best")


METHODS: dict[str, Router] = {
    "ecmp": _ecmp,
    "random": _random,
    "greedy": _greedy,
    "greedy-sorted": _greedy_sorted,
    "edge-coloring": _edge_coloring,
    "annealing": _annealing,
    "optimum": _optimum,
    "best": _best,
}


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
