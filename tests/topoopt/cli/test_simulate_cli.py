"""`topoopt simulate`, `validate` and `export` as a user meets them."""

import json
from dataclasses import replace

import numpy as np
import pytest
from cli_runs import inside, refused, run
from fbuf_oracle import data_directory
from small_plans import shared_plan, small_dlrm, small_mlp, solve

from topoopt.fabric import jittered, simulate
from topoopt.formats.fbuf_file import FbufDevice, FbufFile, FbufTask
from topoopt.formats.fbuf_read import read_fbuf
from topoopt.formats.fbuf_ring_routes import moved_ring_edges
from topoopt.plan.rebuild import rebuild
from topoopt.studies.replay import replay_fabric
from topoopt.studies.workload import fbuf_workload, load_workload
from topoopt.topology.network_file import load_network

DATA = data_directory()
published = pytest.mark.skipif(DATA is None, reason="the published task graphs are not here")


def simulated(*arguments, directory):
    return json.loads(run("simulate", *arguments, "--json", directory=directory))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with a plan, its exports, and a plan of fewer servers."""
    directory = tmp_path_factory.mktemp("simulate")
    shared_plan().save(directory / "plan.json")
    solve(small_dlrm(2), 2, 1).save(directory / "two.json")
    run("export", "plan.json", "--format", "fbuf", "--omit-updates", "-o", "plan.fbuf",
        directory=directory)  # fmt: skip
    run("export", "plan.json", "--format", "graphml", "-o", "net.graphml", directory=directory)
    run("export", "plan.json", "--format", "node-link", "-o", "net.json", directory=directory)
    return directory


def renamed(file, name):
    """Return a task-graph file with other names of its nodes, and without its network."""
    none = np.zeros(0, dtype=np.int64)
    reduces = np.repeat(file.task_type == FbufTask.ALLREDUCE, np.diff(file.next_offsets))
    nexts, node, ends = file.next_ids.copy(), file.device_node.copy(), file.device_property.copy()
    nexts[reduces] = name[nexts[reduces].astype(np.int64)]
    inside = node < file.nodes
    node[inside] = name[node[inside].astype(np.int64)]
    nodes = file.nodes + file.switches
    links = (file.device_type == FbufDevice.NETWORK) | (
        file.device_type == FbufDevice.NOMINAL_NETWORK
    )
    source, target = np.divmod(ends[links].astype(np.int64), nodes)
    ends[links] = name[source] * nodes + name[target]
    return replace(
        file, next_ids=nexts, device_node=node, device_property=ends, ring_size=none, jumps=none,
        ring_offsets=np.zeros(1, dtype=np.int64), jump_offsets=np.zeros(1, dtype=np.int64),
    )  # fmt: skip


@published
@pytest.mark.parametrize("graph", ["100candle_16", "100dlrm_16"])
def test_names_of_nodes_do_not_matter_on_a_switch(graph):
    file = read_fbuf(DATA / f"{graph}.fbuf")
    rng = np.random.default_rng(0)
    for model in ("fluid", "packet"):
        times = []
        for name in (np.arange(16), rng.permutation(16)):
            named = np.append(name, np.arange(16, file.nodes + file.switches))
            workload = fbuf_workload(renamed(file, named), "graph")
            fabric = replay_fabric(workload, "ideal").for_model(model)
            times.append(simulate(fabric, workload.tasks, model=model).makespan)
        assert times[1] == pytest.approx(times[0], rel=1e-9)


def test_what_is_wrong_inside_a_file_names_the_file(place):
    plan = json.loads((place / "plan.json").read_text())
    plan["links"][0]["source"] = 99
    (place / "astray.json").write_text(json.dumps(plan))
    assert "plan file 'astray.json'" in refused("simulate", "astray.json", directory=place)
    network = json.loads((place / "net.json").read_text())
    network["edges"] = network["edges"][:1]
    (place / "cut.json").write_text(json.dumps(network))
    message = refused("simulate", "plan.json", "--fabric", "cut.json", directory=place)
    assert "network file 'cut.json'" in message


def test_an_export_does_not_overwrite_the_plan(place):
    before = (place / "plan.json").read_bytes()
    for kind in ("fbuf", "node-link"):
        result = inside("export", "plan.json", "--format", kind, "-o", "plan.json", directory=place)
        assert "plan.json is also read" in str(result.exception)
    assert (place / "plan.json").read_bytes() == before


@pytest.mark.parametrize("model", ["fluid", "packet"])
def test_the_slowest_hops_and_ports_that_are_taken_end(place, model):
    words = ("plan.json", "--fabric", "ideal", "--model", model)
    found = simulated(*words, "--latency", "1h", directory=place)
    assert 3600 < found["iteration_time_s"] < 1e7
    found = simulated(*words, "--bandwidth", "1bps", directory=place)
    assert 3600 < found["iteration_time_s"] < 1e15


@pytest.mark.parametrize("option", [("--latency", "61min"), ("--bandwidth", "0.9bps")])
def test_hops_and_ports_that_a_simulation_loses_are_refused(place, option):
    result = inside("simulate", "plan.json", "--fabric", "ideal", *option, directory=place)
    assert f"{option[1]}' is out of range; give" in str(result.exception)


def test_a_plan_takes_the_time_that_it_says(place):
    plan = shared_plan()
    found = simulated("plan.json", directory=place)
    assert found["iteration_time_s"] == pytest.approx(plan.iteration_time_s, rel=1e-9)
    assert found["exposed_communication_s"] == pytest.approx(plan.exposed_communication_s)
    assert found["critical_compute_s"] == pytest.approx(plan.compute_time_s)
    assert found["bandwidth_tax"] == pytest.approx(plan.bandwidth_tax)
    assert found["transfer_bytes"] == pytest.approx(plan.transfer_bytes)
    assert (found["model"], found["compat"], found["kind"]) == ("fluid", None, "plan")
    assert found["wall_time_s"] > 0
    assert "iteration_time_spread_s" not in found
    assert found["fabric"]["bandwidth_bytes_per_s"] == 12.5e9
    assert len(found["devices"]) == 4 and len(found["links"]) == len(plan.links)
    for device in found["devices"]:
        total = (
            device["busy_s"] + device["exposed_communication_s"] + device["waiting_compute_s"]
        )  # fmt: skip
        assert total == pytest.approx(found["iteration_time_s"])
    shares = [link["utilisation"] for link in found["hottest_links"]]
    assert shares == sorted(shares, reverse=True) and 0 < shares[0] <= 1


def test_text_names_the_answer_and_where_the_bandwidth_comes_from(place):
    text = run("simulate", "plan.json", directory=place)
    for words in ("iteration time", "fluid model", "ports of 100 Gbps (of the plan)", "busiest",
                  "most exposed", "p99", "hottest of", "bandwidth tax"):  # fmt: skip
        assert words in text
    text = run("simulate", "plan.json", "--fabric", "ideal", directory=place)
    assert "200 Gbps a server (of the plan, 2 ports of 100 Gbps)" in text
    text = run("simulate", "plan.fbuf", "--fabric", "ideal", directory=place)
    assert "a server (of the task-graph file" in text
    text = run("simulate", "plan.json", "--fabric", "oversubscribed-fat-tree", "--bandwidth",
               "50Gbps", "--model", "packet", "--jitter", "2", directory=place)  # fmt: skip
    assert "2:1 oversubscribed" in text and "50 Gbps a server (given)" in text
    assert "mean of 2 copies" in text and "spread" in text and "unperturbed" in text


def test_jitter_is_the_mean_of_its_copies(place):
    built = rebuild(shared_plan())
    tasks = built.tasks()
    found = simulated("plan.json", "--model", "packet", "--jitter", "3", "--seed", "5",
                      directory=place)  # fmt: skip
    expected = jittered(built.fabric, tasks, 3, model="packet", seed=5)
    assert found["jitter_iteration_times_s"] == expected.times.tolist()
    assert found["iteration_time_s"] == expected.mean
    assert found["iteration_time_spread_s"] == expected.spread
    plain = simulate(built.fabric, tasks, model="packet", seed=5).makespan
    assert found["unperturbed_iteration_time_s"] == plain


def test_the_same_command_gives_the_same_answer(place):
    command = ("plan.json", "--model", "packet", "--jitter", "2", "--fabric", "fat-tree")
    first, second = (simulated(*command, directory=place) for _ in range(2))
    first.pop("wall_time_s"), second.pop("wall_time_s")
    assert first == second


def test_fabrics_from_files(place):
    own = simulated("plan.json", directory=place)
    assert (
        simulated("plan.json", "--fabric", "own", directory=place)["iteration_time_s"]
        == (own["iteration_time_s"])
    )
    other = simulated("plan.json", "--fabric", "plan.json", directory=place)
    assert other["iteration_time_s"] == own["iteration_time_s"]
    assert other["fabric"]["bandwidth_bytes_per_s"] is None
    graphml = simulated("plan.json", "--fabric", "net.graphml", directory=place)
    node_link = simulated("plan.json", "--fabric", "net.json", directory=place)
    assert graphml["iteration_time_s"] == node_link["iteration_time_s"]
    for routing in ("ecmp", "k-shortest", "single"):
        found = simulated("plan.json", "--fabric", "net.json", "--routing", routing,
                          directory=place)  # fmt: skip
        assert found["iteration_time_s"] >= 0.9 * own["iteration_time_s"]
    # Fewer servers run on a larger network.
    assert simulated("two.json", "--fabric", "net.json", directory=place)["iteration_time_s"] > 0


def test_compat_changes_the_transport(place):
    plain = simulated("plan.json", "--fabric", "ideal", directory=place)
    mimic = simulated("plan.json", "--fabric", "ideal", "--compat", "htsim", directory=place)
    assert mimic["compat"] == "htsim"
    assert mimic["iteration_time_s"] < plain["iteration_time_s"]


def test_faster_links_and_shorter_hops(place):
    slow, fast = (
        simulated("plan.json", "--fabric", "fat-tree", "--bandwidth", rate, directory=place)
        for rate in ("10Gbps", "400Gbps")
    )
    assert slow["iteration_time_s"] > fast["iteration_time_s"]
    near, far = (
        simulated("plan.fbuf", "--latency", hop, "--bandwidth", "25Gbps", directory=place)
        for hop in ("0us", "50us")
    )
    assert near["iteration_time_s"] < far["iteration_time_s"]
    assert near["fabric"]["bandwidth_bytes_per_s"] == 25e9 / 8


def test_a_trace_is_written_and_noted(place):
    text = run("simulate", "plan.json", "--timeline", "trace.json", "--timeline-links", "1",
               directory=place)  # fmt: skip
    assert "note: the trace shows the 1 busiest of" in text
    assert "trace written to trace.json" in text
    events = json.loads((place / "trace.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "b", "e"}
    assert any(event["name"].startswith("forward of ") for event in events)
    found = simulated("plan.json", "--timeline", "trace.json", directory=place)
    assert found["notes"] == []


@pytest.fixture(scope="module")
def without_updates(tmp_path_factory):
    """Return a plan with measured times, which hold no updates, and its directory."""
    directory = tmp_path_factory.mktemp("measured")
    model = small_mlp()
    keys = dict.fromkeys(op.profile_key for op in model.operators)
    measured = [
        {"name": key, "pc_str": f"1-{parts}", "fw_time": (1 + at) / 10 / parts,
         "bw_time": (2 + at) / 10 / parts, "mem_req": 1000.0}
        for at, key in enumerate(keys)
        for parts in (1, 2, 4)
    ]  # fmt: skip
    profile = directory / "profile.json"
    profile.write_text(
        json.dumps({"batch_size": 1024, "ngpus": 4, "measurements": measured})
    )  # fmt: skip
    plan = solve(model, 4, 2, ports="bidirectional", job={"profile": profile}, method="alternating")
    plan.save(directory / "plan.json")
    return directory


@pytest.mark.parametrize("model", ["fluid", "packet"])
def test_an_exported_plan_takes_as_long(without_updates, model):
    text = run("export", "plan.json", "--format", "fbuf", "-o", "plan.fbuf",
               directory=without_updates)  # fmt: skip
    assert text == "fbuf written to plan.fbuf\n"
    plan = simulated("plan.json", "--model", model, directory=without_updates)
    file = simulated("plan.fbuf", "--model", model, "--fabric", "own", directory=without_updates)
    assert file["iteration_time_s"] == pytest.approx(plan["iteration_time_s"], rel=1e-6)
    assert file["bandwidth_tax"] == pytest.approx(plan["bandwidth_tax"], rel=1e-6)
    # And on its default fabric, which is its own network.
    again = simulated("plan.fbuf", "--model", model, directory=without_updates)
    assert again["iteration_time_s"] == file["iteration_time_s"]


def test_exports(place):
    plan = shared_plan()
    for name in ("net.graphml", "net.json"):
        network = load_network(place / name)
        assert network.hosts == 4 and network.links == len(plan.links)
    assert read_fbuf(place / "plan.fbuf").nodes == 4
    text = run("export", "plan.json", "--format", "fbuf", "--omit-updates", "-o", "y.fbuf",
               directory=place)  # fmt: skip
    assert "fbuf written to y.fbuf" in text and "optimizer steps that wait for an AllReduce" in text
    message = refused("export", "plan.json", "--format", "fbuf", "--allreduce", "rings", "-o",
                      "x.fbuf", directory=place)  # fmt: skip
    assert "give --omit-updates or --allreduce rounds" in message
    assert not (place / "x.fbuf").exists()
    text = run("export", "plan.json", "--format", "fbuf", "-o", "rounds.fbuf", directory=place)
    assert "messages, round by round" in text and "left out" not in text
    options = ("--model", "packet", "--compat", "reconnect")
    whole = simulated("plan.json", *options, directory=place)
    file = simulated("rounds.fbuf", *options, directory=place)
    assert file["iteration_time_s"] == pytest.approx(whole["iteration_time_s"], rel=0.02)


def test_ring_edges_run_along_the_jumps_of_the_file(place):
    """A ring of step 2 whose file gives it the links +1, +1, though a link +2 exists."""
    file = read_fbuf(place / "plan.fbuf")
    ends = [(1, 0), (2, 1), (3, 2), (3, 0), (2, 0), (3, 1)]
    whole = replaced(
        file,
        conn_source=[a for a, _ in ends],
        conn_target=[b for _, b in ends],
        conn_cables=[1] * 6,
        hops=[node for a in range(4) for b in range(4) if a != b for node in (a, b)],
        route_source=np.repeat(np.arange(4), 4),
        route_target=np.tile(np.arange(4), 4),
        route_offsets=np.cumsum([0] + [a != b for a in range(4) for b in range(4)]),
        path_chance=np.ones(12),
        hop_offsets=np.arange(13) * 2,
        ring_size=[4, 2],
        ring_offsets=[0, 1, 2],
        jump_offsets=[0, 1, 3],
        jumps=[1, 1, 1],
        task_type=[6, 6], task_id=[1, 2], task_device=[0, 0], task_runtime=[0.0, 0.0],
        task_bytes=[10**6, 10**6], next_offsets=[0, 2, 6], next_ids=[0, 2, 0, 1, 2, 3],
    )  # fmt: skip
    fabric = fbuf_workload(whole, "whole").own_fabric(12.5e9, 1e-6)
    link = fabric.network.link
    assert fabric.edge_routes.row(0, 2)[0].tolist() == sorted([link(0, 1), link(1, 2)])
    assert fabric.edge_routes.hops[0 * 4 + 2] == 2.0
    assert fabric.edge_routes.latency[0 * 4 + 2] == pytest.approx(2e-6)
    assert fabric.edge_routes.row(0, 1)[0].tolist() == [link(0, 1)]
    assert fabric.routes.row(0, 2)[0].tolist() == [link(0, 2)]
    assert moved_ring_edges(fabric, fabric) == 0
    # 0 -> 2 and 2 -> 0.
    assert moved_ring_edges(replace(fabric, ring_routes=None), fabric) == 2


def replaced(file: FbufFile, **changes):
    """Return a file with lists in place of some of its arrays, of their types."""
    return replace(
        file,
        **{k: np.array(v, dtype=getattr(file, k).dtype) for k, v in changes.items()},
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing.fbuf",), "'nothing.fbuf' does not exist"),
        (("nothing.json",), "'nothing.json' does not exist"),
        (("plan.txt",), "neither in .fbuf"),
        ((".",), "'.' is a directory without Chakra traces PREFIX.RANK.et; name a directory"),
        (("net.json",), "is a network, and holds no tasks"),
        (("torn.fbuf",), "truncated"),
        (("torn.json",), "not valid JSON"),
        (("plan.json", "--model", "ns3"), "model is 'ns3'; choose fluid, packet"),
        (("plan.json", "--model", "train"), "now called 'packet'"),
        (("plan.json", "--jitter", "0"), "jitter is 0 copies"),
        (("plan.json", "--jitter", "9" * 12), "give 1 to 100000"),
        (("plan.json", "--timeline", "plan.json"), "plan.json is also read"),
        (("plan.json", "--fabric", "net.json", "--timeline", "./net.json"), "is also read"),
        (("plan.json", "--fabric", ""), "fabric is '', which is no file"),
        (("plan.json", "--seed", "-1"), "seed is -1"),
        (("plan.json", "--compat", "ns3"), "compat is 'ns3'"),
        (("plan.json", "--compat", "reconnect"), "compat is 'reconnect', which the fluid model"),
        (("plan.json", "--bandwidth", "10Gbps"), "--bandwidth does not go with a plan's own"),
        (("plan.json", "--latency", "1us"), "--latency does not go with a plan's own"),
        (("plan.fbuf", "--routing", "ecmp"), "--routing does not go with the file's own"),
        (("plan.json", "--fabric", "ideal", "--bandwidth", "-1Gbps"), "greater than zero"),
        (("plan.json", "--fabric", "ideal", "--bandwidth", "100"), "names no unit"),
        (("plan.json", "--fabric", "ideal", "--latency", "-1us"), "must be zero or more"),
        (("plan.json", "--fabric", "ideal", "--routing", "ecmp"), "--routing does not go with"),
        (("plan.json", "--fabric", "fat-tree", "--oversubscription", "2"), "--oversubscription do"),
        (("plan.json", "--fabric", "oversubscribed-fat-tree", "--oversubscription", "0.5"),
         "oversubscription is 0.5"),
        (("plan.json", "--fabric", "torus"), "fabric is 'torus', which is no file"),
        (("plan.json", "--fabric", "two.json"), "two.json has 2 servers, but plan uses 4"),
        (("plan.json", "--fabric", "two.json", "--routing", "ecmp"), "has its routes"),
        (("plan.json", "--fabric", "plan.fbuf"), "'plan.fbuf', a task-graph file"),
        (("plan.json", "--fabric", "net.json", "--routing", "random"), "routing is 'random'"),
        (("plan.json", "--fabric", "net.json", "--bandwidth", "1Gbps"), "whose links set it"),
        (("plan.json", "--fabric", "torn.json"), "not valid JSON"),
        (("plan.json", "--timeline", "none/trace.json"), "does not exist"),
        (("plan.json", "--timeline-links", "3"), "goes with --timeline only"),
        (("plan.json", "--timeline", "t.json", "--timeline-links", "-1"), "give zero or more"),
    ],
)  # fmt: skip
def test_what_simulate_refuses(place, arguments, message):
    (place / "torn.fbuf").write_bytes((place / "plan.fbuf").read_bytes()[:3000])
    (place / "torn.json").write_text((place / "plan.json").read_text()[:3000])
    assert message in refused("simulate", *arguments, directory=place)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("export", "plan.json", "--format", "xml", "-o", "x"), "format is 'xml'; choose fbuf"),
        (("export", "plan.json", "--format", "graphml", "--omit-updates", "-o", "x"), "not go wi"),
        (("export", "plan.json", "--format", "fbuf", "--allreduce", "x", "-o", "x"), "choose auto"),
        (
            ("export", "plan.json", "--format", "graphml", "--allreduce", "rings", "-o", "x"),
            "not go",
        ),
        (("export", "plan.json", "--format", "graphml", "-o", "x.json"), "that ends in .graphml"),
        (("export", "plan.json", "--format", "fbuf", "-o", "x"), "a name that ends in .fbuf"),
        (("export", "none.json", "--format", "graphml", "-o", "x.xml"), "does not exist"),
        (("export", "plan.json", "--format", "graphml", "-o", "none/x"), "does not exist"),
        (("validate", "--data", "none"), "data directory 'none' does not exist"),
        (("validate", "--models", "ns3"), "model is 'ns3'"),
        (("validate", "--cases", "nothing"), "no case is called 'nothing'"),
    ],
)
def test_what_the_others_refuse(place, arguments, message):
    assert message in refused(*arguments, directory=place)


def test_validate_prints_errors_and_what_is_skipped(place, monkeypatch):
    monkeypatch.delenv("TOPOOPT_DATA", raising=False)
    text = run("validate", "--cases", "*n*ideal*", "-q", directory=place)
    assert "incast-4-ideal-switch" in text and "0 %" in text
    assert "skipped" in text and "100vgg_16/ideal-switch" not in text
    assert "100candle_16/ideal-switch" in text and "TOPOOPT_DATA" in text
    found = json.loads(run("validate", "--cases", "ring-*", "--models", "packet", "--json", "-q",
                           directory=place))  # fmt: skip
    assert [summary["model"] for summary in found["summaries"]] == ["packet", "packet"]
    assert found["cases"][0]["results"]["packet"]["error"] == pytest.approx(0.0, abs=1e-9)
    assert found["source"] and found["data"] is None


@published
def test_published_graphs_on_the_command_line(place):
    file = DATA / "100dlrm_16.fbuf"
    found = simulated(file, directory=place)
    # The file comes from a switch, so that is the default, at the file's bandwidth.
    assert found["fabric"]["name"] == "ideal switch"
    assert found["fabric"]["bandwidth_bytes_per_s"] == 12.5e9
    explicit = simulated(file, "--fabric", "ideal", "--bandwidth", "100Gbps", directory=place)
    assert explicit["iteration_time_s"] == found["iteration_time_s"]
    own = simulated(file, "--fabric", "own", directory=place)
    assert own["iteration_time_s"] == pytest.approx(found["iteration_time_s"], rel=1e-9)
    tree = simulated(file, "--fabric", "fat-tree", "--model", "packet", directory=place)
    assert len(tree["links"]) == 96
    assert found["transfer_bytes"] == 1_073_741_824
    assert max(device["busy_s"] for device in found["devices"]) == pytest.approx(17.568e-3, 1e-3)
    assert load_workload(file).processors == 16
    text = run("validate", "--data", DATA.parent, "--cases", "100vgg_16/*", "--models", "fluid",
               directory=place)  # fmt: skip
    assert "packet simulator s" in text and "default ms" in text and "packet-level, vgg" in text


def test_one_server_has_no_network(tmp_path):
    solve(small_dlrm(2), 1, 1).save(tmp_path / "one.json")
    run("export", "one.json", "--format", "fbuf", "--omit-updates", "-o", "one.fbuf",
        directory=tmp_path)  # fmt: skip
    times = []
    for arguments in (("one.json",), ("one.json", "--fabric", "ideal"), ("one.fbuf",)):
        found = simulated(*arguments, directory=tmp_path)
        assert found["hottest_links"] == [] and found["bandwidth_tax"] == 1.0
        times.append(found["iteration_time_s"])
    assert times[0] == times[1] == pytest.approx(times[2], rel=1e-6)
