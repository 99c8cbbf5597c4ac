"""A job by layouts goes on without some servers."""

from dataclasses import replace
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_layouts import SMALL_MOE, lone_layout_plan, shared_moe_plan
from small_plans import planned

import topoopt as to
from codesign_base import InfeasibleError, InputError
from parallelism.transformers.choices import Choices
from parallelism.transformers.layout import Layout
from parallelism.transformers.placement import AXES, Placement
from routing.network import Network
from routing.paths import ecmp_routes
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.fabric import Fabric, score
from topoopt.plan.rebuild import rebuild
from topoopt.problem.job import nvlink_server
from topoopt.problem.options import SearchOptions
from topoopt.search.layouts import LayoutSearch
from topoopt.search.survey import survey
from topoopt.studies.failures import random_cables, random_ports
from topoopt.studies.fewer_replicas import _kept, fewer_replicas
from topoopt.studies.server_failures import WAYS, after_servers, fail_servers, without_servers

FREE = Choices(
    tensor=(1, 2), microbatch=(1, 2), recompute=("none",),
    schedules=("1f1b", "interleaved", "zero-bubble"),
)  # fmt: skip


@pytest.fixture(scope="module")
def built():
    """Return a plan of four servers whose layouts may have any degrees, as objects."""
    job = to.Job(SMALL_MOE, server=nvlink_server("h100", 2), global_batch=24, choices=FREE)
    cluster = to.Cluster(4, 3, "100Gbps")
    return rebuild(planned(job, cluster, simulated=4, baselines=()))


def every_placement(family):
    """Return all placed layouts that fit."""
    return [
        placement
        for layout in family.layouts()
        for placement in family.placements(layout)
        if family.memory(placement).max() <= family.memory_limit
    ]


@pytest.mark.parametrize("dead", [(0,), pytest.param((1, 3), marks=pytest.mark.slow), (0, 1, 2)])
def test_the_survivors_run_about_the_best_of_all_layouts(built, dead):
    """Within 5 % of the best that an exhaustive look at each wiring finds, and never better."""
    found = after_servers(built, dead, seed=3)
    assert found.fits and found.why == "" and set(found.times) == set(WAYS)
    alive = 4 - len(dead)
    family = built.family.on(alive, 6 * alive)
    placements = every_placement(family)
    assert len(placements) > 10
    for how in ("skip", "new-rings"):
        fabric = without_servers(built.fabric, dead, how)
        best = min(score(fabric, family.build(placement)) for placement in placements)
        assert best * (1 - 1e-9) <= found.times[how] <= best * 1.05
    # With cables that may be moved the survivors are no slower than the best of what is left.
    assert found.times["rewired"] <= min(found.times.values()) * (1 + 1e-9)


def test_layouts_like_the_plans_are_among_them(built):
    """Those of the plan's degrees, but of data, even where others look more promising."""
    cluster, family = to.Cluster(2, 3, "100Gbps"), built.family.on(2, 12)
    options = SearchOptions(simulated=1)
    plain = LayoutSearch(Problem(family, cluster, options))
    plain.run()
    simulated = {one.candidate.layout for one in plain.placed}
    assert not any(plain.resembles(one.placement) for one in plain.placed)
    candidates = survey(plain.problem).candidates
    other = next(c for c in candidates if c.layout not in simulated)
    like = family.placements(other.layout)[-1]
    on_more_servers = replace(like, layout=replace(like.layout, data=2 * like.layout.data))
    search = LayoutSearch(Problem(family, cluster, options), like=on_more_servers)
    search.run()
    assert [one.placement for one in search.placed if search.resembles(one.placement)] == [like]
    fabric = without_servers(built.fabric, (2, 3))
    assert search.fastest_on(fabric)[1] <= score(fabric, family.build(like)) * (1 + 1e-9)


@pytest.mark.slow
def test_random_servers(built):
    found = fail_servers(built, 1, 3, seed=2)
    assert found.batch_share == 0.75
    assert found.undamaged == score(built.fabric, built.tasks())
    for trial in found.trials:
        assert trial == after_servers(built, trial.dead, seed=2)
    # All cables anew: it does not matter who is dead.
    assert np.ptp(found.times["rewired"]) == 0.0


@pytest.mark.slow
def test_rewired_is_a_topology_of_all_ports(built):
    found = after_servers(built, (0,))
    family = built.family.on(3, 18)
    cluster = to.Cluster(3, 3, "100Gbps")
    rewirer = Rewirer(Problem(family, cluster))
    pairs = [rewirer.wire(placement, "search") for placement in every_placement(family)]
    best = min(pair.time for pair in pairs if pair is not None)
    assert best * (1 - 1e-9) <= found.times["rewired"] <= best * 1.05


