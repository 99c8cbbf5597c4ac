"""Figures of a network: distances, throughput, and how far both are from the best possible."""

from dataclasses import dataclass

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats
from parallelism.taskgraph import Traffic
from routing.multicommodity import min_congestion
from routing.paths import hop_distances
from routing.throughput_bounds import host_seconds, network_bound
from topoopt.topology.moore import moore_bound
from topoopt.topology.spectrum import spectral_gap
from topoopt.topology.throughput import best_wiring_seconds, routed_rate
from topoopt.topology.zoo.registry import BuiltFabric

# The best routing is sought to 1 % up to this many servers, to 5 % beyond; never for more pairs
# with demand, nor in more rounds, than take some seconds.
_SMALL = 512
_MOST_PAIRS = 1_200_000
_ROUNDS = 100


@dataclass(frozen=True)
class Measures:
    """A network's figures, each beside the best possible. Hops are links.

    Parameters
    ----------
    fabric : str
    servers, switches, degree : int
        ``degree`` is the ports of a server in use.
    links : int
        Directed links (parallel ones once).
    diameter : int
        Hops between the servers farthest apart.
    mean_distance : float
        Hops, over ordered pairs of different servers.
    moore_diameter, moore_mean_distance : int, float, or None
        No wiring of this degree has less; None where there are switches.
    mean_distance_excess : float or None
        ``mean_distance / moore_mean_distance - 1``.
    spectral_gap : float
        1 - Re(second eigenvalue) of the random walk.
    traffic : str
        "uniform" (the same from every server to every other) or "given".
    worst_path_hops, transfer_path_hops : float
        Longest shortest path between servers with transfers, and the mean weighted by bytes
        (0 without transfers).
    bandwidth_tax : float
        Bytes over links per byte sent, AllReduces included.
    max_link_utilisation : float
        Load of the busiest link over its capacity, when equal-cost routing carries the traffic
        at the rate at which the busiest server's ports are full; above 1 the link is the limit.
    throughput_lower, throughput_upper : float
        What equal-cost routing carries, and what no routing exceeds, as shares of the rate at
        which the busiest server's ports are full.
    throughput_best : float
        What the best routing found carries: `routing.multicommodity.min_congestion`, or where
        that would take long equal-cost routing.
    throughput_limit : str
        What the upper bound comes from, as in `routing.throughput_bounds.network_bound`: host,
        hops, cut, or dual (of the best routing).
    certified_gap : float
        ``throughput_upper / throughput_lower - 1``: no routing of this network is faster than
        equal-cost routing by more.
    busiest_link_s : float or None
        Seconds that an iteration's traffic keeps the busiest link; None for uniform traffic.
    best_wiring_s : float or None
        Seconds below which no wiring of this degree carries it.
    wiring_gap : float or None
        With the best routing found, busiest link's time over that of the best wiring and
        routing, less 1, at most; None where there are switches.
    """

    fabric: str
    servers: int
    switches: int
    degree: int
    links: int
    diameter: int
    mean_distance: float
    moore_diameter: int | None
    moore_mean_distance: float | None
    mean_distance_excess: float | None
    spectral_gap: float
    traffic: str
    worst_path_hops: int
    transfer_path_hops: float
    bandwidth_tax: float
    max_link_utilisation: float
    throughput_lower: float
    throughput_upper: float
    throughput_best: float
    throughput_limit: str
    certified_gap: float
    busiest_link_s: float | None
    best_wiring_s: float | None
    wiring_gap: float | None


def measure(
    built: BuiltFabric,
    bandwidth: float,
    loads: Floats,
    demand: Floats,
    traffic: Traffic | None = None,
) -> Measures:
    """Measure a fabric under equal-cost routing, and prove how far that is from the best.

    Parameters
    ----------
    built : BuiltFabric
    bandwidth : float
        Bytes per second of a server's port in one direction.
    loads : float64 array, shape (links,)
        Bytes that equal-cost routes of the demand put on each link.
    demand : float64 array, shape (servers, servers)
        Bytes of each server pair: transfers and ring edges of the traffic, or uniform.
    traffic : Traffic, optional
        By default the same from every server to every other.

    Returns
    -------
    Measures

    Raises
    ------
    InputError
        If there is no demand.
    """
    if not demand.any():
        raise InputError("the traffic has no bytes; give one that has transfers or AllReduces")
    network = built.network
    n = network.hosts
    given = Traffic(n, demand, (), np.zeros(0)) if traffic is None else traffic
    distance = hop_distances(network)
    between = distance[:n, :n]
    full = 1.0 / host_seconds(network, demand)
    carried = routed_rate(network, loads)
    best, lengths = carried, None
    if np.count_nonzero(demand) <= _MOST_PAIRS:
        small = n <= _SMALL
        routed = min_congestion(network, demand, 0.01 if small else 0.05, rounds=_ROUNDS)
        best, lengths = max(best, routed.throughput), routed.lengths
    bound = network_bound(network, demand, lengths)
    moved = given.transfers
    direct = network.switches == 0
    moore = moore_bound(n, built.degree, built.bidirectional) if direct else None
    mean = float(between.sum()) / (n * (n - 1))
    fastest = None
    if direct:
        fastest = best_wiring_seconds(given, built.degree, bandwidth, built.bidirectional)
    return Measures(
        fabric=built.name,
        servers=n,
        switches=network.switches - built.forwarders,
        degree=built.degree,
        links=network.links,
        diameter=int(between.max()),
        mean_distance=mean,
        moore_diameter=moore.diameter if moore else None,
        moore_mean_distance=moore.mean_distance if moore else None,
        mean_distance_excess=mean / moore.mean_distance - 1.0 if moore else None,
        spectral_gap=spectral_gap(network),
        traffic="uniform" if traffic is None else "given",
        worst_path_hops=int(between[moved > 0].max(initial=0)),
        transfer_path_hops=float((moved * between).sum() / moved.sum()) if moved.any() else 0.0,
        bandwidth_tax=float(loads.sum() / demand.sum()),
        max_link_utilisation=full / carried,
        throughput_lower=carried / full,
        # The routes prove that the bound is no lower than what they carry, but for rounding.
        throughput_upper=max(bound.throughput, best) / full,
        throughput_best=best / full,
        throughput_limit=bound.binding,
        certified_gap=max(bound.throughput / carried - 1.0, 0.0),
        busiest_link_s=None if traffic is None else 1.0 / carried,
        best_wiring_s=None if traffic is None else fastest,
        wiring_gap=max(1.0 / best / fastest - 1.0, 0.0) if fastest else None,
    )
