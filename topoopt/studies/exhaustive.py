"""The optimum of small jobs by trying everything: every strategy of the space, every circulant."""

from collections.abc import Iterator
from itertools import combinations_with_replacement, product
from math import gcd, prod

import numpy as np

from codesign_base import InputError
from parallelism.builder import TaskGraphBuilder
from parallelism.operator_family import OperatorFamily
from parallelism.search.space import StrategySpace
from parallelism.strategy import OperatorConfig, Strategy
from routing.network import Network
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.routed import NAMED, transfer_router
from topoopt.evaluate.scoring import Scorer
from topoopt.fabric.fabric import Fabric
from topoopt.problem.cluster import Cluster
from topoopt.problem.ports import PortModel
from topoopt.problem.routing import Routing

_MOST_PAIRS = 100_000


def circulant_fabrics(cluster: Cluster) -> list[Fabric]:
    """Return every connected circulant of a cluster's ports, under two routings.

    Parameters
    ----------
    cluster : Cluster

    Returns
    -------
    list of Fabric
        Generators with repetition (parallel cables); bidirectional ports wire each both ways, and
        a step of half the servers takes one port. Rings over all servers are those of the
        generators; other groups have rings chosen by load.
    """
    n, degree = cluster.servers, cluster.degree
    found = []
    for steps in _step_sets(n, degree, cluster.port_model is PortModel.BIDIRECTIONAL):
        if gcd(n, *steps) > 1:
            continue
        source = [v for v in range(n) for _ in steps]
        target = [(v + p) % n for v in range(n) for p in steps]
        network = Network.from_links(
            f"circulant {steps}", n, 0, source, target, cluster.port_rate, cluster.hop_latency
        )
        group = tuple(range(n))
        rings = tuple(tuple(step * i % n for i in range(n)) for step in steps if gcd(step, n) == 1)
        given = {group: rings} if rings and n > 1 else {}
        # On a single ring there is one path.
        for routing in NAMED if degree > 1 else (Routing.ECMP,):
            routes = transfer_router(network, routing)()
            found.append(Fabric("circulant", network, routes, given))
    return found


def _step_sets(servers: int, degree: int, both_ways: bool) -> Iterator[tuple[int, ...]]:
    if not both_ways:
        yield from combinations_with_replacement(range(1, servers), degree)
        return
    half = servers // 2
    for count in range(1, degree + 1):
        for chosen in combinations_with_replacement(range(1, half + 1), count):
            steps = [s for p in chosen for s in ((p,) if 2 * p == servers else (p, servers - p))]
            if len(steps) == degree:
                yield tuple(sorted(steps))


def every_strategy(space: StrategySpace) -> list[list[OperatorConfig]]:
    """Return the configurations of each operator that a search may propose.

    Parameters
    ----------
    space : StrategySpace

    Returns
    -------
    list of list of OperatorConfig
        Of the first operator only those whose first part sits on server 0: circulant networks
        look the same from every server.
    """
    found = []
    for index in range(len(space.graph.operators)):
        configs = [c for degrees in space.degrees(index) for c in space.placements(*degrees)]
        if index == 0:
            configs = [c for c in configs if c.servers[0] == 0]
        found.append(configs)
    return found


def count_pairs(builder: TaskGraphBuilder, cluster: Cluster) -> int:
    """Return how many pairs of strategy and fabric `exhaustive_optimum` would try."""
    space = StrategySpace(builder.graph, cluster.servers, builder.batch, any_parts=True)
    return prod(len(each) for each in every_strategy(space)) * len(circulant_fabrics(cluster))


def exhaustive_optimum(family: OperatorFamily, cluster: Cluster) -> float:
    """Try every strategy of the search's space on every circulant network.

    Parameters
    ----------
    family : OperatorFamily
    cluster : Cluster

    Returns
    -------
    float
        Seconds of the fastest iteration.

    Raises
    ------
    InputError
        If there are more than 100000 strategies times fabrics to try, or nothing fits.
    """
    builder, problem = family.builder, Problem(family, cluster)
    pairs = count_pairs(builder, cluster)
    if pairs > _MOST_PAIRS:
        raise InputError(
            f"exhaustive search over {pairs} pairs of strategy and fabric; at most {_MOST_PAIRS} "
            "are tried, so give fewer operators, servers or ports"
        )
    configs = every_strategy(
        StrategySpace(builder.graph, cluster.servers, builder.batch, any_parts=True)
    )
    scorers = [Scorer(problem, fabric) for fabric in circulant_fabrics(cluster)]
    best = np.inf
    for chosen in product(*configs):
        strategy = Strategy(chosen)
        for scorer in scorers:
            best = min(best, scorer(strategy, best))
    if best == np.inf:
        raise InputError("exhaustive search: no strategy fits in memory; give GPUs with more")
    return best
