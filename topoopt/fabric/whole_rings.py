"""Rings for AllReduces over all servers of a direct wiring that was built without any."""

import numpy as np

from routing.network import Network
from routing.routes import Routes
from topoopt.fabric.rings import Rings, default_rings, ring_loads
from topoopt.topology.hamiltonian import cycles_of_regular, disjoint_cycles
from topoopt.topology.wiring import Ring, labelled


def whole_rings(network: Network, routes: Routes, seed: int = 0) -> tuple[Rings, bool]:
    """Choose rings for AllReduces over all servers of a direct wiring.

    Parameters
    ----------
    network : Network
        Without switches, of at least two servers.
    routes : Routes
        Over shortest paths.
    seed : int
        Of the search for Hamiltonian cycles.

    Returns
    -------
    rings : tuple of tuple of int
        Hamiltonian cycles that share no cable, where they end an AllReduce no later than what
        `default_rings` chooses; else those.
    disjoint : bool
        Whether they go over cables that they do not share.
    """
    usual = default_rings(network, routes, tuple(range(network.hosts)))
    cables = np.zeros((network.hosts, network.hosts), dtype=np.int64)
    cables[network.source, network.target] = network.multiplicity
    # Where every link has as many cables beside each other, so can rings be.
    beside = int(np.gcd.reduce(network.multiplicity))
    single = cables // max(beside, 1)
    cycles = disjoint_cycles(single, seed)
    if len(cycles) < single.sum(axis=1).min():
        cycles = max(cycles, cycles_of_regular(single, seed), key=len)
    cycles *= beside
    if cycles and _alone(network, routes, cycles) <= _alone(network, routes, usual):
        return cycles, True
    used = np.zeros_like(cables)
    np.add.at(used, (np.array(usual), np.roll(np.array(usual), -1, axis=1)), 1)
    return usual, bool((used <= cables).all())


def wired_rings(network: Network, routes: Routes, seed: int = 0) -> tuple[Ring, ...]:
    """Return the rings that `whole_rings` chooses as a topology has them.

    Parameters
    ----------
    network, routes, seed
        As there.

    Returns
    -------
    tuple of Ring
        In the order of plan files, which packets follow. Empty where rings would share cables: then
        groups get theirs when they are simulated.
    """
    orders, disjoint = whole_rings(network, routes, seed)
    rings = labelled([Ring(order, 0) for order in orders]) if disjoint else ()
    return tuple(sorted(rings, key=lambda ring: (ring.generator, ring.members)))


def _alone(network: Network, routes: Routes, rings: Rings) -> float:
    """Return the seconds of the busiest link for a byte on the edges of all rings together."""
    loads = ring_loads(routes, network.links, np.array(rings, dtype=np.int64)).sum(axis=0)
    return float((loads / network.capacity).max()) / len(rings)
