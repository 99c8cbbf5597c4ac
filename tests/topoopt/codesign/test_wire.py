"""Wiring of given task graphs: bounds in order, times repeated, published graphs, refusals."""

import re
from pathlib import Path

import numpy as np
import pytest
from fbuf_oracle import data_directory

from codesign_base import InfeasibleError
from parallelism.taskgraph import TaskGraph, TaskKind
from topoopt.bounds.bounds import strategy_bound
from topoopt.codesign.wire import wire_tasks
from topoopt.fabric.simulation import score
from topoopt.problem.cluster import Cluster
from topoopt.studies.workload import load_workload, streams_of

COMPUTE, TRANSFER, ALLREDUCE = TaskKind.COMPUTE, TaskKind.TRANSFER, TaskKind.ALLREDUCE
PUBLISHED = (
    "100candle_16", "100candle_32", "100dlrm_128", "100dlrm_16", "100dlrm_32",
    "100transformer_16", "100transformer_32", "100vgg_16", "100vgg_32", "400candle_16",
    "400dlrm_16", "400transformer_16", "400vgg_16",
)  # fmt: skip
PAGE = Path(__file__).resolve().parents[3] / "docs" / "simulators.md"
SMALL_GRAPHS = ("100candle_32", "100dlrm_16", "400transformer_16", "400vgg_16")


def mixed(servers, seed):
    """Compute, transfers of random pairs, and a gradient of all."""
    rng = np.random.default_rng(seed)
    tasks = [(COMPUTE, v, -1, float(rng.random()) * 1e-3, 0.0) for v in range(servers)]
    edges = []
    for _ in range(2 * servers):
        a, b = rng.permutation(servers)[:2].tolist()
        edges.append((a, len(tasks)))
        tasks.append((TRANSFER, a, b, float(rng.integers(1, 10**7)), 0.0))
    edges += [(v, len(tasks)) for v in range(servers)]
    tasks.append((ALLREDUCE, 0, -1, 4e7, 0.0))
    return TaskGraph.from_lists(servers, tasks, edges, (tuple(range(servers)),))


@pytest.mark.parametrize(("servers", "degree", "ports"), [
    (4, 1, "directed"), (6, 2, "directed"), (8, 3, "bidirectional"),
])  # fmt: skip
def test_bounds_are_in_order_and_the_time_is_that_of_the_fabric(servers, degree, ports):
    tasks = mixed(servers, servers)
    cluster = Cluster(servers, degree, "100Gbps", ports)
    wired = wire_tasks(tasks, cluster)
    fabric = wired.pair.fabric
    assert wired.pair.time == score(fabric, tasks)
    assert wired.bound.seconds == strategy_bound(tasks, degree, cluster.port_rate, 2e-6).seconds
    bounds = (wired.bound, wired.topology, wired.routes, wired.collective)
    times = [*(bound.seconds for bound in bounds), wired.pair.time]
    assert times == sorted(times)
    network = fabric.network
    for ends in (network.source, network.target):
        used = np.bincount(ends, weights=network.multiplicity, minlength=servers)
        assert used.max() <= degree
    fat_tree = wired.baselines["fat-tree"]
    assert fat_tree.cost_usd == pytest.approx(wired.cost_usd)


def test_a_group_that_reduces_little_gets_no_ports():
    """Halves reduce 800 MB beside transfers between them; all reduce a few kB afterwards."""
    groups = tuple(range(0, 16, 2)), tuple(range(1, 16, 2)), tuple(range(16))
    tasks = [(ALLREDUCE, 0, -1, 8e8, 0.0), (ALLREDUCE, 1, -1, 8e8, 0.0)]
    for v in range(0, 16, 2):
        other = (3 * v + 5) % 16
        tasks += [(TRANSFER, v, other, 2e8, 0.0), (TRANSFER, other, v, 2e8, 0.0)]
    tasks.append((ALLREDUCE, 2, -1, 4e3, 0.0))
    last = len(tasks) - 1
    graph = TaskGraph.from_lists(16, tasks, [(t, last) for t in range(last)], groups)
    wired = wire_tasks(graph, Cluster(16, 4, "100Gbps"))
    # A port for the transfers and three for the rings of each half; with a ring of all two.
    assert wired.pair.time < 1.1 * (2 * 7 / 8 * 8e8 / (3 * 12.5e9))


def test_one_allreduce_reaches_the_bound():
    tasks = TaskGraph.from_lists(8, [(ALLREDUCE, 0, -1, 8e8, 0.0)], [], (tuple(range(8)),))
    wired = wire_tasks(tasks, Cluster(8, 2, "100Gbps"))
    closed = 2 * 7 / 8 * 8e8 / (2 * 12.5e9)
    assert wired.pair.time == pytest.approx(closed, rel=2e-3)
    assert wired.gap < 2e-3
    assert wired.baselines["fat-tree"].time_s > wired.pair.time


@pytest.mark.parametrize(
    "name",
    [n if n in SMALL_GRAPHS else pytest.param(n, marks=pytest.mark.slow) for n in PUBLISHED],
)
def test_published_graphs_beat_the_fat_tree_of_the_same_cost(name):
    directory = data_directory()
    if directory is None:
        pytest.skip("the published task graphs are not here")
    tasks = streams_of(load_workload(directory / f"{name}.fbuf")).tasks
    wired = wire_tasks(tasks, Cluster(tasks.servers, 4, "100Gbps"))
    assert wired.pair.time <= wired.baselines["fat-tree"].time_s
    assert wired.bound.seconds <= min(wired.pair.time, wired.baselines["ideal-switch"].time_s)
    (row,) = re.findall(rf"^\| {name} \|(.*)\|$", PAGE.read_text(), re.M)
    time, bound, gap, tree, over, switch = (cell.strip() for cell in row.split("|"))
    fat_tree, ideal = (wired.baselines[name].time_s for name in ("fat-tree", "ideal-switch"))
    found = (wired.pair.time, wired.bound.seconds, fat_tree, ideal)
    for told, seconds in zip((time, bound, tree, switch), found, strict=True):
        assert told == f"{1e3 * seconds:.{len(told.partition('.')[2])}f}"
    digits = len(gap.removesuffix(" %").partition(".")[2])
    assert gap == f"{100 * (wired.pair.time / wired.bound.seconds - 1):.{digits}f} %"
    assert over == f"{fat_tree / wired.pair.time:.2f}"


def test_what_has_no_answer_is_refused():
    alone = TaskGraph.from_lists(1, [(COMPUTE, 0, -1, 1.0, 0.0)], [])
    with pytest.raises(InfeasibleError, match="two or more"):
        wire_tasks(alone, Cluster(1, 1, "100Gbps"))
    nothing = TaskGraph.from_lists(2, [(COMPUTE, 0, -1, 0.0, 0.0)], [])
    with pytest.raises(InfeasibleError, match="computes and sends nothing"):
        wire_tasks(nothing, Cluster(2, 1, "100Gbps"))
