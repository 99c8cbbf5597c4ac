"""Tasks that hardly depend on each other, two at a time in threads; and what runs beside others."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from threading import Lock
from typing import TypeVar

from topoopt.base.freed import give_back
from topoopt.base.progress import Progress, ProgressCallback

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# From so many servers on, tasks take long enough; compiled kernels let each other run.
THREADED_FROM = 33


def in_twos(
    items: Iterable[_Item],
    task: Callable[[_Item, float], _Result],
    limit: Callable[[], float],
    servers: int,
    threaded_from: int = THREADED_FROM,
) -> Iterator[tuple[_Item, _Result]]:
    """Yield items with what a task makes of them, in order.

    Two at a time from a size on. Both of two know the limit that held before them, however many
    threads there are and whichever ends first. The second of two may be made in vain: the caller
    need not ask for it.

    Parameters
    ----------
    items : iterable
    task : callable
        Is given an item and the limit.
    limit : callable
        Returns the limit that what was yielded so far sets.
    servers : int
    threaded_from : int
        From how many servers on two at a time are worth it.

    Yields
    ------
    item
    result
    """
    if servers < threaded_from:
        for item in items:
            yield item, task(item, limit())
            if servers >= THREADED_FROM:
                give_back()
        return
    left = iter(items)
    pool = ThreadPoolExecutor(min(2, os.cpu_count() or 1))
    try:
        while two := list(islice(left, 2)):
            held = limit()
            found = [pool.submit(task, item, held) for item in two]
            for item, each in zip(two, found, strict=True):
                yield item, each.result()
            if servers >= THREADED_FROM:
                give_back()
    finally:
        # After an interruption what has not begun never does.
        pool.shutdown(cancel_futures=True)


class Beside:
    """Tasks in threads beside what the caller does; an interruption ends those that report.

    Parameters
    ----------
    progress : callable, optional
        Called by one thread at a time; where it raises `KeyboardInterrupt`, so do all later
        reports.
    threads : int
        How many tasks may run at a time.
    """

    def __init__(self, progress: ProgressCallback | None, threads: int = 2) -> None:
        self._progress = progress
        self._lock = Lock()
        self._interrupted = False
        self._pool = ThreadPoolExecutor(threads)

    def __enter__(self) -> "Beside":
        return self

    def __exit__(self, *_: object) -> None:
        # What still runs ends at its next report; what has not begun never does.
        self._interrupted = True
        self._pool.shutdown(cancel_futures=True)

    def report(self, made: Progress) -> None:
        """Hand a report of any of the tasks, or of the caller, on."""
        with self._lock:
            if self._interrupted:
                raise KeyboardInterrupt
            try:
                if self._progress is not None:
                    self._progress(made)
            except KeyboardInterrupt:
                self._interrupted = True
                raise

    def start(self, task: Callable[[], _Result]) -> "Future[_Result]":
        """Run a task as soon as a thread is free."""
        return self._pool.submit(task)
