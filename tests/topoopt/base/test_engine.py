"""The engine: order, failures, interrupts, and the same answers everywhere."""

import multiprocessing
import os
import signal
import threading

import engine_jobs
import pytest

from codesign_base import InputError
from topoopt.base.calls import Call, WorkerDied
from topoopt.base.engine import _born_deaf, in_order, iterate_jobs, open_workers, run_jobs
from topoopt.base.interrupts import interrupts_between_steps


def calls(function, count=4, **arguments):
    return [Call(function, {"x": x, **arguments}) for x in range(count)]


@pytest.mark.parametrize("workers", [1, 2, 9])
def test_results_are_in_order(workers):
    jobs = [
        Call(engine_jobs.square, {"x": x, "after": 0.1 if x == 0 else 0.0}) for x in range(5)
    ]  # fmt: skip
    seen = []
    run = run_jobs(jobs, workers=workers, finished=lambda place, result: seen.append(place))
    assert list(run.results.items()) == [(x, x * x) for x in range(5)]
    assert not run.interrupted
    assert sorted(seen) == list(range(5))
    assert run_jobs([], workers=workers).results == {}


def test_workers_are_other_processes_that_share_the_cores(monkeypatch):
    monkeypatch.setattr("topoopt.base.engine.usable_cores", lambda: 6)
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    found = run_jobs(calls(engine_jobs.where), workers=2).results.values()
    assert os.getpid() not in {pid for pid, _ in found}
    assert {threads for _, threads in found} == {"3"}
    assert "NUMBA_NUM_THREADS" not in os.environ
    assert {pid for pid, _ in run_jobs(calls(engine_jobs.where)).results.values()} == {os.getpid()}


def test_workers_do_not_hear_ctrl_c_from_their_first_moment():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    found = run_jobs(calls(engine_jobs.deaf), workers=2).results.values()
    assert set(found) == {True}
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before == set()


def test_workers_are_started_without_masks_of_signals_where_there_are_none(monkeypatch):
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.delattr("signal.pthread_sigmask")
    with _born_deaf():
        started = True
    assert started


def test_a_dead_worker_is_told():
    results = dict(iterate_jobs(calls(engine_jobs.die, 3), workers=2))
    assert isinstance(results[1], WorkerDied)
    with pytest.raises(InputError, match="worker process died"):
        run_jobs(calls(engine_jobs.die, 3), workers=2)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_job_raises_is_raised(workers):
    with pytest.raises(ValueError, match=r"no \d"):
        run_jobs(calls(engine_jobs.fail), workers=workers)


def test_an_interrupt_returns_what_is_done():
    run = run_jobs(calls(engine_jobs.interrupt))
    assert (run.results, run.interrupted) == ({0: 0, 1: 1}, True)


def test_ctrl_c_ends_the_workers_and_returns_what_is_done():
    jobs = [Call(engine_jobs.square, {"x": x, "after": 60.0 * x}) for x in range(2)]

    def press(place, result):
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()

    run = run_jobs(jobs, workers=2, finished=press)
    assert (run.results, run.interrupted) == ({0: 0}, True)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_that_is_held_back_when_workers_are_asked_for_is_heard_before_they_begin():
    with interrupts_between_steps():
        signal.raise_signal(signal.SIGINT)
        run = run_jobs(calls(engine_jobs.square, after=0.0), workers=2)
    assert (run.results, run.interrupted) == ({}, True)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_stay_for_several_lists_and_hold_what_is_shared(workers):
    with open_workers(workers=workers, shared={"common": {"base": 10}}) as run:
        rounds = [list(in_order(run(calls(engine_jobs.shared_and_own)))) for _ in range(2)]
    assert [[value for _, _, value in answers] for answers in rounds] == [[10, 11, 12, 13]] * 2
    # One object a process, whatever the number of jobs: it came once.
    seen = {(pid, common) for answers in rounds for pid, common, _ in answers}
    assert len(seen) == len({pid for pid, _ in seen}) <= workers
    assert ({pid for pid, _ in seen} == {os.getpid()}) == (workers == 1)


def test_results_wait_for_those_before_them():
    seen = []

    def come(*places):
        for place in places:
            seen.append(place)
            yield place, 10 * place

    ordered = in_order(come(1, 0, 3, 2))
    assert next(ordered) == 0 and seen == [1, 0]
    assert next(ordered) == 10 and seen == [1, 0]
    assert list(ordered) == [20, 30]
    with pytest.raises(InputError, match="worker process died"):
        list(in_order(iter([(0, 1), (1, WorkerDied())])))


def test_a_script_that_asks_for_workers_in_its_workers_is_told_where_its_calls_belong(monkeypatch):
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(SystemExit, match="calls under if __name__ == '__main__'"):
        run_jobs([Call(pow, {"base": 2, "exp": 3})] * 2, workers=2)


def test_what_is_shared_must_be_picklable():
    with pytest.raises(InputError, match="top level of a module"):  # noqa: SIM117
        with open_workers(workers=2, shared={"function": lambda: 1}):
            pass


def test_bad_engines_and_jobs_are_refused():
    for engine, workers, reason in (
        ("dask", 1, "choose local, ray"),
        ("local", 0, "workers is 0"),
        ("local", True, "workers is True"),
    ):
        with pytest.raises(InputError, match=reason):
            run_jobs(calls(engine_jobs.square), engine=engine, workers=workers)
    with pytest.raises(InputError, match="top level of a module"):
        run_jobs([Call(lambda: 1, {})], workers=2)


def test_without_ray_one_sentence_says_so(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'topoopt\[ray\]'"):
        run_jobs(calls(engine_jobs.square), engine="ray://head:10001")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ray_gives_the_same_answers():
    pytest.importorskip("ray")
    jobs = calls(engine_jobs.square, 5)
    assert run_jobs(jobs, engine="ray", workers=2) == run_jobs(jobs)
    results = dict(iterate_jobs(calls(engine_jobs.die, 3), engine="ray", workers=2))
    assert isinstance(results.pop(1), WorkerDied)
    assert results == {0: 0, 2: 2}
    with open_workers(engine="ray", workers=2, shared={"common": {"base": 10}}) as run:
        for _ in range(2):
            found = in_order(run(calls(engine_jobs.shared_and_own)))
            assert [value for _, _, value in found] == [10, 11, 12, 13]
    with pytest.raises(ValueError, match=r"no \d"):
        run_jobs(calls(engine_jobs.fail), engine="ray", workers=1)
