"""The hop bound, of which most moments are ruled out uncounted, against all of them counted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parallelism.taskgraph import TaskGraph, TaskKind
from topoopt.bounds import bounds
from topoopt.bounds.critical import Span


def every_moment(tasks, span, degree, bandwidth):
    sent = np.flatnonzero(tasks.kind != TaskKind.COMPUTE)
    best = 0.0
    for begin, follow in ((span.early, span.late), (span.late, span.early)):
        moments = np.unique(begin[sent])
        picked = np.linspace(0, moments.size - 1, bounds._MOMENTS).round().astype(int)
        for moment in moments[np.unique(picked)]:
            chosen = sent[begin[sent] >= moment]
            hops = bounds._task_hops(tasks, chosen, degree)
            after = follow[chosen].min()
            best = max(best, moment + hops / (tasks.servers * degree * bandwidth) + after)
    return best


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 9), st.integers(1, 3), st.integers(1, 40))
def test_no_moment_that_counts_is_left_out(seed, servers, degree, count):
    rng = np.random.default_rng(seed)
    groups = (tuple(range(servers)), (0, servers - 1))
    kinds = [TaskKind.COMPUTE, TaskKind.TRANSFER, TaskKind.ALLREDUCE, TaskKind.ALL_GATHER]
    rows = []
    for _ in range(count):
        kind = kinds[rng.integers(4)]
        first, second = rng.choice(servers, 2, replace=False).tolist()
        if kind >= TaskKind.ALLREDUCE:
            first, second = int(rng.integers(2)), -1
        rows.append((kind, first, second if kind == TaskKind.TRANSFER else -1, rng.random(), 0.0))
    tasks = TaskGraph.from_lists(servers, rows, [(0, 0)][:0], groups)
    if not (tasks.kind != TaskKind.COMPUTE).any():
        return
    span = Span(rng.integers(0, 9, count) / 4.0, rng.integers(0, 9, count) / 4.0, 0.0)
    expected = every_moment(tasks, span, degree, 0.5)
    assert bounds._hop_end(tasks, span, degree, 0.5) == pytest.approx(expected, rel=1e-12)
