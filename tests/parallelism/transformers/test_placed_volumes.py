"""Bytes between servers of placed layouts, counted GPU by GPU from the formulas of each group."""

from dataclasses import replace
from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_parts import stage_of
from trainings import training_of

from parallelism.accelerators import get_accelerator
from parallelism.device import Server
from parallelism.taskgraph import traffic_of
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.choices import Choices, LayoutSpace
from parallelism.transformers.collectives import (
    end_communications,
    layer_communications,
    pipeline_send,
    step_communications,
)
from parallelism.transformers.enumeration import enumerate_layouts
from parallelism.transformers.gpu import rates_of
from parallelism.transformers.layout import Layout
from parallelism.transformers.loads import _far_groups, loads_of
from parallelism.transformers.placed_tasks import iteration_tasks
from parallelism.transformers.placement import Placement, axis_orders
from parallelism.transformers.schedules import schedule_of
from parallelism.transformers.sends import network_bytes
from parallelism.transformers.stages import parts_of
from tests.helpers.small_transformers import (
    BESIDE,
    CHOSEN,
    DENSE_MODULES,
    FURTHER_TOKENS,
    HYBRID,
    LATENT,
    LIGHTNING,
    ONE_PART,
    SELECTIVE,
    VISION,
    gpt,
)

GPUS = 4
BATCH = 16
SERVER = Server(get_accelerator("h100"), GPUS, 150e9)
ALL = Choices(
    zero=(0, 1, 2, 3), recompute=("none", "full"), across_servers=True, context=(1, 2, 4),
    replicate=(1, 2, 4),
    schedules=(
        "gpipe", "1f1b", "eager-1f1b", "interleaved", "breadth-first", "zero-bubble",
        "zero-bubble-v",
    ),
)  # fmt: skip
MODELS = {
    "tied": gpt(8, 256, 8, 1000),
    "odd": gpt(7, 256, 8, 1000),
    "latent experts": LATENT,
    "chosen keys": CHOSEN,
    "further tokens": FURTHER_TOKENS,
    "dense modules": DENSE_MODULES,
    "vision": VISION,
    "linear attention": HYBRID,
    "states passed on": LIGHTNING,
    "sums over channels": SELECTIVE,
    "attention beside mamba": BESIDE,
    # Of eight groups, so that tensor groups that span servers exchange heads, too.
    "groups of mamba": replace(ONE_PART, linear=replace(ONE_PART.linear, key_heads=8)),
}
Coordinates = tuple[int, int, int, int]
# How often a buffer goes round the servers of a group.
ROUNDS = {"allreduce": 2, "reducescatter": 1, "allgather": 1}


@cache
def layouts_of(name: str) -> list[Layout]:
    return enumerate_layouts(LayoutSpace(MODELS[name], 16, GPUS, BATCH, MODELS[name].sequence, ALL))


def server_of(layout: Layout, order: tuple[str, ...], at: Coordinates) -> int:
    """Tensor ranks innermost, then the axes in their order."""
    tensor, context, data, pipeline = at
    where = {"context": context, "data": data, "pipeline": pipeline}
    number, stride = tensor, layout.tensor
    for axis in order:
        number += stride * where[axis]
        stride *= getattr(layout, axis)
    return number // GPUS


def ring_bytes(servers: list[int]) -> float:
    """What crosses servers of a buffer of one byte that goes once round a ring of these members.

    Each passes on all chunks but one, those on one server next to each other.
    """
    ring = sorted(servers)
    crossings = sum(a != b for a, b in zip(ring, ring[1:] + ring[:1], strict=True))
    return crossings * (len(ring) - 1) / len(ring)


