"""Groups of servers that all send to each other, and wirings made for them.

Where nearly all bytes go between the members of small groups, as tokens go to experts, matching
pair by pair joins some members twice and others not at all, and rings leave long ways between
most. Here every group gets a full mesh, or a graph of short paths where it has too few ports; the
other ports join the groups, by the bytes between them.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from codesign_base.arrays import Floats
from parallelism.taskgraph import Group, Traffic
from topoopt.problem.cluster import Cluster
from topoopt.topology.choosing import RingChooser
from topoopt.topology.finder import Topology, topology_of
from topoopt.topology.meshes import GroupGraph, full_mesh_graph, near_mesh
from topoopt.topology.spending import wire_rings
from topoopt.topology.split import ports_by_server
from topoopt.topology.wiring import Wiring, is_strongly_connected

# Demands that differ by less than this factor are of one kind.
_APART = 2.0
# Kinds, heaviest first, whose groups are tried.
_KINDS = 3
# Of the pairs of a group, those at least that must exchange.
_DENSE = 0.5
# Share of all bytes sent that must stay in such groups: elsewhere wirings for them do not pay.
_MOSTLY = 0.5
# Members of a group, and groups and servers in none, beyond which wiring them takes too long.
_MOST = 256


def exchange_groups(transfers: Floats) -> Iterator[tuple[Group, ...]]:
    """Find groups of servers of which most pairs exchange, by how much they do.

    Parameters
    ----------
    transfers : float64 array, shape (servers, servers)
        Bytes from row server to column server.

    Yields
    ------
    tuple of tuple of int
        Groups of three or more sorted servers, but not of all, that share no server: those that
        pairs with the heaviest kind of demand join, then with the two heaviest, and so on. Kinds
        are apart by a factor of two or more.
    """
    both = transfers + transfers.T
    np.fill_diagonal(both, 0.0)
    levels = np.unique(both[both > 0])
    if not levels.size:
        return
    lowest = np.append(True, levels[1:] > _APART * levels[:-1])
    known = set[tuple[Group, ...]]()
    for least in levels[lowest][::-1][:_KINDS].tolist():
        groups = tuple(_dense_components(both >= least))
        if groups and groups not in known:
            known.add(groups)
            yield groups


def _dense_components(joined: npt.NDArray[np.bool_]) -> Iterator[Group]:
    import rustworkx as rx

    servers = joined.shape[0]
    graph = rx.PyGraph()
    graph.add_nodes_from(range(servers))
    graph.extend_from_edge_list([(a, b) for a, b in np.argwhere(joined).tolist()])
    for members in sorted(map(sorted, rx.connected_components(graph))):
        size = len(members)
        pairs = int(joined[np.ix_(members, members)].sum())
        if 3 <= size < servers and pairs >= _DENSE * size * (size - 1):
            yield tuple(members)


def exchange_wirings(traffic: Traffic, cluster: Cluster) -> Iterator[Topology]:
    """Wire groups that exchange among themselves, then their rings and what lies between.

    Parameters
    ----------
    traffic : Traffic
        Of one iteration.
    cluster : Cluster
        With as many servers.

    Yields
    ------
    Topology
        Strongly connected ones only, and only for groups in which half of all bytes stay. Of
        the ports that a group leaves, none or one or half (and
        one more where bidirectional rings take two) make rings of AllReduce groups that are not
        the group itself; these share them so that the most loaded ring carries least.
    """
    degree = cluster.degree
    seen = set[bytes]()
    sent = traffic.transfer_sent() + traffic.allreduce_sent()
    for groups in exchange_groups(traffic.transfers):
        within = sum(float(traffic.transfers[np.ix_(group, group)].sum()) for group in groups)
        if within < _MOSTLY * sent:
            continue
        most = max(len(group) for group in groups)
        inside = min(degree - 1, most - 1)
        parts = len(groups) + traffic.servers - sum(len(group) for group in groups)
        if inside < 2 or max(most, parts) > _MOST:
            continue
        elsewhere = any(
            group not in groups and amount > 0
            for group, amount in zip(traffic.groups, traffic.group_bytes.tolist(), strict=True)
        )
        for meshes, budget in _shares(degree, inside, most, elsewhere):
            left = degree - meshes * inside
            wiring = Wiring(traffic.servers, degree, cluster.port_model)
            for _ in range(meshes):
                _wire_groups(wiring, groups, inside)
            _wire_others(wiring, traffic, groups, budget)
            join_groups(wiring, traffic.transfers, groups)
            wiring.fill()
            key = wiring.cables.tobytes()
            if key in seen or not is_strongly_connected(wiring.cables):
                continue
            seen.add(key)
            share = degree - left + budget
            yield topology_of(wiring, share, cluster.port_rate, cluster.hop_latency)


def _shares(degree: int, inside: int, most: int, elsewhere: bool) -> Iterator[tuple[int, int]]:
    """Yield how many meshes groups get, of cables beside each other, and ports of other rings."""
    for meshes in range(1, (degree - 1) // inside + 1 if inside == most - 1 else 2):
        left = degree - meshes * inside
        for budget in sorted({0, 1, left // 2, left - 1}) if elsewhere else (0,):
            yield meshes, budget


def _wire_groups(wiring: Wiring, groups: tuple[Group, ...], inside: int) -> None:
    """Give each group a full mesh of its ports, or a graph of short paths."""
    graphs: dict[int, GroupGraph | None] = {}
    for group in groups:
        size = len(group)
        if size not in graphs:
            graphs[size] = _graph_of(size, inside, wiring.bidirectional)
        graph = graphs[size]
        if graph is None:
            continue
        for ring in graph.rings:
            wiring.add_cycle(tuple(group[v] for v in ring))
        among = np.ix_(group, group)
        wiring.cables[among] += graph.cables
        members = list(group)
        wiring.free_out[members] -= graph.cables.sum(axis=1)
        if not wiring.bidirectional:
            wiring.free_in[members] -= graph.cables.sum(axis=0)


def _graph_of(size: int, ports: int, bidirectional: bool) -> GroupGraph | None:
    if ports >= size - 1:
        return full_mesh_graph(size, bidirectional=bidirectional)
    usable = ports - (ports % 2 if bidirectional else 0)
    return near_mesh(size, usable, bidirectional=bidirectional) if usable >= 2 else None


def _wire_others(wiring: Wiring, traffic: Traffic, groups: tuple[Group, ...], budget: int) -> None:
    """Wire rings of AllReduce groups that have none in their own mesh."""
    kept = [number for number, group in enumerate(traffic.groups) if group not in groups]
    if not budget or not kept:
        return
    others = Traffic(
        traffic.servers,
        traffic.transfers,
        tuple(traffic.groups[number] for number in kept),
        traffic.group_bytes[kept],
    )
    each = [wiring.ring_ports(group) for group in others.groups]
    shares = ports_by_server(others, budget, each)
    wire_rings(wiring, others, budget, shares, RingChooser(bidirectional=wiring.bidirectional))


def join_groups(wiring: Wiring, transfers: Floats, groups: tuple[Group, ...]) -> None:
    """Join groups by the bytes between them, cable by cable, with the ports that are left.

    Parameters
    ----------
    wiring : Wiring
        Changed in place.
    transfers : float64 array, shape (servers, servers)
    groups : tuple of tuple of int
        Those that share no server; every server in none is one of its own.

    Notes
    -----
    Each next cable goes to the pair of groups with most bytes a cable, theirs included that are
    there, so that the busiest pair has as few as can be. Inside it joins those servers that send
    each other most a cable. Which members it joins matters less, as they are neighbours.
    """
    servers = wiring.servers
    label = np.full(servers, -1, dtype=np.int64)
    for number, group in enumerate(groups):
        label[list(group)] = number
    alone = np.flatnonzero(label < 0)
    label[alone] = len(groups) + np.arange(alone.size)
    count = len(groups) + alone.size
    member = np.zeros((servers, count))
    member[np.arange(servers), label] = 1.0
    demand = transfers + transfers.T if wiring.bidirectional else transfers
    between = member.T @ demand @ member
    np.fill_diagonal(between, 0.0)
    there = (member.T @ wiring.cables @ member).astype(np.int64)
    while True:
        out = member.T @ wiring.free_out
        into = member.T @ wiring.free_in
        possible = (out > 0)[:, None] & (into > 0)[None, :]
        worth = np.where(possible, between / (there + 1.0), 0.0)
        best = int(np.argmax(worth))
        a, b = divmod(best, count)
        if worth[a, b] <= 0.0:
            return
        one = np.flatnonzero((label == a) & (wiring.free_out > 0))
        other = np.flatnonzero((label == b) & (wiring.free_in > 0))
        wanted = demand[np.ix_(one, other)] / (wiring.cables[np.ix_(one, other)] + 1.0)
        # Of servers that want as much, those with most free ports.
        free = wiring.free_out[one][:, None] + wiring.free_in[other][None, :]
        choice = np.lexsort((-free.ravel(), -wanted.ravel()))[0]
        i, j = int(one[choice // other.size]), int(other[choice % other.size])
        wiring.cables[i, j] += 1
        wiring.free_out[i] -= 1
        wiring.free_in[j] -= 1
        there[a, b] += 1
        if wiring.bidirectional:
            wiring.cables[j, i] += 1
            there[b, a] += 1