@pytest.mark.parametrize(("dead", "idle"), [(0, 2), (3, 1)])
def test_a_job_goes_on_without_the_replicas_that_lost_a_server(dead, idle):
    """Where no layout fills the servers that are left: the plan's on half of them."""
    small = rebuild(shared_moe_plan())
    found = after_servers(small, (dead,))
    assert found.fits and found.origin == "plan"
    # Two servers have four samples, and three would have six.
    half = replace(small.strategy, layout=replace(small.strategy.layout, data=2))
    tasks = small.family.on(2, 4).build(half)
    for how in ("skip", "new-rings"):
        left = without_servers(small.fabric, (dead,), how, (idle,))
        assert found.times[how] == pytest.approx(1.5 * score(left, tasks))
    both = after_servers(small, (dead, idle))
    assert found.times["rewired"] == pytest.approx(1.5 * both.times["rewired"])


def test_copies_of_sharded_states_stay_as_large_as_they_are():
    small = rebuild(shared_moe_plan())
    layout = replace(small.strategy.layout, replicate=2)
    job = replace(small, strategy=replace(small.strategy, layout=layout))
    assert layout.sharing == 2
    left = fewer_replicas(job, (0,)).placement.layout
    assert (left.data, left.replicate, left.sharing) == (2, 1, 2)
    # Without experts, and a rank a server: three replicas are no copies of two.
    alone = Placement(Layout(2, 1, 4, 1, 1, True, replicate=2), 2)
    assert fewer_replicas(replace(small, strategy=alone), (0,)) is None


def test_idle_servers_forward():
    """Of a ring of four without the first, the others are joined by the one that is idle."""
    here = np.arange(4)
    following = np.roll(here, -1)
    network = Network.from_links(
        "ring", 4, 0, [*here, *following], [*following, *here], capacity=1e9, latency=1e-6
    )
    fabric = Fabric("ring", network, ecmp_routes(network))
    left = without_servers(fabric, (0,), idle=(2,))
    assert (left.network.hosts, left.network.switches, left.network.links) == (2, 1, 4)
    assert left.routes.latency.reshape(2, 2) == pytest.approx(np.array([[0, 2e-6], [2e-6, 0]]))
    with pytest.raises(InfeasibleError):
        without_servers(fabric, (0, 2))


@given(
    st.sampled_from(["small", "two ranks", "spanning"]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2]),
    st.sampled_from([1, 2]),
    st.permutations(AXES),
    st.data(),
)
def test_replicas_go_together(gpus, expert, context, pipeline, order, data):
    """By networkx: those that a chain of servers and groups of experts joins to a dead server."""
    tensor, on_server = {"small": (1, 2), "two ranks": (2, 4), "spanning": (4, 2)}[gpus]
    if gpus == "spanning":
        expert = 1
    layout = Layout(tensor, context, 8, pipeline, expert)
    placement = Placement(layout, on_server, tuple(order))
    dead = data.draw(st.sets(st.integers(0, placement.servers - 1), min_size=1, max_size=3))
    graph = nx.Graph()
    for (c, d, p), rank in np.ndenumerate(placement.rank):
        for server in placement.rank_servers(int(rank)):
            graph.add_edge(("replica", d), ("server", server))
        together = (d * context + c) // layout.expert_ranks
        graph.add_edge(("replica", d), ("experts", together, p))
    joined = set()
    for server in dead:
        joined |= nx.node_connected_component(graph, ("server", server))
    expected = [("replica", d) not in joined for d in range(8)]
    assert _kept(placement, tuple(dead)).tolist() == expected


def test_why_a_job_does_not_go_on():
    small = rebuild(shared_moe_plan())
    for dead in combinations(range(4), 3):
        found = after_servers(small, dead)
        assert not found.fits and found.origin == ""
        assert all(np.isinf(time) for time in found.times.values())
        assert "no layout fills 2 GPUs with a global batch of 2" in found.why
    starved = replace(small, family=replace(small.family, memory_reserve=0.99999))
    assert "does not fit" in after_servers(starved, (0, 1)).why
    # Fewer samples than servers: none is left for a server.
    few = replace(small, family=small.family.on(4, 2))
    found = after_servers(few, (0,))
    assert "the batch of 2 samples is less than one a server of 4" in found.why
    with pytest.raises(InputError, match="dead"):
        after_servers(small, (4,))


@pytest.mark.parametrize("kind", ["cables", "ports", "servers"])
def test_nothing_can_fail_of_a_server_alone(kind):
    lone, rng = rebuild(lone_layout_plan()), np.random.default_rng(0)
    network = lone.fabric.network
    with pytest.raises(InputError, match=f"1 {kind[:-1]} is to fail.*plan more servers"):
        if kind == "cables":
            random_cables(network, 1, rng, both_ways=False)
        elif kind == "ports":
            random_ports(network, 1, rng, both_ways=False)
        else:
            fail_servers(lone, 1, 1)
