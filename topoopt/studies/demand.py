"""The demand that a task graph puts on a network, AllReduce rings included."""

import numpy as np

from codesign_base import InputError
from codesign_base.counted import counted
from parallelism.taskgraph import Traffic
from routing.network import FloatArray, Network
from routing.paths import ecmp_routes
from topoopt.fabric.fabric import Fabric


def demand_matrix(network: Network, traffic: Traffic, *, allreduce: bool = True) -> FloatArray:
    """Return the bytes that each host sends each other.

    Parameters
    ----------
    network : Network
    traffic : Traffic
    allreduce : bool
        Add the edges of AllReduce rings: those that `topoopt.fabric.default_rings` finds best
        for each group on this network under ECMP, each with an equal part of the bytes. Else
        the groups are left out.

    Raises
    ------
    InputError
        If the traffic has another number of servers than the network hosts.
    """
    if traffic.servers != network.hosts:
        raise InputError(
            f"traffic of {counted(traffic.servers, 'server')} does not fit network "
            f"{network.name!r} of {counted(network.hosts, 'host')}; give files of the same size"
        )
    if not allreduce or not traffic.groups:
        return traffic.transfers.copy()
    return total_demand(Fabric(network.name, network, ecmp_routes(network), {}), traffic)


def total_demand(fabric: Fabric, traffic: Traffic) -> FloatArray:
    """Return the bytes of each server pair, transfers and ring edges; shape (hosts, hosts).

    Each ring edge of a group of g servers with R rings carries 2 (g - 1) / g S / R bytes.
    """
    demand = traffic.transfers.astype(np.float64).ravel()
    for group, size in zip(traffic.groups, traffic.group_bytes.tolist(), strict=True):
        edges = fabric.ring_edges(group)
        each = 2.0 * (len(group) - 1) / len(group) * size / edges.shape[0]
        np.add.at(demand, edges.ravel(), each)
    return demand.reshape(traffic.transfers.shape)
