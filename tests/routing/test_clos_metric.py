"""Two-layered max-min fairness against the definition in plain Python and linear programs."""

import numpy as np
import pytest
from clos_oracle import all_speeds, enumerate_best, job_speeds, random_instance
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from codesign_base import InputError
from routing.clos.assignment import Assignment
from routing.clos.bounds import bound_of_paths, gap
from routing.clos.fabric import Clos
from routing.clos.flows import ClosFlows
from routing.clos.metric import compare_vectors, evaluate, evaluate_paths
from routing.clos.paths import ThreeLayer, clos_paths, listed_paths
from routing.clos.routers import route

seeds = st.integers(0, 2**32 - 1)


def random_case(seed, most_flows=40):
    clos, flows = random_instance(seed, most_flows)
    return clos, flows, route(clos, flows, "random", seed=seed)


@settings(max_examples=200, deadline=None)
@given(seeds)
def test_equals_the_definition(seed):
    clos, flows, assignment = random_case(seed)
    found = evaluate(clos, flows, assignment)
    np.testing.assert_allclose(found.speed, job_speeds(clos, flows, assignment.spine), rtol=1e-9)
    assert found.vector[0] == pytest.approx(1 / max(1.0, found.max_load))


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_the_oracles_agree(seed):
    clos, flows, assignment = random_case(seed)
    many = all_speeds(clos, flows, assignment.spine[None])
    np.testing.assert_allclose(many[0], job_speeds(clos, flows, assignment.spine), rtol=1e-9)


def use_of_jobs(clos, flows, spine):
    """n_jl as a matrix (links, jobs), and the capacities."""
    paths = clos_paths(clos, flows)
    use = np.zeros((clos.capacity.size, flows.jobs.size))
    for slot in range(2):
        np.add.at(use, (paths.links(spine)[:, slot], flows.job_index), flows.weight)
    return use


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_equals_a_sequence_of_linear_programs(seed):
    """Raise the least speed as far as it goes, fix the jobs that cannot exceed it, repeat."""
    clos, flows, assignment = random_case(seed)
    use = use_of_jobs(clos, flows, assignment.spine)
    jobs = flows.jobs.size
    fixed = np.full(jobs, np.nan)
    while np.isnan(fixed).any():
        free = np.isnan(fixed)
        room = clos.capacity - use @ np.where(free, 0.0, fixed)
        level = linprog([-1.0], use[:, free].sum(axis=1)[:, None], room + 1e-12, bounds=[(0, 1)]).x[
            0
        ]
        for j in np.flatnonzero(free):
            others = free.copy()
            others[j] = False
            left = room - use[:, others].sum(axis=1) * level
            alone = use[:, j] > 0
            most = min(1.0, (left[alone] / use[alone, j]).min(initial=1.0))
            if most <= level + 1e-9:
                fixed[j] = level
    np.testing.assert_allclose(evaluate(clos, flows, assignment).speed, fixed, atol=1e-7)


def test_summaries():
    clos = Clos.uniform(3, 1)
    flows = ClosFlows.of([0, 0, 2], [1, 1, 2], [4, 4, 9])
    found = evaluate(clos, flows, Assignment(np.array([0, 0, -1])))
    assert found.speed.tolist() == [0.5, 1.0]
    assert (found.slowest_job, found.max_load) == (4, 2.0)
    assert found.mean_slowdown == 1.5
    assert found.jain == pytest.approx(1.5**2 / (2 * 1.25))


def test_without_flows():
    clos = Clos.uniform(2, 2)
    none = ClosFlows.of([], [], [])
    found = evaluate(clos, none, route(clos, none, "best"))
    assert found.vector.size == 0
    assert (found.slowest_job, found.mean_slowdown) == (-1, 1.0)
    assert bound_of_paths(clos_paths(clos, none), none).size == 0


def test_a_failed_link_stops_its_job():
    clos = Clos.uniform(3, 2).with_share(0, 1, 0.0, "up")
    flows = ClosFlows.of([0, 1], [1, 2], [0, 1])
    found = evaluate(clos, flows, Assignment(np.array([1, 0])))
    assert found.speed.tolist() == [0.0, 1.0]
    assert found.max_load == np.inf
    assert found.mean_slowdown == np.inf


def test_comparison_is_lexicographic_with_a_tolerance():
    low, high = np.array([0.5, 0.6, 0.7]), np.array([0.5, 0.61, 0.62])
    assert (compare_vectors(high, low), compare_vectors(low, high)) == (1, -1)
    assert compare_vectors(low, low * (1 + 1e-12)) == 0
    with pytest.raises(InputError, match="do not compare"):
        compare_vectors(low, low[:2])


