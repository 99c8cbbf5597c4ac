"""The command line: what interrupts and a lack of memory leave."""

import signal
import subprocess
import sys
import time

import pytest
from cli_runs import CLUSTER, FAST
from small_plans import shared_plan, small_dlrm

import topoopt as to
from parallelism.model_file import load_model
from topoopt.base.interrupts import interrupts_between_steps
from topoopt.bounds.gap import plan_bounds
from topoopt.cli import main
from topoopt.problem.options import SearchOptions

LITTLE = SearchOptions(steps=12, effort="quick")


def test_interrupting_from_the_keyboard_leaves_the_best_plan(workplace, tmp_path):
    program = "from topoopt.cli import main; main()"
    path = tmp_path / "plan.json"
    running = subprocess.Popen(
        [sys.executable, "-c", program, "plan", str(workplace[0] / "small.yaml"), *CLUSTER,
         "--seconds", "100", "--effort", "quick", "-o", str(path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert running.stderr is not None
    for line in running.stderr:
        if line.startswith("search"):
            break
    time.sleep(0.2)
    running.send_signal(signal.SIGINT)
    output, errors = running.communicate(timeout=60)
    assert running.returncode == 0, errors
    assert "search interrupted: the best so far" in output and "Traceback" not in errors
    plan = to.load_plan(path)
    assert plan.search.interrupted and to.verify_plan(plan).ok


def test_an_interrupted_comparison_says_so(workplace):
    def stop(report):
        if report.stage == "search":
            raise KeyboardInterrupt

    job = to.Job(load_model(workplace[0] / "small.yaml"))
    cluster = to.Cluster(servers=4, degree=2, bandwidth="100Gbps")
    found = to.compare(job, cluster, LITTLE, fabrics=("fat-tree",), progress=stop)
    assert found.interrupted and found.summary().endswith("interrupted: the best so far")
    whole = to.compare(job, cluster, LITTLE, fabrics=("fat-tree",))
    assert not whole.interrupted and "interrupted" not in whole.summary()


def test_interrupting_before_any_plan_has_status_130(workplace, monkeypatch, capsys):
    status, said = _left_by(KeyboardInterrupt(), workplace, monkeypatch, capsys)
    assert status == 130
    assert "interrupted: there is no result yet" in said


INTERRUPTED_BY = """
import signal, sys
class Interrupts:
    def find_spec(self, name, path, target=None):
        if name == "{module}":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
from topoopt.cli import main
main()
"""


@pytest.mark.parametrize("module", ["typer", "topoopt.cli.plan_command"])
def test_interrupting_while_modules_load_is_one_line(module):
    script = INTERRUPTED_BY.format(module=module)
    ended = subprocess.run(
        [sys.executable, "-c", script, "models"], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 130
    assert (ended.stdout, ended.stderr.count("\n")) == ("", 1)
    assert ended.stderr.startswith("interrupted: there is no result yet")


def test_interrupting_before_the_command_line_is_read_is_one_line(monkeypatch, capsys):
    def stop(**options):
        raise KeyboardInterrupt

    monkeypatch.setattr("topoopt.cli.app.app", stop)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 130
    assert capsys.readouterr().err.count("\n") == 1


def test_an_interrupt_says_what_was_written(workplace, monkeypatch, capsys):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.chdir(workplace[0])
    shared_plan().save("whole.json")
    monkeypatch.setattr("topoopt.codesign.solve.co_optimize", stop)
    monkeypatch.setattr("topoopt.cli.deploy_command._check", stop)
    for words, kept in (
        (("plan", "small.yaml", *FAST, "--save-job", "j.yaml"), "the job is in j.yaml"),
        (("deploy", "whole.json", "-o", "d", "--check"), "d is written, but not checked"),
        (("deploy", "whole.json", "--check"), None),
    ):
        monkeypatch.setattr("sys.argv", ["topoopt", *words])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 130
        said = "; " + kept if kept else ", nothing was written"
        assert capsys.readouterr().err == f"interrupted: there is no result yet{said}\n"
    assert (workplace[0] / "j.yaml").is_file() and (workplace[0] / "d/cables.csv").is_file()


def _left_by(error, workplace, monkeypatch, capsys):
    def stop(*arguments, **options):
        raise error

    monkeypatch.setattr("topoopt.codesign.solve.co_optimize", stop)
    monkeypatch.setattr("sys.argv", ["topoopt", "plan", str(workplace[0] / "small.yaml"), *FAST])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code, capsys.readouterr().err


def test_interrupted_kernels_and_lack_of_memory_are_one_sentence(workplace, monkeypatch, capsys):
    error = SystemError("kernel returned a result with an exception set")
    error.__cause__ = SystemError("helper returned a result with an exception set")
    error.__cause__.__cause__ = KeyboardInterrupt()
    status, message = _left_by(error, workplace, monkeypatch, capsys)
    assert status == 130 and message.startswith("interrupted: ") and message.count("\n") == 1
    lack = MemoryError("Unable to allocate 7 TiB")
    status, message = _left_by(lack, workplace, monkeypatch, capsys)
    assert status == 2 and message.startswith("error: not enough memory (Unable to allocate 7 TiB)")


def test_a_second_interrupt_does_not_wait_for_the_bounds(monkeypatch):
    reached = []

    def interrupted_bounds(*arguments, **options):
        reached.append("before")
        signal.raise_signal(signal.SIGINT)
        reached.append("after")
        return plan_bounds(*arguments, **options)

    def press(report):
        if report.stage == "search" and not reached:
            reached.append("search")
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("topoopt.codesign.once.plan_bounds", interrupted_bounds)
    job, cluster = to.Job(small_dlrm()), to.Cluster(servers=4, degree=2, bandwidth="100Gbps")
    with pytest.raises(KeyboardInterrupt):
        to.co_optimize(job, cluster, LITTLE, baselines=(), progress=press)
    assert reached == ["search", "before"]


def test_interrupts_wait_for_the_next_report_and_a_second_does_not():
    reports = []
    with interrupts_between_steps(reports.append) as report:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            report("first")
        report("second")
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with interrupts_between_steps(reports.append):
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert reports == ["first", "second"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_programs_own_handler_of_interrupts_is_left_alone():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_between_steps() as report:
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            report(None)
    finally:
        signal.signal(signal.SIGINT, before)
