"""Compute cases one after the other, or in parallel worker processes."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from codesign_base import InputError
from topoopt.experiment.cases import Outcome, compute_case
from topoopt.experiment.declaration import Experiment, Row

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess


def compute_serially(
    experiment: Experiment, todo: Sequence[tuple[int, Row]], code: str
) -> Iterator[tuple[int, Outcome]]:
    """Compute cases in order, and yield each with its index.

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C, also if the case caught it (an optimizer that returns its best result so
        far): a result cut short must not be kept as that of the case.
    """
    with _interrupts_noted() as interrupted:
        for index, inputs in todo:
            outcome = compute_case(experiment.case, tuple(experiment.columns), inputs, code)
            if interrupted.is_set():
                raise KeyboardInterrupt
            yield index, outcome


def compute_in_parallel(
    experiment: Experiment, todo: Sequence[tuple[int, Row]], code: str, jobs: int
) -> Iterator[tuple[int, Outcome]]:
    """Compute cases in worker processes, and yield each with its index as it finishes.

    Workers are started afresh (spawn), so that a case sees the same state in any of them. They
    end at once on Ctrl-C, and when this process dies.

    Raises
    ------
    InputError
        If ``case`` cannot be sent to another process.
    """
    import multiprocessing
    import pickle
    from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed

    try:
        pickle.dumps(experiment.case)
    except (pickle.PicklingError, AttributeError, TypeError):
        raise InputError(
            f"experiment {experiment.name!r}: case {experiment.case!r} cannot be sent to worker "
            "processes; define it at the top level of a module, or use --jobs 1"
        ) from None
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        min(jobs, len(todo)),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
    )
    columns = tuple(experiment.columns)
    try:
        futures = {
            pool.submit(compute_case, experiment.case, columns, inputs, code): index
            for index, inputs in todo
        }
        for future in as_completed(futures):
            try:
                outcome = future.result()
            except BrokenExecutor:
                message = "a worker process died (out of memory?); try fewer --jobs"
                outcome = Outcome("failed", message=message, code=code)
            yield futures[future], outcome
        pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        _terminate([p for p in multiprocessing.active_children() if p not in others])
        raise


@contextmanager
def _interrupts_noted() -> Iterator[threading.Event]:
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted  # signals go to the main thread; nothing to note here
        return

    def note(number: int, frame: object) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def _start_worker() -> None:
    # A worker that dies silently leaves the telling to the parent.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


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
