"""A second process that compiles, in a first run, what the question needs later.

Compiling takes most of a first run, and one process compiles one kernel at a time. The two share
the cache of compiled kernels and its locks (`codesign_base.jit`), so each kernel is compiled once,
by whichever comes to it first, and is the same for both.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from codesign_base.jit import compiled_cache_is_warm, kernels_are_shared


@contextmanager
def compiling_ahead(layouts: bool = False) -> Iterator[None]:
    """Compile the kernels that searches need late in a second process, if there are none yet.

    Parameters
    ----------
    layouts : bool
        Whether the search is of layouts, which need no packet trains; these come last then.

    Yields
    ------
    None

    Notes
    -----
    Nothing is started where kernels of packet trains were compiled before, the cache cannot be
    kept, or there is one core. The process says nothing, leaves Ctrl-C to its parent, and ends
    with it or with the block.
    """
    if not kernels_are_shared() or _cores() < 2 or compiled_cache_is_warm("fabric_*/packet_k*"):
        yield
        return
    # It imports what this process does: a checkout in the working directory is another place, for
    # which numba would compile everything once more (hence -P, and this process's own path).
    # It waits for the end of its input, which comes even if this process is killed.
    other = subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "topoopt.codesign.compile_late"),
            *(["layouts"] if layouts else []),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        other.kill()
        other.communicate()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
