"""Loading, converting and writing task-graph files.

Run by hand, with the published graphs under ``$TOPOOPT_DATA/taskgraphs``:
``TOPOOPT_DATA=... python -m pytest benchmarks/bench_fbuf.py --benchmark-columns=min,mean``.
The peak of Python's memory while loading is in the extra information of each case.
"""

import os
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from parallelism.taskgraph import TaskGraph
from routing.network import Network
from routing.paths import ecmp_routes, k_shortest_routes
from topoopt.formats.fbuf_export import fbuf_of
from topoopt.formats.fbuf_read import read_fbuf
from topoopt.formats.fbuf_write import write_fbuf
from topoopt.formats.taskgraph_fbuf import task_graph_of

DATA = Path(os.environ.get("TOPOOPT_DATA", "shared/data")) / "taskgraphs"
FILES = sorted(DATA.glob("*.fbuf"), key=lambda path: path.stat().st_size)


def load(path):
    return task_graph_of(read_fbuf(path))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.benchmark(group="load and convert", timer=time.process_time)
def test_load(benchmark, path):
    tracemalloc.start()
    load(path)
    benchmark.extra_info["peak_bytes"] = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert benchmark(load, path).graph.tasks > 0


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.benchmark(group="write", timer=time.process_time)
def test_write(benchmark, path):
    assert len(benchmark(write_fbuf, read_fbuf(path))) > 0


@pytest.mark.parametrize("routing", ["ecmp", "k-shortest"])
@pytest.mark.benchmark(group="export 128 servers, d = 8, without tasks", timer=time.process_time)
def test_export(benchmark, routing):
    steps = [1, 5, 13, 39, 127, 123, 115, 89]
    source = np.repeat(np.arange(128), 8)
    target = (source + np.tile(steps, 128)) % 128
    network = Network.from_links("circulant", 128, 0, source, target, 12.5e9, 1e-6)
    routes = ecmp_routes(network) if routing == "ecmp" else k_shortest_routes(network, 8, slack=1)
    rates = {"gpus_per_node": 4, "intergpu_bandwidth": 25e9, "net_bandwidth": 12.5e9}
    tasks = TaskGraph.from_lists(128, [], [], ())
    file = benchmark.pedantic(
        lambda: fbuf_of(tasks, network, routes, {}, **rates), rounds=3, warmup_rounds=0
    )
    assert file.route_source.size == 128 * 128
