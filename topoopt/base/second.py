"""A second process that makes some of the calls of a search.

Searches on few servers are mostly plain Python, of which one process runs one line at a time. What
such a call returns depends on its arguments alone, so no result tells which process made it.
"""

import importlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from queue import SimpleQueue
from typing import Any

from topoopt.base.interrupts import LOOK_S, hear_interrupt
from topoopt.base.processes import python_beside

# What pickle raises for what cannot be sent.
_UNSENDABLE = (pickle.PicklingError, AttributeError, TypeError, RecursionError)


class Task:
    """A call that either process makes, whichever comes to it first.

    Parameters
    ----------
    call : callable
        The function with the arguments that are known.
    latest : callable
        Returns further arguments, as they are when the call is made.
    shared : mapping
        What the second process has already.
    """

    def __init__(
        self,
        call: "partial[Any]",
        latest: Callable[[], Mapping[str, Any]],
        shared: Mapping[str, Any],
    ) -> None:
        self._call, self._latest, self._shared = call, latest, shared
        self._lock = threading.Lock()
        self._begun = False
        # Set once the second process has answered, or will not.
        self._over = threading.Event()
        self._answer: tuple[Any] | None = None

    @property
    def answered(self) -> bool:
        """Whether what the call returns is known."""
        return self._answer is not None

    def begin(self) -> bool:
        """Say whether nobody has begun the call; who asks has then."""
        with self._lock:
            first, self._begun = not self._begun, True
        return first

    def sent(self) -> "partial[Any]":
        """Return the call without what is shared."""
        return partial(self._call, **self._latest())

    def end(self, answer: tuple[Any] | None) -> None:
        """Take what the second process returned, unless it is known; None where it could not."""
        if not self._over.is_set():
            self._answer = answer
            self._over.set()

    def result(self, *, hear: bool = False) -> Any:
        """Return what the call returns, and make it unless the second process has begun it.

        Parameters
        ----------
        hear : bool
            Whether a Ctrl-C that is held back ends the wait.

        Returns
        -------
        object

        Raises
        ------
        Exception
            What the call raises.
        KeyboardInterrupt
            On Ctrl-C, if it is to be heard.
        """
        if not self._over.is_set() and not self.begin():
            while not self._over.wait(LOOK_S):
                if hear:
                    hear_interrupt()
        if self._answer is None:
            try:
                self._answer = (self.sent()(**self._shared),)
            finally:
                self._over.set()
        return self._answer[0]


class Second:
    """Calls that are shared with a second process; none is, before it is there.

    Parameters
    ----------
    shared : mapping
        Keyword arguments of every call; sent once.
    there : bool
        Whether there is, or will be, a second process.
    """

    def __init__(self, shared: Mapping[str, Any], *, there: bool = False) -> None:
        self.shared, self.there = shared, there
        self._first: deque[Task] = deque()
        self._spare: list[Task] = []
        self._more = threading.Condition()

    def start(self, function: Callable[..., Any], **arguments: Any) -> Task:
        """Let the second process make a call as soon as it can, before those that are shared.

        Parameters
        ----------
        function : callable
            At the top level of a module.
        **arguments
            Of this call, beside those that are shared.

        Returns
        -------
        Task
        """
        task = Task(partial(function, **arguments), dict, self.shared)
        if self.there:
            with self._more:
                self._first.append(task)
                self._more.notify()
        return task

    def share(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Mapping[str, Any]],
        latest: Callable[[], Mapping[str, Any]] = dict,
    ) -> list[Task]:
        """Let the second process make calls from the last one on.

        Whoever asks for the results from the first one on waits for one call at most.

        Parameters
        ----------
        function : callable
            At the top level of a module.
        arguments : sequence of mapping
            Of each call, beside those that are shared.
        latest : callable
            Returns further arguments, as they are when a call is made: nothing that is made of
            the results may depend on them.

        Returns
        -------
        list of Task
        """
        tasks = [Task(partial(function, **each), latest, self.shared) for each in arguments]
        if self.there:
            with self._more:
                self._spare += tasks
                self._more.notify()
        return tasks

    def following(self) -> Task | None:
        """Wait for a call that the second process may begin; None once there will be none."""
        with self._more:
            while self.there:
                while self._first or self._spare:
                    task = self._first.popleft() if self._first else self._spare.pop()
                    if task.begin():
                        return task
                self._more.wait()
        return None

    def starts(self, begin: Callable[[], None], after: float) -> bool:
        """Begin a process after some seconds; say whether it did, since calls are still made."""
        with self._more:
            self._more.wait_for(lambda: not self.there, after)
            if self.there:
                begin()
            return self.there

    def leave(self) -> None:
        """Give the second process no more calls."""
        with self._more:
            self.there = False
            self._more.notify()


