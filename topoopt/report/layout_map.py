"""A layout in one picture: ranks on their servers in the shades of their stages, groups, wires."""

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np

from codesign_base.counted import counted
from parallelism.transformers.layout import Layout
from topoopt.plan.ranks import Rank
from topoopt.report.evaluation import Evaluation
from topoopt.report.markup import Html, element
from topoopt.report.rank_groups import RankGroups, rank_numbers, wires_of
from topoopt.report.wiring import MOST_LINKS, label_step, seats_of, spot

SHADES = 6
"""Shades of stages in the style sheet."""

MOST_SERVERS = 128
"""Servers whose GPUs are drawn one by one; of more, a piece for each stage on the server."""

_MIDDLE = 500.0
_INNER, _OUTER = 330.0, 425.0
_TRACK = 11.0
_LEAST_TEXT = 12.0


def layout_map(
    found: Evaluation, layout: Layout, ranks: Sequence[Rank], kinds: Sequence[RankGroups]
) -> Html:
    """Return the picture of a layout, with switches for the kinds of groups.

    Parameters
    ----------
    found : Evaluation
    layout : Layout
        The plan's.
    ranks : sequence of Rank
    kinds : sequence of RankGroups
        Of groups, in the order of their tracks, the innermost first.

    Returns
    -------
    Html
    """
    plan = found.plan
    seats = seats_of(plan)
    slot = {server: place for place, server in enumerate(seats)}
    gpus = plan.job.server.gpus
    each = 2.0 * math.pi / len(seats)
    gap = 0.06 * each

    def angle(server: int, share: float) -> float:
        """Return where a share of a server's arc ends."""
        return each * slot[server] + gap + share * (each - 2.0 * gap) - 0.5 * math.pi

    wires = {kind.name: wires_of(kind, layout, found.built.fabric) for kind in kinds}
    shown = _shown(found, wires)
    by_server = {
        server: sorted(members, key=lambda rank: rank.gpu)
        for server, members in groupby(sorted(ranks, key=lambda r: r.server), lambda r: r.server)
    }
    cells, texts = [], []
    for server, members in by_server.items():
        for piece in _pieces(members, len(seats)):
            start = angle(server, piece[0].gpu / gpus)
            end = angle(server, (piece[-1].gpu + 1) / gpus)
            shade = _shade(piece[0].place["pipeline"], layout)
            cells.append(
                element("path", d=_sector(start, end), class_=f"s{shade}",
                        data_tip=_tip(piece))
            )  # fmt: skip
            size = min(24.0, 0.95 * (end - start) * _INNER)
            if size >= _LEAST_TEXT and len(piece) == 1:
                texts.append(_number(piece[0].number, 0.5 * (start + end), size, shade))
    arcs = []
    for track, kind in enumerate(kinds):
        inside: dict[tuple[int, int, int], list[str]] = {}
        for group, servers in zip(kind.groups, kind.servers, strict=True):
            if len(servers) == 1:
                at = [rank.gpu for rank in group]
                span = servers[0], min(at), max(at)
                inside.setdefault(span, []).append(rank_numbers(group))
        radius = _OUTER + 8.0 + track * _TRACK
        for (server, low, high), names in inside.items():
            start, end = angle(server, (low + 0.12) / gpus), angle(server, (high + 0.88) / gpus)
            words = f"{kind.name}, inside server {server}: ranks {'; '.join(names)}"
            path = _arc(start, end, radius)
            arcs.append(element("path", d=path, class_=f"g-{kind.name}", data_tip=words))
    chords = [
        element(
            "path",
            d=_chord(slot[link.source], slot[link.target], len(seats), place),
            class_=f"g-{kind.name}",
            data_tip=f"{kind.name}: server {link.source} to server {link.target}",
        )
        for place, kind in enumerate(kinds)
        for index in shown[kind.name]
        for link in (plan.links[index],)
    ]
    every = label_step(len(seats))
    far = _OUTER + 12.0 + len(kinds) * _TRACK
    names_ = [
        _label(server, angle(server, 0.5), far) for server in seats if slot[server] % every == 0
    ]
    title = (
        f"{counted(len(ranks), 'rank')} on {counted(len(seats), 'server')}, their groups and the "
        "links these use"
    )
    drawing = element(
        "svg",
        element("title", title),
        element("g", chords, class_="links", style=f"--many:{_thickness(len(chords)):.2f}"),
        element("g", cells, class_="cells"),
        element("g", texts, class_="numbers"),
        element("g", arcs, class_="arcs"),
        element("g", names_, class_="names"),
        viewBox="0 0 1000 1000", class_="layout-map", role="img", aria_label=title,
    )  # fmt: skip
    return element(
        "figure",
        _switches(kinds, wires),
        element("div", drawing, class_="stage"),
        _stages(layout),
        id="layout-map",
    )


