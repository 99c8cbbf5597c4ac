"""Bounds of layouts of experts and heads: what exchange costs under every placement."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_transformers import HYBRID, LATENT, ONE_PART

import topoopt as to
from parallelism.accelerators import get_accelerator
from parallelism.device import Server
from parallelism.transformers.choices import Choices
from parallelism.transformers.implementation import get_stack
from parallelism.transformers.placement import Placement
from parallelism.transformers.schedules import schedule_of
from topoopt.bounds.bounds import strategy_bound
from topoopt.bounds.everything import wirings_of
from topoopt.bounds.exchanges import crossings_of, exchange_terms, ports_seconds
from topoopt.bounds.layouts import (
    layout_bound,
    passes_bound,
    placement_bound,
    sending_bound,
    tightened_bound,
)
from topoopt.fabric import Fabric
from topoopt.fabric.simulation import score
from topoopt.topology.fabrics import ideal_switch, random_regular

SERVER = Server(get_accelerator("h100"), 4, 150e9)
CLUSTER = to.Cluster(8, 3, "25Gbps")  # slow, so that the exchange counts
JOB = to.Job(
    LATENT, global_batch=32, server=SERVER,
    choices=Choices(zero=(0, 1, 3), context=(1, 2), recompute=("none",), replicate=(1, 2)),
)  # fmt: skip
PLAIN = JOB.family(8)
FAMILIES = [PLAIN, replace(PLAIN, implementation=get_stack("megatron-moe"))]

HYBRIDS = [replace(JOB, model=model).family(8) for model in (HYBRID, ONE_PART)]


@cache
def spread(which):
    """Layouts of a family whose experts are on several ranks; listed when first asked for."""
    return [x for x in FAMILIES[which].layouts() if x.expert_ranks > 1]


@cache
def in_context(which):
    """Layouts of a hybrid model whose context is on several ranks."""
    return [x for x in HYBRIDS[which].layouts() if x.context > 1]


def placed_time(family, layout, number, turn, switched):
    """Return a placement and its simulated time, on a switch or on a random direct network."""
    placements = family.placements(layout)
    placement = placements[turn % len(placements)]
    rate = CLUSTER.port_rate
    if switched:
        network, routes = ideal_switch(8, 3 * rate, 1e-6)
    else:
        network, routes = random_regular(
            8, 3, rate, 1e-6, np.random.default_rng(number), CLUSTER.port_model
        )
    time = score(Fabric("any", network, routes), family.build(placement))
    return placement, time


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1), st.integers(0, 10**6), st.integers(0, 5), st.booleans())
def test_no_placement_or_fabric_beats_the_bound(which, number, turn, switched) -> None:
    family = FAMILIES[which]
    layout = spread(which)[number % len(spread(which))]
    placement, time = placed_time(family, layout, number, turn, switched)
    wirings = wirings_of(family, CLUSTER)
    bound = layout_bound(family, wirings, layout)
    assert passes_bound(family, layout, schedule_of(layout, family.batch)).seconds <= bound.seconds
    placed = placement_bound(family, wirings, placement)
    assert placed is not None
    assert placed.seconds <= time
    if switched:  # a switch has no hops to count
        assert bound.terms["pipeline"] <= time * (1 + 1e-9)
    else:
        assert bound.seconds <= time


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1), st.integers(0, 10**6), st.integers(0, 5), st.booleans())
def test_no_placement_or_fabric_beats_the_bound_of_heads(which, number, turn, switched) -> None:
    family = HYBRIDS[which]
    layout = in_context(which)[number % len(in_context(which))]
    placement, time = placed_time(family, layout, number, turn, switched)
    wirings = wirings_of(family, CLUSTER)
    placed = placement_bound(family, wirings, placement)
    assert placed is not None
    assert placed.seconds <= time
    assert sending_bound(family, wirings, placement).seconds <= time
    if not switched:
        assert layout_bound(family, wirings, layout).seconds <= time


def test_waiting_for_heads_is_in_the_bound_of_a_placement() -> None:
    wirings = wirings_of(HYBRIDS[1], CLUSTER)
    instant = replace(wirings, bandwidth=1e18)
    layout = next(x for x in in_context(1) if (x.tensor, x.context, x.pipeline) == (4, 2, 1))
    (placement, *_) = HYBRIDS[1].placements(layout)
    slow, fast = (placement_bound(HYBRIDS[1], each, placement) for each in (wirings, instant))
    # Of what the rank of a server has for both, half comes from the other, at each pass.
    sent = HYBRIDS[1].loads(placement).heads_bytes.sum() / 2
    waits = layout.microbatches(HYBRIDS[1].batch) * sent / (3 * CLUSTER.port_rate)
    assert slow.seconds - fast.seconds == pytest.approx(waits, rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 5))
def test_crossings_are_those_counted_rank_by_rank(number, turn) -> None:
    layout = spread(0)[number % len(spread(0))]
    placements = PLAIN.placements(layout)
    placement = placements[turn % len(placements)]
    homes = placement.expert_groups() // placement.ranks_per_server
    across = crossings_of(placement)
    least = []
    for stage in range(layout.pipeline):
        waits = []
        for group in homes[:, :, stage].tolist():
            for home in group:
                pairs = sum(1 for a in group for b in group if a != home and b == home)
                waits.append(pairs)
        least.append(min(waits))
    assert across.awaited.tolist() == least
    assert across.inside.sum() == homes.size
    assert across.groups == homes.shape[0] * layout.pipeline


@pytest.mark.parametrize("servers", [8, 144])
def test_tokens_over_ports_are_counted_pair_by_pair(servers) -> None:
    family = replace(JOB, global_batch=144).family(servers) if servers > 8 else PLAIN
    layouts = [x for x in family.layouts() if x.expert_ranks > 1]
    layout = max(layouts, key=lambda x: (x.expert_ranks, x.pipeline, x.data))
    wirings = wirings_of(family, replace(CLUSTER, servers=servers))
    schedule = schedule_of(layout, family.batch)
    hops = 1 + sum((np.arange(servers) >= n).astype(int) for n in (3, 12, 39, 120))
    for placement in family.placements(layout):
        loads = family.loads(placement)
        demand = np.zeros((servers, servers))
        homes = placement.expert_groups() // placement.ranks_per_server
        for stage in range(layout.pipeline):
            parts = range(stage, loads.expert_bytes.shape[1], layout.pipeline)
            each = sum(loads.expert_bytes[:, part].sum() for part in parts)
            each *= schedule.microbatches / layout.expert_ranks
            for group in homes[:, :, stage].tolist():
                for a in group:
                    for b in group:
                        demand[a, b] += each if a != b else 0.0
        busiest = demand.sum(axis=0).max() / (3 * CLUSTER.port_rate)
        # 3 servers at one hop, 9 more at two and so on: the nearest are those that are sent most.
        rows = np.sort(demand, axis=1)[:, ::-1]
        links = float((rows @ hops).sum()) / (servers * 3 * CLUSTER.port_rate)
        found = ports_seconds(loads, crossings_of(placement), layout, schedule, wirings)
        assert found == pytest.approx(max(busiest, links))


def test_the_bound_counts_more_than_instant_messages() -> None:
    wirings = wirings_of(PLAIN, CLUSTER)
    wide = [x for x in spread(0) if x.expert_ranks > 4 and x.tensor == 1]
    assert wide
    for layout in wide[:6]:
        schedule = schedule_of(layout, PLAIN.batch)
        far = PLAIN.loads(Placement(layout, 4), {"context", "expert"})
        terms = exchange_terms(PLAIN, wirings, layout, schedule, far)
        fast = replace(wirings, bandwidth=1e18)
        instant = exchange_terms(PLAIN, fast, layout, schedule, far)
        assert max(terms.values()) > 1.05 * max(instant.values())


def test_a_bound_that_is_enough_is_no_higher_and_never_falls_below_what_was_asked() -> None:
    wirings, shortened = wirings_of(PLAIN, CLUSTER), 0
    for layout in spread(0)[::40]:
        exact = layout_bound(PLAIN, wirings, layout)
        assert layout_bound(PLAIN, wirings, layout, exact.seconds) == exact
        for share in (0.5, 0.9, 0.999):
            quick = layout_bound(PLAIN, wirings, layout, share * exact.seconds)
            assert share * exact.seconds < quick.seconds <= exact.seconds
            shortened += "exchange" not in quick.terms
    assert shortened > 10


def test_each_placement_is_bounded_by_all_that_is_known_of_it() -> None:
    wirings = wirings_of(PLAIN, CLUSTER)
    wide = [x for x in spread(0) if x.expert_ranks > 4 and x.tensor == 1]
    layout = next(x for x in wide if (x.pipeline, x.context, x.microbatch, x.zero) == (4, 2, 8, 1))
    loose = layout_bound(PLAIN, wirings, layout)
    apart = [
        strategy_bound(PLAIN.represented(each), 3, CLUSTER.port_rate, wirings.lag).seconds
        for each in PLAIN.placements(layout)
    ]
    tight, _ = tightened_bound(PLAIN, wirings, layout, loose)
    # The placement of which one term is least is not that of which another is.
    assert tight.seconds > 1.001 * max(loose.seconds, min(apart))


def test_a_family_with_other_software_builds_a_graph_of_its_own() -> None:
    for layout in spread(0):
        for placement in PLAIN.placements(layout)[:1]:
            mine = PLAIN.build(placement)
            other = replace(PLAIN, implementation=get_stack("megatron-moe"))
            fresh = replace(JOB, implementation=get_stack("megatron-moe")).family(8)
            assert other.build(placement).tasks == fresh.build(placement).tasks
            assert PLAIN.build(placement).tasks == mine.tasks
            if fresh.build(placement).tasks != mine.tasks:
                return
    raise AssertionError("the two stacks build the same graphs")
