"""How fast the fabric scores a strategy; run by hand: ``pytest benchmarks/bench_fabric.py``.

The published task graphs are looked for under ``$TOPOOPT_DATA/taskgraphs``; the peak of memory
that arrays and Python objects take in one run is in the extra information.

DLRM-like iterations on circulant networks: tables on half (or all) of the servers send to every
server and receive gradients back, dense layers run on every server, their gradients are
AllReduced over all. "Scattered" places tables at random and routes each pair over shortest paths
drawn at random, so that hardly two flows end together: the hardest case for exact rates.
"""

import os
import time
import tracemalloc
from collections.abc import Callable
from itertools import islice, permutations
from pathlib import Path

import numpy as np
import pytest
from default_rings_oracle import rings_of
from fabric_oracle import simulate_plainly

from parallelism.taskgraph import TaskGraph, TaskKind
from routing.merging import merge_equivalent_links
from routing.network import Network
from routing.routes import Routes
from topoopt.fabric import Fabric, Transport, default_rings, score, simulate
from topoopt.fabric.fluid import run_fluid
from topoopt.fabric.packets import run_packets
from topoopt.formats.fbuf_read import read_fbuf
from topoopt.formats.taskgraph_fbuf import task_graph_of
from topoopt.topology.fabrics import fat_tree, ideal_switch

C, T, A = TaskKind.COMPUTE, TaskKind.TRANSFER, TaskKind.ALLREDUCE
BANDWIDTH, LATENCY = 12.5e9, 1e-6


