"""Minimum-congestion (maximum concurrent flow) routing of a demand matrix, with its proof."""

import numpy as np

from codesign_base import InputError
from codesign_base.arguments import check_kind, is_number, told, whole
from codesign_base.arrays import Floats, Ints, SmallInts
from codesign_base.rows import starts
from routing.circulant_flow import is_circulant, min_congestion_circulant
from routing.network import Network
from routing.path_routing import (
    PathRouting,
    checked_demand,
    dual_bound,
    idle_routing,
    normalised,
    require_served,
    reversed_rows,
)
from routing.paths import forwarding_nodes

# Sharpness of the soft maximum, times the congestion: it begins low, so that flows spread, and
# doubles up to the last. Beyond, links keep what their prices have come to instead.
_FIRST_SHARPNESS = 5.0
_LAST_SHARPNESS = 20.0
# Flows are balanced well enough to go on when softness makes up this much more of the gap.
_BALANCED = 0.5
# Path costs that differ by less than this part of the accuracy count as equal.
_TOLERANCE = 0.1
# Exponents below this would make prices vanish; weights below this could hardly come back.
_LOWEST = -300.0
_LOWEST_WEIGHT = -50.0


def min_congestion(
    network: Network,
    demand: Floats,
    accuracy: float = 0.01,
    *,
    rounds: int = 2000,
    start: PathRouting | None = None,
) -> PathRouting:
    """Route a demand matrix so that the most loaded link is loaded as little as possible.

    Scaled to the time one unit of congestion takes, this is the maximum concurrent flow.

    Parameters
    ----------
    network : Network
    demand : float array, shape (hosts, hosts)
        Bytes from row to column, zero on the diagonal.
    accuracy : float
        Stop when the congestion is proven to be within this fraction of the best possible;
        in [1e-6, 1].
    rounds : int
        Stop after so many rounds in any case; the result says by its gap what was reached.
    start : PathRouting, optional
        Of a similar demand, or of the network before links failed or were added: its paths that
        still exist carry the demand first, and its dual solution is the first bound. The result
        is certified as without; it may be another one.

    Returns
    -------
    PathRouting

    Raises
    ------
    InputError
        If the demand or the start does not fit the network, or an option is out of range.
    InfeasibleError
        If a pair with demand has no path.

    Notes
    -----
    Minimises the soft maximum ln(sum w exp(a u)) / a of the link utilisations u by moving flow
    between paths of a pair, source by source, each move by line search (gradient projection
    with column generation, as in traffic assignment). One shortest tree a source and round under
    prices w exp(a u) / capacity gives both new paths and the dual bound, so the gap is certified
    at no extra cost. Whenever softness makes up most of the gap, a link's weight w becomes
    w exp(a u) (the exponential method of multipliers): so a need not grow as accuracy does,
    which is what slows plain multiplicative weights down. Everything is done in a fixed order:
    the same input gives the same routing. Where network and demand do not change when all hosts
    move on by one, one source is solved exactly instead (`routing.circulant_flow`).

    References
    ----------
    N. Garg and J. Koenemann, "Faster and simpler algorithms for multicommodity flow and other
    fractional packing problems", FOCS 1998 (exponential prices and the dual bound); R. Jayakrishnan
    et al., "A faster path-based algorithm for traffic assignment", TRR 1443, 1994 (moves between
    paths); P. Tseng and D. Bertsekas, "On the convergence of the exponential multiplier method
    for convex programming", Math. Programming 60, 1993. Joining them is ours.

    Examples
    --------
    >>> import numpy as np
    >>> from routing.network import Network
    >>> around = np.arange(4)
    >>> ends = np.append(around, (around + 1) % 4), np.append((around + 1) % 4, around)
    >>> ring = Network.from_links("ring", 4, 0, *ends, 12.5e9, 1e-6)
    >>> demand = 1e6 * (1.0 - np.eye(4))
    >>> found = min_congestion(ring, demand)
    >>> print(f"{found.congestion * 1e6:.1f} us, at most {found.gap:.0%} too much")
    160.0 us, at most 0% too much
    >>> found.paths(0, 2)
    [((0, 1, 2), 0.5), ((0, 3, 2), 0.5)]
    """
    check_kind("network", network, Network, "a Network, such as load_network returns")
    matrix = checked_demand(network, demand)
    if not (is_number(accuracy) and 1e-6 <= accuracy <= 1.0):
        raise InputError(f"accuracy is {told(accuracy)}; give a fraction from 1e-6 to 1")
    check_kind("start", start, PathRouting | None, "what min_congestion returned before")
    if whole("rounds", rounds, "a whole number of at least 1") < 1:
        raise InputError(f"rounds is {rounds}; give at least 1")
    if start is not None and (start.network.hosts, start.network.nodes) != (
        network.hosts,
        network.nodes,
    ):
        raise InputError(
            f"the start has {start.network.hosts} hosts of {start.network.nodes} nodes, network "
            f"{network.name!r} {network.hosts} of {network.nodes}; start from a network of as many"
        )
    if not matrix.any():
        return idle_routing(network, matrix, "multiplicative weights")
    if is_circulant(network, matrix):
        return min_congestion_circulant(network, matrix)
    return _iterate(network, matrix, accuracy, rounds, start)


