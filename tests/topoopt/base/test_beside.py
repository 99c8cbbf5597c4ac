"""Tasks beside their caller: all report one at a time, and an interruption ends all of them."""

from threading import Event

import pytest

from topoopt.base.progress import Progress
from topoopt.base.side_by_side import Beside

_MADE = Progress("stage", 1, 2, 0.5)


def test_tasks_give_what_they_return_and_hand_reports_on():
    seen = []
    with Beside(seen.append) as beside:
        tasks = [beside.start(lambda k=k: (beside.report(_MADE), k)[1]) for k in range(5)]
        beside.report(_MADE)
        assert [task.result() for task in tasks] == list(range(5))
    assert seen == [_MADE] * 6


def test_an_interruption_of_one_ends_the_others_at_their_next_report():
    def interrupted(made: Progress) -> None:
        raise KeyboardInterrupt

    reported = Event()

    def other() -> None:
        assert reported.wait()
        beside.report(_MADE)

    with Beside(interrupted) as beside:
        task = beside.start(other)
        with pytest.raises(KeyboardInterrupt):
            beside.report(_MADE)
        reported.set()
        with pytest.raises(KeyboardInterrupt):
            task.result()


def test_what_has_not_begun_when_the_caller_fails_never_does():
    begun, go = [], Event()

    def first() -> None:
        assert go.wait()
        with pytest.raises(KeyboardInterrupt):
            while True:
                beside.report(_MADE)

    with pytest.raises(ValueError, match="caller"), Beside(None) as beside:
        running = [beside.start(first) for _ in range(2)]
        waiting = beside.start(lambda: begun.append(1))
        go.set()
        raise ValueError("caller")
    assert waiting.cancelled() and not begun
    assert all(task.done() and task.exception() is None for task in running)
