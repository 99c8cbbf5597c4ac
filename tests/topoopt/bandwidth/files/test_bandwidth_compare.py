"""From a bandwidth allocation to a plan, and back: network files in compare, plans as workloads."""

import json
from pathlib import Path

import numpy as np
import pytest
from small_plans import shared_plan, small_mlp, solve
from typer.testing import CliRunner

import topoopt as to
from codesign_base import InputError
from parallelism.graph import ModelGraph
from parallelism.taskgraph import Phase, TaskKind, traffic_of
from topoopt.bandwidth.allocate import allocate_bandwidth
from topoopt.bandwidth.files.plan_file import load_plan_workload
from topoopt.bandwidth.model.communicator import Communicator, NpuGroup
from topoopt.bandwidth.model.links import PairLoads, build_network, dimension_routes
from topoopt.bandwidth.model.network import parse_network
from topoopt.bandwidth.model.plan_workload import PlanWorkload, depths, grid_group
from topoopt.bandwidth.solve.question import Question
from topoopt.cli.app import app
from topoopt.codesign.comparison import compare
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.simulation import simulate
from topoopt.fabric.transport import IDEAL
from topoopt.problem.options import SearchOptions
from topoopt.topology.network_file import save_network

G = 1e9
LITTLE = SearchOptions(steps=1, effort="quick")


def data_parallel(servers):
    """The named data-parallel strategy, as a workload."""
    from parallelism.search.named import named_strategies
    from parallelism.search.space import StrategySpace

    builder = to.Job(small_mlp()).builder(servers)
    space = StrategySpace(builder.graph, servers, builder.batch)
    strategy = space.intern(named_strategies(space)["data-parallel"])
    return PlanWorkload("dp", builder.graph, builder.build(strategy))


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    path = tmp_path_factory.mktemp("nets") / "net.json"
    network = parse_network("FC(2)_SW(2)")
    save_network(build_network(network, np.array([20.0, 5.0]) * G), path)
    return str(path)


def test_compare_scores_a_network_file(net):
    found = compare(
        to.Job(small_mlp()),
        to.Cluster(4, 2, "100Gbps"),
        LITTLE,
        fabrics=("ideal-switch", net),
    )
    row = found.fabrics[2]
    assert row.fabric == net
    assert row.cost_usd is None
    assert row.bandwidth_bytes_per_s == pytest.approx(25 * G)
    assert row.iteration_time_s > 0
    assert "ideal-switch" in found.summary()


def test_compare_takes_paths(net, tmp_path):
    job, cluster = to.Job(small_mlp()), to.Cluster(4, 2, "100Gbps")
    bare = tmp_path / "net"
    bare.write_text(Path(net).read_text())
    found = compare(job, cluster, LITTLE, fabrics=(Path(net), bare))
    assert [row.fabric for row in found.fabrics] == ["topoopt", net, str(bare)]
    with pytest.raises(InputError, match="does not exist"):
        compare(job, cluster, LITTLE, fabrics=[tmp_path / "no"])


@pytest.mark.slow
def test_compare_reads_the_file_that_bandwidth_wrote(tmp_path):
    path = tmp_path / "made.json"
    result = CliRunner().invoke(app, [
        "bandwidth", "--network", "FC(2)_SW(2)", "--workload", "gpt-3", "--tensor-parallel", "2",
        "--budget", "50GB/s", "--save-network", str(path),
    ])  # fmt: skip
    assert result.exit_code == 0, (result.output, result.exception)
    result = CliRunner().invoke(app, [
        "compare", "bert-16", "--servers", "4", "--degree", "2", "--bandwidth", "100Gbps",
        "--fabrics", f"ideal-switch,{path}", "--steps", "2",
        "--effort", "quick", "--json", "--quiet",
    ])  # fmt: skip
    assert result.exit_code == 0, (result.output, result.exception)
    rows = {row["fabric"]: row for row in json.loads(result.stdout)["fabrics"]}
    assert rows[str(path)]["cost_usd"] is None
    assert rows[str(path)]["bandwidth_bytes_per_s"] == pytest.approx(50 * G)


def test_compare_refuses_networks_that_do_not_fit(net, tmp_path):
    job = to.Job(small_mlp())
    with pytest.raises(InputError, match="has 4 servers, but the cluster 8"):
        compare(job, to.Cluster(8, 2, "100Gbps"), LITTLE, fabrics=(net,))
    with pytest.raises(InputError, match="does not exist"):
        compare(
            job,
            to.Cluster(4, 2, "100Gbps"),
            LITTLE,
            fabrics=(str(tmp_path / "no.json"),),
        )


