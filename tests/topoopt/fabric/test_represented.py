"""One task of each kind against the whole task graph: times, bytes and bounds are the same."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from same_tasks import check_on, check_traffic

from parallelism.taskgraph import TaskKind, traffic_of
from parallelism.transformers.choices import Choices
from parallelism.transformers.implementation import get_stack
from parallelism.transformers.placed_tasks import iteration_tasks
from parallelism.transformers.presets import get_transformer
from parallelism.transformers.reduced import reduced_tasks
from parallelism.transformers.schedules import schedule_of
from routing.merging import merge_equivalent_links
from topoopt.evaluate.routed import direct_fabric
from topoopt.fabric.circuits import DirectCircuits
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.reconfigurable import least_time
from topoopt.fabric.represented import tasks_over, tasks_within, whole_size, whole_tasks
from topoopt.fabric.transport import IDEAL
from topoopt.problem.job import Job, nvlink_server
from topoopt.topology.fabrics import fat_tree, ideal_switch, merged_fat_tree, random_regular
from topoopt.topology.finder import find_topology

LAG = 1e-6
# Of the data group's messages, stacks hide all, half or none behind passes.
JOBS = [
    ("llama3-8b", 4, 48, 8, "megatron-core"),
    ("llama3-8b", 4, 48, 8, "fsdp1"),
    ("mixtral-8x7b", 6, 96, 4, "megatron-2022"),
    ("mixtral-8x7b", 8, 64, 8, "megatron-core"),
    ("mixtral-8x7b", 8, 64, 8, "megatron-moe"),
    ("nemotron-h-8b", 4, 8, 4, "megatron-core"),
]
MOST = 4000


def family(job):
    name, servers, batch, gpus, stack = job
    server = nvlink_server("h100", gpus)
    return Job(
        get_transformer(name),
        server=server,
        global_batch=batch,
        implementation=get_stack(stack),
        choices=Choices(zero=(1, 2, 3), replicate=(1, 2)),
    ).family(servers)


@pytest.fixture(scope="module")
def families():
    return [family(job) for job in JOBS]


def fabrics(servers, traffic):
    return [
        Fabric("ideal", *ideal_switch(servers, 4e11, LAG), {}),
        Fabric("tree", *merge_equivalent_links(*fat_tree(servers, 1e11, LAG))[:2], {}),
        Fabric(
            "random", *random_regular(servers, 3, 5e10, LAG, np.random.default_rng(servers)), {}
        ),
        direct_fabric(find_topology(traffic, 4, 5e10, latency=LAG)),
    ]


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_one_of_each_kind_takes_the_time_of_all(data, families):
    own = data.draw(st.sampled_from(families))
    layout = data.draw(st.sampled_from(own.layouts()))
    placement = data.draw(st.sampled_from(own.placements(layout)))
    schedule = schedule_of(layout, own.batch)
    assume(schedule.passes.shape[1] * placement.rank.size <= MOST)
    loads = own.loads(placement)
    whole = iteration_tasks(placement, schedule, loads)
    reduced = reduced_tasks(placement, schedule, loads)
    assume(reduced is not None)  # little of some layouts is alike
    assert reduced.tasks <= whole.tasks
    np.testing.assert_array_equal(whole_tasks(reduced).size, whole.size)
    assert whole_size(reduced) == whole.tasks == whole_size(whole)
    check_traffic(whole, reduced)
    for fabric in fabrics(own.servers, traffic_of(whole)):
        over = tasks_over(fabric, reduced)
        assert tasks_over(fabric, over) is over or over.alike is None
        within = tasks_within(fabric, reduced, over.tasks)
        assert within is not None and within.tasks == over.tasks
        assert tasks_within(fabric, reduced, over.tasks - 1) is None
        check_on(fabric, whole, over)


def test_one_rank_of_each_stage_stands_for_all_replicas(families):
    own = families[3]
    layout = next(
        each for each in own.layouts()
        if each.data == 16 and each.pipeline == 4 and each.tensor == 1 and each.expert == 8
    )  # fmt: skip
    for placement in own.placements(layout):
        schedule = schedule_of(layout, own.batch)
        reduced = reduced_tasks(placement, schedule, own.loads(placement))
        assert reduced is not None
        assert reduced.devices == layout.pipeline
        compute = reduced.kind == TaskKind.COMPUTE
        assert np.bincount(reduced.first[compute]).min() > 0


@pytest.mark.parametrize("number", [0, 3])
def test_ports_and_devices_carry_what_the_tasks_say_one_by_one(families, number):
    """Without the circuits' own routes, only servers' bytes and seconds of devices bound them."""
    own = families[number]
    for layout in own.layouts():
        placement, schedule = own.placements(layout)[0], schedule_of(layout, own.batch)
        loads = own.loads(placement)
        reduced = reduced_tasks(placement, schedule, loads) if layout.pipeline > 1 else None
        if reduced is not None:
            break
    whole = iteration_tasks(placement, schedule, loads)
    assert reduced is not None and reduced.tasks < whole.tasks
    out, into = np.zeros(own.servers), np.zeros(own.servers)
    seconds = np.zeros(whole.devices)
    for kind, first, second, size in zip(
        whole.kind, whole.first, whole.second, whole.size, strict=True
    ):
        if kind == TaskKind.COMPUTE:
            seconds[first] += size
        elif kind == TaskKind.TRANSFER:
            out[first] += size
            into[second] += size
        else:
            group = list(whole.groups[first])
            each = (len(group) - 1) / len(group) * size * (2 if kind == TaskKind.ALLREDUCE else 1)
            out[group] += each
            into[group] += each
    np.testing.assert_allclose(whole.device_seconds(), seconds, rtol=1e-9)
    assert reduced.device_seconds().max() == pytest.approx(seconds.max(), rel=1e-9)
    for tasks in (whole, reduced):
        np.testing.assert_allclose(tasks.port_bytes(), (out, into), rtol=1e-9)
        for rate in (1e6, 1e20):
            circuits = DirectCircuits("sip-ml", own.servers, 2, rate, 0.0, 0.5, IDEAL)
            least = max(seconds.max(), out.max() / (2 * rate), into.max() / (2 * rate))
            assert least_time(circuits, tasks) == pytest.approx(least, rel=1e-8)


def test_unlike_servers_stand_for_themselves(families):
    own = families[3]
    layout = next(each for each in own.layouts() if each.data == 8 and each.pipeline == 2)
    placement = own.placements(layout)[0]
    schedule = schedule_of(layout, own.batch)
    reduced = reduced_tasks(placement, schedule, own.loads(placement))
    network, routes = random_regular(8, 3, 5e10, LAG, np.random.default_rng(1))
    over = tasks_over(Fabric("random", network, routes, {}), reduced)
    # Ranks of one server are alike, servers are not.
    assert np.unique(over.server_of_device).size == own.servers
    assert over.devices < placement.rank.size


@pytest.mark.parametrize(
    ("servers", "ratio"), [(2, 1.0), (6, 1.0), (16, 2.0), (20, 1.0), (54, 2.0)]
)
def test_a_fat_tree_of_one_switch_a_pod_carries_the_same(servers, ratio):
    rng = np.random.default_rng(servers)
    traffic = rng.random((servers, servers)) * (rng.random((servers, servers)) < 0.4)
    np.fill_diagonal(traffic, 0.0)
    network, routes = fat_tree(servers, 1e10, LAG, ratio)
    merged, shorter = merged_fat_tree(servers, 1e10, LAG, ratio)
    busy = [
        np.unique(np.round(own.link_bytes(net, traffic) / net.capacity, 15))
        for net, own in ((network, routes), (merged, shorter))
    ]
    assert busy[1].max() == pytest.approx(busy[0].max(), rel=1e-12)
    assert np.all(np.min(np.abs(busy[1][:, None] - busy[0]), axis=1) < 1e-12)
    np.testing.assert_allclose(shorter.latency, routes.latency, rtol=1e-12)
    np.testing.assert_allclose(shorter.hops, routes.hops, rtol=1e-12)
