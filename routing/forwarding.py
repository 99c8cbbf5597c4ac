"""Forwarding tables: at each node, for each destination, the next links and their ratios."""

from dataclasses import dataclass

import numpy as np

from codesign_base import InfeasibleError, InputError
from codesign_base.arguments import check_kind
from codesign_base.arrays import Floats, Ints
from codesign_base.rows import starts
from routing.network import Network
from routing.path_routing import PathRouting
from routing.paths import forwarding_nodes, hop_distances
from routing.routes import Routes

# Ratios of one node that routes of two sources give may differ by rounding.
_SAME = 1e-7
# Weights below this are rounding of a split, not a split.
_DUST = 1e-12


@dataclass(frozen=True, eq=False)
class ForwardingTables:
    """Where each node sends what is meant for each host.

    Parameters
    ----------
    network : Network
    offsets : int64 array, shape (nodes * hosts + 1,)
        Entry ``node * hosts + destination`` lists its rules; none at the destination and at
        nodes that have no rule for it.
    links : int64 array, shape (rules,)
        Links out of the node, ascending.
    ratios : float64 array, shape (rules,)
        Fractions in (0, 1]; those of one entry sum to one.
    """

    network: Network
    offsets: Ints
    links: Ints
    ratios: Floats

    def __post_init__(self) -> None:
        entries = self.network.nodes * self.network.hosts
        if self.offsets.shape != (entries + 1,) or self.links.shape != self.ratios.shape:
            raise InputError("forwarding tables do not fit their network")

    def rules(self) -> Ints:
        """Return the number of rules of each node, shape (nodes,)."""
        return np.diff(self.offsets[:: self.network.hosts])

    def next_hops(self, node: int, destination: int) -> list[tuple[int, float]]:
        """Return next nodes and ratios of one entry."""
        at = node * self.network.hosts + destination
        part = slice(self.offsets[at], self.offsets[at + 1])
        nodes = self.network.target[self.links[part]].tolist()
        return list(zip(nodes, self.ratios[part].tolist(), strict=True))

    def splits(self) -> Floats:
        """Return the ratios as a table, shape (hosts, links): row destination, zero: no rule."""
        hosts, nodes = self.network.hosts, self.network.nodes
        entry = np.repeat(np.arange(nodes * hosts), np.diff(self.offsets))
        table = np.zeros((hosts, self.network.links))
        table[entry % hosts, self.links] = self.ratios
        return table


def tables_of_splits(network: Network, splits: Floats) -> ForwardingTables:
    """Return the tables of split ratios, checked.

    Parameters
    ----------
    network : Network
    splits : float64 array, shape (hosts, links)
        Row destination: the fraction of what its link's source sends on there; rows of a node
        sum to one or to zero.

    Raises
    ------
    InputError
        As `check_tables`.
    """
    hosts = network.hosts
    destination, link = np.nonzero(splits > 0)
    entry = network.source[link] * hosts + destination
    order = np.lexsort((link, entry))
    counts = np.bincount(entry, minlength=network.nodes * hosts)
    tables = ForwardingTables(
        network,
        starts(counts),
        link[order].astype(np.int64),
        splits[destination, link][order],
    )
    check_tables(tables)
    return tables


def check_tables(tables: ForwardingTables) -> None:
    """Check that ratios sum to one, and that what is sent on arrives without a loop.

    Parameters
    ----------
    tables : ForwardingTables

    Raises
    ------
    InputError
        Naming the first node and destination that fail.
    """
    from routing.flow_kernels import first_loop

    network, hosts = tables.network, tables.network.hosts
    entry = np.repeat(np.arange(network.nodes * hosts), np.diff(tables.offsets))
    sums = np.bincount(entry, weights=tables.ratios, minlength=network.nodes * hosts)
    wrong = np.flatnonzero((sums != 0) & (np.abs(sums - 1.0) > 1e-9))
    if wrong.size:
        node, destination = divmod(int(wrong[0]), hosts)
        raise InputError(
            f"forwarding table of node {node}: ratios toward {destination} sum to "
            f"{sums[wrong[0]]}; they must sum to one"
        )
    splits = tables.splits()
    for destination in range(hosts):
        row = splits[destination]
        to = network.target[row > 0]
        dead = to[(to != destination) & (sums[to * hosts + destination] == 0)]
        if dead.size:
            raise InputError(
                f"forwarding tables lead to node {int(dead[0])} toward {destination}, which has "
                "no rule for it; add one"
            )
        node = first_loop(network.out_offsets, network.target, row)
        if node >= 0:
            raise InputError(
                f"forwarding tables toward {destination} have a loop through node {node}; "
                "take it out"
            )


