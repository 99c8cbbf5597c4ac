"""Jobs that share a cluster: contention by hand, isolation, conservation; partitions in a queue."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import topoopt as to
from codesign_base import InfeasibleError, InputError
from parallelism.joining import in_turn, side_by_side
from parallelism.taskgraph import TaskGraph, TaskKind, edges_of, traffic_of
from routing.network import Network
from routing.paths import ecmp_routes, shortest_routes
from topoopt.baselines.baselines import baseline_fabric
from topoopt.fabric import IDEAL, Fabric, score, simulate
from topoopt.problem.cluster import Cluster
from topoopt.problem.prices import default_prices
from topoopt.studies.shared import fabrics
from topoopt.studies.shared.arrivals import Request, Stay, poisson_requests, serve
from topoopt.studies.shared.contention import Tenant, alone_s, simulate_together
from topoopt.studies.shared.fabrics import hashed_routes, partition_run, shared_fabric, tenant_run
from topoopt.studies.shared.mix import apportion, place_jobs
from topoopt.studies.shared.sharing import share
from topoopt.topology.fabrics import ideal_switch
from topoopt.topology.fat_tree import fat_tree_network

C, T, A = TaskKind.COMPUTE, TaskKind.TRANSFER, TaskKind.ALLREDUCE


def two_racks(per_rack=4, uplink=1.0):
    """Return racks of servers with links of 1 byte/s, joined by one link of ``uplink`` each way."""
    hosts = 2 * per_rack
    up = [(h, hosts + h // per_rack, 1.0) for h in range(hosts)]
    ends = [*up, (hosts, hosts + 1, uplink)]
    both = ends + [(b, a, c) for a, b, c in ends]
    source, target, capacity = zip(*both, strict=True)
    network = Network.from_links("two racks", hosts, 2, source, target, capacity, 0.0)
    return Fabric("two racks", network, ecmp_routes(network), {}, transport=IDEAL)


def sender(size=6.0, compute=0.0):
    """Return a job of two servers: 0 computes, then sends to 1."""
    return TaskGraph.from_lists(2, [(C, 0, -1, compute, 0.0), (T, 0, 1, size, 0.0)], [(0, 1)])


def busy(seed):
    rng = np.random.default_rng(seed)
    tasks = [(C, server, -1, float(rng.uniform(0.5, 2)), 0.0) for server in range(4)]
    tasks += [(T, s, (s + 1) % 4, float(rng.uniform(1, 5)), 0.0) for s in range(4)]
    tasks += [(A, 0, -1, 8.0, 0.25)]
    edges = [(s, 4 + s) for s in range(4)] + [(4 + s, 8) for s in range(4)]
    return TaskGraph.from_lists(4, tasks, edges, (tuple(range(4)),))


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_iterations_in_turn_take_as_long_as_one_each(iterations):
    fabric, job = two_racks(), busy(3)
    job = side_by_side([job], [(0, 2, 4, 5)], 8)
    one = score(fabric, job)
    timeline = simulate(fabric, in_turn(job, iterations, 0.75))
    assert timeline.makespan == pytest.approx(0.75 + iterations * one, rel=1e-12)
    rows = timeline.finish.reshape(iterations, job.tasks + 1)
    np.testing.assert_allclose(np.diff(rows.max(axis=1)), one)
    np.testing.assert_allclose(rows[:, -1], 0.75 + one * np.arange(iterations))


def test_repeated_graph_is_that_of_the_unrolled_one():
    job, count = busy(1), 9
    many = in_turn(job, 3)
    before, after = edges_of(job)
    wanted = set()
    sources = [t for t in range(count) if t not in after]
    sinks = [t for t in range(count) if t not in before]
    for i in range(3):
        base = i * (count + 1)
        wanted |= {(base + a, base + b) for a, b in zip(before, after, strict=True)}
        wanted |= {(base + count, base + t) for t in sources}
        if i < 2:
            wanted |= {(base + t, base + 2 * count + 1) for t in sinks}
    pairs = list(zip(*(ends.tolist() for ends in edges_of(many)), strict=True))
    assert len(pairs) == len(wanted) and set(pairs) == wanted
    entering = np.bincount([b for _, b in wanted], minlength=many.tasks)
    np.testing.assert_array_equal(many.predecessors, entering)


def test_one_job_alone_takes_its_own_iteration_time():
    fabric = two_racks()
    tenant = Tenant("busy", busy(0), (1, 3, 4, 6))
    own = score(fabric, side_by_side([tenant.tasks], [tenant.place], 8))
    assert alone_s(fabric, tenant) == own
    found = simulate_together(fabric, [tenant], least=4)
    assert found.times[0].size >= 4
    np.testing.assert_allclose(found.times[0], own, rtol=1e-9)


def test_jobs_on_disjoint_racks_do_not_interfere():
    fabric = two_racks()
    tenants = [Tenant("a", busy(0), (0, 1, 2, 3)), Tenant("b", busy(1), (4, 5, 6, 7))]
    found = simulate_together(fabric, tenants, seed=5)
    for tenant, times in zip(tenants, found.times, strict=True):
        np.testing.assert_allclose(times, alone_s(fabric, tenant), rtol=1e-9)


def test_two_jobs_that_always_send_halve_an_uplink():
    # Both send all the time: each gets half of the one byte a second.
    tenants = [Tenant("a", sender(), (0, 4)), Tenant("b", sender(), (1, 5))]
    found = simulate_together(two_racks(), tenants, least=5)
    for times in found.times:
        np.testing.assert_allclose(times, 12.0, rtol=1e-9)
    wide = simulate_together(two_racks(uplink=2.0), tenants, least=5)
    for times in wide.times:
        np.testing.assert_allclose(times, 6.0, rtol=1e-9)


def test_overlapping_parts_of_two_iterations_are_shared():
    # Job b begins 3 s later: 3 s alone, then halves; a ends its 6 bytes at 9, b at 12.
    joint = side_by_side(
        [in_turn(sender(), 1), in_turn(sender(), 1, 3.0)], [(0, 4), (1, 5)], 8
    )  # fmt: skip
    finish = simulate(two_racks(), joint).finish.reshape(2, 3)
    assert finish.max(axis=1) == pytest.approx([9.0, 12.0])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 99), min_size=1, max_size=3), st.integers(0, 2**31))
def test_joined_jobs_send_what_they_send_alone(seeds, seed):
    jobs = [busy(number) for number in seeds]
    places = place_jobs([4] * len(jobs), 12, "scattered", np.random.default_rng(seed))
    joint = side_by_side([in_turn(job, 2) for job in jobs], places, 12)
    traffic = traffic_of(joint)
    sent = [2 * traffic_of(job).transfer_sent() for job in jobs]
    assert traffic.transfer_sent() == pytest.approx(sum(sent))
    assert traffic.allreduce_sent() == pytest.approx(
        sum(2 * traffic_of(job).allreduce_sent() for job in jobs)
    )
    for place, amount in zip(places, sent, strict=True):
        own = traffic.transfers[np.ix_(place, place)].sum()
        assert own == pytest.approx(amount)


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ([(0, 1), (1, 2)], "another job"),
        ([(1, 0), (2, 3)], "ascending"),
        ([(0, 1), (7, 8)], "cluster of 8"),
        ([(0, 1)], "1 placement for 2 jobs"),
    ],
)
def test_bad_placements_are_refused(places, said):
    with pytest.raises(InputError, match=said):
        side_by_side([sender(), sender()], places, 8)


def test_iterations_beyond_memory_are_refused():
    # In one iteration of the slow job the quick one would end a thousand million.
    jobs = [Tenant("quick", sender(1e-9), (0, 1)), Tenant("slow", sender(1.0), (4, 5))]
    with pytest.raises(InputError, match=r"'quick' takes 1e-09 s .* 'slow' 1 s.* fit in memory"):
        simulate_together(two_racks(), jobs)


def test_bad_repetitions_are_refused():
    with pytest.raises(InputError, match="iterations is 0"):
        in_turn(sender(), 0)
    with pytest.raises(InputError, match="after -1"):
        in_turn(sender(), 1, -1.0)
    with pytest.raises(InputError, match="no job shares"):
        simulate_together(two_racks(), [])
    with pytest.raises(InputError, match="takes no time"):
        simulate_together(two_racks(), [Tenant("idle", sender(0.0), (0, 1))])


def test_mix_is_the_published_one():
    assert [apportion(20).count(m) for m in ("dlrm-16", "bert-16", "candle-16", "vgg16-16")] == [
        8, 6, 4, 2,
    ]  # fmt: skip
    for jobs in range(1, 40):
        names = apportion(jobs)
        assert len(names) == jobs
        assert abs(names.count("dlrm-16") - 0.4 * jobs) < 1
    with pytest.raises(InputError, match="mix of 0"):
        apportion(0)


def test_placements_are_disjoint():
    rng = np.random.default_rng(0)
    for placement in ("packed", "scattered"):
        places = place_jobs([3, 5, 2], 12, placement, rng)
        assert list(map(len, places)) == [3, 5, 2]
        assert len({server for place in places for server in place}) == 10
    assert all(np.diff(p).tolist() == [1] * (len(p) - 1)
               for p in place_jobs([3, 5, 2], 12, "packed", rng))  # fmt: skip
    with pytest.raises(InfeasibleError, match="need 13"):
        place_jobs([13], 12, "packed", rng)


def test_hashed_routes_are_single_paths_and_their_mean():
    network = fat_tree_network(16, 1e9, 1e-6, 1.0)
    one = hashed_routes(network, 1, np.random.default_rng(4))
    drawn = shortest_routes(network, seed=np.random.default_rng(4))
    np.testing.assert_array_equal(one.offsets, drawn.offsets)
    np.testing.assert_array_equal(one.links, drawn.links)
    many = hashed_routes(network, 400, np.random.default_rng(0))
    spread = ecmp_routes(network)
    for source, target in ((0, 1), (0, 3), (2, 15)):
        links, weights = many.row(source, target)
        known, shares = spread.row(source, target)
        np.testing.assert_array_equal(links, known)
        np.testing.assert_allclose(weights, shares, atol=0.1)


@pytest.mark.parametrize("placement", ["packed", "scattered"])
def test_a_fat_tree_that_spreads_has_no_contention(placement):
    # Full bisection, and every flow over all paths: what a single switch gives.
    fabric, _ = shared_fabric("fat-tree-spread", Cluster(16, 2, "100Gbps"), default_prices())
    jobs = [in_jobs(seed) for seed in range(4)]
    places = place_jobs([4] * 4, 16, placement, np.random.default_rng(2))
    tenants = [Tenant(str(n), job, p) for n, (job, p) in enumerate(zip(jobs, places, strict=True))]
    found = simulate_together(fabric, tenants)
    for tenant, times in zip(tenants, found.times, strict=True):
        np.testing.assert_allclose(times, alone_s(fabric, tenant), rtol=1e-6)


def in_jobs(seed):
    """Return a job whose sizes suit links of gigabytes a second."""
    from dataclasses import replace

    job = busy(seed)
    scale = np.where(job.kind == C, 1e-3, 1e7)
    return replace(job, size=job.size * scale, delay=job.delay * 1e-3)


def test_a_real_mix_is_slower_together_than_alone_where_paths_collide():
    cluster = Cluster(32, 4, "25Gbps")
    fabric, bandwidth = shared_fabric("oversubscribed-fat-tree", cluster, default_prices())
    tasks = tenant_run("dlrm-16", 8, "fat-tree", bandwidth, 5, 0)
    places = place_jobs([8] * 4, 32, "scattered", np.random.default_rng(0))
    tenants = [Tenant("dlrm-16", tasks, place) for place in places]
    found = simulate_together(fabric, tenants, least=2)
    alone = [alone_s(fabric, tenant) for tenant in tenants]
    means = [times.mean() for times in found.times]
    assert sum(means) > 1.1 * sum(alone)
    again = simulate_together(fabric, tenants, least=2)
    for a, b in zip(found.times, again.times, strict=True):
        np.testing.assert_array_equal(a, b)
    graph, time = partition_run("dlrm-16", 8, 4, 25.0, 5, 0)
    assert graph.servers == 8 and time < min(means)


def test_jobs_share_a_fabric_in_one_call():
    cluster = Cluster(8, 2, "10Gbps")
    options = {"fabric": "oversubscribed-fat-tree", "steps": 1, "seed": 3}
    first, second = share([("dlrm-16", 5), ("dlrm-16", 2)], cluster, **options)
    assert len(first.servers) == 5 and len(second.servers) == 2
    assert not set(first.servers) & set(second.servers)
    assert first.shared_s > 0.99 * first.alone_s > 0
    # With nobody beside it, a job takes what it takes alone.
    (only,) = share([("dlrm-16", 5)], cluster, **options)
    assert only.shared_s == pytest.approx(only.alone_s)
    # A model of one's own, by its graph, is that of the same name.
    (given,) = share([(to.models.get_model("dlrm-16"), 5)], cluster, **options)
    assert given == only
    for jobs, said in (([], "at least one"), ([("dlrm-16", 9)], "run fewer jobs")):
        with pytest.raises(InputError, match=said):
            share(jobs, cluster, **options)


@pytest.mark.parametrize("ports", ["directed", "bidirectional"])
def test_a_job_of_one_server_shares_an_expander(ports):
    cluster = Cluster(4, 2, "10Gbps", ports)
    alone, _ = share([("dlrm-16", 1), ("dlrm-16", 3)], cluster, fabric="expander", steps=1)
    assert len(alone.servers) == 1
    # It sends nothing, so that it takes as long on any fabric, and nobody is in its way.
    (switched,) = share([("dlrm-16", 1)], cluster, fabric="ideal-switch", steps=1)
    assert alone.alone_s == pytest.approx(switched.alone_s)
    assert alone.shared_s == pytest.approx(alone.alone_s)


def test_jobs_are_searched_with_the_ports_and_the_latency_of_their_cluster(monkeypatch):
    cluster, built = Cluster(6, 2, "10Gbps", "bidirectional", "30us"), []

    def record(name, of, *rest):
        built.append(of)
        return baseline_fabric(name, of, *rest)

    monkeypatch.setattr(fabrics, "baseline_fabric", record)
    share([("dlrm-16", 2), ("dlrm-16", 4)], cluster, fabric="expander", steps=0)
    assert [of.servers for of in built] == [6, 2, 4]
    assert {(of.ports, of.hop_latency) for of in built} == {("bidirectional", 30e-6)}
    # Over switches as well: what is sent in fewer, larger messages pays where hops are slow.
    near, far = (
        tenant_run("dlrm-16", 4, "ideal-switch", 2.5e9, 40, 0, 2, "directed", latency)
        for latency in (1e-6, 1e-2)
    )
    network, routes = ideal_switch(4, 2.5e9, 1e-2)
    slow = Fabric("slow", network, routes, {})
    assert score(slow, far) < score(slow, near)


def test_a_job_that_fits_by_no_named_strategy_is_refused():
    cluster = to.Cluster(servers=4, degree=2, bandwidth="100Gbps")
    wide = to.models.dlrm(tables=1, dim=64, rows=10**10)
    with pytest.raises(InfeasibleError, match=r"'dlrm' does not fit on 2 servers.* more servers"):
        share([("bert-16", 2), (wide, 2)], cluster, steps=1)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"cluster": "8 servers"}, "cluster is '8 servers'; give a topoopt.Cluster"),
        ({"cluster": Cluster(1, 2, "10Gbps")}, "servers of the cluster is 1"),
        ({"seed": -1}, "seed is -1"),
        ({"steps": -1}, "steps is -1"),
        ({"steps": 2.5}, "steps is 2.5"),
    ],
)
def test_what_no_jobs_can_share_is_refused(changed, said):
    options = {"jobs": [("dlrm-16", 1)], "cluster": Cluster(2, 2, "10Gbps"), **changed}
    with pytest.raises(InputError, match=said):
        share(**options)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ((0.0, 0, 1.0), "servers of a request is 0"),
        ((0.0, 1.5, 1.0), "servers of a request is 1.5"),
        ((float("nan"), 1, 1.0), "arrival_s is nan"),
        ((0.0, 1, -2.0), "duration_s is -2"),
        ((0.0, 1, float("inf")), "duration_s is inf"),
    ],
)
def test_requests_out_of_range_are_refused(request_, said):
    with pytest.raises(InputError, match=said):
        Request(*request_)


def queue_oracle(requests, servers, reach):
    """Serve requests one after another over small steps of time, by the definition."""
    free = set(range(servers))
    running, starts = [], []
    now = 0.0
    for request in requests:
        now = max(now, request.arrival_s)
        while True:
            for end, place in [entry for entry in running if entry[0] <= now]:
                free |= set(place)
                running.remove((end, place))
            parts = [
                sorted(s for s in free if s // reach == part)
                for part in range(-(-servers // reach))
            ]
            fits = [part for part in parts if len(part) >= request.servers]
            if fits:
                place = min(fits, key=len)[: request.servers]
                break
            now = min(end for end, _ in running)
        free -= set(place)
        running.append((now + request.duration_s, place))
        starts.append((now, tuple(place)))
    return starts


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([4, 6, 12]))
def test_partitions_are_given_in_turn(seed, reach):
    rng = np.random.default_rng(seed)
    requests = poisson_requests(30, 12, [1, 2, 4], 0.9, 1.0, rng)
    found = serve(requests, 12, reach)
    assert [(stay.start_s, stay.place) for stay in found.stays] == queue_oracle(requests, 12, reach)
    assert min(found.waits_s) >= 0
    assert 0 < found.utilisation <= 1
    for a, stay in enumerate(found.stays):
        assert len({server // reach for server in stay.place}) == 1
        for b, other in enumerate(found.stays[:a]):
            apart = (
                other.start_s + requests[b].duration_s <= stay.start_s
                or stay.start_s + requests[a].duration_s <= other.start_s
            )
            assert apart or not set(stay.place) & set(other.place)
    if reach == 12:
        assert not any(stay.fragmented for stay in found.stays)


def test_fragmentation_by_hand():
    # Two jobs of 3 leave one free server in each part of 4: a job of 2 waits, joined parts not.
    requests = [Request(0.0, 3, 10.0), Request(0.0, 3, 20.0), Request(1.0, 2, 1.0),
                Request(2.0, 1, 1.0)]  # fmt: skip
    parts = serve(requests, 8, 4)
    assert parts.waits_s == (0.0, 0.0, 9.0, 8.0)
    assert [stay.fragmented for stay in parts.stays] == [False, False, True, False]
    assert serve(requests, 8, 8).waits_s == (0.0, 0.0, 0.0, 0.0)
    assert serve(requests, 8, 4, overtaking=True).waits_s == (0.0, 0.0, 9.0, 0.0)
    with pytest.raises(InfeasibleError, match="needs 3 servers"):
        serve(requests, 8, 2)
    with pytest.raises(InputError, match="reach is 9"):
        serve(requests, 8, 9)


def test_jobs_that_leave_at_one_instant_leave_together():
    """At 1 s servers 0, 2 and 3 fall free at once, two of them in one part: nothing is split."""
    requests = [Request(0.0, 1, time) for time in (1.0, 9.0, 1.0, 1.0)] + [Request(0.5, 2, 1.0)]
    found = serve(requests, 4, 2)
    assert found.stays[4] == Stay(1.0, (2, 3), False)


def test_single_servers_wait_as_in_a_queue_with_many_servers():
    # M/M/c: the share that waits is Erlang's C.
    from math import factorial

    servers, load = 5, 0.7
    offered = servers * load
    top = offered**servers / factorial(servers) / (1 - load)
    erlang = top / (sum(offered**k / factorial(k) for k in range(servers)) + top)
    rng = np.random.default_rng(0)
    found = serve(poisson_requests(40_000, servers, [1], load, 1.0, rng), servers, servers)
    waits = np.array(found.waits_s)
    assert (waits > 0).mean() == pytest.approx(erlang, abs=0.02)
    assert waits.mean() == pytest.approx(erlang / (servers * (1 - load)), rel=0.1)
    assert found.utilisation == pytest.approx(load, abs=0.02)
