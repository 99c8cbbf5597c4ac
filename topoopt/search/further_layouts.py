"""Layouts that are worth a simulation though estimates on the ideal switch put many before them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from parallelism.transformers.family import LayoutFamily
from parallelism.transformers.layout import Layout
from parallelism.transformers.placement import Placement
from routing.network import Network
from routing.paths import hop_distances
from topoopt.bounds.everything import wirings_of
from topoopt.evaluate.problem import Problem
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.reconfigurable import AnyFabric
from topoopt.search.survey import Candidate, new_kind

# Layouts with only data parallelism across servers that are simulated after these, and by how much
# their estimates may be too high.
_ACROSS, _TOO_HIGH = 8, 1.05
# Layouts that are estimated for a fabric to compare with, the most of them that are simulated
# there, and the share of the ideal switch's rate from which on they would be the same.
_ESTIMATED, _FITTED, _AS_FAST = 256, 20, 0.99
# Share of ports that what two servers send each other takes where servers forward, about.
_USED = 0.5


def data_across(
    problem: Problem[LayoutFamily],
    candidates: Sequence[Candidate],
    below: float,
    simulated: Sequence[Placement],
) -> list[Candidate]:
    """Choose layouts with only data parallelism across servers, which need only rings.

    A direct network carries their sums as fast as a switch does, but messages of stages, context
    and experts, which ports of a switch carry to any server, slower. So they may be the best of all
    where estimates, which are of a switch, put many others first.

    Parameters
    ----------
    problem : Problem
    candidates : sequence of Candidate
        By estimate.
    below : float
        Seconds that they must take less than, to be worth a wiring.
    simulated : sequence of Placement
        Those of this kind that are simulated already.

    Returns
    -------
    list of Candidate
        At most eight that differ from each other and from what is simulated, by estimate of such a
        placement.
    """
    family = problem.family
    rate = wirings_of(family, problem.cluster).port_rate
    found: list[Candidate] = []
    for each in candidates:
        if each.estimate_s >= _TOO_HIGH * below:
            break
        if each.bound.seconds >= below:
            continue
        for place in family.unlike_placements(each.layout):
            if place.of_degrees.data_across:
                seconds = max(family.estimate(place, rate), each.bound.seconds)
                if seconds < _TOO_HIGH * below:
                    found.append(replace(each, placement=place, estimate_s=seconds))
    found.sort(key=lambda each: each.estimate_s)
    kinds = set[tuple[object, ...]]()
    for place in simulated:
        new_kind(kinds, place.layout)
    return [each for each in found if new_kind(kinds, each.layout)][:_ACROSS]


def of_depth(
    candidates: Sequence[Candidate],
    like: Layout,
    below: float,
    simulated: Sequence[Placement],
) -> list[Candidate]:
    """Choose layouts of as many stages as one has, and estimated to be about as fast.

    How far times on wires are from estimates, which are of a switch, depends most of all on the
    number of stages, and on which servers they lie.

    Parameters
    ----------
    candidates : sequence of Candidate
        By estimate, ``like`` among them.
    like : Layout
        The fastest one that is wired.
    below : float
        Seconds that they must take less than, to be worth a wiring.
    simulated : sequence of Placement
        What is simulated already.

    Returns
    -------
    list of Candidate
        At most eight that differ from each other and from what is simulated.
    """
    most = _TOO_HIGH * next(each.estimate_s for each in candidates if each.layout == like)
    kinds = set[tuple[object, ...]]()
    for place in simulated:
        new_kind(kinds, place.layout)
    found = (
        each
        for each in candidates
        if each.layout.pipeline == like.pipeline
        and each.estimate_s < most
        and each.bound.seconds < below
        and new_kind(kinds, each.layout)
    )
    return list(islice(found, _ACROSS))


def for_fabric(
    problem: Problem[LayoutFamily], candidates: Sequence[Candidate], fabric: AnyFabric
) -> list[Candidate]:
    """Choose layouts with the least estimates on the ports of a fabric to compare with.

    A Fat-tree of the same cost has slower ports than the ideal switch, and servers of an expander
    forward for others, so that other layouts are the best there: those that send less.

    Parameters
    ----------
    problem : Problem
    candidates : sequence of Candidate
        By estimate on the ideal switch.
    fabric : Fabric, GpuPorts, DirectCircuits or WindowedCircuits

    Returns
    -------
    list of Candidate
        At most twenty that differ from each other, by estimate, with the order of axes that has it;
        none where ports are as fast as those of the ideal switch, where circuits come and go,
        and of one server.
    """
    family = problem.family
    if not isinstance(fabric, Fabric) or family.servers == 1:
        return []
    rate = _rate(fabric.wired)
    if rate >= _AS_FAST * wirings_of(family, problem.cluster).port_rate:
        return []
    kinds = set[tuple[object, ...]]()
    distinct = (each for each in candidates if new_kind(kinds, each.layout))
    found: list[Candidate] = []
    for each in islice(distinct, _ESTIMATED):
        places = family.unlike_placements(each.layout)
        times = [family.estimate(place, rate) for place in places]
        least = min(times)
        place, least_s = places[times.index(least)], max(least, each.bound.seconds)
        found.append(replace(each, placement=place, estimate_s=least_s))
    return sorted(found, key=lambda each: each.estimate_s)[:_FITTED]


def _rate(network: Network) -> float:
    """Return the bytes/s at which a server sends what is its own to all others, about.

    Where there are no switches servers forward: a byte takes as many ports as hops, and few
    servers at a time send to all others.
    """
    servers = network.hosts
    sent = float(network.out_rate()[:servers].mean())
    if network.switches:
        return sent
    between = hop_distances(network)
    return _USED * sent / float(between[~np.eye(servers, dtype=np.bool_)].mean())
