"""AllReduces whose roots have unequal shares: all trees of small networks, partitions, numbers."""

from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise, permutations, product

import networkx as nx
import numpy as np
import pytest
from collective_oracle import check, gathered, reduced, shares_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from small_networks import network_of

from codesign_base import InfeasibleError
from routing.collectives import bounds, reduce_broadcast, shares
from routing.collectives.bounds import allreduce_rate
from routing.collectives.choice import choose_schedules
from routing.collectives.member_links import TooMuchWorkError
from routing.collectives.reduce_broadcast import (
    MOST_LOST,
    REDUCE_BROADCAST,
    rate_both_ways,
    reduce_broadcast_forests,
)
from routing.collectives.shares import best_shares
from routing.collectives.trees import turned

GIGA = 1e9


def both_ways(pairs, hosts, rates=None):
    """Links of some rates, the same both ways."""
    rates = [GIGA] * len(pairs) if rates is None else rates
    arcs = [*pairs, *((b, a) for a, b in pairs)]
    return network_of(arcs, hosts, 0, [*rates, *rates])


def mesh(rows, columns):
    graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, columns))
    return both_ways(sorted(graph.edges), rows * columns)


@st.composite
def graphs(draw, most=6):
    """Connected graphs whose links have rates of 1 to 3, the same both ways."""
    hosts = draw(st.integers(2, most))
    pairs = {(draw(st.integers(0, b - 1)), b) for b in range(1, hosts)}
    pairs |= set(draw(st.lists(st.sampled_from(list(combinations(range(hosts), 2))), max_size=8)))
    rates = draw(st.lists(st.integers(1, 3), min_size=len(pairs), max_size=len(pairs)))
    return both_ways(sorted(pairs), hosts, [GIGA * rate for rate in rates])


@st.composite
def networks(draw, hosts=(2, 7), rates=3):
    """A ring and more links one way, of all hosts or some, and a group."""
    nodes = draw(st.integers(*hosts))
    arcs = set(pairwise([*range(nodes), 0]))
    arcs |= set(draw(st.lists(st.sampled_from(list(permutations(range(nodes), 2))), max_size=9)))
    capacity = draw(st.lists(st.integers(1, rates), min_size=len(arcs), max_size=len(arcs)))
    network = network_of(sorted(arcs), nodes, 0, [GIGA * rate for rate in capacity])
    members = draw(st.lists(st.integers(0, nodes - 1), min_size=2, max_size=nodes, unique=True))
    return network, sorted(members)


def links_of(network):
    ends = zip(network.source.tolist(), network.target.tolist(), strict=True)
    return dict(zip(ends, network.capacity.tolist(), strict=True))


def best_of_all_trees(network, members):
    """Rate of all pairs of trees to and from one root, over all paths past members."""
    links = links_of(network)
    graph = nx.DiGraph(list(links))
    ways = {
        (a, b): [
            path for path in nx.all_simple_paths(graph, a, b) if not set(members) & set(path[1:-1])
        ]
        for a, b in permutations(members, 2)
    }
    columns = []  # root, whether sums, links
    for root in members:
        rest = [member for member in members if member != root]
        for above in product(members, repeat=len(rest)):
            tree = nx.DiGraph(list(zip(above, rest, strict=True)))
            if any(a == b for a, b in tree.edges) or not nx.is_arborescence(tree):
                continue
            for sums in (False, True):
                edges = [(b, a) if sums else (a, b) for a, b in tree.edges]
                for paths in product(*(ways[edge] for edge in edges)):
                    used = Counter(pair for path in paths for pair in pairwise(path))
                    columns.append((root, sums, used))
    limits = np.zeros((len(links), len(columns)))
    equal = np.zeros((len(members), len(columns)))
    gain = np.zeros(len(columns))
    for at, (root, sums, used) in enumerate(columns):
        limits[:, at] = [used[pair] for pair in links]
        equal[members.index(root), at] = 1.0 if sums else -1.0
        gain[at] = 0.0 if sums else -1.0
    capacity = np.array(list(links.values())) / GIGA
    found = linprog(gain, limits, capacity, equal, np.zeros(len(members)))
    return -found.fun * GIGA


def strength(network):
    """Capacity between the parts of a partition over their number less one, by every partition."""
    links = links_of(network)
    best = np.inf
    for part in product(range(network.hosts), repeat=network.hosts):
        if any(here > max(part[:at], default=-1) + 1 for at, here in enumerate(part)):
            continue  # parts are numbered as they first appear
        between = sum(rate for (a, b), rate in links.items() if part[a] < part[b])
        between += sum(rate for (a, b), rate in links.items() if part[a] > part[b])
        if max(part):
            best = min(best, between / 2.0 / max(part))
    return best


