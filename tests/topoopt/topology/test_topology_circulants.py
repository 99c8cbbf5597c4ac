"""Circulant generator sets against brute force and published optima; seating, too."""

from itertools import combinations, permutations
from math import ceil, gcd, inf, sqrt

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InfeasibleError, InputError
from topoopt.topology.circulant_kernels import (
    every_set,
    exchange_generators,
    improve_placement,
    placement_cost,
    step_cost,
    swap_gain,
)
from topoopt.topology.circulants import Objective, circulant_distances, select_circulant
from topoopt.topology.moore import abelian_bound, moore_bound
from topoopt.topology.placement import place_servers
from topoopt.topology.select import select_permutations
from topoopt.topology.totient import ring_order, ring_places, totient_permutations


def plain_distances(n: int, steps: tuple[int, ...]) -> list[float]:
    graph = nx.DiGraph((i, (i + p) % n) for i in range(n) for p in steps)
    graph.add_nodes_from(range(n))
    there = nx.single_source_shortest_path_length(graph, 0)
    return [there.get(v, inf) for v in range(n)]


def directed(n: int, steps: tuple[int, ...], both_ways: bool) -> tuple[int, ...]:
    return tuple(q for p in steps for q in ((p, n - p) if both_ways else (p,)))


sizes = st.one_of(st.integers(2, 60), st.sampled_from([2, 3, 5, 61, 97, 128, 199, 200]))


@settings(max_examples=100, deadline=None)
@given(st.data(), sizes, st.booleans())
def test_distances_of_offsets(data: st.DataObject, n: int, both_ways: bool) -> None:
    steps = tuple(data.draw(st.lists(st.integers(1, n - 1), min_size=1, max_size=4, unique=True)))
    expected = plain_distances(n, directed(n, steps, both_ways))
    if inf in expected:
        with pytest.raises(InfeasibleError, match="coprime"):
            circulant_distances(n, steps, both_ways)
    else:
        assert circulant_distances(n, steps, both_ways).tolist() == expected


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(3, 17), st.booleans(), st.sampled_from(Objective))
def test_the_choice_is_the_best_of_all(
    data: st.DataObject, n: int, both_ways: bool, objective: Objective
) -> None:
    pool = [p for p in totient_permutations(n) if not both_ways or 2 * p < n]
    count = data.draw(st.integers(1, min(4, len(pool))))
    key = (lambda far, total: (far, total)) if objective == "diameter" else (
        lambda far, total: (total, far))  # fmt: skip
    best = min(
        key(max(d), sum(d))
        for chosen in combinations(pool, count)
        for d in [plain_distances(n, directed(n, chosen, both_ways))]
    )
    found = select_circulant(n, count, bidirectional=both_ways, objective=objective)
    assert found.exact
    assert len(found.generators) == count
    assert key(found.diameter, round(found.mean_distance * (n - 1))) == best
    local = select_circulant(n, count, bidirectional=both_ways, objective=objective, most=0)
    assert key(local.diameter, round(local.mean_distance * (n - 1))) >= best


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(3, 13), st.booleans())
def test_the_choice_for_a_demand_is_the_best_of_all(
    data: st.DataObject, n: int, both_ways: bool
) -> None:
    pool = [p for p in totient_permutations(n) if not both_ways or 2 * p < n]
    count = data.draw(st.integers(1, min(3, len(pool))))
    fixed = tuple(data.draw(st.permutations(pool))[: data.draw(st.integers(0, count))])
    demand = np.array(data.draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)), dtype=float)
    demand[0] = 0.0
    found = select_circulant(n, count, bidirectional=both_ways, demand=demand, fixed=fixed)
    assert found.generators[: len(fixed)] == fixed

    def cost(chosen: tuple[int, ...]) -> float:
        distance = plain_distances(n, directed(n, chosen, both_ways))
        return sum(demand[v] * distance[v] for v in range(n))

    best = min(cost(c) for c in combinations(pool, count) if set(fixed) <= set(c))
    assert cost(found.generators) == pytest.approx(best)


@pytest.mark.parametrize("n", [*range(5, 60), 84, 85, 86, 112, 113, 181, 200])
def test_double_loops_reach_the_closed_forms(n: int) -> None:
    # Undirected: every n has a double loop of this diameter (Boesch and Wang 1985).
    both = select_circulant(n, 2, bidirectional=True, objective="diameter", coprime=False)
    assert both.diameter == ceil((sqrt(2 * n - 1) - 1) / 2)
    # Directed: no n has a shorter one (Wong and Coppersmith 1974).
    one = select_circulant(n, 2, objective="diameter", coprime=False)
    assert one.diameter >= ceil(sqrt(3 * n)) - 2


