"""Routers on Clos fabrics against plain-Python oracles, networkx, enumeration and each other."""

import networkx as nx
import numpy as np
import pytest
from clos_oracle import enumerate_best, permutation_traffic, random_instance
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InfeasibleError, InputError
from routing.clos.assignment import Assignment, check_assignment
from routing.clos.bounds import bound_of_paths
from routing.clos.fabric import Clos
from routing.clos.flows import ClosFlows
from routing.clos.metric import compare_vectors, evaluate
from routing.clos.optimum import least_max_load
from routing.clos.paths import clos_paths
from routing.clos.placing import greedy_order
from routing.clos.routers import ROUTERS, route

seeds = st.integers(0, 2**32 - 1)


def loads(clos, flows, spine):
    up, down = np.zeros((clos.tors, clos.spines)), np.zeros((clos.tors, clos.spines))
    moving = flows.crosses
    np.add.at(up, (flows.source_tor[moving], spine[moving]), 1)
    np.add.at(down, (flows.target_tor[moving], spine[moving]), 1)
    return up, down


def is_live(clos, flows, spine):
    check_assignment(clos, flows, spine)
    m = flows.crosses
    up = clos.up[flows.source_tor[m], spine[m]] > 0
    return bool(np.all(up & (clos.down[spine[m], flows.target_tor[m]] > 0)))


def mixed_instance(seed):
    """As `random_instance`, with flows within ToRs put between the others."""
    clos, flows = random_instance(seed)
    at = seed % flows.count
    index = np.insert(np.arange(flows.count), at, at)
    source = flows.source_tor[index]
    source[at] = flows.target_tor[at]
    return clos, ClosFlows.of(
        source, flows.target_tor[index], flows.job[index], flows.bytes_[index]
    )


@pytest.mark.parametrize("method", list(ROUTERS))
def test_every_router_uses_live_links_and_repeats_itself(method):
    for seed in range(25):
        clos, flows = mixed_instance(seed)
        first = route(clos, flows, method, seed=seed)
        assert is_live(clos, flows, first.spine)
        assert np.array_equal(first.spine, route(clos, flows, method, seed=seed).spine)
        again = route(clos, flows, method, seed=seed, previous=first)
        assert is_live(clos, flows, again.spine)


@pytest.mark.parametrize("method", list(ROUTERS))
def test_every_router_takes_no_flows_and_flows_within_a_tor(method):
    clos = Clos.uniform(3, 2)
    assert route(clos, ClosFlows.of([], [], []), method).spine.size == 0
    assert route(clos, ClosFlows.of([1, 2], [1, 2], [0, 3]), method).spine.tolist() == [-1, -1]


def test_errors_name_the_input():
    clos = Clos.uniform(3, 2)
    flows = ClosFlows.of([0], [1], [0])
    with pytest.raises(InputError, match=r"method 'fastest' is unknown; choose one of ecmp"):
        route(clos, flows, "fastest")
    with pytest.raises(InputError, match=r"target_tor of flow 1 is 5; the fabric has ToRs 0..2"):
        route(clos, ClosFlows.of([0, 0], [1, 5], [0, 0]), "best")
    cut = clos.with_share(0, 0, 0.0, "up").with_share(1, 1, 0.0, "down")
    for method in ROUTERS:
        with pytest.raises(InfeasibleError, match=r"flow 0 from ToR 0 to ToR 1 has no spine"):
            route(cut, flows, method)
    with pytest.raises(InputError, match="previous has 2 spines for 1 flow"):
        route(clos, flows, "best", previous=Assignment(np.array([0, 0])))
    with pytest.raises(InputError, match="time_limit"):
        route(clos, flows, "optimum", time_limit=0.0)


def greedy_in_plain_python(clos, flows):
    groups = [(flows.source_tor == t) & flows.crosses for t in range(clos.tors)]
    groups += [(flows.target_tor == t) & flows.crosses for t in range(clos.tors)]
    spine = [-1] * flows.count
    up = [[0] * clos.spines for _ in range(clos.tors)]
    down = [[0] * clos.spines for _ in range(clos.tors)]
    for group in sorted(groups, key=lambda g: -int(g.sum())):
        for f in np.flatnonzero(group).tolist():
            if spine[f] >= 0:
                continue
            a, b = int(flows.source_tor[f]), int(flows.target_tor[f])
            ways = np.flatnonzero(clos.live(a, b)).tolist()
            spine[f] = min(
                ways, key=lambda s: max(up[a][s] / clos.up[a, s], down[b][s] / clos.down[s, b])
            )
            up[a][spine[f]] += 1
            down[b][spine[f]] += 1
    return spine


@settings(max_examples=100, deadline=None)
@given(seeds)
def test_greedy_equals_plain_python(seed):
    clos, flows = random_instance(seed, 60)
    assert route(clos, flows, "greedy").spine.tolist() == greedy_in_plain_python(clos, flows)


def test_greedy_order_holds_every_flow_once():
    clos, flows = mixed_instance(3)
    assert sorted(greedy_order(clos, flows).tolist()) == list(range(flows.count))