@pytest.mark.parametrize(
    ("spine", "message"),
    [
        ([0], "1 spine for 2 flows"),
        ([0, 0], r"flow 1 is assigned spine 0; it needs -1"),
        ([2, -1], r"flow 0 is assigned spine 2; it needs 0..1"),
        ([-1, -1], r"flow 0 is assigned spine -1"),
    ],
)
def test_wrong_assignments_are_refused(spine, message):
    flows = ClosFlows.of([0, 1], [1, 1], [0, 0])
    with pytest.raises(InputError, match=message):
        evaluate(Clos.uniform(2, 2), flows, Assignment(np.array(spine)))


def test_the_bound_is_never_below_the_optimum():
    tight = 0
    for seed in range(120):
        clos, flows = random_instance(seed, 6)
        best, bound = enumerate_best(clos, flows), bound_of_paths(clos_paths(clos, flows), flows)
        assert best[0] <= bound[0] * (1 + 1e-9)
        assert compare_vectors(best, bound) <= 0, seed
        tight += compare_vectors(best, bound) == 0
    assert tight >= 80  # it would be worthless if it were rarely met


def test_the_bound_counts_flows_not_only_bytes():
    """33 equal flows of a ToR on 32 spines: fluid would allow 32/33, whole flows 1/2."""
    clos = Clos.uniform(64, 32)
    flows = ClosFlows.of(np.zeros(33, int), np.arange(1, 34), np.zeros(33, int))
    assert bound_of_paths(clos_paths(clos, flows), flows).tolist() == [0.5]
    found = evaluate(clos, flows, route(clos, flows, "best"))
    assert gap(found.vector, bound_of_paths(clos_paths(clos, flows), flows)) == 0.0


def test_the_bound_with_many_jobs():
    clos = Clos.uniform(4, 2)
    flows = ClosFlows.of(np.zeros(12, int), np.arange(12) % 3 + 1, np.arange(12))
    bound = bound_of_paths(clos_paths(clos, flows), flows)
    assert bound[0] == pytest.approx(1 / 6)
    found = evaluate(clos, flows, route(clos, flows, "best"))
    assert compare_vectors(found.vector, bound) <= 0


def test_gap():
    # The second job could be faster, the slowest could not.
    assert gap(np.array([0.5, 0.5, 1.0]), np.array([0.5, 0.8, 1.0])) == 0.0
    assert gap(np.array([0.4, 1.0]), np.array([0.5, 1.0])) == pytest.approx(0.25)
    assert gap(np.array([0.5, 1.0]), np.array([0.5, 1.0])) == 0.0
    assert gap(np.array([0.0, 1.0]), np.array([0.5, 1.0])) == np.inf


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_listed_candidates_give_the_same_speeds(seed):
    clos, flows, assignment = random_case(seed)
    pairs = clos.tors * clos.spines
    candidates = [
        [[a * clos.spines + s, pairs + b * clos.spines + s] for s in range(clos.spines)]
        for a, b in zip(flows.source_tor.tolist(), flows.target_tor.tolist(), strict=True)
    ]
    paths = listed_paths(clos.capacity, candidates)
    found = evaluate_paths(paths, flows, assignment.spine.astype(np.int32))
    expected = evaluate(clos, flows, assignment)
    np.testing.assert_array_equal(found.speed, expected.speed)
    assert found.max_load == expected.max_load


def test_listed_candidates_are_checked():
    with pytest.raises(InputError, match="link 3 does not exist"):
        listed_paths([1.0, 1.0], [[[0, 3]]])
    with pytest.raises(InputError, match="capacity"):
        listed_paths([1.0, -1.0], [[[0]]])


def test_three_layers():
    """Two pods of two ToRs, two aggregation switches, one core each."""
    fabric = ThreeLayer(pods=2, tors=2, aggregations=2, cores=1)
    flows = ClosFlows.of([0, 0, 1, 3], [2, 1, 3, 3], [0, 1, 2, 3])
    paths = fabric.paths(flows)
    assert paths.ways[paths.kind].tolist() == [2, 2, 2, 0]
    # Flow 0 over core 0, flow 1 over aggregation switch 0: they share ToR 0's link up.
    found = evaluate_paths(paths, flows, np.array([0, 0, 1, -1], dtype=np.int32))
    assert found.speed.tolist() == [0.5, 0.5, 1.0, 1.0]
    # Flows 0 and 2 over core 0: they share both links between pods and core.
    found = evaluate_paths(paths, flows, np.array([0, 1, 0, -1], dtype=np.int32))
    assert found.speed.tolist() == [0.5, 1.0, 0.5, 1.0]
    room = fabric.links()
    room[paths.links(np.array([1, 0, 0, -1]))[0, 2]] = 0.0
    failed = evaluate_paths(fabric.paths(flows, room), flows, np.array([1, 0, 0, -1], np.int32))
    assert failed.speed.tolist() == [0.0, 1.0, 1.0, 1.0]
    assert bound_of_paths(paths, flows).tolist() == [1.0] * 4
    with pytest.raises(InputError, match="shape"):
        fabric.paths(flows, [1.0])
