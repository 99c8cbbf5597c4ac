"""Collectives, usable links and training loops against step-by-step oracles."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesign_base import InputError
from topoopt.bandwidth.model.collectives import (
    Collective,
    PartialGroups,
    pattern,
    usable_fraction,
)
from topoopt.bandwidth.model.communicator import Communicator, NpuGroup, hybrid_communicator
from topoopt.bandwidth.model.expressions import Expr, comm, compute, maximum, total
from topoopt.bandwidth.model.loops import Loop, add_up, layer_times
from topoopt.bandwidth.model.network import MultiDimNetwork, parse_network
from topoopt.bandwidth.model.several import Together, combine
from topoopt.bandwidth.model.time_model import compile_time
from topoopt.bandwidth.model.workload import Layer, LayerPhase, LayerWorkload
from topoopt.topology.zoo.blocks import BuildingBlock

FULL = PartialGroups.FULL
GROUPS = st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=4)


def network_of(sizes, latencies=(), reducing=()):
    n = len(sizes)
    return MultiDimNetwork(
        (BuildingBlock.SWITCH,) * n, tuple(max(s, 2) for s in sizes), ("InterPod",) * n,
        tuple(latencies), tuple(reducing),
    )  # fmt: skip


def sent(sizes, kind, size):
    """Bytes that an NPU sends on each dimension, dimension after dimension."""
    held, loads = size, [0.0] * len(sizes)
    if kind in (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER):
        for d, g in enumerate(sizes):
            for _ in range(g - 1):  # a ring's steps, each of a shard
                loads[d] += held / g
            held /= g
    if kind == Collective.ALL_REDUCE:
        return [a + b for a, b in zip(loads, sent(sizes, Collective.ALL_GATHER, held), strict=True)]
    if kind == Collective.ALL_GATHER:
        for d in reversed(range(len(sizes))):
            for _ in range(sizes[d] - 1):
                loads[d] += held
            held *= sizes[d]
    if kind == Collective.ALL_TO_ALL:
        for d, g in enumerate(sizes):
            loads[d] = (g - 1) * size / g
    return loads


@given(sizes=GROUPS, kind=st.sampled_from([k for k in Collective if k != Collective.NONE]))
def test_loads_equal_those_of_the_steps(sizes, kind):
    group = NpuGroup(tuple(sizes), (1,) * len(sizes))
    load, multiple, latency = pattern(network_of(sizes), group, kind, FULL)
    expected = sent(sizes, kind, 4096.0)
    assert [4096.0 * multiple * m for m in load] == pytest.approx(expected)
    assert latency == 0.0


def ring_time(members, size, stride):
    """Seconds per byte that members pass on in a ring, by counting the bytes of each link."""
    clockwise, counter = [0.0] * members, [0.0] * members
    block = size * stride
    for start in range(0, members, block):
        for offset in range(stride):
            places = [start + offset + stride * i for i in range(size)]
            if block == members and size > 1 and (stride > 1 or size == members):
                for i, place in enumerate(places):  # around the ring, half each way
                    for hop in range(stride):
                        clockwise[(place + hop) % members] += 0.5
                        counter[(places[(i + 1) % size] - hop) % members] += 0.5
            else:
                for place in places[:-1]:
                    for hop in range(stride):
                        clockwise[place + hop] += 1.0
                for hop in range(places[-1] - places[0]):
                    counter[places[-1] - hop] += 1.0
    return max(clockwise + counter) / 0.5  # each direction has half of the bandwidth 1


@pytest.mark.parametrize("members", [4, 8, 12, 16])
def test_usable_links_of_a_ring(members):
    for size in range(2, members + 1):
        for stride in range(1, members // size + 1):
            if members % (size * stride):
                continue
            fraction = usable_fraction(BuildingBlock.RING, members, size, stride)
            assert 1.0 / fraction == pytest.approx(ring_time(members, size, stride))


def test_usable_links_of_meshes_and_switches():
    for size in (2, 4, 8):
        assert usable_fraction(BuildingBlock.FULLY_CONNECTED, 8, size) == (size - 1) / 7
        assert usable_fraction(BuildingBlock.SWITCH, 8, size) == 1.0
    for block in BuildingBlock:
        assert usable_fraction(block, 8, 1) == 1.0


def test_partial_groups_enter_the_load():
    network = parse_network("RI(8)_FC(8)_SW(8)")
    group = NpuGroup((4, 4, 4), (1, 1, 1))
    usable, _, _ = pattern(network, group, Collective.ALL_TO_ALL, PartialGroups.USABLE)
    full, _, _ = pattern(network, group, Collective.ALL_TO_ALL, FULL)
    assert full == (0.75, 0.75, 0.75)
    assert usable == pytest.approx((1.5, 0.75 * 7 / 3, 0.75))


def test_latency_counts_steps():
    network = MultiDimNetwork(
        (BuildingBlock.RING, BuildingBlock.FULLY_CONNECTED, BuildingBlock.SWITCH),
        (4, 8, 6), ("InterPod",) * 3, (1.0, 10.0, 100.0),
    )  # fmt: skip
    group = NpuGroup((4, 8, 6), (1, 1, 1))
    for kind, steps in (
        (Collective.ALL_REDUCE, (6, 2, 6)),
        (Collective.REDUCE_SCATTER, (3, 1, 3)),
        (Collective.ALL_GATHER, (3, 1, 3)),
        (Collective.ALL_TO_ALL, (3, 1, 1)),
    ):
        _, _, latency = pattern(network, group, kind, FULL)
        assert latency == steps[0] + 10 * steps[1] + 100 * steps[2]
    _, _, latency = pattern(network, NpuGroup((4, 1, 1), (1, 1, 1)), Collective.ALL_REDUCE, FULL)
    assert latency == 6.0


def test_reduction_in_the_network():
    sizes = (8, 4)
    group = NpuGroup(sizes, (1, 1))
    plain, multiple, _ = pattern(network_of(sizes), group, Collective.ALL_REDUCE, FULL)
    network = network_of(sizes, (1.0, 1.0), (True, True))
    reduced, _, latency = pattern(network, group, Collective.ALL_REDUCE, FULL)
    assert latency == 4.0
    # Up once and down once on the last; up whole and down a shard and back before it.
    assert [multiple * m for m in reduced] == pytest.approx([1 + 1 / 8, 1 / 8])
    assert [multiple * m for m in plain] == pytest.approx([2 * 7 / 8, 2 * 3 / 4 / 8])
    same, _, _ = pattern(network, group, Collective.ALL_TO_ALL, FULL)
    assert same == pattern(network_of(sizes), group, Collective.ALL_TO_ALL, FULL)[0]
    pair = NpuGroup((2, 1), (1, 1))
    assert pattern(network, pair, Collective.ALL_REDUCE, FULL)[0][0] == 0.5


def layers(*rows):
    return LayerWorkload("w", tuple(
        Layer(f"layer_{i}", *(LayerPhase(*phase) for phase in row)) for i, row in enumerate(rows)
    ))  # fmt: skip


REDUCE, EXCHANGE = Collective.ALL_REDUCE, Collective.ALL_TO_ALL
TWO = layers(
    ((1e-3, REDUCE, 8e6), (2e-3, REDUCE, 8e6), (3e-3, REDUCE, 64e6)),
    ((1e-3,), (2e-3, EXCHANGE, 4e6), (3e-3,)),
)
NETWORK = parse_network("RI(4)_SW(8)")


def by_hand(overlap, bandwidth):
    """The same training loop in plain arithmetic."""
    inner = 8e6 * 2 * 3 / 4 / bandwidth[0]
    outer = 64e6 * 2 * 7 / 8 / bandwidth[1]
    exchange = 4e6 * 3 / 4 / bandwidth[0]
    if not overlap:
        return 12e-3 + 2 * inner + outer + exchange
    first = max(2e-3 + inner, 5e-3 + outer)
    second = max(2e-3 + exchange, 5e-3)
    return 2e-3 + inner + first + second


@pytest.mark.parametrize("loop", list(Loop))
@pytest.mark.parametrize("bandwidth", [(1e9, 1e9), (1e8, 1e11), (3e10, 2e9), (1e7, 1e12)])
def test_training_loops_by_hand(loop, bandwidth):
    groups = hybrid_communicator(NETWORK, 4)
    time = add_up(layer_times(NETWORK, TWO, groups, FULL), loop)
    expected = by_hand(loop == Loop.OVERLAP, bandwidth)
    assert time.evaluate(bandwidth) == pytest.approx(expected)
    model = compile_time(time, 2)
    assert model.time(np.array(bandwidth)) == pytest.approx(expected)


def test_a_loop_of_the_user():
    def gradients_at_the_end(steps):
        return total(
            step.count * (step.forward_compute + step.forward_comm + maximum(
                step.input_grad_compute + step.weight_grad_compute, step.weight_grad_comm
            ))
            for step in steps
        )  # fmt: skip

    groups = hybrid_communicator(NETWORK, 4)
    time = add_up(layer_times(NETWORK, TWO, groups, FULL), gradients_at_the_end)
    inner, outer = 12e6 / 1e9, 112e6 / 1e9
    assert time.evaluate((1e9, 1e9)) == pytest.approx(2e-3 + inner + max(5e-3, outer) + 5e-3)
    with pytest.raises(InputError, match="training loop returned 5"):
        add_up(layer_times(NETWORK, TWO, groups, FULL), lambda steps: 5)


def test_groups_of_single_layers():
    base = hybrid_communicator(NETWORK, 4).groups
    outer = NpuGroup((1, 8), (1, 1))
    groups = Communicator(base, (("layer_1", (base[0], outer, base[2])),))
    time = add_up(layer_times(NETWORK, TWO, groups, FULL), Loop.NONE)
    expected = by_hand(False, (1e9, 1e9)) - 4e6 * 3 / 4 / 1e9 + 4e6 * 7 / 8 / 1e9
    assert time.evaluate((1e9, 1e9)) == pytest.approx(expected)


def test_equal_collectives_fold():
    groups = hybrid_communicator(NETWORK, 4)
    many = layers(*[[(1e-3, REDUCE, 1e6 * (i + 1)), (1e-3, Collective.ALL_GATHER, 1e5),
                     (1e-3, REDUCE, 5e6)] for i in range(50)])  # fmt: skip
    model = compile_time(add_up(layer_times(NETWORK, many, groups), Loop.NONE), 2)
    assert model.nodes == 2
    alike = layers(*[[(1e-3, REDUCE, 1e6), (1e-3, REDUCE, 1e6), (1e-3, REDUCE, 5e6)]] * 50)
    assert len(alike.distinct) == 1
    overlapped = compile_time(add_up(layer_times(NETWORK, alike, groups), Loop.OVERLAP), 2)
    assert overlapped.nodes == 3


@given(seed=st.integers(0, 10**6))
def test_compiled_models_equal_their_expressions(seed):
    rng = np.random.default_rng(seed)

    def expression(depth):
        parts = [
            comm((rng.integers(0, 3, 3) * 1e9).tolist(), float(rng.integers(0, 4)))
            + float(rng.integers(0, 3))
            for _ in range(rng.integers(1, 4))
        ]
        if depth:
            parts += [expression(depth - 1) for _ in range(2)]
        made = maximum(*parts) if rng.random() < 0.6 else total(parts)
        return float(rng.integers(0, 3)) * made

    time = expression(3)
    model = compile_time(time, 3)
    for _ in range(5):
        b = rng.uniform(0.1, 9.0, 3) * 1e9
        assert model.time(b) == pytest.approx(time.evaluate(b.tolist()))


def test_expressions_refuse_what_is_not_convex():
    for bad in (lambda: -1.0 * compute(1.0), lambda: comm((1.0,)) * float("nan"),
                lambda: comm((-1.0,)), lambda: compute(-1.0), lambda: maximum(),
                lambda: compute(1.0) + "x"):  # fmt: skip
        with pytest.raises(InputError, match="expression"):
            bad()
    assert comm((0.0, 0.0)).terms == {}
    assert isinstance(3 + compute(1.0), Expr)
    assert maximum(comm((1.0,)) + 5.0, 2.0).evaluate([1.0]) == 6.0
    assert maximum(comm((1.0,)), 2.0).evaluate([1.0]) == 2.0


def test_several_workloads():
    first, second = comm((4.0, 1.0)) + 1.0, comm((1.0, 8.0)) + 2.0
    at = [1.0, 1.0]
    assert combine([first, second], [2.0, 1.0]).evaluate(at) == pytest.approx(2 * 5 + 10)
    assert combine([first, second], None, Together.MAXIMUM).evaluate(at) == 10.0
    relative = combine([first, second], None, Together.SUM, [5.0, 10.0])
    assert relative.evaluate(at) == pytest.approx(2.0)
    with pytest.raises(InputError, match="takes no time at all"):
        combine([first, second], None, Together.SUM, [5.0, 0.0])
    for weights, message in (([1.0], "1 weight for"), ([1.0, 0.0], "weight 0.0")):
        with pytest.raises(InputError, match=message):
            combine([first, second], weights)
    with pytest.raises(InputError, match="no workload"):
        combine([])
