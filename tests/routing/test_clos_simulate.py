"""The compiled simulator of ring AllReduces against a plain one, closed forms and the metric."""

import numpy as np
import pytest
from clos_sim_oracle import (
    capacities,
    fair_rates,
    path,
    random_case,
    random_spines,
    simulate_plainly,
)
from numba import njit

from codesign_base import InfeasibleError, InputError
from routing.clos.fabric import Clos
from routing.clos.jobs import RingJob, flows_of, ring_flow_bytes
from routing.clos.levels_kernels import limit, relax
from routing.clos.run_kernels import CAP, ROOM, Rates
from routing.clos.simulation import NIC_RATE, Simulation, Stop

GBPS_100 = 100e9 / 8


def simulate(clos, jobs, spine, epochs, nic_rate=NIC_RATE):
    """Simulate jobs whose routes stay as they are."""
    simulation = Simulation(clos, jobs, epochs, nic_rate)
    simulation.set_routes(clos, spine, np.ones(len(jobs), dtype=bool))
    while simulation.run() != Stop.FINISHED:
        pass
    return simulation.result()


@pytest.mark.parametrize("seed", range(120))
def test_equals_the_plain_simulator(seed):
    rng = np.random.default_rng(seed)
    clos, jobs, _, spine = random_case(rng)
    epochs = int(rng.integers(1, 4))
    start, end, flow_times = simulate_plainly(clos, jobs, spine, epochs, 1.0)
    found = simulate(clos, jobs, spine, epochs, nic_rate=1.0)
    for j, job in enumerate(jobs):
        np.testing.assert_allclose(found.start[j], start[j], rtol=1e-8)
        np.testing.assert_allclose(found.end[j], end[j], rtol=1e-8)
        first = sum(other.flows for other in jobs[:j])
        expected = np.array(flow_times[first : first + job.flows]).T
        np.testing.assert_allclose(
            found.flow_times[j].reshape(-1, job.flows), expected, rtol=1e-6, atol=1e-8
        )


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("hold", [0.0, 0.7])
def test_routes_may_change_on_the_way(seed, hold):
    rng = np.random.default_rng(1000 + seed)
    clos, jobs, flows, spine = random_case(rng)
    later = clos.with_share(0, 0, 0.5, "up")
    other = random_spines(rng, later, flows)
    when = float(rng.uniform(0, 12))
    movers = np.flatnonzero(rng.random(flows.count) < 0.5)
    held = dict.fromkeys(movers.tolist(), when + hold)
    start, end, _ = simulate_plainly(clos, jobs, spine, 2, 1.0, (when, later, other, held))
    simulation = Simulation(clos, jobs, 2, 1.0)
    everyone = np.ones(len(jobs), dtype=bool)
    simulation.set_routes(clos, spine, everyone)
    while simulation.run(when) not in (Stop.TIME, Stop.FINISHED):
        pass
    simulation.set_routes(later, other, everyone)
    simulation.hold(movers, hold)
    while simulation.run(pause=True) != Stop.FINISHED:
        simulation.set_routes(later, other, everyone)
    found = simulation.result()
    assert simulation.time >= when
    for j in range(len(jobs)):
        np.testing.assert_allclose(found.start[j], start[j], rtol=1e-8)
        np.testing.assert_allclose(found.end[j], end[j], rtol=1e-8)


@njit
def fixed_point(links, rates):
    relax(links, 0, rates)
    return [limit(f, -1, rates) for f in range(rates.flow.shape[1])]


@pytest.mark.parametrize("seed", range(100))
def test_rates_are_max_min_fair(seed):
    rng = np.random.default_rng(seed)
    flows, links = int(rng.integers(1, 40)), int(rng.integers(1, 20))
    room = rng.choice([0.5, 1.0, 1.5, 3.0], size=links)
    names = np.full((flows, 4), -1, dtype=np.int32)
    for f in range(flows):
        chosen = rng.choice(links, size=min(links, int(rng.integers(0, 5))), replace=False)
        names[f, : chosen.size] = chosen
    paths = [[int(x) for x in row if x >= 0] for row in names]
    members = [[f for f in range(flows) if link in paths[f]] for link in range(links)]
    begin = np.cumsum([0, *map(len, members)])
    flow, mark = np.zeros((8, flows)), np.zeros((5, flows), dtype=np.int64)
    link = np.full((2, links), np.inf)
    flow[CAP], link[ROOM] = 1.0, room
    rates = Rates(
        flow, mark, link, names, begin, np.concatenate(members).astype(np.int32),
        np.arange(links + 1), np.ones(links, dtype=np.bool_), np.zeros(3, dtype=np.int64),
    )  # fmt: skip
    found = fixed_point(links, rates)
    expected = fair_rates(paths, dict(enumerate(room.tolist())), 1.0)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_larger_case_equals_the_plain_simulator():
    rng = np.random.default_rng(5)
    clos = Clos.uniform(6, 5).with_failed_spines([1])
    order = rng.permutation(30)
    jobs = [
        RingJob("a", order[:12].reshape(4, 3), 5.0, 2.0, 0.5),
        RingJob("b", order[12:28].reshape(4, 4), 3.0, 1.0, 0.0),
    ]
    spine = random_spines(rng, clos, flows_of(clos, jobs))
    start, end, _ = simulate_plainly(clos, jobs, spine, 3, 1.0)
    found = simulate(clos, jobs, spine, 3, nic_rate=1.0)
    for j in range(2):
        np.testing.assert_allclose(found.start[j], start[j], rtol=1e-8)
        np.testing.assert_allclose(found.end[j], end[j], rtol=1e-8)


