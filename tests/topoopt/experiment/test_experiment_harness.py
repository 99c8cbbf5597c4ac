"""The experiment harness: order, resume, damage, interruption, parallel runs, tables."""

import contextlib
import csv
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

SCRIPT = """
import os, time
from topoopt.experiment import Experiment, run_from_command_line
from codesign_base import InfeasibleError

def case(a: int, b: str, seed: int) -> dict[str, float | str]:
    with open(os.environ["CASE_LOG"], "a") as log:
        log.write(f"{a}{b}\\n")
    if a == int(os.environ.get("HANG_AT", "-1")):
        try:
            time.sleep(600)
        except KeyboardInterrupt:
            if "SWALLOW" not in os.environ:
                raise
    if a == 2 and b == "y":
        raise InfeasibleError("a=2 does not fit | at all; use a=1")
    if os.environ.get("DIE") == f"{a}{b}":
        os._exit(9)
    if os.environ.get("FAIL") == f"{a}{b}":
        raise RuntimeError("broken case")
    return {"time_s": a / 3, "word": b * a}

EXPERIMENT = Experiment(
    name="sample-run", description="A sample.", source="nowhere, figure 0",
    grid={"a": [1, 2, 3], "b": ["x", "y"], "seed": [7]},
    quick_grid=[{"a": 1, "b": "z", "seed": 0}],
    columns=("time_s", "word"), case=case,
)

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
"""

CSV = """\
a,b,seed,status,time_s,word,message
1,x,7,ok,0.3333333333333333,x,
1,y,7,ok,0.3333333333333333,y,
2,x,7,ok,0.6666666666666666,xx,
2,y,7,infeasible,,,a=2 does not fit | at all; use a=1
3,x,7,ok,1.0,xxx,
3,y,7,ok,1.0,yyy,
"""

HEADING = ["# sample-run (full)", "", "A sample.", "", "Source: nowhere, figure 0", ""]


def kept(store):
    """How many cases a store holds."""
    if not store.exists():
        return 0
    connection = sqlite3.connect(store, timeout=60)
    try:
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return connection.execute("SELECT count(*) FROM cases").fetchone()[0] if tables else 0
    finally:
        connection.close()


