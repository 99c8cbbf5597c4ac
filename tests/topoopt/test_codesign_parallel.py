"""Chains in threads give what chains in sequence give, and budgets can be replayed."""

import os
import time

import pytest

import topoopt as to
from topoopt import codesign
from topoopt.codesign import AlternatingSearch
from topoopt.search_types import Budget, Settings


def search():
    model = to.models.dlrm(
        tables=8, rows=100_000, dim=64, bottom_width=128, bottom_layers=2, top_width=256,
        top_layers=2, batch_per_gpu=16,
    )  # fmt: skip
    job, cluster = to.Job(model), to.Cluster(36, 4, "100Gbps")
    return AlternatingSearch(job.builder(36), cluster, 80e9, Settings(), seed=3)


def outcome(result):
    best = result.best
    return best.time, best.strategy, best.topology.rings, result.steps, result.work


def test_threads_do_not_change_the_result(monkeypatch):
    assert codesign._THREADED_SERVERS < 36
    side_by_side = outcome(search().run(Budget(steps=200)))
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    one_worker = outcome(search().run(Budget(steps=200)))
    monkeypatch.setattr(codesign, "_THREADED_SERVERS", 10**9)
    in_sequence = outcome(search().run(Budget(steps=200)))
    assert side_by_side == one_worker == in_sequence


@pytest.mark.parametrize("threaded", [0, 10**9])
def test_an_interrupt_in_any_chain_keeps_the_best_pair(monkeypatch, threaded):
    monkeypatch.setattr(codesign, "_THREADED_SERVERS", threaded)
    seen = []

    def interrupt(report):
        seen.append(report)
        if report.stage == "search" and report.done >= 70:
            raise KeyboardInterrupt

    result = search().run(Budget(steps=400), interrupt)
    assert result.interrupted and not result.converged
    assert 0 < result.steps < 400
    assert result.best.time <= min(report.best for report in seen if report.stage == "start")


def test_a_time_budget_discards_the_round_that_it_cuts_short(monkeypatch):
    # A clock of our own: the third round is cut short whatever the machine's speed.
    ticks = iter(range(10**9))
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(codesign, "_THREADED_SERVERS", 10**9)

    def advance(report):
        if report.stage == "search":
            next(ticks)
            now[0] += 1.0

    timed = search().run(Budget(seconds=400.0), advance)
    assert 0 < timed.steps <= 400
    again = search().run(Budget(steps=timed.steps))
    assert again.best.time == timed.best.time
    assert again.best.strategy == timed.best.strategy
