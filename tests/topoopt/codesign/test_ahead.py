"""The second process that begins early: what it compiles or loads, and when it starts."""

import fcntl
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_plans import with_less_work
from typer.testing import CliRunner

import topoopt as to
from codesign_base import jit
from parallelism.longest_path_kernels import heads_and_tails
from topoopt.bounds.critical_kernels import busiest_span
from topoopt.cli.app import app
from topoopt.codesign import ahead
from topoopt.codesign.compile_late import compile_late_kernels
from topoopt.fabric.flows_kernels import no_flows, update_rates
from topoopt.fabric.iteration_kernels import begun
from topoopt.fabric.packet_kernels import simulate_packets
from topoopt.fabric.rings_kernels import choose_rings
from topoopt.fabric.symmetry_kernels import quotient_rows, refine_links, refine_tasks
from topoopt.topology.cayley_kernels import count_cycles, merge_arcs, set_costs
from topoopt.topology.circulant_kernels import every_set

LATE = (
    begun, no_flows, update_rates,
    simulate_packets, choose_rings, quotient_rows, refine_links, refine_tasks, count_cycles,
    merge_arcs, set_costs, every_set, heads_and_tails, busiest_span,
)  # fmt: skip


@pytest.mark.slow
def test_a_plan_needs_no_other_version_of_what_was_compiled_ahead(monkeypatch):
    with_less_work(monkeypatch)
    compile_late_kernels()
    compiled = [tuple(kernel.signatures) for kernel in LATE]
    assert all(compiled)
    job = to.Job(to.models.dlrm(tables=4, batch_per_gpu=32))
    plan = to.co_optimize(job, to.Cluster(servers=4, degree=2, bandwidth="100Gbps"))
    assert plan.packet_time_s is not None
    assert [tuple(kernel.signatures) for kernel in LATE] == compiled
    # Nor where others call them, whose compiled code may have been loaded.
    for kernel in LATE:
        module, name = kernel.py_func.__module__.rpartition(".")[2], kernel.py_func.__name__
        kept = {path.name for path in jit.cache_directory().rglob(f"{module}.{name}-*.nbc")}
        assert len(kept) == 1


class Recorded:
    """Stands for the process."""

    started: tuple["Recorded", ...] = ()

    def __init__(self, words, **pipes):
        self.words, self.pipes, self.killed = words, pipes, False
        Recorded.started += (self,)

    def kill(self):
        self.killed = True

    def communicate(self):
        assert self.killed


@pytest.fixture
def first_run(monkeypatch, tmp_path):
    monkeypatch.setattr(Recorded, "started", ())
    monkeypatch.setattr("topoopt.base.processes.subprocess.Popen", Recorded)
    monkeypatch.setattr(ahead, "usable_cores", lambda: 2)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_the_process_is_silent_and_ends_with_the_block(first_run):
    with pytest.raises(RuntimeError), ahead.beginning_ahead():
        (process,) = Recorded.started
        assert not process.killed
        raise RuntimeError
    assert process.killed
    assert process.words[1:] == ["-P", "-m", "topoopt.codesign.compile_late"]
    assert process.pipes["stdin"] == subprocess.PIPE
    assert process.pipes["stdout"] == process.pipes["stderr"] == subprocess.DEVNULL


@pytest.mark.parametrize(("model", "last"), [("dlrm-16", []), ("llama3-8b", ["layouts"])])
def test_the_process_knows_what_is_planned(first_run, model, last):
    # Refused, so that nothing is planned.
    asked = ["plan", model, "--servers", "0", "--degree", "2", "--bandwidth", "100Gbps"]
    run = CliRunner().invoke(app, asked)
    assert isinstance(run.exception, to.InputError)
    (process,) = Recorded.started
    assert process.words[4:] == last


