"""Port accounting: which ports of which servers are free, and what has been wired so far."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from codesign_base import InfeasibleError
from codesign_base.arrays import Floats, Ints
from routing.network import Network
from topoopt.problem.ports import PortModel
from topoopt.topology.matching import best_matching, fill_ports, halve
from topoopt.topology.totient import ring_order, ring_places, ring_step


class DegreeTooSmallError(InfeasibleError):
    """The servers have too few ports to be joined into one network."""


def is_strongly_connected(cables: Ints) -> bool:
    """Whether cables (from row to column) lead from every server to every other."""
    import rustworkx as rx

    graph = rx.PyDiGraph()
    graph.add_nodes_from(range(cables.shape[0]))
    graph.extend_from_edge_list([(a, b) for a, b in np.argwhere(cables).tolist()])
    return bool(rx.is_strongly_connected(graph))


@dataclass(frozen=True)
class Ring:
    """An AllReduce ring that is wired: each member has a link to the next.

    Parameters
    ----------
    members : tuple of int
        Servers in ring order.
    generator : int
        The step p: each member is p places after the one before, in the places that all
        rings of the group share (the sorted group, unless the servers were seated otherwise).
        0: a cycle of no single step.
    """

    members: tuple[int, ...]
    generator: int

    @cached_property
    def group(self) -> tuple[int, ...]:
        """The servers, sorted."""
        return tuple(sorted(self.members))


def ring_orders(
    rings: Iterable[Ring],
) -> dict[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Return the orders of the rings of each group, in the order of the rings."""
    found: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for ring in rings:
        found.setdefault(ring.group, []).append(ring.members)
    return {group: tuple(orders) for group, orders in found.items()}


def labelled(rings: Sequence[Ring]) -> tuple[Ring, ...]:
    """Return rings with their steps, where those without have one all the same.

    Steps count in the places of the group's first ring with a step, in which the first server of
    its order is at place 0; in the sorted group where no ring has one.
    """
    seats: dict[tuple[int, ...], tuple[int, ...]] = {}
    for ring in rings:
        if ring.generator and ring.group not in seats:
            seats[ring.group] = ring_places(ring.members, ring.generator)
    return tuple(
        ring
        if ring.generator
        else replace(ring, generator=ring_step(ring.members, seats.get(ring.group, ring.group)))
        for ring in rings
    )


@dataclass(eq=False)
class Wiring:
    """A topology under construction.

    Parameters
    ----------
    servers, degree : int
    ports : PortModel
    rings : list of Ring
        Those wired so far.
    orders : dict of tuple of int to tuple of int
        The server of each place on the rings of a group, where it is not the sorted group.
    matching_gap : float
        Largest gap of a round of matching; 0 if all were exact.

    Attributes
    ----------
    cables : int64 array, shape (servers, servers)
        From row to column, so far.
    free_out, free_in : int64 array, shape (servers,)
        Ports left; one array where ports are bidirectional.
    """

    servers: int
    degree: int
    ports: PortModel
    rings: list[Ring] = field(default_factory=list)
    orders: dict[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)
    matching_gap: float = 0.0
    cables: Ints = field(init=False)
    free_out: Ints = field(init=False)
    free_in: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.cables = np.zeros((self.servers, self.servers), dtype=np.int64)
        self.free_out = np.full(self.servers, self.degree, dtype=np.int64)
        # A bidirectional cable takes transmit and receive of one port: one count for both.
        self.free_in = self.free_out if self.bidirectional else self.free_out.copy()

    @property
    def bidirectional(self) -> bool:
        """Whether a cable joins two servers both ways."""
        return self.ports is PortModel.BIDIRECTIONAL

    def ring_ports(self, group: tuple[int, ...]) -> int:
        """Ports of each member that one ring step takes."""
        return 2 if self.bidirectional and len(group) > 2 else 1

    def free(self, group: tuple[int, ...]) -> int:
        """Ports that every member of the group still has free."""
        members = list(group)
        return int(min(self.free_out[members].min(), self.free_in[members].min()))

    def seat(self, order: tuple[int, ...]) -> None:
        """Set which server takes which place on the rings of a group that has none yet."""
        self.orders[tuple(sorted(order))] = order

    def seats(self, group: tuple[int, ...]) -> tuple[int, ...]:
        """Return the server of each place on the rings of a sorted group."""
        return self.orders.get(group, group)

    def add_ring(self, group: tuple[int, ...], generator: int) -> None:
        """Wire the ring +p over a sorted group; in bidirectional mode this also gives -p."""
        self.add_cycle(ring_order(self.seats(group), generator), generator)

    def add_cycle(self, order: tuple[int, ...], generator: int = 0) -> None:
        """Wire a ring in any order of its members; in bidirectional mode also its reverse."""
        members = np.array(order, dtype=np.int64)
        following = np.roll(members, -1)
        self.rings.append(Ring(order, generator))
        self.cables[members, following] += 1
        taken = self.ring_ports(order)
        self.free_out[members] -= taken
        if not self.bidirectional:
            self.free_in[members] -= taken
        elif len(order) > 2:
            self.cables[following, members] += 1
            reverse = len(order) - generator if generator else 0
            self.rings.append(Ring((order[0], *reversed(order[1:])), reverse))

    def next_matching(self, demand: Floats) -> list[tuple[int, int]]:
        """Return the maximum-weight matching of the servers that have free ports."""
        edges, gap = best_matching(demand, self.free_out, self.free_in, self.bidirectional)
        self.matching_gap = max(self.matching_gap, gap)
        return edges

    def match(self, demand: Floats, edges: list[tuple[int, int]]) -> None:
        """Wire one round of matching and halve, in place, the demand it matched."""
        for i, j in edges:
            self.cables[i, j] += 1
            self.free_out[i] -= 1
            self.free_in[j] -= 1
            if self.bidirectional:
                self.cables[j, i] += 1
        halve(demand, edges, self.bidirectional)

    def fill(self) -> None:
        """Join servers that still have free ports, first those not joined yet."""
        fill_ports(self.free_out, self.free_in, self.cables, self.bidirectional)

    def network(self, name: str, bandwidth: float, latency: float) -> Network:
        """Return the wired network.

        Parameters
        ----------
        name : str
        bandwidth : float
            Bytes per second of one cable in one direction.
        latency : float
            Seconds a hop.
        """
        source, target = np.nonzero(self.cables)
        multiplicity = self.cables[source, target]
        return Network(
            name=name,
            hosts=self.servers,
            switches=0,
            source=source.astype(np.int64),
            target=target.astype(np.int64),
            capacity=multiplicity.astype(np.float64) * np.float64(bandwidth),
            latency=np.full(source.size, float(latency)),
            multiplicity=multiplicity,
        )
