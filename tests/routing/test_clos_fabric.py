"""Clos fabrics and flows: construction, failures, and what is refused."""

import numpy as np
import pytest
from clos_oracle import random_instance

from codesign_base import InfeasibleError, InputError
from routing.clos.assignment import Assignment
from routing.clos.best import best_paths
from routing.clos.fabric import Clos
from routing.clos.flows import ClosFlows
from routing.clos.metric import compare_vectors, evaluate, evaluate_paths
from routing.clos.paths import ThreeLayer, clos_paths, listed_paths
from routing.clos.routers import route


def test_uniform():
    clos = Clos.uniform(4, 3, cables=2, capacity=0.5)
    assert clos.up.tolist() == [[1.0] * 3] * 4
    assert clos.down.shape == (3, 4)
    assert clos.nics_per_tor == 3
    assert Clos.uniform(4, 3, nics_per_tor=7).nics_per_tor == 7
    assert clos.core_failures_only
    with pytest.raises(ValueError, match="read-only"):
        clos.up[0, 0] = 2.0


def test_failures():
    clos = Clos.uniform(4, 3)
    cores = clos.with_failed_spines([1, 1])
    assert cores.live_spines.tolist() == [0, 2]
    assert cores.live(0, 3).tolist() == [True, False, True]
    assert cores.core_failures_only
    one = clos.with_share(2, 0, 0.0, "up")
    assert not one.core_failures_only
    assert one.live(2, 1).tolist() == [False, True, True]
    assert one.live(1, 2).all()
    assert not clos.with_share(2, 0, 0.0, "down").live(1, 2)[0]
    both = clos.with_share(2, 0, 0.0)
    assert not both.live(1, 2)[0]
    assert not both.live(2, 1)[0]
    slow = clos.with_share(2, 0, 0.25, "down")
    assert slow.down[0, 2] == 0.25
    assert slow.up[2, 0] == 1.0
    assert not slow.core_failures_only
    assert clos.capacity.size == 24
    assert np.flatnonzero(slow.capacity == 0.25).tolist() == [12 + 2 * 3]
    assert np.all(clos.capacity == 1.0)  # the fabric itself has not changed


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda c: Clos.uniform(0, 2), "give positive numbers"),
        (lambda c: Clos.uniform(2, 2, capacity=float("nan")), "give positive numbers"),
        (lambda c: Clos(0, 1, np.zeros((0, 1)), np.zeros((1, 0))), "0 tors; give 1"),
        (lambda c: Clos(2, 1, np.ones((1, 2)), np.ones((1, 2))), r"up has shape \(1, 2\)"),
        (lambda c: Clos(1, 1, np.ones((1, 1)), -np.ones((1, 1))), r"down\[0, 0\] is -1.0"),
        (lambda c: Clos(1, 1, np.ones((1, 1)), np.ones((1, 1)), -1), "nics_per_tor is -1"),
        (lambda c: c.with_failed_spines([3]), r"spine 3 does not exist; choose one of 0..2"),
        (lambda c: c.with_share(9, 0, 0.0), "tor 9 does not exist"),
        (lambda c: c.with_share(0, 0, 0.0, "left"), "direction is 'left'"),
        (lambda c: c.with_share(0, 0, float("inf")), r"up\[0, 0\] is inf"),
    ],
)
def test_wrong_fabrics_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make(Clos.uniform(4, 3))


def test_weights_are_shares_of_the_largest_flow_of_a_job():
    flows = ClosFlows.of([0, 1, 2], [1, 1, 0], [7, 7, 3], [4.0, 1.0, 0.5])
    assert flows.weight.tolist() == [1.0, 0.25, 1.0]
    assert flows.jobs.tolist() == [3, 7]
    assert flows.job_index.tolist() == [1, 1, 0]
    assert flows.crosses.tolist() == [True, False, True]
    part = flows.subset([1])
    assert (part.count, part.weight.tolist()) == (1, [0.25])
    given = np.array([0, 1])
    kept = ClosFlows.of(given, [1, 0], [0, 0], 1.0, given, given)
    given[0] = 5
    assert kept.source_tor.tolist() == [0, 1]
    assert kept.subset([True, False]).source_nic.tolist() == [0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ClosFlows.of([0], [1], [0, 1]), "job has shape"),
        (lambda: ClosFlows.of([0], [1, 2], [0]), r"target_tor has shape \(2,\)"),
        (lambda: ClosFlows.of([0], [-1], [0]), "target_tor of flow 0 is -1"),
        (lambda: ClosFlows.of([0, 0], [1, 1], [0, 0], [1.0, 0.0]), "bytes_ of flow 1 is 0.0"),
        (lambda: ClosFlows.of([0], [1], [0], [float("nan")]), "bytes_ of flow 0 is nan"),
        (lambda: ClosFlows([0], [1], [1.5], [0], [1.0]), "weight of flow 0 is 1.5"),
        (lambda: ClosFlows.of([0], [1], [0], 1.0, [-2], [0]), "source_nic of flow 0 is -2"),
    ],
)
def test_wrong_flows_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_best_paths_are_as_good_as_best_spines():
    """Listed candidates of a two-layer fabric: the search does not rest on its regularity."""
    equal = 0
    for seed in range(40):
        clos, flows = random_instance(seed)
        spines = evaluate(clos, flows, route(clos, flows, "best")).vector
        paths = clos_paths(clos, flows)
        candidates = [
            [paths.links(np.full(flows.count, s))[f].tolist() for s in range(clos.spines)]
            for f in range(flows.count)
        ]
        listed = listed_paths(clos.capacity, candidates)
        way = best_paths(listed, flows)
        equal += compare_vectors(evaluate_paths(listed, flows, way).vector, spines) == 0
    assert equal >= 38


def test_best_paths_in_three_layers():
    """A permutation between NICs fills a fabric of full bisection, and needs no more."""
    fabric = ThreeLayer(pods=4, tors=2, aggregations=2, cores=2)
    for seed in range(10):
        target = np.random.default_rng(seed).permutation(16)
        flows = ClosFlows.of(np.arange(16) // 2, target // 2, np.arange(16) % 3)
        paths = fabric.paths(flows)
        way = best_paths(paths, flows)
        assert np.array_equal(way < 0, ~flows.crosses)
        assert evaluate_paths(paths, flows, way).mean_slowdown == 1.0


def test_best_paths_need_a_live_candidate():
    with pytest.raises(InfeasibleError, match="flow 1 has no live candidate path"):
        best_paths(listed_paths([1.0, 0.0], [[[0]], [[1]]]), ClosFlows.of([0, 0], [1, 1], [0, 0]))


def test_three_layers_need_sizes():
    with pytest.raises(InputError, match="cores = 0"):
        ThreeLayer(2, 2, 2, 0)


def test_an_assignment_leaves_the_array_of_its_caller_alone():
    spine = np.array([0])
    assignment = Assignment(spine)
    spine[0] = 1
    assert assignment.spine.tolist() == [0]
    assert not assignment.spine.flags.writeable
