"""Clean-up takes place whatever ends the block, once and whole."""

import signal
import threading

import pytest

from topoopt.base.clean_up import cleaned_up

_NUMBERS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def handlers():
    return [signal.getsignal(number) for number in _NUMBERS]


@pytest.mark.parametrize("number", _NUMBERS)
def test_a_signal_in_the_block_ends_it_and_cleans_up(number):
    before = handlers()
    done = []
    with (
        pytest.raises((KeyboardInterrupt, SystemExit)) as caught,
        cleaned_up(lambda: done.append("cleaned")),
    ):
        signal.raise_signal(number)
        done.append("went on")
    assert done == ["cleaned"]
    if number == signal.SIGINT:
        assert caught.type is KeyboardInterrupt
    else:
        assert caught.value.code == 128 + number
    assert handlers() == before


def test_a_signal_while_cleaning_up_waits_until_all_is_clean():
    done = []

    def clean():
        signal.raise_signal(signal.SIGTERM)
        done.append("cleaned")

    with pytest.raises(SystemExit, match="143"), cleaned_up(clean):
        done.append("whole block")
    assert done == ["whole block", "cleaned"]


def test_a_second_signal_does_not_stop_the_clean_up_of_the_first():
    done = []

    def clean():
        signal.raise_signal(signal.SIGINT)
        done.append("cleaned")

    with pytest.raises(KeyboardInterrupt), cleaned_up(clean):
        signal.raise_signal(signal.SIGINT)
    assert done == ["cleaned"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_blocks_are_cleaned_up_from_the_inside_out():
    done = []

    def clean():
        signal.raise_signal(signal.SIGINT)
        done.append("inner")

    with pytest.raises(KeyboardInterrupt), cleaned_up(lambda: done.append("outer")):
        with cleaned_up(clean):
            pass
        done.append("between")
    assert done == ["inner", "outer"]


def test_an_error_cleans_up_and_stays():
    done = []
    with pytest.raises(ValueError, match="broken"), cleaned_up(lambda: done.append("cleaned")):
        raise ValueError("broken")
    assert done == ["cleaned"]


def test_signals_that_a_program_ignores_stay_ignored():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        done = []
        with cleaned_up(lambda: done.append("cleaned")):
            signal.raise_signal(signal.SIGTERM)
            done.append("went on")
        assert done == ["went on", "cleaned"]
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_other_threads_clean_up_and_leave_handlers_alone():
    before = handlers()
    done = []

    def work():
        with cleaned_up(lambda: done.append("cleaned")):
            done.append(handlers() == before)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True, "cleaned"]
