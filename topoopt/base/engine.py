"""Independent jobs on this process, local processes or a Ray cluster, with the same answer.

A job is a function at the top level of a module and its keyword arguments; what it returns may
depend on nothing else. Then neither the engine nor the number of workers changes any result.
Arguments that many jobs share are sent to each local worker once.
"""

import importlib.util
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from codesign_base import InputError
from codesign_base.arguments import whole
from topoopt.base.calls import Call, WorkerDied
from topoopt.base.interrupts import interrupts_at_once
from topoopt.base.processes import THREAD_VARIABLES, usable_cores
from topoopt.base.ray_engine import ray_workers

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

LOCAL, RAY = "local", "ray"
DIED = "a worker process died (out of memory, if it said nothing else?); try fewer workers"
_UNGUARDED = (
    "error: each worker runs this script from its beginning, and came to ask for workers itself; "
    "put the script's calls under if __name__ == '__main__':"
)

# Runs a list of jobs; yields place and result of each as it finishes.
Runner = Callable[[Sequence[Call]], Iterator[tuple[int, Any]]]


@dataclass(frozen=True)
class Finished:
    """What came of a list of jobs.

    Parameters
    ----------
    results : dict of int to object
        By place in the list, in order; all places unless interrupted.
    interrupted : bool
        Whether Ctrl-C stopped it.
    """

    results: dict[int, Any]
    interrupted: bool


def check_engine(engine: str, workers: int) -> None:
    """Refuse an engine or a number of workers that cannot be.

    Parameters
    ----------
    engine : str
        ``local``, ``ray`` (a Ray of its own on this machine) or ``ray://HOST:PORT``.
    workers : int

    Raises
    ------
    InputError
        If the engine is unknown or not installed, or there is no worker.
    """
    if whole("workers", workers, "a whole number of at least 1") < 1:
        raise InputError(f"workers is {workers}; give a whole number of at least 1")
    if engine == LOCAL:
        return
    if engine != RAY and not engine.startswith("ray://"):
        raise InputError(f"engine is {engine!r}; choose local, ray or ray://HOST:PORT")
    if importlib.util.find_spec("ray") is None:
        raise InputError(
            f"engine is {engine!r}, but Ray is not installed; pip install 'topoopt[ray]'"
        )


def iterate_jobs(
    jobs: Sequence[Call], *, workers: int = 1, engine: str = LOCAL
) -> Iterator[tuple[int, Any]]:
    """Run jobs and yield each result with its place in the list, as they finish.

    Parameters
    ----------
    jobs : sequence of Call
    workers : int
        Jobs at a time. One on the local engine runs in this process, in order.
    engine : str
        As in `check_engine`.

    Yields
    ------
    place : int
    result : object
        What the function returned, or a `WorkerDied`.

    Raises
    ------
    InputError
        If the engine cannot be, or a job cannot be sent to another process.
    Exception
        What a function raised; the other jobs are given up.
    KeyboardInterrupt
        On Ctrl-C; the workers end at once.
    """
    check_engine(engine, workers)
    if not jobs:
        return
    with _workers(engine, workers, min(workers, len(jobs)), {}) as run:
        yield from run(jobs)


@contextmanager
def open_workers(
    *, workers: int = 1, engine: str = LOCAL, shared: Mapping[str, Any] | None = None
) -> Iterator[Runner]:
    """Keep workers for several lists of jobs, one list after the other.

    Parameters
    ----------
    workers : int
        As in `iterate_jobs`.
    engine : str
        As in `check_engine`.
    shared : mapping, optional
        Keyword arguments of all jobs besides their own; sent to each local process once.

    Yields
    ------
    Runner
        Runs a list of jobs as `iterate_jobs` does. On leaving by an exception the workers end
        at once, with their parent they end in any case.

    Raises
    ------
    InputError, KeyboardInterrupt
        As in `iterate_jobs`.
    """
    check_engine(engine, workers)
    with _workers(engine, workers, workers, shared or {}) as run:
        yield run


def in_order(results: Iterator[tuple[int, Any]]) -> Iterator[Any]:
    """Yield the results of a list of jobs in its order, each as soon as those before are there.

    Raises
    ------
    InputError
        If a worker process died.
    """
    early: dict[int, Any] = {}
    following = 0
    for place, result in results:
        if isinstance(result, WorkerDied):
            raise InputError(DIED)
        early[place] = result
        while following in early:
            yield early.pop(following)
            following += 1


