"""Fabrics that are rewired during the iteration, against hand-computed cases and an oracle."""

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from random_iterations import random_tasks
from varying_oracle import simulate_plainly

from codesign_base import InfeasibleError, InputError
from parallelism.taskgraph import TaskGraph, TaskKind
from topoopt.fabric import IDEAL, PACKETS, DirectCircuits, WindowedCircuits, run_circuits
from topoopt.fabric.fluid import run_fluid
from topoopt.fabric.reconfigurable import least_time
from topoopt.fabric.varying import demands_of

C, T, A = TaskKind.COMPUTE, TaskKind.TRANSFER, TaskKind.ALLREDUCE


def direct(servers, degree, delay=0.5, rate=10.0):
    return DirectCircuits("sip-ml", servers, degree, rate, 0.0, delay, IDEAL)


def windowed(servers, degree, delay=0.5, window=4.0, rate=10.0, **options):
    return WindowedCircuits(
        "ocs", servers, degree, rate, 0.0, delay, window, transport=IDEAL, **options
    )


def graph(servers, tasks, edges=(), groups=()):
    return TaskGraph.from_lists(servers, [(*t, 0.0) for t in tasks], list(edges), groups)


def without_ties(seed, count):
    """Return random tasks of which no two are of one size."""
    rng = np.random.default_rng(seed)
    tasks = random_tasks(rng, count=count)
    return replace(tasks, size=tasks.size * (1.0 + rng.random(tasks.tasks)))


def rising(run):
    """Check that every task of a run ended, none before it began."""
    assert np.isfinite(run.finish).all()
    assert (run.finish >= run.start).all()


