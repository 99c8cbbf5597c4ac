"""A fabric: a network, the routes over it, and the rings of its AllReduce groups."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from codesign_base import InputError
from codesign_base.arguments import check_kind
from codesign_base.arrays import Floats, Ints
from codesign_base.counted import counted
from parallelism.taskgraph import Group, TaskGraph
from routing.network import Network
from routing.rotation import Rotation, least_rotation
from routing.routes import Routes, tabled
from topoopt.fabric.ring_trees import NO_TREES, RingTrees, ring_trees
from topoopt.fabric.rings import Rings, default_rings, pair_loads, ring_pairs
from topoopt.fabric.route_rows import RouteRows
from topoopt.fabric.transport import PACKETS, Transport


class GroupRow(NamedTuple):
    """A group's AllReduce as one coupled stream: a row of the shared table, and its numbers.

    Parameters
    ----------
    begin, end : int
        Entries of the row: links that carry ring edges, ascending, and ring edges on each (route
        fractions summed).
    round_latency : float
        Seconds that a round takes beyond its bytes: the largest `Transport.message_lag` among
        the ring edges.
    rings : int
        Number of rings R. Each ring edge carries 2 (g - 1) / g * S / R bytes.
    rate : float
        Bytes/s of each ring edge when nothing else is on the network.
    hops, crowding : int, float
        Of the trees over the ring edges, see `topoopt.fabric.ring_trees`.
    """

    begin: int
    end: int
    round_latency: float
    rings: int
    rate: float
    hops: int
    crowding: float


class GroupStreams(NamedTuple):
    """The coupled stream of a group's AllReduce; numbers are those of `GroupRow`."""

    links: Ints
    weights: Floats
    round_latency: float
    rings: int
    rate: float
    trees: RingTrees


