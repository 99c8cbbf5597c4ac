"""Tokens to experts and back: which servers they reach, in how many bytes, beside what."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InputError
from parallelism.accelerators import get_accelerator
from parallelism.device import Server
from parallelism.taskgraph import TaskKind, traffic_of
from parallelism.transformers.collectives import layer_communications
from parallelism.transformers.costs import layer_costs
from parallelism.transformers.experts import Experts
from parallelism.transformers.exposure import communication_seconds
from parallelism.transformers.gpu import rates_of
from parallelism.transformers.implementation import STACKS, Implementation, get_stack
from parallelism.transformers.layout import Layout
from parallelism.transformers.links import Links
from parallelism.transformers.load import load_transformer
from parallelism.transformers.loads import loads_of
from parallelism.transformers.pass_seconds import all_part_seconds
from parallelism.transformers.placed_tasks import iteration_tasks
from parallelism.transformers.placement import Placement
from parallelism.transformers.reach import servers_reached
from parallelism.transformers.schedules import schedule_of
from tests.helpers.placed_tasks_oracle import plain_tasks
from tests.helpers.small_transformers import MIXTRAL
from tests.helpers.trainings import training_of
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.simulation import simulate
from topoopt.topology.fabrics import ideal_switch

DEEPSEEK = load_transformer("deepseek-v3")
SERVER = Server(get_accelerator("h100"), 2, 150e9)


def listed(experts: Experts, servers: int) -> float:
    """Mean servers over every choice of groups, and of experts in these."""
    own = experts.count // experts.groups
    counts = []
    for groups in combinations(range(experts.groups), experts.groups_per_token):
        pool = [group * own + one for group in groups for one in range(own)]
        for chosen in combinations(pool, experts.per_token):
            counts.append(len({one * servers // experts.count for one in chosen}))
    return float(np.mean(counts))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([(8, 1, 1), (8, 4, 2), (8, 2, 1), (12, 3, 2), (12, 6, 2), (12, 1, 1)]),
    st.integers(1, 3), st.sampled_from([1, 2, 3, 4, 6, 8, 12]),
)  # fmt: skip
def test_servers_of_a_token_are_those_of_all_choices(of, per_token: int, servers: int) -> None:
    count, groups, chosen = of
    if count % servers or max(groups, servers) % min(groups, servers):
        return
    if per_token > chosen * count // groups:
        return
    experts = Experts(count, per_token, 64, groups=groups, groups_per_token=chosen)
    assert servers_reached(experts, servers) == pytest.approx(listed(experts, servers))


def test_deepseek_reaches_at_most_four_servers_and_halves_what_crosses() -> None:
    """Of 8 copies 3.63 cross on 8 servers, 5.3 without the limit (DeepSeek-V3, section 2.1.2)."""
    experts = DEEPSEEK.experts
    reached = servers_reached(experts, 8)
    assert 3.6 < reached < 4
    free = servers_reached(replace(experts, groups=1, groups_per_token=1), 8)
    assert free == pytest.approx(8 * (1 - (7 / 8) ** 8), rel=0.02)
    layout = Layout(data=64, expert=64, sequence_parallel=False)
    slow = Links(8, 1e15, 1e9)  # only what crosses takes time
    seconds = {}
    for stack in ("megatron-core", "megatron-moe", "deepseek-v3"):
        messages = layer_communications(training_of(DEEPSEEK, layout, STACKS[stack]), 5)
        (message,) = {m for m in messages if m.kind == "alltoall" and m.when == "forward"}
        seconds[stack] = communication_seconds(message, layout, slow)
    plain = 2 * 8 * 4096 * 7168 * 7 / 8 / 1e9
    assert seconds["megatron-core"] == pytest.approx(plain)
    assert seconds["megatron-moe"] == pytest.approx(plain * reached / 8)
    # A byte and a share of a scale there, two back.
    low = (1 + 4 / 128 + 2) / 4
    assert seconds["deepseek-v3"] == pytest.approx(plain * reached / 8 * low)


def test_forwarding_inside_takes_all_copies_of_a_server() -> None:
    layout = Layout(data=16, expert=16, sequence_parallel=False)
    messages = layer_communications(training_of(DEEPSEEK, layout, STACKS["megatron-moe"]), 5)
    message = next(m for m in messages if m.kind == "alltoall")
    near = Links(8, 1e9, 1e15)
    assert communication_seconds(message, layout, near) == pytest.approx(message.size * 7 / 8 / 1e9)
    plain = replace(message, forwarded=None)
    assert communication_seconds(plain, layout, near) == pytest.approx(message.size * 7 / 16 / 1e9)


@pytest.mark.parametrize("degree", [2, 8])
def test_a_token_is_sent_once_to_each_rank(degree: int) -> None:
    """The bytes of a message, and what is sorted by expert, by listing all choices."""
    layout = Layout(data=8, expert=degree, sequence_parallel=False, zero=3)
    plain = replace(STACKS["fsdp2-moe"], forwarded_tokens=False)
    experts = Experts(16, 3, 64)
    model = replace(MIXTRAL, experts=experts)
    once, each = (
        next(
            m
            for m in layer_communications(training_of(model, layout, stack), 0)
            if m.kind == "alltoall"
        )
        for stack in (STACKS["fsdp2-moe"], plain)
    )
    share = listed(experts, degree) / experts.per_token
    assert once.size == pytest.approx(each.size * share)
    copies = layout.microbatch * model.sequence * experts.per_token * model.hidden * 2
    fewer = layer_costs(training_of(model, layout, plain), 0).forward.traffic
    fewer -= layer_costs(training_of(model, layout, STACKS["fsdp2-moe"]), 0).forward.traffic
    assert fewer == pytest.approx(copies * (12 - 2 - 2 * share))


def test_what_experts_send_back_is_not_computed_again() -> None:
    layout = Layout(data=8, expert=8, sequence_parallel=False, zero=3, recompute="full")
    for stack, times in (("fsdp2-moe", 1), ("megatron-core", 2)):
        found = layer_communications(training_of(MIXTRAL, layout, STACKS[stack]), 0)
        assert [m.count for m in found if m.when == "recompute"] == [times]


def placed(implementation: Implementation):
    layout = Layout(1, 1, 8, 1, expert=8, sequence_parallel=False, zero=0)
    placement = Placement(layout, 2)
    loads = loads_of(
        training_of(MIXTRAL, placement.layout, implementation), placement, rates_of("h100"), SERVER
    )
    return placement, schedule_of(layout, 16), loads


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_the_share_of_a_stack_runs_beside_the_pass(share: float) -> None:
    parts = placed(Implementation(overlap_expert=share))
    tasks = iteration_tasks(*parts)
    network, routes = ideal_switch(4, 1e9, 0.0)
    fabric = Fabric("switch", network, routes)
    assert simulate(fabric, tasks).makespan == pytest.approx(
        simulate(fabric, plain_tasks(*parts)).makespan, rel=2e-3
    )
    assert traffic_of(tasks).transfer_sent() == pytest.approx(
        traffic_of(iteration_tasks(*placed(Implementation()))).transfer_sent()
    )
    # Tokens of both ranks of a server to the 6 ranks of others, alone on its port; and what is
    # left without tokens: sums of gradients, the update.
    placement, order, loads = parts
    alone = iteration_tasks(placement, order, replace(loads, expert_bytes=0 * loads.expert_bytes))
    rest = simulate(fabric, alone).makespan
    for kind in (0, 1):
        busy = float(loads.seconds[kind, 0])
        sent = float(loads.expert_bytes[kind, 0]) * 2 * 6 / 8 / 1e9
        rest += 2 * (max(busy, share * sent) + (1 - share) * sent - busy)
    # Sums of gradients share the port with the tokens of the last pass.
    assert simulate(fabric, tasks).makespan == pytest.approx(rest, rel=0.05)


def test_forwarded_tokens_are_fewer_bytes_in_the_task_graph() -> None:
    sent = {
        name: traffic_of(iteration_tasks(*placed(one))).transfer_sent()
        for name, one in (
            ("plain", Implementation()),
            ("once", Implementation(forwarded_tokens=True)),
        )
    }
    assert sent["once"] == pytest.approx(sent["plain"] * servers_reached(MIXTRAL.experts, 4) / 2)
    kinds = iteration_tasks(*placed(Implementation(forwarded_tokens=True))).kind
    assert (kinds == TaskKind.TRANSFER).any()


def test_what_lasts_less_than_computing_hides_by_the_share_of_the_stack() -> None:
    layout = Layout(data=64, pipeline=4, expert=64, sequence_parallel=False)
    links = Links(8, 450e9, 500e9)
    waits = {
        share: all_part_seconds(
            training_of(DEEPSEEK, layout, Implementation(overlap_expert=share)),
            rates_of("h100"),
            links,
        )[1].communication
        for share in (0.0, 0.25, 1.0)
    }
    assert waits[0.0] > 0.0
    assert waits[0.25] == pytest.approx(0.75 * waits[0.0])
    assert waits[1.0] == 0.0


def test_stacks_of_experts_are_named() -> None:
    assert get_stack("deepseek-v3").precision == "fp8"
    assert get_stack("deepseek-v3", precision="bf16").precision == "bf16"
    assert get_stack("megatron-moe").forwarded_tokens
    with pytest.raises(InputError, match="groups_per_token is 1 of groups 8"):
        Experts(64, 16, 128, groups=8, groups_per_token=1)
    with pytest.raises(InputError, match="groups is 2048; give at most 1024"):
        Experts(2048, 2, 128, groups=2048)
    with pytest.raises(InputError, match="equal groups of the 64"):
        Experts(64, 2, 128, groups=7)
