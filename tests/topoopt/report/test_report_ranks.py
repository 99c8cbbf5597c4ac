"""Ranks and groups of a layout's report, held against Megatron's numbering written out."""

import re
from dataclasses import replace

import numpy as np
import pytest
from html_pages import Page
from hypothesis import given
from hypothesis import strategies as st
from small_layouts import (
    FEW,
    SMALL_MOE,
    layout_job,
    lone_layout_plan,
    shared_heads_plan,
    shared_layout_plan,
    shared_moe_plan,
    shared_spanning_plan,
    solved,
)
from small_plans import planned

import topoopt as to
from parallelism.transformers.choices import Choices
from parallelism.transformers.experts import Experts
from parallelism.transformers.layout import Layout
from tests.helpers.small_transformers import LIGHTNING, SHORT
from topoopt.plan.rank_groups import groups_along
from topoopt.plan.ranks import Rank, ranks_of
from topoopt.problem.job import nvlink_server
from topoopt.report import layout_map, render_report
from topoopt.report.evaluation import simulate_again
from topoopt.report.rank_groups import kinds_of, wires_of

DEGREES = st.sampled_from([1, 2, 4])


def numbered(layout):
    """Return all ranks as four nested loops count them, on servers of one GPU."""
    ranks = []
    for pipeline in range(layout.pipeline):
        for data in range(layout.data):
            for context in range(layout.context):
                for tensor in range(layout.tensor):
                    place = {
                        "tensor": tensor, "context": context, "data": data, "pipeline": pipeline
                    }  # fmt: skip
                    ranks.append(Rank(len(ranks), len(ranks), 0, place))
    return ranks


@given(tensor=DEGREES, context=DEGREES, data=DEGREES, pipeline=DEGREES)
def test_groups_are_those_of_the_numbering(tensor, context, data, pipeline) -> None:
    ranks = numbered(Layout(tensor, context, data, pipeline))
    for axes, stride, size in (
        (("tensor",), 1, tensor),
        (("context",), tensor, context),
        (("context", "data"), tensor, context * data),
        (("pipeline",), tensor * context * data, pipeline),
    ):
        found = groups_along(ranks, axes).values()
        groups = [[rank.number for rank in group] for group in found]
        assert sorted(number for group in groups for number in group) == list(range(len(ranks)))
        for group in groups:
            assert group == [group[0] + stride * place for place in range(size)]


def drawn(page, kind):
    """Return the texts of a kind's lines between servers, and of its arcs inside one."""
    tips = [
        attributes["data-tip"] for tag, attributes in page.elements
        if tag == "path" and attributes.get("class") == f"g-{kind}" and "data-tip" in attributes
    ]  # fmt: skip
    inside = f"{kind}, inside server "
    return [t for t in tips if not t.startswith(inside)], [t for t in tips if t.startswith(inside)]


def test_the_picture_shows_every_rank_on_its_server_and_the_groups() -> None:
    for plan in (shared_layout_plan(), shared_moe_plan()):
        page = Page(render_report(plan))
        tips = [
            attributes["data-tip"] for tag, attributes in page.elements
            if tag == "path" and attributes.get("data-tip", "").startswith("rank ")
        ]  # fmt: skip
        assert sorted(tips) == sorted(
            f"rank {rank.number}, server {rank.server}, GPU {rank.gpu}: "
            + ", ".join(f"{axis} {at}" for axis, at in rank.place.items())
            for rank in ranks_of(plan)
        )
        layout = plan.parallelization.layout
        shown = {row[0]: row for row in page.tables["Groups of ranks"][1:]}
        sizes = {
            "tensor": layout.tensor,
            "context": layout.context,
            "expert": layout.expert,
            "data": layout.data * layout.context,
            "expert-data": layout.data // layout.expert if layout.expert > 1 else 1,
            "pipeline": layout.pipeline,
        }
        assert set(shown) == {name for name, size in sizes.items() if size > 1}
        for name, row in shown.items():
            assert int(row[3]) == sizes[name]
            assert int(row[2]) * int(row[3]) == layout.gpus
        kinds = kinds_of(plan.job.model, layout, ranks_of(plan))
        assert [kind.name for kind in kinds] == list(shown)
        for kind in kinds:
            lines, arcs = drawn(page, kind.name)
            own = {servers[0] for servers in kind.servers if len(servers) == 1}
            assert {int(tip.split("inside server ")[1].split(":")[0]) for tip in arcs} == own
            assert bool(lines) == any(len(servers) > 1 for servers in kind.servers)


