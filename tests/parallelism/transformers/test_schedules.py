"""Pipeline schedules against closed forms and the longest path of their dependency graph."""

import itertools

import networkx as nx
import numpy as np
import pytest
from bubbles import bubble_fraction
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_parts import part_of, stage_of

from codesign_base import InputError
from parallelism.transformers.layout import Layout
from parallelism.transformers.memory import peak_held
from parallelism.transformers.schedules import (
    PassKind,
    PipelineSchedule,
    build_schedule,
    schedule_of,
)
from parallelism.transformers.timeline import PassTimes, timeline

SHAPES = [(1, 3), (2, 2), (2, 6), (3, 6), (4, 4), (4, 12), (8, 16)]
NAMES = [
    ("gpipe", 1), ("1f1b", 1), ("eager-1f1b", 1), ("interleaved", 2), ("interleaved", 3),
    ("breadth-first", 2), ("breadth-first", 3), ("zero-bubble", 1), ("zero-bubble-v", 2),
]  # fmt: skip


def uniform(
    parts: int, forward: float, backward: float, weight: float = 0.0, send: float = 0.0
) -> PassTimes:
    """The same times for every part."""
    values = (forward, backward, weight, send, send)
    return PassTimes(*(np.full(parts, value) for value in values))


def in_flight(schedule: PipelineSchedule) -> np.ndarray:
    """Parts whose activations each rank holds at once."""
    return peak_held(schedule, np.ones(schedule.parts.size))


def longest_path(schedule: PipelineSchedule, times: PassTimes) -> float:
    """Seconds of the longest chain of passes, by networkx."""
    graph = nx.DiGraph()
    graph.add_node("start")
    joint = not schedule.split_backward
    parts = schedule.stages * schedule.chunks

    def seconds(kind: int, part: int) -> float:
        if kind == PassKind.FORWARD:
            return float(times.forward[part])
        if kind == PassKind.WEIGHT:
            return float(times.weight[part])
        return float(times.backward[part] + (times.weight[part] if joint else 0.0))

    for stage in range(schedule.stages):
        before: object = "start"
        for kind, chunk, batch in schedule.passes[stage].tolist():
            part = part_of(schedule.name, schedule.stages, stage, chunk)
            node, cost = (kind, part, batch), seconds(kind, part)
            inputs: list[tuple[object, float]] = [(before, 0.0)]
            if kind == PassKind.FORWARD and part > 0:
                inputs.append(((0, part - 1, batch), float(times.send[part - 1])))
            if kind == PassKind.BACKWARD:
                inputs.append(((0, part, batch), 0.0))
                if part + 1 < parts:
                    inputs.append(((1, part + 1, batch), float(times.send_back[part])))
            if kind == PassKind.WEIGHT:
                inputs.append(((1, part, batch), 0.0))
            for source, delay in inputs:
                graph.add_edge(source, node, weight=delay + cost)
            before = node
    return float(nx.dag_longest_path_length(graph))


@pytest.mark.parametrize(("name", "chunks"), NAMES)
@pytest.mark.parametrize(("stages", "batches"), SHAPES)
def test_each_pass_runs_once(name, chunks, stages, batches) -> None:
    schedule = build_schedule(name, stages, batches, chunks)
    kinds = 3 if schedule.split_backward else 2
    wanted = {(k, c, b) for k in range(kinds) for c in range(chunks) for b in range(batches)}
    for order in schedule.passes:
        assert len(order) == len(wanted)
        assert {tuple(entry) for entry in order.tolist()} == wanted


@pytest.mark.parametrize(("name", "chunks"), NAMES)
@pytest.mark.parametrize(("stages", "batches"), SHAPES)
def test_bubbles_of_uniform_stages_are_the_published_closed_forms(
    name, chunks, stages, batches
) -> None:
    schedule = build_schedule(name, stages, batches, chunks)
    times = uniform(stages * chunks, 2.0, 2.0, 2.0)
    run = timeline(schedule, times)
    busiest = float(run.duration.sum(axis=1).max())
    bubble = run.makespan / busiest - 1.0
    assert bubble == pytest.approx(bubble_fraction(name, stages, batches, chunks))


