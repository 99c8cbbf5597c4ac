"""The demand that a task graph puts on a network, AllReduce rings included."""

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats
from codesign_base.counted import counted
from parallelism.taskgraph import Traffic
from routing.network import Network
from routing.paths import ecmp_routes
from topoopt.fabric.fabric import Fabric


def demand_matrix(network: Network, traffic: Traffic, *, allreduce: bool = True) -> Floats:
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


def total_demand(fabric: Fabric, traffic: Traffic) -> Floats:
    """Return the bytes of each server pair, transfers and ring edges; shape (hosts, hosts)."""
    return traffic.transfers + ring_demand(fabric, traffic)


def ring_demand(fabric: Fabric, traffic: Traffic) -> Floats:
    """Return the bytes of each server pair along the rings of groups; shape (hosts, hosts).

    Each edge of a group with R rings carries one part in R of what a member sends.
    """
    hosts = fabric.network.hosts
    demand = np.zeros(hosts * hosts)
    for group, sent in zip(traffic.groups, traffic.member_bytes().tolist(), strict=True):
        edges = fabric.ring_edges(group)
        np.add.at(demand, edges.ravel(), sent / edges.shape[0])
    return demand.reshape(hosts, hosts)