def expected_bytes(
    model: Transformer, layout: Layout, order: tuple[str, ...]
) -> tuple[float, float]:
    """Bytes of collectives and of transfers between servers in one iteration."""
    t, c, d, p = layout.tensor, layout.context, layout.data, layout.pipeline
    rounds = layout.microbatches(BATCH)
    collective = transfers = 0.0
    step = step_communications(training_of(model, layout), rounds)
    stage_ranks = [(y, x) for y, x in product(range(d), range(c))]

    def servers(stage: int, ranks: list[tuple[int, int]], shard: int) -> list[int]:
        return [server_of(layout, order, (shard, x, y, stage)) for y, x in ranks]

    split = layout.expert_tensor or t

    def stage_gpus(stage: int) -> list[int]:
        return [server_of(layout, order, (k, x, y, stage)) for y, x in stage_ranks
                for k in range(t)]  # fmt: skip

    for stage in range(p):
        for message in step[stage]:
            if message.group == "embedding":
                if stage == 0:
                    for (y, x), shard in product(stage_ranks, range(t)):
                        ends = [server_of(layout, order, (shard, x, y, s)) for s in (0, p - 1)]
                        collective += 2 * message.size * ring_bytes(ends)
                continue
            if message.group in ("data", "copies"):
                whole = [servers(stage, stage_ranks, shard) for shard in range(t)]
            else:
                on = stage_gpus(stage)
                whole = [on[k :: split * layout.expert] for k in range(split * layout.expert)]
            # Next ranks are of one copy; those of all copies add up the same share.
            each = len(whole[0]) // layout.replicate
            groups = [
                again for one in whole for again in (
                    [one[k::each] for k in range(each)] if message.group == "copies"
                    else [one[k : k + each] for k in range(0, len(one), each)]
                )
            ]  # fmt: skip
            for group in groups:
                moved = ring_bytes(group) * ROUNDS[message.kind]
                collective += message.count * message.size * moved
    for part in parts_of(model, layout):
        layers = list(range(part.first, part.first + part.layers))
        # The first layer is dense in all of these models, the last one has experts in some.
        like = 0 if model.mtp_dense else model.layers - 1
        layers += [like] * (model.mtp_layers if part.head else 0)
        messages = [
            message
            for layer in layers
            for message in layer_communications(training_of(model, layout), layer)
        ]
        messages += end_communications(training_of(model, layout), part)
        for message in messages:
            times = rounds * message.count * message.size
            if message.group == "tensor":
                for y, x in stage_ranks:
                    group = [server_of(layout, order, (k, x, y, part.stage)) for k in range(t)]
                    collective += times * ring_bytes(group) * ROUNDS[message.kind]
            elif message.group == "context":
                for y, shard in product(range(d), range(t)):
                    group = servers(part.stage, [(y, x) for x in range(c)], shard)
                    if message.kind == "alltoall":
                        transfers += times / c * sum(a != b for a, b in product(group, group))
                        continue
                    # From rank to rank: all chunks but one go over each step between servers.
                    if len(set(group)) > 1:
                        collective += times * (c - 1) * len(set(group))
            else:
                assert message.group == "expert"
                # As Megatron-Core has them: an expert's tensor ranks innermost, then its group.
                size = split * layout.expert
                for first, shard in product(range(0, t * c * d, size), range(split)):
                    on = stage_gpus(part.stage)[first : first + size][shard::split]
                    away = sum(a != b for a, b in product(on, on))
                    transfers += times / layout.expert * away
    links = p * layout.virtual_stages - 1
    for boundary, (y, x), shard in product(range(links), stage_ranks, range(t)):
        here, there = (
            server_of(layout, order, (shard, x, y, stage_of(layout.schedule, p, part)))
            for part in (boundary, boundary + 1)
        )
        if here != there:
            transfers += rounds * sum(
                m.size for m in pipeline_send(training_of(model, layout)) if m.group == "pipeline"
            )
    return collective, transfers


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(sorted(MODELS)), st.integers(0, 10**6), st.integers(0, 5))
def test_servers_send_what_their_gpus_do(name: str, which: int, turn: int) -> None:
    model, layout = MODELS[name], layouts_of(name)[which % len(layouts_of(name))]
    order = axis_orders(layout)[turn % len(axis_orders(layout))]
    placement = Placement(layout, GPUS, order)
    loads = loads_of(training_of(model, layout), placement, rates_of("h100"), SERVER)
    schedule = schedule_of(layout, BATCH)
    traffic = traffic_of(iteration_tasks(placement, schedule, loads))
    collective, transfers = expected_bytes(model, layout, order)
    # Long messages reach 0.8 of a NIC, so that much more is carried.
    assert 0.8 * traffic.allreduce_sent() == pytest.approx(collective, rel=1e-9)
    assert 0.8 * traffic.transfer_sent() == pytest.approx(transfers, rel=1e-9)
    sent, _ = network_bytes(placement, schedule, loads)
    assert 0.8 * sent == pytest.approx(collective + transfers, rel=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(sorted(MODELS)), st.integers(0, 10**6), st.integers(0, 5))
def test_outputs_for_a_stage_on_the_same_server_take_its_links(name, which, turn) -> None:
    model, layout = MODELS[name], layouts_of(name)[which % len(layouts_of(name))]
    orders = axis_orders(layout)
    placement = Placement(layout, GPUS, orders[turn % len(orders)])
    training, rates = training_of(model, layout), rates_of("h100")
    loads = loads_of(training, placement, rates, SERVER)
    apart = loads_of(training, placement, rates, SERVER, far=_far_groups(placement))
    (each,) = [m.size for m in pipeline_send(training) if m.group == "pipeline"][:1] or [0.0]
    # A GPU reaches 0.75 of its links to the three others, and a message takes 3 us to begin.
    seconds = each / (0.75 * 3 * 150e9) + 3e-6
    ranks = list(product(range(layout.context), range(layout.data)))

    def on(at: tuple[int, int], part: int) -> int:
        stage = stage_of(layout.schedule, layout.pipeline, part)
        return server_of(layout, placement.order, (0, *at, stage))

    links = layout.pipeline * layout.virtual_stages - 1
    for before in range(links):
        stages = [stage_of(layout.schedule, layout.pipeline, before + i) for i in (0, 1)]
        stay = sum(on(at, before) == on(at, before + 1) for at in ranks) / len(ranks)
        # Of a rank over several servers each has its own share of the outputs.
        alone = stages[0] == stages[1] or layout.tensor > GPUS
        longer = 0.0 if alone else stay * seconds
        for kind, part in ((0, before), (1, before + 1)):
            added = loads.seconds[kind, part] - apart.seconds[kind, part]
            assert added == pytest.approx(longer, rel=1e-6, abs=1e-15)


def test_every_group_is_met() -> None:
    """The layouts above span servers with every kind of group."""
    for name, kinds in (("tied", "tensor context data pipeline"), ("latent experts", "expert")):
        for kind in kinds.split():
            assert any(getattr(layout, kind) > 1 for layout in layouts_of(name))
    assert any(layout.tensor > GPUS for layout in layouts_of("tied"))
    assert any(
        layout.tensor > GPUS and layout.context > 1 for layout in layouts_of("groups of mamba")
    )
    folded = [layout for layout in layouts_of("latent experts") if layout.expert_tensor]
    assert any(layout.expert > layout.data * layout.context for layout in folded)