class TestDirectCircuits:
    def test_one_port_serves_one_transfer_after_the_other(self):
        # Compute 1 s; dark 0.5 s; 10 bytes at 10 bytes/s; the port moves: dark, 10 bytes.
        tasks = graph(3, [(C, 0, -1, 1.0), (T, 0, 1, 10.0), (T, 0, 2, 10.0)], [(0, 1), (0, 2)])
        run = run_circuits(direct(3, 1), tasks, record=True)
        assert run.finish.tolist() == [1.0, 2.5, 4.0]
        assert run.moved == 2
        assert [at for at, _ in run.history] == [1.5, 2.5, 3.0, 4.0][: len(run.history)]

    def test_two_ports_serve_both_at_once(self):
        tasks = graph(3, [(T, 0, 1, 10.0), (T, 0, 2, 10.0)])
        assert run_circuits(direct(3, 2), tasks).finish.tolist() == [1.5, 1.5]

    def test_a_circuit_that_is_there_is_used_again_without_delay(self):
        tasks = graph(2, [(T, 0, 1, 10.0), (C, 1, -1, 1.0), (T, 0, 1, 5.0)], [(0, 1), (1, 2)])
        assert run_circuits(direct(2, 1), tasks).finish.tolist() == [1.5, 2.5, 3.0]

    def test_transfers_of_one_pair_share_its_circuit(self):
        tasks = graph(2, [(T, 0, 1, 10.0), (T, 0, 1, 20.0)])
        # Together until each had 10 bytes, then the longer one alone.
        assert run_circuits(direct(2, 1), tasks).finish.tolist() == [2.5, 3.5]

    def test_ports_left_over_add_circuits_to_what_would_outlast_the_delay(self):
        tasks = graph(2, [(T, 0, 1, 30.0)])
        # Three circuits at once, since 30 bytes take longer than 0.5 s on one and on two.
        assert run_circuits(direct(2, 3), tasks).finish.tolist() == [1.5]
        # 4 bytes take 0.4 s on one circuit: no more are worth waiting for.
        assert run_circuits(direct(2, 3), graph(2, [(T, 0, 1, 4.0)])).finish.tolist() == [0.9]

    def test_an_allreduce_runs_on_a_ring_of_circuits(self):
        # 2 (g - 1) / g x 30 = 40 bytes over each of three edges.
        tasks = graph(3, [(A, 0, -1, 30.0)], groups=((0, 1, 2),))
        assert run_circuits(direct(3, 1), tasks).finish.tolist() == [4.5]
        assert run_circuits(direct(3, 2), tasks).finish.tolist() == [2.5]

    def test_an_allreduce_waits_for_all_its_circuits_and_keeps_open_ports(self):
        # 0->1 holds its port until 3.5 s. The ring keeps ports of 2, which 2->0 then waits for.
        tasks = graph(
            3,
            [(T, 0, 1, 30.0), (C, 2, -1, 1.0), (A, 0, -1, 15.0), (C, 2, -1, 1.0), (T, 2, 0, 10.0)],
            [(1, 2), (3, 4)],
            ((0, 2),),
        )
        run = run_circuits(direct(3, 1), tasks)
        # The ring: dark 3.5 to 4. 2->0, which comes at 2 s, does not get the port of 2 before it
        # does, and then shares the ring's circuit: 5 bytes/s each until 6, the ring alone to 6.5.
        assert run.finish[0] == 3.5
        assert run.finish[4] == pytest.approx(6.0) and run.finish[2] == pytest.approx(6.5)

    def test_no_delay_and_enough_ports_is_a_full_mesh(self):
        rng = np.random.default_rng(4)
        size = rng.random(6) * 50
        pairs = [(i, j) for i in range(3) for j in range(3) if i != j]
        tasks = graph(3, [(T, i, j, s) for (i, j), s in zip(pairs, size, strict=True)])
        run = run_circuits(direct(3, 2, delay=0.0), tasks)
        assert run.finish.max() <= size.max() / 10.0 * (1 + 1e-12)

    @pytest.mark.parametrize("seed", range(12))
    @pytest.mark.parametrize("degree", [1, 2, 3])
    def test_it_agrees_with_the_oracle(self, seed, degree):
        tasks = without_ties(seed, count=50)
        fabric = direct(6, degree, delay=[0.0, 0.03, 0.3][seed % 3], rate=1e6)
        run = run_circuits(fabric, tasks, record=True)
        slow = simulate_plainly(fabric, tasks, True)
        rising(run)
        assert run.finish == pytest.approx(np.array(slow.finish), rel=1e-9)
        assert run.start == pytest.approx(np.array(slow.start), rel=1e-9)
        check_circuits(run.history, slow, degree)

    def test_packets_and_lags_are_those_of_a_fixed_fabric(self):
        # With as many ports as pairs and no delay nothing changes but where rates come from.
        tasks = graph(
            2, [(C, 0, -1, 1e-3), (T, 0, 1, 1e6), (A, 0, -1, 4e6)], [(0, 1), (1, 2)], ((0, 1),)
        )
        fabric = DirectCircuits("sip-ml", 2, 1, 1e9, 1e-6, 0.0, PACKETS)
        fixed = windowed(2, 1, window=1e9, rate=1e9)
        fixed = replace(fixed, latency=1e-6, transport=PACKETS)
        assert run_circuits(fabric, tasks).finish == pytest.approx(
            run_circuits(fixed, tasks).finish, rel=1e-12
        )


def check_circuits(history, slow, degree):
    """Check the recorded circuits: within the ports at all times, and those of the oracle."""
    assert history
    for _, lit in history:
        assert lit.min() >= 0
        assert lit.sum(axis=0).max() <= degree and lit.sum(axis=1).max() <= degree
    times = np.array([at for at, _ in history])
    for begin, end, lights in slow.circuits:
        if end - begin < 1e-9:
            continue
        place = int(np.searchsorted(times, 0.5 * (begin + end), side="right")) - 1
        mine = history[place][1] if place >= 0 else np.zeros_like(history[0][1])
        theirs = np.zeros_like(mine)
        for (i, j), count in lights.items():
            theirs[i, j] = count
        assert np.array_equal(mine, theirs)