def test_a_data_parallel_plan_is_compute_and_one_allreduce_an_operator():
    job = data_parallel(8)
    network = parse_network("FC(2)_SW(4)")
    answer = allocate_bandwidth(network, job, Question(budget="100GB/s"))
    assert answer.solution.gap <= 1e-7
    size = sum(job.graph.parameter_bytes(i) for i in range(len(job.graph.operators)))
    b = answer.bandwidth
    expected = max(2 * size * 0.5 / b[0], 2 * size * 0.75 / 2 / b[1])
    assert sum(answer.workloads[0].exposed) == pytest.approx(expected)
    tasks = job.tasks
    first = tasks.server_of_device[tasks.first] == 0
    computed = float(tasks.size[(tasks.kind == TaskKind.COMPUTE) & first].sum())
    inside = float(tasks.delay[tasks.kind == TaskKind.ALLREDUCE].sum())
    assert answer.workloads[0].compute <= computed + inside + 1e-12
    assert answer.workloads[0].compute >= computed * (1 - 1e-9)


def test_a_plan_without_overlap_is_no_faster_than_the_simulator():
    for job in (data_parallel(4), load_plan_workload(shared_plan())):
        network = parse_network("SW(4)")
        bandwidth = np.array([25.0]) * G
        answer = allocate_bandwidth(network, job, Question(budget="25GB/s"))
        links = build_network(network, bandwidth)
        rings = {(0, 1, 2, 3): ((0, 1, 2, 3),)}
        fabric = Fabric("SW(4)", links, dimension_routes(network, links), rings, None, IDEAL)
        simulated = simulate(fabric, job.tasks).makespan
        assert answer.solution.time >= simulated * (1 - 1e-9)
        assert answer.solution.time <= 20 * simulated


def test_a_plan_file_is_a_workload_on_the_command_line(tmp_path):
    path = tmp_path / "plan.json"
    shared_plan().save(path)
    run = CliRunner().invoke(app, [
        "bandwidth", "--network", "FC(2)_RI(2)", "--workload", str(path), "--budget", "50GB/s",
        "--loop", "overlap", "--json",
    ])  # fmt: skip
    assert run.exit_code == 0, (run.output, run.exception)
    document = json.loads(run.stdout)
    assert document["duality_gap"] <= 1e-7
    assert "strategy of a plan" in " ".join(document["notes"])
    for extra, part in (
        (["--network", "SW(8)"], "is for 4 servers"),
        (["--network", "SW(4)", "--tensor-parallel", "2"], "tensor-parallel 2 does not apply"),
    ):
        refused = CliRunner().invoke(
            app, ["bandwidth", "--workload", str(path), "--budget", "50GB/s", *extra]
        )
        assert isinstance(refused.exception, InputError)
        assert part in str(refused.exception)


def test_a_plan_for_one_server_has_no_network_to_divide():
    with pytest.raises(InputError, match="one server, which has no network; give one of two"):
        data_parallel(1).layer_times(parse_network("RI(2)"))


def test_loads_of_a_plan_are_its_traffic():
    job = load_plan_workload(shared_plan())
    network = parse_network("SW(4)")
    layers = job.layer_times(network)
    traffic = traffic_of(job.tasks)
    rate = 1e9
    moved = sum(
        (layer.forward_comm + layer.input_grad_comm).evaluate([rate]) * rate for layer in layers
    )
    # On one switch the busiest NPU of each step sends or receives at least the average.
    assert moved >= traffic.transfers.sum() / 4
    whole = PairLoads(network).of(traffic.transfers)[0][0]
    assert moved >= whole * (1 - 1e-12)
    assert int((job.tasks.phase == Phase.ACTIVATION).sum()) > 0


def test_depths_follow_the_longest_way():
    graph = small_mlp()
    assert isinstance(graph, ModelGraph)
    found = depths(graph)
    for index, op in enumerate(graph.operators):
        assert all(found[source] < found[index] for source in op.inputs)
    assert found.min() == 0


def test_grids_are_found_and_other_sets_refused():
    network = parse_network("RI(8)_FC(4)")
    assert grid_group(network, [0, 1, 2, 3]) == NpuGroup((4, 1), (1, 1))
    assert grid_group(network, [7, 0]) == NpuGroup((2, 1), (1, 1))
    assert grid_group(network, [0, 2, 4, 6]) == NpuGroup((4, 1), (2, 1))
    assert grid_group(network, [1, 5, 9, 13, 25, 29]) == NpuGroup((2, 3), (4, 1))
    for members in ([0, 1, 3], [0, 9], [0, 1, 8]):
        with pytest.raises(InputError, match="no grid of equal steps"):
            grid_group(network, members, "tower")


def test_plans_bring_their_own_groups():
    job = data_parallel(4)
    whole = NpuGroup((4,), (1,))
    with pytest.raises(InputError, match="groups of its own"):
        allocate_bandwidth(
            parse_network("SW(4)"),
            job,
            Question(budget="5GB/s"),
            Communicator((whole, whole, whole)),
        )
    assert solve(small_mlp(), 2, steps=2).cluster.servers == 2
