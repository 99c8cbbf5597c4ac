"""How the ports are spent: rings of the groups first, then what is left over."""

import heapq
from itertools import cycle, islice
from math import inf

import numpy as np

from codesign_base.arrays import Floats
from parallelism.taskgraph import Traffic
from topoopt.topology.choosing import RingChooser
from topoopt.topology.split import groups_by_load
from topoopt.topology.totient import totient_permutations
from topoopt.topology.wiring import Wiring


def wire_rings(
    wiring: Wiring,
    traffic: Traffic,
    budget: int,
    shares: list[int],
    chooser: RingChooser,
    parallel: bool = False,
) -> None:
    """Wire each group's distinct rings, by decreasing bytes.

    Parameters
    ----------
    wiring : Wiring
    traffic : Traffic
    budget : int
        AllReduce ports of each server.
    shares : list of int
        Ports each group is meant to get; the last served get what is left.
    chooser : RingChooser
    parallel : bool
        Whether a group that has fewer distinct rings than ports gets some of them again.
    """
    left = np.full(wiring.servers, budget, dtype=np.int64)
    for g in groups_by_load(traffic):
        group = traffic.groups[g]
        members = list(group)
        each = wiring.ring_ports(group)
        available = int(left[members].min())
        ports = min(shares[g], available)
        if 0 < ports < each <= available:
            ports = each  # one port makes no bidirectional ring; take the second
        wanted = ports // each
        there = _wired_steps(wiring, group)  # if reserved
        if wanted and not there:
            wiring.seat(chooser.arrange(group, wanted))
            cycles = chooser.cycles(wiring.seats(group), wanted)
            for order in cycles:
                wiring.add_cycle(order)
            left[members] -= each * len(cycles)
            wanted -= len(cycles)
        more = chooser.steps(wiring.seats(group), wanted + len(there), there) if wanted else ()
        steps = [p for p in more if p not in there][:wanted]
        for p in steps:
            wiring.add_ring(group, p)
        left[members] -= each * len(steps)
        for p in islice(cycle(there + tuple(steps)), wanted - len(steps) if parallel else 0):
            wiring.add_ring(group, p)
            left[members] -= each


def _wired_steps(wiring: Wiring, group: tuple[int, ...]) -> tuple[int, ...]:
    """Return the different steps of a group's rings, one of +p and -p if both are there."""
    n = len(group)
    wired = [ring.generator for ring in wiring.rings if ring.group == group and ring.generator]
    if wiring.bidirectional:
        wired = [min(p, n - p) for p in wired]
    return tuple(dict.fromkeys(wired))


def spend_surplus(
    wiring: Wiring,
    traffic: Traffic,
    demand: Floats,
    matching_first: bool,
    chooser: RingChooser,
) -> None:
    """Spend the ports that rings and planned matching left, until none can be joined.

    Parameters
    ----------
    wiring : Wiring
    traffic : Traffic
    demand : float64 array, shape (servers, servers)
        What is left of the transfer demand; halved in place.
    matching_first : bool
        Further matching before further rings whatever the bytes. Otherwise a group whose next
        ring would carry more bytes a port than the next matching goes first.
    chooser : RingChooser
    """
    waiting = _Waiting(wiring, traffic, chooser)
    while True:
        edges = wiring.next_matching(demand)
        bytes_a_port = -inf
        if edges:
            total = sum(float(demand[i, j]) for i, j in edges)
            if wiring.bidirectional:
                total += sum(float(demand[j, i]) for i, j in edges)
            bytes_a_port = total / (len(edges) * (2 if wiring.bidirectional else 1))
        if waiting.add_rings(inf if edges and matching_first else bytes_a_port):
            continue
        if not edges:
            break
        wiring.match(demand, edges)
    wiring.fill()


class _Waiting:
    """Groups that could use one more ring, the one with most bytes a ring first."""

    def __init__(self, wiring: Wiring, traffic: Traffic, chooser: RingChooser) -> None:
        self.wiring = wiring
        self.chooser = chooser
        self.groups = traffic.groups
        self.load = traffic.member_bytes()
        index = {group: g for g, group in enumerate(traffic.groups)}
        self.wired: list[list[int]] = [[] for _ in traffic.groups]
        for ring in wiring.rings:
            if ring.group in index:
                self.wired[index[ring.group]].append(ring.generator)
        self.heap = [(-self._need(g), g) for g in range(len(self.groups)) if self.load[g] > 0]
        heapq.heapify(self.heap)

    def _need(self, g: int) -> float:
        """Bytes a port that one more ring step of the group would carry."""
        gained = 2 if self.wiring.ring_ports(self.groups[g]) == 2 else 1
        return float(self.load[g]) / (len(self.wired[g]) + gained)

    def add_rings(self, least: float) -> bool:
        """Wire rings that would carry more than ``least`` bytes a port; say whether any was."""
        added = False
        while self.heap and -self.heap[0][0] > least:
            _, g = heapq.heappop(self.heap)
            group = self.groups[g]
            if self.wiring.free(group) < self.wiring.ring_ports(group):
                continue  # ports never become free again
            before = len(self.wiring.rings)
            self.wiring.add_ring(group, self._next_step(g))
            self.wired[g] += [ring.generator for ring in self.wiring.rings[before:]]
            heapq.heappush(self.heap, (-self._need(g), g))
            added = True
        return added

    def _next_step(self, g: int) -> int:
        """Return a step not wired yet, or the one with fewest parallel cables."""
        group, used = self.groups[g], self.wired[g]
        there = _wired_steps(self.wiring, group)
        for p in self.chooser.steps(self.wiring.seats(group), len(there) + 1, there):
            if p not in used:
                return p
        return min(totient_permutations(len(group)), key=lambda p: (used.count(p), p))
