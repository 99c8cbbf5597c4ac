"""Exact minimum congestion where network and demand look the same from every host.

If moving every host on by one changes neither links nor demand, averaging any routing over all
moves gives one that is invariant and no worse. So one source speaks for all: the load of a link
i -> i + p is what one source sends over all links of step p.
"""

from typing import Any

import numpy as np

from codesign_base import InfeasibleError
from codesign_base.arrays import Floats, Ints, SmallInts
from codesign_base.rows import spread, starts
from routing.network import Network
from routing.path_routing import PathRouting, dual_bound, idle_routing
from routing.paths import forwarding_nodes

# Trees whose cost is within this fraction of the master's price bring nothing.
_CONVERGED = 1e-10
_METHOD = "one source, by symmetry"
_MAX_TREES = 1000
# Trees found by exponential prices before the master is solved, and how fast these steepen.
_WARM = 20
_STEEP = 0.5


def is_circulant(network: Network, demand: Floats | None = None) -> bool:
    """Say whether i -> i + 1 (mod hosts) leaves links, capacities and demand as they are.

    Parameters
    ----------
    network : Network
        With switches it never is.
    demand : float64 array, shape (hosts, hosts), optional
        Without it only links and capacities count.

    Returns
    -------
    bool
        Compared exactly, without tolerance.
    """
    n = network.hosts
    if network.switches or network.links == 0 or network.links % n:
        return False
    step = (network.target - network.source) % n
    by_step = np.lexsort((network.source, step))
    steps = step[by_step].reshape(-1, n)
    capacity = network.capacity[by_step].reshape(-1, n)
    if np.any(steps != steps[:, :1]) or np.any(capacity != capacity[:, :1]):
        return False
    if demand is None:
        return True
    # Each row shifted to begin at the diagonal must equal the first.
    return bool(np.all(demand[np.arange(n)[:, None], _shifted(n)] == demand[0]))


def _shifted(n: int) -> Ints:
    """Return (i + k) mod n, shape (n, n)."""
    start = np.arange(n, dtype=np.int64)
    return np.asarray((start[:, None] + start[None, :]) % n)


def min_congestion_circulant(network: Network, demand: Floats) -> PathRouting:
    """Route a circulant demand on a circulant network with the least congestion, exactly.

    Parameters
    ----------
    network : Network
    demand : float64 array, shape (hosts, hosts)
        As `is_circulant` asks.

    Returns
    -------
    PathRouting
        Invariant under moving all hosts on.

    Raises
    ------
    InfeasibleError
        If the steps do not reach a distance that has demand.

    Notes
    -----
    Column generation over shortest trees of one source: a master LP of one row a step mixes the
    trees found so far, and its duals are the lengths of the next tree. It ends when that tree is
    no shorter than the mix, so the gap is that of the LP solver's rounding.
    """
    from scipy.optimize import linprog

    from routing.flow_kernels import tree_entries

    n = network.hosts
    wanted = np.flatnonzero(demand[0])
    step = (network.target - network.source) % n
    steps, link_class = np.unique(step, return_inverse=True)
    capacity = network.capacity[np.unique(link_class, return_index=True)[1]]
    if wanted.size == 0:
        return idle_routing(network, demand, _METHOD)
    relative = capacity / capacity.max()
    amount = demand[0, wanted] / demand[0].sum()
    trees: list[SmallInts] = []
    loads: list[Floats] = []
    lengths: Floats = 1.0 / relative
    shares = np.ones(1)
    best, best_lengths = -1.0, lengths
    value = np.inf
    while len(trees) < _MAX_TREES:
        distance, entry = tree_entries(
            network.out_offsets,
            network.target,
            forwarding_nodes(network),
            lengths[link_class],
            0,
        )
        cost = float(amount @ distance[wanted])
        if cost == np.inf:
            missing = int(wanted[np.flatnonzero(np.isinf(distance[wanted]))[0]])
            raise InfeasibleError(
                f"network {network.name!r}: steps {steps.tolist()} never sum to {missing} modulo "
                f"{n}, which has demand; add a step that is coprime to the number of hosts"
            )
        bound = cost / float(relative @ lengths)
        if bound > best:
            best, best_lengths = bound, lengths
        if value <= best * (1.0 + _CONVERGED):
            break
        counts = _class_counts(network, entry, link_class, steps.size, wanted)
        trees.append(entry)
        loads.append(amount @ counts)
        table = np.column_stack(loads) / relative[:, None]
        if len(trees) <= _WARM:
            # A master of few trees sends the lengths astray; exponential prices do not.
            mean = table.mean(axis=1)
            lengths = np.exp(_STEEP * len(trees) * (mean / mean.max() - 1.0)) / relative
            continue
        answer: Any = linprog(
            np.append(np.zeros(len(trees)), 1.0),
            A_ub=np.column_stack((table, -np.ones(steps.size))),
            b_ub=np.zeros(steps.size),
            A_eq=np.append(np.ones(len(trees)), 0.0)[None, :],
            b_eq=[1.0],
            bounds=(0.0, None),
            method="highs-ds",
        )
        improved = float(answer.fun) < value * (1.0 - 1e-13)
        value, shares = float(answer.fun), np.maximum(answer.x[:-1], 0.0)
        fresh = np.maximum(-answer.ineqlin.marginals, 0.0) / relative
        if not improved and np.array_equal(fresh, lengths):
            break
        lengths = fresh
    kept = np.flatnonzero(shares > 0)
    return _spread(
        network, demand, wanted, [trees[tree] for tree in kept], shares[kept] / shares[kept].sum(),
        best_lengths, link_class, len(trees),
    )  # fmt: skip


