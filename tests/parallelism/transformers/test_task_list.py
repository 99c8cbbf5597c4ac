"""Task graphs under construction: dependencies in order, and sizes known beforehand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_transformers import MIXTRAL, gpt

from parallelism.transformers import family as family_module
from parallelism.transformers.layout import Layout
from parallelism.transformers.load import load_transformer
from parallelism.transformers.placement import AXES, Placement
from parallelism.transformers.schedules import schedule_of
from parallelism.transformers.shape import whole_shape
from parallelism.transformers.sizes import exchange_pairs, expected_bytes, expected_tasks
from parallelism.transformers.task_list_kernels import successor_lists
from topoopt.problem.job import Job, nvlink_server


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


@pytest.mark.parametrize("order", [AXES, ("data", "context", "pipeline"), ("pipeline", *AXES[:2])])
@pytest.mark.parametrize("expert", [2, 4, 8])
def test_pairs_of_servers_that_exchange_tokens_are_counted(order, expert):
    layout = Layout(tensor=2, data=16, pipeline=2, expert=expert)
    placement = Placement(layout, 4, order)
    pairs = sum(over.source.size for over in whole_shape(placement).tokens)
    assert exchange_pairs(placement) == pairs


@pytest.mark.parametrize(
    ("experts", "order"), [(1, AXES), (8, AXES), (1, ("data", "context", "pipeline"))]
)
def test_tasks_are_foretold_within_a_third(experts, order):
    model = MIXTRAL if experts > 1 else gpt(8, 1024, 16, 5000)
    context = 1 if order == AXES else 4  # over servers
    layout = Layout(
        context=context, data=16 // context, pipeline=2, expert=experts, sequence_parallel=False
    )
    family = Job(model, server=nvlink_server("h100", 4), global_batch=256).family(8)
    placement, schedule = Placement(layout, 4, order), schedule_of(layout, 256)
    assert placement.context_spans_servers == (context > 1)
    assert expected_tasks(placement, schedule) == pytest.approx(
        family.build(placement).tasks, rel=1 / 3
    )


@pytest.mark.parametrize("pipeline", [1, 2])
def test_tasks_of_tensor_groups_over_servers_are_foretold_within_a_third(pipeline):
    layout = Layout(tensor=8, data=2, pipeline=pipeline, zero=0)
    job = Job(gpt(8, 1024, 16, 5000), server=nvlink_server("h100", 4), global_batch=64)
    placement, schedule = Placement(layout, 4), schedule_of(layout, 64)
    assert expected_tasks(placement, schedule) == pytest.approx(
        job.family(placement.servers).build(placement).tasks, rel=1 / 3
    )


def test_tasks_of_two_kinds_of_attention_are_foretold_within_a_third():
    model = load_transformer("gemma3-27b")
    layout = Layout(tensor=4, context=4, data=2, sequence_parallel=True)
    family = Job(model, server=nvlink_server("h100", 4), global_batch=64).family(8)
    placement, schedule = Placement(layout, 4), schedule_of(layout, 64)
    assert model.kinds_of_attention == 2
    assert expected_tasks(placement, schedule, kinds=2) == pytest.approx(
        family.build(placement).tasks, rel=1 / 3
    )


def test_more_servers_and_experts_take_more_memory():
    def takes(data: int, expert: int) -> float:
        layout = Layout(tensor=4, data=data, pipeline=8, expert=expert)
        return expected_bytes(Placement(layout, 8), schedule_of(layout, 64 * data))

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
