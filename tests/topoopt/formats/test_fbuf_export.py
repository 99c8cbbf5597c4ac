"""From a task graph on a direct-connect network to a file, and back to the same iteration."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from fbuf_oracle import differences
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from small_plans import shared_bidirectional_plan, shared_plan

from codesign_base import InputError
from parallelism.taskgraph import Phase, TaskGraph, TaskKind, traffic_of
from routing.coin_change import coin_change_routes
from routing.network import Network
from routing.pair_paths import pair_paths
from routing.paths import ecmp_routes, k_shortest_routes, shortest_routes
from routing.routes import Routes
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.simulation import simulate
from topoopt.fabric.transport import Transport
from topoopt.formats.fbuf_check import COMPUTES, check_fbuf
from topoopt.formats.fbuf_export import Updates, fbuf_of
from topoopt.formats.fbuf_file import FbufTask
from topoopt.formats.fbuf_network import network_of, rings_of, routes_of
from topoopt.formats.fbuf_plan import AllReduces, plan_fbuf
from topoopt.formats.fbuf_read import parse_fbuf
from topoopt.formats.fbuf_rings import jump_list_orders, jump_lists
from topoopt.formats.fbuf_write import write_fbuf
from topoopt.formats.taskgraph_fbuf import task_graph_of
from topoopt.plan.rebuild import rebuild, rebuild_network
from topoopt.topology.totient import ring_order

RATE = 12.5e9
SERVER = {"gpus_per_node": 4, "intergpu_bandwidth": 25e9, "net_bandwidth": RATE}


def circulant(hosts, steps, cables=1, both=False):
    """Return the network of the rings "+p", in both directions if asked."""
    steps = [*steps, *(-p for p in steps)] if both else list(steps)
    source = np.repeat(np.arange(hosts), len(steps) * cables)
    target = (source + np.tile(np.repeat(steps, cables), hosts)) % hosts
    return Network.from_links("circulant", hosts, 0, source, target, RATE, 1e-6)


@st.composite
def routed_networks(draw):
    """A strongly connected network, routed in one of all ways."""
    hosts = draw(st.integers(2, 9))
    chords = draw(
        st.lists(st.tuples(st.integers(0, hosts - 1), st.integers(0, hosts - 1)), max_size=14)
    )
    links = sorted(
        {(v, (v + 1) % hosts) for v in range(hosts)} | {c for c in chords if c[0] != c[1]}
    )
    network = Network.from_links(
        "n", hosts, 0, [a for a, _ in links], [b for _, b in links], RATE, 1e-6
    )
    router = draw(st.sampled_from(("ecmp", "k", "single")))
    if router == "ecmp":
        return network, ecmp_routes(network)
    if router == "k":
        return network, k_shortest_routes(network, draw(st.integers(1, 8)), slack=1)
    return network, shortest_routes(network, seed=draw(st.integers(0, 9)))


@settings(max_examples=60, deadline=None)
@given(routed_networks())
def test_paths_load_every_link_as_the_route_does(case):
    network, routes = case
    for source, target in itertools.product(range(network.hosts), repeat=2):
        links, weights = routes.row(source, target)
        paths = pair_paths(network, routes, source, target)
        assert (source == target) == (paths == [])
        assert len(paths) <= max(links.size, 1)
        loads = {}
        for path, share in paths:
            assert (path[0], path[-1]) == (source, target)
            assert len(set(path)) == len(path) and 0 < share <= 1
            for step in itertools.pairwise(path):
                loads[network.link(*step)] = loads.get(network.link(*step), 0.0) + share
        assert sorted(loads) == links.tolist()
        for link, weight in zip(links.tolist(), weights.tolist(), strict=True):
            assert loads[link] == pytest.approx(weight, abs=1e-9)


def flow(hosts, shares):
    """Return a network and routes in which 0 -> hosts-1 uses links with these weights."""
    links = sorted(shares)
    network = Network.from_links(
        "n", hosts, 0, [a for a, _ in links], [b for _, b in links], RATE, 0.0
    )
    counts = np.zeros(hosts * hosts, dtype=np.int64)
    counts[hosts - 1] = len(links)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    order = np.array([network.link(*link) for link in links])
    weights = np.array([shares[link] for link in links])
    zeros = np.zeros(hosts * hosts)
    return network, Routes(hosts, offsets, order, weights, zeros, zeros.copy())


def test_a_flow_whose_shortest_paths_leave_a_cycle_is_taken_apart_otherwise():
    halves = dict.fromkeys([(0, 1), (1, 2), (2, 3), (0, 2), (2, 1), (1, 3)], 0.5)
    network, routes = flow(4, halves)
    assert sorted(pair_paths(network, routes, 0, 3)) == [((0, 1, 2, 3), 0.5), ((0, 2, 1, 3), 0.5)]


@pytest.mark.parametrize(
    "shares",
    [
        {(0, 1): 1.0, (1, 2): 0.5},
        {(0, 2): 1.0, (0, 1): 0.5, (1, 0): 0.5},
        {(0, 1): 0.5, (1, 2): 0.5},
        {(0, 1): 1.0, (1, 0): 1.0},
    ],
)
def test_weights_that_are_no_paths_are_named(shares):
    network, routes = flow(3, shares)
    with pytest.raises(InputError, match="the route of 0->2 is no set of paths"):
        pair_paths(network, routes, 0, 2)


def brute_jumps(network, group, step):
    """Return a shortest list of jumps from each member to the next by trying all."""
    nodes = network.hosts
    jumps = sorted(
        {int((b - a) % nodes) for a, b in zip(network.source, network.target, strict=True)}
    )
    for length in range(1, nodes):
        for tried in itertools.product(jumps, repeat=length):
            if sum(tried) % nodes != step:
                continue
            ends = list(itertools.accumulate(tried, initial=0))
            if all(
                network.has_link((v + a) % nodes, (v + a + j) % nodes)
                for v in group
                for a, j in zip(ends[:-1], tried, strict=True)
            ):
                return tried
    return None


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_jumps_lead_from_member_to_member_over_fewest_links(data):
    hosts = data.draw(st.sampled_from((2, 3, 4, 6, 8)))
    steps = data.draw(st.lists(st.integers(1, hosts - 1), min_size=1, max_size=3, unique=True))
    network = circulant(hosts, steps)
    size = data.draw(st.sampled_from([g for g in range(2, hosts + 1) if hosts % g == 0]))
    start = data.draw(st.integers(0, hosts // size - 1))
    group = tuple(range(start, hosts, hosts // size))
    generators = data.draw(
        st.lists(
            st.sampled_from([p for p in range(1, size) if np.gcd(p, size) == 1] or [1]),
            min_size=1,
            max_size=3,
        )
    )
    orders = tuple(ring_order(group, p) for p in generators)
    brute = [brute_jumps(network, group, p * hosts // size) for p in generators]
    if None in brute:
        with pytest.raises(InputError, match="no list of links"):
            jump_lists(network, {group: orders})
        return
    sets = jump_lists(network, {group: orders})
    assert [len(jumps) for jumps in sets[size]] == [len(jumps) for jumps in brute]
    made = jump_list_orders(sets, group, hosts)
    assert [sorted(zip(o, o[1:] + o[:1], strict=True)) for o in made] == [
        sorted(zip(o, o[1:] + o[:1], strict=True)) for o in orders
    ]


def test_jumps_exist_where_the_released_simulator_starts_them_if_they_can():
    """It takes places in the group for servers, so its flows begin at 0 .. size - 1."""
    ring = [(0, 1), (1, 2), (2, 3), (3, 0)]
    chords = [(1, 3), (3, 1)]
    group = {(1, 3): ((1, 3),)}
    chorded = Network.from_links("n", 4, 0, *zip(*ring, *chords, strict=True), RATE, 1e-6)
    # Server 0 has no chord; two jumps of one lead on from 1, 3 and 0.
    assert jump_lists(chorded, group) == {2: ((1, 1),)}
    alone = Network.from_links("n", 4, 0, *zip(*chords, strict=True), RATE, 1e-6)
    assert jump_lists(alone, group) == {2: ((2,),)}


@pytest.mark.parametrize(
    ("rings", "message"),
    [
        ({(0, 1): ((0, 1),)}, r"cannot express AllReduce group \(0, 1\)"),
        ({(0, 1, 2): ((0, 1, 2),)}, r"cannot express AllReduce group \(0, 1, 2\)"),
        ({(0, 2): ((0, 1),)}, r"ring \(0, 1\) does not visit each server of AllReduce group"),
        (
            {(0, 1, 2, 3): ((0, 1, 3, 2),)},
            r"cannot express ring \(0, 1, 3, 2\) of AllReduce group \(0, 1, 2, 3\)",
        ),
        (
            {(0, 2): ((0, 2),), (1, 3): ((1, 3), (1, 3))},
            r"one set of rings for all groups of 2 servers, but AllReduce group \(1, 3\)",
        ),
    ],
)
def test_groups_and_rings_that_do_not_fit_are_named(rings, message):
    with pytest.raises(InputError, match=message):
        jump_lists(circulant(4, [1, 3]), rings)


def job(servers=4):
    """Return tasks of every kind, without a follower of an AllReduce."""
    group = tuple(range(servers))
    pairs = tuple(range(0, servers, 2))
    tasks = [
        (TaskKind.COMPUTE, 0, -1, 1e-3, 0.0),
        (TaskKind.TRANSFER, 0, 1, 1e6, 0.0),
        (TaskKind.COMPUTE, 1, -1, 2e-3, 0.0),
        (TaskKind.TRANSFER, 1, 3, 2.5e6, 0.0),
        (TaskKind.TRANSFER, 0, 1, 7e5, 0.0),
        (TaskKind.COMPUTE, 3, -1, 3e-3, 0.0),
        (TaskKind.ALLREDUCE, 0, -1, 4e6, 1e-4),
        (TaskKind.ALLREDUCE, 1, -1, 3e6, 2e-4),
        (TaskKind.ALLREDUCE, 2, -1, 5e6, 5e-4),
        (TaskKind.COMPUTE, 0, -1, 1e-3, 0.0),
    ]
    edges = [(0, 1), (1, 2), (2, 3), (3, 5), (0, 4), (4, 5), (5, 6), (2, 7), (0, 8), (8, 9)]
    made = TaskGraph.from_lists(servers, tasks, edges, (group, pairs, (0,)))
    phases = [0, 3, 0, 3, 3, 1, 5, 5, 5, 2]
    return replace(made, phase=np.array(phases, dtype=np.int64))


NOTHING = TaskGraph.from_lists(4, [], [], ())
RINGS = {(0, 1, 2, 3): ((0, 1, 2, 3), (0, 3, 2, 1)), (0, 2): ((0, 2),)}


def test_the_file_simulates_the_same_iteration():
    network = circulant(4, [1], both=True)
    routes, tasks = ecmp_routes(network), job()
    file = fbuf_of(tasks, network, routes, RINGS, operators=["a", "b"], **SERVER)
    again = parse_fbuf(write_fbuf(file))
    assert differences(again, file) == []
    assert again.op_name == ("a", "b")
    assert again.ring_jumps() == {2: ((1, 1),), 4: ((1,), (3,))}
    assert again.task_type.tolist() == [0, 5, 0, 5, 5, 1, 6, 6, 4, 3]
    assert again.nexts(7).tolist() == [0, 2] and again.nexts(8).tolist() == [10]
    # One processor a server, one device a pair in use, one for the reduction inside a server.
    assert again.device_type.tolist() == [0, 0, 0, 0, 14, 14, 0]
    assert again.device_property.tolist() == [0, 1, 2, 3, 1, 7, 0]
    assert again.task_runtime[1] == pytest.approx(1e6 / RATE, rel=1e-7)
    assert list(zip(again.conn_source, again.conn_target, again.conn_cables, strict=True)) == [
        (1, 0, 1), (2, 1, 1), (3, 0, 1), (3, 2, 1)
    ]  # fmt: skip

    found = task_graph_of(again).graph
    assert found.server_of_device.tolist() == [0, 1, 2, 3]  # the last one carries a barrier only
    for name in ("kind", "second", "successor_offsets", "successors", "predecessors"):
        assert np.array_equal(getattr(found, name), getattr(tasks, name)), name
    moved = np.where(again.task_type == 4, 0.0, tasks.size)  # a barrier takes its delay only
    assert np.allclose(found.size, moved, rtol=1e-6)
    assert np.allclose(found.delay, tasks.delay, rtol=1e-6)
    read = network_of(again)
    routed = routes_of(again, read)
    for name in ("offsets", "links", "weights", "latency", "hops"):
        assert np.allclose(getattr(routed, name), getattr(routes, name), rtol=1e-7), name
    mine = simulate(Fabric("mine", network, routes, RINGS), tasks)
    theirs = simulate(Fabric("theirs", read, routed, rings_of(again)), found)
    assert np.allclose(mine.finish, theirs.finish, rtol=1e-6)
    assert np.allclose(mine.link_bytes, theirs.link_bytes, rtol=1e-6)


@settings(max_examples=30, deadline=None)
@given(routed_networks(), st.data())
def test_networks_and_routes_survive_the_file(case, data):
    network, routes = case
    tasks = TaskGraph.from_lists(network.hosts, [], [], ())
    assume(network.links > 0)
    file = parse_fbuf(write_fbuf(fbuf_of(tasks, network, routes, {}, **SERVER)))
    read = network_of(file)
    routed = routes_of(file, read)
    pairs = set(zip(network.source.tolist(), network.target.tolist(), strict=True))
    both = pairs | {(b, a) for a, b in pairs}
    assert set(zip(read.source.tolist(), read.target.tolist(), strict=True)) == both
    for source, target in itertools.product(range(network.hosts), repeat=2):
        mine = {
            (network.source[k], network.target[k]): w
            for k, w in zip(*routes.row(source, target), strict=True)
        }
        theirs = {
            (read.source[k], read.target[k]): w
            for k, w in zip(*routed.row(source, target), strict=True)
        }
        assert theirs == pytest.approx(mine, abs=1e-6)


def test_coin_change_routes_survive_the_file():
    network = circulant(8, [1, 3], cables=2, both=True)
    routes = coin_change_routes(network, [1, 3, 5, 7])
    tasks = TaskGraph.from_lists(8, [], [], ())
    file = fbuf_of(tasks, network, routes, {}, **SERVER)
    assert set(file.conn_cables.tolist()) == {2}
    routed = routes_of(file, network_of(file))
    assert np.array_equal(routed.links, routes.links)
    assert np.allclose(routed.weights, routes.weights, rtol=1e-6)


def waiting(kind, phase, extra=()):
    tasks = [
        (TaskKind.ALLREDUCE, 0, -1, 4e6, 0.0),
        (kind, 0, 1 if kind is TaskKind.TRANSFER else -1, 1e-3, 0.0),
        (TaskKind.COMPUTE, 1, -1, 1e-3, 0.0),
    ]
    made = TaskGraph.from_lists(4, tasks, [(0, 1), *extra], ((0, 1, 2, 3),))
    return replace(made, phase=np.array([5, phase, 0], dtype=np.int64))


def test_updates_after_an_allreduce_are_refused_or_omitted():
    network = circulant(4, [1], both=True)
    routes = ecmp_routes(network)
    tasks = waiting(TaskKind.COMPUTE, Phase.UPDATE)
    with pytest.raises(InputError, match=r"1 optimizer step waits for an AllReduce \(1 ms"):
        fbuf_of(tasks, network, routes, RINGS, **SERVER)
    file = fbuf_of(tasks, network, routes, RINGS, updates=Updates.OMIT, **SERVER)
    assert file.task_type.tolist() == [6, 0] and file.task_id.tolist() == [1, 2]


@pytest.mark.parametrize(
    "tasks",
    [
        waiting(TaskKind.COMPUTE, Phase.FORWARD),
        waiting(TaskKind.TRANSFER, Phase.ACTIVATION),
        waiting(TaskKind.COMPUTE, Phase.UPDATE, [(1, 2)]),
    ],
)
def test_other_followers_of_an_allreduce_are_refused(tasks):
    network = circulant(4, [1], both=True)
    for updates in Updates:
        with pytest.raises(InputError, match="task 1 waits for an AllReduce"):
            fbuf_of(tasks, network, ecmp_routes(network), RINGS, updates=updates, **SERVER)


def test_what_the_format_cannot_hold_is_named():
    network = circulant(4, [1], both=True)
    routes, tasks = ecmp_routes(network), job()
    with pytest.raises(InputError, match=r"AllReduce group \(0, 2\) has no rings"):
        fbuf_of(tasks, network, routes, {(0, 1, 2, 3): RINGS[0, 1, 2, 3]}, **SERVER)
    with pytest.raises(InputError, match="a port 1e\\+10 bytes/s"):
        fbuf_of(tasks, network, routes, RINGS, **(SERVER | {"net_bandwidth": 1e10}))
    with pytest.raises(InputError, match="for 4 servers and network 'circulant' has 6"):
        wide = circulant(6, [1])
        fbuf_of(tasks, wide, ecmp_routes(wide), RINGS, **SERVER)
    lopsided = Network.from_links("n", 4, 0, [0, 0, 1, 1, 2, 3], [1, 1, 0, 2, 3, 0], RATE, 1e-6)
    with pytest.raises(InputError, match=r"1->0 and 0->1 have 1 cable and 2;.*--ports bid"):
        fbuf_of(NOTHING, lopsided, ecmp_routes(lopsided), {}, **SERVER)
    none = Routes(4, np.zeros(17, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(16),
                  np.zeros(16))  # fmt: skip
    with pytest.raises(InputError, match="the pair 0->1 has no route"):
        fbuf_of(tasks, network, none, RINGS, **SERVER)
    huge = replace(tasks, size=tasks.size * 1e15)
    with pytest.raises(InputError, match="below 2\\^63"):
        fbuf_of(huge, network, routes, RINGS, **SERVER)
    switched = Network.from_links("s", 4, 1, [0, 4], [4, 0], RATE, 1e-6)
    with pytest.raises(InputError, match="has 1 switch;"):
        fbuf_of(tasks, switched, routes, RINGS, **SERVER)


def test_small_amounts_do_not_vanish():
    network = circulant(2, [1])
    tasks = TaskGraph.from_lists(2, [(TaskKind.TRANSFER, 0, 1, 0.2, 0.0)], [], ())
    file = fbuf_of(tasks, network, ecmp_routes(network), {}, **SERVER)
    assert file.task_bytes.tolist() == [1]


@pytest.mark.parametrize("plan", [shared_plan, shared_bidirectional_plan])
def test_a_plan_takes_as_long_from_its_file(plan):
    plan = plan()
    with pytest.raises(InputError, match="optimizer steps"):
        plan_fbuf(plan, allreduces=AllReduces.RINGS)
    exported = plan_fbuf(plan, updates=Updates.OMIT, allreduces=AllReduces.RINGS)
    file = parse_fbuf(write_fbuf(exported))
    assert file.gpus_per_node == 4 and file.nodes == plan.cluster.servers
    assert list(file.op_name) == [op.name for op in plan.job.model.operators]
    built = rebuild(plan)
    found = task_graph_of(file).graph
    read = network_of(file, plan.cluster.latency_s)
    theirs = Fabric("theirs", read, routes_of(file, read), rings_of(file))
    mine = simulate(built.fabric, found)
    again = simulate(theirs, found)
    assert again.makespan == pytest.approx(mine.makespan, rel=1e-6)
    whole = simulate(built.fabric, built.tasks())
    # What is missing are the updates at the end.
    assert mine.makespan <= whole.makespan
    network = rebuild_network(plan)
    assert network.links == len(plan.links) and network.hosts == plan.cluster.servers


@pytest.mark.parametrize("plan", [shared_plan, shared_bidirectional_plan])
def test_rounds_of_messages_simulate_the_whole_iteration(plan):
    """With what waits for AllReduces, in packet trains whose rounds begin with new connections."""
    plan = plan()
    file = parse_fbuf(write_fbuf(plan_fbuf(plan, allreduces=AllReduces.ROUNDS)))
    assert not file.ring_size.size and not (file.task_type == FbufTask.ALLREDUCE).any()
    built = rebuild(plan)
    tasks = built.tasks()
    computed = np.isin(file.task_type, COMPUTES)
    assert computed.sum() == (tasks.kind == TaskKind.COMPUTE).sum()
    traffic = traffic_of(tasks)
    sent = traffic.allreduce_sent() + traffic.transfer_sent()
    moves = file.task_type == FbufTask.NOMINAL_COMM
    assert file.task_bytes[moves].sum() == pytest.approx(sent, abs=float(moves.sum()))
    read = network_of(file, plan.cluster.latency_s)
    transport = Transport(reconnect=True)
    theirs = Fabric("theirs", read, routes_of(file, read), {}, None, transport)
    found = simulate(theirs, task_graph_of(file).graph, model="packet")
    mine = simulate(replace(built.fabric, transport=transport), tasks, model="packet")
    assert found.makespan == pytest.approx(mine.makespan, rel=0.02)
    shorter = plan_fbuf(plan, allreduces=AllReduces.ROUNDS, updates=Updates.OMIT)
    assert (shorter.task_type == FbufTask.UPDATE).sum() < (file.task_type == FbufTask.UPDATE).sum()


def test_rings_are_written_where_every_group_is_all_servers():
    """The packet simulator runs other groups on other servers."""
    plan = shared_plan()
    assert plan_fbuf(plan, updates=Updates.OMIT).ring_size.tolist() == [4]
    # What waits for an AllReduce cannot be said of rings.
    assert not plan_fbuf(plan).ring_size.size


def test_any_group_and_ring_can_be_written_in_rounds():
    network = circulant(5, [1], both=True)
    routes = ecmp_routes(network)
    group = (0, 1, 3)
    tasks = TaskGraph.from_lists(5, [(TaskKind.ALLREDUCE, 0, -1, 3e6, 0.0)], [], (group,))
    rings = {group: ((0, 3, 1),)}
    with pytest.raises(InputError, match="cannot express AllReduce group"):
        fbuf_of(tasks, network, routes, rings, **SERVER)
    file = fbuf_of(tasks, network, routes, rings, rounds=True, **SERVER)
    assert (file.task_type == FbufTask.NOMINAL_COMM).sum() == 3 * 4
    scattered = replace(tasks, kind=np.array([TaskKind.REDUCE_SCATTER]))
    with pytest.raises(InputError, match="knows no ReduceScatter"):
        fbuf_of(scattered, network, routes, rings, **SERVER)
    file = fbuf_of(scattered, network, routes, rings, rounds=True, **SERVER)
    assert (file.task_type == FbufTask.NOMINAL_COMM).sum() == 3 * 2
    alone = replace(scattered, groups=((2,),))
    assert check_fbuf(fbuf_of(alone, network, routes, {}, rounds=True, **SERVER)) is None
