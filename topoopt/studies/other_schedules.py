"""What AllReduces of a plan could gain by other schedules than its rings."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from codesign_base.arrays import Floats
from parallelism.taskgraph import Group, TaskGraph, TaskKind
from routing.collectives.bounds import allreduce_rate
from routing.collectives.forest import gather_forest
from routing.collectives.joint import joint_forests
from routing.collectives.member_links import TooMuchWorkError
from routing.collectives.rate import gather_rate
from routing.collectives.trees import Forest, turned
from routing.network import Network
from topoopt.fabric.fabric import Fabric, GroupStreams
from topoopt.fabric.ring_trees import NO_TREES
from topoopt.fabric.simulation import score

# Groups that are tried alone.
MOST_TRIED = 16


class GroupRate(NamedTuple):
    """How fast collectives of a group are alone on a network, as bytes/s that each member sends.

    Parameters
    ----------
    group : tuple of int
    rings : float
        By its rings.
    best : float
        That no schedule passes: the larger of an AllReduce's and an AllGather's bound.
    """

    group: Group
    rings: float
    best: float

    def worth(self, share: float) -> bool:
        """Whether the best schedule is faster by more than a share."""
        return self.best > (1.0 + share) * self.rings


def group_rates(fabric: Fabric, tasks: TaskGraph) -> list[GroupRate]:
    """Return the rates of all groups of several servers that reduce or gather anything.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph

    Returns
    -------
    list of GroupRate
        Without latency.
    """
    pattern = tasks.alike.pattern if tasks.alike is not None else None
    groups = tasks.groups if pattern is None else pattern.groups
    used = np.unique(tasks.first[tasks.collective] if pattern is None else
                     pattern.group[pattern.group >= 0])  # fmt: skip
    reduces = bool((tasks.kind == TaskKind.ALLREDUCE).any())
    gathers = bool((tasks.kind > TaskKind.ALLREDUCE).any())
    found = []
    for group in dict.fromkeys(groups[g] for g in used.tolist() if len(groups[g]) > 1):
        share = (len(group) - 1.0) / len(group)
        row = fabric.group_row(group)
        best = 0.0
        if reduces:
            best = 2.0 * share * allreduce_rate(fabric.network, group)
        if gathers:
            whole = gather_rate(fabric.network, group).bytes_per_s * len(group)
            best = max(best, share * whole)
        # A ring edge carries so much of what a member sends.
        found.append(GroupRate(group, row.rate * row.rings, best))
    return found


def at_once(fabric: Fabric, rates: list[GroupRate], worth: float) -> float:
    """Return how much faster groups could be than by rings where all of them are at work.

    Parameters
    ----------
    fabric : Fabric
    rates : list of GroupRate
    worth : float
        As in `separate_network_seconds`.

    Returns
    -------
    float
        Of the largest of these groups, which share no member: the rate that no trees of all of
        them together pass (`routing.collectives.joint`), over that by rings. 1 if there is none.
    """
    apart = [rate for rate in rates if rate.worth(worth)]
    most = max((len(rate.group) for rate in apart), default=0)
    met: set[int] = set()
    chosen = []
    for rate in apart:
        if len(rate.group) == most and not met.intersection(rate.group):
            met.update(rate.group)
            chosen.append(rate)
    if not chosen:
        return 1.0
    joint = joint_forests(fabric.network, [rate.group for rate in chosen])
    sent = (most - 1.0) / most * joint.rate_bound
    return float(sent / min(rate.rings for rate in chosen))


def separate_network_seconds(
    fabric: Fabric, tasks: TaskGraph, rates: list[GroupRate], worth: float
) -> float:
    """Return the time of an iteration in which some groups have a network of their own.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
    rates : list of GroupRate
    worth : float
        Groups that are alone slower by rings than by the best schedule, by more than this share.

    Returns
    -------
    float
        Seconds. AllReduces of such a group share its best rate, and nothing else is in their way,
        nor are they in anybody's; those of the others go over their rings. None has latency.
    """
    network = fabric.network
    apart = [rate for rate in rates if rate.worth(worth)]
    count = len(apart)
    nodes = network.nodes + np.arange(2 * count)
    ones = np.ones(count)
    wider = replace(
        network,
        switches=network.switches + 2 * count,
        source=np.concatenate((network.source, nodes[0::2])),
        target=np.concatenate((network.target, nodes[1::2])),
        capacity=np.concatenate((network.capacity, [rate.best for rate in apart])),
        latency=np.concatenate((network.latency, 0.0 * ones)),
        multiplicity=np.concatenate((network.multiplicity, ones.astype(np.int64))),
    )
    given = {
        rate.group: fabric.group_streams(rate.group)._replace(round_latency=0.0) for rate in rates
    } | {
        rate.group: GroupStreams(
            np.array([network.links + at]), np.ones(1), 0.0, 1, rate.best, NO_TREES
        )
        for at, rate in enumerate(apart)
    }
    return score(replace(fabric, network=wider).with_streams(given), tasks)


def trees_seconds(fabric: Fabric, tasks: TaskGraph, rates: list[GroupRate], worth: float) -> float:
    """Return the least time of an iteration in which some groups have the best trees, not rings.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
    rates : list of GroupRate
    worth : float
        As in `separate_network_seconds`.

    Returns
    -------
    float
        Seconds: of all these groups by trees, or one of the `MOST_TRIED` that gain most alone;
        bytes on trees are forwarded as they come. Infinite if there is no such group. Those whose
        trees take too much work keep their rings.
    """
    back = turned(fabric.network)
    given = {}
    for each in sorted(rates, key=lambda rate: rate.rings / rate.best):
        if each.worth(worth):
            try:
                gather = gather_forest(fabric.network, each.group)
                scatter = gather_forest(back, each.group)
            except TooMuchWorkError:
                continue
            load = _loads(fabric.network, gather, scatter)
            links = np.flatnonzero(load)
            rate = float((fabric.network.capacity[links] / load[links]).min())
            given[each.group] = GroupStreams(links, load[links], 0.0, 1, rate, NO_TREES)
    alone = list(given.items())[:MOST_TRIED] if len(given) > 1 else []
    tried = [given, *({group: streams} for group, streams in alone)]
    times = [score(fabric.with_streams(some), tasks) for some in tried if some]
    return min(times, default=float("inf"))


def _loads(network: Network, gather: Forest, scatter: Forest) -> Floats:
    """Return bytes on links over those that each member sends by rings, there and back."""
    passed: defaultdict[tuple[int, int], float] = defaultdict(float)
    for forest, way in ((gather, 1), (scatter, -1)):
        for tree in forest.trees:
            for path in tree.paths:
                for pair in pairwise(path[::way]):
                    passed[pair] += tree.copies / forest.units
    # Each tree carries an n-th of the buffer; a member sends 2 (n - 1) of these.
    load = np.zeros(network.links)
    for (a, b), amount in passed.items():
        load[network.link(a, b)] = amount / (2.0 * (len(gather.members) - 1.0))
    return load
