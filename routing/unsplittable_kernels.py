"""Compiled local search over one path a pair."""

import numpy as np

from codesign_base.array_kernels import copy_into
from codesign_base.arrays import Floats, Ints, SmallInts
from codesign_base.jit import kernel

# Sharpness of the soft maximum times the congestion.
_SHARP = 200.0


@kernel
def improve_choice(
    order: Ints,
    path_offsets: Ints,
    link_offsets: Ints,
    links: SmallInts,
    demand: Floats,
    slowness: Floats,
    choice: Ints,
    sweeps: int,
) -> float:
    """Move pairs to paths that lower the soft maximum, in place; return the congestion.

    ``choice`` is the path of each pair, ``order`` the order in which pairs are looked at. The
    choice that is left is the best after any sweep.
    """
    used = np.zeros(slowness.size)
    for pair in range(choice.size):
        for position in range(link_offsets[choice[pair]], link_offsets[choice[pair] + 1]):
            used[links[position]] += demand[pair] * slowness[links[position]]
    best = float(used.max())
    kept = choice.copy()
    for _ in range(sweeps):
        scale = _SHARP / used.max()
        top = used.max()
        moved = False
        for pair in order:
            first, last = path_offsets[pair], path_offsets[pair + 1]
            if last - first < 2:
                continue
            amount = demand[pair]
            now = choice[pair]
            for position in range(link_offsets[now], link_offsets[now + 1]):
                used[links[position]] -= amount * slowness[links[position]]
            cheapest, pick = np.inf, now
            for path in range(first, last):
                cost = 0.0
                for position in range(link_offsets[path], link_offsets[path + 1]):
                    link = links[position]
                    level = np.exp(max(scale * (used[link] - top), -600.0))
                    cost += level * np.expm1(min(scale * amount * slowness[link], 600.0))
                # A tie keeps the path in use.
                if cost < cheapest * (1.0 - 1e-9) or (path == now and cost <= cheapest):
                    cheapest, pick = cost, path
            moved = moved or pick != now
            choice[pair] = pick
            for position in range(link_offsets[pick], link_offsets[pick + 1]):
                used[links[position]] += amount * slowness[links[position]]
        if used.max() < best:
            best = float(used.max())
            copy_into(kept, choice)
        if not moved:
            break
    copy_into(choice, kept)
    return best