@pytest.mark.parametrize(
    ("parameters", "group", "floors"),
    [
        (176e9, 48, (1.173, 1.760, 2.053)),
        (175e9, 64, (0.875, 1.313, 1.531)),
        (70e9, 128, (0.175, 0.263, 0.306)),
    ],
)
def test_uncongested_floors(parameters, group, floors):
    clos = Clos.uniform(64, 32)
    for replicas, published in zip((2, 4, 8), floors, strict=True):
        size = ring_flow_bytes(4 * parameters, group, replicas)
        exact = 2 * (replicas - 1) * 8 * size / 100 * 1e-9
        # One replica a pair of ToRs, ring i over spine i mod 32: no link carries two flows.
        nics = np.arange(group)[:, None] + 128 * np.arange(replicas)
        job = RingJob("job", nics, size, 0.1)
        assert job.floor(GBPS_100) == pytest.approx(exact, rel=1e-15)
        spine = np.repeat(np.arange(group) % 32, replicas)
        found = simulate(clos, [job], spine, 3)
        assert found.allreduce_time[0] == pytest.approx(exact, rel=1e-12)
        assert round(exact + 1e-12, 3) == published
        assert found.worst_slowdown == pytest.approx(1.0, rel=1e-12)


def test_a_shared_link_halves_the_speed_of_both():
    clos = Clos.uniform(2, 2)
    job = RingJob("job", np.array([[0, 2], [1, 3]]), 1.0)
    apart = simulate(clos, [job], [0, 0, 1, 1], 2, nic_rate=1.0)
    together = simulate(clos, [job], [0, 0, 0, 0], 2, nic_rate=1.0)
    assert apart.mean_slowdown == pytest.approx(1.0)
    assert together.mean_slowdown == pytest.approx(2.0)
    assert together.p99_slowdown == pytest.approx(2.0)


def test_flows_that_wait_at_a_barrier_leave_their_link_to_others():
    # Job b's flow has job a's link for itself while a waits for its other flow.
    clos = Clos.uniform(3, 1, nics_per_tor=2)
    a = RingJob("a", np.array([[0, 2]]), 2.0)
    b = RingJob("b", np.array([[1, 4]]), 1.0)
    found = simulate(clos, [a, b], [0, 0, 0, 0], 1, nic_rate=1.0)
    _, end, _ = simulate_plainly(clos, [a, b], [0, 0, 0, 0], 1, 1.0)
    assert found.end[0] == pytest.approx(end[0])
    assert found.end[1] == pytest.approx(end[1])


def test_paths_of_the_oracle_name_what_the_fabric_has():
    clos = Clos.uniform(2, 3)
    room = capacities(clos, 2.0)
    assert all(room[link] == 2.0 for link in path(clos, 0, 5, 2))


def test_wrong_input_is_named():
    clos = Clos.uniform(2, 2)
    job = RingJob("job", np.array([[0, 2]]), 1.0)
    with pytest.raises(InputError, match="at least one"):
        simulate(clos, [], [], 1)
    with pytest.raises(InputError, match="has no spine"):
        simulate(clos, [job], [0, -1], 1)
    with pytest.raises(InputError, match="epochs is 0"):
        simulate(clos, [job], [0, 0], 0)
    with pytest.raises(InputError, match="nic_rate"):
        simulate(clos, [job], [0, 0], 1, nic_rate=0.0)
    with pytest.raises(InputError, match="give fewer epochs"):
        simulate(clos, [job], [0, 0], 10**12)
    # Between two epochs the clock would not move, and AllReduces would take no time.
    late = RingJob("late", np.array([[0, 2]]), 1.0, start_time=1e300)
    slow = RingJob("slow", np.array([[0, 2]]), 1.0, compute_time=1e20)
    for far in (late, slow):
        with pytest.raises(InputError, match="too far apart"):
            simulate(clos, [far], [0, 0], 1, nic_rate=1.0)
    dead = clos.with_failed_spines([0])
    with pytest.raises(InfeasibleError, match="no capacity"):
        simulate(dead, [job], [0, 0], 1)
