"""All-to-all: every member of a group has another part for each of the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from codesign_base.arrays import Floats, Ints
from routing.circulant_flow import is_circulant
from routing.collectives.numbering import (
    MOST_NUMBERED,
    Numbering,
    around,
    mean_time,
    orders,
    renumbered,
)
from routing.collectives.rate import members_of
from routing.collectives.trees import of_links
from routing.multicommodity import min_congestion
from routing.network import Network, NodePath
from routing.path_routing import require_served
from routing.paths import ecmp_link_bytes, ecmp_routes

EXCHANGE_ACCURACY = 0.001
"""Of the least congestion; the bound that comes with it holds in any case."""

# Of a network of n nodes paths are sought in no more numberings than this over n squared.
_TRIED = 2**15

SharedPath = tuple[NodePath, float]
"""Nodes from one member to another, and the share of their part that goes so."""


@dataclass(frozen=True)
class AllToAllRouting:
    """A way to send all parts at once.

    Parameters
    ----------
    name : str
    bytes_per_s : float
        Of each member's buffer, of which every member gets an equal part.
    latency_s : float
        Of the longest way.
    paths : tuple of SharedPath
        Empty where each pair's part is split equally among all its shortest paths.
    """

    name: str
    bytes_per_s: float
    latency_s: float
    paths: tuple[SharedPath, ...]


def exchanges(network: Network, group: Sequence[int]) -> tuple[list[AllToAllRouting], float]:
    """Return ways to do an all-to-all, and a rate that none passes.

    Parameters
    ----------
    network : Network
    group : sequence of int
        Hosts; the others and switches forward.

    Returns
    -------
    ways : list of AllToAllRouting
        "shortest-paths" splits among all shortest paths; "least-congestion" takes longer ones,
        too, and is within `EXCHANGE_ACCURACY` of the best unless the router gave up before.
    rate : float
        Bytes per second of each member's buffer, from the dual solution of the least congestion.

    Raises
    ------
    InputError
        If the group is none.
    InfeasibleError
        If members cannot reach each other.
    """
    members = np.array(members_of(network, group), dtype=np.int64)
    demand = _demand(network, members)
    require_served(network, demand)
    short = ecmp_routes(network, pairs=np.flatnonzero(demand))
    busiest = float((ecmp_link_bytes(network, demand) / network.capacity).max())
    ways = [AllToAllRouting("shortest-paths", 1.0 / busiest, float(short.latency.max()), ())]
    whole = members.size == network.nodes <= MOST_NUMBERED
    circulant = around(network) if whole else None
    if circulant is not None:
        tried = [circulant]  # solved exactly
    elif is_circulant(network, demand):
        tried = [np.arange(network.nodes)]
    else:
        tried = orders(network, members.tolist())[: max(1, _TRIED // network.nodes**2)]
    places = [renumbered(network, order) for order in tried]
    spread, bounds = zip(*(_spread(place, members) for place in places), strict=True)
    ways.append(min(spread, key=_mean_time))
    return ways, 1.0 / max(bounds)


def _demand(network: Network, members: Ints) -> Floats:
    demand = np.zeros((network.hosts, network.hosts))
    demand[np.ix_(members, members)] = 1.0 / members.size
    np.fill_diagonal(demand, 0.0)
    return demand


def _spread(place: Numbering, members: Ints) -> tuple[AllToAllRouting, float]:
    """Return paths of the least congestion found in a numbering, and a bound of it."""
    network = place.network
    demand = _demand(network, np.array(place.numbers(members.tolist())))
    found = min_congestion(network, demand, EXCHANGE_ACCURACY)
    link = of_links(network, network.latency)
    ways = [
        way for pair in found.pairs.tolist() for way in found.paths(*divmod(pair, network.hosts))
    ]
    longest = max(sum(link[hop] for hop in pairwise(nodes)) for nodes, _ in ways)
    given = place.paths(nodes for nodes, _ in ways)
    paths = sorted(zip(given, (share for _, share in ways), strict=True))
    return (
        AllToAllRouting("least-congestion", 1.0 / found.congestion, longest, tuple(paths)),
        found.lower_bound,
    )


def _mean_time(way: AllToAllRouting) -> float:
    return mean_time(lambda size: size / way.bytes_per_s + way.latency_s)
