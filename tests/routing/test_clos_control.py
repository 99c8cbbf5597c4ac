"""The control loop: what it remembers, when it re-routes, and what it costs."""

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from clos_sim_oracle import simulate_plainly

from codesign_base import InfeasibleError, InputError
from routing.clos.assignment import Assignment
from routing.clos.control import HORIZON, Controller
from routing.clos.fabric import Clos
from routing.clos.flows import ClosFlows
from routing.clos.jobs import RingJob, flows_of
from routing.clos.loop import run_loop
from routing.clos.metric import evaluate
from routing.clos.placing import place_new
from routing.clos.rings import find_rings
from routing.clos.rotation_kernels import rotate
from routing.clos.simulation import Simulation

CLOS = Clos.uniform(4, 4)


def two_jobs():
    """Two jobs that share ToRs 0 and 1; together they need all four spines."""
    return [
        RingJob("a", np.array([[0, 4], [1, 5]]), 4.0, 2.0, 0.0),
        RingJob("b", np.array([[2, 6], [3, 7]]), 2.0, 1.0, 1.0),
    ]


def test_routes_are_told_once():
    flows = flows_of(CLOS, two_jobs())
    controller = Controller(CLOS, "greedy", predict=True)
    first = controller.observe(flows, 0.0)
    assert first.decided and first.any
    assert (first.changed.size, first.moved) == (8, 0)
    assert np.array_equal(controller.spines_of(first.flows), first.spine)
    again = controller.observe(flows, 1.0)
    assert not again.decided and not again.any
    some = controller.observe(flows.subset(np.arange(3)), 2.0)
    assert not some.decided and some.flows.count == 8


def test_silent_flows_keep_their_place():
    a, b = two_jobs()
    flows = flows_of(CLOS, [a, b])
    mine, other = flows.subset(flows.job == 0), flows.subset(flows.job == 1)
    remembering = Controller(CLOS, "greedy", predict=True)
    remembering.observe(mine, 0.0)
    remembering.observe(other, 1.0)
    assert remembering.flows.count == 8
    spine = remembering.spines_of(flows)
    assert evaluate(CLOS, flows, Assignment(spine)).max_load == 1.0
    forgetful = Controller(CLOS, "greedy", predict=False)
    forgetful.observe(mine, 0.0)
    forgetful.observe(other, 1.0)
    assert forgetful.flows.count == 4


def test_what_stays_silent_too_long_is_released():
    a, b = two_jobs()
    flows = flows_of(CLOS, [a, b])
    mine, other = flows.subset(flows.job == 0), flows.subset(flows.job == 1)
    controller = Controller(CLOS, "greedy", predict=True)
    controller.observe(flows, 0.0)
    controller.observe(flows.subset(flows.job > 1), 0.5)
    controller.observe(flows, 2.0)  # both come back after 2 s: 6 s are allowed
    assert controller.observe(mine, 7.9).flows.count == 8
    gone = controller.observe(mine, 8.1)
    assert gone.flows.jobs.tolist() == [0]
    assert controller.observe(other, 9.0).changed.size == 4
    fresh = Controller(CLOS, "greedy", predict=True)
    fresh.observe(other, 0.0)  # never seen again: held for the horizon
    assert fresh.observe(mine, HORIZON - 1.0).flows.count == 8
    assert fresh.observe(mine, HORIZON + 0.5).flows.count == 4


def test_jobs_that_end_are_forgotten():
    flows = flows_of(CLOS, two_jobs())
    controller = Controller(CLOS, "greedy", predict=True)
    controller.observe(flows, 0.0)
    controller.forget([0])
    assert controller.flows.jobs.tolist() == [1]
    after = controller.observe(flows.subset(flows.job == 1), 1.0)
    assert after.decided and after.flows.count == 4
    assert (controller.spines_of(flows) >= 0).tolist() == [False] * 4 + [True] * 4


def test_a_failure_moves_the_flows_that_it_hits():
    flows = flows_of(CLOS, two_jobs()[:1])
    controller = Controller(CLOS, "greedy", predict=True, move_cost=1e9)
    before = controller.observe(flows, 0.0).spine.copy()
    dead = int(before[0])
    failed = CLOS.with_failed_spines([dead])
    changes = controller.observe(flows, 1.0, failed)
    assert changes.moved == (before == dead).sum()
    assert np.array_equal(changes.spine[before != dead], before[before != dead])
    assert not (changes.spine == dead).any()
    with pytest.raises(InfeasibleError):
        controller.observe(flows, 2.0, CLOS.with_failed_spines(range(4)))


