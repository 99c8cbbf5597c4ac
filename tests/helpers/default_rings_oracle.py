"""Plain choice of default rings: `topoopt.fabric.rings.default_rings`, with arrays and loops."""

from math import gcd

import numpy as np

from topoopt.fabric.rings import ring_loads

CLOSE = 1e-9


def clearly_least(values):
    """Return the index of the least value; of those that rounding could exchange the first."""
    pick = 0
    for index, value in enumerate(values):
        if value < values[pick] * (1.0 - CLOSE):
            pick = index
    return pick


def circulant_orders(size, cost, seen, most):
    """Return the "+p" orders of places whose sampled edges cost least, cheapest first."""
    steps = [p for p in range(1, size) if gcd(p, size) == 1]
    prices = [sum(cost[i, (i + p) % size] for i in range(0, size, seen)) for p in steps]
    orders = []
    for _ in range(min(most, len(steps))):
        pick = clearly_least(prices)
        p = steps.pop(pick)
        prices.pop(pick)
        orders.append([p * i % size for i in range(size)])
    return orders


def nearest_tour(cost, start):
    """Return the tour that always goes on to the cheapest place left."""
    tour, left = [start], set(range(len(cost))) - {start}
    while left:
        tour.append(min(sorted(left), key=lambda there: cost[tour[-1], there]))
        left.remove(tour[-1])
    return tour


def rings_of(network, routes, group):
    """Return what `default_rings` returns for three members or more without switches."""
    members, size = np.array(group), len(group)
    slowness = 1.0 / network.capacity
    out = np.bincount(network.source, weights=network.capacity, minlength=network.nodes)
    into = np.bincount(network.target, weights=network.capacity, minlength=network.nodes)
    bound = (1.0 / np.minimum(out, into)[members]).max()

    def prices(total):
        price = slowness * (1.0 + 8.0 * total / max(total.max(), 1e-300))
        cost = np.full((size, size), np.inf)
        for i in range(size):
            for j in range(size):
                if i != j:
                    links, weights = routes.row(int(members[i]), int(members[j]))
                    cost[i, j] = sum(w * price[k] for k, w in zip(links, weights, strict=True))
        return cost

    def times_of(orders):
        return ring_loads(routes, network.links, members[np.array(orders)]) * slowness

    total = np.zeros(network.links)
    cost = prices(total)
    orders = circulant_orders(size, cost, 1 + size // 256, 16)
    times = times_of(orders)
    # "+p" orders alone, one by one.
    best, kept, taken, load = np.inf, [], [], np.zeros(network.links)
    for _ in range(min(8, len(orders))):
        most = [np.inf if i in taken else (load + t).max() for i, t in enumerate(times)]
        taken.append(clearly_least(most))
        load = load + times[taken[-1]]
        if load.max() / len(taken) < best * (1.0 - CLOSE):
            best, kept = load.max() / len(taken), list(taken)
    # Tours among them.
    chosen, idle, lowest = [], 0, np.inf
    while len(chosen) < 8 and idle < 3 and best > bound * (1.0 + CLOSE):
        tours = [nearest_tour(cost, s) for s in sorted({i * size // 4 for i in range(4)})]
        orders = orders + tours
        times = np.vstack((times, times_of(tours)))
        trial = total + times
        norm = ((trial / trial.max()) ** 8).sum(axis=1)
        norm[chosen] = np.inf
        free = [i for i in range(len(norm)) if i not in chosen]
        chosen.append(free[clearly_least([norm[i] for i in free])])
        total = trial[chosen[-1]]
        time = total.max() / len(chosen)
        idle = 0 if time < lowest * (1.0 - CLOSE) else idle + 1
        lowest = min(lowest, time)
        if time < best * (1.0 - CLOSE):
            best, kept = time, list(chosen)
        cost = prices(total)
    return tuple(tuple(members[orders[i]].tolist()) for i in kept)
