"""The command line: answers on standard output, files where asked."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import FAST, inside, refused, topoopt
from small_plans import shared_document, shared_plan

import topoopt as to
from topoopt.baselines.baselines import ALL_BASELINES
from topoopt.formats.traffic import load_traffic
from topoopt.plan.rebuild import rebuild
from topoopt.topology.network_file import load_network


def test_plan_prints_a_page_and_writes_the_plan(workplace):
    directory, done = workplace
    page = done.stdout
    for part in ("small on 4 servers", "by packet trains", "no plan takes less than",
                 "ideal-switch", "fat-tree", "expander", "strategy:", "one-way cables",
                 "plan written to plan.json"):  # fmt: skip
        assert part in page
    assert len(page.splitlines()) <= 26
    assert all(len(line) < 200 for line in page.splitlines())
    assert "search: step 12 of at most 12" in done.stderr
    assert "Traceback" not in done.stderr
    plan = to.load_plan(directory / "plan.json")
    assert to.verify_plan(plan).ok
    assert plan.summary() in page
    assert sorted(path.name for path in directory.iterdir()) == [
        "network.json", "plan.json", "small.yaml", "traffic.npz",
    ]  # fmt: skip


def test_a_network_is_saved_in_the_form_that_its_name_says(tmp_path):
    from topoopt.cli.plan_command import _save_parts

    _save_parts(shared_plan(), None, tmp_path / "network.graphml")
    assert (tmp_path / "network.graphml").read_text().startswith("<?xml")
    assert load_network(tmp_path / "network.graphml").hosts == shared_plan().cluster.servers


def test_plan_as_json_is_the_plan_file(workplace):
    directory, _ = workplace
    done = topoopt("plan", "small.yaml", *FAST, "--json", directory=directory)
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert document == json.loads((directory / "plan.json").read_text())
    assert "search: step" in done.stderr


def test_details_are_printed_where_asked(workplace):
    directory, _ = workplace
    result = inside("plan", "small.yaml", *FAST, "--details", directory=directory)
    for part in ("packet time", "fluid time", "exposed communication", "lower bound",
                 "wiring: 2 ports", "seed 0, quick effort, 12 steps", "note: "):  # fmt: skip
        assert part in result.stdout
    sentence = refused("plan", "small.yaml", *FAST, "--details", "--json", directory=directory)
    assert sentence.startswith("--details is given, but")


def test_quiet_is_quiet(workplace):
    directory, _ = workplace
    result = inside("plan", "small.yaml", *FAST, "--quiet", "--json", directory=directory)
    assert result.exit_code == 0 and result.stderr == ""
    assert json.loads(result.stdout)["search"]["steps"] == 12


def test_saved_traffic_and_network_are_those_of_the_plan(workplace):
    directory, _ = workplace
    plan = to.load_plan(directory / "plan.json")
    parts = rebuild(plan)
    network = load_network(directory / "network.json")
    for field in ("source", "target", "multiplicity"):
        assert (getattr(network, field) == getattr(parts.fabric.network, field)).all()
    assert network.capacity == pytest.approx(parts.fabric.network.capacity, rel=1e-12)
    traffic = load_traffic(directory / "traffic.npz")
    assert traffic.allreduce_sent() == plan.allreduce_bytes
    assert traffic.transfer_sent() == plan.transfer_bytes


def test_verify_accepts_and_says_what_it_checked(workplace):
    directory, _ = workplace
    result = inside("verify", "plan.json", directory=directory)
    assert result.exit_code == 0
    assert result.stdout.startswith("plan.json: ok (structure, parallelization,")
    result = inside("verify", "plan.json", "--json", directory=directory)
    verdict = json.loads(result.stdout)
    assert verdict["ok"] and not verdict["failures"] and "routes" in verdict["checks"]


def test_verify_rejects_with_status_2_and_one_sentence(workplace, tmp_path):
    document = shared_document()
    document["iteration_time_s"] *= 0.5
    (tmp_path / "wrong.json").write_text(json.dumps(document))
    done = topoopt("verify", "wrong.json", directory=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: plan file wrong.json is wrong: times: iteration_time_s")
    done = topoopt("verify", "wrong.json", "--json", directory=tmp_path)
    assert done.returncode == 2
    assert json.loads(done.stdout)["failures"] and len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_compare_lists_every_fabric(workplace):
    directory, _ = workplace
    result = inside("compare", "small.yaml", *FAST, "-q", directory=directory)
    assert result.exit_code == 0
    names = [line.split()[0] for line in result.stdout.splitlines() if "Gbps" in line]
    assert names == [
        "topoopt", "ideal-switch", "fat-tree", "oversubscribed-fat-tree", "expander", "sip-ml",
        "ocs-reconfig",
    ]  # fmt: skip
    result = inside(
        "compare", "small.yaml", *FAST, "--fabrics", "ideal-switch, fat-tree, expander", "--json",
        directory=directory,
    )  # fmt: skip
    document = json.loads(result.stdout)
    names = ["topoopt", "ideal-switch", "fat-tree", "expander"]
    assert [row["fabric"] for row in document["fabrics"]] == names
    assert document["fabrics"][0]["relative_time"] == 1.0
    plan = to.load_plan(directory / "plan.json")
    assert document["fabrics"][0]["iteration_time_s"] == plan.iteration_time_s
    assert "step" in result.stderr


def test_models_in_text_and_json():
    text = inside("models").stdout
    listed = json.loads(inside("models", "--json").stdout)
    assert [line.split()[0] for line in text.splitlines()[1:]] == [m["name"] for m in listed]
    assert {"dlrm", "candle", "bert", "ncf", "resnet50", "vgg16"} <= {m["name"] for m in listed}
    (resnet,) = (m for m in listed if m["name"] == "resnet50-imagenet")
    assert round(resnet["parameters"] / 1e6, 2) == 25.56
    # Columns line up.
    assert len({len(line) for line in text.splitlines()}) == 1


def test_compare_simulates_every_fabric_that_can_be_built(workplace):
    directory, _ = workplace
    options = ("--fabrics", "all", "--json", "-q", "--demand-window", "20ms")
    result = inside("compare", "small.yaml", *FAST, *options, directory=directory)
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    names = [row["fabric"] for row in document["fabrics"]]
    assert sorted([*names[1:], *document["refused"]]) == sorted(ALL_BASELINES)
    assert {"torus2d", "hypercube", "switch-ring", "rail", "dragonfly"} <= set(names)
    assert "full mesh needs 3 ports" in document["refused"]["full-mesh"]
    message = refused("compare", "small.yaml", *FAST, "--fabrics", "full-mesh", directory=directory)
    assert document["refused"]["full-mesh"] in message


def test_a_reader_that_stops_early_is_no_error(workplace):
    program = f"{sys.executable} -c 'from topoopt.cli import main; main()' models | head -n 1"
    done = subprocess.run(program, shell=True, capture_output=True, text=True)
    assert done.stdout.startswith("model ") and "Traceback" not in done.stderr


def slow(*words):
    return pytest.param(words, marks=pytest.mark.slow)


def said_to(stdout, *words, **environment):
    """Run the console script with standard output of one's own; return status and errors."""
    script = "import sys; from topoopt.cli import main; sys.argv[0] = 'topoopt'; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, *words], stdout=stdout, stderr=subprocess.PIPE, text=True,
        env=os.environ | environment,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is full")
@pytest.mark.parametrize(
    "words", [slow("models"), slow("topology", "list", "--json"), ("--version",)]
)
def test_a_full_disk_is_one_sentence(words):
    with Path("/dev/full").open("w") as full:
        status, errors = said_to(full, *words)
    assert status == 2
    assert errors.startswith("error: the answer cannot be written (no space left on device); ")
    assert errors.count("\n") == 1


@pytest.mark.slow
def test_names_that_a_terminal_has_no_letters_for_are_printed(tmp_path):
    network = tmp_path / "nätwörk.json"
    with (tmp_path / "out.txt").open("w") as out:
        words = ("topology", "full-mesh", "--servers", "4", "-o", str(network))
        assert said_to(out, *words, PYTHONIOENCODING="ascii") == (0, "")
    assert (
        f"network written to {tmp_path}/n\\xe4tw\\xf6rk.json" in (tmp_path / "out.txt").read_text()
    )
    assert load_network(network).hosts == 4
