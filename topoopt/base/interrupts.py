"""Ctrl-C during a search: acted upon between steps, or in the middle of a long simulation."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from topoopt.base.progress import Progress, ProgressCallback

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

T = TypeVar("T")

LOOK_S = 0.2
"""Seconds after which who waits for a kernel, or another process, looks for Ctrl-C."""


class _Held:
    """A handler that holds Ctrl-C back; a second one acts at once."""

    def __init__(self, everywhere: bool) -> None:
        self.everywhere = everywhere
        self.pressed = threading.Event()
        self.acted = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        # After the first, what is found is being put together: whoever presses again wants out.
        if self.acted or self.pressed.is_set():
            raise KeyboardInterrupt
        self.pressed.set()

    def act(self) -> None:
        """Raise `KeyboardInterrupt` if there was one."""
        if self.pressed.is_set():
            self.pressed.clear()
            self.acted = True
            raise KeyboardInterrupt


@contextmanager
def interrupts_between_steps(
    progress: ProgressCallback | None = None, *, everywhere: bool = False
) -> Iterator[ProgressCallback]:
    """Hold Ctrl-C back until the next progress report, which then raises `KeyboardInterrupt`.

    Python raises `KeyboardInterrupt` wherever it happens to be; on the way out of a compiled
    kernel that becomes a ``SystemError``, and in the middle of an update it would lose it. A
    second Ctrl-C acts at once, before the next report or after it. Nothing changes outside the
    main thread, or where the program has a handler of its own.

    Parameters
    ----------
    progress : callable, optional
        Called with every report.
    everywhere : bool
        Let Ctrl-C end a kernel that runs under `interruptible`, too: what does so must keep no
        state across its simulations.

    Yields
    ------
    callable
        To be given to the search in place of ``progress``.
    """
    held = _Held(everywhere)

    def report(made: Progress) -> None:
        if progress is not None:
            progress(made)
        held.act()

    before = signal.getsignal(signal.SIGINT)
    if isinstance(before, _Held):
        before.everywhere, everywhere = everywhere, before.everywhere
        try:
            yield report
        finally:
            before.everywhere = everywhere
        return
    ours = (
        threading.current_thread() is threading.main_thread()
        and before is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, held)
    try:
        yield report
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def interrupts_at_once() -> Iterator[None]:
    """Act on Ctrl-C at once while waiting for workers, whatever holds it back elsewhere.

    Raises
    ------
    KeyboardInterrupt
        In the main thread, on entry if `interrupts_between_steps` holds one back: until a worker
        has finished there is no report that would raise it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if isinstance(before, _Held):
            before.act()
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def hear_interrupt() -> None:
    """Act upon a Ctrl-C that `interrupts_between_steps` holds back, where no report is due soon.

    For long work that keeps no state, and whose callers keep none meanwhile.

    Raises
    ------
    KeyboardInterrupt
        In the main thread, if there was one.
    """
    held = signal.getsignal(signal.SIGINT)
    if isinstance(held, _Held) and threading.current_thread() is threading.main_thread():
        held.act()


def interruptible(run: "Callable[[npt.NDArray[np.int64]], T]", *, long: bool = True) -> T:
    """Run a kernel so that Ctrl-C is heard meanwhile.

    Parameters
    ----------
    run : callable
        Releases the interpreter, and returns soon after the number in the array that it is given
        is no longer zero.
    long : bool
        Whether it may take longer than Ctrl-C should wait; if not, it is simply called.

    Returns
    -------
    object
        What the call returned.

    Raises
    ------
    KeyboardInterrupt
        In the main thread, unless `interrupts_between_steps` keeps it for later.
    """
    # What only asks for help does without numpy.
    import numpy as np

    stop = np.zeros(1, dtype=np.int64)
    held = signal.getsignal(signal.SIGINT)
    waits = isinstance(held, _Held) and not held.everywhere
    if waits or not long or threading.current_thread() is not threading.main_thread():
        return run(stop)
    made: list[T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            made.append(run(stop))
        except BaseException as error:  # raised again below, in the thread that waits
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(LOOK_S)
            if isinstance(held, _Held):
                held.act()
    finally:
        stop[0] = 1
        thread.join()
    if failed:
        raise failed[0]
    return made[0]
