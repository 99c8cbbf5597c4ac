"""Expert groups get direct links where that is faster, and plans of them verify."""

from dataclasses import replace

import pytest
from small_transformers import LATENT

import topoopt as to
from parallelism.accelerators import get_accelerator
from parallelism.device import Server
from parallelism.transformers.choices import Choices
from parallelism.transformers.family import LayoutFamily
from parallelism.transformers.placement import Placement
from topoopt.evaluate import wirings
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.evaluate.scoring import Scorer
from topoopt.search.crossed import crossed

SERVER = Server(get_accelerator("h100"), 2, 150e9)
CLUSTER = to.Cluster(16, 4, "25Gbps")
JOB = to.Job(
    LATENT, global_batch=64, server=SERVER,
    choices=Choices(tensor=(1,), pipeline=(4,), context=(1,), expert=(8,), zero=(1,)),
)  # fmt: skip
OPTIONS = to.SearchOptions(simulated=3)


@pytest.fixture(scope="module")
def problem():
    return Problem(JOB.family(16), CLUSTER, OPTIONS.settled("layouts", 16))


def placements(problem):
    family = problem.family
    return [
        placement
        for layout in family.layouts()[:3]
        for placement in family.placements(layout)
    ]  # fmt: skip


def test_groups_of_experts_are_joined_directly_where_that_is_faster(problem, monkeypatch) -> None:
    # Eight ranks on four servers exchange: three ports of four make that a full mesh.
    inside = next(p for p in placements(problem) if p.order == ("context", "data", "pipeline"))
    pair = Rewirer(problem).wire(inside, "test")
    monkeypatch.setattr(wirings, "exchange_wirings", lambda *_: iter(()))
    before = Rewirer(problem).wire(inside, "test")
    assert pair is not None
    assert before is not None
    assert pair.time < 0.9 * before.time
    network = pair.fabric.network
    links = set(zip(network.source.tolist(), network.target.tolist(), strict=True))
    for first in (0, 4, 8, 12):
        group = range(first, first + 4)
        assert all((a, b) in links for a in group for b in group if a != b)


@pytest.mark.slow
def test_no_placement_is_slower_for_the_choice(problem, monkeypatch) -> None:
    chosen = [Rewirer(problem).wire(p, "test") for p in placements(problem)]
    monkeypatch.setattr(wirings, "exchange_wirings", lambda *_: iter(()))
    alone = [Rewirer(problem).wire(p, "test") for p in placements(problem)]
    for one, other in zip(chosen, alone, strict=True):
        assert one is not None
        assert other is not None
        assert one.time <= other.time * (1 + 1e-9)


def test_others_are_tried_on_the_best_wirings(problem) -> None:
    first, *others = placements(problem)
    pair = Rewirer(problem).wire(first, "test")
    assert pair is not None
    found = crossed(problem, [pair], [(other, 0.0) for other in others])
    assert found
    best = pair.time
    for each in found:
        assert each.fabric is pair.fabric
        assert each.strategy in others
        assert each.time == Scorer(problem, pair.fabric)(each.strategy)
        assert each.time < best
        best = each.time
    assert crossed(problem, [pair], [(other, pair.time) for other in others]) == []
    assert crossed(problem, [], [(first, 0.0)]) == []


def test_what_wirings_were_made_for_is_tried_on_each_other(problem) -> None:
    first, *others = placements(problem)
    pair = Rewirer(problem).wire(first, "test")
    assert pair is not None
    best = crossed(problem, [pair], [(other, 0.0) for other in others])[-1]
    (found,) = crossed(problem, [pair, replace(best, time=pair.time)], [])
    assert (found.strategy, found.time) == (best.strategy, best.time)
    assert found.fabric is pair.fabric


def test_a_plan_of_meshes_verifies(tmp_path, monkeypatch) -> None:
    megatron = lambda family, layout: [Placement(layout, family.server.gpus)]  # noqa: E731
    for some in ("placements", "unlike_placements"):
        monkeypatch.setattr(LayoutFamily, some, megatron)
    plan = to.co_optimize(JOB, CLUSTER, OPTIONS, baselines=("ideal-switch",))
    links = {(link.source, link.target) for link in plan.links}
    assert all((a, b) in links for a in range(4) for b in range(4) if a != b)
    path = tmp_path / "plan.json"
    plan.save(path)
    result = to.verify_plan(path)
    assert result.ok, result.failures