def _shown(found: Evaluation, wires: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the wires that are drawn: all, or those on the busiest links."""
    total = sum(map(len, wires.values()))
    if total <= MOST_LINKS:
        return wires
    keep = MOST_LINKS // len(wires)
    busiest = set(np.argsort(-found.timeline.link_bytes, kind="stable")[:keep].tolist())
    return {name: tuple(i for i in links if i in busiest) for name, links in wires.items()}


def _pieces(members: Sequence[Rank], servers: int) -> Iterable[list[Rank]]:
    """Return a server's ranks one by one, or together those of a stage where servers are many."""
    if servers <= MOST_SERVERS:
        return [[rank] for rank in members]
    return [list(piece) for _, piece in groupby(members, lambda rank: rank.place["pipeline"])]


def _tip(piece: Sequence[Rank]) -> str:
    rank = piece[0]
    if len(piece) > 1:
        stage = rank.place["pipeline"]
        return f"server {rank.server}, stage {stage}: ranks {rank_numbers(piece)}"
    place = ", ".join(f"{axis} {at}" for axis, at in rank.place.items())
    return f"rank {rank.number}, server {rank.server}, GPU {rank.gpu}: {place}"


def _shade(stage: int, layout: Layout) -> int:
    """Return a stage's shade: one of its own, or shared with the stages beside it."""
    if layout.pipeline <= 1:
        return 0
    return round(stage * (SHADES - 1) / (layout.pipeline - 1))


def _switches(kinds: Sequence[RankGroups], wires: dict[str, tuple[int, ...]]) -> Html:
    boxes = []
    for kind in kinds:
        within = sum(len(servers) == 1 for servers in kind.servers)
        count = len(wires[kind.name])
        places = [f"{within} of {len(kind.groups)} inside servers"] if within else []
        places += [counted(count, "link")] if count else []
        sample = element(
            "svg", element("path", d="M0 6H34", class_=f"g-{kind.name}"), class_="sample",
            viewBox="0 0 34 12", aria_hidden="true",
        )  # fmt: skip
        box = element("input", type="checkbox", checked=True, value=kind.name)
        boxes.append(element("label", box, sample, f"{kind.name} ({', '.join(places)})"))
    legend = element("legend", "Groups")
    return element("div", element("fieldset", legend, boxes), class_="controls")


def _stages(layout: Layout) -> Html:
    """Return what the shades mean."""
    if layout.pipeline == 1:
        return Html("")
    runs = [
        (shade, [*stages])
        for shade, stages in groupby(range(layout.pipeline), lambda stage: _shade(stage, layout))
    ]
    keys = [
        element(
            "span",
            element("span", class_=f"key s{shade}"),
            f"stage {stages[0]}" if len(stages) == 1 else f"stages {stages[0]} to {stages[-1]}",
        )
        for shade, stages in runs
    ]
    return element("p", keys, class_="keys")


def _number(number: int, angle: float, size: float, shade: int) -> Html:
    """Return a rank's number along the radius, never upside down."""
    radius = 0.5 * (_INNER + _OUTER)
    x, y = spot(angle, radius)
    turn = math.degrees(angle)
    turn += 180.0 if math.cos(angle) < -1e-9 else 0.0
    return element(
        "text", str(number), transform=f"translate({x:.1f} {y:.1f}) rotate({turn:.1f})",
        font_size=f"{size:.1f}", class_=f"on{shade}" + (" tiny" if size < 20.0 else ""),
    )  # fmt: skip


def _label(server: int, angle: float, radius: float) -> Html:
    x, y = spot(angle, radius + 8.0)
    return element("text", str(server), x=f"{x:.1f}", y=f"{y:.1f}")


def _thickness(lines: int) -> float:
    return min(1.0, max(0.3, math.sqrt(96 / max(lines, 1))))


def _sector(start: float, end: float) -> str:
    wide = int(end - start > math.pi)
    (a, b), (c, d) = spot(start, _OUTER), spot(end, _OUTER)
    (e, f), (g, h) = spot(end, _INNER), spot(start, _INNER)
    return (
        f"M{a:.1f} {b:.1f}A{_OUTER:g} {_OUTER:g} 0 {wide} 1 {c:.1f} {d:.1f}"
        f"L{e:.1f} {f:.1f}A{_INNER:g} {_INNER:g} 0 {wide} 0 {g:.1f} {h:.1f}Z"
    )


def _arc(start: float, end: float, radius: float) -> str:
    (a, b), (c, d) = spot(start, radius), spot(end, radius)
    wide = int(end - start > math.pi)
    return f"M{a:.1f} {b:.1f}A{radius:g} {radius:g} 0 {wide} 1 {c:.1f} {d:.1f}"


def _chord(source: int, target: int, servers: int, kind: int) -> str:
    """Return a link inside the circle, bent to its right: each kind of group in a line of its own.

    Lines of one kind leave a server beside those of another.
    """
    each = 2.0 * math.pi / servers
    shift = each * (0.5 + 0.07 * (kind - 2.0))
    x, y = spot(each * source + shift - 0.5 * math.pi, _INNER - 6.0)
    u, v = spot(each * target + shift - 0.5 * math.pi, _INNER - 6.0)
    far = math.hypot(u - x, v - y) / (2.0 * _INNER)
    pull = 0.25 + 0.35 * (1.0 - far)
    bend = 0.05
    mx = (x + u) / 2 + pull * (_MIDDLE - (x + u) / 2) - bend * (v - y)
    my = (y + v) / 2 + pull * (_MIDDLE - (y + v) / 2) + bend * (u - x)
    return f"M{x:.1f} {y:.1f}Q{mx:.1f} {my:.1f} {u:.1f} {v:.1f}"