def forwarding_tables(network: Network, routes: Routes) -> ForwardingTables:
    """Return the tables that carry out routes, where these depend on the destination alone.

    Parameters
    ----------
    network : Network
    routes : Routes

    Raises
    ------
    InputError
        If two sources (or one source's paths and another's) want different ratios at a node
        toward the same destination, or a route has a loop. `path_routing_tables` adds up what
        all sources send, and never has to tell them apart.
    """
    hosts, nodes = network.hosts, network.nodes
    pair = np.repeat(np.arange(hosts * hosts), np.diff(routes.offsets))
    destination = pair % hosts
    at = network.source[routes.links]
    # The ratio of a route at a node is its weight over all that leaves the node in that route.
    keys, inverse = np.unique(pair * nodes + at, return_inverse=True)
    leaving = np.bincount(inverse, weights=routes.weights, minlength=keys.size)
    ratio = routes.weights / leaving[inverse]
    splits = np.zeros((hosts, network.links))
    # The source with most flow at a node has the ratio with least rounding; later ones win.
    order = np.argsort(leaving[inverse], kind="stable")
    splits[destination[order], routes.links[order]] = ratio[order]
    # Every (route, node) must agree with the table in all links, those it lacks included.
    told = np.bincount(inverse, weights=splits[destination, routes.links], minlength=keys.size)
    wrong = (np.abs(splits[destination, routes.links] - ratio) > _SAME) | (
        np.abs(told[inverse] - 1.0) > _SAME
    )
    total = np.zeros((hosts, nodes))
    np.add.at(total.T, network.source, splits.T)
    wrong |= np.abs(total[destination, at] - 1.0) > _SAME
    if wrong.any():
        worst = int(np.flatnonzero(wrong)[0])
        source, target = divmod(int(pair[worst]), hosts)
        raise InputError(
            f"route {source}->{target} leaves node {int(at[worst])} otherwise than another "
            f"source's route to {target} does, so it cannot be told by destination; route by mcf, "
            "lp, ecmp or shortest instead"
        )
    sums = np.where(total > 0, total, 1.0)
    return tables_of_splits(network, splits / sums[:, network.source])


def path_routing_tables(routing: PathRouting) -> ForwardingTables:
    """Return tables by destination that load no link more than a path routing does.

    What all sources send toward one destination is added up; loops in the sum are cancelled,
    which only takes load off; the ratios at a node are those of the sum.

    Parameters
    ----------
    routing : PathRouting

    Returns
    -------
    ForwardingTables
        Checked loop-free. Nodes that carry nothing toward a destination send to a neighbour
        nearer by hops. For another demand than this they are valid, but not the best.

    Raises
    ------
    InfeasibleError
        If a host cannot reach another, even where the demand asks for nothing between them.

    Examples
    --------
    >>> import numpy as np
    >>> from routing.network import Network
    >>> around = np.arange(4)
    >>> ends = np.append(around, (around + 1) % 4), np.append((around + 1) % 4, around)
    >>> ring = Network.from_links("ring", 4, 0, *ends, 12.5e9, 1e-6)
    >>> demand = 1e6 * (1.0 - np.eye(4))
    >>> from routing.multicommodity import min_congestion
    >>> path_routing_tables(min_congestion(ring, demand)).next_hops(0, 2)
    [(1, 0.5), (3, 0.5)]
    """
    from routing.flow_kernels import cancel_cycles

    check_kind("routing", routing, PathRouting, "what min_congestion returns")
    network, hosts = routing.network, routing.network.hosts
    to = np.repeat(routing.pairs % hosts, np.diff(routing.path_offsets))
    key = np.repeat(to, routing.path_hops) * network.links + routing.links
    carried = np.repeat(routing.path_demand, routing.path_hops)
    flows = np.bincount(key, weights=carried, minlength=hosts * network.links)
    flows = flows.reshape(hosts, network.links)
    may = forwarding_nodes(network)
    distance = hop_distances(network)[:, :hosts]
    splits = np.zeros((hosts, network.links))
    for destination in range(hosts):
        flow = np.ascontiguousarray(flows[destination], dtype=np.float64)
        cancel_cycles(
            network.out_offsets, network.target, flow, _DUST * float(flow.max(initial=0.0))
        )
        leaving = np.bincount(network.source, weights=flow, minlength=network.nodes)
        leaving[destination] = 0.0
        active = leaving > 0
        row = np.where(active[network.source], flow, 0.0)
        row /= np.where(active, leaving, 1.0)[network.source]
        # The others take their first link to a node that is nearer and may forward.
        near = distance[:, destination]
        ahead, here = near[network.target], near[network.source]
        usable = (
            ~active[network.source]
            & (here > 0)
            & (ahead == here - 1)
            & ((may[network.target] != 0) | (network.target == destination))
        )
        first = np.unique(network.source[usable], return_index=True)[1]
        row[np.flatnonzero(usable)[first]] = 1.0
        if np.any(near[:hosts] < 0):
            missing = int(np.flatnonzero(near[:hosts] < 0)[0])
            raise InfeasibleError(
                f"network {network.name!r}: host {destination} cannot be reached from host "
                f"{missing}; add links until every host reaches every other"
            )
        splits[destination] = row
    return tables_of_splits(network, splits)
