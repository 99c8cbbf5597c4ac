"""A second process: whoever makes a call, its result is the same."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import shared_calls as calls

from topoopt.base import second as second_module
from topoopt.base.interrupts import interrupts_between_steps
from topoopt.base.second import Second, begun_ahead, second_process


@pytest.fixture(params=[False, True], ids=["alone", "two"])
def second(request):
    with second_process({"factor": 3}, wanted=request.param) as made:
        assert made.there == request.param
        yield made


def there(second):
    """Wait until the second process makes calls; return its number."""
    task = second.start(calls.process)
    while not task._over.wait(0.01):
        assert second.there
    return task.result()


def sent(task):
    """Wait until the second process has begun a call."""
    while not task._begun:
        time.sleep(0.001)
    return task


def test_results_come_in_order_whoever_makes_the_calls(second):
    first = second.start(calls.multiplied, value=7)
    tasks = second.share(calls.multiplied, [{"value": value} for value in range(50)])
    assert [task.result() for task in tasks] == [3 * value for value in range(50)]
    assert first.result() == 21 and first.result() == 21


def test_the_second_process_makes_what_is_started_and_this_one_what_it_asks_for():
    with second_process({"factor": 3}) as second:
        other = there(second)
        assert other != os.getpid()
    assert second.start(calls.process).result() == os.getpid()


def test_the_second_process_begins_with_the_last(tmp_path):
    with second_process({"factor": 3}) as second:
        there(second)
        hold = sent(second.start(calls.waiting_for, path=str(tmp_path / "go")))
        tasks = second.share(calls.process, [{} for _ in range(4)])
        assert tasks[0].result() == os.getpid()
        (tmp_path / "go").touch()
        other = hold.result()
        while not tasks[1]._over.wait(0.01):
            pass
        assert [task.result() for task in tasks[1:]] == [other] * 3


def test_what_is_known_late_is_asked_for_when_a_call_is_made():
    known = {"added": 1}
    tasks = Second({"factor": 3}).share(
        calls.multiplied, [{"value": 1}, {"value": 2}], lambda: known
    )
    assert tasks[0].result() == 4
    known["added"] = 10
    assert tasks[1].result() == 16


def test_what_a_library_prints_is_no_answer(second):
    assert second.start(calls.noisy, value=2).result() == 6


def test_errors_are_raised_here(second, tmp_path):
    if second.there:
        there(second)
    task = second.start(calls.failing, where=str(tmp_path))
    for _ in range(2):  # whoever asks again makes it again
        with pytest.raises(ValueError, match="as ever"):
            task.result()
    assert str(os.getpid()) in {path.name for path in tmp_path.iterdir()}
    assert second.start(calls.multiplied, value=2).result() == 6


def test_a_process_that_dies_leaves_its_calls_here():
    with second_process({"factor": 3}) as second:
        there(second)
        task = sent(second.start(calls.dying, here=os.getpid()))
        tasks = second.share(calls.process, [{}, {}])
        assert task.result() == 3
        assert [task.result() for task in tasks] == [os.getpid()] * 2
        assert not second.there


@pytest.mark.parametrize("argument", [lambda: 0, threading.Lock()])
def test_what_cannot_be_sent_stays_here(argument):
    with second_process({"factor": 3}) as second:
        there(second)
        task = second.start(lambda factor, value: (os.getpid(), value), value=argument)
        assert task.result() == (os.getpid(), argument)
        assert second.start(calls.nothing_to_send).result()() == 3
    with second_process({"factor": argument}) as second:
        assert not second.there
        assert second.start(calls.process).result() == os.getpid()


def test_the_process_ends_with_the_block(tmp_path):
    with pytest.raises(RuntimeError), second_process({"factor": 3}) as second:
        other = there(second)
        sent(second.start(calls.waiting_for, path=str(tmp_path / "never")))
        raise RuntimeError
    with pytest.raises(ProcessLookupError):
        os.kill(other, 0)


def test_an_interrupt_ends_the_wait_and_leaves_the_second_process_alone(tmp_path):
    with second_process({"factor": 3}) as second, interrupts_between_steps():
        there(second)
        task = sent(second.start(calls.waiting_for, path=str(tmp_path / "go")))
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            task.result(hear=True)
        (tmp_path / "go").touch()
        assert task.result() != os.getpid()


SCRIPT = """
import os
from topoopt.base.second import second_process
import shared_calls as calls
with second_process({"factor": 3}) as second:
    task = second.start(calls.process)
    while not task._over.wait(0.01):
        assert second.there
    print(task.result() != os.getpid())
"""


def test_a_script_needs_no_guard_for_it(tmp_path):
    """As `multiprocessing` would: the script is not run again in the second process."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    path = os.pathsep.join(map(os.path.abspath, sys.path))
    answer = subprocess.run(
        [sys.executable, script], env={**os.environ, "PYTHONPATH": path}, text=True,
        capture_output=True, check=True,
    )  # fmt: skip
    assert answer.stdout == "True\n"


def answer(second, call):
    """Return what the second process returns."""
    task = second.start(call)
    assert task._over.wait(60)
    return task.result()


def test_a_process_that_was_begun_ahead_is_taken_once():
    with begun_ahead("shared_calls"):
        with second_process({"factor": 3}) as second:
            other = there(second)
            assert answer(second, calls.loaded) == [other]
        with second_process({"factor": 3}) as second:
            assert there(second) != other
            assert answer(second, calls.loaded) == []


def test_a_process_that_nobody_takes_ends_with_the_block():
    with begun_ahead("shared_calls"):
        (unused,) = second_module._AHEAD.get()
        with second_process({"factor": 3}, wanted=False) as second:
            assert not second.there
        assert unused.poll() is None
    assert unused.returncode is not None and second_module._AHEAD.get(None) is None


def test_none_is_started_for_what_is_over_before(monkeypatch):
    started = []
    monkeypatch.setattr(second_module, "python_beside", lambda *_, **__: started.append(1))
    with second_process({"factor": 3}, after=3600.0) as second:
        assert second.start(calls.process).result() == os.getpid()
    assert not started
    monkeypatch.undo()
    with begun_ahead("shared_calls"), second_process({"factor": 3}, after=3600.0) as second:
        assert there(second) != os.getpid()  # it was begun already


def test_calls_are_made_here_where_none_can_be_started(monkeypatch):
    def refused(*_, **__):
        raise OSError

    monkeypatch.setattr(second_module, "python_beside", refused)
    with second_process({"factor": 3}) as second:
        assert second.following() is None  # once it is known
        assert second.start(calls.process).result() == os.getpid()
