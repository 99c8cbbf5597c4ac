"""Pipelines in the fabric model, against the timeline of their schedule and closed forms."""

import numpy as np
import pytest
from bubbles import bubble_fraction

from parallelism.transformers.layout import Layout
from parallelism.transformers.loads import Loads
from parallelism.transformers.placed_tasks import iteration_tasks
from parallelism.transformers.placement import Placement
from parallelism.transformers.schedules import schedule_of
from parallelism.transformers.stages import WeightCount
from parallelism.transformers.timeline import PassTimes, timeline
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.simulation import score
from topoopt.studies.validation.closed_forms import DELAY, RATE, alone
from topoopt.topology.fabrics import ideal_switch

BOUNDARY = 1e8
GPUS = 4


def loads_from(seconds, **other) -> Loads:
    """Loads of passes that send nothing but what is said."""
    seconds = np.asarray(seconds, dtype=float)
    none, parts = np.zeros_like(seconds), seconds.shape[1]
    return Loads(
        **{
            "seconds": seconds, "boundary_bytes": 0.0, "tensor_bytes": none, "input_bytes": none,
            "context_bytes": np.stack([none] * 2), "attention_s": np.stack([none] * 2),
            "heads_bytes": none, "expert_bytes": none,
            "gradients": (WeightCount(),) * parts, "weights": (WeightCount(),) * parts,
            "tied_bytes": 0.0, "update_s": 0.0, "gather_rate": 1e12, **other,
        }
    )  # fmt: skip


def time_of(layout: Layout, batch: int, loads: Loads, rate: float = RATE, lag: float = DELAY):
    placement = Placement(layout, GPUS)
    tasks = iteration_tasks(placement, schedule_of(layout, batch), loads)
    return score(Fabric("switch", *ideal_switch(placement.servers, rate, lag)), tasks)


def pipeline(name: str, stages: int, chunks: int = 1, data: int = 1, zero: int = 0) -> Layout:
    return Layout(
        GPUS, 1, data, stages, schedule=name, virtual_stages=chunks, zero=zero
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "chunks"),
    [("gpipe", 1), ("1f1b", 1), ("zero-bubble", 1), ("breadth-first", 2), ("zero-bubble-v", 2)],
)
@pytest.mark.parametrize("replicas", [1, 3])
def test_two_stages_on_a_switch_take_as_long_as_their_timeline(name, chunks, replicas) -> None:
    # Each server sends to one other only. Passes last longer than messages, so that no two of
    # these meet on a link.
    layout, batch = pipeline(name, 2, chunks, replicas), 6 * replicas
    parts = 2 * chunks
    forward, backward, weight = np.random.default_rng(3).uniform(0.02, 0.05, (3, parts))
    send = np.full(parts, alone(BOUNDARY, 2))
    if name == "zero-bubble-v":
        send[1] = 0.0  # from the last stage to itself
    times = PassTimes(forward, backward, weight, send, send)
    if not name.startswith("zero-bubble"):
        backward, weight = backward + weight, np.zeros(parts)
    loads = loads_from([forward, backward, weight], boundary_bytes=BOUNDARY)
    expected = timeline(schedule_of(layout, batch), times).makespan
    assert time_of(layout, batch, loads) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "chunks", "passes"),
    [
        ("gpipe", 1, (1, 2, 0)),
        ("1f1b", 1, (1, 2, 0)),
        ("interleaved", 2, (1, 2, 0)),
        ("breadth-first", 4, (1, 2, 0)),
        ("zero-bubble", 1, (1, 1, 1)),
        ("zero-bubble-v", 2, (1, 1, 1)),
    ],
)
@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("rounds", [1, 3])
def test_bubbles_of_placed_pipelines_are_the_published_ones(
    name, chunks, passes, stages, rounds
) -> None:
    batch = stages * rounds
    loads = loads_from(np.repeat(np.array(passes, float)[:, None], stages * chunks, axis=1))
    busy = sum(passes) * chunks * batch
    time = time_of(pipeline(name, stages, chunks), batch, loads, 1e18, 0.0)
    expected = bubble_fraction(name, stages, batch, chunks)
    assert time / busy - 1.0 == pytest.approx(expected, rel=1e-6)


def test_gradients_are_summed_after_the_last_pass_and_before_the_update() -> None:
    loads = loads_from(
        [[0.01], [0.02], [0.0]], gradients=(WeightCount(1e8),), weights=(WeightCount(5e7),),
        update_s=0.005,
    )  # fmt: skip
    # All but the last of four pieces hides behind the pieces of the last pass, where it can.
    piece = 2 * alone(1e8 / 4 / 2, 2)
    for microbatches in (1, 4):
        time = time_of(pipeline("1f1b", 1, data=2), 2 * microbatches, loads)
        last = max(0.02 / 4 + 4 * piece, 0.02 + piece)
        expected = 0.01 * microbatches + 0.02 * (microbatches - 1) + last + 0.005
        assert time == pytest.approx(expected, rel=2e-3)


def test_gathered_weights_come_in_the_order_of_use() -> None:
    """Only the first piece holds up an iteration whose passes outlast their pieces."""
    loads = loads_from(
        [[0.1], [0.2], [0.0]], gradients=(WeightCount(1.0),), weights=(WeightCount(1e8),)
    )
    piece = alone(1e8 / 4 / 2, 2)
    expected = piece + 0.3
    one = time_of(pipeline("1f1b", 1, data=2, zero=1), 2, loads)
    assert one == pytest.approx(expected, rel=1e-3)
    # ZeRO 3 gathers for the backward pass as well, behind the forward pass; memory has room
    # for the piece at work and the next, so that nothing more is seen.
    all_of_it = time_of(pipeline("1f1b", 1, data=2, zero=3), 2, loads)
    assert all_of_it == pytest.approx(expected, rel=1e-3)


def test_sharded_weights_move_half_as_much_again() -> None:
    """Rajbhandari et al. (2020), section 7: on a slow network ZeRO 3 takes 1.5 times as long."""
    same = (WeightCount(1e8),)
    loads = loads_from([[1e-6], [1e-6], [0.0]], gradients=same, weights=same)
    times = [time_of(pipeline("1f1b", 1, data=2, zero=z), 2, loads) for z in range(4)]
    assert times[1] == pytest.approx(times[0], rel=0.01)
    assert times[2] == pytest.approx(times[0], rel=0.01)
    assert times[3] == pytest.approx(1.5 * times[0], rel=0.01)
