"""Search over network shapes and divisions of a job: thousands of problems, the best first.

Candidates are dealt with in chunks, chunks in rounds. What a chunk does depends only on its
candidates and the best values known before its round, so that answers and counts do not depend
on the number of processes.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from codesign_base import InfeasibleError, InputError
from codesign_base.counted import counted
from topoopt.bandwidth.explore.chunks import (
    SearchSpace,
    SolvedCandidate,
    Tally,
    rounded,
    solve_chunk,
)
from topoopt.bandwidth.explore.divisions import Division
from topoopt.bandwidth.model.network import MultiDimNetwork
from topoopt.bandwidth.solve.diagnose import check_problem
from topoopt.bandwidth.solve.question import Question
from topoopt.bandwidth.solve.solver import Solution, solve
from topoopt.base.calls import Call
from topoopt.base.engine import in_order, open_workers

CHUNK = 64
ROUND = 8  # chunks


@dataclass(frozen=True, eq=False)
class NetworkDesign:
    """A network, a division of the job over it, and the best bandwidths, with their proof.

    Parameters
    ----------
    network : MultiDimNetwork
    division : Division
    order : tuple of str
        Axes of the layout from the innermost to the outermost.
    solution : Solution
    equals : tuple of str
        Designs whose problem is the same, as text.
    """

    network: MultiDimNetwork
    division: Division
    order: tuple[str, ...]
    solution: Solution
    equals: tuple[str, ...] = ()


SweepProgress = Callable[[int, int, float], None]
"""Takes the candidates done, those there are, and the best objective (at first infinite)."""


@dataclass(frozen=True, eq=False)
class Sweep:
    """What a search found.

    Parameters
    ----------
    designs : tuple of NetworkDesign
        The best ones, best first.
    question : Question
    candidates : int
        Shapes x divisions x orders.
    tally : Tally
        What became of them.
    interrupted : bool
        Whether it was stopped; then designs that were not looked at may be better.
    """

    designs: tuple[NetworkDesign, ...]
    question: Question
    candidates: int
    tally: Tally
    interrupted: bool


def search_designs(
    shapes: Sequence[MultiDimNetwork],
    divisions: Sequence[Division],
    question: Question,
    *,
    keep: int = 10,
    jobs: int = 1,
    prune: bool = True,
    progress: SweepProgress | None = None,
) -> Sweep:
    """Find the best designs among all shapes and divisions.

    Parameters
    ----------
    shapes : sequence of MultiDimNetwork
        See `shapes.network_shapes`.
    divisions : sequence of Division
        See `divisions.builtin_divisions`; all for as many NPUs as the shapes have.
    question : Question
        Its constraints name ``sum(b)`` and ``cost``, and single bandwidths only if all shapes
        have them.
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
    if not shapes or not divisions or keep < 1 or jobs < 1:
        raise InputError(
            f"search of {counted(len(shapes), 'shape')} and {counted(len(divisions), 'division')} "
            f"for {counted(keep, 'design')} in {counted(jobs, 'process', 'processes')}; give at "
            "least 1 each"
        )
    npus = shapes[0].npus
    for size in {n.npus for n in shapes} | {each.layout.gpus for each in divisions}:
        if size != npus:
            raise InputError(f"search mixes {npus} and {size} NPUs; give one number")
    # The divisions that compute least come first, so that the others fall to their bounds.
    ranked = sorted(divisions, key=lambda division: division.workload.compute)
    space = SearchSpace(tuple(shapes), tuple(ranked), question, keep, prune)
    _check(space)
    return _run(space, jobs, progress)


def _check(space: SearchSpace) -> None:
    """Raise what is wrong with every problem alike, from the first that can be laid out."""
    for dimensions in sorted({shape.dimensions for shape in space.shapes}):
        for index in range(space.size):
            shape, division, order = space.candidate(index)
            if shape.dimensions == dimensions:
                problem = space.problem(shape, division, order)
                if problem is not None:
                    check_problem(problem)
                    break


def _run(space: SearchSpace, jobs: int, progress: SweepProgress | None) -> Sweep:
    best: dict[bytes, SolvedCandidate] = {}
    tally = Tally()
    interrupted = False
    limit = np.inf
    chunks = [(begin, min(begin + CHUNK, space.size)) for begin in range(0, space.size, CHUNK)]
    try:
        workers = jobs if len(chunks) > 1 else 1
        with open_workers(workers=workers, shared={"space": space}) as run:
            for first in range(0, len(chunks), ROUND):
                asked = chunks[first : first + ROUND]
                calls = [
                    Call(solve_chunk, {"begin": begin, "end": end, "limit": limit})
                    for begin, end in asked
                ]
                for found, added in in_order(run(calls)):
                    tally = tally + added
                    for entry in found:
                        _take(best, entry)
                leading = heapq.nsmallest(space.keep, best.values(), key=SolvedCandidate.rank)
                best = {entry.key: entry for entry in leading}
                if len(leading) == space.keep:
                    limit = leading[-1].value
                if progress is not None:
                    top = leading[0].value if leading else np.inf
                    progress(asked[-1][1], space.size, top)
    except KeyboardInterrupt:
        interrupted = True
    if not best:
        if interrupted:
            raise KeyboardInterrupt
        raise InfeasibleError(
            f"none of {counted(space.size, 'design')} has an answer: {tally.unfit} cannot be laid "
            f"out, {tally.infeasible} break the constraints; loosen them or allow other shapes"
        )
    designs = sorted(
        (_design(space, entry) for entry in best.values()),
        key=lambda pair: (rounded(pair[1].solution.primal), pair[1].solution.cost, pair[0]),
    )
    return Sweep(
        tuple(design for _, design in designs), space.question, space.size, tally, interrupted
    )


def _take(best: dict[bytes, SolvedCandidate], entry: SolvedCandidate) -> None:
    known = best.get(entry.key)
    if known is None:
        best[entry.key] = entry
    else:
        best[entry.key] = replace(known, equals=(*known.equals, entry.index, *entry.equals))


def _design(space: SearchSpace, entry: SolvedCandidate) -> tuple[int, NetworkDesign]:
    """Solve once more, for everything that a solution holds and ties broken by cost."""
    shape, division, order = space.candidate(entry.index)
    problem = space.problem(shape, division, order)
    assert problem is not None
    solution = solve(problem, np.array(entry.bandwidth))
    equals = tuple(describe_design(*space.candidate(index)) for index in sorted(entry.equals))
    return entry.index, NetworkDesign(shape, division, order, solution, equals)


def describe_design(shape: MultiDimNetwork, division: Division, order: Sequence[str]) -> str:
    """Return a design in words: ``RI(4)_SW(8), TP 4 x DP 8, tensor innermost``."""
    real = [axis for axis in order if getattr(division.layout, axis) > 1]
    inner = f", {' inside '.join(real)}" if len(real) > 1 else ""
    return f"{shape.notation}, {division.label}{inner}"
