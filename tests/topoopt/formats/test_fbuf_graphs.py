"""From the file to tasks, network, routes and rings; facts of the published graphs."""

import numpy as np
import pytest
from fbuf_oracle import data_directory, oracle_read, oracle_write, small_document

from codesign_base import InputError
from parallelism.taskgraph import Phase, TaskKind
from topoopt.formats.fbuf_network import network_of, rings_of, routes_of
from topoopt.formats.fbuf_read import parse_fbuf, read_fbuf
from topoopt.formats.taskgraph_fbuf import task_graph_of

DATA = data_directory()
published = pytest.mark.skipif(DATA is None, reason="the published task graphs are not here")


def small(change=lambda document: None):
    document = small_document()
    change(document)
    return task_graph_of(parse_fbuf(oracle_write(document)))


def test_every_type_of_task_becomes_what_it_is():
    found = small()
    graph = found.graph
    assert graph.kind.tolist() == [0, 1, 0, 0, 2, 2, 0]
    # Two processors; the transfer inside a node has a device of its own there.
    assert (graph.devices, found.compute_devices) == (3, 2)
    assert graph.server_of_device.tolist() == [0, 1, 1]
    assert graph.groups == ((0, 1), (1,)) or graph.groups == ((0, 1), (0,))
    assert graph.first.tolist()[:4] == [0, 0, 2, 1]
    assert graph.second.tolist() == [-1, 1, -1, -1, -1, -1, -1]
    assert graph.size.tolist() == [0.5e-3, 4096.0, 0.125e-3, 1.5e-3, 0.0, 1e6, 0.0625e-3]
    assert graph.delay.tolist() == [0.0, 0.0, 0.0, 0.0, 0.0, 0.75e-3, 0.0]
    assert graph.operator.tolist() == [-1] * 7
    assert [found.label(task) for task in range(7)] == [
        "forward on server 0",
        "transfer 0->1",
        "transfer inside server 1",
        "backward on server 1",
        "barrier",
        "AllReduce of 2 servers",
        "update on server 1",
    ]
    # What leads to a backward task is a gradient.
    assert graph.phase.tolist()[1] == Phase.GRADIENT
    edges = {
        (task, int(after))
        for task in range(7)
        for after in graph.successors[
            graph.successor_offsets[task] : graph.successor_offsets[task + 1]
        ]
    }
    assert edges == {(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (3, 5), (3, 6)}
    assert graph.predecessors.tolist() == [0, 1, 1, 2, 1, 1, 1]


def test_a_transfer_to_its_own_node_stays_inside():
    def inside(document):
        document["devices"][2] = (14, 103, 2**64 - 1, 3, 0)

    found = small(inside)
    graph = found.graph
    assert graph.kind[1] == TaskKind.COMPUTE
    assert graph.size[1] == 0.25e-3
    assert graph.first[1] >= found.compute_devices
    assert graph.server_of_device[graph.first[1]] == 1


def test_tasks_stand_by_ascending_id_wherever_the_file_has_them():
    def shuffle(document):
        document["tasks"] = [document["tasks"][k] for k in (4, 2, 6, 0, 5, 3, 1)]

    found, plain = small(shuffle), small()
    for name in ("kind", "first", "second", "size", "delay", "phase", "predecessors"):
        assert np.array_equal(getattr(found.graph, name), getattr(plain.graph, name)), name
    assert np.array_equal(found.graph.successors, plain.graph.successors)
    assert found.graph.ids.tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_the_stored_order_of_a_group_is_kept():
    def turned(document):
        document["tasks"][5] = (6, 6, 0, 0.75, 1_000_000, [1, 0])

    found = small(turned)
    assert found.graph.groups[found.graph.first[5]] == (0, 1)
    assert found.orders == {(0, 1): (1, 0)}


def test_a_group_of_one_keeps_its_delay():
    def alone(document):
        document["tasks"][5] = (6, 6, 0, 0.75, 1_000_000, [1])

    graph = small(alone).graph
    assert graph.groups[graph.first[5]] == (1,)
    assert graph.delay[5] == 0.75e-3


def test_a_followed_task_may_be_listed_twice():
    def double(document):
        document["tasks"][0] = (0, 1, 101, 0.5, 0, [2, 2, 3])

    assert small(double).graph.predecessors.tolist() == [0, 2, 1, 2, 1, 1, 1]


def test_network_routes_and_rings_of_a_direct_connect_file():
    def ring(document):
        document["header"] = (4, 4, 0, 25e6, 33554432.0, 12.5e6)
        document["conn"] = [(1, 0, 1), (2, 1, 1), (3, 2, 1), (3, 0, 2)]
        document["routes"] = []
        document["devices"][2] = (14, 103, 2**64 - 1, 1, 0)
        for a in range(4):
            for b in range(4):
                far = [([a, (a + 1) % 4, b], 0.25), ([a, (a + 3) % 4, b], 0.75)]
                near = [([a, b], 1.0)]
                paths = {0: [], 2: far}.get((b - a) % 4, near)
                document["routes"].append((a, b, paths))
        document["tasks"][5] = (6, 6, 0, 0.75, 1_000_000, [0, 2])
        document["tasks"].append((6, 8, 0, 0.75, 1_000_000, [0, 1, 2, 3]))
        document["rings"] = [(4, [[1], [3], [-1]]), (2, [[1, 1]])]

    document = small_document()
    ring(document)
    file = parse_fbuf(oracle_write(document))
    network = network_of(file, latency=2e-6)
    assert network.hosts == 4 and network.switches == 0 and network.links == 8
    assert network.capacity[network.link(0, 3)] == 25e9
    assert network.multiplicity[network.link(3, 0)] == 2
    assert network.capacity[network.link(2, 1)] == 12.5e9
    routes = routes_of(file, network)
    links, weights = routes.row(0, 2)
    assert {
        (int(network.source[k]), int(network.target[k])): w
        for k, w in zip(links, weights, strict=True)
    } == {(0, 1): 0.25, (1, 2): 0.25, (0, 3): 0.75, (3, 2): 0.75}
    assert routes.hops[2] == 2.0 and routes.latency[2] == 4e-6 and routes.latency[1] == 2e-6
    assert rings_of(file) == {
        (0, 2): ((0, 2),),
        (0, 1, 2, 3): ((0, 1, 2, 3), (0, 3, 2, 1), (0, 3, 2, 1)),
    }


def test_without_ring_sets_the_listed_order_is_the_ring():
    def unset(document):
        document["rings"] = []
        document["tasks"][5] = (6, 6, 0, 0.75, 1_000_000, [1, 0])

    document = small_document()
    unset(document)
    assert rings_of(parse_fbuf(oracle_write(document))) == {(0, 1): ((1, 0),)}


def test_tasks_without_devices():
    def none(document):
        document["devices"] = []

    with pytest.raises(InputError, match="does not exist"):
        small(none)


@published
@pytest.mark.parametrize(
    ("name", "counts", "busiest"),
    [
        ("100dlrm_16", (360, 360, 62, 496), 17.568),
        ("100candle_32", (666, 666, 140, 1052), 523.59),
    ],
)
def test_published_counts(name, counts, busiest):
    graph = task_graph_of(read_fbuf(DATA / f"{name}.fbuf")).graph
    phases = np.bincount(graph.phase, minlength=6)
    forward, backward, reduces, transfers = counts
    assert phases.tolist() == [
        forward, backward, 0, transfers // 2, transfers // 2, reduces
    ]  # fmt: skip
    compute = graph.kind == TaskKind.COMPUTE
    busy = np.bincount(graph.first[compute], graph.size[compute])
    assert busy.max() * 1e3 == pytest.approx(busiest, abs=0.005)
    assert graph.devices == graph.servers


@published
def test_published_bytes_and_dependencies():
    graph = task_graph_of(read_fbuf(DATA / "100dlrm_16.fbuf")).graph
    assert graph.successors.size == 2712
    reduces = graph.kind == TaskKind.ALLREDUCE
    crosses = np.array([len(group) > 1 for group in graph.groups])[graph.first[reduces]]
    assert graph.size[reduces][crosses].sum() == 306_343_940
    assert graph.size[graph.kind == TaskKind.TRANSFER].sum() == 1_073_741_824


@published
def test_a_published_graph_equals_a_plain_loop():
    data = (DATA / "100dlrm_16.fbuf").read_bytes()
    found, plain = task_graph_of(parse_fbuf(data)), oracle_read(data)
    graph = found.graph
    devices = {row[1]: row for row in plain["devices"]}
    place = {row[1]: at for at, row in enumerate(sorted(plain["tasks"], key=lambda t: t[1]))}
    for kind, ident, device, runtime, size, nexts in plain["tasks"]:
        task = place[ident]
        mine = graph.successors[graph.successor_offsets[task] : graph.successor_offsets[task + 1]]
        if kind == 6:
            assert graph.groups[graph.first[task]] == tuple(sorted(nexts))
            assert (graph.size[task], graph.delay[task]) == (size, runtime / 1e3)
            assert mine.size == 0
            continue
        assert mine.tolist() == [place[after] for after in nexts]
        if kind == 5:
            ends = divmod(devices[device][3], 17)
            assert (graph.first[task], graph.second[task], graph.size[task]) == (*ends, size)
        else:
            assert graph.server_of_device[graph.first[task]] == devices[device][2]
            assert graph.size[task] == runtime / 1e3


@published
def test_published_networks_are_one_switch():
    file = read_fbuf(DATA / "100vgg_16.fbuf")
    network = network_of(file)
    assert (network.hosts, network.switches, network.links) == (16, 1, 32)
    assert set(network.capacity.tolist()) == {12.5e9}
    routes = routes_of(file, network)
    assert routes.hops[1:16].tolist() == [2.0] * 15
    assert rings_of(file) == {tuple(range(16)): (tuple(range(16)),)}