def _iterate(
    network: Network,
    demand: Floats,
    accuracy: float,
    rounds: int,
    start: PathRouting | None,
) -> PathRouting:
    from routing.multicommodity_kernels import packed_paths, settle_all

    bound, lengths = _first_bound(network, demand)
    work = _Work(network, demand)
    capacity, slowness = network.capacity, work.links.slowness
    sharp, scale, tolerance = _FIRST_SHARPNESS, max(bound, 1e-300), _TOLERANCE * accuracy
    log_weight = np.zeros(network.links)
    if start is not None:
        known = work.follow(network, start)
        proven = dual_bound(network, demand, known) if known.any() else 0.0
        if proven > bound:
            bound, lengths = proven, known
        if work.used.any():
            # Flows are spread already. Weights that fit another optimum would take long to correct.
            sharp, scale = _LAST_SHARPNESS, float(work.used.max())
    fresh = bool((work.paths.head < 0).any())
    done = 0
    while done < rounds:
        exponent = log_weight + (sharp / scale) * (work.used - work.used.max())
        prices = np.exp(np.maximum(exponent - exponent.max(), _LOWEST)) * slowness
        weight = float(prices @ capacity)
        mean = float((prices * capacity) @ work.used) / weight
        softness = float(work.used.max()) - mean
        proven = work.extend(prices, sharp / scale, tolerance, live=fresh) / weight
        if not fresh and proven > bound:
            bound, lengths = proven, prices
        settle_all(work.paths, work.links, sharp / scale, tolerance)
        work.recount()
        done, fresh = done + 1, False
        top = float(work.used.max())
        # A little less than asked, because the bound that is reported is rounded down.
        if top <= bound * (1.0 + accuracy * (1.0 - 1e-6)):
            break
        if done > 1 and mean - proven < _BALANCED * softness:
            if sharp < _LAST_SHARPNESS:
                sharp *= 2.0
            else:
                log_weight += (sharp / scale) * (work.used - top)
                log_weight = np.maximum(log_weight - log_weight.max(), _LOWEST_WEIGHT)
        scale = top
    path_offsets, link_offsets, back, flow = packed_paths(work.paths)
    pairs = work.source * network.hosts + work.target
    return PathRouting(
        network=network,
        demand=demand,
        pairs=pairs,
        path_offsets=path_offsets,
        link_offsets=link_offsets,
        links=reversed_rows(link_offsets, back),
        shares=normalised(path_offsets, flow),
        lengths=lengths / float(capacity @ lengths),
        lower_bound=dual_bound(network, demand, lengths),
        method="multiplicative weights",
        rounds=done,
    )


def _first_bound(network: Network, demand: Floats) -> tuple[float, Floats]:
    """Return the best of the bounds by hops and by what one node sends or receives."""
    ones = np.ones(network.links)
    require_served(network, demand)
    best, lengths = dual_bound(network, demand, ones), ones
    for ends, sums in ((network.source, demand.sum(axis=1)), (network.target, demand.sum(axis=0))):
        room = np.bincount(ends, weights=network.capacity, minlength=network.nodes)
        busy = sums / np.where(room[: network.hosts] > 0, room[: network.hosts], np.inf)
        host = int(busy.argmax())
        if busy[host] > best:
            best, lengths = float(busy[host]), (ends == host).astype(np.float64)
    return best, lengths


