"""Worker processes of a search: started afresh, given the space once, ended with their parent."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from topoopt.bandwidth.chunks import Chunk, Found, SearchSpace, Tally, solve_chunk

_SPACE: list[SearchSpace] = []  # of a worker process, set once before its first chunk


class Workers:
    """Processes that solve chunks of one search.

    Parameters
    ----------
    space : SearchSpace
    jobs : int
    """

    def __init__(self, space: SearchSpace, jobs: int) -> None:
        self._others = set(multiprocessing.active_children())
        self._pool = ProcessPoolExecutor(
            jobs,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(space,),
        )

    def solve(self, chunks: Sequence[Chunk]) -> Iterator[tuple[list[Found], Tally]]:
        """Yield the answers of chunks in their order."""
        return self._pool.map(_solve, chunks)

    def end(self, at_once: bool = False) -> None:
        """End the processes, without finishing their chunks if need be."""
        if not at_once:
            self._pool.shutdown()
            return
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            if process not in self._others:
                process.terminate()
                process.join()


def _begin(space: SearchSpace) -> None:
    # Ctrl-C reaches the whole process group; the parent decides what comes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _SPACE.append(space)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _solve(chunk: Chunk) -> tuple[list[Found], Tally]:
    return solve_chunk(_SPACE[0], chunk)
