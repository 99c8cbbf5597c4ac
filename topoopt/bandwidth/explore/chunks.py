"""The problems of a search, and what one process does with a chunk of them."""

import hashlib
import heapq
from dataclasses import astuple, dataclass, field, replace

import numpy as np

from codesign_base import InfeasibleError, InputError
from codesign_base.arrays import Floats
from topoopt.bandwidth.explore.divisions import Division, division_layers
from topoopt.bandwidth.model.loops import Loop, add_up
from topoopt.bandwidth.model.network import MultiDimNetwork
from topoopt.bandwidth.model.time_model import compile_time
from topoopt.bandwidth.solve.diagnose import starved
from topoopt.bandwidth.solve.optimise import GAP, optimise
from topoopt.bandwidth.solve.problem import AllocationObjective, AllocationProblem
from topoopt.bandwidth.solve.question import Question
from topoopt.bandwidth.solve.quick import largest_sum, quick_bound
from topoopt.bandwidth.solve.solver import solve

_BEYOND = 1 + 1e-5  # candidates with bounds above this times the limit are left out
_MOST_KNOWN = 4096  # shapes whose prices and constraints are kept


@dataclass(frozen=True)
class Tally:
    """What became of the candidates.

    Parameters
    ----------
    solved : int
        By the cone solver.
    repeated : int
        Equal to one solved in the same chunk.
    pruned : int
        Shown by a lower bound not to be among the best.
    unfit : int
        Divisions that split a dimension unevenly.
    infeasible : int
        Without bandwidths that meet the constraints.
    """

    solved: int = 0
    repeated: int = 0
    pruned: int = 0
    unfit: int = 0
    infeasible: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Tally(*(mine + theirs for mine, theirs in pairs))


@dataclass(frozen=True)
class SolvedCandidate:
    """The answer to one candidate.

    Parameters
    ----------
    value, cost : float
    index : int
        Of the candidate.
    bandwidth : tuple of float
    key : bytes
        Equal for equal problems.
    equals : tuple of int
        Other candidates with the same problem.
    """

    value: float
    cost: float
    index: int
    bandwidth: tuple[float, ...]
    key: bytes
    equals: tuple[int, ...] = ()

    def rank(self) -> tuple[float, float, int]:
        """Return what candidates are ordered by: of equal values the cheapest first."""
        return (rounded(self.value), self.cost, self.index)


def rounded(value: float) -> float:
    """Return a value without the digits that its proof leaves open."""
    return float(f"{value:.6e}")


@dataclass(frozen=True, eq=False)
class SearchSpace:
    """Shapes x divisions x orders, and what is asked of each; see `sweep.search_designs`."""

    shapes: tuple[MultiDimNetwork, ...]
    divisions: tuple[Division, ...]
    question: Question
    keep: int
    prune: bool
    _ends: list[int] = field(default_factory=list)
    _known: dict[MultiDimNetwork, AllocationProblem] = field(default_factory=dict)

    def __post_init__(self) -> None:
        total = 0
        for division in self.divisions:
            total += len(division.orders) * len(self.shapes)
            self._ends.append(total)

    @property
    def size(self) -> int:
        """Number of candidates."""
        return self._ends[-1]

    def candidate(self, index: int) -> tuple[MultiDimNetwork, Division, tuple[str, ...]]:
        """Return the shape, division and order of a candidate."""
        at = int(np.searchsorted(self._ends, index, side="right"))
        division = self.divisions[at]
        within = index - (self._ends[at - 1] if at else 0)
        # Neighbours share the division, so that one starts from the other's bandwidths.
        order, shape = divmod(within, len(self.shapes))
        return self.shapes[shape], division, division.orders[order]

    def problem(
        self, shape: MultiDimNetwork, division: Division, order: tuple[str, ...]
    ) -> AllocationProblem | None:
        """Return the problem of a candidate, None if the division does not fit the shape."""
        layers = division_layers(shape, division, order, self.question.partial)
        if layers is None:
            return None
        time = compile_time(add_up(layers, self.question.loop), shape.dimensions)
        if shape not in self._known:
            if len(self._known) == _MOST_KNOWN:
                self._known.clear()
            self._known[shape] = self.question.problem(shape, time)
        return replace(self._known[shape], time=time)


def problem_key(problem: AllocationProblem) -> bytes:
    """Return a digest that equal problems share."""
    time, limits = problem.time, problem.constraints
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((time.constant, problem.fixed_cost, time.loads.shape)).encode())
    for array in (
        time.weights, time.loads, time.part_node, time.part_constant, time.part_coefficients,
        problem.cost, limits.matrix, limits.bound,
    ):  # fmt: skip
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()


def solve_chunk(
    space: SearchSpace, begin: int, end: int, limit: float
) -> tuple[list[SolvedCandidate], Tally]:
    """Return the best answers of candidates ``begin .. end - 1``, and what became of them all.

    At most as many as are kept; ``limit`` is the value that they must beat.
    """
    known: dict[bytes, SolvedCandidate | None] = {}
    solved = repeated = pruned = unfit = infeasible = 0
    leaders: list[float] = []  # negated values of the best so far, the worst of them first
    starts: dict[int, Floats] = {}
    for index in range(begin, end):
        shape, division, order = space.candidate(index)
        if space.prune and _hopeless(space, division, limit):
            pruned += 1
            continue
        problem = space.problem(shape, division, order)
        if problem is None:
            unfit += 1
            continue
        key = problem_key(problem)
        if key in known:
            entry = known[key]
            repeated += 1
            if entry is not None:
                known[key] = replace(entry, equals=(*entry.equals, index))
            continue
        if space.prune and quick_bound(problem, largest_sum(problem)) > limit * _BEYOND:
            pruned += 1
            continue
        start = starts.get(shape.dimensions)
        entry = _answer(problem, start, index, key)
        known[key] = entry
        if entry is None:
            infeasible += 1
            continue
        solved += 1
        starts[shape.dimensions] = np.maximum(
            np.array(entry.bandwidth), 1e-6 * max(entry.bandwidth)
        )
        heapq.heappush(leaders, -entry.value)
        if len(leaders) > space.keep:
            heapq.heappop(leaders)
        if len(leaders) == space.keep:
            limit = min(limit, -leaders[0])
    best = heapq.nsmallest(
        space.keep,
        (entry for entry in known.values() if entry is not None),
        key=SolvedCandidate.rank,
    )
    return best, Tally(solved, repeated, pruned, unfit, infeasible)


def _hopeless(space: SearchSpace, division: Division, limit: float) -> bool:
    """Say whether computing alone takes a division longer than the best designs."""
    question = space.question
    if question.objective != AllocationObjective.TIME or question.loop != Loop.NONE:
        return False
    return division.workload.compute * division.stretch > limit * _BEYOND


def _answer(
    problem: AllocationProblem, start: Floats | None, index: int, key: bytes
) -> SolvedCandidate | None:
    found = optimise(problem, start)
    bandwidth = found.bandwidth
    if bandwidth is None or found.gap > GAP or starved(problem, bandwidth):
        try:
            bandwidth = solve(problem).bandwidth  # from another start, or says why not
        except (InfeasibleError, InputError):
            return None
    return SolvedCandidate(
        problem.value(bandwidth), problem.cost_of(bandwidth), index,
        tuple(bandwidth.tolist()), key,
    )  # fmt: skip