def ecmp_in_plain_python(clos, flows, seed):
    mask = 2**64 - 1
    spines = []
    for f in range(flows.count):
        h = seed
        ends = (f, f) if flows.source_nic is None else (flows.source_nic[f], flows.target_nic[f])
        for part in (flows.source_tor[f], *ends):
            h = (h + (int(part) + 1) * 0x9E3779B97F4A7C15) & mask
            h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9 & mask
            h = (h ^ (h >> 27)) * 0x94D049BB133111EB & mask
            h ^= h >> 31
        live = np.flatnonzero(clos.live(int(flows.source_tor[f]), int(flows.target_tor[f])))
        spines.append(int(live[h % live.size]))
    return spines


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_ecmp_equals_plain_python(seed):
    clos, flows = random_instance(seed, 40)
    found = route(clos, flows, "ecmp", seed=seed).spine
    assert found.tolist() == ecmp_in_plain_python(clos, flows, seed)
    clos = Clos.uniform(8, 4).with_failed_spines([1])
    flows = permutation_traffic(8, 4, 30, 2, seed)
    found = route(clos, flows, "ecmp", seed=seed).spine
    assert found.tolist() == ecmp_in_plain_python(clos, flows, seed)


def test_random_draws_live_spines_about_equally():
    clos = Clos.uniform(2, 4).with_failed_spines([2])
    flows = ClosFlows.of(np.zeros(3000, int), np.ones(3000, int), np.zeros(3000, int))
    counts = np.bincount(route(clos, flows, "random", seed=5).spine, minlength=4)
    assert counts[2] == 0
    assert np.all(np.abs(counts[[0, 1, 3]] - 1000) < 120)


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(0, 3))
def test_edge_coloring_meets_the_lower_bound_without_cable_failures(seed, failed):
    rng = np.random.default_rng(seed)
    tors, spines = int(rng.integers(2, 20)), int(rng.integers(4, 80))
    count = int(rng.integers(1, 1500))
    source, target = rng.integers(tors, size=count), rng.integers(tors, size=count)
    flows = ClosFlows.of(source, target, np.zeros(count, int))
    clos = Clos.uniform(tors, spines).with_failed_spines(range(failed))
    graph = nx.MultiGraph()
    for a, b in zip(source.tolist(), target.tolist(), strict=True):
        if a != b:
            graph.add_edge(("out", a), ("in", b))
    degree = max((d for _, d in graph.degree()), default=0)
    spine = route(clos, flows, "edge-coloring").spine
    up, down = loads(clos, flows, spine)
    assert max(up.max(), down.max()) == -(-degree // (spines - failed))
    assert is_live(clos, flows, spine)


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_edge_coloring_repairs_cable_failures(seed):
    rng = np.random.default_rng(seed)
    clos = Clos.uniform(10, 12)
    for _ in range(12):
        direction = ("up", "down", "both")[rng.integers(3)]
        clos = clos.with_share(int(rng.integers(10)), int(rng.integers(12)), 0.0, direction)
    flows = permutation_traffic(10, 8, 80, 3, seed)
    spine = route(clos, flows, "edge-coloring").spine
    assert is_live(clos, flows, spine)
    assert max(part.max() for part in loads(clos, flows, spine)) <= 2


def test_edge_coloring_keeps_given_spines():
    from routing.clos.placing import color

    clos, flows = Clos.uniform(16, 12), permutation_traffic(16, 8, 100, 2, 0)
    paths = clos_paths(clos, flows)
    first = color(clos, flows, paths)
    assert np.array_equal(color(clos, flows, paths, first), first)
    part = first.copy()
    part[:10] = -1
    again = color(clos, flows, paths, part)
    assert max(side.max() for side in loads(clos, flows, again)) == 1
    assert (again != first).sum() <= 30


def test_annealing_spreads_better_than_ecmp():
    clos = Clos.uniform(16, 8)
    flows = permutation_traffic(16, 8, 100, 3, 1)
    alone = ClosFlows(flows.source_tor, flows.target_tor, flows.weight, flows.job, flows.bytes_)
    for case in (flows, alone):
        annealed = evaluate(clos, case, route(clos, case, "annealing", seed=2))
        hashed = evaluate(clos, case, route(clos, case, "ecmp", seed=2))
        assert compare_vectors(annealed.vector, hashed.vector) > 0


def test_the_optimum_equals_enumeration():
    for seed in range(60):
        clos, flows = random_instance(seed, 6)
        found = route(clos, flows, "optimum")
        assert found.optimal
        vector = evaluate(clos, flows, found).vector
        np.testing.assert_allclose(vector, enumerate_best(clos, flows), atol=1e-8)


def test_cp_sat_finds_the_least_maximal_load():
    """Against enumeration, whose leading coordinate is 1 / max(1, load)."""
    proven = 0
    for seed in range(60):
        clos, flows = random_instance(seed, 6)
        start = route(clos, flows, "random", seed=seed).spine
        spine, proved = least_max_load(clos, flows, start, 0, 5.0)
        assert is_live(clos, flows, spine)
        proven += proved
        found = evaluate(clos, flows, Assignment(spine))
        assert found.vector[0] == pytest.approx(enumerate_best(clos, flows)[0], rel=1e-5)
    assert proven == 60


def test_the_optimum_of_larger_instances_minimises_max_load():
    clos = Clos.uniform(6, 4).with_share(0, 1, 0.0).with_share(2, 3, 0.0, "down")
    rng = np.random.default_rng(0)
    source, target = rng.integers(6, size=60), rng.integers(6, size=60)
    flows = ClosFlows.of(source, target, rng.integers(3, size=60), rng.choice([1.0, 1.5, 4.0], 60))
    found = route(clos, flows, "optimum", time_limit=3.0)
    best = evaluate(clos, flows, route(clos, flows, "best"))
    exact = evaluate(clos, flows, found)
    assert compare_vectors(exact.vector, best.vector) >= 0
    assert exact.vector[0] <= bound_of_paths(clos_paths(clos, flows), flows)[0] * (1 + 1e-9)
