"""`topoopt bandwidth` as a user calls it."""

import json

import pytest
from typer.testing import CliRunner

from codesign_base import InputError
from topoopt.cli.app import app

FOUR = "RI(4)_FC(8)_RI(4)_SW(32)"
GROUPS = "Forward: [4, 4, -1, -1]\nInputGrad: [4, 4, -1, -1]\nWeightGrad: [-1, 2, 4, 32]\n"
LAYERS = "Q1 -1 9375000 ALLREDUCE 805306368 10 NONE 0 10 ALLREDUCE 452984832 10\n"
KEYS = {
    "bandwidth_gbytes_per_s", "iteration_time_s", "cost_usd", "duality_gap", "utilisation",
    "shadow_prices", "equal_bandwidth_time_s",
}  # fmt: skip


def run(*arguments):
    return CliRunner().invoke(app, ["bandwidth", *arguments], prog_name="topoopt")


def answer(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def refused(*arguments):
    result = run(*arguments)
    assert isinstance(result.exception, InputError), result.output
    assert result.stdout == ""
    message = str(result.exception)
    assert "\n" not in message and len(message) < 400
    return message


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
    assert "unknown workload 'gpt3'" in refused("--network", FOUR, "--workload", "gpt3")
    assert "is no dimension" in refused("--network", "4x8", "--workload", "gpt-3")
    assert "does not exist" in refused("--network", "absent.yml", "--workload", "gpt-3")
