"""Search over network shapes and ways to divide a job: thousands of problems, the best first.

Candidates are dealt with in chunks, chunks in rounds. What a chunk does depends only on its
candidates and the best values known before its round, so that answers and counts do not depend
on the number of processes.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from codesign_base import InfeasibleError, InputError
from topoopt.bandwidth.chunks import Chunk, Found, SearchSpace, Tally, rounded, solve_chunk
from topoopt.bandwidth.collectives import PartialGroups
from topoopt.bandwidth.constraints import budget_constraint
from topoopt.bandwidth.cost import CostModel, default_cost
from topoopt.bandwidth.diagnose import check_problem
from topoopt.bandwidth.loops import Loop
from topoopt.bandwidth.network import MultiDimNetwork
from topoopt.bandwidth.problem import Objective
from topoopt.bandwidth.solver import Solution, solve
from topoopt.bandwidth.ways import Way

CHUNK = 64
ROUND = 8  # chunks


@dataclass(frozen=True, eq=False)
class Design:
    """A network, a way to divide the job over it, and the best bandwidths, with their proof.

    Parameters
    ----------
    network : MultiDimNetwork
    way : Way
    order : tuple of str
        Axes of the way from the innermost to the outermost.
    solution : Solution
    equals : tuple of str
        Designs whose problem is the same, as text.
    """

    network: MultiDimNetwork
    way: Way
    order: tuple[str, ...]
    solution: Solution
    equals: tuple[str, ...] = ()


@dataclass(frozen=True)
class SweepProgress:
    """How far a search is.

    Parameters
    ----------
    done, total : int
        Candidates.
    best : float
        Objective; infinite before the first answer.
    """

    done: int
    total: int
    best: float


@dataclass(frozen=True, eq=False)
class Sweep:
    """What a search found.

    Parameters
    ----------
    designs : tuple of Design
        The best ones, best first.
    objective : Objective
    candidates : int
        Shapes x ways x orders.
    tally : Tally
        What became of them.
    interrupted : bool
        Whether it was stopped; then designs that were not looked at may be better.
    """

    designs: tuple[Design, ...]
    objective: Objective
    candidates: int
    tally: Tally
    interrupted: bool


def search_designs(
    shapes: Sequence[MultiDimNetwork],
    ways: Sequence[Way],
    *,
    budget: str | None = None,
    constraints: Sequence[str] = (),
    objective: Objective = Objective.TIME,
    loop: Loop = Loop.NONE,
    partial: PartialGroups = PartialGroups.USABLE,
    cost: CostModel | None = None,
    npu_cost: float | None = None,
    deadline: float | None = None,
    keep: int = 10,
    jobs: int = 1,
    prune: bool = True,
    progress: Callable[[SweepProgress], None] | None = None,
) -> Sweep:
    """Find the best designs among all shapes and ways.

    Parameters
    ----------
    shapes : sequence of MultiDimNetwork
        See `shapes.network_shapes`.
    ways : sequence of Way
        See `ways.builtin_ways`; all for as many NPUs as the shapes have.
    budget, constraints, objective, loop, partial, cost, npu_cost, deadline
        As in `allocate.allocate_bandwidth`; constraints name ``sum(b)`` and ``cost``, and
        single bandwidths only if all shapes have them.
    keep : int, optional
        Number of designs.
    jobs : int, optional
        Processes; the answer is the same for any number. They are started afresh (spawn), so a
        script that uses more than one needs the usual ``if __name__ == "__main__"``.
    prune : bool, optional
        Leave candidates unsolved whose lower bound shows that they are not among the best;
        changes the tally only.
    progress : callable, optional
        Called after each round; what it raises ends the search, `KeyboardInterrupt` with what
        was found.

    Returns
    -------
    Sweep

    Raises
    ------
    InputError
        If an argument is out of range, or the problems have no lower bound.
    InfeasibleError
        If no candidate has an answer.
    """
    if not shapes or not ways or keep < 1 or jobs < 1:
        raise InputError(
            f"search of {len(shapes)} shapes and {len(ways)} ways for {keep} designs in {jobs} "
            "processes; give at least 1 each"
        )
    npus = shapes[0].npus
    for size in {n.npus for n in shapes} | {w.tensor * w.data * w.pipeline for w in ways}:
        if size != npus:
            raise InputError(f"search mixes {npus} and {size} NPUs; give one number")
    prices = cost if cost is not None else default_cost()
    each = prices.npu if npu_cost is None else npu_cost
    if not 0 <= each < float("inf"):
        raise InputError(f"NPU cost is {each} USD; give zero or more")
    texts = tuple(constraints)
    if budget is not None:
        texts = (budget_constraint(budget, shapes[0].dimensions), *texts)
    # The ways that compute least come first, so that the others fall to their bounds.
    ranked = sorted(ways, key=lambda way: way.workload.compute)
    space = SearchSpace(
        tuple(shapes), tuple(ranked), texts, replace(prices, npu=each), objective, loop, partial,
        deadline, keep, prune,
    )  # fmt: skip
    _check(space)
    return _run(space, jobs, progress)


def _check(space: SearchSpace) -> None:
    """Raise what is wrong with every problem alike, from the first that can be laid out."""
    for dimensions in sorted({shape.dimensions for shape in space.shapes}):
        for index in range(space.size):
            shape, way, order = space.candidate(index)
            if shape.dimensions == dimensions:
                problem = space.problem(shape, way, order)
                if problem is not None:
                    check_problem(problem)
                    break


def _run(space: SearchSpace, jobs: int, progress: Callable[[SweepProgress], None] | None) -> Sweep:
    best: dict[bytes, Found] = {}
    tally = Tally()
    interrupted = False
    limit = np.inf
    done = 0
    chunks = [(begin, min(begin + CHUNK, space.size)) for begin in range(0, space.size, CHUNK)]
    try:
        with _solver(space, jobs if len(chunks) > 1 else 1) as solve_all:
            for first in range(0, len(chunks), ROUND):
                asked = [Chunk(begin, end, limit) for begin, end in chunks[first : first + ROUND]]
                for found, counted in solve_all(asked):
                    tally = tally + counted
                    for entry in found:
                        _take(best, entry)
                done = asked[-1].end
                leading = heapq.nsmallest(space.keep, best.values(), key=Found.rank)
                best = {entry.key: entry for entry in leading}
                if len(leading) == space.keep:
                    limit = leading[-1].value
                if progress is not None:
                    top = leading[0].value if leading else np.inf
                    progress(SweepProgress(done, space.size, top))
    except KeyboardInterrupt:
        interrupted = True
    if not best:
        if interrupted:
            raise KeyboardInterrupt
        raise InfeasibleError(
            f"none of {space.size} designs has an answer: {tally.unfit} cannot be laid out, "
            f"{tally.infeasible} break the constraints; loosen them or allow other shapes"
        )
    designs = sorted(
        (_design(space, entry) for entry in best.values()),
        key=lambda pair: (rounded(pair[1].solution.primal), pair[1].solution.cost, pair[0]),
    )
    return Sweep(
        tuple(design for _, design in designs), space.objective, space.size, tally, interrupted
    )


def _take(best: dict[bytes, Found], entry: Found) -> None:
    known = best.get(entry.key)
    if known is None:
        best[entry.key] = entry
    else:
        best[entry.key] = replace(known, equals=(*known.equals, entry.index, *entry.equals))


def _design(space: SearchSpace, entry: Found) -> tuple[int, Design]:
    """Solve once more, for everything that a solution holds and ties broken by cost."""
    shape, way, order = space.candidate(entry.index)
    problem = space.problem(shape, way, order)
    assert problem is not None
    solution = solve(problem, np.array(entry.bandwidth))
    equals = tuple(describe(*space.candidate(index)) for index in sorted(entry.equals))
    return entry.index, Design(shape, way, order, solution, equals)


def describe(shape: MultiDimNetwork, way: Way, order: Sequence[str]) -> str:
    """Return a design in words: ``RI(4)_SW(8), TP 4 x DP 8, tensor innermost``."""
    real = [axis for axis in order if way.count(axis) > 1]
    inner = f", {' inside '.join(real)}" if len(real) > 1 else ""
    return f"{shape.notation}, {way.label}{inner}"


class _solver:
    """A context that solves chunks in this process or in others."""

    def __init__(self, space: SearchSpace, jobs: int) -> None:
        self.space, self.jobs = space, jobs

    def __enter__(self) -> Callable[[list[Chunk]], Iterator[tuple[list[Found], Tally]]]:
        if self.jobs == 1:
            return lambda asked: (solve_chunk(self.space, chunk) for chunk in asked)
        from topoopt.bandwidth.chunk_workers import Workers

        self.workers = Workers(self.space, self.jobs)
        return self.workers.solve

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self.jobs > 1:
            self.workers.end(at_once=kind is not None)
