"""Where the ranks of a layout run, and which of them exchange what over which wires."""

from collections import Counter

from codesign_base.counted import counted
from parallelism.operator_text import server_names
from parallelism.transformers.layout import Layout
from parallelism.transformers.records import LayoutQuestion
from topoopt.plan.plan import Plan
from topoopt.plan.rank_groups import servers_of
from topoopt.plan.ranks import Rank, ranks_of
from topoopt.report.evaluation import Evaluation
from topoopt.report.layout_map import MOST_SERVERS, layout_map
from topoopt.report.markup import Html, element, joined, number, table
from topoopt.report.rank_groups import RankGroups, kinds_of, rank_numbers


def ranks_section(found: Evaluation, layout: Layout) -> Html:
    """Return ranks, stages, groups and their wires in one picture, and the groups in a table.

    Parameters
    ----------
    found : Evaluation
    layout : Layout
        The plan's.

    Returns
    -------
    Html
    """
    ranks = ranks_of(found.plan)
    job = found.plan.job
    assert isinstance(job, LayoutQuestion)
    kinds = kinds_of(job.model, layout, ranks)
    many = found.plan.cluster.servers > MOST_SERVERS
    words = (
        "The outer numbers are servers, the boxes "
        + ("the stages on them" if many else "their GPUs with the numbers of their ranks")
        + (" (tensor innermost, then context, data, pipeline)" if not many else "")
        + (", darker or lighter by pipeline stage" if layout.pipeline > 1 and not many else "")
        + ". Arcs outside are groups within a server; lines inside are the one-way links that "
        "groups across servers use, forwarding included. Point at anything, or tap it, for its "
        "place; the switches hide a kind of group."
    )
    return joined(
        element("h3", "Ranks, groups and wires"),
        element("p", words, class_="note"),
        layout_map(found, layout, ranks, kinds),
        _group_table(found.plan, kinds),
    )


def _group_table(plan: Plan, kinds: list[RankGroups]) -> Html:
    rows = []
    rings = Counter(ring.group for ring in plan.rings)
    for kind in kinds:
        sets, first = kind.servers, kind.groups[0]
        told = [words for group in kind.groups for words in _wires(rings, kind, group)]
        rows.append(
            (
                kind.name, kind.what, number(len(kind.groups), str(len(kind.groups))),
                number(len(first), str(len(first))), rank_numbers(first), server_names(sets[0]),
                ", ".join(dict.fromkeys(told)),
            )
        )  # fmt: skip
    if not rows:
        return Html("")
    head = ("groups", "exchange", "number", "ranks", "of the first", "on", "over")
    return table(head, rows, words={0, 1, 4, 5, 6}, caption="Groups of ranks")


def _wires(rings: Counter[tuple[int, ...]], kind: RankGroups, group: list[Rank]) -> list[str]:
    servers, stage = servers_of(group), group[0].place["pipeline"]
    if len(servers) == 1:
        return ["links inside a server"]
    count = rings[servers] if stage in kind.rings else 0
    own = [f"{counted(count, 'ring')} of their own"] if count else []
    return [*own, *(["the plan's routes"] if not own or stage in kind.pairs else [])]
