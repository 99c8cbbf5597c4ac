"""Python processes beside this one: how many are worth it, and how one is started."""

import os
import subprocess
import sys
from collections.abc import Sequence

THREAD_VARIABLES = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Environment variables that say how many threads libraries use."""
_GRANTING = THREAD_VARIABLES[:2]


def usable_cores() -> int:
    """Return the number of processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def granted_cores() -> int:
    """Return the processors that one search may keep busy.

    Returns
    -------
    int
        The usable ones, or as many as ``NUMBA_NUM_THREADS`` or ``OMP_NUM_THREADS`` say, if that is
        less: so workers share the cores.
    """
    given = [os.environ.get(name, "") for name in _GRANTING]
    return min([usable_cores(), *(int(each) for each in given if each.isdecimal())])


def python_beside(
    module: str, words: Sequence[str] = (), *, answers: bool = False
) -> subprocess.Popen[bytes]:
    """Start a module in another Python that says nothing and ends with its input.

    Parameters
    ----------
    module : str
        What is run, as by ``python -m``. It must end when its standard input does, which comes
        even if this process is killed, and leave Ctrl-C to this process.
    words : sequence of str
        Its arguments.
    answers : bool
        Whether its standard output is read here.

    Returns
    -------
    subprocess.Popen
        With pipes of bytes.
    """
    # It imports what this process does: a checkout in the working directory is another place, for
    # which numba would compile everything once more (hence -P, and this process's own path).
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if answers else subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
