"""Boxes of rates: bounded by the convex problem, shrunk, cut in two, or enumerated."""

import heapq
from dataclasses import replace
from math import prod

import numpy as np

from codesign_base.arrays import Floats, Ints
from topoopt.bandwidth.model.time_model import TimeModel
from topoopt.bandwidth.solve.certificate import Certificate
from topoopt.bandwidth.solve.constraints import Constraints
from topoopt.bandwidth.solve.optimise import optimise
from topoopt.bandwidth.solve.problem import AllocationObjective, AllocationProblem

_TOLERANCE = 1e-9  # of constraints and deadlines, relative
_GAP = 5e-8  # boxes that cannot be better by more are put aside


def times_at(model: TimeModel, points: Floats) -> Floats:
    """Return the iteration times at many bandwidths.

    Parameters
    ----------
    model : TimeModel
    points : float64 array, shape (points, dimensions)
        Bytes/s.

    Returns
    -------
    float64 array, shape (points,)
        Seconds.
    """
    count = len(model.loads)
    values = np.zeros((len(points), model.nodes))
    with np.errstate(divide="ignore", invalid="ignore"):
        for k, load in enumerate(model.loads):
            on = load > 0
            values[:, k] = (load[on] / points[:, on]).max(axis=1)
    if model.nodes > count:
        unbuilt = ~np.isfinite(values).all(axis=1)
        values[unbuilt] = 0.0
        for r, node in enumerate(model.part_node):
            part = model.part_constant[r] + values @ model.part_coefficients[r]
            values[:, node] = np.maximum(values[:, node], part)
        values[unbuilt] = np.inf
    made: Floats = model.constant + values[:, model.weights > 0] @ model.weights[model.weights > 0]
    return made


