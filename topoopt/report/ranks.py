"""Where the ranks of a layout run, and which of them exchange what over which wires."""

from collections.abc import Callable, Iterable, Sequence

from parallelism.operator_text import server_names
from parallelism.transformers.layout import Layout
from topoopt.plan.plan import Plan
from topoopt.plan.ranks import Rank, ranks_of
from topoopt.report.markup import Html, element, joined, number, table

MOST_SERVERS = 32
"""Servers that are drawn; of more, the first."""

COLOURS = 8
"""Colours of stages in the style sheet."""

Groups = list[tuple[Rank, ...]]


def ranks_section(plan: Plan, layout: Layout) -> Html:
    """Return GPUs by server in the colours of their stages, and the groups of ranks.

    Parameters
    ----------
    plan : Plan
    layout : Layout
        The plan's.

    Returns
    -------
    Html
    """
    ranks = ranks_of(plan)
    words = (
        "Each row is a server, each box a GPU with the number of its rank (tensor innermost, then "
        "context, data, pipeline). Colours are pipeline stages; point at a box for its place."
    )
    if plan.cluster.servers > MOST_SERVERS:
        words += f" Shown are the first {MOST_SERVERS} of {plan.cluster.servers} servers."
    stages = [
        element("span", element("span", class_=f"key r{stage}"), f"stage {stage}")
        for stage in range(min(layout.pipeline, COLOURS))
    ]
    return joined(
        element("h3", "Ranks and their groups"),
        element("p", words, class_="note"),
        element("p", stages, class_="keys") if layout.pipeline > 1 else "",
        _grid(ranks),
        _group_table(plan, layout, ranks),
    )


def groups_along(ranks: Iterable[Rank], axes: Sequence[str]) -> Groups:
    """Return the ranks that differ in the given axes only.

    Parameters
    ----------
    ranks : iterable of Rank
    axes : sequence of str
        Of "tensor", "context", "data" and "pipeline".

    Returns
    -------
    list of tuple of Rank
        Every rank is in one group.
    """
    return _by(ranks, lambda place: tuple(at for axis, at in place.items() if axis not in axes))


def expert_groups(layout: Layout, ranks: Iterable[Rank]) -> Groups:
    """Return the ranks of a stage that hold all of its experts once.

    Parameters
    ----------
    layout : Layout
    ranks : iterable of Rank

    Returns
    -------
    list of tuple of Rank
        Of a stage each next ``layout.expert_ranks`` ranks in the order of data and, within,
        context, each with all of its tensor ranks.
    """

    def key(place: dict[str, int]) -> tuple[int, ...]:
        flat = place["data"] * layout.context + place["context"]
        return place["pipeline"], flat // layout.expert_ranks

    return _by(ranks, key)


def _by(ranks: Iterable[Rank], key: Callable[[dict[str, int]], tuple[int, ...]]) -> Groups:
    found: dict[tuple[int, ...], list[Rank]] = {}
    for rank in ranks:
        found.setdefault(key(rank.place), []).append(rank)
    return [tuple(group) for group in found.values()]


def _grid(ranks: Iterable[Rank]) -> Html:
    """Return a row of boxes for each server."""
    shown = sorted(
        (rank for rank in ranks if rank.server < MOST_SERVERS), key=lambda r: (r.server, r.gpu)
    )
    rows: dict[int, list[Html]] = {}
    for rank in shown:
        place = ", ".join(f"{axis} {at}" for axis, at in rank.place.items())
        box = element(
            "span", str(rank.number), class_=f"rank r{rank.place['pipeline'] % COLOURS}",
            title=f"rank {rank.number}, server {rank.server}, GPU {rank.gpu}: {place}",
        )  # fmt: skip
        rows.setdefault(rank.server, []).append(box)
    body = [
        element("tr", element("th", f"server {server}", scope="row", class_="w"),
                element("td", boxes, class_="w"))
        for server, boxes in rows.items()
    ]  # fmt: skip
    made = element("table", element("caption", "Ranks by server", class_="unseen"),
                   element("tbody", body), class_="ranks")  # fmt: skip
    return element(
        "div", made, class_="scroll", tabindex=0, role="region", aria_label="Ranks by server"
    )


def _group_table(plan: Plan, layout: Layout, ranks: list[Rank]) -> Html:
    kinds = [
        ("tensor", "activations in every layer", groups_along(ranks, ("tensor",))),
        ("context", "keys and values in every layer", groups_along(ranks, ("context",))),
        ("expert", "tokens, all to all", expert_groups(layout, ranks) if layout.expert > 1 else []),
        ("data", "gradients and weights", groups_along(ranks, ("context", "data"))),
        ("pipeline", "activations between stages", groups_along(ranks, ("pipeline",))),
    ]
    rows = []
    for name, what, groups in kinds:
        if not groups or len(groups[0]) < 2:
            continue
        sets = [tuple(sorted({rank.server for rank in group})) for group in groups]
        first = groups[0]
        members = ", ".join(str(rank.number) for rank in first[:4])
        members += f" .. {first[-1].number}" if len(first) > 4 else ""
        wires = [_wires(plan, one, sums=name in ("data", "tensor")) for one in dict.fromkeys(sets)]
        rows.append(
            (
                name, what, number(len(groups), str(len(groups))),
                number(len(first), str(len(first))), members, server_names(sets[0]),
                ", ".join(dict.fromkeys(wires)),
            )
        )  # fmt: skip
    if not rows:
        return Html("")
    head = ("groups", "exchange", "number", "ranks", "of the first", "on", "over")
    return table(head, rows, words={0, 1, 4, 5, 6}, caption="Groups of ranks")


def _wires(plan: Plan, servers: tuple[int, ...], *, sums: bool) -> str:
    if len(servers) == 1:
        return "links inside a server"
    rings = sum(tuple(sorted(ring.order)) == servers for ring in plan.rings)
    if sums and rings:
        return f"{rings} ring{'s' * (rings > 1)} of their own"
    return "the plan's routes"