def test_a_refused_observation_changes_nothing():
    flows = flows_of(CLOS, two_jobs())
    controller = Controller(CLOS, "greedy", predict=True)
    spine = controller.observe(flows, 0.0).spine
    broken = CLOS.with_failed_spines([0])
    twice = flows.subset(np.array([0, 0]))
    for wrong, time in ((twice, 1.0), (flows, float("nan")), (flows, -1.0)):
        with pytest.raises(InputError):
            controller.observe(wrong, time, broken)
        assert controller.clos is CLOS and controller.time == 0.0
    changes = controller.observe(flows, 1.0, broken)
    assert changes.decided and changes.moved >= (spine == 0).sum() > 0
    assert not (changes.spine == 0).any()


def test_what_had_no_route_is_decided_again():
    flows = flows_of(CLOS, two_jobs())
    controller = Controller(CLOS, "greedy", predict=True)
    controller.observe(flows.subset(flows.job == 0), 0.0)
    dead = CLOS.with_failed_spines(range(4))
    with pytest.raises(InfeasibleError):
        controller.observe(flows, 1.0, dead)
    with pytest.raises(InfeasibleError):  # and not: nothing is new, so nothing is to be done
        controller.observe(flows, 2.0, dead)
    changes = controller.observe(flows, 3.0, CLOS)
    assert changes.decided and (changes.spine >= 0).all()
    assert not controller.observe(flows, 4.0, CLOS).decided


def test_moving_must_pay():
    # Random routes are drawn anew; when a leaves, b's flows need not move: at a price they stay.
    flows = flows_of(CLOS, two_jobs())
    for cost in (0.0, 1e6):
        controller = Controller(CLOS, "random", seed=3, move_cost=cost)
        controller.observe(flows, 0.0)
        controller.forget([0])
        changes = controller.observe(flows.subset(flows.job == 1), 1.0)
        assert (changes.moved > 0) == (cost == 0.0)


def test_a_price_of_moves_does_not_make_ecmp_look_at_loads():
    flows = flows_of(CLOS, two_jobs())
    spines = []
    for cost in (0.0, 1.0):
        controller = Controller(CLOS, "ecmp", move_cost=cost)
        controller.observe(flows.subset(flows.job == 0), 0.0)
        controller.observe(flows, 1.0)
        spines.append(controller.spines_of(flows).tolist())
    assert spines[0] == spines[1]


def test_the_loop_equals_the_plain_simulator():
    jobs = two_jobs()
    flows = flows_of(CLOS, jobs)
    controller = Controller(CLOS, "ecmp", predict=True)
    found = run_loop(CLOS, jobs, controller, 3)
    again = Controller(CLOS, "ecmp", predict=True)
    again.observe(flows, 0.0)
    start, end, _ = simulate_plainly(CLOS, jobs, again.spines_of(flows), 3, 12.5e9)
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

    def run(epochs, changes, rotate=False):
        controller = Controller(CLOS, "best", rotate=rotate)
        return run_loop(CLOS, jobs, controller, epochs, changes=changes).times.slowdown[0]

    # One AllReduce in the whole fabric takes 2 s; with three spines two flows share a link.
    np.testing.assert_allclose(run(3, [(2.0, failed)]), [1.0, 2.0, 2.0])
    np.testing.assert_allclose(run(3, [(6.0, CLOS), (2.0, failed)]), [1.0, 2.0, 1.0])
    np.testing.assert_allclose(run(1, [(0.5, failed)]), [1.75])


def test_rotation_spreads_what_a_failure_costs():
    # Two of four rings share a link. They do so for one of two steps each, then the others; no
    # schedule can be faster than 4 / 3.
    jobs = [RingJob("a", np.array([[0, 4], [1, 5], [2, 6], [3, 7]]), 12.5e9, 1.0)]
    failed = CLOS.with_failed_spines([0])
    controller = Controller(failed, "best")
    found = run_loop(failed, jobs, controller, 3)
    assert found.moved > 0
    slow = found.times.slowdown[0]
    assert np.all((slow > 4 / 3) & (slow <= 1.5)), slow
    static = run_loop(failed, jobs, Controller(failed, "best", rotate=False), 3)
    np.testing.assert_allclose(static.times.slowdown[0], 2.0)


