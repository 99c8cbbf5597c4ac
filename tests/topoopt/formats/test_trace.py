"""Traces: well formed, within the iteration, and nothing left out in silence."""

import json
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from fabric_oracle import circulant
from fbuf_oracle import data_directory
from random_iterations import random_tasks

from codesign_base import InputError
from parallelism.taskgraph import TaskGraph, TaskKind
from topoopt.fabric import PACKETS, Fabric, simulate
from topoopt.formats.trace import DEVICES, save_trace
from topoopt.topology.fabrics import ideal_switch

C, T, A = TaskKind.COMPUTE, TaskKind.TRANSFER, TaskKind.ALLREDUCE
FABRIC = replace(circulant(6, (1, 2), capacity=1e6, latency=1e-3), transport=PACKETS)


def written(path, fabric, tasks, timeline, **options):
    notes = save_trace(path, fabric, tasks, timeline, label=lambda t: f"task {t}", **options)
    return json.loads(path.read_text()), notes


def check(document, makespan):
    """Check what viewers rely on, and return the events by phase."""
    events = document["traceEvents"]
    last = round(makespan * 1e9) / 1e3
    found = defaultdict(list)
    for event in events:
        found[event["ph"]].append(event)
        assert {"ph", "pid", "tid", "name"} <= event.keys()
    assert set(found) <= {"M", "X", "b", "e"}
    named = {e["pid"] for e in found["M"] if e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]) for e in found["M"] if e["name"] == "thread_name"}
    ends = defaultdict(float)
    for event in found["X"]:
        track = event["pid"], event["tid"]
        assert track in threads
        assert event["dur"] >= 0
        assert event["ts"] >= ends[track]
        # Times are whole nanoseconds.
        ends[track] = round(event["ts"] + event["dur"], 3)
        assert 0 <= event["ts"] <= ends[track] <= last
    open_ = {}
    for event in [e for e in events if e["ph"] in "be"]:
        assert event["pid"] in named
        assert 0 <= event["ts"] <= last
        key = event["cat"], event["id"]
        if event["ph"] == "b":
            assert key not in open_
            open_[key] = event
        else:
            begun = open_.pop(key)
            assert (begun["pid"], begun["name"]) == (event["pid"], event["name"])
            assert begun["ts"] <= event["ts"]
    assert not open_
    return found


@pytest.mark.parametrize("model", ["fluid", "packet"])
@pytest.mark.parametrize("seed", range(6))
def test_traces_are_well_formed(tmp_path, seed, model):
    tasks = random_tasks(np.random.default_rng(seed), count=60)
    timeline = simulate(FABRIC, tasks, model=model)
    document, notes = written(tmp_path / "t.json", FABRIC, tasks, timeline)
    found = check(document, timeline.makespan)
    assert notes == () and document["otherData"]["notes"] == []
    assert len(found["X"]) == np.sum(tasks.kind == C)
    busy = np.zeros(6)
    for event in found["X"]:
        busy[event["tid"]] += event["dur"] / 1e6
    np.testing.assert_allclose(busy, timeline.device_busy, atol=1e-7)
    # Every network task with bytes crosses each link that its route or its rings use.
    crossing = defaultdict(set)
    for event in found["b"]:
        crossing[event["args"]["task"]].add(event["pid"] - DEVICES - 1)
    for task in np.flatnonzero(tasks.kind != C).tolist():
        first, second = int(tasks.first[task]), int(tasks.second[task])
        if tasks.size[task] == 0.0:
            links = []
        elif tasks.kind[task] == T:
            links = FABRIC.routes.row(first, second)[0].tolist()
        elif len(tasks.groups[first]) == 1:
            links = []
        else:
            links = FABRIC.group_streams(tasks.groups[first]).links.tolist()
        assert crossing[task] == set(links)


