"""`topoopt deploy`."""

import json
import re
from pathlib import Path

import pytest
import yaml
from sites import full_site
from small_plans import shared_bidirectional_plan, shared_layout_plan, shared_plan
from typer.testing import CliRunner

from codesign_base import InputError
from topoopt.cli.app import app
from topoopt.deploy import namespaces


@pytest.fixture(autouse=True)
def without_root(monkeypatch):
    """Namespaces are tested where they are made."""
    monkeypatch.setattr(namespaces.os, "geteuid", lambda: 1000)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deploy")
    shared_plan().save(folder / "plan.json")
    site = full_site(4, 2).model_dump(mode="json", exclude_none=True)
    (folder / "hosts.yaml").write_text(yaml.safe_dump(site))
    return folder


def run(*words):
    return CliRunner().invoke(app, ["deploy", *map(str, words)])


def test_a_plan_is_deployed_and_checked(place):
    done = run(place / "plan.json", "--hosts", place / "hosts.yaml", "-o", place / "out", "--check")
    assert done.exit_code == 0, done.output
    assert "files: ok (12 pairs of servers" in done.output
    assert "namespaces: not tried, since namespaces need root and ip" in done.output
    assert (place / "out/hosts/node-3.lab/routes.sh").is_file()
    # The site is in the deployment, too.
    again = run(place / "plan.json", "--check", "--files", place / "out", "--json")
    report = json.loads(again.stdout)
    assert report["files"]["faults"] == []
    assert "root" in report["namespaces"]["skipped"]


def test_a_plan_that_lies_in_its_deployment_is_not_lost(place):
    run(place / "plan.json", "-o", place / "kept")
    plan = place / "kept" / "plan.json"
    shared_plan().save(plan)
    before = plan.read_bytes()
    done = run(plan, "-o", place / "kept")
    assert "also holds 'plan.json', which would be lost" in str(done.exception)
    assert plan.read_bytes() == before


@pytest.mark.parametrize(
    "words",
    [
        ("deploy", "plan.json", "-o", "-"),
        ("export", "plan.json", "--format", "nccl", "-o", "-"),
        ("export", "plan.json", "--format", "chakra", "-o", "-"),
        ("pareto", "dlrm-16", "--servers", "2", "--degree", "1", "--bandwidth", "1Gbps",
         "--save-plans", "-"),
        ("experiment", "run", "cost", "--from", "experiments", "-o", "-"),
    ],
)  # fmt: skip
def test_no_folder_is_called_standard_output(place, monkeypatch, words):
    root = Path.cwd()
    monkeypatch.chdir(place)
    words = [root / word if word == "experiments" else word for word in words]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert "output is '-', but folders do not go to standard output" in str(done.exception)
    assert not (place / "-").exists()


def test_routes_go_around_a_dead_cable(place):
    words = (place / "plan.json", "--hosts", place / "hosts.yaml", "--without", "C1")
    done = run(*words, "-o", place / "without", "--check")
    assert done.exit_code == 0, done.output
    assert "note: cable C1 is left out" in done.output
    assert "C1," not in (place / "without/cables.csv").read_text()
    refused = run(place / "plan.json", "--check", "--files", place / "without")
    assert isinstance(refused.exception, InputError)
    assert "C1 lacking; files without them are checked with --without C1;" in str(refused.exception)
    checked = run(*words, "--check", "--files", place / "without")
    assert checked.exit_code == 0, checked.output


def test_several_dead_cables_are_all_left_out(place):
    cut = run(place / "plan.json", "-o", place / "cut", "--without", "C1", "--without", "C2")
    assert "without cables C1, C2 some servers do not reach" in str(cut.exception)
    shared_bidirectional_plan().save(place / "five.json")
    words = [each for name in ("C01", "C03", "C01") for each in ("--without", name)]
    done = run(place / "five.json", "-o", place / "two", "--check", *words)
    assert done.exit_code == 0, done.output
    assert "note: cable C01 is left out" in done.output
    assert "note: cable C03 is left out" in done.output
    table = (place / "two/cables.csv").read_text()
    assert "C01," not in table and "C03," not in table and "C02," in table


def test_files_that_were_changed_are_refused(place):
    run(place / "plan.json", "-o", place / "changed")
    script = place / "changed/hosts/server-2/routes.sh"
    script.write_text(script.read_text().replace("forwarding 1", "forwarding 0"))
    done = run(place / "plan.json", "--check", "--files", place / "changed")
    assert isinstance(done.exception, InputError)
    assert "server-2 does not forward" in str(done.exception)


def test_files_of_the_job_that_were_changed_are_refused(place):
    shared_layout_plan().save(place / "layout.json")
    run(place / "layout.json", "-o", place / "job")
    done = run(place / "layout.json", "--check", "--files", place / "job")
    assert "job: ok (its files are those of the plan)" in done.output
    (place / "job/job/ranks.csv").unlink()
    start = place / "job/job/torchrun.sh"
    start.write_text(start.read_text().replace("--nnodes 4", "--nnodes 3"))
    done = run(place / "layout.json", "--check", "--files", place / "job")
    assert isinstance(done.exception, InputError)
    assert "ranks.csv, torchrun.sh are not what the plan gives" in str(done.exception)
    for path in (place / "job/job/nccl").iterdir():
        path.unlink()
    done = run(place / "layout.json", "--check", "--files", place / "job")
    assert re.search(r"(\S+, ){3}\S+ and \d+ more are not what", str(done.exception))


def test_cables_are_verified(place):
    run(place / "plan.json", "-o", place / "cabled")
    rows = (place / "cabled/cables.csv").read_text().splitlines()[1:]
    lines = ["host,interface,neighbour,neighbour_interface"]
    for row in rows:
        _, a, p, _, _, b, q, *_ = row.split(",")
        lines += [f"{a},{p},{b},{q}", f"{b},{q},{a},{p}"]
    good, bad = place / "good.csv", place / "bad.csv"
    good.write_text("\n".join(lines) + "\n")
    bad.write_text("\n".join(lines[:-2]) + "\n")
    done = run(place / "plan.json", "--verify-cabling", good)
    assert done.output == "cabling: ok (8 ports hear whom they should)\n"
    done = run(place / "plan.json", "--verify-cabling", bad)
    assert isinstance(done.exception, InputError)
    assert "see the 1 repair" in str(done.exception)
    assert "repair 1: put a cable between server-0 fab1 and server-3 fab0" in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to do"),
        (["-o", "x", "--files", "y"], "--files goes with --check"),
        (["--check", "--files", "/nowhere"], "not a deploy directory"),
        (["--hosts", "/nowhere.yaml", "--check"], "does not exist"),
    ],
)
def test_wrong_options_are_one_sentence(place, words, message):
    done = run(place / "plan.json", *words)
    assert isinstance(done.exception, InputError)
    assert message in str(done.exception)
