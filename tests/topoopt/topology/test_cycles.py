"""Cycles of few servers: every order once, within ports; and the plan that needs one."""

from math import factorial

import networkx as nx
import numpy as np
import pytest
from small_layouts import SMALL_MOE

import topoopt as to
from parallelism.transformers.choices import Choices
from topoopt.problem.job import nvlink_server
from topoopt.problem.ports import PortModel
from topoopt.topology.cycles import cycle_wirings, one_way_wirings


def cables_of(topology):
    """Return the cables from each server to each, within its ports and joining all."""
    network = topology.network
    cables = np.zeros((network.hosts, network.hosts), dtype=np.int64)
    cables[network.source, network.target] = network.multiplicity
    assert max(cables.sum(axis=0).max(), cables.sum(axis=1).max()) <= (
        topology.degree_allreduce + topology.degree_transfer
    )
    assert nx.is_strongly_connected(nx.DiGraph(np.argwhere(cables > 0).tolist()))
    for ring in topology.rings:
        assert tuple(sorted(ring.members)) == tuple(range(network.hosts))
        assert all(cables[ring.members, np.roll(ring.members, -1)])
    return cables


@pytest.mark.parametrize("servers", [4, 5])
@pytest.mark.parametrize("degree", [1, 2, 3, 4])
@pytest.mark.parametrize("ports", PortModel)
def test_every_order_of_few_servers_is_wired_once(servers, degree, ports) -> None:
    found = list(cycle_wirings(to.Cluster(servers, degree, 1e9, ports)))
    both_ways = ports is PortModel.BIDIRECTIONAL
    if both_ways and degree == 1:
        assert found == []
        return
    orders = factorial(servers - 1) // (2 if both_ways or degree % 2 == 0 else 1)
    assert len(found) == orders
    for topology in found:
        cables_of(topology)
    assert len({topology.rings[0].members for topology in found}) == orders


@pytest.mark.parametrize("servers", [3, 4, 5])
@pytest.mark.parametrize("degree", [2, 3])
def test_all_cables_go_one_way_in_every_order(servers, degree) -> None:
    found = list(one_way_wirings(to.Cluster(servers, degree, 1e9)))
    wired = {cables_of(topology).tobytes() for topology in found}
    assert len(found) == len(wired) == factorial(servers - 1)
    for topology in found:
        assert sorted(cables_of(topology).ravel())[-servers:] == [degree] * servers
    assert not list(one_way_wirings(to.Cluster(servers, degree, 1e9, "bidirectional")))
    assert not list(one_way_wirings(to.Cluster(servers, 1, 1e9)))


@pytest.mark.parametrize("servers", [2, 6])
def test_other_numbers_of_servers_are_left_to_other_wirings(servers) -> None:
    assert not list(cycle_wirings(to.Cluster(servers, 2, 1e9)))
    assert not list(one_way_wirings(to.Cluster(servers, 2, 1e9)))


def test_stages_that_are_opposite_on_a_cycle_have_two_ways() -> None:
    job = to.Job(
        to.load_transformer("qwen2-1.5b"), global_batch=64,
        choices=Choices(tensor=(4,), pipeline=(8,), context=(1,), schedules=("eager-1f1b",)),
    )  # fmt: skip
    plan = to.co_optimize(job, to.Cluster(4, 2, "50Gbps"), baselines=["torus2d"])
    # The same cables; in the order of the stages around the cycle it takes 602 ms.
    assert plan.iteration_time_s <= plan.baselines["torus2d"].iteration_time_s < 0.53


def test_all_cables_may_go_one_way_round() -> None:
    """A stage has one message at a time for the next: the other cables would wait."""
    job = to.Job(
        to.load_transformer("qwen3-8b"), global_batch=16, sequence=4096,
        server=nvlink_server("h100", 2),
        choices=Choices(
            tensor=(2,), pipeline=(4,), context=(1,), microbatch=(1,), schedules=("zero-bubble-v",)
        ),
    )  # fmt: skip
    plan = to.co_optimize(job, to.Cluster(4, 2, "50Gbps"), baselines=[])
    assert {link.cables for link in plan.links} == {2} and len(plan.links) == 4
    # Each server joined to two others it takes 1.068 s.
    assert plan.iteration_time_s < 1.04


def test_servers_that_nothing_may_lose_must_be_worth_it() -> None:
    """For half a percent no wiring is chosen on which a dead server cuts off the others."""
    job = to.Job(
        SMALL_MOE, server=nvlink_server("h100", 2), global_batch=24,
        choices=Choices(pipeline=(4,), tensor=(1,), microbatch=(2,), schedules=("1f1b",)),
    )  # fmt: skip
    plan = to.co_optimize(job, to.Cluster(4, 3, "100Gbps"), baselines=[])
    assert len(plan.links) > 4
