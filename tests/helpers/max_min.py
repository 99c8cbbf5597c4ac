"""The max-min fair rates of all flows at once, by the kernel that simulators fill links with."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

from codesign_base.arrays import Floats, Ints
from codesign_base.jit import kernel
from routing.fairness_kernels import refill, workspace


def random_rows(rng: np.random.Generator, links: int, flows: int) -> tuple[Ints, Ints]:
    """Return offsets and links of flows over up to four links each, some over none."""
    rows = [
        rng.choice(links, int(rng.integers(0, min(links, 4) + 1)), replace=False)
        for _ in range(flows)
    ]
    offsets = np.concatenate(([0], np.cumsum([row.size for row in rows])))
    return offsets, np.concatenate(rows).astype(np.int64)


def use_matrix(offsets: Ints, links: Ints, weights: Floats, capacity: Floats) -> Floats:
    """Return what each flow puts on each link at a rate of one, shape (links, flows)."""
    use = np.zeros((capacity.size, offsets.size - 1))
    np.add.at(use, (links, np.repeat(np.arange(offsets.size - 1), np.diff(offsets))), weights)
    return use


def weighted_rows(offsets: Ints, links: Ints, weights: Floats) -> list[dict[int, float]]:
    """Return what each flow puts on each of its links at a rate of one."""
    return [
        dict(zip(links[a:b].tolist(), weights[a:b].tolist(), strict=True))
        for a, b in pairwise(offsets.tolist())
    ]


def max_min_rates(
    offsets: npt.ArrayLike,
    links: npt.ArrayLike,
    weights: npt.ArrayLike,
    capacity: npt.ArrayLike,
    caps: npt.ArrayLike | None = None,
) -> Floats:
    """Return the rate of every flow; its cap, or infinity, where it has no links.

    Flow f puts ``weights[e] * rate[f]`` on ``links[e]``, e from ``offsets[f]`` to
    ``offsets[f + 1]``, and does not exceed ``caps[f]``.
    """
    bounds = np.ascontiguousarray(offsets, dtype=np.int64)
    entries = np.ascontiguousarray(links, dtype=np.int32)
    parts = np.ascontiguousarray(weights, dtype=np.float64)
    spare = np.array(capacity, dtype=np.float64)
    flows = bounds.size - 1
    cap = np.full(flows, np.inf) if caps is None else np.array(caps, dtype=np.float64)
    chosen = np.flatnonzero(np.diff(bounds)).astype(np.int32)
    rate = np.where(np.diff(bounds) > 0, -1.0, cap)
    _fill(chosen, bounds[:-1], bounds[1:], cap, rate, entries, parts, spare)
    return rate


def lexicographic_rates(
    offsets: Ints, links: Ints, weights: Floats, capacity: Floats, caps: Floats
) -> Floats:
    """Raise the lowest rate as far as it goes, fix who cannot exceed it, and repeat."""
    use = use_matrix(offsets, links, weights, capacity)
    flows = use.shape[1]
    fixed = np.where(use.any(axis=0), np.nan, np.minimum(caps, 1e9))
    while np.isnan(fixed).any():
        free = np.flatnonzero(np.isnan(fixed))
        # Variables: the rates, then the level below all free ones.
        above = np.zeros((free.size, flows + 1))
        above[np.arange(free.size), free] = -1.0
        above[:, -1] = 1.0
        a_ub = np.vstack((np.column_stack((use, np.zeros(capacity.size))), above))
        b_ub = np.concatenate((capacity, np.zeros(free.size)))
        bounds = [
            (0.0, cap if np.isfinite(cap) else None) if np.isnan(x) else (x * (1 - 1e-9), x)
            for x, cap in zip(fixed, caps, strict=True)
        ]
        bounds.append((0.0, None))
        level = -linprog(np.append(np.zeros(flows), -1.0), a_ub, b_ub, bounds=bounds).fun
        bounds[-1] = (max(level * (1 - 1e-9), 0.0), None)
        for flow in free:
            goal = np.zeros(flows + 1)
            goal[flow] = -1.0
            if -linprog(goal, a_ub, b_ub, bounds=bounds).fun <= level * (1 + 1e-6) + 1e-9:
                fixed[flow] = level
    return np.where(use.any(axis=0), fixed, caps)


@kernel
def _fill(
    chosen: npt.NDArray[np.int32], begin: Ints, end: Ints, cap: Floats,
    rate: Floats, links: npt.NDArray[np.int32], weights: Floats, spare: Floats,
) -> None:  # fmt: skip
    """Fill, which Python cannot call itself."""
    refill(
        chosen, chosen.size, begin, end, np.ones(rate.size), cap, rate, links, weights, spare,
        workspace(spare.size, rate.size, links.size),
    )  # fmt: skip
