"""The problems of a search, and what one process does with a chunk of them."""

import hashlib
import heapq
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from codesign_base import InfeasibleError, InputError
from topoopt.bandwidth.collectives import PartialGroups
from topoopt.bandwidth.constraints import Constraints, parse_constraints
from topoopt.bandwidth.cost import CostModel, cost_coefficients
from topoopt.bandwidth.loops import Loop, add_up
from topoopt.bandwidth.network import MultiDimNetwork
from topoopt.bandwidth.optimise import GAP, optimise
from topoopt.bandwidth.problem import Objective, Problem
from topoopt.bandwidth.quick import largest_sum, quick_bound
from topoopt.bandwidth.solver import solve
from topoopt.bandwidth.time_model import Floats, compile_time
from topoopt.bandwidth.ways import Way, way_layers

_BEYOND = 1 + 1e-5  # candidates with bounds above this times the limit are left out


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
        Ways that divide a dimension unevenly.
    infeasible : int
        Without bandwidths that meet the constraints.
    """

    solved: int = 0
    repeated: int = 0
    pruned: int = 0
    unfit: int = 0
    infeasible: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.solved + other.solved,
            self.repeated + other.repeated,
            self.pruned + other.pruned,
            self.unfit + other.unfit,
            self.infeasible + other.infeasible,
        )


@dataclass(frozen=True)
class Found:
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


@dataclass(frozen=True)
class Chunk:
    """Candidates ``begin .. end - 1``, and the value that they must beat."""

    begin: int
    end: int
    limit: float


@dataclass(frozen=True, eq=False)
class SearchSpace:
    """Shapes x ways x orders, and what is asked of each; see `sweep.search_designs`."""

    shapes: tuple[MultiDimNetwork, ...]
    ways: tuple[Way, ...]
    texts: tuple[str, ...]
    prices: CostModel
    objective: Objective
    loop: Loop
    partial: PartialGroups
    deadline: float | None
    keep: int
    prune: bool
    _ends: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        total = 0
        for way in self.ways:
            total += len(way.orders) * len(self.shapes)
            self._ends.append(total)

    @property
    def size(self) -> int:
        """Number of candidates."""
        return self._ends[-1]

    def candidate(self, index: int) -> tuple[MultiDimNetwork, Way, tuple[str, ...]]:
        """Return the shape, way and order of a candidate."""
        at = int(np.searchsorted(self._ends, index, side="right"))
        way = self.ways[at]
        within = index - (self._ends[at - 1] if at else 0)
        # Neighbours share the way, so that one starts from the other's bandwidths.
        order, shape = divmod(within, len(self.shapes))
        return self.shapes[shape], way, way.orders[order]

    def problem(self, shape: MultiDimNetwork, way: Way, order: tuple[str, ...]) -> Problem | None:
        """Return the problem of a candidate, None if the way does not fit the shape."""
        layers = way_layers(shape, way, order, self.partial)
        if layers is None:
            return None
        time = compile_time(add_up(layers, self.loop), shape.dimensions)
        cost, fixed, limits = _limits(shape, self.prices_key, self.texts)
        return Problem(time, cost, fixed, limits, self.objective, self.deadline)

    @property
    def prices_key(self) -> "_Prices":
        """The prices, as a key of the cache of constraints."""
        return _Prices(self.prices)


class _Prices:
    """A cost model compared by identity of its levels, to be looked up by."""

    def __init__(self, model: CostModel) -> None:
        self.model = model

    def __hash__(self) -> int:
        return id(self.model)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Prices) and other.model is self.model


@lru_cache(maxsize=4096)
def _limits(
    shape: MultiDimNetwork, prices: _Prices, texts: tuple[str, ...]
) -> tuple[Floats, float, Constraints]:
    cost = cost_coefficients(shape, prices.model)
    fixed = prices.model.npu * shape.npus
    return cost, fixed, parse_constraints(texts, shape.dimensions, cost, fixed)


def problem_key(problem: Problem) -> bytes:
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


def solve_chunk(space: SearchSpace, chunk: Chunk) -> tuple[list[Found], Tally]:
    """Return the best answers of a chunk, at most as many as are kept, and its tally."""
    known: dict[bytes, Found | None] = {}
    solved = repeated = pruned = unfit = infeasible = 0
    leaders: list[float] = []  # negated values of the best so far, the worst of them first
    limit = chunk.limit
    starts: dict[int, Floats] = {}
    for index in range(chunk.begin, chunk.end):
        shape, way, order = space.candidate(index)
        if space.prune and _hopeless(space, way, limit):
            pruned += 1
            continue
        problem = space.problem(shape, way, order)
        if problem is None:
            unfit += 1
            continue
        key = problem_key(problem)
        if key in known:
            entry = known[key]
            repeated += 1
            if entry is not None:
                known[key] = Found(
                    entry.value, entry.cost, entry.index, entry.bandwidth, key,
                    (*entry.equals, index),
                )  # fmt: skip
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
        space.keep, (entry for entry in known.values() if entry is not None), key=Found.rank
    )
    return best, Tally(solved, repeated, pruned, unfit, infeasible)


def _hopeless(space: SearchSpace, way: Way, limit: float) -> bool:
    """Say whether computing alone takes a way longer than the best designs."""
    if space.objective != Objective.TIME or space.loop != Loop.NONE:
        return False
    bubble = (way.microbatches + way.pipeline - 1) / way.microbatches
    return way.workload.compute * bubble > limit * _BEYOND


def _answer(problem: Problem, start: Floats | None, index: int, key: bytes) -> Found | None:
    found = optimise(problem, start)
    bandwidth = found.bandwidth
    if bandwidth is None or found.gap > GAP:
        try:
            bandwidth = solve(problem).bandwidth  # from another start, or says why not
        except (InfeasibleError, InputError):
            return None
    return Found(
        problem.value(bandwidth), problem.cost_of(bandwidth), index,
        tuple(bandwidth.tolist()), key,
    )  # fmt: skip
