"""Ranks and groups of a layout's report, held against Megatron's numbering written out."""

from html_pages import Page
from hypothesis import given
from hypothesis import strategies as st
from small_layouts import shared_layout_plan, shared_moe_plan

from parallelism.transformers.layout import Layout
from topoopt.plan.ranks import Rank, ranks_of
from topoopt.report import render_report
from topoopt.report.ranks import expert_groups, groups_along

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


@given(tensor=DEGREES, context=DEGREES, data=DEGREES, pipeline=DEGREES, expert=DEGREES)
def test_groups_are_those_of_the_numbering(tensor, context, data, pipeline, expert) -> None:
    if (data * context) % expert:
        expert = 1
    layout = Layout(tensor, context, data, pipeline, expert)
    ranks = numbered(layout)
    for axes, stride, size in (
        (("tensor",), 1, tensor),
        (("context",), tensor, context),
        (("context", "data"), tensor, context * data),
        (("pipeline",), tensor * context * data, pipeline),
    ):
        groups = [[rank.number for rank in group] for group in groups_along(ranks, axes)]
        assert sorted(number for group in groups for number in group) == list(range(len(ranks)))
        for group in groups:
            assert group == [group[0] + stride * place for place in range(size)]
    # Without a split of its own an expert is split over the tensor ranks: next ranks are a group.
    whole = [[rank.number for rank in group] for group in expert_groups(layout, ranks)]
    size = tensor * expert
    assert whole == [list(range(at, at + size)) for at in range(0, len(ranks), size)]


def test_the_page_shows_every_rank_on_its_server_and_the_groups() -> None:
    for plan in (shared_layout_plan(), shared_moe_plan()):
        page = Page(render_report(plan))
        rows = page.tables["Ranks by server"]
        assert [row[0] for row in rows] == [f"server {i}" for i in range(plan.cluster.servers)]
        boxes = [
            attributes["title"] for tag, attributes in page.elements
            if tag == "span" and (attributes.get("class") or "").startswith("rank ")
        ]  # fmt: skip
        assert sorted(boxes) == sorted(
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
            "pipeline": layout.pipeline,
        }
        assert set(shown) == {name for name, size in sizes.items() if size > 1}
        for name, row in shown.items():
            if name != "expert":
                assert int(row[3]) == sizes[name]
            assert int(row[2]) * int(row[3]) == layout.gpus
