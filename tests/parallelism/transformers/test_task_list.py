"""Task graphs under construction: dependencies in order, and sizes known beforehand."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_transformers import MIXTRAL, gpt

import topoopt as to
from parallelism.transformers import family as family_module
from parallelism.transformers.implementation import MEGATRON_CORE, get_stack
from parallelism.transformers.layout import Layout
from parallelism.transformers.load import load_transformer
from parallelism.transformers.pass_order import pass_order
from parallelism.transformers.placement import AXES, Placement, axis_orders
from parallelism.transformers.schedules import schedule_of
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


@pytest.mark.parametrize("schedule", CHUNKS)
@pytest.mark.parametrize("zero", range(4))
def test_passes_repeat_the_first_that_follows_passes_of_the_same_sorts(schedule, zero):
    layout = Layout(pipeline=4, schedule=schedule, virtual_stages=CHUNKS[schedule])
    order = pass_order(schedule_of(layout, 8), zero)
    made = list(zip(order.kind.tolist(), order.part.tolist(), strict=True))

    def sort(number: int) -> object:
        return made[number] if number >= 0 and order.alike[number] else number

    first: dict[object, int] = {}
    for number, template in enumerate(order.template.tolist()):
        others = [int(each[number]) for each in (order.before, order.sender, order.earlier)]
        own, sender, earlier = others
        same = own == sender, own == earlier
        key = (sort(number), *map(sort, others), *same) if order.alike[number] else number
        assert template == first.setdefault(key, number)
    assert len(first) < len(made) or zero == 3  # which gathers weights for every pass


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
