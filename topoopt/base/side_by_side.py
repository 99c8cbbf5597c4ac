"""Tasks that hardly depend on each other, two at a time in threads."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from routing.routes import tabled
from topoopt.base.freed import give_back

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# From so many servers on, tasks take long enough; compiled kernels let each other run.
THREADED_FROM = 33


def in_twos(
    items: Iterable[_Item],
    task: Callable[[_Item, float], _Result],
    limit: Callable[[], float],
    servers: int,
) -> Iterator[tuple[_Item, _Result]]:
    """Yield items with what a task makes of them, in order.

    Two at a time from a size on, until what two of them keep would fill memory. Both of two know
    the limit that held before them, however many threads there are and whichever ends first.

    Parameters
    ----------
    items : iterable
    task : callable
        Is given an item and the limit.
    limit : callable
        Returns the limit that what was yielded so far sets.
    servers : int

    Yields
    ------
    item
    result
    """
    if servers < THREADED_FROM or not tabled(servers):
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
            give_back()
    finally:
        # After an interruption what has not begun never does.
        pool.shutdown(cancel_futures=True)
