"""`topoopt wire` and the exports for simulators and launchers: there and back, and refusals."""

import json
from dataclasses import replace

import pytest
from cli_runs import inside, refused
from small_layouts import shared_layout_plan
from small_plans import planned, shared_plan, small_dlrm

import topoopt as to
from codesign_base import InputError
from parallelism.taskgraph import TaskGraph, TaskKind
from topoopt.formats.chakra_export import chakra_files
from topoopt.formats.chakra_file import TraceNode, attributes, read_trace, trace_bytes
from topoopt.formats.chakra_schema import NodeType


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    directory = tmp_path_factory.mktemp("plans")
    (directory / "operators.json").write_text(shared_plan().to_json())
    (directory / "layouts.json").write_text(shared_layout_plan().to_json())
    return directory


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_what_a_task_graph_file_cannot_say_is_written_as_a_network(tmp_path):
    """A ring that takes other links than the messages of its neighbours."""
    tasks = [(TaskKind.ALLREDUCE, 0, -1, 1e8, 0.0)]
    tasks += [(TaskKind.TRANSFER, 2, 3, 1e8, 0.0), (TaskKind.TRANSFER, 1, 2, 1e8, 0.0)]
    graph = TaskGraph.from_lists(4, tasks, [], ((0, 2, 3),))
    (tmp_path / "traces").mkdir()
    for name, data in chakra_files(graph, str).items():
        (tmp_path / "traces" / name).write_bytes(data)
    options = ("--degree", 2, "--bandwidth", "100Gbps", "--ports", "bidirectional")
    done = inside("wire", tmp_path / "traces", *options, "-o", tmp_path / "wired.fbuf")
    assert isinstance(done.exception, InputError)
    assert "one route a pair; write the network alone (.json, .graphml)" in str(done.exception)
    assert names(tmp_path) == ["traces"]
    assert "wiring" in done.stdout  # which is said before a file is refused
    assert inside("wire", tmp_path / "traces", *options, "-o", tmp_path / "w.json").exit_code == 0


