"""Groups, Cayley graphs and Hamiltonian rings against SymPy, NetworkX and brute force."""

from fractions import Fraction
from itertools import combinations, pairwise, permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sympy.combinatorics.named_groups import (
    AbelianGroup,
    AlternatingGroup,
    DihedralGroup,
    SymmetricGroup,
)

from codesign_base import InfeasibleError, InputError
from parallelism.taskgraph import Traffic
from routing.network import Network
from routing.paths import ecmp_link_bytes
from topoopt.evaluate.routed import direct_fabric
from topoopt.fabric.fabric import Fabric
from topoopt.problem.ports import PortModel
from topoopt.problem.routing import Routing
from topoopt.topology.cayley import CayleyGraph, _Search, select_cayley
from topoopt.topology.cayley_kernels import (
    count_cycles,
    count_rounds,
    exchange_units,
    merge_arcs,
    merge_links,
    random_trail,
    set_costs,
    swap_closed,
    swap_trail,
    word_lengths,
)
from topoopt.topology.choosing import RingChooser, Selection
from topoopt.topology.circulants import select_circulant
from topoopt.topology.finder import find_topology
from topoopt.topology.groups import FiniteGroup, extension, permutation_group
from topoopt.topology.groups_of_order import _extensions, abelian_types, groups_of_order
from topoopt.topology.hamiltonian import hamiltonian_cycles, parity, ring_of
from topoopt.topology.moore import moore_bound
from topoopt.topology.network_json import network_graph
from topoopt.topology.placement import place_servers
from topoopt.topology.totient import ring_order, ring_step
from topoopt.topology.zoo.registry import build_fabric


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def check_group(group: FiniteGroup) -> None:
    table, n = group.table, group.order
    everyone = np.arange(n)
    assert (np.sort(table, axis=0) == everyone[:, None]).all()
    assert (np.sort(table, axis=1) == everyone).all()
    assert (table[0] == everyone).all()
    assert (table[:, 0] == everyone).all()
    assert (table[everyone, group.inverse] == 0).all()
    left = table[table]  # (a b) c
    right = table[everyone[:, None, None], table[None]]
    assert (left == right).all()
    for g in range(n):
        power, order = g, 1
        while power:
            power, order = table[power, g], order + 1
        assert group.element_orders[g] == order
    pairs = sum(table[a, b] == table[b, a] for a in range(n) for b in range(n))
    assert group.commuting == pairs


@pytest.mark.parametrize("order", [1, 2, 6, 8, 12, 16, 18, 20, 21, 24, 27])
def test_every_table_is_a_group(order: int) -> None:
    groups = groups_of_order(order)
    for group in groups:
        assert group.order == order
        check_group(group)
    assert len({group.fingerprint() for group in groups}) == len(groups)
    # The numbers of all groups: 1, 1, 2, 5, 5, 14, 5, 5, 2, 15, 5.
    known = dict(zip([1, 2, 6, 8, 12, 16, 18, 20, 21, 24, 27],
                     [1, 1, 2, 5, 5, 14, 5, 5, 2, 15, 5], strict=True))  # fmt: skip
    assert len(groups) <= known[order]
    if order in (1, 2, 6, 8, 12, 18, 20, 21):
        assert len(groups) == known[order]


@pytest.mark.parametrize("order", [2, 12, 27, 32, 36, 40, 54, slow(64), 90, slow(128)])
def test_what_is_known_of_an_extension_without_its_table(order: int) -> None:
    for known in _extensions(order):
        group = known.group()
        everyone = np.arange(order)
        one, other = np.repeat(everyone, order), np.tile(everyone, order)
        assert np.array_equal(known.times(one, other), group.table.ravel())
        assert np.array_equal(known.element_orders(), group.element_orders)
        assert known.fingerprint == group.fingerprint()
        assert known.commuting == group.commuting