def test_moves_cost_the_time_that_they_are_said_to_take():
    jobs = [RingJob("a", np.array([[0, 4], [1, 5], [2, 6], [3, 7]]), 12.5e9, 1.0)]
    failed = CLOS.with_failed_spines([0])

    def run(cost):
        found = run_loop(failed, jobs, Controller(failed, "best", move_cost=cost), 3)
        return found.times.slowdown[0], found.moved

    free, moves = run(0.0)
    slow, fewer = run(0.05)
    assert 0 < fewer <= moves
    assert np.all(slow > free) and np.all(slow < 2.0)
    # Where a move costs as much as it gains, nothing moves.
    static, none = run(1.0)
    assert none == 0
    np.testing.assert_allclose(static, 2.0)
    # With a spine to spare, what a failure moves is late by just that time.
    jobs, times = [RingJob("a", np.array([[0, 4], [1, 5], [2, 6]]), 12.5e9, 1.0)], []
    for spine in range(4):
        controller = Controller(CLOS, "best", move_cost=0.25)
        change = [(0.5, CLOS.with_failed_spines([spine]))]
        found = run_loop(CLOS, jobs, controller, 2, changes=change)
        times.append(found.times.allreduce_time[0].tolist())
        assert times[-1] == pytest.approx([2.25 if found.moved else 2.0, 2.0])
    assert sum(first > 2.0 for first, _ in times) >= 3
    with pytest.raises(InputError, match=r"move_cost is 0\.1 s and no floor"):
        Controller(CLOS, "best", move_cost=0.1).balance(np.zeros(0))


@pytest.mark.parametrize("method", ["greedy", "ecmp", "edge-coloring"])
def test_flows_that_come_back_after_their_spine_failed_are_late_by_a_move(method):
    # One spine fails while the job computes, later the other. Flows that no longer have a route
    # are forgotten then, and begin the next AllReduce on a dead link before they are moved.
    clos = Clos.uniform(2, 2)
    jobs = [RingJob("a", np.array([[0, 2]]), 1.0, 10.0)]
    changes = [(5.0, clos.with_failed_spines([0])), (16.0, clos.with_failed_spines([1]))]
    controller = Controller(clos, method, move_cost=0.25)
    found = run_loop(clos, jobs, controller, 3, changes=changes, nic_rate=1.0)
    first, second, third = found.times.allreduce_time[0].tolist()
    assert (first, third) == pytest.approx((2.0, 2.25))
    assert second == pytest.approx(2.25) or method == "ecmp"
    assert found.moved == 2 * ((second > 2.0) + (third > 2.0))  # both flows of the ring
    free = run_loop(clos, jobs, Controller(clos, method), 3, changes=changes, nic_rate=1.0)
    assert free.times.allreduce_time[0] == pytest.approx([2.0] * 3)
    assert free.moved == found.moved


@pytest.mark.parametrize("seed", range(12))
def test_rotation_is_exact_and_changes_no_load(seed):
    """Every exchange is simulated by the plain simulator too, at the times at which it happened."""
    rng = np.random.default_rng(seed)
    clos = Clos.uniform(4, 6).with_failed_spines(range(int(rng.integers(1, 4))))
    nics = rng.permutation(4)[:, None] * 6 + np.arange(6)
    size = int(rng.integers(2, 5))
    jobs = [
        RingJob("a", nics[:size, :4].T, 5.0, 1.0, 0.0),
        RingJob("b", nics[:2, 4:].T, 3.0, 0.5, float(rng.uniform(0, 4))),
    ]
    flows = flows_of(clos, jobs)
    history = []

    class Noted(Controller):
        def balance(self, left, floor=None):
            found = super().balance(left, floor)
            if found.size:
                self.note()
            return found

        def observe(self, seen, time, clos=None):
            found = super().observe(seen, time, clos)
            self.note()
            return found

        def note(self):
            history.append(self.spines_of(flows))

    times = []
    original = Simulation.exchange
    set_routes = Simulation.set_routes

    def exchange(self, movers, spine):
        times.append((self.time, spine.copy()))
        original(self, movers, spine)

    def noted_routes(self, fabric, spine, present):
        times.append((self.time, np.array(spine)))
        set_routes(self, fabric, spine, present)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Simulation, "exchange", exchange)
        patch.setattr(Simulation, "set_routes", noted_routes)
        found = run_loop(clos, jobs, Noted(clos, "best"), 2, nic_rate=1.0)
    loads = [evaluate(clos, flows, Assignment(h)).max_load for h in history if h.min() >= 0]
    assert max(loads) <= 2.0 + 1e-9
    start, end, _ = simulate_plainly(
        clos, jobs, times[0][1], 2, 1.0, [(t, clos, s) for t, s in times]
    )
    for j in range(2):
        np.testing.assert_allclose(found.times.start[j], start[j], rtol=1e-8)
        np.testing.assert_allclose(found.times.end[j], end[j], rtol=1e-8)