class BoxSearch:
    """The open boxes, the best rates so far, and what was put aside."""

    def __init__(self, problem: AllocationProblem, rates: tuple[Floats, ...], leaf: int) -> None:
        self.problem = problem
        self.rates = rates
        self.leaf = leaf
        self.best: Floats | None = None
        self.value = np.inf
        self.cost = np.inf
        self.bound = np.inf  # smallest bound of the boxes put aside
        self.relaxed = -np.inf
        self.root: Certificate | None = None
        self.root_bandwidth: Floats | None = None  # the optimum that `root` proves
        self.looked = 0

    def run(self, nodes: int, relax_first: bool = False) -> bool:
        """Search until nothing better is left, or the nodes are spent.

        The first box may be relaxed although it is enumerated: for its bound and multipliers.
        """
        first = np.zeros(len(self.rates), dtype=np.int64)
        last = np.array([len(r) - 1 for r in self.rates], dtype=np.int64)
        heap: list[tuple[float, int, Ints, Ints, Floats | None]] = [(-np.inf, 0, first, last, None)]
        serial = 0
        while heap:
            bound, _, low, high, near = heapq.heappop(heap)
            if self._settled(bound):
                self.bound = min(self.bound, bound, *(entry[0] for entry in heap))
                return True
            if self.looked >= nodes:
                self.bound = min(self.bound, bound, *(entry[0] for entry in heap))
                return False
            self.looked += 1
            box = self._shrink(low, high)
            if box is None:
                continue
            low, high = box
            if prod((high - low + 1).tolist()) <= self.leaf:
                if relax_first and self.looked == 1:
                    self._relax(low, high, bound, near)
                self._enumerate(low, high)
                continue
            bound, relaxed = self._relax(low, high, bound, near)
            if bound == np.inf:
                continue
            if self._settled(bound):
                self.bound = min(self.bound, bound)
                continue
            for child in self._split(low, high, relaxed):
                serial += 1
                heapq.heappush(heap, (bound, serial, *child, relaxed))
        return True

    def offer(self, points: Floats) -> None:
        """Take the best of some rates if it is better; of equals the cheapest."""
        good = self._feasible(points)
        points = points[good]
        if not len(points):
            return
        times = times_at(self.problem.time, points)
        costs = points @ self.problem.cost + self.problem.fixed_cost
        values = {
            AllocationObjective.TIME: times,
            AllocationObjective.TIME_COST: times * costs,
            AllocationObjective.COST: costs,
        }[self.problem.objective]
        at = int(np.lexsort((costs, values))[0])
        if (values[at], costs[at]) < (self.value, self.cost):
            self.best, self.value, self.cost = points[at], float(values[at]), float(costs[at])

    def _settled(self, bound: float) -> bool:
        return bool(bound >= self.value * (1.0 - _GAP))

    def _feasible(self, points: Floats) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        limits = self.problem.constraints
        good = np.ones(len(points), dtype=np.bool_)
        for row, bound, equal in zip(limits.matrix, limits.bound, limits.equality, strict=True):
            excess = points @ row - bound
            excess = np.abs(excess) if equal else excess
            good &= excess <= _TOLERANCE * np.maximum(np.abs(points * row).max(axis=1), abs(bound))
        times = times_at(self.problem.time, points)
        deadline = np.inf if self.problem.deadline is None else self.problem.deadline
        good &= np.isfinite(times) & (times <= deadline * (1.0 + _TOLERANCE))
        return good

    def _ends(self, low: Ints, high: Ints) -> tuple[Floats, Floats]:
        bottom = np.array([r[i] for r, i in zip(self.rates, low, strict=True)])
        top = np.array([r[i] for r, i in zip(self.rates, high, strict=True)])
        return bottom, top

    def _shrink(self, low: Ints, high: Ints) -> tuple[Ints, Ints] | None:
        """Cut rates off a box that break a constraint whatever the others are; None if all."""
        limits = self.problem.constraints
        rows = [(row, bound) for row, bound in zip(limits.matrix, limits.bound, strict=True)]
        rows += [(-r, -h) for (r, h), equal in zip(rows, limits.equality, strict=True) if equal]
        low, high = low.copy(), high.copy()
        changed = True
        while changed:
            changed = False
            bottom, top = self._ends(low, high)
            for row, bound in rows:
                least = np.where(row > 0, row * bottom, row * top)
                slack = 2 * _TOLERANCE * max(float(np.abs(row * top).max()), abs(float(bound)))
                room = bound - least.sum() + slack
                if room < 0:
                    return None
                for d in np.flatnonzero(row):
                    limit = (least[d] + room) / row[d]
                    if row[d] > 0 and top[d] > limit:
                        high[d] = np.searchsorted(self.rates[d], limit, side="right") - 1
                        changed = True
                    elif row[d] < 0 and bottom[d] < limit:
                        low[d] = np.searchsorted(self.rates[d], limit, side="left")
                        changed = True
                if np.any(low > high):
                    return None
                if changed:
                    bottom, top = self._ends(low, high)
        return self._in_time(low, high)

    def _in_time(self, low: Ints, high: Ints) -> tuple[Ints, Ints] | None:
        """Cut rates off that miss the deadline with all other dimensions at their fastest."""
        if self.problem.deadline is None:
            return low, high
        latest = self.problem.deadline * (1.0 + _TOLERANCE)
        _, top = self._ends(low, high)
        if self.problem.time.time(top) > latest:
            return None
        for d, listed in enumerate(self.rates):
            if not self.problem.loaded[d]:
                continue
            begin, end = int(low[d]), int(high[d])
            while begin < end:  # the time falls with the rate
                middle = (begin + end) // 2
                trial = top.copy()
                trial[d] = listed[middle]
                if self.problem.time.time(trial) > latest:
                    begin = middle + 1
                else:
                    end = middle
            low[d] = begin
        return low, high

    def _enumerate(self, low: Ints, high: Ints) -> None:
        axes = [r[i : j + 1] for r, i, j in zip(self.rates, low, high, strict=True)]
        grid = np.meshgrid(*axes, indexing="ij")
        self.offer(np.stack([axis.ravel() for axis in grid], axis=1))

    def _relax(
        self, low: Ints, high: Ints, inherited: float, near: Floats | None
    ) -> tuple[float, Floats | None]:
        """Return a bound on a box, inf if it is empty, and the best bandwidths inside it."""
        bottom, top = self._ends(low, high)
        boxed = replace(self.problem, constraints=_boxed(self.problem.constraints, bottom, top))
        start = (
            np.clip(near, bottom, top)
            if near is not None
            else np.sqrt(np.maximum(bottom, 1e-3 * top) * np.maximum(top, 1e-9))
        )
        answer = optimise(boxed, start)
        bound = max(inherited, self._corner(bottom, top))
        if answer.bound is not None:
            bound = max(bound, answer.bound.bound)
            if self.root is None:
                self.root, self.root_bandwidth = answer.bound, answer.bandwidth
        if self.looked == 1:
            self.relaxed = bound
        if answer.bandwidth is None and self._proven_empty(boxed):
            return np.inf, None
        if answer.bandwidth is not None:
            self._round(low, high, answer.bandwidth)
        return bound, answer.bandwidth

    def _corner(self, bottom: Floats, top: Floats) -> float:
        """Return the bound that needs no solver: the fastest time, at the lowest cost."""
        cost, time = self.problem.cost_of(bottom), self.problem.time.time(top)
        return {
            AllocationObjective.TIME: time,
            AllocationObjective.TIME_COST: time * cost,
            AllocationObjective.COST: cost,
        }[self.problem.objective]

    def _proven_empty(self, boxed: AllocationProblem) -> bool:
        """Say whether nothing in a box meets constraints and deadline, which is then proven."""
        from scipy.optimize import linprog

        limits = boxed.constraints
        size = np.maximum(np.abs(limits.matrix).max(axis=1), 1e-300)
        rows, bound = limits.matrix / size[:, None], limits.bound / size
        unit = max(float(np.abs(bound).max()), 1e-300)
        found = linprog(
            np.zeros(boxed.dimensions),
            A_ub=rows[~limits.equality],
            b_ub=bound[~limits.equality] / unit + 1e-9,
            A_eq=rows[limits.equality],
            b_eq=bound[limits.equality] / unit,
            method="highs",
        )
        if found.status == 2:
            return True
        if boxed.deadline is None:
            return False
        fastest = optimise(replace(boxed, objective=AllocationObjective.TIME, deadline=None), None)
        latest = boxed.deadline * (1.0 + _TOLERANCE)
        return fastest.bound is not None and fastest.bound.bound > latest

    def _round(self, low: Ints, high: Ints, bandwidth: Floats) -> None:
        """Offer the rates around the best bandwidths."""
        axes = []
        for d, listed in enumerate(self.rates):
            at = int(np.searchsorted(listed, bandwidth[d]))
            around = {min(max(at + step, int(low[d])), int(high[d])) for step in (-1, 0)}
            axes.append(listed[sorted(around)])
        if prod(len(axis) for axis in axes) > 1024:
            axes = [axis[:1] for axis in axes]
        grid = np.meshgrid(*axes, indexing="ij")
        self.offer(np.stack([axis.ravel() for axis in grid], axis=1))

    def _split(self, low: Ints, high: Ints, bandwidth: Floats | None) -> list[tuple[Ints, Ints]]:
        """Cut a box in two where its best bandwidths lie farthest between two rates."""
        bottom, top = self._ends(low, high)
        open_ = np.flatnonzero(high > low)
        chosen, cut, farthest = int(open_[np.argmax((high - low)[open_])]), -1, 1e-6
        if bandwidth is not None:
            for d in open_:
                listed = self.rates[d]
                b = min(max(float(bandwidth[d]), bottom[d]), top[d])
                at = min(int(np.searchsorted(listed, b, side="right")) - 1, int(high[d]) - 1)
                below, above = float(listed[at]), float(listed[at + 1])
                far = min(b - below, above - b) / above
                if far > farthest:
                    chosen, cut, farthest = int(d), at, far
        if cut < 0:
            cut = int(low[chosen] + high[chosen]) // 2
        first, second = high.copy(), low.copy()
        first[chosen], second[chosen] = cut, cut + 1
        return [(low, first), (second, high)]


def _boxed(limits: Constraints, bottom: Floats, top: Floats) -> Constraints:
    """Return the constraints with those of a box, equalities where it is flat."""
    n = len(bottom)
    unit = np.eye(n)
    flat = bottom == top
    rows = np.concatenate([np.flatnonzero(flat), np.flatnonzero(~flat)])
    raised = np.flatnonzero(~flat & (bottom > 0))
    return limits.plus(
        (f"rates of b{d}" for d in (*rows, *raised)),
        np.vstack([unit[rows], -unit[raised]]),
        np.concatenate([top[rows], -bottom[raised]]),
        np.arange(n + len(raised)) < flat.sum(),
    )
