"""Cayley graphs of groups that are searched for short paths and Hamiltonian rings."""

from codesign_base import InfeasibleError
from routing.network import Network
from topoopt.problem.ports import PortModel
from topoopt.topology.cables import check_rates
from topoopt.topology.cayley import CayleyGraph, select_cayley
from topoopt.topology.wiring import Ring, Wiring, labelled


def cayley(
    servers: int,
    degree: int,
    bandwidth: float,
    latency: float,
    ports: PortModel = PortModel.DIRECTED,
    seed: int = 0,
) -> tuple[Network, tuple[Ring, ...]]:
    """Wire the Cayley graph of shortest paths that has rings for AllReduce.

    Parameters
    ----------
    servers, degree : int
        As in `topoopt.topology.cayley.select_cayley`.
    bandwidth : float
        Bytes per second of one port in one direction.
    latency : float
        Seconds of each link.
    ports : PortModel
    seed : int
        Of the searches.

    Returns
    -------
    network : Network
        Named for the group.
    rings : tuple of Ring
        Hamiltonian cycles over all servers that share no link: as many as the ports can make, or
        fewer where no graph with that many was found. In bidirectional mode each stands for
        itself and for its reverse.

    Raises
    ------
    InputError
        If a number is out of range.
    InfeasibleError
        If no network with a ring was found.
    """
    check_rates(servers, bandwidth, latency)
    graph = _with_most_rings(servers, degree, ports is PortModel.BIDIRECTIONAL, seed)
    wiring = Wiring(servers, degree, ports)
    for order in graph.rings:
        wiring.add_cycle(order)
    for a, b in graph.rest:
        wiring.cables[a, b] += 1
        if wiring.bidirectional:
            wiring.cables[b, a] += 1
    network = wiring.network(f"Cayley graph of {graph.group}", bandwidth, latency)
    return network, labelled(wiring.rings)


def _with_most_rings(servers: int, degree: int, both_ways: bool, seed: int) -> CayleyGraph:
    for rings in range(degree // 2 if both_ways else degree, 1, -1):
        try:
            return select_cayley(servers, degree, bidirectional=both_ways, rings=rings, seed=seed)
        except InfeasibleError:
            continue
    return select_cayley(servers, degree, bidirectional=both_ways, rings=1, seed=seed)
