"""The numbers of a simulated iteration, against definitions applied instant by instant."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from fabric_oracle import circulant, star
from random_iterations import random_tasks

from parallelism.taskgraph import TaskGraph, TaskKind
from routing.merging import merge_equivalent_links
from topoopt.fabric import PACKETS, Fabric, critical_path, link_bytes, simulate
from topoopt.fabric.report import device_uses, report_of
from topoopt.topology.fabrics import fat_tree, ideal_switch

C, T, A = TaskKind.COMPUTE, TaskKind.TRANSFER, TaskKind.ALLREDUCE


def by_instants(tasks, timeline):
    """Busy, exposed communication and waiting for compute of each device, interval by interval."""
    start, finish, binding = timeline.start, timeline.finish, timeline.binding
    moments = np.unique(np.concatenate(([0.0], start, finish)))
    path = critical_path(tasks, timeline)
    found = np.zeros((tasks.devices, 3))
    for device in range(tasks.devices):
        own = np.flatnonzero((tasks.kind == C) & (tasks.first == device))
        for a, b in pairwise(moments):
            middle = (a + b) / 2
            if np.any((start[own] <= middle) & (middle < finish[own])):
                found[device, 0] += b - a
                continue
            later = own[start[own] > middle]
            at = int(binding[later[np.argmin(start[later])]]) if later.size else path[-1]
            while not start[at] <= middle:
                at = int(binding[at])
            assert middle < finish[at], "the chain has a gap"
            found[device, 1 if tasks.kind[at] != C else 2] += b - a
    return found


@pytest.mark.parametrize("model", ["fluid", "packet"])
@pytest.mark.parametrize("seed", range(12))
def test_devices_wait_for_what_is_under_way(seed, model):
    tasks = random_tasks(np.random.default_rng(seed))
    fabric = replace(circulant(6, (1, 2), capacity=1e6, latency=1e-3), transport=PACKETS)
    timeline = simulate(fabric, tasks, model=model)
    uses = device_uses(tasks, timeline)
    expected = by_instants(tasks, timeline)
    found = [(u.busy_s, u.exposed_communication_s, u.waiting_compute_s) for u in uses]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * timeline.makespan)
    np.testing.assert_allclose(np.sum(found, axis=1), timeline.makespan, rtol=1e-9)
    assert [u.device for u in uses] == [u.server for u in uses] == list(range(6))


def test_a_device_waits_for_a_transfer_and_for_another_device():
    """Device 0 computes 2 s, sends 3 s, device 1 computes 1 s, and nothing else happens."""
    tasks = TaskGraph.from_lists(
        2, [(C, 0, -1, 2.0, 0.0), (T, 0, 1, 3.0, 0.0), (C, 1, -1, 1.0, 0.0)], [(0, 1), (1, 2)]
    )
    first, second = device_uses(tasks, simulate(circulant(2, (1,)), tasks))
    assert (first.busy_s, first.exposed_communication_s, first.waiting_compute_s) == (2, 3, 1)
    assert (second.busy_s, second.exposed_communication_s, second.waiting_compute_s) == (1, 3, 2)


def test_bandwidth_tax_counts_what_servers_send():
    """Over a one-way ring of four, three links lead to the server before; over a switch one."""
    tasks = TaskGraph.from_lists(4, [(T, 0, 3, 5.0, 0.0), (T, 0, 1, 5.0, 0.0)], [])
    ring = circulant(4, (1,))
    report = report_of(ring, tasks, simulate(ring, tasks))
    assert report.bandwidth_tax == pytest.approx(2.0)
    assert (report.transfer_bytes, report.allreduce_bytes) == (10.0, 0.0)
    hub = star(4)
    assert report_of(hub, tasks, simulate(hub, tasks)).bandwidth_tax == pytest.approx(1.0)
    reduce = TaskGraph.from_lists(4, [(A, 0, -1, 8.0, 0.0)], [], ((0, 1, 2, 3),))
    report = report_of(ring, reduce, simulate(ring, reduce))
    assert report.bandwidth_tax == pytest.approx(1.0)
    assert report.allreduce_bytes == 2 * 3 * 8.0


def test_links_and_the_hottest_of_them():
    tasks = TaskGraph.from_lists(4, [(T, 0, 2, 6.0, 0.0), (T, 1, 2, 2.0, 0.0)], [])
    ring = circulant(4, (1,), capacity=2.0)
    timeline = simulate(ring, tasks)
    report = report_of(ring, tasks, timeline)
    assert [(u.source, u.target) for u in report.links] == [(0, 1), (1, 2), (2, 3), (3, 0)]
    assert [u.bytes for u in report.links] == [6.0, 8.0, 0.0, 0.0]
    assert report.links[1].utilisation == pytest.approx(8.0 / (2.0 * timeline.makespan))
    # What carries nothing is not hot.
    assert [u.link for u in report.hottest(9)] == [1, 0]
    assert [u.link for u in report.hottest(1)] == [1]


def test_completion_percentiles_are_times_that_occur():
    sizes = [float(s) for s in range(1, 201)]
    tasks = TaskGraph.from_lists(
        2, [(T, 0, 1, s, 0.0) for s in sizes], [(i, i + 1) for i in range(199)]
    )
    timeline = simulate(circulant(2, (1,)), tasks)
    found = report_of(circulant(2, (1,)), tasks, timeline).transfers
    lasted = np.sort(timeline.finish - timeline.start)
    assert found.tasks == 200
    assert (found.p50_s, found.p90_s, found.p99_s, found.max_s) == tuple(
        lasted[[99, 179, 197, 199]]
    )


def test_allreduces_of_one_server_or_no_bytes_do_not_count_as_communication():
    tasks = TaskGraph.from_lists(
        2, [(A, 0, -1, 8.0, 0.5), (A, 1, -1, 8.0, 0.5), (A, 1, -1, 0.0, 0.5)], [], ((0,), (0, 1))
    )
    fabric = circulant(2, (1,))
    report = report_of(fabric, tasks, simulate(fabric, tasks))
    assert report.allreduces.tasks == 1
    # With its delay inside the servers.
    assert report.allreduces.max_s == pytest.approx(0.5 + 8.0)


def test_merged_links_are_reported_as_the_real_ones():
    rng = np.random.default_rng(3)
    network, routes = fat_tree(16, 1e6, 1e-6)
    whole = Fabric("fat-tree", network, routes)
    merged = Fabric("merged", *merge_equivalent_links(network, routes)[:2])
    tasks = random_tasks(rng, count=60)
    timeline = simulate(merged, tasks)
    report = report_of(whole, tasks, timeline, link_bytes(whole, tasks))
    direct = report_of(whole, tasks, simulate(whole, tasks))
    assert report.makespan_s == pytest.approx(direct.makespan_s, rel=1e-9)
    assert len(report.links) == network.links
    np.testing.assert_allclose([u.bytes for u in report.links], [u.bytes for u in direct.links])
    assert report.bandwidth_tax == pytest.approx(1.0)


def test_nothing_to_do():
    tasks = TaskGraph.from_lists(2, [], [])
    fabric = Fabric("switch", *ideal_switch(2, 1.0, 0.0))
    report = report_of(fabric, tasks, simulate(fabric, tasks))
    assert report.makespan_s == 0.0
    assert report.transfers.tasks == report.allreduces.tasks == 0
    assert report.hottest(5) == ()
    assert report.bandwidth_tax == 1.0
    assert [u.busy_s for u in report.devices] == [0.0, 0.0]
