"""Placed layouts on a switch against the formula that published runs are met with."""

from dataclasses import replace

import pytest

from parallelism.transformers.implementation import get_stack
from parallelism.transformers.iteration import iteration_time
from parallelism.transformers.layout import Layout
from parallelism.transformers.links import Links
from parallelism.transformers.placement import Placement
from parallelism.transformers.presets import get_transformer
from parallelism.transformers.schedules import schedule_of
from topoopt.fabric import Fabric
from topoopt.fabric.simulation import score
from topoopt.problem.job import Job, nvlink_server
from topoopt.topology.fabrics import ideal_switch

NIC = 50e9
SIXTY_FOUR = {"tensor": 4, "pipeline": 4, "virtual_stages": 5}
CASES = [
    ("llama3-8b", Layout(context=2, data=16), 256),
    ("llama3-8b", Layout(context=2, data=16, zero=2, replicate=4), 256),
    ("llama3-8b", Layout(context=2, data=16, zero=3, replicate=4), 256),
    ("llama3-70b", Layout(**SIXTY_FOUR, context=2, data=2, schedule="interleaved"), 128),
    ("llama3-70b", Layout(**SIXTY_FOUR, data=4, schedule="breadth-first"), 64),
    ("llama3-70b", Layout(**SIXTY_FOUR, data=4, schedule="breadth-first", zero=0), 64),
    (
        "mixtral-8x7b",
        Layout(data=16, pipeline=4, expert=8, schedule="interleaved", virtual_stages=8),
        256,
    ),
]


@pytest.mark.parametrize("stack", ["megatron-core", "nemo"])
@pytest.mark.parametrize(("name", "layout", "batch"), CASES)
def test_a_plan_takes_the_time_of_the_formula_where_nothing_is_in_the_way(
    name, layout, batch, stack
) -> None:
    """Messages between stages wait for each other on the switch, which the formula leaves out."""
    servers, model, software = layout.gpus // 8, get_transformer(name), get_stack(stack)
    server = nvlink_server("h100", 8)
    job = Job(model, global_batch=batch, server=server, sequence=4096, implementation=software)
    family = job.family(servers)
    switch = Fabric("switch", *ideal_switch(servers, 8 * NIC, 1e-6))
    simulated = score(switch, family.build(Placement(layout, 8)))
    links, schedule = Links.of_server(server, 8 * NIC), schedule_of(layout, batch)
    expected = iteration_time(family.training(layout), schedule, family.rates, links)
    assert simulated == pytest.approx(expected, rel=0.025)


@pytest.mark.parametrize(
    ("layout", "batch", "sequence"),
    [(Layout(4, 4, 2, sequence_parallel=True), 16, 65536),
     (Layout(4, 8, 1, sequence_parallel=True), 8, 131072)],
)  # fmt: skip
def test_attention_alone_hides_keys_and_values_that_go_round_servers(
    layout, batch, sequence
) -> None:
    """Windows leave little attention to hide them, and products of a pass hide none of them.

    Nor does that of the layers that meet all keys hide those of the others. Ports are so fast that
    sums of gradients, which share them, hold up little.
    """
    server = nvlink_server("h100", 4)
    model = get_transformer("gemma3-27b")
    job = Job(model, global_batch=batch, server=server, sequence=sequence)
    family = job.family(8)
    switch = Fabric("switch", *ideal_switch(8, 16 * NIC, 1e-6))
    simulated = score(switch, family.build(Placement(layout, 4)))
    schedule = schedule_of(layout, batch)
    links = Links.of_server(server, 16 * NIC)
    expected = iteration_time(family.training(layout), schedule, family.rates, links)
    assert simulated == pytest.approx(expected, rel=0.01)


def test_tensor_groups_over_servers_reduce_inside_them_too() -> None:
    """NVLink or the way between servers, what is slower, and what each call holds up."""
    model, layout, batch = get_transformer("llama3-8b"), Layout(16), 4
    server, stack = nvlink_server("h100", 8), get_stack("aleph-alpha-2023")
    job = Job(model, global_batch=batch, server=server, sequence=4096, implementation=stack)
    family = job.family(2)
    switch = Fabric("switch", *ideal_switch(2, 8 * NIC, 0.0))
    simulated = score(switch, family.build(Placement(layout, 8)))
    alone = replace(job, implementation=replace(stack, collective_s=0.0)).family(2)
    instant = Links(8, 1e30, 1e30)
    computed = iteration_time(
        alone.training(layout), schedule_of(layout, batch), family.rates, instant
    )
    # Four of each layer forward and backward; of embedding and head three; and sums of the loss.
    calls, size = 8 * model.layers + 3, 2.0 * 4096 * model.hidden
    each = 15 / 16 * size * max(1 / (0.75 * 450e9), 1 / (0.8 * 8 * NIC))
    expected = computed + batch * (calls * (each + stack.collective_s) + 3 * stack.collective_s)
    assert simulated == pytest.approx(expected, rel=2e-3)