def carried_out(network, members, draw):
    """Do an AllReduce on numbers; return its rate."""
    scatter, gather = reduce_broadcast_forests(network, members)
    check(turned(network), scatter, members)
    check(network, gather, members)
    copies = shares_of(gather)
    assert copies == shares_of(scatter)
    assert sum(copies.values()) == gather.units == gather.copies
    buffers = {m: {r: draw.integers(0, 999, n) for r, n in copies.items()} for m in members}
    sums = reduced(scatter, buffers)
    for root, total in sums.items():
        assert np.array_equal(total, sum(buffers[m][root] for m in members))
    for held in gathered(gather, sums).values():
        assert held == {(r, unit): sums[r][unit] for r, n in copies.items() for unit in range(n)}
    load = Counter()
    for forest, way in ((scatter, -1), (gather, 1)):
        for tree in forest.trees:
            for path in tree.paths:
                for pair in pairwise(path[::way]):
                    load[pair] += tree.copies / gather.copies
    rate = rate_both_ways(network, scatter, gather)
    links = links_of(network)
    assert max(rate * amount / links[pair] for pair, amount in load.items()) == pytest.approx(1.0)
    return rate


@given(graphs())
@settings(deadline=None, max_examples=40)
def test_links_as_fast_both_ways_reach_the_strength(network) -> None:
    best = strength(network)
    members = list(range(network.hosts))
    assert best_shares(network, members).bytes_per_s == pytest.approx(best, rel=1e-6)
    # So none is faster, over trees or not.
    assert allreduce_rate(network, members) == pytest.approx(best, rel=1e-9)
    rate = carried_out(network, members, np.random.default_rng(network.links))
    assert best * (1.0 - MOST_LOST) <= rate <= best * (1.0 + 1e-9)


@given(graphs(most=5))
@settings(deadline=None, max_examples=20)
def test_the_strength_is_the_best_of_all_spanning_trees(network) -> None:
    links = {pair: rate for pair, rate in links_of(network).items() if pair[0] < pair[1]}
    trees = [
        tree
        for tree in combinations(links, network.hosts - 1)
        if nx.is_tree(nx.Graph(tree)) and len(nx.Graph(tree)) == network.hosts
    ]
    uses = np.array([[pair in tree for tree in trees] for pair in links], dtype=float)
    found = linprog(-np.ones(len(trees)), uses, np.array(list(links.values())) / GIGA)
    best = best_shares(network, range(network.hosts))
    assert best.bytes_per_s == pytest.approx(-found.fun * GIGA)
    assert best.roots.sum() == pytest.approx(1.0)


@given(networks(hosts=(2, 4)), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=40)
def test_no_trees_to_and_from_one_root_are_faster(case, seed) -> None:
    network, members = case
    best = best_of_all_trees(network, members)
    assert best_shares(network, members).bytes_per_s == pytest.approx(best, rel=1e-4)
    rate = carried_out(network, members, np.random.default_rng(seed))
    assert best * (1.0 - MOST_LOST) <= rate <= best * (1.0 + 1e-4)
    assert rate <= allreduce_rate(network, members) * (1.0 + 1e-9)


@given(networks(hosts=(5, 9), rates=37), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=40)
def test_rates_that_no_few_copies_divide(case, seed) -> None:
    network, members = case
    best = best_shares(network, members).bytes_per_s
    rate = carried_out(network, members, np.random.default_rng(seed))
    assert best * (1.0 - MOST_LOST) <= rate <= best * (1.0 + 2e-4)
    assert rate <= allreduce_rate(network, members) * (1.0 + 1e-9)


def test_known_networks() -> None:
    complete = both_ways(list(combinations(range(6), 2)), 6)
    ring = both_ways([(at, (at + 1) % 7) for at in range(7)], 7)
    star = both_ways([(0, leaf) for leaf in range(1, 6)], 6)
    for network, best in (
        (complete, 3.0),  # n / 2: of n - 1 links a member has half of all for each other
        (ring, 7 / 6),
        (star, 1.0),
        (mesh(4, 5), 31 / 19),  # all links over n - 1
        (mesh(6, 6), 60 / 35),
    ):
        rate = carried_out(network, list(range(network.hosts)), np.random.default_rng(1))
        assert rate == pytest.approx(best * GIGA)
        assert allreduce_rate(network, range(network.hosts)) == pytest.approx(best * GIGA)


def test_parts_of_a_network_bound_it_where_neither_members_nor_cuts_do() -> None:
    # Three groups of four, all joined inside, and one cable between each two: 3 / 2 cables.
    inside = [(4 * g + a, 4 * g + b) for g in range(3) for a, b in combinations(range(4), 2)]
    network = both_ways([*inside, (0, 4), (5, 8), (9, 1)], 12)
    assert allreduce_rate(network, range(12)) == pytest.approx(1.5 * GIGA)
    rate = carried_out(network, list(range(12)), np.random.default_rng(1))
    assert rate == pytest.approx(1.5 * GIGA)