@pytest.mark.parametrize("plan", ["operators", pytest.param("layouts", marks=pytest.mark.slow)])
def test_traces_of_a_plan_are_wired_and_simulated(plans, tmp_path, plan):
    source = plans / f"{plan}.json"
    traces, wired = tmp_path / "traces", tmp_path / "wired.fbuf"
    assert inside("export", source, "--format", "chakra", "-o", traces).exit_code == 0
    assert names(traces) == [
        "comm_groups.json", "export.json", *(f"trace.{rank}.et" for rank in range(4))
    ]  # fmt: skip
    options = ("--degree", 2, "--bandwidth", "100Gbps")
    done = inside("wire", traces, *options, "-o", wired, "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["kind"] == "traces" and report["servers"] == 4
    assert report["lower_bound_s"] <= report["iteration_time_s"]
    assert report["gap"] == pytest.approx(report["iteration_time_s"] / report["lower_bound_s"] - 1)
    # The same tasks without a trip through traces.
    direct = json.loads(inside("wire", source, *options, "--json").stdout)
    assert report["iteration_time_s"] == pytest.approx(direct["iteration_time_s"], rel=1e-3)
    simulated = json.loads(inside("simulate", wired, "--json").stdout)
    assert simulated["iteration_time_s"] == pytest.approx(report["iteration_time_s"], rel=1e-3)
    again = inside("export", wired, "--format", "astra-sim", "-o", tmp_path / "astra")
    assert again.exit_code == 0, again.output
    said = json.loads((tmp_path / "astra" / "export.json").read_text())
    assert said["iteration_time_s"] == pytest.approx(report["iteration_time_s"], rel=1e-3)
    for part in ("workload", "iteration"):
        astray = inside("wire", tmp_path / "astra" / part, *options)
        assert isinstance(astray.exception, InputError)
        assert "is part of an export for ASTRA-sim" in str(astray.exception)
    text = inside("wire", traces, *options).stdout
    assert "no wiring and routing takes less than" in text and "fat-tree" in text


def test_only_an_order_that_traces_lack_is_said_to_be_left_out(tmp_path):
    plan = planned(
        to.Job(small_dlrm(2)), to.Cluster(4, 2, "25Gbps"), steps=0, schedule="compute", baselines=()
    )
    plan.save(tmp_path / "p.json")
    left_out = {}
    for kind in ("astra-sim", "chakra"):
        done = inside("export", tmp_path / "p.json", "--format", kind, "-o", tmp_path / kind)
        assert done.exit_code == 0, done.output
        left_out[kind] = "plain iteration" in done.output
    assert left_out == {"astra-sim": False, "chakra": True}


def test_traces_are_simulated_on_the_plan_they_come_from(plans, tmp_path):
    source = plans / "operators.json"
    assert inside("export", source, "--format", "chakra", "-o", tmp_path / "t").exit_code == 0
    ours = json.loads(inside("simulate", source, "--json").stdout)
    theirs = json.loads(inside("simulate", tmp_path / "t", "--fabric", source, "--json").stdout)
    assert theirs["iteration_time_s"] == pytest.approx(ours["iteration_time_s"], rel=1e-3)


@pytest.mark.parametrize(("plan", "kind", "holds"), [
    ("operators", "msccl", "allreduce-"), ("operators", "nccl", ".conf"),
    ("operators", "netbox", "dcim.interface"), ("layouts", "megatron", "--context-parallel-size"),
    ("layouts", "torchtitan", "[parallelism]"),
])  # fmt: skip
def test_single_outputs_of_a_deployment(plans, tmp_path, plan, kind, holds):
    output = tmp_path / "out"
    done = inside("export", plans / f"{plan}.json", "--format", kind, "-o", output)
    assert done.exit_code == 0, done.output
    if output.is_dir():
        assert any(holds in name for name in names(output)) and "export.json" in names(output)
    else:
        assert holds in output.read_text()
    assert inside("deploy", plans / f"{plan}.json", "-o", tmp_path / "all").exit_code == 0
    deployed = {
        path.read_text() for path in (tmp_path / "all").rglob("*") if path.is_file()
    }  # fmt: skip
    written = [output] if output.is_file() else [p for p in output.iterdir() if p.suffix != ".json"]
    assert all(path.read_text() in deployed for path in written)


@pytest.mark.parametrize(
    "words", [("deploy",), *(("export", "--format", kind) for kind in ("graphml", "fbuf", "chakra",
                                                                     "nccl"))]
)  # fmt: skip
def test_a_plan_with_more_links_than_ports_is_neither_deployed_nor_exported(tmp_path, words):
    plan = shared_plan()
    first, *others = plan.links
    wider = replace(first, cables=first.cables + 1)
    replace(plan, links=[wider, *others]).save(tmp_path / "plan.json")
    command, *options = words
    ending = f".{words[-1]}" if words[-1] in ("graphml", "fbuf") else ""
    said = refused(command, tmp_path / "plan.json", *options, "-o", tmp_path / f"out{ending}")
    assert "is wrong: ports: server 0 sends on 3 ports; it has 2; undo the change" in said
    assert names(tmp_path) == ["plan.json"]


def test_refusals_write_nothing(plans, tmp_path):
    traces = tmp_path / "traces"
    assert (
        inside("export", plans / "layouts.json", "--format", "chakra", "-o", traces).exit_code == 0
    )
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.txt").write_text("meow")
    before = names(tmp_path)
    output = ("-o", tmp_path / "out.fbuf")
    options = ("--degree", 2, "--bandwidth", "100Gbps", *output)
    plan = plans / "operators.json"
    assert "made for plans by layouts" in refused("export", plan, "--format", "megatron", *output)
    assert "holds other files" in refused(
        "export", plan, "--format", "chakra", "-o", tmp_path / "photos"
    )
    assert "ends in .fbuf, .json, .graphml" in refused(
        "wire", traces, *options[:4], "-o", tmp_path / "out.txt"
    )
    assert "hold no network" in refused("simulate", traces, "--fabric", "own")
    whole = (traces / "trace.1.et").read_bytes()
    (traces / "trace.1.et").write_bytes(whole[:-3])
    assert "trace trace.1.et is cut off" in refused("wire", traces, *options)
    cycle = [TraceNode(1, "", NodeType.COMP, (2,), 1), TraceNode(2, "", NodeType.COMP, (1,), 1)]
    nodes = [
        *read_trace(whole, "trace"),
        *(replace(n, id=n.id + 10**9, after=tuple(i + 10**9 for i in n.after)) for n in cycle),
    ]
    (traces / "trace.1.et").write_bytes(trace_bytes(nodes))
    assert "waits in a cycle" in refused("wire", traces, *options)
    odd = TraceNode(0, "", NodeType.COMM_COLL, (), 0, attributes(comm_type=("int64", 40)))
    (traces / "trace.1.et").write_bytes(trace_bytes([odd]))
    assert refused("wire", traces, *options)
    (traces / "trace.1.et").unlink()
    assert "no trace of rank 1" in refused("simulate", traces, "--fabric", "ideal")
    assert names(tmp_path) == before
