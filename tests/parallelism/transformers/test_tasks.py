"""Task graphs of pipelines against the timeline of their schedule."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InputError
from parallelism.taskgraph import Phase, TaskGraph, TaskKind, traffic_of
from parallelism.transformers.schedules import build_schedule
from parallelism.transformers.tasks import GradientSum, pipeline_tasks
from parallelism.transformers.timeline import PassTimes, timeline


def longest(graph: TaskGraph, bandwidth: float) -> float:
    """The longest chain of tasks, where a transfer is alone on its links."""
    dag = nx.DiGraph()
    moving = graph.kind == TaskKind.TRANSFER
    cost = np.where(moving, graph.size / bandwidth, graph.size)
    cost[graph.kind == TaskKind.ALLREDUCE] = 0.0
    for task in range(graph.tasks):
        dag.add_edge("start", task, weight=cost[task])
        lo, hi = graph.successor_offsets[task : task + 2]
        for after in graph.successors[lo:hi].tolist():
            dag.add_edge(task, after, weight=cost[after])
    return float(nx.dag_longest_path_length(dag))


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(
        [("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("interleaved", 3), ("zero-bubble", 1)]
    ),
    stages=st.integers(1, 4),
    rounds=st.integers(1, 3),
    seed=st.integers(0, 2**31 - 1),
)
def test_a_lone_pipeline_takes_as_long_as_its_timeline(kind, stages, rounds, seed) -> None:
    name, chunks = kind
    schedule = build_schedule(name, stages, stages * rounds, chunks)
    parts = stages * chunks
    forward, backward, weight = np.random.default_rng(seed).uniform(0.1, 2.0, (3, parts))
    send = np.full(parts, 0.0 if stages == 1 else 0.25)
    times = PassTimes(forward, backward, weight, send, send)
    found = pipeline_tasks(schedule, times, 25.0, np.arange(stages)[None, :], stages)
    assert longest(found.graph, 100.0) == pytest.approx(timeline(schedule, times).makespan)


def test_messages_between_stages_of_one_server_take_their_local_time() -> None:
    schedule = build_schedule("1f1b", 2, 6)
    times = PassTimes.uniform(2, 1.0, 2.0)
    near = pipeline_tasks(schedule, times, 9.0, np.zeros((1, 2), int), 1, local_seconds=0.5)
    assert (near.graph.kind == TaskKind.COMPUTE).all()
    assert near.graph.size.sum() == pytest.approx(2 * 6 * 3.0 + 2 * 6 * 0.5)


def test_traffic_is_what_stages_pass_on_and_replicas_sum() -> None:
    schedule = build_schedule("interleaved", 2, 4, 2)
    server_of = np.array([[0, 1], [2, 3], [4, 5]])
    sums = [GradientSum(((0, s), (1, s), (2, s)), 70.0 + s, 0.1) for s in range(2)]
    found = pipeline_tasks(
        schedule, PassTimes.uniform(4, 1.0, 2.0), 5.0, server_of, 6, sums=sums,
        update=np.array([0.3, 0.4]),
    )  # fmt: skip
    traffic = traffic_of(found.graph)
    # Four parts: three boundaries, of which two lead to the second stage and one back.
    assert traffic.transfers[0, 1] == traffic.transfers[1, 0] == 5.0 * 4 * 3
    assert traffic.transfers.sum() == 3 * 5.0 * 4 * 3 * 2
    assert traffic.groups == ((0, 2, 4), (1, 3, 5))
    assert traffic.group_bytes.tolist() == [70.0, 71.0]
    graph = found.graph
    updates = found.update_of.ravel()
    assert (graph.phase[updates] == Phase.UPDATE).all()
    assert graph.size[updates].tolist() == [0.3, 0.4] * 3
    assert (graph.predecessors[updates] == 2).all()
    assert (graph.predecessors[found.sum_of] == 3).all()
    assert graph.devices == 6
    assert graph.server_of_device.tolist() == [0, 1, 2, 3, 4, 5]
    mine = graph.first[found.task_of[1, 1]]
    assert (mine == 3).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda s, t: pipeline_tasks(s, t, 1.0, np.zeros((1, 3), int), 1),
        lambda s, t: pipeline_tasks(s, t, 1.0, np.full((1, 2), 4), 4),
        lambda s, t: pipeline_tasks(
            s, t, 1.0, np.zeros((1, 2), int), 1, sums=[GradientSum(((1, 0),), 1.0)]
        ),
        lambda s, t: pipeline_tasks(
            s, PassTimes.uniform(3, 1.0, 1.0), 1.0, np.zeros((1, 2), int), 1
        ),
    ],
)
def test_nonsense_is_refused(make) -> None:
    with pytest.raises(InputError):
        make(build_schedule("1f1b", 2, 2), PassTimes.uniform(2, 1.0, 1.0))
