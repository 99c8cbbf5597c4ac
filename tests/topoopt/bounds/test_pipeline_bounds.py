"""Bounds of pipelines never exceed the shortest time over all orders, by brute force."""

import itertools
import signal
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_oracle import Job, jobs_of, shortest
from small_transformers import gpt

import topoopt as to
from parallelism.accelerators import get_accelerator
from parallelism.device import Server
from parallelism.taskgraph import TaskGraph, TaskKind
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.attention import Attention
from parallelism.transformers.choices import Choices
from parallelism.transformers.experts import Experts
from parallelism.transformers.implementation import get_stack
from parallelism.transformers.schedules import build_schedule, schedule_of
from parallelism.transformers.timeline import PassTimes, timeline
from topoopt.base.interrupts import interrupts_between_steps
from topoopt.bounds import layouts
from topoopt.bounds.bounds import strategy_bound
from topoopt.bounds.everything import wirings_of
from topoopt.bounds.layouts import (
    fitting_bounds,
    layout_bound,
    least_bound,
    passes_bound,
    placement_bound,
    sending_bound,
    tightened_bound,
)


def every_order(jobs) -> float:
    """The least time over all permutations: each job as early as those before it let it."""
    best = float("inf")
    for order in itertools.permutations(range(len(jobs))):
        ends: dict[int, float] = {}
        free: dict[object, float] = {}
        for number in order:
            job = jobs[number]
            if any(one not in ends for one in job.before):
                break
            start = max((ends[one] for one in job.before), default=0.0) + job.wait
            start = max([start, *(free.get(each, 0.0) for each in job.resources)])
            ends[number] = start + job.length
            free.update(dict.fromkeys(job.resources, start + job.busy))
        else:
            best = min(best, max(ends.values()))
    return best


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_oracle_finds_what_all_permutations_find(seed) -> None:
    rng = np.random.default_rng(seed)
    jobs = []
    for number in range(6):
        busy = float(rng.integers(0, 5))
        used = frozenset(rng.choice(4, int(rng.integers(1, 3)), replace=False).tolist())
        before = tuple(one for one in range(number) if rng.random() < 0.25)
        jobs.append(Job(float(rng.integers(0, 2)), busy, busy + rng.integers(0, 2), used, before))
    assert shortest(jobs) == (every_order(jobs), True)


def pipeline(rng, stages, batches):
    """Return the times of a pipeline's passes and sends, and its task graph without orders."""
    forward, backward = rng.integers(1, 6, (2, stages)).astype(float)
    sends = rng.integers(0, 5, stages - 1).astype(float)
    tasks: list[tuple[TaskKind, int, int, float, float]] = []
    edges = []
    for _ in range(batches):
        last = None
        way = [*((s, 1) for s in range(stages)), *((s, -1) for s in reversed(range(stages)))]
        for stage, step in way:
            size = (forward if step > 0 else backward)[stage]
            tasks.append((TaskKind.COMPUTE, stage, -1, float(size), 0.0))
            if last is not None:
                edges.append((last, len(tasks) - 1))
            last = len(tasks) - 1
            to_stage = stage + step
            if 0 <= to_stage < stages:
                sent = float(sends[min(stage, to_stage)])
                if sent > 0.0:
                    tasks.append((TaskKind.TRANSFER, stage, to_stage, sent, 0.0))
                    edges.append((last, len(tasks) - 1))
                    last = len(tasks) - 1
    return forward, backward, sends, TaskGraph.from_lists(stages, tasks, edges)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 3), st.integers(1, 3))
def test_no_order_of_passes_and_messages_beats_the_bound(seed, stages, batches) -> None:
    rng = np.random.default_rng(seed)
    forward, backward, sends, tasks = pipeline(rng, stages, batches)
    lag = float(rng.integers(0, 2))
    least, whole = shortest(jobs_of(tasks, 3.0, lag))
    found = strategy_bound(tasks, 3, 1.0, lag)
    assert found.seconds <= least
    assert found.terms["chain"] >= (forward + backward).sum()
    if whole and not sends.any():
        # Any schedule is one of the orders; with one stage's work on all, none is idle less.
        for name in ("gpipe", "1f1b"):
            none = np.zeros(stages)
            times = PassTimes(forward, backward, none, none, none)
            schedule = build_schedule(name, stages, batches)
            assert timeline(schedule, times).makespan >= least - 1e-9
        assert max(forward + backward) * batches <= least


