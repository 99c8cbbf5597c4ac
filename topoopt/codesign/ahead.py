"""A second process that compiles, in a first run, what the question needs later.

Compiling takes most of a first run, and one process compiles one kernel at a time. The two share
the cache of compiled kernels and its locks (`codesign_base.jit`), so each kernel is compiled once,
by whichever comes to it first, and is the same for both.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from codesign_base.jit import compiled_cache_is_warm, kernels_are_shared
from topoopt.base.processes import python_beside, usable_cores


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
    if (
        not kernels_are_shared()
        or usable_cores() < 2
        or compiled_cache_is_warm("fabric_*/packet_k*")
    ):
        yield
        return
    other = python_beside("topoopt.codesign.compile_late", ["layouts"] if layouts else [])
    try:
        yield
    finally:
        other.kill()
        other.communicate()
