"""Exact optima: branch and bound for small instances, CP-SAT for the least maximal load."""

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Ints
from routing.clos.assignment import Assignment
from routing.clos.best import best_spines
from routing.clos.bounds import bound_of_paths
from routing.clos.fabric import Clos
from routing.clos.flows import ClosFlows
from routing.clos.metric import compare_vectors
from routing.clos.paths import clos_paths
from routing.clos.state import AssignmentState

_SMALL = 24  # flows up to which branch and bound is tried
NODES_PER_SECOND = 500_000  # of the deterministic time
TIME_LIMIT = 8.0
GRAIN = 10**6  # steps of a flow's weight and of a capacity in CP-SAT, where they are not alike


def optimum(
    clos: Clos,
    flows: ClosFlows,
    *,
    seed: int = 0,
    previous: Assignment | None = None,
    time_limit: float | None = None,
) -> Assignment:
    """Return the best assignment that can be proven, starting from `best_spines`.

    Up to 24 flows the lexicographic optimum is sought by branch and bound. Otherwise, or if that
    does not end in time, CP-SAT minimises the maximal load, and the assignment (of
    `best_spines`, if its maximal load is the least) is improved in the other coordinates
    without proof.

    Parameters
    ----------
    clos : Clos
        The fabric.
    flows : ClosFlows
        What is sent; known to fit the fabric, with a live path each.
    seed : int, default 0
        Of the search and the solver.
    previous : Assignment, optional
        One of the starts.
    time_limit : float, default 8
        Deterministic seconds (work, not the clock); one worker, so that results repeat.

    Returns
    -------
    Assignment
        ``optimal`` is True if the efficiency vector is proven lexicographically optimal (small
        instances, or the bound is met) or, for larger ones, if the maximal load is proven least
        (weights and capacities that differ are rounded to a millionth for that).

    Raises
    ------
    InputError
        If the time limit is not positive.
    """
    limit = TIME_LIMIT if time_limit is None else time_limit
    if not (limit > 0 and np.isfinite(limit)):
        raise InputError(f"time_limit is {limit} s; give a positive number")
    spine = best_spines(clos, flows, seed, previous)
    paths = clos_paths(clos, flows)
    state = AssignmentState(paths, flows, seed)
    state.set(spine.astype(np.int32))
    bound = bound_of_paths(paths, flows)
    if compare_vectors(np.sort(state.speed), bound) >= 0:
        return Assignment(spine, True)
    if int(flows.crosses.sum()) <= _SMALL:
        way, proved = state.prove(spine.astype(np.int32), int(limit * NODES_PER_SECOND))
        spine = way.astype(np.int64)
        if proved:
            return Assignment(spine, True)
        state.set(way)
    known = state.max_load
    if bound[0] < 1.0 and known <= (1.0 + 1e-9) / bound[0]:
        return Assignment(spine, True)
    found, proved = least_max_load(clos, flows, spine, seed, limit)
    state.set(found.astype(np.int32))
    if state.max_load < known * (1.0 - 1e-9):
        state.improve(40_000 + 60 * flows.count, 10_000 + 15 * flows.count)
        spine = state.chosen.astype(np.int64)
    return Assignment(spine, proved)


def least_max_load(
    clos: Clos, flows: ClosFlows, hint: Ints, seed: int, limit: float
) -> tuple[Ints, bool]:
    """Minimise the largest weighted load over capacity with CP-SAT.

    Flows of one weight between the same ToRs are interchangeable; the model counts how many of
    them take each spine.

    Parameters
    ----------
    clos, flows
        The fabric and what is sent.
    hint : int64 array, shape (flows,)
        A known assignment.
    seed : int
        Of the solver.
    limit : float
        Deterministic seconds.

    Returns
    -------
    spine : int64 array, shape (flows,)
        The best found; the hint if the solver found nothing.
    proved : bool
        Whether its maximal load is the least.
    """
    from ortools.sat.python import cp_model

    moving = np.flatnonzero(flows.crosses)
    room = clos.capacity[clos.capacity > 0]
    alike = bool(np.all(room == room[0]))
    even = alike and bool(np.all(flows.weight[moving] == flows.weight[moving[0]]))
    size = np.ones(flows.count, dtype=np.int64)
    if not even:
        size = np.maximum(np.rint(flows.weight * GRAIN), 1).astype(np.int64)
    # A step of the objective is load / capacity of a millionth where capacities differ.
    scale = 1 if alike else GRAIN // 1000
    share = np.ones_like(clos.capacity, dtype=np.int64)
    if not alike:
        share = np.rint(clos.capacity / room.max() * scale).astype(np.int64)
    key = np.stack((flows.source_tor, flows.target_tor, size), axis=1)[moving]
    kinds, kind, many = np.unique(key, axis=0, return_inverse=True, return_counts=True)
    kind = kind.ravel()
    model = cp_model.CpModel()
    uses: dict[int, list[tuple[cp_model.IntVar, int]]] = {}
    count: list[dict[int, cp_model.IntVar]] = []
    pairs = clos.tors * clos.spines
    hinted = np.zeros((many.size, clos.spines), dtype=np.int64)
    np.add.at(hinted, (kind, hint[moving]), 1)
    for number, (source, target, weight) in enumerate(kinds.tolist()):
        row = {}
        for spine in np.flatnonzero(clos.live(source, target)).tolist():
            row[spine] = model.new_int_var(0, int(many[number]), "")
            model.add_hint(row[spine], int(hinted[number, spine]))
            for link in (source * clos.spines + spine, pairs + target * clos.spines + spine):
                uses.setdefault(link, []).append((row[spine], weight))
        model.add(sum(row.values()) == int(many[number]))
        count.append(row)
    most = int(size[moving].sum()) * scale
    peak = model.new_int_var(0, most, "")
    for link, terms in uses.items():
        load = sum(variable * (weight * (scale if not alike else 1)) for variable, weight in terms)
        model.add(load <= peak * int(share[link]))
    model.minimize(peak)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed % 2**31
    solver.parameters.max_deterministic_time = limit
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return hint, False
    found = hint.copy()
    for number, row in enumerate(count):
        members = moving[kind == number]
        taken = [spine for spine, variable in row.items() for _ in range(solver.value(variable))]
        found[members] = taken
    return found, status == cp_model.OPTIMAL