@pytest.mark.parametrize(
    ("degree", "diameter", "largest"),
    # Largest circulant graphs of each degree and diameter (Feria-Puron, Perez-Roses and Ryan).
    [(3, 2, 8), (3, 3, 12), (4, 2, 13), (4, 3, 25), (5, 2, 16), (5, 3, 36), (6, 2, 21),
     (6, 3, 55), (6, 4, 117), (7, 2, 26), (7, 3, 76), (8, 2, 35), (8, 3, 104)],
)  # fmt: skip
def test_largest_circulant_graphs(degree: int, diameter: int, largest: int) -> None:
    half = degree % 2 == 1

    def least(n: int) -> int:
        return select_circulant(
            n, degree // 2, bidirectional=True, half=half, objective="diameter", coprime=False,
            most=300_000,
        ).diameter  # fmt: skip

    assert least(largest) == diameter
    assert least(largest + (2 if half else 1)) > diameter


@pytest.mark.parametrize("ports", ["directed", "bidirectional"])
@pytest.mark.parametrize("degree", [3, 4, 6, 8])
@pytest.mark.parametrize("n", [16, 32, 64, 128])
def test_never_longer_than_the_geometric_choice(n: int, degree: int, ports: str) -> None:
    both_ways = ports == "bidirectional"
    count, half = (degree // 2, degree % 2 == 1) if both_ways else (degree, False)
    steps = directed(n, select_permutations(n, count, bidirectional=both_ways), both_ways)
    geometric = circulant_distances(n, (*steps, n // 2) if half else steps)
    mean = geometric.sum() / (n - 1)
    short = select_circulant(n, count, bidirectional=both_ways, half=half, most=20_000)
    narrow = select_circulant(
        n, count, bidirectional=both_ways, half=half, objective="diameter", most=20_000
    )
    assert short.mean_distance <= mean
    assert narrow.diameter <= geometric.max()
    bound, circulant = (
        moore_bound(n, degree, both_ways),
        abelian_bound(n, count, both_ways, half),
    )
    assert bound.diameter <= circulant.diameter <= narrow.diameter <= short.diameter
    assert bound.mean_distance <= circulant.mean_distance <= short.mean_distance


def test_moore_bound_is_met_by_known_graphs() -> None:
    petersen = moore_bound(10, 3, bidirectional=True)
    assert (petersen.diameter, petersen.mean_distance) == (2, pytest.approx(15 / 9))
    kautz = moore_bound(6, 2)
    assert kautz.diameter == 2
    torus = abelian_bound(41, 2, bidirectional=True)  # a Lee sphere of radius 4
    assert torus.diameter == 4
    assert moore_bound(1, 4).diameter == 0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(4, 20), st.booleans())
def test_search_kernels_equal_plain_python(seed: int, n: int, both_ways: bool) -> None:
    rng = np.random.default_rng(seed)
    pool = np.array([p for p in range(1, n) if not both_ways or 2 * p <= n])
    choose = int(rng.integers(0, min(3, pool.size) + 1))
    first = 1
    steps = np.array(directed(n, (1, *pool[:choose].tolist()), both_ways))
    weight = rng.integers(0, 5, n).astype(float)
    farthest = float(rng.integers(0, 3))

    def cost(chosen: tuple[int, ...]) -> float:
        distance = plain_distances(n, directed(n, (1, *chosen), both_ways))
        return float(farthest * max(distance) + sum(weight[1:] * distance[1:]))

    picked = every_set(n, steps.copy(), first, choose, pool, both_ways, weight, farthest, -1.0)
    costs = [cost(tuple(c)) for c in combinations(pool.tolist(), choose)]
    assert cost(tuple(pool[picked])) == pytest.approx(min(costs))
    start = rng.permutation(pool.size)[:choose].astype(np.int64)
    before = cost(tuple(pool[start]))
    better = exchange_generators(n, steps.copy(), first, start, pool, both_ways, weight, farthest)
    assert better == pytest.approx(cost(tuple(pool[start])))
    assert better <= before
    for k in range(choose):  # no single exchange helps
        for other in set(range(pool.size)) - set(start.tolist()):
            changed = start.copy()
            changed[k] = other
            assert cost(tuple(pool[changed])) >= better - 1e-9
    scratch = np.empty(n, np.int64)
    assert step_cost(n, np.array([1]), weight, farthest, scratch, scratch.copy()) == pytest.approx(
        farthest * (n - 1) + sum(weight[v] * v for v in range(1, n))
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 12))
def test_seating_kernels_equal_plain_python(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    demand = rng.integers(0, 4, (n, n)).astype(float)
    np.fill_diagonal(demand, 0.0)
    distance = rng.integers(1, 6, (n, n))
    at = rng.permutation(n)

    def cost(places: np.ndarray) -> float:
        return sum(
            demand[i, j] * distance[places[i], places[j]] for i in range(n) for j in range(n)
        )

    assert placement_cost(demand, distance, at) == pytest.approx(cost(at))
    u, v = rng.permutation(n)[:2].tolist()
    swapped = at.copy()
    swapped[[u, v]] = at[[v, u]]
    assert swap_gain(demand, distance, at, u, v) == pytest.approx(cost(at) - cost(swapped))
    improved = at.copy()
    left = improve_placement(demand, distance, improved, rng.permutation(n), 1e-9, 10_000)
    assert left > 0
    assert sorted(improved.tolist()) == list(range(n))
    assert cost(improved) <= cost(at) + 1e-9
    for a, b in combinations(range(n), 2):
        assert swap_gain(demand, distance, improved, a, b) <= 1e-6
    stopped = at.copy()
    assert improve_placement(demand, distance, stopped, np.arange(n), 1e-9, 0) == 0
    assert stopped.tolist() == at.tolist()


def test_seating_finds_the_best_places_of_few() -> None:
    """Exchanges from random starts end elsewhere now and then, and there near the best."""
    missed = []
    for seed in range(45):
        n = 4 + seed % 3
        rng = np.random.default_rng(seed)
        demand = rng.random((n, n)) * (rng.random((n, n)) < 0.5)
        np.fill_diagonal(demand, 0.0)
        distance = circulant_distances(n, (1,))
        between = np.array([np.roll(distance, i) for i in range(n)])

        def cost(chosen: tuple[int, ...], demand=demand, between=between) -> float:
            return float(placement_cost(demand, between, np.argsort(chosen)))

        best = min(cost((0, *rest)) for rest in permutations(range(1, n)))
        starts = [tuple(rng.permutation(n).tolist()) for _ in range(3)]
        orders = [place_servers(demand, distance, start=start) for start in starts]
        assert [order[0] for order in orders] == [start[0] for start in starts]
        assert [place_servers(demand, distance, start=start) for start in starts] == orders
        found = min(cost(order) for order in orders)
        assert best * (1 - 1e-9) <= found <= 1.05 * best
        if found > best * (1 + 1e-9):
            missed.append(seed)
    assert len(missed) <= 2


def test_seating_keeps_what_cannot_be_bettered() -> None:
    distance = circulant_distances(8, (1,), bidirectional=True)
    everyone = np.ones((8, 8)) - np.eye(8)
    assert place_servers(everyone, distance) == tuple(range(8))
    assert place_servers(np.zeros((8, 8)), distance) == tuple(range(8))
    start = (3, 1, 0, 2, 7, 6, 5, 4)
    assert place_servers(everyone, distance, start=start) == start
    opposite = np.roll(np.eye(8), 4, axis=1)
    order = place_servers(opposite, distance)
    at = {server: place for place, server in enumerate(order)}
    assert all(distance[(at[(i + 4) % 8] - at[i]) % 8] == 1 for i in range(8))
    with pytest.raises(InputError, match="permutation"):
        place_servers(everyone, distance, start=(0, 0, 1, 2, 3, 4, 5, 6))


@given(st.integers(2, 60), st.data())
def test_places_are_what_the_ring_was_made_of(n: int, data: st.DataObject) -> None:
    seats = tuple(data.draw(st.permutations(range(n))))
    p = data.draw(st.sampled_from(totient_permutations(n)))
    assert ring_places(ring_order(seats, p), p) == seats


def test_wrong_input_is_refused() -> None:
    with pytest.raises(InputError, match="at least 2"):
        select_circulant(1, 1)
    with pytest.raises(InputError, match="0 generators wanted"):
        select_circulant(8, 0)
    with pytest.raises(InputError, match="even number"):
        select_circulant(9, 1, bidirectional=True, half=True)
    with pytest.raises(InputError, match="choose mean or diameter"):
        select_circulant(9, 1, objective="radius")
    with pytest.raises(InputError, match="offsets"):
        select_circulant(9, 1, demand=np.ones(4))
    with pytest.raises(InputError, match=r"outside 1\.\.8"):
        circulant_distances(9, (9,))
    with pytest.raises(InputError, match="2 cycles"):
        ring_places((0, 1, 2, 3), 2)
    with pytest.raises(InfeasibleError, match="do not join"):
        circulant_distances(9, (3,))
    with pytest.raises(InputError, match="degree 1 cannot join"):
        moore_bound(5, 1, bidirectional=True)
    assert gcd(9, select_circulant(9, 1).generators[0]) == 1
