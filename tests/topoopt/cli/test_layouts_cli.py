"""`topoopt simulate`, `what-if` and `export` on plans by layouts."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cli_runs import refused, run
from small_layouts import lone_layout_plan, shared_moe_plan

from parallelism.taskgraph import TaskKind
from topoopt.fabric import jittered, simulate
from topoopt.fabric.transport import Transport
from topoopt.formats.fbuf_check import COMPUTES
from topoopt.formats.fbuf_file import FbufDevice, FbufTask
from topoopt.formats.fbuf_read import read_fbuf
from topoopt.plan.rebuild import rebuild
from topoopt.topology.network_file import load_network

PLANS = {
    "scattered": shared_moe_plan,
    "experts": lambda: shared_moe_plan(expert=4),
    "reduced": lambda: shared_moe_plan(zero=0),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with plans by layouts."""
    directory = tmp_path_factory.mktemp("layouts")
    for name, plan in PLANS.items():
        plan().save(directory / f"{name}.json")
    return directory


@pytest.fixture(autouse=True)
def inside(place, monkeypatch):
    monkeypatch.chdir(place)


def simulated(*arguments):
    return json.loads(run("simulate", *arguments, "--json"))


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_takes_the_time_that_it_says(name):
    plan = PLANS[name]()
    found = simulated(f"{name}.json")
    assert found["iteration_time_s"] == pytest.approx(plan.iteration_time_s, rel=1e-12)
    assert found["exposed_communication_s"] == pytest.approx(plan.exposed_communication_s)
    assert found["transfer_bytes"] == pytest.approx(plan.transfer_bytes)
    assert found["allreduce_bytes"] == pytest.approx(plan.allreduce_bytes)
    assert found["bandwidth_tax"] == pytest.approx(plan.bandwidth_tax)
    # A device is a rank; there are two on each server, and all of them compute.
    assert [use["server"] for use in found["devices"]] == [0, 0, 1, 1, 2, 2, 3, 3]
    for use in found["devices"]:
        parts = use["busy_s"], use["exposed_communication_s"], use["waiting_compute_s"]
        assert use["processor"] and use["busy_s"] > 0
        assert sum(parts) == pytest.approx(found["iteration_time_s"])


def test_packets_take_about_as_long_as_the_fluid():
    built = rebuild(shared_moe_plan())
    tasks = built.tasks()
    fluid = simulated("scattered.json")
    packets = simulated("scattered.json", "--model", "packet", "--jitter", "3", "--seed", "5")
    expected = jittered(built.fabric, tasks, 3, model="packet", seed=5)
    assert packets["jitter_iteration_times_s"] == expected.times.tolist()
    assert packets["iteration_time_s"] == pytest.approx(fluid["iteration_time_s"], rel=0.05)
    # Computing takes as long in both; only the network differs.
    busy = [[use["busy_s"] for use in found["devices"]] for found in (fluid, packets)]
    assert busy[0] == pytest.approx(busy[1], rel=1e-12)
    again = simulated("scattered.json", "--model", "packet", "--compat", "reconnect")
    cold = replace(built.fabric, transport=Transport(reconnect=True))
    assert again["iteration_time_s"] == simulate(cold, tasks, model="packet").makespan


def test_options_of_schedules():
    plain = simulated("reduced.json")["iteration_time_s"]
    fused = simulated("reduced.json", "--buckets", "25MB")
    assert fused["schedule"] == "buckets of 25 MB"
    assert fused["allreduce_completion"]["tasks"] < 24
    assert fused["allreduce_bytes"] == pytest.approx(shared_moe_plan(zero=0).allreduce_bytes)
    assert fused["iteration_time_s"] != plain
    message = refused("simulate", "scattered.json", "--buckets", "25MB")
    assert "buckets is 25 MB, but scattered scatters its gradients" in message
    ordered = simulated("experts.json", "--priority", "critical-path", "--compute-order",
                        "critical-path")  # fmt: skip
    assert ordered["iteration_time_s"] != simulated("experts.json")["iteration_time_s"]
    message = refused(
        "simulate", "scattered.json", "--priority", "transfers-first", "--model", "packet"
    )
    assert "priority is 'transfers-first', but links of the packet model are first in" in message


def test_text_and_other_fabrics():
    text = run("simulate", "scattered.json")
    assert "collectives" in text and "AllReduces" not in text
    assert "AllReduces" in run("simulate", "reduced.json")
    own = simulated("scattered.json")["iteration_time_s"]
    assert simulated("scattered.json", "--fabric", "ideal")["iteration_time_s"] < own
    assert simulated("scattered.json", "--fabric", "scattered.json")["iteration_time_s"] == own
    slow = simulated("scattered.json", "--fabric", "fat-tree", "--bandwidth", "10Gbps")
    assert slow["iteration_time_s"] > own


def test_a_trace_has_a_track_for_every_rank():
    plan = shared_moe_plan(expert=4)
    run("simulate", "experts.json", "--timeline", "trace.json")
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    names = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert names == [f"server {rank // 2}, device {rank}" for rank in range(8)]
    tasks = rebuild(plan).tasks()
    computed = [event for event in events if event["ph"] == "X"]
    assert len(computed) == (tasks.kind == TaskKind.COMPUTE).sum()
    labels = {event["name"] for event in computed}
    assert {"forward of part 0, microbatch 0", "backward of part 1, microbatch 1"} <= labels
    crossing = {event["args"]["task"] for event in events if event["ph"] == "b"}
    assert crossing == set(np.flatnonzero((tasks.kind != TaskKind.COMPUTE) & (tasks.size > 0)))
    ends = max(event["ts"] + event["dur"] for event in computed) / 1e6
    assert ends == pytest.approx(plan.iteration_time_s, abs=1e-8)