class TestWindowedCircuits:
    @pytest.mark.parametrize("ports", ["directed", "bidirectional"])
    @pytest.mark.parametrize("seed", range(6))
    def test_without_a_decision_it_is_the_fixed_fabric(self, seed, ports):
        tasks = random_tasks(np.random.default_rng(seed), count=60)
        fabric = replace(windowed(6, 3, window=1e6, rate=1e6, ports=ports), transport=PACKETS)
        run = run_circuits(fabric, tasks)
        demands = demands_of(tasks, 6, PACKETS, "ocs")
        sending = np.flatnonzero(~demands.compute)
        circuits = fabric.wire(demands, sending, demands.volume[sending])
        fixed = run_fluid(fabric.fabric(circuits, demands), tasks, collapsed=False)
        assert run.moved == 0
        assert run.finish == pytest.approx(fixed.finish, rel=1e-12)
        assert np.array_equal(run.binding, fixed.binding)

    @pytest.mark.parametrize("seed", range(10))
    @pytest.mark.parametrize("degree", [1, 2])
    def test_it_agrees_with_the_oracle(self, seed, degree):
        tasks = without_ties(100 + seed, count=40)
        delay = [0.0, 0.02, 0.2][seed % 3]
        fabric = windowed(6, degree, delay, 0.25, rate=1e6)
        run = run_circuits(fabric, tasks, record=True)
        slow = simulate_plainly(fabric, tasks, False)
        rising(run)
        assert run.finish == pytest.approx(np.array(slow.finish), rel=1e-9)
        check_circuits(run.history, slow, degree)

    def test_moved_circuits_are_dark_for_the_delay(self):
        # Wired for 0->1 and 1->2 and so on as a ring; without forwarding 0->2 must wait.
        tasks = graph(3, [(T, 0, 1, 60.0), (T, 0, 2, 20.0)])
        run = run_circuits(windowed(3, 1, forwarding=False), tasks, record=True)
        # 0->1: 40 bytes until 4 s; at 20 bytes each the first one keeps the port; 6 s. At 8 s the
        # port moves to 0->2, lit at 8.5 s.
        assert run.finish.tolist() == [6.0, 10.5]
        assert [at for at, _ in run.history] == [0.0, 8.0, 8.5]
        assert run.history[1][1].sum() == 0

    def test_forwarding_goes_over_two_hops_at_once(self):
        tasks = graph(3, [(T, 0, 1, 60.0), (T, 0, 2, 20.0)])
        run = run_circuits(windowed(3, 1, window=100.0), tasks)
        # Both over 0->1: 20 bytes each, then the first alone.
        assert run.finish.tolist() == [8.0, 4.0]

    def test_circuits_that_stay_go_on(self):
        # 2->3 keeps its circuit while the port of 0 moves from 1 to 2.
        tasks = graph(4, [(T, 2, 3, 100.0), (T, 0, 1, 30.0), (T, 0, 3, 10.0), (T, 1, 0, 100.0)])
        run = run_circuits(windowed(4, 1, forwarding=False), tasks)
        assert run.finish[0] == 10.0 and run.finish[3] == 10.0

    @pytest.mark.parametrize("windows", [5, 12, 13, 14])
    def test_a_delay_of_a_whole_window_ends_with_it(self, windows):
        # 5 x 0.01 + 0.01 and 12 x 0.05 + 0.05 are more than 6 x 0.01 and 13 x 0.05 in their last
        # digit: circuits were decided anew then before they carried anything.
        for window in (0.01, 0.05):
            size = 10.0 * window
            tasks = graph(
                3,
                [(T, 0, 1, size), (C, 0, -1, (windows - 0.5) * window), (T, 0, 2, size)],
                [(1, 2)],
            )
            fabric = windowed(3, 1, window, window, forwarding=False)
            run = run_circuits(fabric, tasks, record=True)
            assert run.moved == 1
            assert run.finish[2] == pytest.approx((windows + 2) * window)

    @pytest.mark.parametrize("ports", ["directed", "bidirectional"])
    @pytest.mark.parametrize("forwarding", [True, False])
    def test_ports_are_kept_at_all_times(self, ports, forwarding):
        for seed in range(4):
            tasks = random_tasks(np.random.default_rng(seed), count=60)
            fabric = windowed(6, 2, 0.05, 0.1, rate=1e6, ports=ports, forwarding=forwarding)
            run = run_circuits(fabric, tasks, record=True)
            rising(run)
            for _, lit in run.history:
                assert lit.sum(axis=0).max() <= 2 and lit.sum(axis=1).max() <= 2
                assert ports == "directed" or np.array_equal(lit, lit.T)

    def test_no_iteration_beats_the_ports(self):
        for seed in range(6):
            tasks = random_tasks(np.random.default_rng(seed), count=60)
            for fabric in (direct(6, 2, 0.01, 1e6), windowed(6, 2, 0.01, 0.1, 1e6)):
                assert least_time(fabric, tasks) <= run_circuits(fabric, tasks).makespan


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    degree=st.integers(1, 4),
    delay=st.sampled_from([0.0, 1e-4, 0.01, 0.4]),
    on_demand=st.booleans(),
    forwarding=st.booleans(),
)
def test_ports_and_rates_bound_every_flow(seed, degree, delay, on_demand, forwarding):
    tasks = without_ties(seed, count=30)
    fabric = (
        direct(6, degree, delay, 1e6)
        if on_demand
        else windowed(6, degree, delay, max(delay, 0.1), 1e6, forwarding=forwarding)
    )
    run = run_circuits(fabric, tasks, record=True)
    rising(run)
    demands = demands_of(tasks, 6, IDEAL, "any")
    sending = ~demands.compute & (demands.volume > 0)
    # No flow has more than all ports of a server.
    least = tasks.delay + demands.volume / (degree * 1e6)
    assert (run.finish - run.start >= least * (1 - 1e-9))[sending].all()
    assert all(lit.sum(axis=side).max() <= degree for _, lit in run.history for side in (0, 1))
    # All bytes fit into the circuits that were lit while they were on their way.
    times = [at for at, _ in run.history] + [run.makespan]
    carried = sum(
        max(end - begin, 0.0) * lit.sum() * 1e6
        for begin, end, (_, lit) in zip(times[:-1], times[1:], run.history, strict=True)
    )
    edges = np.array([e.size for e in demands.edges] + [1])
    place = np.where(demands.row >= 36, demands.row - 36, -1)
    assert (demands.volume * edges[place])[sending].sum() <= carried * (1 + 1e-9)