def test_familiar_groups_are_those_of_sympy() -> None:
    pairs = [
        (extension((7,), 2, [[6]]).group(), DihedralGroup(7)),
        (extension((6,), 2, [[5]]).group(), DihedralGroup(6)),
        (extension((2, 6)).group(), AbelianGroup(2, 6)),
        (extension((2, 2), 3, [[0, 1], [1, 1]]).group(), AlternatingGroup(4)),
        (extension((3,), 2, [[2]]).group(), SymmetricGroup(3)),
    ]
    for ours, theirs in pairs:
        table = permutation_group(theirs, "theirs")
        check_group(table)
        assert ours.fingerprint() == table.fingerprint()
    quaternion = extension((4,), 2, [[3]], (2,)).group()
    assert sorted(quaternion.element_orders.tolist()) == [1, 2, 4, 4, 4, 4, 4, 4]


@pytest.mark.parametrize("order", [1, 2, 8, 12, 16, 36, 64, 72, 97])
def test_abelian_types(order: int) -> None:
    types = abelian_types(order)
    expected = set()

    def grow(left: int, last: int, factors: tuple[int, ...]) -> None:
        if left == 1:
            expected.add(factors[::-1] or (1,))
        for d in range(2, left + 1):
            if left % d == 0 and last % d == 0:
                grow(left // d, d, (*factors, d))

    grow(order, order, ())
    assert len(types) == len(expected)
    assert set(types) == expected


def test_what_is_no_group_is_refused() -> None:
    for arguments in (
        ((4,), 2, [[2]]),
        ((5,), 2, [[2]]),
        ((4,), 2, [[3]], (1,)),
        ((2, 4), 2, [[1, 0], [1, 1]]),
    ):
        with pytest.raises(InputError):
            extension(*arguments)
    with pytest.raises(InputError):
        extension((0,))
    with pytest.raises(InputError):
        groups_of_order(0)


def graph_of(group: FiniteGroup, steps: list[int]) -> nx.DiGraph:
    graph = nx.DiGraph((g, int(group.table[g, s])) for g in range(group.order) for s in steps)
    graph.add_nodes_from(range(group.order))
    return graph


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([6, 8, 12, 16, 20, 24]), st.data())
def test_word_lengths(order: int, data: st.DataObject) -> None:
    groups = groups_of_order(order)
    group = groups[data.draw(st.integers(0, len(groups) - 1))]
    steps = data.draw(st.lists(st.integers(1, order - 1), min_size=1, max_size=4, unique=True))
    right = np.ascontiguousarray(group.table.T)
    length, queue = np.empty(order, np.int64), np.empty(order, np.int64)
    chosen = np.array(steps)
    farthest = word_lengths(right, chosen, length, queue)
    there = nx.single_source_shortest_path_length(graph_of(group, steps), 0)
    if len(there) < order:
        assert farthest == -1
        assert set_costs(right, chosen[None], 2.0).tolist() == [np.inf]
        return
    assert length.tolist() == [there[g] for g in range(order)]
    assert farthest == max(there.values())
    cost = sum(there.values()) + 2.0 * farthest
    assert set_costs(right, np.array([steps, steps]), 2.0).tolist() == [cost, cost]