def _class_counts(
    network: Network, entry: SmallInts, link_class: Ints, classes: int, wanted: Ints
) -> Floats:
    """Return how many links of each class the tree's paths take, shape (wanted, classes)."""
    counts = np.zeros((wanted.size, classes))
    at = wanted.copy()
    rows = np.arange(wanted.size)
    while rows.size:
        link = entry[at]
        counts[rows, link_class[link]] += 1.0
        at = network.source[link]
        away = at != 0
        rows, at = rows[away], at[away]
    return counts


def _spread(
    network: Network,
    demand: Floats,
    wanted: Ints,
    trees: list[SmallInts],
    shares: Floats,
    lengths: Floats,
    link_class: Ints,
    rounds: int,
) -> PathRouting:
    """Give every host the paths of host 0, moved on."""
    n = network.hosts
    of_step = np.full((n, n), -1, dtype=np.int64)
    of_step[network.source, (network.target - network.source) % n] = np.arange(network.links)
    hosts = np.arange(n)
    paths: list[tuple[Ints, float]] = []
    per_target = []
    for target in wanted.tolist():
        mixed: dict[tuple[int, ...], float] = {}
        for entry, share in zip(trees, shares.tolist(), strict=True):
            back, at = [], target
            while at != 0:
                link = int(entry[at])
                back.append(int((network.target[link] - network.source[link]) % n))
                at = int(network.source[link])
            way = tuple(reversed(back))
            mixed[way] = mixed.get(way, 0.0) + share
        per_target.append(len(mixed))
        for way, share in mixed.items():
            begin = starts(way)[:-1]
            moved = of_step[(hosts[:, None] + begin) % n, np.array(way)]
            paths.append((moved, share))
    # Rows above go by distance; pairs go by (source, target).
    first = starts(per_target)
    source = np.repeat(hosts, wanted.size)
    target = (source + np.tile(wanted, n)) % n
    order = np.lexsort((target, source))
    which = np.tile(np.arange(wanted.size), n)[order]
    counts = np.diff(first)[which]
    path_offsets = starts(counts)
    path = spread(first[which], counts)
    owner = np.repeat(source[order], counts)
    size = np.array([moved.shape[1] for moved, _ in paths], dtype=np.int64)
    begin = starts(size * n)[path] + owner * size[path]
    flat = np.concatenate([moved.ravel() for moved, _ in paths])
    full = lengths[link_class]
    return PathRouting(
        network=network,
        demand=demand,
        pairs=(source * n + target)[order],
        path_offsets=path_offsets,
        link_offsets=starts(size[path]),
        links=flat[spread(begin, size[path])],
        shares=np.array([share for _, share in paths])[path],
        lengths=full / float(network.capacity @ full),
        lower_bound=dual_bound(network, demand, full),
        method=_METHOD,
        rounds=rounds,
    )