@contextmanager
def _workers(
    engine: str, workers: int, processes: int, shared: Mapping[str, Any]
) -> Iterator[Runner]:
    if engine == LOCAL and workers == 1:
        yield partial(_run_here, shared)
        return
    _check_picklable("what the jobs share", dict(shared))
    with interrupts_at_once():
        if engine == LOCAL:
            with _local_workers(processes, shared) as run:
                yield partial(_run_checked, run)
        else:
            with ray_workers(workers, None if engine == RAY else engine, shared) as run:
                yield partial(_run_checked, run)


def _run_here(shared: Mapping[str, Any], jobs: Sequence[Call]) -> Iterator[tuple[int, Any]]:
    for place, job in enumerate(jobs):
        yield place, job.function(**shared, **job.arguments)


def _run_checked(run: Runner, jobs: Sequence[Call]) -> Iterator[tuple[int, Any]]:
    for job in jobs:
        _check_picklable(repr(job.function), (job.function, dict(job.arguments)))
    return run(jobs)


def run_jobs(
    jobs: Sequence[Call],
    *,
    workers: int = 1,
    engine: str = LOCAL,
    finished: Callable[[int, Any], None] | None = None,
) -> Finished:
    """Run jobs and return their results in order.

    Parameters
    ----------
    jobs, workers, engine
        As in `iterate_jobs`.
    finished : callable, optional
        Called with place and result of each job as it finishes.

    Returns
    -------
    Finished
        On Ctrl-C, what is done.

    Raises
    ------
    InputError
        As `iterate_jobs`, and if a worker process died.
    """
    results: dict[int, Any] = {}
    interrupted = False
    try:
        for place, result in iterate_jobs(jobs, workers=workers, engine=engine):
            if isinstance(result, WorkerDied):
                raise InputError(DIED)
            results[place] = result
            if finished is not None:
                finished(place, result)
    except KeyboardInterrupt:
        interrupted = True
    return Finished(dict(sorted(results.items())), interrupted)


def _check_picklable(what: str, value: object) -> None:
    try:
        pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{what} cannot be sent to worker processes ({reason}); define it and "
            "what it is given at the top level of a module, or use 1 local worker"
        ) from None


@contextmanager
def _local_workers(workers: int, shared: Mapping[str, Any]) -> Iterator[Runner]:
    """Keep processes that are started afresh, so that a job sees the same state in any."""
    import multiprocessing
    from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed

    if getattr(multiprocessing.current_process(), "_inheriting", False):
        # Python would say the same in two tracebacks, of another way to start processes.
        raise SystemExit(_UNGUARDED)
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(shared,),
    )

    def run(jobs: Sequence[Call]) -> Iterator[tuple[int, Any]]:
        # Processes start as jobs are handed in, and inherit these.
        with _threads_shared(workers), _born_deaf():
            futures = {
                pool.submit(_call, job.function, job.arguments): place
                for place, job in enumerate(jobs)
            }
        for future in as_completed(futures):
            try:
                result = future.result()
            except BrokenExecutor:
                result = WorkerDied()
            yield futures[future], result

    try:
        yield run
        pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        _terminate([p for p in multiprocessing.active_children() if p not in others])
        raise


@contextmanager
def _threads_shared(workers: int) -> Iterator[None]:
    """Let processes started in the block use their share of the cores for threads."""
    each = str(max(1, usable_cores() // workers))
    ours = [name for name in THREAD_VARIABLES if name not in os.environ]
    os.environ.update(dict.fromkeys(ours, each))
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]


@contextmanager
def _born_deaf() -> Iterator[None]:
    """Keep Ctrl-C from processes that are started in the block, and from this one until its end.

    Until a worker ignores Ctrl-C itself it imports for half a second, and would say where it was.
    On Windows, where threads have no masks of signals, it does.
    """
    if sys.platform == "win32":
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # which would end the block for all others
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_SHARED: dict[str, Any] = {}  # of a worker process, set once before its first job


def _start_worker(shared: Mapping[str, Any]) -> None:
    # Ctrl-C reaches the whole process group; the parent decides what comes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _SHARED.update(shared)


def _call(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    return function(**_SHARED, **arguments)


def _end_with_parent() -> None:
    import multiprocessing

    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _terminate(processes: Sequence["BaseProcess"]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()
