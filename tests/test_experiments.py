"""The experiment scripts: their declarations, and a tiny grid through the harness."""

import csv
import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from parallelism.models import PRESETS
from topoopt.baselines import BASELINES
from topoopt.experiment import run_experiment

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"
SCRIPTS = sorted(EXPERIMENTS.glob("*.py"))
TINY = {"servers": 2, "degree": 2, "bandwidth_gbps": 100, "steps": 2, "seed": 0}


def load(path):
    spec = importlib.util.spec_from_file_location(f"experiment_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def dedicated():
    return load(EXPERIMENTS / "dedicated_cluster.py")


def test_the_readme_lists_every_script():
    text = (EXPERIMENTS / "README.md").read_text()
    assert SCRIPTS
    for script in SCRIPTS:
        assert f"`{script.name}`" in text


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_declare_a_full_and_a_quick_grid(script):
    experiment = load(script).EXPERIMENT
    assert experiment.description.endswith(".")
    assert experiment.source
    assert len(experiment.cases()) > len(experiment.cases(quick=True)) > 0


def test_the_grid_is_that_of_the_paper(dedicated):
    cases = dedicated.EXPERIMENT.cases()
    assert len(cases) == 6 * 2 * 5
    assert {case["servers"] for case in cases} == {128}
    assert {case["degree"] for case in cases} == {4, 8}
    assert {case["bandwidth_gbps"] for case in cases} == {10, 25, 40, 100, 200}
    for case in (*cases, *dedicated.EXPERIMENT.cases(quick=True)):
        assert case["model"] in PRESETS
    assert ("topoopt", *BASELINES) == dedicated.FABRICS


def test_a_tiny_grid_runs_and_is_tabulated(dedicated, tmp_path):
    experiment = replace(
        dedicated.EXPERIMENT,
        grid=[{"model": model, **TINY} for model in ("vgg16-16", "candle")],
        quick_grid=None,
    )
    run = run_experiment(experiment, tmp_path)
    assert (run.computed, run.infeasible, run.failed) == (2, 1, 0), run.rows
    ran = [row for row in run.rows if row["model"] == "vgg16-16"]
    assert [row["fabric"] for row in ran] == list(dedicated.FABRICS)
    for row in ran:
        assert row["status"] == "ok"
        assert row["relative_time"] == row["iteration_time_s"] / ran[0]["iteration_time_s"]
        assert row["iteration_time_s"] >= ran[0]["lower_bound_s"]
        assert row["cost_usd"] > 0
    costs = {row["fabric"]: row["cost_usd"] for row in ran}
    for same in ("fat-tree", "oversubscribed-fat-tree", "expander"):
        assert costs[same] == pytest.approx(costs["topoopt"])
    assert ran[0]["link_bandwidth_gbps"] == 100
    assert ran[1]["link_bandwidth_gbps"] == 200
    # Weights and gradients of 94 GB each do not fit on two servers: the row says so.
    (infeasible,) = [row for row in run.rows if row["model"] == "candle"]
    assert infeasible["status"] == "infeasible"
    assert "does not fit" in infeasible["message"]
    with (tmp_path / "results.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(run.rows)
    times, relative = run.table.split("## ")[1:]
    assert times.startswith("2 servers, degree 2: iteration time in seconds")
    assert "| vgg16-16, 100 Gbps |" in times
    assert "| candle, 100 Gbps   | infeasible |" in times
    assert relative.startswith("2 servers, degree 2: iteration time over that of topoopt")


def test_the_script_lists_its_cases(tmp_path):
    listed = subprocess.run(
        [sys.executable, str(EXPERIMENTS / "dedicated_cluster.py"), "--quick", "--list",
         "--output", str(tmp_path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = listed.stdout.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("to do") for line in lines)
