"""Work that must be undone, whatever ends it: errors, Ctrl-C, or a signal to stop."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_DEFAULTS: dict[int, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    **({signal.SIGHUP: signal.SIG_DFL} if hasattr(signal, "SIGHUP") else {}),
}


class _Ending:
    """A handler by which the first signal raises an exception, later when it is held."""

    def __init__(self) -> None:
        self.held = False
        self._came: int | None = None
        self._raised = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._came is None:
            self._came = number
        if not self.held:
            self.act()

    def act(self) -> None:
        """Raise what the first signal asks for, once."""
        if self._came is None or self._raised:
            return
        self._raised = True
        if self._came == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + self._came)


@contextmanager
def cleaned_up(clean: Callable[[], None]) -> Iterator[None]:
    """Call a function at the end of the block, also after Ctrl-C, SIGTERM and SIGHUP.

    The first of these raises `KeyboardInterrupt` in the block, or `SystemExit` with the status
    that a shell gives to the signal. Further ones are ignored, and one that comes while the
    function runs is acted upon after it. Outside the main thread, and where the program handles or
    ignores a signal itself, that is left as it is. Blocks may be nested.

    Parameters
    ----------
    clean : callable
    """
    main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in _DEFAULTS} if main else {}
    outer = [each for each in handlers.values() if isinstance(each, _Ending)]
    ending = outer[0] if outer else _Ending()
    was = ending.held
    ours = [number for number, each in handlers.items() if each == _DEFAULTS[number]]
    try:
        for number in ours:
            signal.signal(number, ending)
        try:
            yield
        finally:
            # A signal before this line raises here, and the clean-up below still takes place.
            ending.held = True
    finally:
        try:
            clean()
        finally:
            for number in ours:
                signal.signal(number, _DEFAULTS[number])
            ending.held = was
            if not was:
                ending.act()