def experts_over_servers():
    """Return a plan whose experts' gradients go round other rings than all others."""
    choices = Choices(
        tensor=(1,), context=(1,), pipeline=(1,), expert=(4,), microbatch=(1,), zero=(1,),
        recompute=("none",), schedules=("1f1b",),
    )  # fmt: skip
    model = replace(SMALL_MOE, experts=Experts(8, 2, 1024))
    job = to.Job(model, server=nvlink_server("h100", 2), global_batch=16, choices=choices)
    return planned(job, to.Cluster(8, 4, "100Gbps"), simulated=2, baselines=())


@pytest.mark.parametrize(
    "plan",
    [
        experts_over_servers, shared_layout_plan, shared_moe_plan, shared_spanning_plan,
        shared_heads_plan, lone_layout_plan,
    ],
)  # fmt: skip
def test_wires_of_all_kinds_are_the_links_that_carry_bytes(plan) -> None:
    found = simulate_again(plan())
    layout = found.plan.parallelization.layout
    kinds = kinds_of(found.plan.job.model, layout, ranks_of(found.plan))
    drawn = {wire for kind in kinds for wire in wires_of(kind, layout, found.built.fabric)}
    assert drawn == set(np.flatnonzero(found.timeline.link_bytes).tolist())


def test_the_table_says_which_groups_have_rings_of_their_own() -> None:
    def over(plan):
        page = render_report(plan)
        rows = page[page.rindex("Groups of ranks") :].split("</table>")[0].split("<tr>")[2:]
        words = [re.sub(r"(<[^>]*>)+", "|", row).strip("|").split("|") for row in rows]
        return {row[0]: row[-1] for row in words}

    # Keys and values go round over all servers, in one copy of the states on each.
    job = layout_job(tensor=(1,), pipeline=(1,), context=(16,), **FEW)
    plan = solved(job)
    rings = len(plan.rings)
    assert rings > 1
    assert over(plan)["context"] == over(plan)["data"] == f"{rings} rings of their own"
    copies = {"replicate": (2,), "zero": (3,), "microbatch": (1,)}
    job = layout_job(tensor=(1,), pipeline=(1,), context=(1,), **copies)
    plan = solved(job)
    own = {ring.group for ring in plan.rings}
    assert (0, 2) in own
    assert over(plan)["copies"].endswith("of their own")
    plan = experts_over_servers()
    assert (0, 2, 4, 6) in {ring.group for ring in plan.rings}
    assert over(plan)["expert-data"].endswith("of their own")
    heads = over(shared_heads_plan())
    assert heads["context"].endswith("the plan&#x27;s routes")
    assert heads["pipeline"] == "the plan&#x27;s routes"


def test_of_many_servers_stages_are_drawn_and_the_busiest_links(monkeypatch) -> None:
    monkeypatch.setattr(layout_map, "MOST_SERVERS", 2)
    monkeypatch.setattr(layout_map, "MOST_LINKS", 8)
    plan = shared_layout_plan()
    page = Page(render_report(plan))
    pieces = [a["data-tip"] for tag, a in page.elements if "stage" in a.get("data-tip", "")]
    at = {(rank.server, rank.place["pipeline"]) for rank in ranks_of(plan)}
    assert {tuple(map(int, re.findall(r"\d+", tip)[:2])) for tip in pieces} == at
    kinds = kinds_of(plan.job.model, plan.parallelization.layout, ranks_of(plan))
    assert 0 < sum(len(drawn(page, kind.name)[0]) for kind in kinds) <= 8


def test_context_groups_of_linear_attention_send_to_each_other() -> None:
    plan = shared_heads_plan()
    kinds = {
        kind.name: kind
        for kind in kinds_of(plan.job.model, plan.parallelization.layout, ranks_of(plan))
    }
    # Of two stages, the first alone has attention.
    assert (kinds["context"].rings, kinds["context"].pairs) == ({0}, {0, 1})
    assert kinds["context"].what == "keys and values; heads of linear attention, all to all"
    for model, passed in (
        (LIGHTNING, "states of lightning attention"),
        (SHORT, "last tokens of gated short convolutions"),
    ):
        groups = kinds_of(model, plan.parallelization.layout, ranks_of(plan))
        (context,) = (kind for kind in groups if kind.name == "context")
        assert (context.rings, context.pairs) == ({0, 1}, set())
        assert context.what == f"keys and values; {passed}"
