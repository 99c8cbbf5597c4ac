"""Compiled parts of choosing rings: prices of routes, and nearest-neighbour tours."""

import numpy as np

from codesign_base.jit import kernel
from routing.fairness_kernels import Floats, Ints


@kernel
def route_prices(
    members: Ints, hosts: int, offsets: Ints, links: Ints, weights: Floats, price: Floats
) -> Floats:
    """Return what the route between any two members costs at the given link prices."""
    size = members.size
    cost = np.full((size, size), np.inf)
    for i in range(size):
        for j in range(size):
            pair = members[i] * hosts + members[j]
            if i != j and offsets[pair + 1] > offsets[pair]:
                total = 0.0
                for entry in range(offsets[pair], offsets[pair + 1]):
                    total += weights[entry] * price[links[entry]]
                cost[i, j] = total
    return cost


@kernel
def nearest_neighbour_tours(cost: Floats, starts: Ints) -> Ints:
    """Return, per start, the tour that always goes on to the cheapest place left."""
    size = cost.shape[0]
    tours = np.empty((starts.size, size), dtype=np.int64)
    for row in range(starts.size):
        left = np.ones(size, dtype=np.bool_)
        here = starts[row]
        for step in range(size):
            tours[row, step] = here
            left[here] = False
            best = np.inf
            nearest = here
            for there in range(size):
                if left[there] and (cost[here, there] < best or nearest == here):
                    best = cost[here, there]
                    nearest = there
            here = nearest
    return tours
