"""The experiment scripts: their declarations, and a tiny grid through the harness."""

import csv
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from codesign_base import InputError
from parallelism.models import PRESETS
from topoopt.baselines.baselines import BASELINES
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
    assert dedicated.FABRICS[0] == "topoopt"
    assert set(dedicated.FABRICS[1:]) <= set(BASELINES)


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
    with (run.output / "results.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(run.rows)
    times, relative, packets, trend = run.table.split("## ")[1:]
    assert times.startswith("2 servers, degree 2: iteration time in seconds")
    assert "| vgg16-16, 100 Gbps |" in times
    assert "| candle, 100 Gbps   | infeasible |" in times
    assert relative.startswith("2 servers, degree 2: iteration time over that of topoopt")
    assert packets.startswith("2 servers, degree 2: iteration time by packet trains in seconds")
    heads = [cell.strip() for cell in packets.splitlines()[2].split("|")[2:-1]]
    assert heads == [name for name in dedicated.FABRICS if name not in ("sip-ml", "ocs-reconfig")]
    assert "| candle, 100 Gbps   | infeasible |" in packets
    gains = [
        next(row[time] for row in ran if row["fabric"] == "fat-tree") / ran[0][time]
        for time in ("iteration_time_s", "packet_time_s")
    ]
    (line,) = [line for line in trend.splitlines() if "vgg16-16" in line]
    assert [cell.strip() for cell in line.split("|")[4:10]] == [
        f"{gains[0]:.4g}", "100", f"{gains[1]:.4g}", "100", "3.4", str(max(gains) >= 3.4).lower(),
    ]  # fmt: skip
    assert run.figures == ("dedicated-cluster.png", "dedicated-cluster.svg")


@pytest.mark.slow
def test_the_script_lists_its_cases(tmp_path):
    listed = subprocess.run(
        [sys.executable, str(EXPERIMENTS / "dedicated_cluster.py"), "--quick", "--list",
         "--output", str(tmp_path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = listed.stdout.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("to do") for line in lines)
    assert not list(tmp_path.iterdir())


def pictured(script, tmp_path, cases):
    experiment = replace(load(EXPERIMENTS / script).EXPERIMENT, grid=cases, quick_grid=None)
    run = run_experiment(experiment, tmp_path)
    assert (run.infeasible, run.failed) == (0, 0), run.rows
    assert run.figures
    manifest = json.loads((run.output / "manifest.json").read_text())
    assert manifest["figures"] == list(run.figures)
    for name in run.figures:
        start = b"<?xml" if name.endswith(".svg") else b"\x89PNG"
        assert (run.output / name).read_bytes().startswith(start)
    return run.rows


LIBRA = {"inputs": "built-in", "dimensions": 3}


def test_libra_gains(tmp_path):
    rows = pictured("libra_speedup.py", tmp_path, [
        {"workload": workload, **LIBRA, "objective": objective, "budget_gbytes_per_s": 500}
        for workload in ("GPT_3", "ResNet_50") for objective in ("time", "time*cost")
    ])  # fmt: skip
    for row in rows:
        gain = "speedup" if row["objective"] == "time" else "perf_per_cost_gain"
        assert row[gain] >= 1 - 1e-9
        assert row["duality_gap"] <= 1e-7


@pytest.mark.parametrize("objective", [pytest.param("time", marks=pytest.mark.slow), "time*cost"])
def test_libra_groups(objective, tmp_path):
    rows = pictured("libra_group.py", tmp_path, [
        {**LIBRA, "objective": objective, "budget_gbytes_per_s": 500, "network_for": name}
        for name in ("GPT_3", "DLRM", "group (sum)", "group (worst)")
    ])  # fmt: skip
    assert min(row["loss"] for row in rows) >= -1e-6
    worst = {
        name: max(row["loss"] for row in rows if row["network_for"] == name)
        for name in dict.fromkeys(row["network_for"] for row in rows)
    }
    assert worst["group (worst)"] <= min(worst.values()) + 1e-6


def test_libra_overlap(tmp_path):
    rows = pictured("libra_overlap.py", tmp_path, [
        {"workload": "GPT_3", **LIBRA, "budget_gbytes_per_s": budget} for budget in (100, 500)
    ])  # fmt: skip
    for row in rows:
        assert row["overlap_gain"] >= 1
        assert row["wrong_loop_loss"] >= -1e-9


@pytest.mark.slow
def test_libra_shapes(tmp_path):
    rows = pictured("libra_shapes.py", tmp_path, [
        {"workload": "gpt-3", "npus": 256, "objective": "time*cost", "budget_gbytes_per_s": 500,
         "max_dimensions": 2, "search": search} for search in ("paper", "parallelism", "both")
    ])  # fmt: skip
    value = [row["iteration_time_s"] * row["cost_usd"] for row in rows]
    assert value[1] <= value[0] * (1 + 1e-6)
    assert rows[2]["candidates"] > rows[1]["candidates"] > rows[0]["candidates"] == 1


def test_without_matplotlib_a_run_says_that_figures_are_missing(tmp_path, monkeypatch):
    from topoopt.experiment import figures

    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    experiment = replace(
        load(EXPERIMENTS / "libra_overlap.py").EXPERIMENT,
        grid=[{"workload": "GPT_3", **LIBRA, "budget_gbytes_per_s": 100}], quick_grid=None,
    )  # fmt: skip
    run = run_experiment(experiment, tmp_path)
    assert run.figures == ()
    assert "topoopt[figures]" in run.note


def test_the_data_option_is_taken(tmp_path, monkeypatch, capsys):
    from topoopt.bandwidth.files import libra_files

    (tmp_path / "libra").mkdir()
    monkeypatch.delenv("TOPOOPT_DATA", raising=False)
    assert libra_files.source() == "built-in"
    monkeypatch.setenv("TOPOOPT_DATA", "nowhere")
    monkeypatch.setattr(sys, "argv", ["script", "--quick", "--data", str(tmp_path), "--list"])
    libra_files.data_option()
    assert sys.argv == ["script", "--quick", "--list"]
    assert libra_files.source() == "files"
    monkeypatch.setattr(sys, "argv", ["script", f"--data={tmp_path / 'libra'}"])
    with pytest.raises(SystemExit) as ended:
        libra_files.data_option()
    assert ended.value.code == 2
    assert "no directory libra" in capsys.readouterr().err
    with pytest.raises(InputError, match="choose Turing_NLG"):
        libra_files.libra_inputs("BERT", 3, "built-in")


@pytest.mark.skipif(
    not (Path(os.environ.get("TOPOOPT_DATA", "/nowhere")) / "libra").is_dir(),
    reason="TOPOOPT_DATA names no LIBRA inputs",
)
def test_libra_files_are_read():
    from topoopt.bandwidth.files.libra_files import WORKLOADS, libra_inputs

    for workload in WORKLOADS:
        for dimensions in (3, 4):
            given = libra_inputs(workload, dimensions, "files")
            assert given.network.npus == 4096
            assert given.communicator is not None


def test_ports_are_divided_as_by_hand():
    script = load(EXPERIMENTS / "port_phases.py")
    # A layer of one and two seconds; gradients of 40, 4 and 4 port seconds, exchange of 1 and 3.
    row = [[1.0, 1.0, 1.0]]
    layers = script.Layers(
        np.array(row), 2.0 * np.array(row), np.array([[40.0, 4.0, 4.0]]), np.array([[0, 1, 3.0]])
    )
    # In halves: 2 s forward, then 4 port seconds over the one port that leaves a pair.
    assert script.least_seconds(layers, (1.0, 0.0, 0.0, 1.0)) == pytest.approx(2.0 + 4.0)
    # In fourths on a mesh 2 s forward, too, and 4 over the port out; in halves 4 over two ports,
    # of which half must leave the block, beside 3 s of the backward pass.
    shards = replace(layers, forward=np.array([[np.inf, 1.0, 1.0]]))
    assert script.least_seconds(shards, (1.0, 1.0, 1.0, 1.0)) == pytest.approx(2.0 + 3.0)
    # Without a partner only whole replicas are left.
    assert script.least_seconds(layers, (0.0, 0.0, 1.0, 1.0)) == pytest.approx(1.0 + 20.0)