def circulant_fabric(hosts: int, steps: tuple[int, ...], paths: int, scattered: bool) -> Fabric:
    """Return a circulant whose pairs split over up to so many orders of a shortest route."""
    rng = np.random.default_rng(0)
    cables = [(i, (i + p) % hosts) for i in range(hosts) for p in steps]
    source, target = zip(*cables, strict=True)
    network = Network.from_links("circulant", hosts, 0, source, target, BANDWIDTH, LATENCY)
    coins: dict[int, tuple[int, ...]] = {0: ()}
    edge = [0]
    while len(coins) < hosts:
        reached = [(d, p) for d in edge for p in steps]
        edge = []
        for d, p in reached:
            if (d + p) % hosts not in coins:
                coins[(d + p) % hosts] = (*coins[d], p)
                edge.append((d + p) % hosts)
    orders = {d: sorted(set(islice(permutations(c), 120))) for d, c in coins.items()}
    offsets, links, weights = [0], [], []
    hops = np.zeros(hosts * hosts)
    for pair in range(hosts * hosts):
        ways = orders[(pair % hosts - pair // hosts) % hosts]
        count = min(paths, len(ways))
        picked = rng.choice(len(ways), count, replace=False) if scattered else range(count)
        row: dict[int, float] = {}
        for way in picked:
            here = pair // hosts
            for p in ways[way]:
                link = network.link(here, (here + p) % hosts)
                row[link] = row.get(link, 0.0) + 1 / count
                here = (here + p) % hosts
        links += sorted(row)
        weights += [row[link] for link in sorted(row)]
        offsets.append(len(links))
        hops[pair] = len(ways[0])
    routes = Routes(
        hosts, np.array(offsets), np.array(links), np.array(weights), hops * LATENCY, hops
    )
    rings = tuple(tuple(i * p % hosts for i in range(hosts)) for p in steps)
    return Fabric("circulant", network, routes, {tuple(range(hosts)): rings})


def hybrid(
    hosts: int, tables: int, bottom: int, top: int, reduces: int, scattered: bool
) -> TaskGraph:
    """Return one DLRM iteration: tables on some servers, dense layers on all."""
    rng = np.random.default_rng(1)
    place = rng.permutation(hosts)[:tables] if scattered else np.arange(tables) * (hosts // tables)
    tasks: list[tuple[TaskKind, int, int, float, float]] = []
    edges: list[tuple[int, int]] = []

    def add(kind: TaskKind, first: int, second: int, size: float, after: list[int]) -> int:
        tasks.append((kind, first, second, size, 1e-4 if kind == A else 0.0))
        edges.extend((before, len(tasks) - 1) for before in after)
        return len(tasks) - 1

    def chain(server: int, length: int, seconds: float, after: list[int]) -> list[int]:
        made: list[int] = []
        for _ in range(length):
            made.append(add(C, server, -1, seconds, made[-1:] or after))
        return made

    shard = 512 * 128 * 4.0
    lookups = [add(C, int(place[k]), -1, 2e-4, []) for k in range(tables)]
    gathered: list[list[int]] = [[] for _ in range(hosts)]
    for k in range(tables):
        for v in range(hosts):
            local = v == place[k]
            sent = lookups[k] if local else add(T, int(place[k]), v, shard, [lookups[k]])
            gathered[v].append(sent)
    gradients: list[list[int]] = [[] for _ in range(reduces)]
    interactions = []
    for v in range(hosts):
        inputs = chain(v, bottom, 2e-5, [])[-1:] + gathered[v]
        forward = chain(v, top + 1, 6e-5, inputs)
        backward = chain(v, top, 12e-5, forward[-1:])
        interactions.append(backward[-1])
        backward += chain(v, bottom, 4e-5, backward[-1:])
        for i in range(reduces):
            gradients[i].append(backward[(i + 1) * len(backward) // reduces - 1])
    for k in range(tables):
        home = int(place[k])
        sent_back = [add(T, v, home, shard, [interactions[v]]) for v in range(hosts) if v != home]
        add(C, home, -1, 2e-4, [*sent_back, interactions[home]])
    for i in range(reduces):
        add(A, 0, -1, 1.2e9 / reduces * float(rng.uniform(0.5, 1.5)), gradients[i])
    return TaskGraph.from_lists(hosts, tasks, edges, (tuple(range(hosts)),))


SETTINGS = {
    "16": (16, (1, 3, 5, 7), 16, 7, 16, 40),
    "128": (128, (1, 5, 13, 39), 64, 24, 66, 25),
}


def iteration(size: str, paths: int, scattered: bool) -> tuple[Fabric, TaskGraph]:
    hosts, steps, tables, bottom, top, reduces = SETTINGS[size]
    fabric = circulant_fabric(hosts, steps, paths, scattered)
    return fabric, hybrid(hosts, tables, bottom, top, reduces, scattered)


@pytest.mark.parametrize("tolerance", [0.0, 0.01])
@pytest.mark.parametrize("scattered", [False, True], ids=["symmetric", "scattered"])
@pytest.mark.parametrize("paths", [1, 3])
@pytest.mark.parametrize("size", list(SETTINGS))
def test_score(benchmark, size: str, paths: int, scattered: bool, tolerance: float) -> None:  # type: ignore[no-untyped-def]
    fabric, tasks = iteration(size, paths, scattered)
    exact = score(fabric, tasks)
    found = benchmark(score, fabric, tasks, completion_tolerance=tolerance)
    work = run_fluid(fabric, tasks, tolerance)
    benchmark.extra_info.update(
        scores_per_second=1 / benchmark.stats["mean"],
        tasks=tasks.tasks,
        instants=work.instants,
        solves=work.solves,
        streams_per_solve=work.resolved / work.solves,
        makespan_error=found / exact - 1,
    )


@pytest.mark.parametrize("resolve_all", [False, True], ids=["incremental", "full"])
def test_incremental_rates(benchmark, resolve_all: bool) -> None:  # type: ignore[no-untyped-def]
    fabric, tasks = iteration("128", 1, True)
    benchmark.pedantic(run_fluid, (fabric, tasks), {"resolve_all": resolve_all}, warmup_rounds=1)


@pytest.mark.parametrize("share", [0.98, 0.8])
@pytest.mark.parametrize("scattered", [False, True], ids=["symmetric", "scattered"])
def test_limit_foreseen(benchmark, scattered: bool, share: float) -> None:  # type: ignore[no-untyped-def]
    """How many times faster than a whole simulation an idle link betrays that a limit is passed."""
    fabric, tasks = iteration("128", 1, scattered)
    limit = share * score(fabric, tasks)
    began = time.perf_counter()
    run_fluid(fabric, tasks, 0.03)
    whole_s = time.perf_counter() - began
    found = benchmark(run_fluid, fabric, tasks, 0.03, limit=limit, foresee=True)
    assert np.isinf(found.finish.max())
    benchmark.extra_info.update(times_faster=whole_s / benchmark.stats["mean"])


def test_against_the_oracle(benchmark) -> None:  # type: ignore[no-untyped-def]
    """How many times faster than the plain-Python event loop, on 16 servers."""
    fabric, tasks = iteration("16", 1, False)
    score(fabric, tasks)
    began = time.perf_counter()
    expected = simulate_plainly(fabric, tasks)
    oracle_s = time.perf_counter() - began
    timeline = benchmark(simulate, fabric, tasks)
    np.testing.assert_allclose(timeline.finish, expected.finish, rtol=1e-9)
    benchmark.extra_info.update(times_faster=oracle_s / benchmark.stats["mean"])


@pytest.mark.parametrize("members", [8, 64, 128])
def test_rings_of_a_new_group(benchmark, members: int) -> None:  # type: ignore[no-untyped-def]
    fabric = circulant_fabric(128, (1, 5, 13, 39), 1, True)
    group = tuple(sorted(np.random.default_rng(0).permutation(128)[:members].tolist()))
    began = time.perf_counter()
    expected = rings_of(fabric.network, fabric.routes, group)
    oracle_s = time.perf_counter() - began
    assert benchmark(default_rings, fabric.network, fabric.routes, group) == expected
    benchmark.extra_info.update(times_faster=oracle_s / benchmark.stats["mean"])


DATA = Path(os.environ.get("TOPOOPT_DATA", "shared/data")) / "taskgraphs"
PUBLISHED = sorted(DATA.glob("*.fbuf"), key=lambda path: path.stat().st_size)


def traced_peak(work: Callable[[], object]) -> int:
    """Return the most bytes that one run holds beyond what was there before."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def published_fabric(path: Path, hosts: int, shape: str, model: str, htsim: bool) -> Fabric:
    """Return the fabric that a published graph is replayed on, at the rate that it is named by."""
    rate = float(path.stem[:3]) * 1e9 / 8
    network, routes = (ideal_switch if shape == "ideal" else fat_tree)(hosts, rate, LATENCY)
    if shape == "fat-tree" and model == "fluid":
        network, routes, _ = merge_equivalent_links(network, routes)
    return Fabric(shape, network, routes, transport=Transport(htsim=htsim))


@pytest.mark.parametrize("htsim", [False, True], ids=["default", "htsim"])
@pytest.mark.parametrize("shape", ["ideal", "fat-tree"])
@pytest.mark.parametrize("model", ["fluid", "packet"])
@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
@pytest.mark.benchmark(group="published graphs", timer=time.process_time)
def test_published(benchmark, path: Path, model: str, shape: str, htsim: bool) -> None:  # type: ignore[no-untyped-def]
    tasks = task_graph_of(read_fbuf(path)).graph
    fabric = published_fabric(path, tasks.servers, shape, model, htsim)
    run = run_fluid if model == "fluid" else run_packets
    found = run(fabric, tasks)
    peak = traced_peak(lambda: run(fabric, tasks))
    quick = model == "fluid" and tasks.tasks < 20_000
    benchmark.pedantic(run, (fabric, tasks), rounds=20 if quick else 4, iterations=1)
    benchmark.extra_info.update(
        iteration_time_s=float(found.finish.max()), tasks=tasks.tasks, peak_bytes=peak
    )


def all_to_all(servers: int, size: float, reduced: float) -> TaskGraph:
    """Return transfers between all ordered pairs and four AllReduces over all servers."""
    ends = np.arange(servers)
    source, target = (x.ravel() for x in np.meshgrid(ends, ends, indexing="ij"))
    off = source != target
    moves = int(off.sum())
    count = moves + 4
    zeros = np.zeros(count, dtype=np.int64)
    return TaskGraph(
        servers=servers,
        devices=servers,
        kind=np.concatenate((np.full(moves, T), np.full(4, A))).astype(np.int64),
        first=np.concatenate((source[off], np.zeros(4, dtype=np.int64))),
        second=np.concatenate((target[off], np.full(4, -1))),
        size=np.concatenate((np.full(moves, size), np.full(4, reduced))),
        delay=np.zeros(count),
        operator=zeros,
        phase=zeros,
        part=zeros,
        successor_offsets=np.zeros(count + 1, dtype=np.int64),
        successors=np.zeros(0, dtype=np.int64),
        predecessors=zeros,
        groups=(tuple(range(servers)),),
        server_of_device=ends,
    )


@pytest.mark.parametrize("cached", [True, False], ids=["fabric known", "new fabric"])
@pytest.mark.benchmark(group="a million flows on an ideal switch", timer=time.process_time)
def test_million_flows(benchmark, cached: bool) -> None:  # type: ignore[no-untyped-def]
    tasks = all_to_all(1024, 262144.0, 1e8)
    network, routes = ideal_switch(1024, BANDWIDTH, LATENCY)
    known = Fabric("ideal switch", network, routes)

    def run() -> float:
        fabric = known if cached else Fabric("ideal switch", network, routes)
        return float(run_fluid(fabric, tasks).finish.max())

    makespan = run()
    peak = traced_peak(run)
    assert benchmark.pedantic(run, rounds=5, iterations=1) == makespan
    benchmark.extra_info.update(tasks=tasks.tasks, iteration_time_s=makespan, peak_bytes=peak)