def test_counting_only_what_is_in_flight_costs_time():
    # a is silent when b arrives, so b's flows land on a's links.
    jobs = [
        RingJob("a", np.array([[0, 4], [1, 5]]), 12.5e9, 3.0, 0.0),
        RingJob("b", np.array([[2, 6], [3, 7]]), 12.5e9, 1.0, 3.0),
    ]
    with_memory = run_loop(CLOS, jobs, Controller(CLOS, "greedy", predict=True), 5)
    assert with_memory.times.worst_slowdown == pytest.approx(1.0)
    without = run_loop(CLOS, jobs, Controller(CLOS, "greedy", predict=False), 5)
    assert without.times.worst_slowdown >= with_memory.times.worst_slowdown


@pytest.mark.parametrize("seed", range(20))
def test_placing_new_flows_moves_no_other(seed):
    rng = np.random.default_rng(seed)
    source, target = rng.integers(0, 4, size=(2, 20))
    flows = ClosFlows.of(source, target, rng.integers(0, 3, 20), rng.integers(1, 5, 20))
    clos = CLOS.with_share(0, 1, 0.0, "up")
    spine = np.where(flows.crosses, rng.integers(-1, 4, 20), -1)
    found = place_new(clos, flows, spine)
    dead = flows.crosses & (flows.source_tor == 0) & (spine == 1)
    stays = flows.crosses & (spine >= 0) & ~dead
    assert np.array_equal(found[stays], spine[stays])
    assert np.array_equal(found >= 0, flows.crosses)
    assert evaluate(clos, flows, Assignment(found)).speed.min() > 0


def plain_rotate(classes, left, speed, spine, least, floor, cost):
    """The rule of the kernel, in plain lists; returns new spines and speeds."""
    speed, spine = dict(speed), list(spine)
    for rows in classes:
        if max(left[r] for r, _ in rows) - min(left[r] for r, _ in rows) < least:
            continue
        done = set()
        fastest = max(speed[r] for r, _ in rows)
        while True:
            slow = [(-left[r], speed[r], i) for i, (r, _) in enumerate(rows)
                    if r not in done and speed[r] != fastest]  # fmt: skip
            if not slow:
                break
            behind, flows = rows[min(slow)[2]]
            done.add(behind)
            fast = [(-speed[r], left[r], i) for i, (r, _) in enumerate(rows)
                    if r not in done and speed[r] > speed[behind]
                    and left[r] <= left[behind] - least]  # fmt: skip
            if fast:
                ahead, others = rows[min(fast)[2]]
                stay = max(left[behind] / speed[behind], left[ahead] / speed[ahead])
                swap = max(left[behind] / speed[ahead], left[ahead] / speed[behind])
                if (stay - swap) * floor[behind] <= cost:
                    continue
                speed[behind], speed[ahead] = speed[ahead], speed[behind]
                for f, g in zip(flows, others, strict=True):
                    spine[f], spine[g] = spine[g], spine[f]
    return spine, speed


@pytest.mark.parametrize("seed", range(60))
def test_the_rotation_kernel_equals_the_plain_rule(seed):
    rng = np.random.default_rng(seed)
    jobs = [RingJob("a", rng.permutation(40)[: 4 * 5].reshape(5, 4), 1.0)] if seed % 3 == 0 else [
        RingJob("a", np.arange(4)[:, None] + 8 * rng.permutation(5)[:3], 1.0),
        RingJob("b", np.arange(4, 8)[:, None] + 8 * rng.permutation(5)[:2], 1.0),
    ]  # fmt: skip
    flows = flows_of(Clos.uniform(5, 8), jobs)
    rings = find_rings(flows)
    left = rng.choice([0.0, 0.25, 0.5, 0.75], size=rings.count)
    speed = rng.choice([0.5, 0.75, 1.0], size=rings.count)
    spine = rng.integers(0, 8, flows.count)
    listed = [[(int(rings.ring[row[0]]), row.tolist()) for row in rows] for rows in rings.alike]
    floor = rng.choice([0.5, 2.0], size=rings.count)
    cost = float(rng.choice([0.0, 0.3, 1.0]))
    expected, speeds = plain_rotate(
        listed, left, dict(enumerate(speed.tolist())), spine.tolist(), 0.1, floor, cost
    )
    table = rings.table
    movers = np.empty(2 * table[3].size, dtype=np.int64)
    found = spine.copy()
    count = rotate(*table, left[rings.ring], speed, found, 0.1, floor[rings.ring], cost, movers)
    assert found.tolist() == expected
    assert speed.tolist() == [speeds[r] for r in range(rings.count)]
    assert set(np.flatnonzero(found != spine)) <= set(movers[:count].tolist())
    for rows in rings.alike:  # what is exchanged keeps every link's load
        for column in rows.T:
            assert sorted(found[column]) == sorted(spine[column])
            assert len(set(flows.source_tor[column].tolist())) == 1
            assert len(set(flows.target_tor[column].tolist())) == 1