SERVER = Server(get_accelerator("h100"), 2, 150e9)
MIXTURE = Transformer(
    "mixture", 4, 256, Attention(4, 4, 64), 512, 500, 512, gated=True, experts=Experts(4, 2, 512),
)  # fmt: skip
ALL = Choices(
    tensor=(1, 2), context=(1,), microbatch=(1,), pipeline=(2, 4), recompute=("none",),
    zero=(0, 1), virtual_stages=(2,),
    schedules=(
        "gpipe", "1f1b", "eager-1f1b", "interleaved", "breadth-first", "zero-bubble",
        "zero-bubble-v",
    ),
)  # fmt: skip
# Ports slow enough that messages, not passes, decide.
CLUSTERS = [to.Cluster(4, 3, "100Gbps"), to.Cluster(4, 3, "1Gbps")]
JOBS = [
    to.Job(model, global_batch=4, server=SERVER, choices=ALL, implementation=get_stack(stack))
    for model, stack in ((gpt(4, 256, 4, 500), "megatron-core"), (gpt(4, 256, 4, 500), "nemo"),
                         (MIXTURE, "megatron-core"), (MIXTURE, "deepseek-v3"),
                         (replace(gpt(4, 256, 4, 500), parallel=True), "megatron-core"))
]  # fmt: skip
FAMILIES = [job.family(4) for job in JOBS]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 4), st.integers(0, 10**6), st.integers(0, 10**6), st.booleans())
def test_no_order_of_messages_beats_a_layout_s_bounds(which, number, turn, slow) -> None:
    family = FAMILIES[which]
    layouts = family.layouts()
    layout = layouts[number % len(layouts)]
    placements = family.placements(layout)
    placement = placements[turn % len(placements)]
    wirings = wirings_of(family, CLUSTERS[slow])
    tasks = family.build(placement)
    rate = wirings.degree * wirings.bandwidth
    least, _ = shortest(jobs_of(tasks, rate, wirings.lag), nodes=300)
    loose = layout_bound(family, wirings, layout)
    bounds = [
        passes_bound(family, layout, schedule_of(layout, family.batch)),
        loose,
        tightened_bound(family, wirings, layout, loose)[0],
        strategy_bound(tasks, wirings.degree, wirings.bandwidth, wirings.lag),
        placement_bound(family, wirings, placement) or loose,
        sending_bound(family, wirings, placement),
    ]
    for bound in bounds:
        assert 0.0 < bound.seconds <= least


a_dense_and_a_mixed_model = pytest.mark.parametrize(
    "which", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 4)), 3]
)


@a_dense_and_a_mixed_model
def test_the_layouts_that_are_drawn_have_messages_between_servers(which) -> None:
    schedules = {layout.schedule for layout in FAMILIES[which].layouts()}
    assert {"gpipe", "1f1b", "zero-bubble", "zero-bubble-v"} <= schedules
    some = [
        FAMILIES[which].build(FAMILIES[which].placements(layout)[0])
        for layout in FAMILIES[which].layouts()
    ]
    assert max((tasks.kind == TaskKind.TRANSFER).sum() for tasks in some) > 4


@a_dense_and_a_mixed_model
def test_the_bound_over_all_layouts_counts_what_servers_send(monkeypatch, which) -> None:
    """Also of the layouts for whose task graphs no work is left."""
    family, wirings = FAMILIES[which], wirings_of(FAMILIES[which], CLUSTERS[1])
    bounded = fitting_bounds(family)
    monkeypatch.setattr("topoopt.bounds.layouts._WORK", 2e5)
    counted = [
        max(
            layout_bound(family, wirings, each.layout).seconds,
            min(
                sending_bound(family, wirings, placement).seconds
                for placement in family.placements(each.layout)
            ),
        )
        for each in bounded
    ]
    assert least_bound(family, wirings, bounded).seconds >= min(counted)
    passes = [layout_bound(family, wirings, each.layout).seconds for each in bounded]
    assert min(counted) > 1.02 * min(passes)


@pytest.mark.parametrize("step", ["layout_bound", "sending_bound", "strategy_bound"])
def test_an_interrupt_ends_the_bound_of_all_layouts(monkeypatch, step) -> None:
    family = to.Job(gpt(8, 1024, 8), server=to.Server(gpus=2), global_batch=16).family(4)
    wirings = wirings_of(family, to.Cluster(4, 2, "25Gbps"))
    bounded = fitting_bounds(family)
    whole, calls = getattr(layouts, step), []

    def interrupted(*given, **more):
        calls.append(given)
        if len(calls) == 1:
            signal.raise_signal(signal.SIGINT)
        return whole(*given, **more)

    monkeypatch.setattr(layouts, step, interrupted)
    with interrupts_between_steps(), pytest.raises(KeyboardInterrupt):
        least_bound(family, wirings, bounded)
    assert len(calls) <= 6, "no more than the orders of one layout's axes"