@dataclass(frozen=True, eq=False)
class Fabric:
    """What traffic runs over.

    Parameters
    ----------
    name : str
        What the fabric is called in tables.
    network : Network
    routes : Routes
        Routes of every ordered host pair of the network, or made on demand.
    rings : mapping of tuple of int to tuple of tuple of int
        Ring orders of AllReduce groups, by the group's sorted hosts; each order is a permutation
        of the group, and all rings of a group carry equal parts. For other groups rings are
        chosen by `default_rings`.
    ring_routes : Routes, optional
        Routes of ring edges, where AllReduces are routed otherwise than transfers (along their
        rings, rather than over several paths).
    transport : Transport
        Packets, set-up and windows of every message.
    forwarding : bool
        Whether servers forward although there are switches, by nodes of their own: rings are then
        chosen as where there are none.
    unmerged : Network, optional
        The network with all its links, where ``network`` has some that stand for others.

    Attributes
    ----------
    rows : RouteRows
        The routes, and after them what the rings of groups send, as kernels read it.

    Raises
    ------
    InputError
        If network and routes do not fit, a ring is not a permutation of its group, or an argument
        is of another kind.
    """

    name: str
    network: Network
    routes: Routes
    rings: Mapping[Group, Rings] = field(default_factory=dict)
    ring_routes: Routes | None = None
    transport: Transport = PACKETS
    forwarding: bool = False
    unmerged: Network | None = None
    rows: RouteRows = field(init=False, repr=False)
    _edges: RouteRows = field(init=False, repr=False)
    _groups: dict[Group, GroupRow] = field(init=False, repr=False)
    _chosen: dict[Group, Rings] = field(init=False, repr=False)
    _lock: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        what, routed = f"fabric {self.name!r}", "Routes, such as routing.paths.ecmp_routes(network)"
        check_kind(f"{what}: network", self.network, Network, "a Network")
        check_kind(f"{what}: routes", self.routes, Routes, routed)
        check_kind(
            f"{what}: rings", self.rings, Mapping, "the rings of each group, or leave it out"
        )
        check_kind(f"{what}: ring_routes", self.ring_routes, Routes | None, routed)
        check_kind(f"{what}: transport", self.transport, Transport, "a topoopt.fabric.Transport")
        hosts = self.network.hosts
        for routes in (self.routes, self.edge_routes):
            if routes.hosts != hosts:
                raise InputError(
                    f"fabric {self.name!r}: routes are for {counted(routes.hosts, 'host')}, the "
                    f"network has {hosts}; route this network"
                )
            if routes.links.size and routes.links.max() >= self.network.links:
                raise InputError(
                    f"fabric {self.name!r}: routes use link {routes.links.max()}, the network has "
                    f"{counted(self.network.links, 'link')}; route this network"
                )
        for group, orders in self.rings.items():
            _check_group(f"fabric {self.name!r}: ring group", group, hosts)
            for order in orders:
                if tuple(sorted(order)) != group:
                    raise InputError(
                        f"fabric {self.name!r}: ring {order} does not visit each host of group "
                        f"{group} once"
                    )
        # A method of this fabric would be a circle, whose arrays stay until garbage is looked for.
        lags = partial(_lags, self.network, self.transport)
        rows = RouteRows(self.routes, lags)
        edges = rows if self.ring_routes is None else RouteRows(self.ring_routes, lags)
        own = {"rows": rows, "_edges": edges, "_groups": {}, "_chosen": {}, "_lock": Lock()}
        for name, value in own.items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[type["Fabric"], tuple[Any, ...]]:
        """Pickle what it was made of; the tables are made again."""
        return Fabric, tuple(getattr(self, each.name) for each in fields(self) if each.init)

    @property
    def wired(self) -> Network:
        """The network with all its links, whose rates and distances are those of its servers."""
        return self.network if self.unmerged is None else self.unmerged

    @property
    def edge_routes(self) -> Routes:
        """Routes of ring edges."""
        return self.routes if self.ring_routes is None else self.ring_routes

    def rings_of(self, group: Group) -> Rings:
        """Return the ring orders that a group's AllReduces use: the given ones, or chosen."""
        chosen = self.rings.get(group) or self._chosen.get(group)
        if not chosen:
            # Routes between all members of groups of many hosts, of which rings take few, would
            # fill memory.
            apart = self.edge_routes.more is not None and not tabled(self.network.hosts)
            edges = self.edge_routes if apart else self._edges
            chosen = default_rings(self.network, edges, group, forwarding=self.forwarding)
            self._chosen[group] = chosen
        return chosen

    def ring_edges(self, group: Group) -> Ints:
        """Return the pairs that a group's rings send over.

        Parameters
        ----------
        group : tuple of int
            Sorted distinct hosts, at least two.

        Returns
        -------
        int64 array, shape (rings, group size)
            Rows of `Routes`. Where there are no switches, htsim takes a member's place in the
            group for the host, and goes on by the ring's step from there.
        """
        orders = np.array(self.rings_of(group), dtype=np.int64)
        hosts = self.network.hosts
        if not self.transport.htsim or self.network.switches or len(group) == hosts:
            return ring_pairs(orders, hosts)
        places = np.arange(len(group))
        steps = (orders[:, 1] - orders[:, 0]) % hosts
        edges: Ints = places * hosts + (places + steps[:, None]) % hosts
        return edges

    @cached_property
    def capacity(self) -> Floats:
        """Bytes/s of each link, as kernels take them."""
        return self.network.capacity.copy()

    @cached_property
    def rotation(self) -> Rotation | None:
        """The rotation of the network by the fewest hosts, if there is one."""
        return least_rotation(self.network)

    def prepare(self, groups: Iterable[Group], *, given: bool = False) -> None:
        """Make the routes at once that rings of groups need, where they are made on demand.

        Parameters
        ----------
        groups : iterable of tuple of int
        given : bool
            Leave out groups whose rings are still to be chosen.
        """
        if self.edge_routes.more is None:
            return
        hosts, pairs = self.network.hosts, [np.zeros(0, dtype=np.int64)]
        # Rings that are known without routes, or chosen apart from these.
        known = self.network.switches > 0 and not self.forwarding
        known = known or not (given or tabled(hosts))
        for group in groups:
            if len(group) < 2 or group in self._groups:
                continue
            if known or self.rings.get(group):
                pairs.append(self.ring_edges(group).ravel())
            elif not given:
                members = np.array(group, dtype=np.int64)
                pairs.append((members[:, None] * hosts + members).ravel())
        self._edges.entries(np.concatenate(pairs))

    def group_row(self, group: Group) -> GroupRow:
        """Return the place of a group's stream in the shared table, and its numbers.

        The first call for a group works it out, later ones look it up.
        """
        row = self._groups.get(group)
        if row is None:
            links, weights, latency, rings, rate, trees = self._streams(group)
            with self._lock:
                row = self._groups.get(group)
                if row is None:
                    row = GroupRow(*self.rows.append(links, weights), latency, rings, rate, *trees)
                    self._groups[group] = row
        return row

    def group_streams(self, group: Group) -> GroupStreams:
        """Return the coupled stream of one group's ring AllReduce (cached).

        Parameters
        ----------
        group : tuple of int
            Sorted distinct hosts, at least two.

        Returns
        -------
        GroupStreams

        Raises
        ------
        InputError
            If the group is not sorted hosts of this fabric, or a ring edge has no route.
        """
        row = self.group_row(group)
        return GroupStreams(
            self.rows.links[row.begin : row.end].astype(np.int64),
            self.rows.weights[row.begin : row.end].copy(),
            row.round_latency,
            row.rings,
            row.rate,
            RingTrees(row.hops, row.crowding),
        )

    def with_streams(self, given: Mapping[Group, GroupStreams]) -> "Fabric":
        """Return a fabric on which the AllReduces of some groups load links as given.

        Parameters
        ----------
        given : mapping of tuple of int to GroupStreams
            Of other schedules than the rings of these groups.
        """
        made = replace(self)
        for group, (links, weights, latency, rings, rate, trees) in given.items():
            entries = made.rows.append(links, weights)
            made._groups[group] = GroupRow(*entries, latency, rings, rate, *trees)
        return made

    def _streams(self, group: Group) -> GroupStreams:
        _check_group("AllReduce group", group, self.network.hosts)
        pairs = self.ring_edges(group)
        loads = pair_loads(self._edges, self.network.links, pairs).sum(axis=0)
        links = np.flatnonzero(loads)
        latency = float(self._edges.lags(pairs.ravel()).max())
        rate = float((self.network.capacity[links] / loads[links]).min())
        trees = NO_TREES
        if not self.transport.htsim:
            orders = np.array(self.rings_of(group), dtype=np.int64)
            switched = self.network.switches > 0 and not self.forwarding
            trees = ring_trees(orders, switched=switched)
        return GroupStreams(links, loads[links], latency, pairs.shape[0], rate, trees)


