"""What a rotation maps on each other, told from strategies, against their task graphs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parallelism.buckets import bucket_allreduces
from parallelism.graph import Mode
from parallelism.models import get_model
from parallelism.rotation import rotated_classes
from parallelism.search.named import named_strategies
from parallelism.search.space import StrategySpace
from parallelism.strategy import OperatorConfig, Strategy
from parallelism.taskgraph import TaskKind
from topoopt.problem.job import Job

PACKET = 65536.0


def told(builder, strategy, period, packet_bytes=0.0):
    tasks = builder.build(strategy, packet_bytes)
    return tasks, tasks.rotations.find(tasks, period)


def check_images(tasks, found):
    """Tasks of a class do the same, and wait for as many of each class, wherever they are."""
    servers, step, of = tasks.servers, found.step, found.of_task
    after = np.split(tasks.successors, tasks.successor_offsets[1:-1])
    before = [[] for _ in range(tasks.tasks)]
    place, count = {}, np.zeros(servers, dtype=int)
    for task, follows in enumerate(after):
        for other in follows:
            before[other].append(task)
        if tasks.kind[task] == TaskKind.COMPUTE:
            place[task] = count[tasks.first[task]]
            count[tasks.first[task]] += 1
    seen = {}
    for task in range(tasks.tasks):
        kind, first, second = (int(a[task]) for a in (tasks.kind, tasks.first, tasks.second))
        if kind == TaskKind.COMPUTE:
            where = (first % step, place[task])
        elif kind == TaskKind.TRANSFER:
            where = (first % step, (second - first) % servers)
        else:
            where = tuple(sorted(np.array(tasks.groups[first]) % step))
        does = (
            kind, where, tasks.size[task], tasks.delay[task],
            sorted(of[after[task]]), sorted(of[before[task]]),
        )  # fmt: skip
        assert seen.setdefault(of[task], does) == does
    assert sorted(seen) == list(range(found.first.size))
    np.testing.assert_array_equal(of[found.first], np.arange(found.first.size))
    compute = tasks.kind == TaskKind.COMPUTE
    each = np.bincount(of[compute])
    assert set(each[each > 0]) == {servers // step}


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_images_of_strategies_do_the_same(data):
    servers = data.draw(st.sampled_from([8, 12]))
    model = get_model(data.draw(st.sampled_from(["dlrm-16", "bert-16", "candle-16"])))
    builder = Job(model).family(servers).builder
    step = data.draw(st.sampled_from([1, 2, 4]))
    # Operators alike stand on every so manieth server, or on all of them, in any order of parts.
    seen: dict[int, int] = {}
    configs = []
    ways = {}
    for index, op in enumerate(model.operators):
        kind = builder.representatives[index]
        seen[kind] = seen.get(kind, -1) + 1
        splits = [s for s in op.splits if s.extent % 4 == 0]
        if kind not in ways:
            ways[kind] = (
                data.draw(st.sampled_from(["spread", "samples", "both"])),
                data.draw(st.integers(0, servers - 1)),
                data.draw(st.sampled_from(splits)) if splits else None,
            )
        how, begin, split = ways[kind]
        ring = (np.arange(servers) + begin) % servers
        if how == "both" and split is not None:
            at = ring.reshape(4, servers // 4).T if begin % 2 else ring.reshape(-1, 4)
            configs.append(OperatorConfig(servers // 4, 4, split.mode, tuple(at.ravel().tolist())))
        elif how == "spread" and op.sparse:
            at = (begin + step * seen[kind]) % servers
            configs.append(OperatorConfig(1, 1, Mode.OUTPUT, (int(at),)))
        else:
            configs.append(OperatorConfig(servers, 1, Mode.OUTPUT, tuple(ring.tolist())))
    for packet_bytes in (0.0, PACKET):
        tasks, found = told(builder, Strategy(tuple(configs)), step, packet_bytes)
        alone = rotated_classes(replace(tasks), step)
        if found is not None:
            check_images(tasks, found)
            assert alone is not None and alone.step <= found.step
        if alone is not None and found is not None and alone.step == found.step:
            pairs = np.unique(np.stack([alone.of_task, found.of_task]), axis=1)
            assert pairs.shape[1] == found.first.size


@pytest.mark.parametrize("model", ["dlrm-16", "bert-16", "ncf"])
@pytest.mark.parametrize("period", [1, 4])
def test_named_strategies_are_told_as_their_task_graphs_are(model, period):
    builder = Job(get_model(model)).family(16).builder
    space = StrategySpace(builder.graph, 16, builder.batch)
    steps = set()
    for strategy in named_strategies(space).values():
        for packet_bytes in (0.0, PACKET):
            tasks, found = told(builder, space.intern(strategy), period, packet_bytes)
            alone = rotated_classes(replace(tasks), period)
            assert (found is None) == (alone is None)
            if found is not None:
                assert found.step == alone.step
                np.testing.assert_array_equal(found.of_task, alone.of_task)
                steps.add(found.step)
    assert {s for s in (1, 2, 4) if s % period == 0} <= steps


@pytest.mark.parametrize("model", ["dlrm-16", "bert-16", "ncf"])
@pytest.mark.parametrize("period", [1, 4])
def test_fused_gradients_are_told_as_their_task_graphs_are(model, period):
    builder = Job(get_model(model)).family(16).builder
    space = StrategySpace(builder.graph, 16, builder.batch)
    told_of = 0
    for number, strategy in enumerate(named_strategies(space).values()):
        plain = builder.build(space.intern(strategy))
        # In any order, among which are those that part gradients of images.
        ready = np.random.default_rng(number).permutation(plain.tasks).astype(np.float64)
        for size in (1e5, 1e7):
            tasks, _ = bucket_allreduces(plain, size, ready)
            found = tasks.rotations.find(tasks, period)
            alone = rotated_classes(replace(tasks), period)
            if found is None or alone is None or found.step != alone.step:
                # Buckets may hide, or bring, what the gradients by themselves do not say.
                continue
            np.testing.assert_array_equal(found.of_task, alone.of_task)
            np.testing.assert_array_equal(found.first, alone.first)
            told_of += tasks.tasks < plain.tasks
    assert told_of > 3


def test_a_table_alone_on_a_server_allows_no_rotation():
    builder = Job(get_model("dlrm-16")).family(16).builder
    space = StrategySpace(builder.graph, 16, builder.batch)
    strategy = space.intern(named_strategies(space)["hybrid"])
    assert told(builder, strategy, 1)[1] is not None
    table = next(i for i, op in enumerate(builder.graph.operators) if op.sparse)
    (server,) = strategy.configs[table].servers
    moved = OperatorConfig(1, 1, strategy.configs[table].mode, ((server + 1) % 16,))
    assert told(builder, strategy.replace([(table, moved)]), 1)[1] is None