@pytest.mark.parametrize(("stages", "batches"), [(2, 4), (4, 8), (6, 18)])
def test_zero_bubble_saves_two_weight_passes_a_stage(stages, batches) -> None:
    times = uniform(stages, 1.0, 1.3, 0.7)
    plain = timeline(build_schedule("1f1b", stages, batches), times).makespan
    split = timeline(build_schedule("zero-bubble", stages, batches), times).makespan
    assert plain == pytest.approx(batches * 3.0 + (stages - 1) * 3.0)
    assert split < plain - (stages - 1) * 0.7
    assert split >= batches * 3.0 + (stages - 1) * (1.0 + 1.3 - 0.7) - 1e-9


@pytest.mark.parametrize(("name", "chunks"), NAMES)
@pytest.mark.parametrize("stages", [1, 2, 3, 8])
def test_parts_are_on_their_stages(name, chunks, stages) -> None:
    schedule = build_schedule(name, stages, 2 * stages, chunks)
    assert schedule.parts.shape == (stages, chunks)
    for stage in range(stages):
        wanted = [part_of(name, stages, stage, chunk) for chunk in range(chunks)]
        assert schedule.parts[stage].tolist() == wanted
        assert {stage_of(name, stages, part) for part in wanted} == {stage}
    if stages > 1 and (chunks > 1 or name not in ("interleaved", "breadth-first")):
        layout = Layout(pipeline=stages, schedule=name, virtual_stages=chunks)
        own = [stage_of(name, stages, part) for part in range(stages * chunks)]
        assert list(layout.part_stages) == own
        ahead = [(b - a) % stages for a, b in itertools.pairwise(own)]
        assert [step % stages for step in layout.part_steps] == ahead


@pytest.mark.parametrize(("stages", "batches"), [(2, 3), (4, 8), (8, 16), (5, 20)])
def test_a_folded_pipeline_holds_what_one_forward_one_backward_does(stages, batches) -> None:
    """Qi et al. (2023), section 6: on every rank, in parts of half its size."""
    held = in_flight(build_schedule("zero-bubble-v", stages, batches, 2))
    assert (held == 2 * stages).all() or batches < 2 * stages
    assert held.max() <= 2 * stages


def test_a_folded_order_is_that_of_pytorch() -> None:
    # The first and the last of three ranks, with few microbatches; a: there, b: back.
    schedule = build_schedule("zero-bubble-v", 3, 3, 2)
    orders = [
        " ".join("FBW"[kind] + "ab"[chunk] + str(batch) for kind, chunk, batch in each)
        for each in schedule.passes.tolist()
    ]
    assert orders[0] == ("Fa0 Fa1 Fa2 Fb0 Bb0 Wb0 Fb1 Bb1 Wb1 Fb2 Bb2 Wb2 Ba0 Wa0 Ba1 Wa1 Ba2 Wa2")
    assert orders[2] == ("Fa0 Fb0 Fa1 Fb1 Fa2 Fb2 Bb0 Wb0 Ba0 Wa0 Bb1 Wb1 Ba1 Wa1 Bb2 Wb2 Ba2 Wa2")


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(NAMES),
    stages=st.integers(1, 5),
    rounds=st.integers(1, 4),
    seed=st.integers(0, 2**31 - 1),
)
def test_timelines_are_longest_paths(kind, stages, rounds, seed) -> None:
    name, chunks = kind
    schedule = build_schedule(name, stages, stages * rounds, chunks)
    times = PassTimes(*np.random.default_rng(seed).uniform(0.0, 2.0, (5, stages * chunks)))
    assert timeline(schedule, times).makespan == pytest.approx(longest_path(schedule, times))


@pytest.mark.parametrize(("stages", "batches"), SHAPES)
def test_activations_in_flight_are_the_closed_forms(stages, batches) -> None:
    stage = np.arange(stages)
    assert (in_flight(build_schedule("gpipe", stages, batches)) == batches).all()
    held = in_flight(build_schedule("1f1b", stages, batches))
    np.testing.assert_array_equal(held, np.minimum(stages - stage, batches))
    assert (in_flight(build_schedule("zero-bubble", stages, batches)) <= held[0]).all()
    held = in_flight(build_schedule("eager-1f1b", stages, batches))
    np.testing.assert_array_equal(held, np.minimum(2 * (stages - stage) - 1, batches))


