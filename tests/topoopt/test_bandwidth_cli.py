"""`topoopt bandwidth` as a user calls it."""

import json

import cli_runs
import pytest
from cli_runs import inside

FOUR = "RI(4)_FC(8)_RI(4)_SW(32)"
GROUPS = "Forward: [4, 4, -1, -1]\nInputGrad: [4, 4, -1, -1]\nWeightGrad: [-1, 2, 4, 32]\n"
LAYERS = "Q1 -1 9375000 ALLREDUCE 805306368 10 NONE 0 10 ALLREDUCE 452984832 10\n"
KEYS = {
    "bandwidth_gbytes_per_s", "iteration_time_s", "cost_usd", "duality_gap", "utilisation",
    "shadow_prices", "equal_bandwidth_time_s",
}  # fmt: skip


def run(*arguments):
    return inside("bandwidth", *arguments)


def answer(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def refused(*arguments):
    return cli_runs.refused("bandwidth", *arguments)


def test_the_first_example():
    document = answer("--network", FOUR, "--workload", "gpt-3", "--budget", "500GB/s",
                      "--objective", "time")  # fmt: skip
    assert set(document) >= KEYS
    assert sum(document["bandwidth_gbytes_per_s"]) == pytest.approx(500)
    assert len(document["utilisation"]) == 4
    assert document["duality_gap"] <= 1e-7
    assert document["iteration_time_s"] < document["equal_bandwidth_time_s"]
    assert document["shadow_prices"][0]["value"] > 0


def test_files_and_constraints(tmp_path):
    network, cost = tmp_path / "net.yml", tmp_path / "cost.yml"
    network.write_text(
        "Topology: [Ring, FullyConnected, Ring, Switch]\nNpusCount: [4, 8, 4, 32]\n"
        "CostDimension: [A, B, C, D]\n"
    )
    cost.write_text("A: {Link: 2}\nB: {Link: 4}\nC: {Link: 4}\nD: {Link: 8, Switch: 18, Nic: 32}\n")
    (tmp_path / "w.txt").write_text(LAYERS)
    (tmp_path / "c.yml").write_text(GROUPS)
    document = answer(
        "--network", str(network), "--workload", str(tmp_path / "w.txt"),
        "--communicator", str(tmp_path / "c.yml"), "--cost", str(cost),
        "--objective", "time*cost", "--constraint", "b0 == 500", "--constraint", "b0 >= b1",
        "--loop", "overlap", "--partial-groups", "full", "--npu-cost", "100", "--deadline", "1s",
    )  # fmt: skip
    assert document["bandwidth_gbytes_per_s"][0] == pytest.approx(500)
    assert [price["constraint"] for price in document["shadow_prices"]] == [
        "b0 == 500", "b0 >= b1", "deadline",
    ]  # fmt: skip
    assert document["cost_usd"] > 100 * 4096
    assert document["iteration_time_s"] <= 1


def test_an_iteration_and_its_parts_are_printed_in_like_units():
    result = run("--network", FOUR, "--workload", "gpt-3", "--budget", "500GB/s")
    said = "gpt-3: iteration 14.2 s = compute 11.78 s + exposed communication 2.426 s"
    assert said in result.output


def test_the_page_names_what_matters():
    result = run("--network", FOUR, "--workload", "resnet-50", "--budget", "500GB/s")
    assert result.exit_code == 0
    for words in ("b0 Ring(4)", "InterPod", "utilisation", "compute", "exposed communication",
                  "equal bandwidths", "lower bound", "gap", "cost $", "sum(b) == 500GB/s",
                  "ms per GB/s", "note: "):  # fmt: skip
        assert words in result.stdout


def test_several_workloads_and_model_graphs():
    document = answer("--network", FOUR, "--workload", "preset:dlrm", "--workload", "bert-large",
                      "--tensor-parallel", "4", "--budget", "<= 500GB/s", "--together",
                      "max")  # fmt: skip
    assert [times["name"] for times in document["workloads"]] == ["dlrm", "bert-large"]
    assert document["objective_unit"] == "relative time"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--objective", "speed"), "--objective is 'speed'"),
        (("--loop", "both"), "--loop is 'both'"),
        (("--partial-groups", "half"), "--partial-groups is 'half'"),
        (("--budget", "500"), None),
        (("--budget", "lots"), "budget 'lots'"),
        (("--budget", "<= 500GB/s", "--objective", "time*cost"), "zero bandwidth would be optimal"),
        (("--constraint", "b9 == 4"), "names b9"),
        (("--budget", "500GB/s", "--constraint", "b0 >= 600"), "no bandwidths satisfy"),
        (("--budget", "500GB/s", "--npu-cost", "nan"), "NPU cost is nan"),
        (("--budget", "500GB/s", "--npu-cost", "1e308"), "NPU cost is 1e+308"),
        (("--budget", "500GB/s", "--deadline", "5"), "deadline '5' names no unit"),
        (("--budget", "500GB/s", "--deadline", "1us"), "without communication"),
        (("--budget", "500GB/s", "--tensor-parallel", "5"), "tensor parallelism of 5"),
        (("--cost", "absent.yml"), "'absent.yml' does not exist"),
        ((), "no constraint limits b0"),
    ],
)
def test_refusals(arguments, message):
    base = ("--network", FOUR, "--workload", "gpt-3")
    if message is None:
        assert run(*base, *arguments).exit_code == 0
    else:
        assert message in refused(*base, *arguments)


