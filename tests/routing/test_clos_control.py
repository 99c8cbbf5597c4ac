"""The control loop: what it remembers, when it re-routes, and what it costs."""

import numpy as np
import pytest
from clos_sim_oracle import play

from codesign_base import InfeasibleError, InputError
from routing.clos.control import Controller
from routing.clos.fabric import Clos
from routing.clos.flows import Flows
from routing.clos.jobs import RingJob, flows_of
from routing.clos.loop import run_loop
from routing.clos.metric import evaluate
from routing.clos.minimal import place_new
from routing.clos.routers import Assignment

CLOS = Clos.uniform(4, 4)


def two_jobs():
    """Two jobs that share ToRs 0 and 1; together they need all four spines."""
    return [
        RingJob("a", np.array([[0, 4], [1, 5]]), 4.0, 2.0, 0.0),
        RingJob("b", np.array([[2, 6], [3, 7]]), 2.0, 1.0, 1.0),
    ]


def test_routes_are_told_once():
    flows = flows_of(CLOS, two_jobs())
    controller = Controller(CLOS, "greedy")
    first = controller.observe(flows, 0.0)
    assert first.decided and first.any
    assert (first.changed.size, first.moved, first.released) == (8, 0, 0)
    assert np.array_equal(controller.spines_of(flows)[np.argsort(first.flows.source_nic)],
                          first.spine[np.argsort(first.flows.source_nic)]) or first.spine.size == 8
    again = controller.observe(flows, 1.0)
    assert not again.decided and not again.any
    some = controller.observe(flows.subset(np.arange(3)), 2.0)
    assert not some.decided and some.flows.count == 8


def test_silent_flows_keep_their_place():
    a, b = two_jobs()
    flows = flows_of(CLOS, [a, b])
    mine, other = flows.subset(flows.job == 0), flows.subset(flows.job == 1)
    remembering = Controller(CLOS, "greedy")
    remembering.observe(mine, 0.0)
    remembering.observe(other, 1.0)
    assert remembering.flows.count == 8
    spine = remembering.spines_of(flows)
    assert evaluate(CLOS, flows, Assignment(spine, "held")).max_load == 1.0
    forgetful = Controller(CLOS, "greedy", predict=False)
    forgetful.observe(mine, 0.0)
    changes = forgetful.observe(other, 1.0)
    assert forgetful.flows.count == 4
    assert changes.released == 4


def test_what_stays_silent_too_long_is_released():
    a, b = two_jobs()
    flows = flows_of(CLOS, [a, b])
    mine, other = flows.subset(flows.job == 0), flows.subset(flows.job == 1)
    controller = Controller(CLOS, "greedy", patience=3.0, horizon=100.0)
    controller.observe(flows, 0.0)
    controller.observe(flows, 2.0)  # both come back after 2 s: 6 s are allowed
    assert controller.observe(mine, 7.9).released == 0
    gone = controller.observe(mine, 8.1)
    assert gone.released == 4 and gone.flows.jobs.tolist() == [0]
    assert controller.observe(other, 9.0).changed.size == 4
    fresh = Controller(CLOS, "greedy", horizon=100.0)
    fresh.observe(other, 0.0)  # never seen again: held for the horizon
    assert fresh.observe(mine, 99.0).released == 0
    assert fresh.observe(mine, 100.5).released == 4


def test_jobs_that_end_are_forgotten():
    flows = flows_of(CLOS, two_jobs())
    controller = Controller(CLOS, "greedy")
    controller.observe(flows, 0.0)
    controller.forget([0])
    assert controller.flows.jobs.tolist() == [1]
    after = controller.observe(flows.subset(flows.job == 1), 1.0)
    assert after.decided and after.released == 4
    assert (controller.spines_of(flows) >= 0).tolist() == [False] * 4 + [True] * 4


def test_a_failure_moves_the_flows_that_it_hits():
    flows = flows_of(CLOS, two_jobs()[:1])
    controller = Controller(CLOS, "greedy", move_cost=1e9)
    before = controller.observe(flows, 0.0).spine.copy()
    dead = int(before[0])
    failed = CLOS.with_failed_spines([dead])
    changes = controller.observe(flows, 1.0, failed)
    assert changes.moved == (before == dead).sum()
    assert np.array_equal(changes.spine[before != dead], before[before != dead])
    assert not (changes.spine == dead).any()
    with pytest.raises(InfeasibleError):
        controller.observe(flows, 2.0, CLOS.with_failed_spines(range(4)))


def test_moving_must_pay():
    # Greedy routes anew; when b leaves, a's flows need not move, so at a price they stay.
    flows = flows_of(CLOS, two_jobs())
    for cost in (0.0, 1e6):
        controller = Controller(CLOS, "random", seed=3, move_cost=cost, keep=False, horizon=1.0)
        controller.observe(flows, 0.0)
        controller.forget([1])
        changes = controller.observe(flows.subset(flows.job == 0), 1.0)
        assert (changes.moved > 0) == (cost == 0.0)