@pytest.mark.parametrize(("stages", "chunks"), [(2, 2), (4, 2), (4, 3), (8, 4)])
def test_interleaving_holds_a_share_more_on_the_first_stage(stages, chunks) -> None:
    # Korthikanti et al. (2022), section 4.2.3: 1 + (p - 1) / (p m) times as much.
    held = in_flight(build_schedule("interleaved", stages, 4 * stages, chunks))
    assert held[0] / chunks == pytest.approx(stages * (1 + (stages - 1) / (stages * chunks)))
    assert (np.diff(held) == -2).all()


@pytest.mark.parametrize(("stages", "batches", "chunks"), [(2, 3, 4), (3, 7, 2), (4, 16, 3)])
def test_breadth_first_holds_all_microbatches_but_hides_messages(stages, batches, chunks) -> None:
    schedule = build_schedule("breadth-first", stages, batches, chunks)
    held = 2 * (stages - 1 - np.arange(stages)) + (chunks - 1) * batches + 1
    assert in_flight(schedule).tolist() == np.minimum(held, chunks * batches).tolist()
    # Beside the passes of other microbatches only the first messages there and back take time.
    count = stages * chunks
    still = timeline(schedule, uniform(count, 1.0, 2.0)).makespan
    assert still == pytest.approx(3.0 * (chunks * batches + stages - 1))
    send = min(1.0, (batches - stages) / stages)
    moving = timeline(schedule, uniform(count, 1.0, 2.0, send=send)).makespan
    assert moving == pytest.approx(still + 2 * (stages - 1) * send)
    alike = build_schedule("interleaved", stages, stages, chunks).passes
    assert (build_schedule("breadth-first", stages, stages, chunks).passes == alike).all()


def test_a_delay_between_stages_stalls_one_forward_one_backward() -> None:
    # A microbatch waits for a round trip of one hop with the next stage, in every round.
    schedule = build_schedule("1f1b", 2, 50)
    still = timeline(schedule, uniform(2, 1.0, 2.0)).makespan
    moving = timeline(schedule, uniform(2, 1.0, 2.0, send=0.1)).makespan
    assert moving - still == pytest.approx(0.1 * 2 * 25)


@given(
    st.integers(1, 6), st.integers(1, 24), st.floats(0.1, 2.0), st.floats(0.1, 2.0),
    st.floats(0.0, 3.0),
)  # fmt: skip
def test_passes_ahead_hide_messages_that_take_half_of_a_microbatch(
    stages, batches, forward, backward, send
) -> None:
    """Then only the first message over each hop, there and back, is waited for."""
    times = uniform(stages, forward, backward, send=send)
    took = timeline(build_schedule("eager-1f1b", stages, batches), times).makespan
    each = forward + backward
    least = batches * each + (stages - 1) * (each + 2 * send)
    assert took >= least * (1 - 1e-12)
    if send <= each / 2:
        assert took == pytest.approx(least)
    plain = timeline(build_schedule("1f1b", stages, batches), times).makespan
    assert took <= plain * (1 + 1e-12)
    if stages > 1 and batches > stages and send > 0.01:
        assert took < plain


@pytest.mark.parametrize(
    "make",
    [
        lambda: build_schedule("1f1b", 0, 1),
        lambda: build_schedule("1f1b", 2, 4, 2),
        lambda: build_schedule("interleaved", 4, 6, 2),
        lambda: build_schedule("zero-bubble-v", 4, 6, 1),
        lambda: build_schedule("breadth-first", 4, 3, 2),
        lambda: build_schedule("other", 2, 2),
        lambda: timeline(build_schedule("1f1b", 2, 2), uniform(3, 1.0, 1.0)),
        lambda: schedule_of(Layout(data=4), 6),
    ],
)
def test_nonsense_is_refused(make) -> None:
    with pytest.raises(InputError):
        make()


def test_a_circular_order_is_refused() -> None:
    good = build_schedule("1f1b", 1, 1)
    bad = PipelineSchedule("1f1b", 1, 1, 1, False, good.passes[:, ::-1].copy())
    with pytest.raises(InputError, match="wait for each other"):
        timeline(bad, uniform(1, 1.0, 1.0))
