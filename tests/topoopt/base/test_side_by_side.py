"""Two at a time: in order, with the limit from before both, whichever ends first."""

import os
import threading

import pytest

from topoopt.base.side_by_side import THREADED_FROM, in_twos


def least_so_far(servers, task):
    """Return what each of five items was told, and gave; the limit is the least result so far."""
    results = []
    limits = {}

    def told(item, limit):
        limits[item] = limit
        return task(item)

    for item, result in in_twos([9, 7, 8, 3, 5], told, lambda: min(results, default=99), servers):
        results.append(result)
        assert item == result
    return limits, results


def test_small_jobs_go_one_after_the_other():
    limits, results = least_so_far(THREADED_FROM - 1, lambda item: item)
    assert results == [9, 7, 8, 3, 5]
    assert limits == {9: 99, 7: 9, 8: 7, 3: 7, 5: 3}


@pytest.mark.parametrize("cores", [1, 2])
def test_both_of_two_know_the_limit_from_before_them(monkeypatch, cores):
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    limits, results = least_so_far(THREADED_FROM, lambda item: item)
    assert results == [9, 7, 8, 3, 5]
    assert limits == {9: 99, 7: 99, 8: 7, 3: 7, 5: 3}


def test_the_second_may_end_first(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    ended = threading.Event()

    def second_first(item):
        if item in (9, 8):
            assert ended.wait(30)
            ended.clear()
        elif item in (7, 3):
            ended.set()
        return item

    assert least_so_far(THREADED_FROM, second_first)[1] == [9, 7, 8, 3, 5]


@pytest.mark.parametrize("servers", [2, THREADED_FROM])
def test_an_error_of_either_reaches_the_caller(servers):
    def fails(item):
        if item == 7:
            raise KeyboardInterrupt
        return item

    with pytest.raises(KeyboardInterrupt):
        least_so_far(servers, fails)