def test_runs_repeat_bit_for_bit_and_leave_the_task_graph_alone():
    tasks = random_tasks(np.random.default_rng(1), count=80)
    before = [a.copy() for a in (tasks.predecessors, tasks.size, tasks.successors)]
    for fabric in (direct(6, 2, 0.01, 1e6), windowed(6, 2, 0.01, 0.1, 1e6)):
        one, other = run_circuits(fabric, tasks), run_circuits(fabric, tasks)
        assert np.array_equal(one.finish, other.finish)
        assert (one.moved, one.resolved) == (other.moved, other.resolved)
    after = (tasks.predecessors, tasks.size, tasks.successors)
    assert all(map(np.array_equal, before, after))


def test_a_limit_cuts_the_run_off():
    tasks = graph(2, [(T, 0, 1, 100.0)])
    for fabric in (direct(2, 1), windowed(2, 1)):
        whole = run_circuits(fabric, tasks).makespan
        assert run_circuits(fabric, tasks, limit=whole).makespan == whole
        assert run_circuits(fabric, tasks, limit=0.5 * whole).makespan == np.inf


def test_a_tolerance_keeps_times_close():
    tasks = random_tasks(np.random.default_rng(3), count=80)
    fabric = windowed(6, 3, window=1e6, rate=1e6)
    exact, rough = run_circuits(fabric, tasks).makespan, run_circuits(fabric, tasks, 0.03).makespan
    assert rough == pytest.approx(exact, rel=0.02)


CYCLE = graph(2, [(C, 0, -1, 1.0), (C, 1, -1, 1.0)], [(0, 1), (1, 0)])


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: direct(0, 1), InputError, "servers is 0"),
        (lambda: direct(2, 0), InputError, "degree is 0"),
        (lambda: direct(2, 1, rate=0.0), InputError, "bandwidth is 0.0"),
        (lambda: direct(2, 1, delay=-1.0), InputError, "reconfiguration delay is -1.0"),
        (lambda: windowed(2, 1, window=0.0), InputError, "demand window is 0.0"),
        (lambda: windowed(2, 1, delay=5.0), InputError, "shorter than the reconfiguration delay"),
        (lambda: windowed(3, 1, ports="bidirectional"), InfeasibleError, "give at least 2"),
        (lambda: run_circuits(direct(2, 1), graph(3, [(T, 0, 2, 1.0)])), InputError, "3 servers"),
        (lambda: run_circuits(direct(2, 1), graph(2, [(T, 0, 1, -1.0)])), InputError, "negative"),
        (lambda: run_circuits(direct(2, 1), CYCLE), InputError, "cycle"),
        (lambda: run_circuits(windowed(2, 1), CYCLE), InputError, "cycle"),
        (lambda: run_circuits(direct(2, 1), CYCLE, 1.5), InputError, "completion_tolerance is 1.5"),
    ],
)
def test_wrong_input_is_refused(make, error, said):
    with pytest.raises(error, match=said):
        make()
