"""Next hops, whole-number weights, paths of a flow and RDMA channels."""

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_plans import shared_bidirectional_plan, shared_layout_plan, shared_plan

from routing.network import Network
from routing.pair_paths import pair_paths
from routing.paths import ecmp_routes, k_shortest_routes
from topoopt.deploy.deployment import deployment
from topoopt.deploy.forwarding import MOST_WEIGHT, leaving_shares, whole_weights

PLANS = (shared_plan, shared_bidirectional_plan, shared_layout_plan)


@given(st.lists(st.floats(0.01, 1.0), min_size=2, max_size=3))
@settings(max_examples=10, deadline=None)
def test_whole_weights_are_near_the_best_that_there_are(parts):
    shares = tuple(part / sum(parts) for part in parts)
    found = whole_weights(shares)
    assert all(1 <= weight <= MOST_WEIGHT for weight in found)
    error = max(abs(w / sum(found) - s) for w, s in zip(found, shares, strict=True))
    # Up to 24 by brute force; larger ones may only be better.
    best = min(
        max(abs(w / sum(tried) - s) for w, s in zip(tried, shares, strict=True))
        for tried in itertools.product(range(1, 25), repeat=len(shares))
    )
    assert error <= best + 1 / MOST_WEIGHT


@pytest.mark.parametrize(
    ("shares", "weights"),
    [((1.0,), (1,)), ((0.5, 0.5), (1, 1)), ((0.25, 0.75), (1, 3)), ((0.4, 0.2, 0.4), (2, 1, 2))],
)
def test_plain_shares_have_the_smallest_weights(shares, weights):
    assert whole_weights(shares) == weights


@st.composite
def routed(draw):
    """A strongly connected network, and routes over several paths."""
    hosts = draw(st.integers(3, 7))
    ring = [(v, (v + 1) % hosts) for v in range(hosts)]
    pairs = [(u, v) for u in range(hosts) for v in range(hosts) if u != v]
    more = draw(st.lists(st.sampled_from(pairs), max_size=8))
    source, target = zip(*(ring + more), strict=True)
    network = Network.from_links("random", hosts, 0, source, target, 1e9, 1e-6)
    return network, draw(st.sampled_from([ecmp_routes(network), k_shortest_routes(network, 2)]))


@given(routed())
@settings(max_examples=30, deadline=None)
def test_paths_add_up_to_the_flow(case):
    network, routes = case
    for source, target in itertools.permutations(range(network.hosts), 2):
        links, weights = routes.row(source, target)
        total = np.zeros(network.links)
        for path, share in pair_paths(network, routes, source, target):
            assert path[0] == source
            assert path[-1] == target
            assert len(set(path)) == len(path)
            for a, b in itertools.pairwise(path):
                total[network.link(a, b)] += share
        expected = np.zeros(network.links)
        expected[links] = weights
        np.testing.assert_allclose(total, expected, atol=1e-7)


@given(routed())
@settings(max_examples=30, deadline=None)
def test_shares_at_each_server_give_the_flow_again(case):
    network, routes = case
    shares = leaving_shares(network, routes)
    for source, target in itertools.permutations(range(network.hosts), 2):
        graph = nx.DiGraph()
        for (node, a, b), ahead in shares.items():
            if (a, b) == (source, target):
                assert sum(ahead.values()) == pytest.approx(1.0)
                graph.add_weighted_edges_from((node, to, part) for to, part in ahead.items())
        at = dict.fromkeys(graph, 0.0)
        at[source] = 1.0
        sent = {}
        for node in nx.topological_sort(graph):
            for _, to, part in graph.out_edges(node, data="weight"):
                sent[node, to] = at[node] * part
                at[to] += sent[node, to]
        links, weights = routes.row(source, target)
        ends = zip(network.source[links].tolist(), network.target[links].tolist(), strict=True)
        assert sent == pytest.approx(dict(zip(ends, weights.tolist(), strict=True)))


@pytest.mark.parametrize("plan", PLANS)
def test_channels_join_ports_over_cables(plan):
    made = deployment(plan())
    found = made.channels.channels
    ends = {(channel.source, channel.target) for channel in found}
    assert len(ends) == len(found)
    assert set(made.cabling.leads_to.items()) <= ends
    for channel in found:
        assert channel.hops[0][0] == channel.source
        assert channel.hops[-1][1] == channel.target
        assert all(made.cabling.leads_to[end] == other for end, other in channel.hops)
        for (_, arrived), (leaving, _) in itertools.pairwise(channel.hops):
            assert arrived[0] == leaving[0]
    without = sum((b, a) not in ends for a, b in ends)
    assert without == made.channels.one_way
    if all(cable.both_ways for cable in made.cabling.cables):
        assert without == 0


@pytest.mark.parametrize("plan", PLANS)
def test_every_pair_has_a_channel(plan):
    made = deployment(plan())
    pairs = {(channel.source[0], channel.target[0]) for channel in made.channels.channels}
    assert pairs == set(itertools.permutations(made.servers, 2))


@pytest.mark.parametrize("plan", PLANS)
def test_a_subnet_has_the_two_ends_of_a_cable_and_nobody_else(plan):
    """NCCL takes the first device that shares the peer's prefix; it must be the cable's."""
    made = deployment(plan())
    subnets = {}
    for end, (address, _) in made.port_addresses.items():
        a, b, c, d = map(int, address.split("."))
        subnets.setdefault((a, b, c, d // 2), set()).add(end)
    cables = {frozenset((c.source, c.target)) for c in made.cabling.cables if c.both_ways}
    assert {frozenset(ends) for ends in subnets.values() if len(ends) > 1} == cables
    macs = [made.mac(end) for end in made.port_addresses]
    assert len(set(macs)) == len(macs)
