"""Searches that are stopped and go on elsewhere: the same result, whatever the moment."""

import os
import pickle
import signal
import subprocess
import sys
import zlib

import pytest
from small_plans import planned

from codesign_base import InputError
from topoopt import Cluster, Job, models
from topoopt.evaluate.problem import Problem
from topoopt.problem.budget import Budget
from topoopt.problem.options import SearchOptions
from topoopt.search import driver
from topoopt.search.driver import run, start
from topoopt.search.methods import search_for
from topoopt.search.search_state import StateFile

JOB = Job(models.dlrm(tables=3, top_layers=1, bottom_layers=1, batch_per_gpu=64))
CLUSTER = Cluster(servers=6, degree=2, bandwidth="10Gbps")


class Stopped(BaseException):
    """Stands for anything that ends a process."""


class StoppingFile(StateFile):
    """Writes every state, and ends the search after some."""

    def __init__(self, path, saves):
        super().__init__(path, "the question")
        self.saves = saves

    def save(self, search, state, *, last=False):
        super().save(search, state, last=True)
        self.saves -= 1
        if self.saves == 0:
            raise Stopped


def search(method, seed=0, faithful=None):
    options = SearchOptions(faithful=faithful, method=method)
    return search_for(Problem(JOB.family(CLUSTER.servers), CLUSTER, options, seed))


def same(a, b):
    assert (a.steps, a.work, a.converged, a.named) == (b.steps, b.work, b.converged, b.named)
    assert [p.time for p in a.others] == [p.time for p in b.others]
    assert [p.strategy for p in a.others] == [p.strategy for p in b.others]
    assert a.best.time == b.best.time
    assert a.best.strategy == b.best.strategy
    assert a.best.wired_like(b.best)


@pytest.mark.parametrize(
    ("method", "faithful"),
    [
        ("joint", None),
        pytest.param("sequential", None, marks=pytest.mark.slow),
        ("topology-only", None),
        pytest.param("alternating", "paper", marks=pytest.mark.slow),
    ],
)
def test_a_search_stopped_after_every_round_comes_to_the_same(method, faithful, tmp_path):
    budget = Budget(steps=1000)
    whole = run(search(method, faithful=faithful), budget)
    path = tmp_path / "state"
    stops = 0
    while True:
        try:
            # The state that was loaded is saved again first.
            found = run(search(method, faithful=faithful), budget, None, StoppingFile(path, 2))
        except Stopped:
            stops += 1
            continue
        break
    assert stops >= (0 if method == "topology-only" else 2)
    same(found, whole)


@pytest.mark.slow
def test_a_killed_search_goes_on_to_the_same_plan(tmp_path, monkeypatch):
    # Another process is killed with its third state written; this one goes on from it.
    path = tmp_path / "search.json"
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal\n"
        "from topoopt import Cluster, Job, co_optimize, models\n"
        "from topoopt.problem.options import SearchOptions\n"
        "import topoopt.search.search_state as state\n"
        "save, made = state.StateFile.save, []\n"
        "def kill(self, *arguments, last=False):\n"
        "    save(self, *arguments, last=True)\n"
        "    made.append(0)\n"
        "    if len(made) == 3:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "state.StateFile.save = kill\n"
        "job = Job(models.dlrm(tables=3, top_layers=1, bottom_layers=1, batch_per_gpu=64))\n"
        "cluster = Cluster(servers=6, degree=2, bandwidth='10Gbps')\n"
        "options = SearchOptions(steps=1000, confirm='none')\n"
        f"co_optimize(job, cluster, options, seed=1, baselines=(), checkpoint={str(path)!r})\n"
    )
    done = subprocess.run([sys.executable, script], check=False, env=dict(os.environ))
    assert done.returncode == -signal.SIGKILL
    assert [p.name for p in tmp_path.glob("search*")] == ["search.json.search-0"]
    begun = []
    monkeypatch.setattr(driver, "start", lambda *a: begun.append(0) or start(*a))
    asked = {"seed": 1, "steps": 1000, "confirm": "none", "baselines": ()}
    plan = planned(JOB, CLUSTER, **asked, checkpoint=path)
    assert not begun
    assert [p.name for p in tmp_path.glob("search*")] == ["search.json"]
    assert plan == planned(JOB, CLUSTER, **asked)
    assert begun


def test_a_search_that_was_over_is_not_made_again(tmp_path, monkeypatch):
    path = tmp_path / "state"
    budget = Budget(steps=400)
    whole = run(search("joint"), budget, None, StateFile(path, "the question"))
    monkeypatch.setattr(driver, "make_rounds", None)  # no round is made
    again = search("joint")
    same(run(again, budget, None, StateFile(path, "the question")), whole)


def test_states_are_written_now_and_then(tmp_path, monkeypatch):
    state = StateFile(tmp_path / "state", "the question")
    written = []
    monkeypatch.setattr("topoopt.search.search_state._EVERY_SECONDS", 1e9)
    monkeypatch.setattr(
        "topoopt.search.search_state.write_bytes_atomically", lambda *a: written.append(0)
    )
    run(search("alternating"), Budget(steps=1000), None, state)
    assert len(written) == 2  # the first at once, the last at the end


def test_files_of_another_search_and_damaged_ones_are_refused(tmp_path):
    path = tmp_path / "state"
    budget = Budget(steps=400)
    run(search("joint"), budget, None, StateFile(path, "the question"))
    with pytest.raises(InputError, match="no state of this search"):
        run(search("joint"), budget, None, StateFile(path, "another"))
    content = path.read_bytes()
    for cut in (len(content) - 1, len(content) // 2, 40):
        path.write_bytes(content[:cut])
        with pytest.raises(InputError, match="damaged"):
            run(search("joint"), budget, None, StateFile(path, "the question"))
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match="directory"):
        run(search("joint"), budget, None, StateFile(path, "the question"))


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("made",)


class Indirect:
    """Names a function of the packages, which could write files."""

    def __reduce__(self):
        from topoopt.base.atomic import write_text_atomically

        return write_text_atomically, ("made", "")


@pytest.mark.parametrize("content", [Harmful(), Indirect(), {"no": "state"}])
def test_a_file_runs_nothing(content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "state"
    head = b"topoopt-search/5\nthe question\n"
    path.write_bytes(head + zlib.compress(pickle.dumps(content)))
    with pytest.raises(InputError, match="damaged"):
        StateFile(path, "the question").load(search("joint"))
    assert not (tmp_path / "made").exists()
