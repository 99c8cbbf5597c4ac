"""A second process that begins while the question is still read.

In a first run it compiles what the question needs later. Compiling takes most of such a run, and
one process compiles one kernel at a time. The two share the cache of compiled kernels and its
locks (`codesign_base.jit`), so each kernel is compiled once, by whichever comes to it first, and
is the same for both. In later runs it loads what a search by two processes needs.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from codesign_base.jit import compiled_cache_is_warm, kernels_are_shared
from topoopt.base.processes import granted_cores, python_beside, usable_cores
from topoopt.base.second import begun_ahead
from topoopt.base.side_by_side import THREADED_FROM


@contextmanager
def beginning_ahead(layouts: bool = False, servers: int = 0) -> Iterator[None]:
    """Let a second process compile kernels that searches need late, or else load them.

    Parameters
    ----------
    layouts : bool
        Whether the search is of layouts, which need no packet trains; these come last then.
    servers : int
        Of the cluster; 0 where it is one of many.

    Yields
    ------
    None

    Notes
    -----
    Nothing is started where the cache cannot be kept, or there is one core; nor, where kernels of
    packet trains were compiled before, if the search is not by two processes. The process says
    nothing, leaves Ctrl-C to its parent, and ends with it or with the block.
    """
    if not kernels_are_shared() or usable_cores() < 2:
        yield
    elif compiled_cache_is_warm("fabric_*/packet_k*"):
        if layouts or granted_cores() < 2 or not 1 < servers < THREADED_FROM:
            yield
        else:
            with begun_ahead("topoopt.search.load_early"):
                yield
    else:
        other = python_beside("topoopt.codesign.compile_late", ["layouts"] if layouts else [])
        try:
            yield
        finally:
            other.kill()
            other.communicate()