class _Work:
    """The state of one solution: pairs, their chains of paths, utilisations and prices."""

    def __init__(self, network: Network, demand: Floats) -> None:
        from routing.multicommodity_kernels import FlowPaths, Graph, LinkPrices, Pairs

        # Kernels are compiled for one layout; these are columns of one array.
        self.source, self.target = (np.ascontiguousarray(end) for end in np.nonzero(demand))
        counts = np.bincount(self.source, minlength=network.hosts)
        worst = int(counts.max(initial=0))
        size, room = self.source.size, 2 * self.source.size + worst
        self.graph = Graph(
            network.out_offsets, network.source, network.target, forwarding_nodes(network)
        )
        self.pairs = Pairs(
            starts(counts),
            self.target,
            demand[self.source, self.target],
        )
        self.paths = FlowPaths(
            head=np.full(size, -1, dtype=np.int32),
            following=np.full(room, -1, dtype=np.int32),
            begin=np.zeros(room, dtype=np.int64),
            hops=np.zeros(room, dtype=np.int32),
            flow=np.zeros(room),
            pool=np.zeros(8 * size + worst * network.nodes, dtype=np.int32),
        )
        self.links = LinkPrices(
            price=np.zeros(network.links),
            used=np.zeros(network.links),
            slowness=1.0 / network.capacity,
            mark=np.zeros(network.links, dtype=np.int32),
        )
        self.count = self.entries = 0

    @property
    def used(self) -> Floats:
        """Utilisation of each link."""
        return self.links.used

    def extend(self, prices: Floats, sharp: float, tolerance: float, live: bool) -> float:
        """Give every pair its shortest path and settle it; return demand times distance."""
        from routing.multicommodity_kernels import extend_paths, packed_paths

        self.links.price[:] = prices
        total, at, sources = 0.0, 0, self.pairs.first.size - 1
        while at < sources:
            at, self.count, self.entries, part = extend_paths(
                at, self.count, self.entries, self.graph, self.pairs, self.paths, self.links,
                prices, sharp, tolerance, live,
            )  # fmt: skip
            total += part
            if at < sources:
                # Pack the paths in use, and double the room where that is not enough.
                self._hold(*packed_paths(self.paths))
        return total

    def follow(self, network: Network, start: PathRouting) -> Floats:
        """Send demand over a start's paths; return its lengths of the links that there are."""
        nodes, before = network.nodes, start.network
        keys = network.source * nodes + network.target
        wanted = before.source * nodes + before.target
        place = np.minimum(np.searchsorted(keys, wanted), max(keys.size - 1, 0))
        index = np.where(keys[place] == wanted, place, -1) if keys.size else np.full_like(place, -1)
        lengths = np.zeros(network.links)
        lengths[index[index >= 0]] = start.lengths[index >= 0]
        pairs = self.source * network.hosts + self.target
        row = np.minimum(np.searchsorted(pairs, start.pairs), pairs.size - 1)
        pair = np.repeat(row, np.diff(start.path_offsets))
        kept = np.repeat(pairs[row] == start.pairs, np.diff(start.path_offsets))
        if kept.size:
            kept &= np.minimum.reduceat(index[start.links], start.link_offsets[:-1]) >= 0
        kept &= start.shares > 0
        pair = pair[kept]
        if not pair.size:
            return lengths
        total = np.bincount(pair, weights=start.shares[kept], minlength=pairs.size)
        flow = self.pairs.demand[pair] * start.shares[kept] / total[pair]
        hops = np.diff(start.link_offsets)
        link_offsets = starts(hops[kept])
        links = index[start.links[np.repeat(kept, hops)]].astype(np.int32)
        counts = np.bincount(pair, minlength=pairs.size)
        path_offsets = starts(counts)
        # Paths are kept from the target back.
        back = reversed_rows(link_offsets, links).astype(np.int32)
        self._hold(path_offsets, link_offsets, back, flow)
        self.recount()
        return lengths

    def _hold(self, path_offsets: Ints, link_offsets: Ints, links: SmallInts, flow: Floats) -> None:
        """Take these paths, and leave room for as many again."""
        held, worst = self.paths, int(np.diff(self.pairs.first).max())
        nodes = self.graph.offsets.size - 1
        paths = max(held.flow.size, 2 * flow.size + worst)
        entries = max(held.pool.size, 2 * links.size + worst * nodes)
        begun = path_offsets[1:] > path_offsets[:-1]
        following = np.full(paths, -1, dtype=np.int32)
        following[: flow.size] = np.arange(1, flow.size + 1)
        following[path_offsets[1:][begun] - 1] = -1
        begin = np.zeros(paths, dtype=np.int64)
        begin[: flow.size] = link_offsets[:-1]
        hops = np.zeros(paths, dtype=np.int32)
        hops[: flow.size] = np.diff(link_offsets)
        self.paths = held._replace(
            head=np.where(begun, path_offsets[:-1], -1).astype(np.int32),
            following=following,
            begin=begin,
            hops=hops,
            flow=np.concatenate((flow, np.zeros(paths - flow.size))),
            pool=np.concatenate((links, np.zeros(entries - links.size, dtype=np.int32))),
        )
        self.count, self.entries = flow.size, links.size

    def recount(self) -> None:
        """Sum the utilisations afresh, so that rounding does not pile up."""
        from routing.multicommodity_kernels import utilisation

        self.links = self.links._replace(used=utilisation(self.paths, self.links.slowness))