def test_the_loop_equals_the_plain_simulator():
    jobs = two_jobs()
    flows = flows_of(CLOS, jobs)
    controller = Controller(CLOS, "ecmp")
    found = run_loop(CLOS, jobs, controller, 3)
    again = Controller(CLOS, "ecmp")
    again.observe(flows, 0.0)
    start, end, _ = play(CLOS, jobs, again.spines_of(flows), 3, 12.5e9)
    for j in range(2):
        np.testing.assert_allclose(found.times.start[j], start[j])
        np.testing.assert_allclose(found.times.end[j], end[j])
    assert len(found.controller_times) == 3  # two arrivals, one departure that leaves a job
    assert found.moved == 0
    assert controller.flows.count == 0 or controller.flows.jobs.size == 1


@pytest.mark.parametrize("method", ["greedy", "edge-coloring", "best"])
def test_without_failures_all_jobs_run_as_alone(method):
    jobs = two_jobs()
    found = run_loop(CLOS, jobs, Controller(CLOS, method), 4)
    assert found.times.worst_slowdown == pytest.approx(1.0)


def test_a_failure_during_the_run():
    jobs = [RingJob("a", np.array([[0, 4], [1, 5], [2, 6], [3, 7]]), 12.5e9, 0.0)]
    failed = CLOS.with_failed_spines([0])
    found = run_loop(CLOS, jobs, Controller(CLOS, "best"), 3, changes=[(2.0, failed)])
    # One AllReduce in the whole fabric takes 2 s; with three spines two flows share a link.
    np.testing.assert_allclose(found.times.slowdown[0], [1.0, 2.0, 2.0])
    repaired = run_loop(
        CLOS, jobs, Controller(CLOS, "best"), 3, changes=[(6.0, CLOS), (2.0, failed)]
    )
    np.testing.assert_allclose(repaired.times.slowdown[0], [1.0, 2.0, 1.0])
    middle = run_loop(CLOS, jobs, Controller(CLOS, "best"), 1, changes=[(0.5, failed)])
    np.testing.assert_allclose(middle.times.slowdown[0], [1.75])


def test_counting_only_what_is_in_flight_costs_time():
    # a is silent when b arrives, so b's flows land on a's links.
    jobs = [
        RingJob("a", np.array([[0, 4], [1, 5]]), 12.5e9, 3.0, 0.0),
        RingJob("b", np.array([[2, 6], [3, 7]]), 12.5e9, 1.0, 3.0),
    ]
    with_memory = run_loop(CLOS, jobs, Controller(CLOS, "greedy"), 5)
    assert with_memory.times.worst_slowdown == pytest.approx(1.0)
    without = run_loop(CLOS, jobs, Controller(CLOS, "greedy", predict=False), 5)
    assert without.times.worst_slowdown >= with_memory.times.worst_slowdown


@pytest.mark.parametrize("seed", range(20))
def test_placing_new_flows_moves_no_other(seed):
    rng = np.random.default_rng(seed)
    source, target = rng.integers(0, 4, size=(2, 20))
    flows = Flows.of(source, target, rng.integers(0, 3, 20), rng.integers(1, 5, 20))
    clos = CLOS.with_failed_cable(0, 1, "up")
    spine = np.where(flows.crosses, rng.integers(-1, 4, 20), -1)
    found = place_new(clos, flows, spine)
    dead = flows.crosses & (flows.source_tor == 0) & (spine == 1)
    stays = flows.crosses & (spine >= 0) & ~dead
    assert np.array_equal(found[stays], spine[stays])
    assert np.array_equal(found >= 0, flows.crosses)
    assert evaluate(clos, flows, Assignment(found, "placed")).speed.min() > 0


def test_wrong_input_is_named():
    flows = flows_of(CLOS, two_jobs())
    controller = Controller(CLOS, "greedy")
    with pytest.raises(InputError, match="no NICs"):
        controller.observe(Flows.of([0], [1], [0]), 0.0)
    with pytest.raises(InputError, match="stands twice"):
        controller.observe(flows.subset([0, 0]), 0.0)
    controller.observe(flows, 5.0)
    with pytest.raises(InputError, match="order of time"):
        controller.observe(flows, 4.0)
    with pytest.raises(InputError, match="too large"):
        controller.observe(Flows.of([0], [1], [2**22], 1.0, [0], [4]), 6.0)
    for name, value in (("move_cost", -1.0), ("patience", 0.5), ("horizon", float("nan"))):
        with pytest.raises(InputError, match=name):
            Controller(CLOS, "greedy", **{name: value})
    with pytest.raises(InputError, match="unknown"):
        Controller(CLOS, "fastest").observe(flows, 0.0)
    with pytest.raises(InputError, match="instead of removing"):
        run_loop(CLOS, two_jobs(), Controller(CLOS), 1, changes=[(1.0, Clos.uniform(4, 3))])
