"""Task graphs under construction: dependencies, repetitions, and sizes known beforehand."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_transformers import MIXTRAL, gpt

import topoopt as to
from parallelism.transformers import family as family_module
from parallelism.transformers import placed_tasks
from parallelism.transformers.implementation import MEGATRON_CORE, get_stack
from parallelism.transformers.layout import Layout
from parallelism.transformers.load import load_transformer
from parallelism.transformers.pass_order import Shared, pass_order
from parallelism.transformers.placed_tasks import iteration_tasks
from parallelism.transformers.placement import AXES, Placement, axis_orders
from parallelism.transformers.reduced import reduced_tasks
from parallelism.transformers.schedules import PassKind, build_schedule, schedule_of
from parallelism.transformers.shape import whole_shape
from parallelism.transformers.sizes import (
    REDUCED_FROM,
    exchange_pairs,
    expected_bytes,
    expected_tasks,
)
from parallelism.transformers.task_list_kernels import successor_lists
from parallelism.transformers.training import Training
from topoopt.problem.job import Job, nvlink_server

HYBRID = load_transformer("qwen3-next-80b-a3b")  # exchanges heads, and has experts
MODELS = (gpt(8, 1024, 16, 5000), MIXTRAL, load_transformer("gemma3-27b"), HYBRID)
CHUNKS = {
    "gpipe": 1, "1f1b": 1, "zero-bubble": 1, "interleaved": 2, "breadth-first": 2,
    "zero-bubble-v": 2,
}  # fmt: skip
COLUMNS = (
    "kind", "first", "second", "size", "delay", "operator", "phase", "part", "successor_offsets",
    "successors", "predecessors", "server_of_device",
)  # fmt: skip
STACKS = ("megatron-core", "nemo", "megatron-2022", "megatron-overlap", "fsdp1")


@settings(deadline=None)
@given(st.integers(1, 12).flatmap(lambda n: st.tuples(
    st.just(n), st.lists(st.tuples(st.integers(-1, n - 1), st.integers(0, n - 1)))
)))  # fmt: skip
def test_dependencies_are_sorted_and_each_is_kept_once(case):
    tasks, edges = case
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
    offsets, successors = successor_lists(pairs[:, 0].copy(), pairs[:, 1].copy(), tasks)
    for task in range(tasks):
        expected = sorted({after for before, after in edges if before == task})
        assert successors[offsets[task] : offsets[task + 1]].tolist() == expected
    assert offsets[-1] == successors.size


# On one stage a pass may wait for two of one sort that are the same only elsewhere.
@pytest.mark.parametrize(
    ("schedule", "stages", "chunks"),
    [*((name, 4, count) for name, count in CHUNKS.items()), ("breadth-first", 1, 4)],
)
@pytest.mark.parametrize("zero", range(4))
@pytest.mark.parametrize("some", [False, True])
def test_passes_repeat_the_first_after_the_same_sorts(schedule, stages, chunks, zero, some):
    parts = range(stages * chunks)
    shared = tuple(Shared(not some or p % 2 > 0, True, not some or p % 3 > 0) for p in parts)
    order = pass_order(build_schedule(schedule, stages, 8, chunks), zero, shared)
    made = list(zip(order.kind.tolist(), order.part.tolist(), strict=True))
    scatters = PassKind.WEIGHT if order.kind.max() == PassKind.WEIGHT else PassKind.BACKWARD

    def sort(number: int) -> object:
        return made[number] if number >= 0 and order.alike[number] else number

    first: dict[object, int] = {}
    # Of each stage the last pass that gathered weights, and that summed gradients of both kinds.
    last: dict[tuple[int, str], int] = {}
    for number, template in enumerate(order.template.tolist()):
        (kind, part), stage = made[number], int(order.stage[number])
        uses, sums = bool(order.uses[number]), bool(order.scatters[number])
        states = shared[part]
        assert sums == (order.last[number] or (zero > 1 and kind == scatters))
        origins = [int(each[number]) for each in (order.before, order.sender, order.earlier)]
        for name, own in (
            ("gathered", uses), ("dense", sums and states.dense), ("expert", sums and states.expert)
        ):  # fmt: skip
            origins.append(last.get((stage, name), -1) if own else -1)
            assert origins[-1] == getattr(order, name)[number]
            if own and (name != "gathered" or states.weights):
                last[stage, name] = number
        same = tuple(a == b for a in origins for b in origins)
        key = (made[number], *map(sort, origins), same) if order.alike[number] else number
        assert template == first.setdefault(key, number)
        assert order.alike[number] == (not order.last[number] and (not uses or zero == 3))
    assert len(first) < len(made)


@pytest.mark.parametrize("order", [AXES, ("data", "context", "pipeline"), ("pipeline", *AXES[:2])])
@pytest.mark.parametrize("expert", [2, 4, 8])
def test_pairs_of_servers_that_exchange_tokens_are_counted(order, expert):
    layout = Layout(tensor=2, data=16, pipeline=2, expert=expert)
    placement = Placement(layout, 4, order)
    pairs = sum(over.source.size for over in whole_shape(placement).tokens)
    assert exchange_pairs(placement) == pairs


def drawn(seed):
    """Return a placed layout of some job on servers of 4 GPUs, and its family and schedule."""
    draw = Random(seed)
    while True:
        model, degrees = draw.choice(MODELS), (1, 2, 4, 8)
        name = draw.choice(tuple(CHUNKS))
        try:
            layout = Layout(
                tensor=draw.choice(degrees), context=draw.choice(degrees[:3]),
                data=draw.choice((*degrees, 16)), pipeline=draw.choice(degrees[:3]),
                expert=draw.choice(degrees) if model.experts else 1, zero=draw.choice((0, 1, 2, 3)),
                schedule=name, virtual_stages=CHUNKS[name], replicate=draw.choice((1, 1, 2)),
                sequence_parallel=draw.choice((True, False)),
            )  # fmt: skip
            batch = layout.data * draw.choice(degrees)
            placement = Placement(layout, 4, draw.choice(axis_orders(layout)))
            job = Job(
                model, server=nvlink_server("h100", 4), global_batch=batch, sequence=2048,
                implementation=get_stack(draw.choice(STACKS)),
            )  # fmt: skip
            family, schedule = job.family(placement.servers), schedule_of(layout, batch)
            family.training(layout)
            return family, placement, schedule
        except to.InputError:  # degrees that do not go together
            continue


def placed(draw, schedule, zero):
    """Return a placed layout of a pipeline, its schedule, and what it asks for."""
    while True:
        model, degrees = draw.choice(MODELS), (1, 2, 4)
        try:
            layout = Layout(
                tensor=draw.choice(degrees), context=draw.choice((1, 2)),
                data=draw.choice((2, 4, 8)), pipeline=draw.choice((1, 2, 3, 4, 6)),
                expert=draw.choice(degrees) if model.experts else 1, zero=zero, schedule=schedule,
                virtual_stages=CHUNKS[schedule], replicate=draw.choice((1, 1, 2)),
                recompute=draw.choice(("none", "full")),
            )  # fmt: skip
            batch = layout.data * draw.choice((4, 6, 12, 24))
            placement = Placement(layout, 4, draw.choice(axis_orders(layout)))
            job = Job(
                model, server=nvlink_server("h100", 4), global_batch=batch, sequence=2048,
                implementation=get_stack(draw.choice(STACKS)),
            )  # fmt: skip
            return (
                placement,
                schedule_of(layout, batch),
                job.family(placement.servers).loads(placement),
            )
        except to.InputError:  # degrees that do not go together
            continue


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("schedule", CHUNKS)
@pytest.mark.parametrize("zero", range(4))
def test_repetitions_are_what_their_passes_would_be_task_by_task(seed, schedule, zero, monkeypatch):
    draw = Random(f"{seed} {schedule} {zero}")
    placement, passes, loads = placed(draw, schedule, zero)

    def some(counts):
        return tuple(
            replace(each, dense=each.dense * (draw.random() < 0.7), expert=each.expert * number)
            for each, number in zip(counts, draw.choices((0, 1, 1), k=len(counts)), strict=True)
        )

    builds = [iteration_tasks, reduced_tasks]
    if seed % 3 == 1:  # parts that share some states only
        builds = [iteration_tasks]
        loads = replace(loads, gradients=some(loads.gradients), weights=some(loads.weights))
    loads = replace(loads, exposed=draw.choice((0.0, loads.exposed, 0.5, 1.0)))
    repeated = [build(placement, passes, loads) for build in builds]
    order = placed_tasks.pass_order

    def each_by_itself(*given):
        found = order(*given)
        return replace(found, template=np.arange(found.kind.size))

    monkeypatch.setattr(placed_tasks, "pass_order", each_by_itself)
    monkeypatch.setattr(placed_tasks._Builder, "_resume", lambda self, number: None)
    for build, found in zip(builds, repeated, strict=True):
        told = build(placement, passes, loads)
        assert (found is None) == (told is None)
        if told is not None:
            for name in COLUMNS:
                np.testing.assert_array_equal(getattr(found, name), getattr(told, name), name)
            assert found.groups == told.groups


@pytest.mark.parametrize("schedule", CHUNKS)
def test_of_many_microbatches_few_passes_are_built_whatever_is_sharded(schedule, monkeypatch):
    built: list[int] = []
    one = placed_tasks._Builder._pass
    monkeypatch.setattr(
        placed_tasks._Builder, "_pass",
        lambda self, number: (built.append(number), one(self, number))[1],
    )  # fmt: skip
    counts = []
    for zero in range(4):
        layout = Layout(
            data=4, pipeline=4, zero=zero, schedule=schedule, virtual_stages=CHUNKS[schedule]
        )
        job = Job(gpt(8, 1024, 16, 5000), server=nvlink_server("h100", 4), global_batch=4 * 64)
        family = job.family(4)
        built.clear()
        family.build(Placement(layout, 4))
        counts.append(len(built))
    assert max(counts) < 1.3 * min(counts)
    assert max(counts) < schedule_of(layout, 256).passes[..., 0].size / 4


@pytest.mark.parametrize("seed", range(40))
def test_tasks_are_foretold_within_a_quarter(seed):
    family, placement, schedule = drawn(seed)
    told = expected_tasks(family.training(placement.layout), placement, schedule)
    assert told == pytest.approx(family.build(placement).tasks, rel=1 / 4)


def test_what_stands_for_all_ranks_is_small_where_every_pass_gathers_weights():
    layout = Layout(tensor=8, data=128, zero=3)
    job = Job(gpt(8, 1024, 16, 5000), server=nvlink_server("h100", 8), global_batch=32 * 128)
    family, placement = job.family(128), Placement(layout, 8)
    assert family.build(placement).tasks > REDUCED_FROM
    assert family.represented(placement).tasks < 1000


def test_more_servers_and_experts_take_more_memory():
    def takes(data: int, expert: int) -> float:
        layout = Layout(tensor=4, data=data, pipeline=8, expert=expert)
        training = Training(HYBRID, layout, MEGATRON_CORE, 4096)
        return expected_bytes(training, Placement(layout, 8), schedule_of(layout, 64 * data))

    assert takes(64, 1) < takes(64, 16) < takes(64, 64)
    assert takes(64, 64) < takes(128, 64)


def test_graphs_asked_for_in_turn_are_built_once_as_long_as_memory_allows(monkeypatch):
    model = gpt(8, 1024, 16, 5000)
    job = Job(model, server=nvlink_server("h100", 4), global_batch=2048)
    kinds = (Layout(data=128 // p, pipeline=p, sequence_parallel=False) for p in (4, 8, 2))
    first, second, third = (Placement(layout, 4) for layout in kinds)
    family = job.family(32)
    represented, whole = family.represented(first), family.build(first)
    assert represented.tasks < whole.tasks
    family.represented(second)
    assert family.represented(first) is represented and family.build(first) is whole
    # As much as the newest two take: the oldest goes, and is built again as it was.
    sizes = [family_module._size(job.family(32).represented(p)) for p in (second, third)]
    monkeypatch.setattr(family_module, "_MOST_KEPT", sum(sizes))
    family = job.family(32)
    kept = [family.represented(placement) for placement in (first, second, third)]
    assert [family.represented(placement) for placement in (second, third)] == kept[1:]
    again = family.represented(first)
    assert again is not kept[0] and np.array_equal(again.successors, kept[0].successors)
