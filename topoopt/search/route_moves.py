"""Other routes for a pair that is wired: one path a pair improved by simulation, or ECMP.

Routes that balance the bytes of a whole iteration know nothing of time: pairs that send at once
can still meet on a link. Moving one pair after another to another shortest path, and simulating
the iteration each time, sees that; it is costly, and done for the best pairs of a search only.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from codesign_base.arrays import Ints
from parallelism.family import Family, P
from routing.network import Network
from routing.paths import ecmp_routes, hops_toward_hosts
from routing.routes import Routes
from topoopt.base.side_by_side import in_twos
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.scoring import Scorer
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.loads import demand_of
from topoopt.problem.routing import Routing

# Simulations for one of them at most, and paths of one server pair that are tried.
_MOST_TRIES, _MOST_PATHS = 150, 6
# A gain below this share is rounding.
_LEAST_GAIN = 1e-6


def other_routes(problem: Problem[Family[P]], pairs: list[Pair[P]], count: int) -> list[Pair[P]]:
    """Return pairs of one path a server pair with their best fellows of other routes.

    Parameters
    ----------
    problem : Problem
    pairs : list of Pair
        Fastest first.
    count : int
        Of so many of the first the routes are improved.

    Returns
    -------
    list of Pair
        All of them, and of the first few also those with improved paths and with ECMP; fastest
        first.
    """
    first, later = pairs[:count], pairs[count:]

    def fellows(pair: Pair[P], _: float) -> list[Pair[P]]:
        if pair.routing is not Routing.BALANCED:
            return [pair]
        better = improved_paths(problem, pair)
        fabric = _with_routes(pair, ecmp_routes(pair.fabric.network))
        time = Scorer(problem, fabric)(pair.strategy)
        ecmp = replace(pair, fabric=fabric, routing=Routing.ECMP, time=time)
        return [pair, ecmp] if better is pair else [pair, better, ecmp]

    made = in_twos(first, fellows, lambda: 0.0, problem.cluster.servers, 0)
    found = [pair for _, alike in made for pair in alike]
    return sorted([*found, *later], key=lambda pair: pair.time)


def improved_paths(problem: Problem[Family[P]], pair: Pair[P]) -> Pair[P]:
    """Move server pairs to other shortest paths, one at a time, while that saves time.

    Parameters
    ----------
    problem : Problem
    pair : Pair
        Routed over one path a server pair.

    Returns
    -------
    Pair
        The given one where nothing helps.
    """
    network = pair.fabric.network
    hosts = network.hosts
    demand = demand_of(pair.fabric, problem.family.build(pair.strategy)).ravel()
    toward = hops_toward_hosts(network)
    best, tries = pair, 0
    for place in np.lexsort((np.arange(demand.size), -demand)).tolist():
        if demand[place] <= 0.0 or tries >= _MOST_TRIES:
            break
        source, target = divmod(place, hosts)
        for path in islice(shortest_paths(network, toward, source, target), _MOST_PATHS):
            routes = _moved(best.fabric.routes, network, place, path)
            if routes is None:
                continue
            fabric = _with_routes(best, routes)
            time = Scorer(problem, fabric)(best.strategy, best.time)
            tries += 1
            if time < best.time * (1.0 - _LEAST_GAIN):
                best = replace(best, fabric=fabric, time=time)
    return best


def shortest_paths(network: Network, toward: Ints, source: int, target: int) -> Iterator[list[int]]:
    """Yield the shortest paths of a host pair as links in travel order, lowest links first.

    Parameters
    ----------
    network : Network
        Of hosts only.
    toward : int64 array, shape (hosts, nodes)
        Hops to each host.
    source, target : int
        Different hosts.
    """
    if source == target:
        yield []
        return
    for link in range(network.out_offsets[source], network.out_offsets[source + 1]):
        after = int(network.target[link])
        if toward[target, after] == toward[target, source] - 1:
            for rest in shortest_paths(network, toward, after, target):
                yield [link, *rest]


def _moved(routes: Routes, network: Network, place: int, path: list[int]) -> Routes | None:
    """Return the routes with another path of as many links for one pair; None if it is its own."""
    row = slice(routes.offsets[place], routes.offsets[place + 1])
    links = routes.links.copy()
    links[row] = sorted(path)
    if np.array_equal(links[row], routes.links[row]):
        return None
    latency = routes.latency.copy()
    latency[place] = network.latency[path].sum()
    return replace(routes, links=links, latency=latency)


def _with_routes(pair: Pair[P], routes: Routes) -> Fabric:
    return replace(pair.fabric, routes=routes, ring_routes=None)