@pytest.mark.parametrize("name", PLANS)
def test_an_exported_plan_takes_as_long(name):
    plan = PLANS[name]()
    text = run("export", f"{name}.json", "--format", "fbuf", "-o", f"{name}.fbuf")
    tasks = rebuild(plan).tasks()
    reduced = int((tasks.collective & (tasks.size > 0.0)).sum())
    noun = "AllReduces" if name == "reduced" else "collectives"
    file = read_fbuf(f"{name}.fbuf")
    moves = file.task_type == FbufTask.NOMINAL_COMM
    messages = int(moves.sum() - (tasks.kind == TaskKind.TRANSFER).sum())
    assert f"note: {reduced} {noun} are in the file as {messages} messages" in text
    # Every rank's passes are on a GPU of its own, on the rank's server.
    computed = np.isin(file.task_type, COMPUTES)
    assert computed.sum() == (tasks.kind == TaskKind.COMPUTE).sum()
    used = np.unique(file.task_device[computed])
    where = dict(zip(file.device_id.tolist(), file.device_node.tolist(), strict=True))
    kind = dict(zip(file.device_id.tolist(), file.device_type.tolist(), strict=True))
    assert [where[device] for device in used.tolist()] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert {kind[device] for device in used.tolist()} == {FbufDevice.GPU}
    assert file.gpus_per_node == 2 and file.op_name == ("part_0", "part_1")
    sent = plan.transfer_bytes + plan.allreduce_bytes
    assert file.task_bytes[moves].sum() == pytest.approx(sent, abs=float(moves.sum()))
    # In the fluid model a collective is one stream in the plan, and single messages in the file.
    whole = simulated(f"{name}.fbuf")
    assert whole["iteration_time_s"] == pytest.approx(plan.iteration_time_s, rel=0.01)
    options = ("--model", "packet", "--compat", "reconnect")
    packets, file_packets = simulated(f"{name}.json", *options), simulated(f"{name}.fbuf", *options)
    ratio = file_packets["iteration_time_s"] / packets["iteration_time_s"]
    assert ratio == pytest.approx(1.0, rel=1e-6)


def test_what_the_format_cannot_say_of_layouts():
    message = refused("export", "scattered.json", "--format", "fbuf", "--allreduce", "rings",
                      "-o", "x.fbuf")  # fmt: skip
    assert message == (
        "task graph: the .fbuf format knows no ReduceScatter or AllGather; give --allreduce rounds"
    )
    text = run("export", "scattered.json", "--format", "fbuf", "--omit-updates", "-o", "less.fbuf")
    updates = int((rebuild(shared_moe_plan()).tasks().phase == 2).sum())
    assert f"{updates} optimizer steps that wait for an AllReduce are left out" in text


def test_networks():
    plan = shared_moe_plan()
    for kind, name in (("graphml", "net.graphml"), ("node-link", "net.json")):
        run("export", "scattered.json", "--format", kind, "-o", name)
        network = load_network(name)
        assert network.hosts == 4 and network.links == len(plan.links)
        found = simulated("scattered.json", "--fabric", name)
        assert found["iteration_time_s"] >= 0.9 * plan.iteration_time_s


@pytest.mark.parametrize("what", ["links", "ports"])
def test_cables_and_ports_fail(what):
    plan = shared_moe_plan()
    found = what_if(f"--fail-{what}", 1, "--trials", 4)
    assert found["iteration_time_s"] == pytest.approx(plan.iteration_time_s, rel=1e-12)
    assert found[f"fail_{what}"] == 1 and found["trials"] == 4
    assert all(row["disconnected"] == 0 for row in found["repairs"].values())
    assert found["best"]["mean_s"] >= plan.iteration_time_s * (1 - 1e-9)
    assert found["notes"] == []


def what_if(*arguments):
    return json.loads(run("what-if", "scattered.json", *arguments, "-q", "--json"))


def test_servers_fail():
    two = what_if("--fail-servers", 2, "--trials", 3)
    assert two["batch_share"] == 0.5
    (note,) = two["notes"]
    assert "without the replicas that lost one" in note
    assert two["does_not_fit"] == 0 and two["why_not"] is None
    assert two["repairs"]["rewired"]["disconnected"] == 0
    # Two stages of two expert ranks do not fill six GPUs, but four of them.
    three = what_if("--fail-servers", 1, "--trials", 3)
    assert three["batch_share"] == 0.75 and three["does_not_fit"] == 0
    assert three["best"]["mean_s"] > two["repairs"]["rewired"]["mean_s"]
    # Nor two.
    one = what_if("--fail-servers", 3, "--trials", 3)
    assert one["does_not_fit"] == 3
    assert "no layout fills 2 GPUs with a global batch of 2" in one["why_not"]
    assert one["best"]["mean_s"] is None
    text = run("what-if", "scattered.json", "--fail-servers", 3, "--trials", 3, "-q")
    assert "in 3 of 3 trials they do not: model 'small-moe': no layout fills 2 GPUs" in text
    lone_layout_plan().save("lone.json")
    for option in ((), ("--each-link",), ("--fail-servers", 1)):
        assert "lone.json is for one server, whose failure" in refused(
            "what-if", "lone.json", *option
        )
    message = refused("what-if", "scattered.json", "--fail-servers", 1, "--steps", 5)
    assert message.startswith("--steps is 5, but layouts of a transformer are all looked at")
