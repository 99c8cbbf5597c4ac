"""Bounds never exceed a simulated time: on thousands of random cases, exhaustively on tiny ones."""

import itertools

import numpy as np
import pytest
from fabric_cases import random_fabric
from hypothesis import given, settings
from hypothesis import strategies as st
from small_cases import BATCH, FakeCompute, FakeServer, jobs, operator

from parallelism.builder import TaskGraphBuilder
from parallelism.graph import Mode, ModelGraph
from parallelism.search.space import legal_degrees
from parallelism.strategy import OperatorConfig, Strategy
from parallelism.taskgraph import COMPUTE, TRANSFER, TaskGraph, traffic_of
from routing.network import Network
from routing.paths import ecmp_routes
from topoopt.bounds.bounds import space_bound, strategy_bound
from topoopt.bounds.relaxation import Wirings
from topoopt.bounds.wired import collective_bound, routes_bound, topology_bound
from topoopt.fabric import IDEAL
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.simulation import score
from topoopt.topology.network_json import network_graph

LAG = 2e-6  # announced, and sent, over one hop of random_fabric


@settings(max_examples=60, deadline=None)
@given(
    jobs(sizes=(2, 3, 4, 6, 8)),
    st.integers(1, 3),
    st.sampled_from([1e2, 1e3, 1e4, 1e6]),
    st.sampled_from([0.0, 0.05]),
    st.integers(0, 2**32 - 1),
)
def test_bounds_are_below_the_simulated_time(job, degree, bandwidth, fixed, seed):
    graph, strategy, servers = job
    builder = TaskGraphBuilder(graph, FakeCompute(fixed=fixed), FakeServer(), servers, BATCH)
    tasks = builder.build(strategy)
    fabric = random_fabric(servers, degree, bandwidth, np.random.default_rng(seed))
    time = score(fabric, tasks)
    everything = space_bound(builder, Wirings(servers, degree, bandwidth, LAG))
    own = strategy_bound(tasks, degree, bandwidth, LAG)
    assert everything.seconds <= time
    assert own.seconds <= time
    for name in ("compute", "chain"):
        assert everything.terms[name] <= own.terms[name] * (1 + 1e-12)


def all_wirings(servers, degree):
    """Every way to give each server `degree` distinct out-neighbours (in-degrees kept)."""
    others = [
        list(itertools.combinations([w for w in range(servers) if w != v], degree))
        for v in range(servers)
    ]
    for choice in itertools.product(*others):
        into = np.bincount([w for row in choice for w in row], minlength=servers)
        if np.all(into == degree):
            yield choice


@pytest.mark.slow
@pytest.mark.parametrize("bandwidth", [2e3])
def test_bounds_hold_for_every_strategy_on_every_wiring_of_four_servers(bandwidth):
    graph = ModelGraph("tiny", (operator("a", []), operator("b", [0], 4000)), 1)
    builder = TaskGraphBuilder(graph, FakeCompute(fixed=0.02), FakeServer(), 4, BATCH)
    fabrics = []
    for degree in (1, 2):
        for wiring in all_wirings(4, degree):
            source = [v for v in range(4) for _ in wiring[v]]
            target = [w for row in wiring for w in row]
            network = Network.from_links("w", 4, 0, source, target, bandwidth, 1e-6)
            import networkx as nx

            if nx.is_strongly_connected(network_graph(network)):
                fabrics.append((degree, Fabric("w", network, ecmp_routes(network), {})))
    assert len(fabrics) > 6
    everything = {d: space_bound(builder, Wirings(4, d, bandwidth, LAG)).seconds for d in (1, 2)}
    configs = [
        OperatorConfig(s, p, mode, tuple(chosen))
        for s, p, mode in legal_degrees(graph.operators[0], 4, BATCH)
        for chosen in itertools.combinations(range(4), s * p)
    ]
    rng = np.random.default_rng(0)
    tried = 0
    # All pairs of strategies, but for other names of the servers, on one random wiring of one
    # degree or the other: the first operator is on the lowest servers.
    lowest = [each for each in configs if each.servers == tuple(range(each.parts))]
    for number, (a, b) in enumerate(itertools.product(lowest, configs)):
        tasks = builder.build(Strategy((a, b)))
        degree = 1 + number % 2
        choices = [fabric for d, fabric in fabrics if d == degree]
        time = score(choices[rng.integers(len(choices))], tasks)
        assert everything[degree] <= time
        assert strategy_bound(tasks, degree, bandwidth, LAG).seconds <= time
        tried += 1
    assert tried > 1000


def test_terms_by_hand():
    graph = ModelGraph("tiny", (operator("a", [], 0), operator("b", [0], 0)), 1)
    builder = TaskGraphBuilder(graph, FakeCompute(with_update=False), FakeServer(), 2, BATCH)
    bound = space_bound(builder, Wirings(2, 1, 1.0))
    # Work of a is 3, of b 6 seconds in all; each can be halved on the two servers.
    assert bound.terms == {name: pytest.approx(4.5) for name in ("compute", "chain", "trade-off")}
    assert bound.binding in bound.terms
    assert sum(bound.weights.values()) == pytest.approx(1.0)
    assert (
        traffic_of(builder.build(Strategy((OperatorConfig(2, 1, Mode.OUTPUT, (0, 1)),) * 2))).groups
        == ()
    )


def test_transfers_of_two_slow_servers_pass_the_ports_of_a_fast_one_at_once():
    """Two servers with one port each send to one with two, which waits for both: 10 s, not 20."""
    network = Network.from_links("star", 3, 0, [0, 1, 2, 2], [2, 2, 0, 1], 1.0, 0.0)
    fabric = Fabric("star", network, ecmp_routes(network), {}, transport=IDEAL)
    there = [(TRANSFER, 0, 2, 10.0, 0.0), (TRANSFER, 1, 2, 10.0, 0.0), (COMPUTE, 2, -1, 1.0, 0.0)]
    back = [(TRANSFER, 2, 0, 10.0, 0.0), (TRANSFER, 2, 1, 10.0, 0.0)]
    tasks = TaskGraph.from_lists(3, [*there, *back], [(0, 2), (1, 2), (2, 3), (2, 4)])
    assert score(fabric, tasks) == pytest.approx(21.0)
    for bound in (topology_bound, routes_bound, collective_bound):
        assert bound(fabric, tasks).seconds == pytest.approx(21.0)


@settings(max_examples=40, deadline=None)
@given(jobs(sizes=(3, 4, 6)), st.sampled_from([1e2, 1e3, 1e4]), st.integers(0, 2**32 - 1))
def test_bounds_of_wirings_hold_where_servers_have_unequal_ports(job, bandwidth, seed):
    graph, strategy, servers = job
    tasks = TaskGraphBuilder(graph, FakeCompute(), FakeServer(), servers, BATCH).build(strategy)
    rng = np.random.default_rng(seed)
    cables = rng.integers(0, 4, (servers, servers))
    # A ring joins all.
    cables[np.arange(servers), np.roll(np.arange(servers), -1)] += 1
    np.fill_diagonal(cables, 0)
    source, target = np.nonzero(cables)
    many = cables[source, target]
    network = Network.from_links(
        "uneven", servers, 0, np.repeat(source, many), np.repeat(target, many), bandwidth, 1e-6
    )
    fabric = Fabric("uneven", network, ecmp_routes(network), {})
    time = score(fabric, tasks)
    for bound in (topology_bound, routes_bound, collective_bound):
        assert bound(fabric, tasks).seconds <= time