def test_the_process_imports_what_this_one_does(first_run, monkeypatch):
    # A checkout in the working directory was imported instead, and all kernels compiled twice.
    checkout = first_run / "checkout"
    (checkout / "topoopt").mkdir(parents=True)
    (checkout / "topoopt" / "__init__.py").touch()
    with ahead.beginning_ahead():
        (process,) = Recorded.started
    monkeypatch.undo()
    before_module = process.words[: process.words.index("-m")]
    asked = [*before_module, "-c", "import topoopt; print(topoopt.__file__)"]
    answer = subprocess.run(
        asked,
        env=process.pipes["env"],
        cwd=checkout,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert Path(answer.stdout.strip()) == Path(to.__file__)


@pytest.mark.parametrize("reason", ["one core", "compiled before", "no cache", "not compiled"])
def test_nothing_is_started_that_would_not_help(first_run, monkeypatch, reason):
    if reason == "one core":
        monkeypatch.setattr(ahead, "usable_cores", lambda: 1)
    elif reason == "compiled before":
        monkeypatch.setattr(ahead, "compiled_cache_is_warm", lambda kernels: "packet" in kernels)
    elif reason == "no cache":
        monkeypatch.setattr(ahead, "kernels_are_shared", lambda: False)
    else:
        monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    with ahead.beginning_ahead():
        assert not Recorded.started


@pytest.mark.parametrize(("layouts", "servers", "cores", "loads"), [
    (False, 16, 2, True), (False, 2, 2, True), (False, 32, 2, True),
    (True, 16, 2, False), (False, 1, 2, False), (False, 33, 2, False), (False, 0, 2, False),
    (False, 16, 1, False),
])  # fmt: skip
def test_a_later_run_loads_what_a_search_by_two_processes_needs(
    first_run, monkeypatch, layouts, servers, cores, loads
):
    monkeypatch.setattr(ahead, "compiled_cache_is_warm", lambda kernels: "packet" in kernels)
    monkeypatch.setattr(ahead, "granted_cores", lambda: cores)
    with ahead.beginning_ahead(layouts, servers):
        assert [process.words[3:] for process in Recorded.started] == loads * [
            ["topoopt.base.second", "topoopt.search.load_early"]
        ]
    assert all(process.killed for process in Recorded.started)


LOADED = """
import sys
from topoopt.fabric.packet_kernels import simulate_packets
from topoopt.fabric.fluid_kernels import simulate_fluid
from topoopt.search.load_early import load

load()
print(bool(simulate_packets.signatures), bool(simulate_fluid.signatures))
# What no search of a small job needs takes longer to load than all kernels.
print("scipy.optimize" in sys.modules, "scipy.sparse" in sys.modules)
"""


def test_what_is_loaded_is_what_a_search_waits_for_first():
    asked = [sys.executable, "-c", LOADED]
    answer = subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=True)
    assert answer.stdout.split() == ["True", "True", "False", "False"]


PARENT = """
import os, sys
from pathlib import Path
from topoopt.codesign import ahead

ahead.usable_cores = lambda: 2
with ahead.beginning_ahead():
    (child,) = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    print(child, flush=True)
    sys.stdin.readline()
"""


def ended(process):
    """Whether a process is gone, or only its last words wait for somebody to read them."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks the system for children")
@pytest.mark.parametrize("way", ["its block ends", "it is interrupted", "it is killed"])
def test_the_process_ends_with_its_parent(tmp_path, monkeypatch, way):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    # Left alone, it would wait for a kernel for ever.
    lock = "topoopt.topology.circulant_kernels.every_set.lock"
    held = (jit.cache_directory() / lock).open("wb")
    fcntl.flock(held, fcntl.LOCK_EX)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        child = int(parent.stdout.readline())
        assert not ended(child)
        if way == "its block ends":
            parent.stdin.write("\n")
            parent.stdin.flush()
        else:
            parent.send_signal(signal.SIGKILL if way == "it is killed" else signal.SIGINT)
        parent.wait(timeout=60)
        for _ in range(600):
            if ended(child):
                break
            time.sleep(0.05)
        assert ended(child)
    finally:
        parent.kill()
        parent.communicate()
        held.close()