# The process that was begun ahead, until one is wanted.
_AHEAD: ContextVar["list[subprocess.Popen[bytes]]"] = ContextVar("second process begun ahead")


@contextmanager
def begun_ahead(loads: str) -> Iterator[None]:
    """Start a second process, which loads what it needs, before it is known what to share.

    The first `second_process` of the block takes it. It ends with the block at the latest.

    Parameters
    ----------
    loads : str
        A module, whose function ``load`` the process calls first.

    Yields
    ------
    None
    """
    ahead = [python_beside(__name__, [loads], answers=True)]
    token = _AHEAD.set(ahead)
    try:
        yield
    finally:
        _AHEAD.reset(token)
        for unused in ahead:
            unused.kill()
            unused.communicate()


@contextmanager
def second_process(
    shared: Mapping[str, Any], *, wanted: bool = True, after: float = 0.0
) -> Iterator[Second]:
    """Share calls with a second process while a block runs.

    Parameters
    ----------
    shared : mapping
        Keyword arguments of every call.
    wanted : bool
        Whether one is started; without it all calls are made here.
    after : float
        Seconds for which none is started that was not begun ahead: what takes less is over before
        another process is ready.

    Yields
    ------
    Second

    Notes
    -----
    The process says nothing, leaves Ctrl-C to its parent, and ends with it or with the block.
    Where something cannot be sent, or it dies, calls are made here.
    """
    try:
        sent = pickle.dumps(shared) if wanted else b""
    except _UNSENDABLE:
        wanted = False
    if not wanted:
        yield Second(shared)
        return
    second, ahead = Second(shared, there=True), _AHEAD.get(None)
    others = [ahead.pop()] if ahead else []
    feeder = threading.Thread(target=_feed, args=(others, after, sent, second), daemon=True)
    feeder.start()
    try:
        yield second
    finally:
        second.leave()
        for other in others:
            other.kill()
        feeder.join()
        for other in others:
            other.communicate()


def _feed(
    others: "list[subprocess.Popen[bytes]]", after: float, shared: bytes, second: Second
) -> None:
    """Send calls to the second process, one at a time, as long as it answers."""
    task = None
    try:
        if not others and not second.starts(lambda: others.append(_begun()), after):
            return
        (other,) = others
        assert other.stdin is not None and other.stdout is not None
        other.stdin.write(shared)
        other.stdin.flush()
        pickle.load(other.stdout)
        while (task := second.following()) is not None:
            try:
                call = pickle.dumps(task.sent())
            except _UNSENDABLE:
                task.end(None)
                continue
            other.stdin.write(call)
            other.stdin.flush()
            task.end(pickle.load(other.stdout))
    except (OSError, EOFError, pickle.UnpicklingError):
        pass  # it died, or was ended
    finally:
        second.leave()
        if task is not None:
            task.end(None)


def _begun() -> "subprocess.Popen[bytes]":
    return python_beside(__name__, answers=True)


def _serve() -> None:
    """Make the calls that come, in order, until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What a library prints is no answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    calls: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_receive, args=(calls,), daemon=True).start()
    for module in sys.argv[1:]:
        importlib.import_module(module).load()
    shared = calls.get()
    _answer(answers, ())
    while True:
        call = calls.get()
        try:
            answer = (call(**shared),)
        except Exception:  # the other process makes the call again, and raises it there
            answer = None
        _answer(answers, answer)


def _answer(answers: Any, answer: object) -> None:
    pickle.dump(answer, answers)
    answers.flush()


def _receive(calls: "SimpleQueue[Any]") -> None:
    """Read calls; end the process where the input ends or holds what is unknown here."""
    try:
        while True:
            calls.put(pickle.load(sys.stdin.buffer))
    finally:
        os._exit(0)


if __name__ == "__main__":
    _serve()
