"""Pipelines played by the fabric model, against the timeline of their schedule."""

import numpy as np
import pytest

from parallelism.transformers.schedules import build_schedule
from parallelism.transformers.tasks import GradientSum, pipeline_tasks
from parallelism.transformers.timeline import PassTimes, timeline
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.simulate import score
from topoopt.topology.fabrics import ideal_switch
from topoopt.validation.closed_forms import DELAY, RATE, alone

BOUNDARY = 1e8


@pytest.mark.parametrize(
    ("name", "chunks"), [("gpipe", 1), ("1f1b", 1), ("zero-bubble", 1), ("interleaved", 2)]
)
@pytest.mark.parametrize("replicas", [1, 3])
def test_two_stages_on_a_switch_take_as_long_as_their_timeline(name, chunks, replicas) -> None:
    # Each server sends to one other only. Passes last longer than messages, so that no two of
    # these meet on a link.
    schedule = build_schedule(name, 2, 6, chunks)
    parts = 2 * chunks
    forward, backward, weight = np.random.default_rng(3).uniform(0.02, 0.05, (3, parts))
    send = np.full(parts, alone(BOUNDARY, 2))
    times = PassTimes(forward, backward, weight, send, send)
    servers = 2 * replicas
    built = pipeline_tasks(
        schedule, times, BOUNDARY, np.arange(servers).reshape(replicas, 2), servers
    )
    fabric = Fabric("switch", *ideal_switch(servers, RATE, DELAY))
    assert score(fabric, built.graph) == pytest.approx(timeline(schedule, times).makespan, rel=1e-6)


def test_gradients_are_summed_after_the_last_pass_and_before_the_update() -> None:
    schedule = build_schedule("1f1b", 1, 4)
    times = PassTimes.uniform(1, 0.01, 0.02)
    sums = [GradientSum(((0, 0), (1, 0)), 1e8, 0.003)]
    built = pipeline_tasks(
        schedule, times, 0.0, np.array([[0], [1]]), 2, sums=sums, update=np.array([0.005])
    )
    fabric = Fabric("switch", *ideal_switch(2, RATE, DELAY))
    expected = 4 * 0.03 + 0.003 + 2 * alone(5e7, 2) + 0.005
    assert score(fabric, built.graph) == pytest.approx(expected, rel=1e-6)