def test_slices_say_what_they_are(tmp_path):
    tasks = TaskGraph.from_lists(
        6,
        [(C, 2, -1, 0.25, 0.0), (T, 2, 3, 1e5, 0.0), (A, 0, -1, 2e5, 0.5), (A, 1, -1, 1e5, 0.0)],
        [(0, 1)],
        ((0, 2, 4), (0, 1, 3)),
    )
    timeline = simulate(FABRIC, tasks)
    document, _ = written(tmp_path / "t.json", FABRIC, tasks, timeline)
    found = check(document, timeline.makespan)
    args = {e["args"]["task"]: e["args"] for e in found["b"]}
    assert args[1]["bytes"] == 1e5 and args[1]["servers"] == "2 -> 3"
    assert args[2] == {
        "task": 2, "bytes": 2e5, "servers": "0..4 by 2", "group_size": 3, "delay_us": 5e5,
        "critical": args[2]["critical"],
    }  # fmt: skip
    assert args[3]["servers"] == "0, 1, 3"
    compute = found["X"][0]
    assert (compute["ts"], compute["dur"], compute["name"]) == (0.0, 250_000.0, "task 0")
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in found["M"] if "_name" in e["name"]}
    assert names[DEVICES, 5] == "server 5"
    link = FABRIC.network.link(2, 3)
    assert names[DEVICES + 1 + link, 0].startswith("link 2 -> 3 (")
    critical = {e["args"]["task"] for e in found["X"] + found["b"] if e["args"]["critical"]}
    assert critical == {2} or critical == {0, 1}


def test_what_is_left_out_is_noted(tmp_path):
    tasks = random_tasks(np.random.default_rng(1), count=60)
    timeline = simulate(FABRIC, tasks)
    document, notes = written(tmp_path / "t.json", FABRIC, tasks, timeline, most_links=3)
    found = check(document, timeline.makespan)
    assert len({e["pid"] for e in found["M"]}) == 1 + 3
    busiest = np.argsort(-timeline.link_bytes / FABRIC.network.capacity, kind="stable")[:3]
    assert {e["pid"] - DEVICES - 1 for e in found["b"]} == set(busiest.tolist())
    assert len(notes) == 1 and "the 3 busiest of 12 links" in notes[0]
    assert document["otherData"]["notes"] == list(notes)
    none, notes = written(tmp_path / "t.json", FABRIC, tasks, timeline, most_links=0)
    assert not check(none, timeline.makespan)["b"] and len(notes) == 1
    with pytest.raises(InputError, match="-1 links"):
        written(tmp_path / "t.json", FABRIC, tasks, timeline, most_links=-1)


def test_a_failed_trace_leaves_the_old_file(tmp_path):
    path = tmp_path / "t.json"
    path.write_text("old")
    tasks = random_tasks(np.random.default_rng(2))

    def broken(_task):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        save_trace(path, FABRIC, tasks, simulate(FABRIC, tasks), label=broken)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]


def test_the_same_iteration_gives_the_same_bytes(tmp_path):
    tasks = random_tasks(np.random.default_rng(4))
    for name in ("a.json", "b.json"):
        written(tmp_path / name, FABRIC, tasks, simulate(FABRIC, tasks, model="packet"))
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_devices_of_one_server_are_told_apart(tmp_path):
    tasks = TaskGraph.from_lists(3, [(C, 1, -1, 1.0, 0.0), (C, 2, -1, 1.0, 0.0)], [])
    tasks = replace(tasks, server_of_device=np.array([0, 0, 1]))
    fabric = Fabric("switch", *ideal_switch(3, 1e6, 0.0))
    document, _ = written(tmp_path / "t.json", fabric, tasks, simulate(fabric, tasks), processors=2)
    names = [e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"]
    assert names == [
        "server 0, device 0", "server 0, device 1", "server 1, transfers inside (device 2)"
    ]  # fmt: skip


@pytest.mark.skipif(data_directory() is None, reason="the published task graphs are not here")
def test_published_graph(tmp_path):
    from topoopt.studies.replay import replay_fabric
    from topoopt.studies.workload import load_workload

    workload = load_workload(data_directory() / "100dlrm_16.fbuf")
    replay = replay_fabric(workload, "fat-tree")
    timeline = simulate(replay.merged, workload.tasks)
    path = tmp_path / "t.json"
    notes = save_trace(path, replay.fabric, workload.tasks, timeline, label=workload.label)
    found = check(json.loads(path.read_text()), timeline.makespan)
    assert len(found["X"]) == 720
    assert "the 64 busiest of 96 links" in notes[0]
