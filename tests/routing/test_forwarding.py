"""Forwarding tables: equal to the routes, loop-free, and refused where they cannot be."""

import numpy as np
import pytest
from flow_oracle import random_demand, random_network
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InfeasibleError, InputError
from routing.forwarding import (
    ForwardingTables,
    check_tables,
    forwarding_tables,
    path_routing_tables,
    tables_of_splits,
)
from routing.multicommodity import min_congestion
from routing.network import Network
from routing.paths import ecmp_routes, shortest_routes
from routing.routes import Routes


def walk(tables: ForwardingTables, source: int, target: int) -> np.ndarray:
    """Bytes on every link of one byte, by pushing it hop by hop."""
    network = tables.network
    load, here = np.zeros(network.links), {source: 1.0}
    for _ in range(network.nodes):
        after: dict[int, float] = {}
        for v, amount in here.items():
            if v == target:
                continue
            for w, ratio in tables.next_hops(v, target):
                load[network.link(v, w)] += amount * ratio
                after[w] = after.get(w, 0.0) + amount * ratio
        here = after
    assert not here
    return load


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_tables_of_ecmp_and_single_paths_give_the_routes_back(seed: int, single: bool) -> None:
    network = random_network(np.random.default_rng(seed))
    routes = shortest_routes(network) if single else ecmp_routes(network)
    tables = forwarding_tables(network, routes)
    check_tables(tables)
    if single:
        assert tables.rules()[: network.hosts].max() <= network.hosts - 1
    for s in range(network.hosts):
        for t in range(network.hosts):
            if s != t:
                links, weights = routes.row(s, t)
                load = np.zeros(network.links)
                load[links] = weights
                np.testing.assert_allclose(walk(tables, s, t), load, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_tables_by_destination_load_no_link_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(rng)
    demand = random_demand(rng, network.hosts)
    routing = min_congestion(network, demand)
    tables = path_routing_tables(routing)
    check_tables(tables)
    pairs = [(s, t) for s in range(network.hosts) for t in range(network.hosts) if s != t]
    load = sum(demand[s, t] * walk(tables, s, t) for s, t in pairs)
    assert np.all(load <= routing.link_load + 1e-9 * demand.sum())


def line() -> Network:
    return Network.from_links("line", 3, 0, [0, 1, 1, 2], [1, 0, 2, 1], 1.0, 1e-6)


def test_tables_need_paths_between_all_hosts() -> None:
    apart = Network.from_links("apart", 3, 0, [0, 1, 2], [1, 0, 1], 1.0, 1e-6)
    demand = np.zeros((3, 3))
    demand[0, 1] = 1.0
    with pytest.raises(InfeasibleError, match="host 2 cannot be reached from host 0"):
        path_routing_tables(min_congestion(apart, demand))


def test_rules_are_counted_by_node() -> None:
    tables = forwarding_tables(line(), shortest_routes(line()))
    assert tables.rules().tolist() == [2, 2, 2]
    assert tables.next_hops(0, 2) == [(1, 1.0)] and tables.next_hops(2, 2) == []


def test_what_depends_on_the_source_is_refused() -> None:
    """Host 0 goes round one way, host 1 straight: at host 1, toward 3, they differ."""
    source, target = [0, 1, 1, 2, 3], [1, 2, 3, 3, 0]
    network = Network.from_links("detour", 4, 0, source, target, 1.0, 1e-6)
    straight = shortest_routes(network)
    forwarding_tables(network, straight)
    rows = [straight.row(s, t)[0].tolist() for s in range(4) for t in range(4)]
    rows[3] = [network.link(0, 1), network.link(1, 2), network.link(2, 3)]
    lengths = np.array([len(row) for row in rows])
    routes = Routes(
        4, np.concatenate(([0], np.cumsum(lengths))), np.concatenate(rows).astype(np.int64),
        np.ones(lengths.sum()), lengths * 1e-6, lengths.astype(float),
    )  # fmt: skip
    with pytest.raises(InputError, match="cannot be told by destination"):
        forwarding_tables(network, routes)


def test_loops_dead_ends_and_sums_are_refused() -> None:
    network = line()
    splits = forwarding_tables(network, shortest_routes(network)).splits()
    wrong = splits.copy()
    wrong[2, network.link(0, 1)] = 0.5
    with pytest.raises(InputError, match=r"node 0: ratios toward 2 sum to 0\.5"):
        tables_of_splits(network, wrong)
    wrong = splits.copy()
    wrong[2, network.link(1, 2)] = 0.0
    with pytest.raises(InputError, match="lead to node 1 toward 2"):
        tables_of_splits(network, wrong)
    wrong[2, network.link(1, 0)] = 1.0
    with pytest.raises(InputError, match="toward 2 have a loop"):
        tables_of_splits(network, wrong)
