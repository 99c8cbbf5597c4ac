"""The wirings that are tried for the traffic of a strategy: divisions of ports, kinds of rings."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from parallelism.family import Family, P
from parallelism.taskgraph import Group, TaskGraph, Traffic
from routing.routes import tabled
from topoopt.evaluate.drawn import drawn_topologies
from topoopt.evaluate.grids import grid_topologies
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.scoring import CHOSEN_UP_TO
from topoopt.problem.cluster import Cluster
from topoopt.problem.ports import PortModel
from topoopt.topology.choosing import Selection
from topoopt.topology.cycles import cycle_wirings, one_way_wirings
from topoopt.topology.exchange_groups import exchange_groups, exchange_wirings
from topoopt.topology.finder import Topology, find_topology
from topoopt.topology.split import groups_by_load, main_traffic
from topoopt.topology.totient import totient_permutations

_MOST_SPLITS = 10


def lacks_rings(topology: Topology, tasks: TaskGraph) -> bool:
    """Say whether rings of a large group are still to be chosen, for which all pairs are routed.

    On few servers, where those are routed anyway, it does not matter.
    """
    if tabled(tasks.servers):
        return False
    own = {ring.group for ring in topology.rings}
    return any(
        len(group) > CHOSEN_UP_TO and amount > 0 and group not in own
        for group, amount in zip(tasks.groups, tasks.group_bytes().tolist(), strict=True)
    )


def with_rings(topologies: Iterable[Topology], tasks: TaskGraph) -> Iterator[Topology]:
    """Leave out topologies that lack rings of large groups; if all do, all but the first."""
    spare, some = None, False
    for topology in topologies:
        if lacks_rings(topology, tasks):
            spare = spare or topology
        else:
            some = True
            yield topology
    if spare is not None and not some:
        yield spare


def built(
    cluster: Cluster,
    traffic: Traffic,
    split: int | None,
    surplus: str = "matching",
    ports: PortModel | None = None,
    like: str | None = None,
    selection: Selection = Selection.GEOMETRIC,
    joined: tuple[Group, ...] = (),
) -> Topology:
    """Build the topology for some traffic.

    Parameters
    ----------
    cluster : Cluster
    traffic : Traffic
    split : int or None
        Ports for rings; None: by the paper's formula.
    surplus : {"matching", "rings", "parallel"}
        What ports get that neither rings nor transfers need, as in `find_topology`.
    ports : PortModel, optional
        Other ones than the cluster's.
    like : str, optional
        The published choices that are repeated, as ``faithful`` of `find_topology`.
    selection : Selection
        How generators of rings are chosen.
    joined : tuple of tuple of int
        Orders of rings that come before all others.

    Returns
    -------
    Topology
    """
    return find_topology(
        traffic,
        cluster.degree,
        cluster.port_rate,
        latency=cluster.hop_latency,
        ports=cluster.port_model if ports is None else ports,
        degree_allreduce=split,
        surplus=surplus,
        selection=selection,
        joined=joined,
        faithful=like,
    )


def _ported(problem: Problem[Family[P]], traffic: Traffic) -> Traffic:
    """Return the traffic that ports are divided by."""
    # Of many servers large groups without a ring are not simulated.
    whole = not tabled(problem.cluster.servers) or problem.options.faithful is not None
    return traffic if whole else main_traffic(traffic)


def wirings(
    problem: Problem[Family[P]], traffic: Traffic, formula_only: bool, *, grids: bool = True
) -> Iterator[Topology]:
    """Build topologies with geometric rings, the paper's formula first; or take what is wired.

    ``grids`` says whether rows and columns are among them (`topoopt.evaluate.grids`).
    """
    if problem.wiring is not None:
        yield problem.wiring
        return
    cluster, options = problem.cluster, problem.options
    whole, traffic = traffic, _ported(problem, traffic)
    first = built(cluster, traffic, None, like=options.faithful)
    yield first
    if formula_only:
        return
    if traffic.transfer_sent() > 0 and traffic.groups:
        yield built(cluster, traffic, None, "rings")
        # All splits of usual degrees; of large ones a spread, since their number and the
        # matching rounds of each both grow with the degree.
        step = -(-cluster.degree // _MOST_SPLITS)
        fewest = min(len(totient_permutations(len(group))) for group in traffic.groups)
        for split in range(cluster.degree, 0, -step):
            if split != first.degree_allreduce and options.improvements.splits:
                yield built(cluster, traffic, split, "rings")
            if problem.family.enumerated and split > fewest:
                # Gradients at the end of an iteration hold it up more than hidden messages do.
                yield built(cluster, traffic, split, "parallel")
    # Wirings of bidirectional ports are directed ones, too.
    both_ways = PortModel.BIDIRECTIONAL
    wires_both_ways = cluster.degree > 1 or cluster.servers == 2
    if cluster.port_model is not both_ways and wires_both_ways:
        yield built(cluster, traffic, None, "rings", both_ways)
    if wires_both_ways:
        # The published generators, so that a plan is never worse than on those rings.
        yield built(cluster, whole, None, ports=both_ways, like="artifact")
    if cluster.degree >= 4 and cluster.degree % 2 == 0:
        # Half the links, twice as fast each: short rounds of small AllReduces.
        yield trunked(cluster, traffic)
    yield from drawn_topologies(cluster, problem.seed)
    # For groups that all exchange: rings in plans of operators, of which meshes have made none
    # faster; meshes in plans of layouts, in which tokens go to experts, and rings have not.
    if not problem.family.enumerated:
        if wires_both_ways:
            yield from _exchanging(cluster, traffic)
    else:
        yield from exchange_wirings(traffic, cluster)
        yield from cycle_wirings(cluster)
    if grids and traffic.transfer_sent() > 0:
        yield from grid_topologies(cluster)
    # Nor is it slower than on the wiring that the paper describes.
    yield built(cluster, whole, None, like="paper")


def _exchanging(cluster: Cluster, traffic: Traffic) -> Iterator[Topology]:
    """Build topologies with rings of the groups that exchange, and one of all servers or none."""
    everyone = tuple(range(cluster.servers))
    both_ways = PortModel.BIDIRECTIONAL  # a ring that goes one way has long paths back
    for groups in exchange_groups(traffic.transfers):
        for others in ((), (everyone,), (_by_group(traffic),)):
            for split in (None, cluster.degree):
                joined = (*others, *groups)
                yield built(cluster, traffic, split, "rings", both_ways, joined=joined)


def _by_group(traffic: Traffic) -> Group:
    """Return all servers, those beside each other that the heaviest AllReduce groups hold."""
    place = dict[int, int]()
    for number in groups_by_load(traffic):
        group = traffic.groups[number]
        if len(group) < traffic.servers and place.keys().isdisjoint(group):
            place |= dict.fromkeys(group, len(place))
    return tuple(sorted(range(traffic.servers), key=lambda v: (place.get(v, traffic.servers), v)))


def one_way(problem: Problem[Family[P]]) -> Iterator[Topology]:
    """Build topologies of few servers whose cables all go one way round, for layouts."""
    if problem.family.enumerated and problem.wiring is None:
        yield from one_way_wirings(problem.cluster)


def trunked(cluster: Cluster, traffic: Traffic) -> Topology:
    """Build a topology in which every link has two cables."""
    half = find_topology(
        traffic,
        cluster.degree // 2,
        2.0 * cluster.port_rate,
        latency=cluster.hop_latency,
        ports=cluster.port_model,
        surplus="rings",
    )
    return replace(
        half,
        network=replace(half.network, multiplicity=2 * half.network.multiplicity),
        degree_allreduce=2 * half.degree_allreduce,
        degree_transfer=2 * half.degree_transfer,
    )


def other_rings(problem: Problem[Family[P]], traffic: Traffic, split: int) -> Iterator[Topology]:
    """Build topologies with other rings that can matter for this traffic."""
    if problem.wiring is not None:
        return
    cluster, tried = problem.cluster, problem.options.improvements
    traffic = _ported(problem, traffic)
    moves = traffic.transfer_sent() > 0
    # A single group without transfers is as fast on any of its rings.
    if tried.exact and (moves or len(traffic.groups) > 1):
        yield built(cluster, traffic, split, "rings", selection=Selection.EXACT)
    if not moves or not traffic.groups:
        return
    if tried.traffic:
        yield built(cluster, traffic, split, "rings", selection=Selection.TRAFFIC)
    if tried.groups:
        # Paths are so short there that ports may serve the transfers best on rings.
        for ports in dict.fromkeys((split, cluster.degree)):
            yield built(cluster, traffic, ports, "rings", selection=Selection.CAYLEY)