def _check_group(what: str, group: Group, hosts: int) -> None:
    if len(group) < 2 or list(group) != sorted(set(group)):
        raise InputError(f"{what} is {group}; give two or more sorted distinct hosts")
    if group[0] < 0 or group[-1] >= hosts:
        raise InputError(f"{what} is {group}; give hosts of the network, 0..{hosts - 1}")


def _lags(network: Network, transport: Transport, routes: Routes) -> Floats:
    """Return the seconds that a message over each row of routes takes beyond its bytes."""
    pace = network.capacity / network.multiplicity
    begin = routes.offsets[:-1]
    linked = begin < routes.offsets[1:]
    slowest = np.where(linked, pace.min(initial=np.inf), np.inf)
    if linked.any() and pace.max() > pace.min():
        slowest[linked] = np.minimum.reduceat(pace[routes.links], begin[linked])
    return transport.message_lag(routes.latency, routes.hops, slowest)


def check_simulated(fabric: object, tasks: object) -> None:
    """Refuse what cannot be simulated: a plan or a file in place of what is made of it.

    Parameters
    ----------
    fabric, tasks : object

    Raises
    ------
    InputError
        If one is no `Fabric`, or the other no `TaskGraph`.
    """
    check_fabric(fabric)
    check_tasks(tasks)


def check_fabric(fabric: object) -> None:
    """Refuse what is no `Fabric`.

    Parameters and errors are those of `check_simulated`.
    """
    instead = "a Fabric, such as topoopt.plan.rebuild.rebuild(plan).fabric"
    check_kind("fabric", fabric, Fabric, instead)


def check_tasks(tasks: object) -> None:
    """Refuse what is no `TaskGraph`.

    Parameters and errors are those of `check_simulated`.
    """
    instead = "a TaskGraph, such as topoopt.plan.rebuild.rebuild(plan).tasks()"
    check_kind("tasks", tasks, TaskGraph, instead)