def test_rounded_loads_leave_who_only_forwards_what_it_receives() -> None:
    draw = np.random.default_rng(206)
    drawn = draw.integers(12, size=(24, 2)).tolist()
    arcs = sorted({*pairwise([*range(12), 0]), *((a, b) for a, b in drawn if a != b)})
    network = network_of(arcs, 12, 0, (GIGA * draw.integers(1, 1000, len(arcs))).tolist())
    members = [0, 3, 6, 9]
    rate = carried_out(network, members, draw)
    assert rate >= best_shares(network, members).bytes_per_s * (1.0 - MOST_LOST)


def test_rounds_that_end_too_early_still_bound_the_rate_and_break_no_trees(monkeypatch) -> None:
    pairs = {(a, b) for a, b in combinations(range(12), 2) if (a * b + a + b) % 4 == 1}
    pairs |= {(at, at + 1) for at in range(0, 11, 2)}
    network = both_ways(sorted(pairs), 12)
    members = [0, 3, 6, 9]
    best = best_shares(network, members).bytes_per_s
    for rounds in (1, 2, 3):
        monkeypatch.setattr(shares, "_MOST_ROUNDS", rounds)
        assert best_shares(network, members).bytes_per_s >= best * (1.0 - 1e-9)
        monkeypatch.setattr(reduce_broadcast, "MOST_LOST", 9.0)
        rate = carried_out(network, members, np.random.default_rng(rounds))
        assert 0.0 < rate <= best * (1.0 + 1e-4)


def test_shares_of_which_whole_copies_are_too_coarse_are_refused(monkeypatch) -> None:
    # Twelve trees share out the links of a ring of seven, each without one half of a cable.
    ring = both_ways([(at, (at + 1) % 7) for at in range(7)], 7)
    monkeypatch.setattr(reduce_broadcast, "_MOST_COPIES", 6)
    with pytest.raises(TooMuchWorkError, match="too many"):
        reduce_broadcast_forests(ring, range(7))


def test_roots_are_in_the_middle_where_links_are_as_fast_both_ways() -> None:
    line = both_ways([(at, at + 1) for at in range(8)], 9)
    scatter, gather = reduce_broadcast_forests(line, range(9))
    assert {tree.root for tree in gather.trees} == {4}
    assert gather.latency(line) == scatter.latency(turned(line)) == pytest.approx(4e-6)
    # A slow link at one end moves the middle there.
    slow = replace(line, latency=np.where(line.source + line.target == 15, 9e-6, 1e-6))
    _, gather = reduce_broadcast_forests(slow, range(9))
    assert {tree.root for tree in gather.trees} == {7}


def test_a_mesh_takes_the_bound_of_an_allreduce() -> None:
    # Equal parts of all hosts took 1.2 times as long.
    choice = choose_schedules(mesh(4, 4), range(16), "allreduce")
    best = choice.best(1e9)
    assert best.name == REDUCE_BROADCAST
    assert best.time(1e9) == pytest.approx(choice.bound(1e9), rel=1e-3)
    assert min(s.time(1e9) for s in choice.schedules if s != best) > 1.19 * choice.bound(1e9)


def test_it_is_left_out_where_rings_reach_the_bound_and_where_it_is_never_fastest() -> None:
    ring = both_ways([(at, (at + 1) % 7) for at in range(7)], 7)
    for network, hosts in ((ring, 7), (network_of([(0, 1), (1, 0)], 2), 2)):
        names = [s.name for s in choose_schedules(network, range(hosts), "allreduce").schedules]
        assert "ring" in names
        assert REDUCE_BROADCAST not in names
    names = [s.name for s in choose_schedules(mesh(3, 3), range(9), "allgather").schedules]
    assert REDUCE_BROADCAST not in names


def test_too_many_links_are_refused_and_left_out(monkeypatch) -> None:
    network = mesh(3, 3)
    for module in (shares, bounds):
        monkeypatch.setattr(module, "MOST_LINKS", 23)
    with pytest.raises(TooMuchWorkError, match="24 links"):
        best_shares(network, range(9))
    names = [s.name for s in choose_schedules(network, range(9), "allreduce").schedules]
    assert "trees" in names
    assert REDUCE_BROADCAST not in names


def test_members_that_do_not_reach_each_other() -> None:
    with pytest.raises(InfeasibleError, match="do not reach each other"):
        best_shares(network_of([(0, 1)], 2), [0, 1])
