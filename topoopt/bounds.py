"""Lower bounds on the iteration time: of everything, and of one strategy.

All of them are sound for any wiring of degree d, any routing, and AllReduce by rings; they
hold for the model that the fabric simulates (serial devices, ports of one bandwidth).
"""

from dataclasses import dataclass

import numpy as np

from codesign_base import InputError
from parallelism.builder import TaskGraphBuilder
from parallelism.search.space import legal_degrees
from parallelism.taskgraph import FloatArray, TaskGraph, TaskKind, Traffic, traffic_of

# Sums of the same times in another order differ in the last bits, and the simulator takes
# events within 1e-12 for one; a bound must not exceed the time it bounds because of that.
_ROUNDING = 1.0 - 1e-9


@dataclass(frozen=True)
class Bound:
    """A lower bound on the iteration time.

    Parameters
    ----------
    seconds : float
        The largest of the terms.
    terms : dict of str to float
        Every term in seconds.
    """

    seconds: float
    terms: dict[str, float]

    @property
    def binding(self) -> str:
        """Name of the largest term."""
        return max(self.terms, key=lambda name: self.terms[name])


def space_bound(builder: TaskGraphBuilder) -> Bound:
    """Bound the iteration time over all legal strategies, topologies and routings.

    Parameters
    ----------
    builder : TaskGraphBuilder
        Model, devices, number of servers and batch.

    Returns
    -------
    Bound
        ``compute``: every operator needs at least min over its legal splits of k t(k) seconds
        of device time (k parts of t(k) seconds each; measured times are not linear in k), and
        N devices give N seconds a second. ``chain``: along any path of the model graph the
        forward and then the backward passes follow each other, each at least as long as its
        fastest part.
    """
    graph = builder.graph
    cheapest: dict[int, tuple[float, float]] = {}
    for index in sorted(set(builder.representatives)):
        work = shortest = float("inf")
        op = graph.operators[index]
        for sample, parameter, mode in legal_degrees(op, builder.servers, builder.batch):
            time = builder.part_time(index, sample, parameter, mode)
            both = time.forward + time.backward
            work = min(work, sample * parameter * (both + time.update))
            shortest = min(shortest, both)
        cheapest[index] = (work, shortest)
    total = 0.0
    longest = [0.0] * len(graph.operators)
    for index, op in enumerate(graph.operators):
        work, shortest = cheapest[builder.representatives[index]]
        total += work
        longest[index] = shortest + max((longest[i] for i in op.inputs), default=0.0)
    terms = {"compute": total / builder.servers, "chain": max(longest)}
    return Bound(max(terms.values()) * _ROUNDING, terms)


def strategy_bound(tasks: TaskGraph, degree: int, bandwidth: float) -> Bound:
    """Bound the iteration time of one strategy over all topologies and routings.

    Parameters
    ----------
    tasks : TaskGraph
        The strategy's iteration.
    degree : int
        Ports a server.
    bandwidth : float
        Bytes/s of a port, each way.

    Returns
    -------
    Bound
        ``compute``: the busiest device. ``injection``: the bytes that must leave or enter a
        server, over d ports. ``hop``: link-bytes that the demand takes in the best digraph of
        degree d, over all N d links. ``chain``: the longest path of dependencies, with every
        transfer alone on all ports of its source.
    """
    if degree < 1 or not bandwidth > 0:
        raise InputError(f"degree {degree} and bandwidth {bandwidth} must be positive")
    compute = tasks.kind == TaskKind.COMPUTE
    busy = np.bincount(tasks.first[compute], weights=tasks.size[compute], minlength=tasks.devices)
    terms = {"compute": float(busy.max(initial=0.0))}
    traffic = traffic_of(tasks)
    terms["injection"] = injection_time(traffic, degree, bandwidth)
    terms["hop"] = hop_bytes(traffic, degree) / (tasks.servers * degree * bandwidth)
    terms["chain"] = _longest_chain(tasks, degree * bandwidth)
    return Bound(max(terms.values()) * _ROUNDING, terms)


def _ring_bytes(traffic: Traffic) -> FloatArray:
    """Bytes that each server sends (and receives) in ring AllReduces."""
    sent = np.zeros(traffic.servers)
    for group, size in zip(traffic.groups, traffic.group_bytes, strict=True):
        sent[list(group)] += 2.0 * (len(group) - 1) / len(group) * size
    return sent


def injection_time(traffic: Traffic, degree: int, bandwidth: float) -> float:
    """Return seconds that the busiest server needs to send or receive its own bytes.

    Parameters
    ----------
    traffic : Traffic
    degree : int
    bandwidth : float
        Bytes/s of a port, each way.

    Returns
    -------
    float
    """
    rings = _ring_bytes(traffic)
    sent = rings + traffic.transfers.sum(axis=1)
    received = rings + traffic.transfers.sum(axis=0)
    return float(max(sent.max(), received.max())) / (degree * bandwidth)


def hop_bytes(traffic: Traffic, degree: int) -> float:
    """Return the least link-bytes that the traffic takes in any digraph of a degree.

    At most d^h servers are at distance exactly h from a source, so its demands, largest first,
    take at least 1 hop for the first d, 2 for the next d^2, and so on. AllReduce bytes take at
    least one hop. The same holds for the sources that reach a destination; the larger counts.

    Parameters
    ----------
    traffic : Traffic
    degree : int

    Returns
    -------
    float
    """
    servers = traffic.servers
    hops = np.empty(servers)
    at, level = 0, 1
    while at < servers:
        width = servers if degree**level >= servers else degree**level
        hops[at : at + width] = level
        at += width
        level += 1
    from_source = np.sort(traffic.transfers, axis=1)[:, ::-1] @ hops
    to_target = np.sort(traffic.transfers, axis=0)[::-1].T @ hops
    return float(max(from_source.sum(), to_target.sum()) + _ring_bytes(traffic).sum())


def _longest_chain(tasks: TaskGraph, port_rate: float) -> float:
    """Longest dependency path; a transfer takes at least its bytes over all ports."""
    members = np.array([len(group) for group in tasks.groups] or [1], dtype=np.float64)
    length = tasks.size.copy()
    moves = tasks.kind == TaskKind.TRANSFER
    length[moves] /= port_rate
    reduces = tasks.kind == TaskKind.ALLREDUCE
    g = members[tasks.first[reduces]]
    length[reduces] = 2.0 * (g - 1.0) / g * tasks.size[reduces] / port_rate + tasks.delay[reduces]
    waiting = tasks.predecessors.tolist()
    offsets = tasks.successor_offsets.tolist()
    successors = tasks.successors.tolist()
    own = length.tolist()
    begin = [0.0] * tasks.tasks
    ready = [t for t in range(tasks.tasks) if waiting[t] == 0]
    longest = 0.0
    while ready:
        task = ready.pop()
        end = begin[task] + own[task]
        longest = max(longest, end)
        for successor in successors[offsets[task] : offsets[task + 1]]:
            begin[successor] = max(begin[successor], end)
            waiting[successor] -= 1
            if waiting[successor] == 0:
                ready.append(successor)
    return longest
