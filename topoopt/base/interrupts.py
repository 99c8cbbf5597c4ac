"""Ctrl-C during a search: acted upon between steps, never inside a compiled kernel."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from topoopt.base.progress import Progress, ProgressCallback


@contextmanager
def interrupts_between_steps(
    progress: ProgressCallback | None = None,
) -> Iterator[ProgressCallback]:
    """Hold Ctrl-C back until the next progress report, which then raises `KeyboardInterrupt`.

    Python raises `KeyboardInterrupt` wherever it happens to be; on the way out of a compiled
    kernel that becomes a ``SystemError``, and in the middle of an update it would lose it. A
    second Ctrl-C before the next report acts at once. Nothing changes outside the main thread,
    or where the program has a handler of its own.

    Parameters
    ----------
    progress : callable, optional
        Called with every report.

    Yields
    ------
    callable
        To be given to the search in place of ``progress``.
    """
    pressed = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    def report(made: Progress) -> None:
        if progress is not None:
            progress(made)
        if pressed.is_set():
            pressed.clear()
            raise KeyboardInterrupt

    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, handle)
    try:
        yield report
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