def test_unknown_names():
    message = refused("--network", FOUR, "--workload", "gpt3")
    assert "unknown workload 'gpt3'" in message and "did you mean 'gpt-3'?" in message
    assert "is no dimension" in refused("--network", "4x8", "--workload", "gpt-3")
    assert "does not exist" in refused("--network", "absent.yml", "--workload", "gpt-3")


SMALL = ("--workload", "gpt-3", "--tensor-parallel", "8", "--budget", "500GB/s")


def test_rates_and_sensitivity():
    document = answer("--network", "RI(4)_FC(4)_SW(8)", "--workload", "gpt-3",
                      "--tensor-parallel", "8", "--budget", "<= 500GB/s", "--rates",
                      "25,50,100,200,400GB/s", "--sensitivity")  # fmt: skip
    assert set(document["bandwidth_gbytes_per_s"]) <= {25, 50, 100, 200, 400}
    assert document["duality_gap"] <= 1e-7
    assert document["rates"]["complete"]
    assert document["rates"]["bound_with_any_rates"] <= document["iteration_time_s"]
    assert document["shadow_prices"][0]["value"] > 0
    rows = document["sensitivity"]
    assert rows[0]["what"] == "sum(b) <= 500GB/s"
    assert rows[0]["relative_objective_change"] > 0
    assert {row["relative_change"] for row in rows} == {-0.5, -0.1, 0.1, 1.0}
    lines = answer("--network", "SW(8)", *SMALL, "--rates", "b0: 1..500 x 1GB/s")
    assert lines["bandwidth_gbytes_per_s"] == [500.0]
    page = run("--network", "RI(4)_SW(8)", *SMALL, "--sensitivity").stdout
    assert "if this changes" in page
    assert "+100%" in page


def test_a_search_for_designs():
    document = answer("--search-shapes", "32", "--max-dimensions", "2", *SMALL, "--top", "3",
                      "--quiet")  # fmt: skip
    assert len(document["designs"]) == 3
    times = [design["iteration_time_s"] for design in document["designs"]]
    assert times == pytest.approx(sorted(times), rel=1e-6)
    assert all(design["duality_gap"] <= 1e-7 for design in document["designs"])
    done = ("solved", "repeated", "pruned_by_bound", "not_fitting", "infeasible")
    assert sum(document[key] for key in done) == document["candidates"]
    page = run("--network", "RI(8)_SW(8)", "--search-parallelism", "--workload", "gpt-3",
               "--budget", "500GB/s", "--memory", "none")  # fmt: skip
    assert "without a limit of memory" in page.stdout
    assert "search: " in page.stderr
    assert "search complete" in page.stdout


def test_a_workload_file_is_searched_with_its_tensor_groups(tmp_path):
    path = tmp_path / "job.txt"
    path.write_text(LAYERS)
    document = answer("--search-shapes", "16", "--workload", str(path), "--tensor-parallel", "4",
                      "--budget", "500GB/s", "--quiet")  # fmt: skip
    assert document["designs"][0]["tensor_parallel"] == 4
    assert "--tensor-parallel" in refused("--search-shapes", "16", "--workload", str(path),
                                          "--budget", "500GB/s")  # fmt: skip


def test_a_network_is_written(tmp_path):
    path = tmp_path / "net.graphml"
    result = run("--network", "RI(4)_SW(8)", *SMALL, "--save-network", str(path))
    assert result.exit_code == 0, result.output
    assert "network written" in result.stdout
    from topoopt.topology.network_file import load_network

    made = load_network(path)
    assert (made.hosts, made.switches) == (32, 4)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([*SMALL], "no network"),
        (["--search-shapes", "32", "--network", "SW(32)", *SMALL], "--network does not go"),
        (["--search-shapes", "32", *SMALL, "--sensitivity"], "--sensitivity does not go"),
        (["--search-shapes", "32", *SMALL, "--workload", "dlrm"], "second --workload"),
        (["--search-shapes", "32", *SMALL, "--search-parallelism"], "give one of them"),
        (["--search-shapes", "32", *SMALL, "--blocks", "RI(2-8)"], "is no block"),
        (["--search-parallelism", "--workload", "gpt-3"], "nothing to search"),
        (["--search-shapes", "6", *SMALL], "does not divide 6 NPUs"),
        (["--network", "SW(8)", *SMALL, "--rates", "25,50"], "without a unit"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_are_refused(arguments, part):
    assert part in refused(*arguments)
