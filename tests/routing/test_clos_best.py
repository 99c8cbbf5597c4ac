"""The best router against enumeration and bounds."""

import numpy as np
import pytest
from clos_oracle import enumerate_best, job_speeds, permutation_traffic, random_instance
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.clos.assignment import Assignment
from routing.clos.fabric import Clos
from routing.clos.flows import ClosFlows
from routing.clos.metric import compare_vectors, evaluate
from routing.clos.paths import clos_paths
from routing.clos.routers import route
from routing.clos.state import AssignmentState

seeds = st.integers(0, 2**32 - 1)


def counterexample(many):
    """ToRs a, b, c, d, x, z; greedy takes the flows in this order."""
    a, b, c, d, x, z = range(6)
    pairs = [(a, x, 0), (a, b, 0)] * many + [(c, d, 1), (z, d, 1)] * many + [(c, b, 2)]
    source, target, job = np.array(pairs).T
    return Clos.uniform(6, 2), ClosFlows.of(source, target, job)


@pytest.mark.parametrize("many", [2, 3, 5, 8])
def test_the_counterexample_to_greedy(many):
    clos, flows = counterexample(many)
    greedy = evaluate(clos, flows, route(clos, flows, "greedy")).vector
    np.testing.assert_allclose(greedy, [1 / (many + 1), 1 / (many + 1), 1 / many])
    found = evaluate(clos, flows, route(clos, flows, "best")).vector
    np.testing.assert_allclose(found, [1 / many, 1 / many, 1.0])


def study(instances):
    """Share of optimal instances, worst ratio on a coordinate."""
    optimal, worst = 0, 1.0
    for seed in instances:
        clos, flows = random_instance(seed)
        found = evaluate(clos, flows, route(clos, flows, "best"))
        np.testing.assert_allclose(
            found.speed, job_speeds(clos, flows, route(clos, flows, "best").spine), rtol=1e-9
        )
        exact = route(clos, flows, "optimum")  # proven; equal to enumeration in its own tests
        assert exact.optimal
        limit = evaluate(clos, flows, exact).vector
        assert compare_vectors(found.vector, limit) <= 0
        optimal += compare_vectors(found.vector, limit) == 0
        worst = max(worst, float((limit / found.vector).max()))
    return optimal / len(instances), worst


def test_optimal_on_small_random_instances():
    optimal, worst = study(range(80))
    assert optimal >= 0.95
    assert worst <= 2.0


@pytest.mark.slow
def test_optimal_on_a_thousand_small_random_instances():
    optimal, worst = study(range(1000))
    print(f"optimal on {optimal:.1%}, worst ratio {worst:.3f}")
    assert optimal >= 0.95
    assert worst <= 2.0


def test_optimal_by_enumeration():
    for seed in range(1000, 1040):
        clos, flows = random_instance(seed, 6)
        vector = evaluate(clos, flows, route(clos, flows, "best")).vector
        np.testing.assert_allclose(vector, enumerate_best(clos, flows), atol=1e-8)


@pytest.mark.parametrize("jobs", [1, 5])
@pytest.mark.parametrize("tors", [8, 64])
def test_no_slowdown_without_failures(tors, jobs):
    """One flow a NIC, as many spines as NICs a ToR: the colouring is perfect."""
    nics = tors // 2
    clos = Clos.uniform(tors, nics)
    flows = permutation_traffic(tors, nics, tors * nics, jobs, tors + jobs)
    for method in ("best", "edge-coloring"):
        found = evaluate(clos, flows, route(clos, flows, method))
        assert found.speed.tolist() == [1.0] * jobs
        assert found.vector[0] == found.mean_slowdown == 1.0


@pytest.mark.parametrize("failed", [1, 4, 8, 16])
def test_failed_spines_cost_no_more_than_they_must(failed):
    clos = Clos.uniform(64, 32).with_failed_spines(range(failed))
    for seed in range(3):
        flows = permutation_traffic(64, 32, 1800, 4, seed)
        found = evaluate(clos, flows, route(clos, flows, "best"))
        assert found.vector[0] >= 0.5
        for method in ("greedy", "greedy-sorted", "edge-coloring", "annealing"):
            other = evaluate(clos, flows, route(clos, flows, method))
            assert compare_vectors(found.vector, other.vector) >= 0
            assert found.mean_slowdown <= other.mean_slowdown + 1e-9


@settings(max_examples=100, deadline=None)
@given(seeds)
def test_never_worse_than_where_it_starts(seed):
    clos, flows = random_instance(seed, 40)
    start = route(clos, flows, "random", seed=seed)
    begin = evaluate(clos, flows, start).vector
    state = AssignmentState(clos_paths(clos, flows), flows)
    state.set(start.spine.astype(np.int32))
    state.improve(3000, 200, seed % 3)
    after = Assignment(state.chosen.astype(np.int64))
    found = evaluate(clos, flows, after)
    np.testing.assert_allclose(state.speed, found.speed, rtol=1e-9)
    assert compare_vectors(found.vector, begin) >= 0
    assert np.array_equal(np.sort(state.state.open), np.zeros_like(state.state.open))


def test_same_seed_same_spines():
    clos, flows = random_instance(11, 40)
    assert np.array_equal(
        route(clos, flows, "best", seed=3).spine, route(clos, flows, "best", seed=3).spine
    )


def test_previous_assignment_is_kept_where_it_is_as_good():
    clos = Clos.uniform(16, 8)
    flows = permutation_traffic(16, 8, 100, 3, 4)
    shuffled = route(clos, flows, "best").spine * 3 % 8  # another perfect colouring
    found = route(clos, flows, "best", previous=Assignment(shuffled))
    assert np.array_equal(found.spine, shuffled)


def test_failures_move_flows_off_dead_links():
    clos = Clos.uniform(16, 8)
    flows = permutation_traffic(16, 4, 60, 3, 4)
    before = route(clos, flows, "best")
    after = route(clos.with_failed_spines([0]), flows, "best", previous=before)
    assert not (after.spine == 0).any()
    lost = before.spine == 0
    assert (after.spine != before.spine)[~lost].sum() <= lost.sum()
