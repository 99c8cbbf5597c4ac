"""What each server does with packets of each pair, as a plan's routes say."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np

from routing.network import Network, NodePath
from routing.pair_paths import pair_paths
from routing.routes import Routes
from topoopt.deploy.cabling import Cabling, End

MOST_WEIGHT = 256
"""Of a next hop in Linux (``rtnh_hops`` is a byte, counted from one)."""

# Shares below this are rounding of a split, not a path.
_DUST = 1e-9

Hops = tuple[tuple[int, int], ...]
"""Ports and whole-number weights of one route's next hops, ascending."""


@dataclass(frozen=True)
class Forwarding:
    """Next hops of each server: by destination, and where a source's routes differ, for it.

    Parameters
    ----------
    local : dict of (int, int) to Hops
        By (server, destination): what the server itself sends.
    transit : dict of (int, int, int) to Hops
        By (server, source, destination): what it forwards otherwise than what it sends itself.
    """

    local: Mapping[tuple[int, int], Hops]
    transit: Mapping[tuple[int, int, int], Hops]


def leaving_shares(
    network: Network, routes: Routes
) -> dict[tuple[int, int, int], dict[int, float]]:
    """Return how each server divides each pair's packets over next servers.

    Parameters
    ----------
    network : Network
    routes : Routes
        Without loops.

    Returns
    -------
    dict of (server, source, destination) to dict of next server to share
        Shares sum to one.
    """
    flows: dict[tuple[int, int, int], dict[int, float]] = {}
    for source in range(routes.hosts):
        for target in range(routes.hosts):
            links, weights = routes.row(source, target)
            for link, weight in zip(links.tolist(), weights.tolist(), strict=True):
                if weight > _DUST:
                    node, ahead = int(network.source[link]), int(network.target[link])
                    flows.setdefault((node, source, target), {})[ahead] = weight
    return {
        key: {ahead: weight / sum(parts.values()) for ahead, weight in parts.items()}
        for key, parts in flows.items()
    }


def forwarding(network: Network, routes: Routes, cabling: Cabling) -> Forwarding:
    """Return the next hops of every server.

    Parameters
    ----------
    network : Network
    routes : Routes
    cabling : Cabling
    """
    local: dict[tuple[int, int], Hops] = {}
    others: dict[tuple[int, int, int], Hops] = {}
    for (node, source, target), shares in sorted(leaving_shares(network, routes).items()):
        hops = _hops(node, shares, cabling)
        if node == source:
            local[node, target] = hops
        else:
            others[node, source, target] = hops
    transit = {key: hops for key, hops in others.items() if local[key[0], key[2]] != hops}
    return Forwarding(local, transit)


def _hops(node: int, shares: Mapping[int, float], cabling: Cabling) -> Hops:
    parts: list[tuple[int, float]] = []
    for ahead, share in shares.items():
        ports = cabling.ports_to[node, ahead]
        parts += [(port, share / len(ports)) for port in ports]
    parts.sort()
    # Rounded, so that equal splits that were added up in another order have equal weights.
    weights = whole_weights(tuple(round(share, 9) for _, share in parts))
    return tuple((port, weight) for (port, _), weight in zip(parts, weights, strict=True))


@lru_cache(maxsize=4096)
def whole_weights(shares: tuple[float, ...]) -> tuple[int, ...]:
    """Return whole numbers from 1 to `MOST_WEIGHT` in proportions nearest to some shares.

    The smallest numbers are taken of those whose largest error is least.

    Parameters
    ----------
    shares : tuple of float
        Positive, with sum one.
    """
    if len(shares) == 1:
        return (1,)
    wanted = np.array(shares)
    best: tuple[float, tuple[int, ...]] = (np.inf, ())
    top = float(wanted.max())
    for most in range(1, MOST_WEIGHT + 1):
        weights = np.maximum(1, np.rint(wanted / top * most)).astype(np.int64)
        error = float(np.abs(weights / weights.sum() - wanted).max())
        if error < best[0] - 1e-9:
            best = (error, tuple(weights.tolist()))
    return best[1]


@dataclass(frozen=True)
class Channel:
    """Packets from one RDMA port to another, port by port.

    Parameters
    ----------
    source, target : (int, int)
        The ports that a connection is opened between.
    hops : tuple of ((int, int), (int, int))
        Each cable's sending and hearing port, in order.
    """

    source: End
    target: End
    hops: tuple[tuple[End, End], ...]


@dataclass(frozen=True)
class Channels:
    """All channels, and what could not be one.

    Parameters
    ----------
    channels : tuple of Channel
        Sorted by their ends, which are all different pairs.
    merged : int
        Planned paths left out because another has the same end ports and a larger share.
    one_way : int
        Channels whose acknowledgements cannot return to the sending port, because a cable on
        their way carries one direction only.
    """

    channels: tuple[Channel, ...]
    merged: int
    one_way: int

    @cached_property
    def leaving(self) -> dict[int, list[tuple[Channel, int]]]:
        """Channels that each server sends on, and at which of their hops."""
        found: dict[int, list[tuple[Channel, int]]] = {}
        for channel in self.channels:
            for at, (end, _) in enumerate(channel.hops):
                found.setdefault(end[0], []).append((channel, at))
        return found


def channels(network: Network, routes: Routes, cabling: Cabling) -> Channels:
    """Return what RDMA connections may be opened between ports, and the way of their packets.

    Every planned path of every pair is one, from the port that it leaves by to the port that it
    arrives on; every cable is one. Reliable connections need acknowledgements back from port to
    port: where no planned path goes so, the same cables are taken backwards.

    Parameters
    ----------
    network : Network
    routes : Routes
    cabling : Cabling
    """
    found: dict[tuple[End, End], Channel] = {
        (end, other): Channel(end, other, ((end, other),))
        for end, other in sorted(cabling.leads_to.items())
    }
    merged = 0
    for source in range(routes.hosts):
        for target in range(routes.hosts):
            if source == target:
                continue
            paths = pair_paths(network, routes, source, target)
            for path, _ in sorted(paths, key=lambda each: (-each[1], each[0])):
                hops = _cables_of_path(path, source + target, cabling)
                ends = hops[0][0], hops[-1][1]
                if ends not in found:
                    found[ends] = Channel(*ends, hops)
                elif found[ends].hops != hops:
                    merged += 1
    one_way = 0
    for (first, last), channel in sorted(found.items()):
        if (last, first) in found:
            continue
        back = tuple((b, a) for a, b in reversed(channel.hops))
        if all(cabling.leads_to.get(b) == a for b, a in back):
            found[last, first] = Channel(last, first, back)
        else:
            one_way += 1
    return Channels(tuple(found[ends] for ends in sorted(found)), merged, one_way)


def _cables_of_path(path: NodePath, pick: int, cabling: Cabling) -> tuple[tuple[End, End], ...]:
    """Return the ports that a path goes by; of parallel cables one by the pair's number."""
    hops = []
    for a, b in pairwise(path):
        ports = cabling.ports_to[a, b]
        end = (a, ports[pick % len(ports)])
        hops.append((end, cabling.leads_to[end]))
    return tuple(hops)