class Script:
    """The sample script in a directory of its own, with a log of the cases that ran."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "log"
        self.output = directory / "results" / "sample-run" / "full"
        self.store = directory / "results" / "store.sqlite"
        (directory / "script.py").write_text(SCRIPT)

    def start(self, *arguments, **environment):
        self.log.write_text("")
        return subprocess.Popen(
            [sys.executable, str(self.directory / "script.py"), "--workers", "1", *arguments],
            env={**os.environ, "CASE_LOG": str(self.log), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments, status=0, **environment):
        process = self.start(*arguments, **environment)
        self.stdout, self.stderr = process.communicate(timeout=120)
        assert process.returncode == status, self.stderr
        return self.log.read_text().split()

    def wait_for(self, word):
        limit = time.monotonic() + 60
        while word not in self.log.read_text().split():
            assert time.monotonic() < limit
            time.sleep(0.01)

    def kept(self):
        return kept(self.store)

    def manifest(self):
        return json.loads((self.output / "manifest.json").read_text())

    def csv(self):
        return (self.output / "results.csv").read_bytes().decode()


@pytest.fixture
def script(tmp_path):
    return Script(tmp_path)


ALL = ["1x", "1y", "2x", "2y", "3x", "3y"]


def test_full_run_and_resume(script):
    assert script.run() == ALL
    assert script.csv() == CSV
    table = (script.output / "table.md").read_text()
    assert script.stdout == table + "\n"
    assert table.splitlines()[:6] == HEADING
    body = [[cell.strip() for cell in line.split(" | ")] for line in table.splitlines()[6:]]
    assert [cell.strip("| ") for cell in body[0]] == CSV.splitlines()[0].split(",")
    assert "| 0.3333 |" in table
    assert r"a=2 does not fit \| at all" in table
    assert "[1/6] ok" in script.stderr
    assert "left)" in script.stderr
    manifest = script.manifest()
    assert manifest["state"] == "finished"
    assert manifest["seeds"] == [7]
    assert manifest["case_counts"] == {"infeasible": 1, "ok": 5}
    assert manifest["versions"]["numpy"] == np.__version__
    assert "pytest" not in manifest["versions"]
    assert os.uname().nodename not in json.dumps(manifest)
    assert str(script.directory) not in json.dumps(manifest)

    assert script.run("--resume") == []
    assert "6 of 6 cases are finished" in script.stderr
    assert script.csv() == CSV
    assert script.run("--list") == []
    assert script.stdout.splitlines()[0] == "finished  a=1 b=x seed=7"


def test_failed_case_is_reported_and_computed_again(script):
    assert script.run(FAIL="2x", status=1) == ALL
    assert "case a=2 b=x seed=7 failed: RuntimeError: broken case" in script.stderr
    assert "Traceback" in script.stderr
    rows = list(csv.DictReader(script.csv().splitlines()))
    assert rows[2]["status"] == "failed"
    assert rows[2]["message"] == "RuntimeError: broken case"
    assert script.manifest()["case_counts"] == {"failed": 1, "infeasible": 1, "ok": 4}
    assert script.run("--resume") == ["2x"]
    assert script.csv() == CSV


@pytest.mark.slow
def test_parallel_equals_serial(script):
    assert sorted(script.run("--workers", "2")) == ALL
    assert script.csv() == CSV
    assert script.run("--resume") == []
    assert script.run() == ALL
    assert script.csv() == CSV


def test_killed_in_the_middle(script):
    process = script.start(HANG_AT="2")
    script.wait_for("2x")
    process.kill()
    process.communicate()
    assert script.manifest()["state"] == "running"
    assert not (script.output / "results.csv").exists()
    assert script.run("--resume") == ALL[2:]
    assert script.csv() == CSV
    assert script.kept() == 5 + 1


@pytest.mark.parametrize("swallow", [{}, pytest.param({"SWALLOW": "1"}, marks=pytest.mark.slow)])
def test_interrupted_in_the_middle(script, swallow):
    process = script.start(HANG_AT="2", **swallow)
    script.wait_for("2x")
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same command with --resume" in stderr
    assert "Traceback" not in stderr
    assert script.manifest()["state"] == "interrupted"
    assert script.run("--resume") == ALL[2:]
    assert script.csv() == CSV


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_run(script, number):
    process = script.start("--workers", "2", HANG_AT="2")
    script.wait_for("2x")
    while script.kept() < 2:
        time.sleep(0.01)  # 1x and 1y are computed, but the parent must have kept them too
    process.send_signal(number)
    # The pipes reach their end only when every worker has closed them.
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in stderr
    assert script.run("--resume") == ALL[2:]
    assert script.csv() == CSV


@pytest.mark.slow
def test_dead_worker_is_told_and_the_run_goes_on_later(script):
    script.run("--workers", "2", DIE="3y", status=1)
    assert "a worker process died" in script.stderr
    assert script.manifest()["case_counts"]["failed"] >= 1
    assert "3y" in script.run("--workers", "2", "--resume")
    assert script.csv() == CSV


def test_command_line_errors(script):
    script.run("--workers", "0", status=2)
    script.run("--nonsense", status=2)
    (script.directory / "file").write_text("")
    script.run("--output", str(script.directory / "file" / "x"), status=2)
    assert script.stderr.startswith("error: directory '")
    assert "file/x' cannot be made (Not a directory); give another name" in script.stderr
    assert script.run("--quick", "--output", str(script.directory / "there")) == ["1z"]
    results = script.directory / "there" / "sample-run" / "quick" / "results.csv"
    assert results.read_text().count("\n") == 2


def snapshot(directory):
    """The files of a run that are the same in every run."""
    return {
        path.relative_to(directory): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.suffix in (".csv", ".md") and path.name != "timings.csv"
    }


SLOW_SCRIPT = """
import time
from topoopt.experiment import Experiment, run_from_command_line

def case(a: int) -> list[dict[str, float]]:
    time.sleep(0.02)
    return [{"root": a**0.5, "third": a / 3}, {"root": None, "third": a / 7}]

EXPERIMENT = Experiment(
    name="many-cases", description="Many.", source="", grid={"a": list(range(120))},
    columns=("root", "third"), case=case,
)

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, 10])
def test_kills_at_random_moments_lose_nothing(kills, tmp_path):
    script = tmp_path / "many.py"
    script.write_text(SLOW_SCRIPT)
    command = [sys.executable, str(script), "--workers", "2"]
    subprocess.run([*command, "-o", str(tmp_path / "calm")], check=True, capture_output=True)
    moments = random.Random(5)
    store, done = tmp_path / "killed" / "store.sqlite", 0
    for kill in range(kills):
        process = subprocess.Popen(
            [*command, "--resume", "-o", str(tmp_path / "killed")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        if kill % 2:
            # While cases finish, whatever starting takes on this machine.
            while kept(store) == done and process.poll() is None:
                time.sleep(0.005)
            time.sleep(moments.uniform(0.0, 0.1))
        else:
            time.sleep(moments.uniform(0.1, 0.6))
        with contextlib.suppress(ProcessLookupError):  # finished before
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        before, done = done, kept(store)
        assert done >= before
    assert done > 0
    last = [*command, "--resume", "-o", str(tmp_path / "killed")]
    end = subprocess.run(last, check=True, capture_output=True, text=True)
    assert f"{done} reused" in end.stderr
    assert snapshot(tmp_path / "killed") == snapshot(tmp_path / "calm") != {}
