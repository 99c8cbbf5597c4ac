"""Ctrl-C inside long kernels: heard where that is asked, kept for later elsewhere."""

import signal
import threading
import time

import pytest

from topoopt.base.interrupts import hear_interrupt, interruptible, interrupts_between_steps


@pytest.mark.parametrize("everywhere", [False, True])
def test_interrupts_end_long_kernels_where_that_is_asked(everywhere):
    told = []

    def kernel(stop):
        signal.raise_signal(signal.SIGINT)
        for _ in range(2000 if everywhere else 50):
            if stop[0]:
                told.append(True)
                break
            time.sleep(0.01)
        return "done"

    with interrupts_between_steps(everywhere=everywhere) as report:
        if everywhere:
            with pytest.raises(KeyboardInterrupt):
                interruptible(kernel)
        else:
            assert interruptible(kernel) == "done"
            with pytest.raises(KeyboardInterrupt):
                report(None)
    assert bool(told) is everywhere
    with pytest.raises(KeyboardInterrupt):
        interruptible(kernel)  # nobody holds it back


@pytest.mark.parametrize("everywhere", [False, True])
def test_held_interrupts_are_heard_where_no_report_is_due(everywhere):
    hear_interrupt()
    with interrupts_between_steps(everywhere=everywhere):
        hear_interrupt()
        signal.raise_signal(signal.SIGINT)
        elsewhere = threading.Thread(target=hear_interrupt)
        elsewhere.start()
        elsewhere.join()
        with pytest.raises(KeyboardInterrupt):
            hear_interrupt()
        hear_interrupt()


def test_errors_of_kernels_are_raised_where_they_are_waited_for():
    def kernel(stop):
        raise ValueError("odd")

    with pytest.raises(ValueError, match="odd"):
        interruptible(kernel)