@pytest.mark.parametrize("both_ways", [False, True])
def test_loads_of_busiest_links_are_those_of_all_messages_one_by_one(both_ways: bool) -> None:
    group = extension((8,), 2, [[3]]).group()
    search = _Search(group, 4, both_ways, 2, 0.01)
    search.look(np.random.default_rng(0))
    sets = [units for units, cost in search.costs.items() if cost < np.inf]
    sets = sets[:: len(sets) // 6]
    for units, found in zip(sets, search.busiest(sets), strict=True):
        graph = graph_of(group, search._steps(units).tolist())
        hops = dict(nx.all_pairs_shortest_path_length(graph))
        load = dict.fromkeys(graph.edges, Fraction())
        for start, end in permutations(graph, 2):
            waiting = dict.fromkeys(graph, Fraction()) | {start: Fraction(1)}
            for v in sorted(graph, key=lambda v: -hops[v][end]):
                nearer = [w for w in graph[v] if hops[w][end] < hops[v][end]]
                for w in nearer:
                    waiting[w] += waiting[v] / len(nearer)
                    load[v, w] += waiting[v] / len(nearer)
        assert found == pytest.approx(float(max(load.values())), abs=1e-9)


def test_exchanging_units_ends_where_no_exchange_helps() -> None:
    group = extension((8,), 4, [[3]]).group()
    right = np.ascontiguousarray(group.table.T)
    n = group.order
    pairs = [(s, int(t)) for s, t in enumerate(group.inverse) if s < t]
    own = [(s, s) for s in range(1, n) if group.inverse[s] == s]
    units = np.array(pairs + own)
    picked = np.array([0, 1, len(pairs)])
    low, high = np.array([0, 0, len(pairs)]), np.array([len(pairs), len(pairs), len(units)])

    def cost(chosen: list[int]) -> float:
        steps = np.array([sorted({int(s) for u in chosen for s in units[u]})])
        return float(set_costs(right, steps, 0.5)[0])

    before = cost(picked.tolist())
    lowest, tried = exchange_units(right, units, picked, low, high, 0.5)
    assert tried > 1
    assert lowest == cost(picked.tolist()) <= before
    for k in range(3):
        for other in range(int(low[k]), int(high[k])):
            if other not in picked:
                changed = picked.copy()
                changed[k] = other
                assert cost(changed.tolist()) >= lowest


def check_cayley(graph: CayleyGraph, n: int, degree: int, both_ways: bool) -> None:
    links: list[tuple[int, int]] = []
    for ring in graph.rings:
        assert sorted(ring) == list(range(n))
        links += pairwise((*ring, ring[0]))
    links += graph.rest
    if both_ways:
        links = [(min(a, b), max(a, b)) for a, b in links]
    assert len(links) == len(set(links)) == (n * degree // 2 if both_ways else n * degree)
    wired = nx.DiGraph(links)
    if both_ways:
        wired.add_edges_from([(b, a) for a, b in links])
    assert {d for _, d in wired.out_degree()} == {d for _, d in wired.in_degree()} == {degree}
    hops = dict(nx.all_pairs_shortest_path_length(wired))
    between = np.array([[hops[a][b] for b in range(n)] for a in range(n)])
    np.testing.assert_array_equal(graph.between, between)
    assert graph.diameter == between.max()
    assert graph.mean_distance == pytest.approx(between.sum() / (n * (n - 1)), rel=1e-12)
    bound = moore_bound(n, degree, both_ways)
    assert graph.diameter >= bound.diameter
    assert graph.mean_distance >= bound.mean_distance - 1e-9


@settings(max_examples=30, deadline=None)
@given(st.integers(3, 40), st.integers(1, 7), st.booleans(), st.data())
def test_cayley_graphs_keep_their_promises(
    n: int, degree: int, both_ways: bool, data: st.DataObject
) -> None:
    assume(degree < n)
    if both_ways and (degree == 1 or n * degree % 2):
        with pytest.raises(InputError):
            select_cayley(n, degree, bidirectional=True)
        return
    most = degree // 2 if both_ways else degree
    rings = data.draw(st.integers(max(1, most - 1), most))
    try:
        graph = select_cayley(n, degree, bidirectional=both_ways, rings=rings)
    except InfeasibleError:
        # One ring short, or one ring of a group that is no cycle: hardly ever more.
        assert rings == most
        return
    assert len(graph.rings) == rings
    assert len(graph.generators) == degree
    check_cayley(graph, n, degree, both_ways)


@pytest.mark.parametrize(
    ("n", "degree", "both_ways"),
    [(16, 4, False), slow(64, 4, False), slow(128, 4, False), (32, 8, False),
     slow(128, 8, True), slow(64, 6, True), (64, 3, True), (16, 3, True)],
)  # fmt: skip
def test_they_are_shorter_than_circulants(n: int, degree: int, both_ways: bool) -> None:
    graph = select_cayley(n, degree, bidirectional=both_ways)
    check_cayley(graph, n, degree, both_ways)
    count = degree // 2 if both_ways else degree
    plain = select_circulant(
        n, count, bidirectional=both_ways, half=both_ways and degree % 2 == 1, most=10_000
    )
    assert graph.mean_distance < plain.mean_distance
    assert graph.diameter <= plain.diameter


@pytest.mark.parametrize(("degree", "both_ways"), [(6, False), slow(8, False), (8, True)])
def test_of_sets_with_equal_paths_one_that_loads_links_alike_is_taken(degree, both_ways) -> None:
    graph = select_cayley(16, degree, bidirectional=both_ways)
    rings = [pair for ring in graph.rings for pair in pairwise((*ring, ring[0]))]
    links = {*rings, *graph.rest}
    links |= {(b, a) for a, b in links} if both_ways else set()
    network = Network.from_links("test", 16, 0, *zip(*sorted(links), strict=True), 1.0, 0.0)
    load = ecmp_link_bytes(network, np.ones((16, 16)))
    # Links carry bytes times hops; no link can carry less than the mean of all.
    assert load.max() == pytest.approx(graph.mean_distance * 15 / degree)


def test_the_best_of_small_groups_is_found() -> None:
    # All sets of all five groups of 12 elements; any rings.
    graph = select_cayley(12, 2, rings=1)
    lowest = min(
        sum(there.values())
        for group in groups_of_order(12)
        for steps in combinations(range(1, 12), 2)
        if len(there := nx.single_source_shortest_path_length(graph_of(group, list(steps)), 0))
        == 12
    )
    assert graph.exact
    assert graph.mean_distance == pytest.approx(lowest / 11)


@settings(max_examples=60, deadline=None)
@given(st.integers(5, 12), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_arcs_are_exchanged_and_none_is_lost(n: int, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    given_rows = []
    while len(given_rows) < rows:
        row = rng.permutation(n)
        if (row != np.arange(n)).all():
            given_rows.append(row)
    permutations_ = np.array(given_rows)
    for row in permutations_:
        cycles = sum(1 for _ in nx.simple_cycles(nx.DiGraph(enumerate(row.tolist()))))
        assert count_cycles(row, np.empty(n, np.int64)) == cycles
    arcs = sorted((a, int(b)) for row in permutations_ for a, b in enumerate(row))
    merged = permutations_.copy()
    draws, told = rng.random((500, 4)), np.ones(1, dtype=np.int64)
    merge_arcs(merged, rows, draws, 0.4, told)
    np.testing.assert_array_equal(merged, permutations_)  # told to stop, it makes no move
    left = merge_arcs(merged, rows, draws, 0.4, 0 * told)
    assert sorted((a, int(b)) for row in merged for a, b in enumerate(row)) == arcs
    assert (np.sort(merged, axis=1) == np.arange(n)).all()
    seen = np.empty(n, np.int64)
    assert left == sum(count_cycles(row, seen) for row in merged) - rows
    assert parity(merged) == parity(permutations_)
    if rows > 1:
        one, other = permutations_[0].copy(), permutations_[1].copy()
        start = int(rng.integers(n))
        swap_closed(one, other, np.argsort(one), start)
        assert one[start] == permutations_[1][start]
        swap_closed(one, other, np.argsort(one), start)
        np.testing.assert_array_equal(one, permutations_[0])
        np.testing.assert_array_equal(other, permutations_[1])


@settings(max_examples=40, deadline=None)
@given(st.integers(7, 14), st.integers(0, 2**31 - 1))
def test_links_are_exchanged_and_none_is_lost(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.array([(np.arange(n) + p) % n for p in (1, 2, 3)])
    beside = np.stack((rows, np.argsort(rows, axis=1)), axis=2)

    def links(factors: np.ndarray) -> list[tuple[int, int]]:
        return sorted((v, int(w)) for factor in factors for v in range(n) for w in factor[v])

    before = beside.copy()
    trail, used = np.zeros((2 * n + 2, 3), np.int64), np.zeros((n, 2, 2), np.int64)
    count, _ = random_trail(beside, 0, 1, seed % n, seed, trail, used)
    assert not used.any()
    np.testing.assert_array_equal(beside, before)
    if count:
        swap_trail(beside, 0, 1, trail, count)
        for factor in beside:
            graph = nx.Graph((v, int(w)) for v in range(n) for w in factor[v])
            assert {d for _, d in graph.degree()} == {2}
            rounds = nx.number_connected_components(graph)
            assert count_rounds(factor, np.empty(n, np.int64)) == rounds
        swap_trail(beside, 0, 1, trail, count)
        np.testing.assert_array_equal(beside, before)
    draws, told = rng.random((300, 4)), np.ones(1, dtype=np.int64)
    merge_links(beside, 3, draws, 0.4, told)
    np.testing.assert_array_equal(beside, before)  # told to stop, it makes no move
    left = merge_links(beside, 3, draws, 0.4, 0 * told)
    assert links(beside) == links(before)
    seen = np.empty(n, np.int64)
    assert left == sum(count_rounds(factor, seen) for factor in beside) - 3


def test_two_rings_of_products_of_cycles() -> None:
    """Every undirected product of two cycles falls into two rings (Kotzig 1973)."""
    for a, b in [(3, 3), (3, 4), (4, 4), (4, 6), (5, 7), (6, 6), (8, 8)]:
        at = np.arange(a * b).reshape(a, b)
        rows = np.array([np.roll(at, -1, axis=0).ravel(), np.roll(at, -1, axis=1).ravel()])
        found = hamiltonian_cycles(rows, both_ways=True)
        assert found is not None
        torus = nx.Graph()
        for row in found:
            ring = ring_of(row)
            assert sorted(ring) == list(range(a * b))
            torus.add_edges_from(pairwise((*ring, ring[0])))
        assert nx.utils.graphs_equal(
            torus, nx.Graph((v, int(row[v])) for row in rows for v in range(a * b))
        )


def test_where_parity_forbids_rings_there_are_none() -> None:
    """By brute force over every way to share the arcs of three small permutations."""
    rows = np.array([[1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]])
    assert parity(rows) == 0
    assert hamiltonian_cycles(rows) is None
    cycles = [p for p in permutations(range(4)) if len(set(ring_of(np.array(p)))) == 4]
    cycles = [p for p in cycles if all(p[v] != v for v in range(4))]
    assert not any(
        all(sorted((a[v], b[v], c[v])) == sorted(rows[:, v]) for v in range(4))
        for a, b, c in combinations(cycles, 3)
    )
    two = hamiltonian_cycles(rows, 2)
    assert two is not None
    assert all(len(ring_of(row)) == 4 for row in two[:2])
    for bad in ([[0, 1, 2]], [[1, 1, 0]]):
        with pytest.raises(InputError):
            hamiltonian_cycles(np.array(bad))
    with pytest.raises(InputError):
        hamiltonian_cycles(rows, 4)


@pytest.mark.parametrize(
    "bad",
    [
        (2, 1, {}),
        (1025, 4, {}),
        (8, 8, {}),
        (8, 0, {}),
        (8, 3, {"rings": 4}),
        (8, 4, {"rings": 3, "bidirectional": True}),
        (9, 3, {"bidirectional": True}),
    ],
)
def test_bad_questions(bad: tuple[int, int, dict[str, object]]) -> None:
    with pytest.raises(InputError):
        select_cayley(bad[0], bad[1], **bad[2])


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 30), st.data())
def test_the_step_of_a_ring(n: int, data: st.DataObject) -> None:
    seats = tuple(data.draw(st.permutations(range(n))))
    p = data.draw(st.sampled_from([p for p in range(1, n) if np.gcd(p, n) == 1] or [1]))
    order = ring_order(seats, p)
    assert ring_step(order, seats) == p
    if n > 4:
        assert ring_step((order[1], order[0], *order[2:]), seats) == 0


def all_to_all(n: int, reduced: float) -> Traffic:
    sent = np.ones((n, n)) - np.eye(n)
    return Traffic(n, sent, (tuple(range(n)),), np.array([reduced]))


@pytest.mark.parametrize("ports", PortModel)
@pytest.mark.parametrize("placement", [False, True])
def test_the_finder_wires_them(ports: PortModel, placement: bool) -> None:
    traffic = all_to_all(16, 1e3)
    if placement:
        traffic.transfers[0, 5] = traffic.transfers[9, 3] = 50.0
    topology = find_topology(
        traffic, 4, 1e9, ports=ports, degree_allreduce=4, surplus="rings", selection="cayley",
        placement=placement,
    )  # fmt: skip
    assert len(topology.rings) == 4
    assert {ring.generator for ring in topology.rings} == {0}
    plain = find_topology(traffic, 4, 1e9, ports=ports, degree_allreduce=4, selection="exact")
    graph, other = network_graph(topology.network), network_graph(plain.network)
    assert nx.average_shortest_path_length(graph) < nx.average_shortest_path_length(other)
    if placement:
        assert graph.has_edge(0, 5)
        assert graph.has_edge(9, 3)
    for routing in (Routing.ECMP, Routing.K_SHORTEST, Routing.SINGLE):
        streams = direct_fabric(topology, routing).group_streams(tuple(range(16)))
        np.testing.assert_allclose(streams.weights, 1.0)
        assert streams.links.size == 64


def test_surplus_rings_of_steps_go_beside_them() -> None:
    traffic = Traffic(16, np.zeros((16, 16)), (tuple(range(16)),), np.array([1e3]))
    topology = find_topology(traffic, 6, 1e9, degree_allreduce=4, selection="cayley")
    steps = [ring.generator for ring in topology.rings]
    assert len(steps) == 6
    assert 0 in steps
    assert any(steps)
    assert isinstance(direct_fabric(topology, Routing.K_SHORTEST), Fabric)


def test_circulants_stay_where_nothing_is_shorter() -> None:
    chooser = RingChooser(Selection.CAYLEY)
    assert chooser.cayley(7, 2) is None
    assert chooser.cayley(5, 2) is None  # too small
    assert chooser.cayley(16, 1) is None  # one ring is one ring
    assert chooser.cayley(64, 3) is None  # no three rings
    assert RingChooser(Selection.EXACT).cayley(16, 4) is None


def test_placement_on_any_distances() -> None:
    rng = np.random.default_rng(3)
    demand = rng.random((7, 7))
    np.fill_diagonal(demand, 0.0)
    between = rng.integers(1, 5, (7, 7))
    np.fill_diagonal(between, 0)

    def cost(order: tuple[int, ...]) -> float:
        return float((demand[np.ix_(order, order)] * between).sum())

    best = min(cost(order) for order in permutations(range(7)))
    starts = [tuple(rng.permutation(7).tolist()) for _ in range(4)]
    found = min(cost(place_servers(demand, between, start=start)) for start in starts)
    assert best <= found + 1e-9
    assert found <= cost(tuple(range(7)))
    assert found <= 1.05 * best


def test_the_fabric_by_name() -> None:
    built = build_fabric("cayley", 64, 3, 1e9)
    assert len(built.rings) == 2
    assert built.network.out_degree().tolist() == [3] * 64
    assert built.network.in_degree().tolist() == [3] * 64
    both = build_fabric("cayley", 24, 5, 1e9, ports="bidirectional")
    assert len(both.rings) == 4
    assert both.network.out_degree().tolist() == [5] * 24
