"""The demand that a task graph puts on a network, AllReduce rings included."""

import numpy as np

from codesign_base import InputError
from parallelism.taskgraph import Traffic
from routing.network import FloatArray, Network
from routing.paths import ecmp_routes
from topoopt.fabric.rings import default_rings


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
            f"traffic of {traffic.servers} servers does not fit network {network.name!r} of "
            f"{network.hosts} hosts; give files of the same size"
        )
    demand = traffic.transfers.copy()
    if not allreduce or not traffic.groups:
        return demand
    plain = ecmp_routes(network)
    for group, size in zip(traffic.groups, traffic.group_bytes.tolist(), strict=True):
        rings = default_rings(network, plain, group)
        edge = 2.0 * (len(group) - 1) / len(group) * size / len(rings)
        for order in rings:
            np.add.at(demand, (np.array(order), np.roll(order, -1)), edge)
    return demand
