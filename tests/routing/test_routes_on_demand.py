"""Routes of listed pairs, and of pairs as they are asked for, against those of all pairs."""

from functools import partial

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InfeasibleError, InputError
from routing import routes as routes_module
from routing.coin_change import coin_change_routes
from routing.network import Network
from routing.paths import ecmp_routes, hop_distances, k_shortest_routes
from routing.routes import Routes

ARRAYS = ("offsets", "links", "weights", "latency", "hops")


def circulant(hosts, steps, seed=0):
    rng = np.random.default_rng(seed)
    source = np.repeat(np.arange(hosts), len(steps))
    target = (source + np.tile(steps, hosts)) % hosts
    rates, lags = rng.uniform(1.0, 2.0, source.size), rng.uniform(1e-6, 2e-6, source.size)
    return Network.from_links("circulant", hosts, 0, source, target, rates, lags)


def tree():
    """Six hosts on two switches that are joined."""
    host, leaf = np.arange(6), 6 + np.arange(6) % 2
    ends = (np.concatenate((host, [6])), np.concatenate((leaf, [7])))
    both = np.concatenate(ends), np.concatenate(ends[::-1])
    return Network.from_links("tree", 6, 2, *both, 1.0, 1e-6)


def routers(steps, hosts):
    network = circulant(hosts, steps)
    return network, [
        partial(ecmp_routes, network),
        partial(k_shortest_routes, network, 5, slack=1),
        partial(coin_change_routes, network, steps),
    ]


def nothing(hosts, make):
    none, empty = np.zeros(0, np.int64), np.zeros(0)
    return Routes(hosts, np.zeros(1, np.int64), none, empty, empty, empty, none, make)


def same(one, other):
    assert np.array_equal(one.listed, other.listed)
    for name in ARRAYS:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


@settings(max_examples=30, deadline=None)
@given(st.integers(5, 16), st.sets(st.integers(1, 4), min_size=1), st.data())
def test_rows_of_some_pairs_are_those_of_all(hosts, more, data):
    steps = (1, *sorted(more - {1}))
    network, makers = routers(steps, hosts)
    make = data.draw(st.sampled_from(makers))
    asked = data.draw(st.sets(st.integers(0, hosts * hosts - 1)))
    pairs = np.array(sorted(asked), dtype=np.int64)
    whole = make()
    same(make(pairs=pairs), whole.of(pairs))
    half = nothing(hosts, make).of(pairs[::2])
    same(half, whole.of(pairs[::2]))
    same(Routes(*(getattr(half, f) for f in ("hosts", *ARRAYS)), half.pairs, make).of(pairs),
         whole.of(pairs))  # fmt: skip
    same(nothing(hosts, make).complete(), whole)
    demand = np.zeros((hosts, hosts))
    demand.ravel()[pairs] = np.arange(1.0, pairs.size + 1)
    np.fill_diagonal(demand, 0.0)
    on_demand = nothing(hosts, make)
    assert np.array_equal(on_demand.link_bytes(network, demand), whole.link_bytes(network, demand))
    for pair in asked:
        mine, theirs = (r.row(*divmod(pair, hosts)) for r in (on_demand, whole))
        assert np.array_equal(mine[0], theirs[0]) and np.array_equal(mine[1], theirs[1])


def test_switches_forward_and_hosts_do_not():
    network = tree()
    whole = ecmp_routes(network)
    pairs = np.array([1, 6 + 2, 5 * 6])
    same(ecmp_routes(network, pairs=pairs), whole.of(pairs))


@pytest.mark.parametrize("seed", range(5))
def test_distances_are_those_of_breadth_first_search(seed):
    graph = nx.gnp_random_graph(12, 0.2, seed=seed, directed=True)
    edges = np.array(sorted(graph.edges), dtype=np.int64).reshape(-1, 2)
    network = Network.from_links("random", 12, 0, edges[:, 0], edges[:, 1], 1.0, 0.0)
    expected = np.full((12, 12), -1)
    for source, lengths in nx.all_pairs_shortest_path_length(graph):
        for target, hops in lengths.items():
            expected[source, target] = hops
    assert np.array_equal(hop_distances(network), expected)


def test_what_cannot_be_reached_is_named_only_if_it_is_asked_for():
    network = Network.from_links("line", 3, 0, [0, 1], [1, 2], 1.0, 0.0)
    assert ecmp_routes(network, pairs=np.array([1, 2, 5])).hops.tolist() == [1.0, 2.0, 1.0]
    with pytest.raises(InfeasibleError, match="host 0 cannot be reached from host 2"):
        ecmp_routes(network, pairs=np.array([1, 6]))


def test_few_hosts_have_tables_of_all_pairs_and_many_do_not(monkeypatch):
    make = partial(ecmp_routes, circulant(6, (1, 2)))
    assert Routes.of_all(6, make).pairs is None
    monkeypatch.setattr(routes_module, "EVERY_PAIR_UP_TO", 5)
    assert Routes.of_all(6, make).listed.size == 0


def test_nothing_is_listed_before_it_is_asked_for():
    make = partial(ecmp_routes, circulant(6, (1, 2)))
    made = Routes.on_demand(6, make)
    same(made.complete(), make())
    assert made.listed.size == 0 and made.rows(np.array([3])).tolist() == [-1]
    without = Routes(*(getattr(made, f) for f in ("hosts", *ARRAYS)), made.pairs)
    assert without.of(np.array([3])).offsets.tolist() == [0, 0]


def test_pairs_are_listed_once_in_order():
    empty = np.zeros(2)
    with pytest.raises(InputError, match="do not ascend"):
        Routes(3, np.zeros(3, np.int64), np.zeros(0, np.int64), np.zeros(0), empty, empty,
               np.array([2, 2]))  # fmt: skip