def test_rings_are_found_in_flows():
    clos = Clos.uniform(4, 4)
    jobs = [*two_jobs(), RingJob("c", np.array([[8, 12], [13, 9]]), 1.0)]
    flows = flows_of(clos, jobs)
    rings = find_rings(flows)
    assert rings.count == 6
    for job in range(3):
        for ring in range(2):
            first = 4 * job + 2 * ring
            assert rings.ring[first] == rings.ring[first + 1]
    # The rings of c begin at different ToRs, but pass them in the same order.
    assert sorted(rows.shape for rows in rings.alike) == [(2, 2)] * 3
    assert {tuple(sorted(rows.ravel().tolist())) for rows in rings.alike} == {
        (0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11),
    }  # fmt: skip
    part = find_rings(flows.subset([0, 2, 3]))
    assert part.ring.tolist() in ([0, 1, 1], [1, 0, 0])
    assert find_rings(flows.subset(flows.job > 9)).count == 0


def test_wrong_input_is_named():
    flows = flows_of(CLOS, two_jobs())
    controller = Controller(CLOS, "greedy", predict=True)
    with pytest.raises(InputError, match="no NICs"):
        controller.observe(ClosFlows.of([0], [1], [0]), 0.0)
    with pytest.raises(InputError, match="occurs twice"):
        controller.observe(flows.subset([0, 0]), 0.0)
    controller.observe(flows, 5.0)
    with pytest.raises(InputError, match="order of time"):
        controller.observe(flows, 4.0)
    with pytest.raises(InputError, match="too large"):
        controller.observe(ClosFlows.of([0], [1], [2**22], 1.0, [0], [4]), 6.0)
    for value in (-1.0, float("nan")):
        with pytest.raises(InputError, match="move_cost"):
            Controller(CLOS, "greedy", move_cost=value)
    with pytest.raises(InputError, match="unknown"):
        Controller(CLOS, "fastest").observe(flows, 0.0)
    with pytest.raises(InputError, match="instead of removing"):
        run_loop(CLOS, two_jobs(), Controller(CLOS), 1, changes=[(1.0, Clos.uniform(4, 3))])


@pytest.mark.parametrize("seed", range(40))
def test_rings_equal_those_of_plain_walks(seed):
    rng = np.random.default_rng(seed)
    clos = Clos.uniform(4, 6)
    order, jobs = rng.permutation(24), []
    while order.size >= 6 and len(jobs) < 3:
        rows, columns = (2, 3) if rng.random() < 0.5 else (3, 2)
        jobs.append(RingJob("a", order[:6].reshape(rows, columns), float(rng.integers(1, 3))))
        order = order[6:]
    flows = flows_of(clos, jobs)
    flows = flows.subset(rng.permutation(flows.count)[: int(rng.integers(1, flows.count + 1))])
    found = find_rings(flows)
    hop = list(zip(flows.job.tolist(), flows.source_nic.tolist(), flows.target_nic.tolist(),
                   strict=True))  # fmt: skip
    graph = nx.Graph()
    graph.add_nodes_from(range(flows.count))
    graph.add_edges_from(
        (f, g) for f, (job, _, end) in enumerate(hop) for g, (other, begin, _) in enumerate(hop)
        if job == other and end == begin
    )  # fmt: skip
    parts = {frozenset(part) for part in nx.connected_components(graph)}
    assert {frozenset(np.flatnonzero(found.ring == r)) for r in range(found.count)} == parts
    tors = [(int(flows.job[f]), float(flows.bytes_[f]), int(flows.source_tor[f]),
             int(flows.target_tor[f])) for f in range(flows.count)]  # fmt: skip
    for rows in found.alike:
        assert {frozenset(row.tolist()) for row in rows} <= parts
        for row in rows:
            assert [tors[f] for f in row] == [tors[f] for f in rows[0]]
            ends = [hop[f] for f in row]
            assert all(a[2] == b[1] for a, b in pairwise(ends))
