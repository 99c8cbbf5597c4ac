"""The topology as a drawing: servers on a circle, links by load, rings in colours."""

import math
from dataclasses import dataclass

import numpy as np

from codesign_base.arrays import Floats
from codesign_base.counted import counted
from parallelism.operator_text import server_names
from topoopt.plan.plan import Plan
from topoopt.plan.summary import free_ports, ring_word, rings_reduce
from topoopt.problem.units import format_bandwidth, format_bytes, format_time
from topoopt.report.evaluation import Evaluation
from topoopt.report.markup import Html, data_script, element, joined, number, table
from topoopt.topology.ring_links import ring_links
from topoopt.topology.totient import ring_places

MOST_LINKS = 4096
"""Links that are drawn; of more, the busiest."""

MOST_TOGGLES = 12
"""Rings with a switch of their own; the others share one."""

COLOURS = 8
"""Ring colours of the style sheet."""

_LEVELS = 6
_MIDDLE, _RADIUS = 500.0, 430.0


@dataclass(frozen=True)
class Drawing:
    """What is drawn.

    Parameters
    ----------
    seats : tuple of int
        The server on each place of the circle.
    links : tuple of int
        Indices of the links drawn, the least loaded first, so that the busiest lie on top.
    rings : tuple of tuple of int
        For each of the plan's links, the rings that use it.
    """

    seats: tuple[int, ...]
    links: tuple[int, ...]
    rings: tuple[tuple[int, ...], ...]


def draw(plan: Plan, load: Floats | None = None) -> Drawing:
    """Choose what is drawn, and where.

    Parameters
    ----------
    plan : Plan
    load : float64 array, shape (links,), optional
        What each link carries, relative to what it could.

    Returns
    -------
    Drawing
    """
    at = {(link.source, link.target): i for i, link in enumerate(plan.links)}
    rings: list[list[int]] = [[] for _ in plan.links]
    for number_, ring in enumerate(plan.rings):
        for here, there in ring_links(ring.order):
            if (here, there) in at:
                rings[at[here, there]].append(number_)
    weight = np.zeros(len(plan.links)) if load is None else load
    order = np.argsort(weight, kind="stable")[-MOST_LINKS:]
    return Drawing(seats_of(plan), tuple(order.tolist()), tuple(map(tuple, rings)))


def seats_of(plan: Plan) -> tuple[int, ...]:
    """Return the server on each place: the seats of a ring of all servers, or sorted."""
    servers = plan.cluster.servers
    for ring in plan.rings:
        if len(ring.order) == servers and math.gcd(ring.generator, servers) == 1:
            return ring_places(ring.order, ring.generator)
    return tuple(range(servers))


def label_step(servers: int) -> int:
    """Return which servers have their number written beside them: every one, or every so many."""
    return 2 ** math.ceil(math.log2(servers / 48)) if servers > 48 else 1


def wiring_svg(plan: Plan, drawing: Drawing, load: Floats | None = None) -> Html:
    """Return the drawing: one path a link, one circle a server.

    Parameters
    ----------
    plan : Plan
    drawing : Drawing
    load : float64 array, shape (links,), optional
        As in `draw`; widths and classes follow it.
    """
    servers = plan.cluster.servers
    at = {
        server: spot(2.0 * math.pi * place / servers - 0.5 * math.pi, _RADIUS)
        for place, server in enumerate(drawing.seats)
    }
    top = float(load.max()) if load is not None and load.size and load.max() > 0.0 else 1.0
    digits = 1 if servers <= 64 else 0
    # Lines get thinner where they are many, so that they do not run into one area.
    thick = min(1.0, max(0.25, (128 / max(len(drawing.links), 1)) ** 0.5))
    paths = []
    for index in drawing.links:
        link = plan.links[index]
        level = 2 if load is None else min(int(_LEVELS * load[index] / top), _LEVELS - 1)
        rings = drawing.rings[index]
        colour = f"r{rings[0] % COLOURS}" if rings else "rn"
        shape = curve(at[link.source], at[link.target], 0.07, digits)
        paths.append(element("path", d=shape, class_=f"{colour} l{level}", data_l=index))
    size = max(1.2, min(15.0, 0.55 * math.pi * _RADIUS / servers))
    every = label_step(servers)
    dots, names = [], []
    for place, server in enumerate(drawing.seats):
        x, y = at[server]
        dots.append(element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=f"{size:.1f}", data_s=server))
        if place % every == 0:
            far = (_RADIUS + size + 8.0 + 7.0 * len(str(servers))) / _RADIUS
            names.append(
                element(
                    "text", str(server),
                    x=f"{_MIDDLE + far * (x - _MIDDLE):.1f}",
                    y=f"{_MIDDLE + far * (y - _MIDDLE):.1f}",
                )
            )  # fmt: skip
    title = (
        f"{counted(servers, 'server')} on a circle, {len(drawing.links)} of "
        f"{counted(len(plan.links), 'link')} drawn between them"
    )
    return element(
        "svg",
        element("title", title),
        element("g", paths, class_="links"),
        element("g", dots, class_="dots"),
        element("g", names, class_="names"),
        viewBox="0 0 1000 1000",
        class_="wiring",
        style=f"--many:{thick:.2f}",
        role="img",
        aria_label=title,
    )


def wiring_section(found: Evaluation) -> Html:
    """Return the drawing with its switches, what hovering tells, and the busiest links.

    Parameters
    ----------
    found : Evaluation
    """
    plan = found.plan
    if not plan.links:
        return element("p", "One server: there is no network.")
    network, sent = found.built.fabric.network, found.timeline.link_bytes
    use = sent / network.capacity / max(plan.iteration_time_s, 1e-300)
    drawing = draw(plan, use)
    names = ring_names(plan)
    tips, ends, rings = {}, {}, {}
    for index in drawing.links:
        link = plan.links[index]
        used = [names[r] for r in drawing.rings[index]]
        through = f"; {_some(used)}" if used else "; on no ring"
        cables = counted(link.cables, "cable")
        tips[index] = (
            f"{link.source} to {link.target}: {format_bandwidth(link.capacity_bytes_per_s)} "
            f"({cables}), {format_bytes(float(sent[index]))}, {use[index]:.1%} used{through}"
        )
        ends[index] = (link.source, link.target)
        rings[index] = drawing.rings[index]
    out = np.bincount(network.source, weights=sent, minlength=network.nodes)
    into = np.bincount(network.target, weights=sent, minlength=network.nodes)
    busy = found.server_busy
    servers = [
        f"server {v}: sends {format_bytes(float(out[v]))} and receives "
        f"{format_bytes(float(into[v]))} over its ports, forwarding included; computes "
        f"{format_time(float(busy[v]))}"
        for v in range(plan.cluster.servers)
    ]
    data = {
        "links": [[i, *ends[i], tips[i], rings[i]] for i in drawing.links],
        "servers": servers,
        "seats": drawing.seats,
        "toggles": MOST_TOGGLES,
    }
    return joined(
        element("p", _about(plan, drawing), class_="note"),
        element(
            "figure",
            _controls(names),
            element("div", wiring_svg(plan, drawing, use), class_="stage", tabindex=0,
                    role="application",
                    aria_label="Topology: arrow keys go from server to server and link to link"),
            _load_key(float(use.max(initial=0.0))),
            element("p", "Point at a link or a server, tap it, or focus the drawing and use the "
                    "arrow keys.", class_="readout", aria_live="polite"),
            id="wiring", class_="wide", data_mode="ring",
        ),
        data_script("wiring-data", data),
        element("h3", "Busiest links"),
        _busiest(found, use),
    )  # fmt: skip


def ring_names(plan: Plan) -> list[str]:
    """Return what each ring is called: its generator, or its number, and its servers if not all."""
    names = []
    for place, ring in enumerate(plan.rings, start=1):
        size = len(ring.order)
        over = "" if size == plan.cluster.servers else f" over {server_names(tuple(ring.order))}"
        # Rings of other groups than cycles have no one step.
        names.append(f"ring {f'+{ring.generator}' if ring.generator else place}{over}")
    return names


def _some(names: list[str]) -> str:
    if len(names) <= 4:
        return ", ".join(names)
    return f"{', '.join(names[:3])} and {counted(len(names) - 3, 'more ring')}"


def _about(plan: Plan, drawing: Drawing) -> str:
    free = free_ports(plan)
    words = (
        f"{plan.degree_allreduce} of {counted(plan.cluster.degree, 'port')} a server carry "
        f"{ring_word(plan)}s, {plan.degree_transfer - free} transfers"
        f"{f', {free} have no cable' if free else ''}; routing {plan.routing}. "
        "Every line is a one-way link, the wider the more of its capacity the iteration uses."
    )
    if plan.rings and not rings_reduce(plan):
        why = (
            "groups that reduce are smaller"
            if plan.allreduce_bytes
            else "nothing is reduced between them"
        )
        words += f" The rings only connect servers: {why}."
    if drawing.seats != tuple(range(len(drawing.seats))):
        words += " Servers are in the order of their seats on the rings."
    if len(drawing.links) < len(plan.links):
        words += (
            f" Drawn are the busiest {len(drawing.links)} of {counted(len(plan.links), 'link')}."
        )
    return words


def _controls(names: list[str]) -> Html:
    def switch(number_: int, name: str, colour: str) -> Html:
        box = element("input", type="checkbox", checked=True, data_ring=number_)
        return element("label", box, element("span", class_=f"key {colour}"), name)

    own = names[:MOST_TOGGLES]
    switches = [switch(i, name, f"r{i % COLOURS}") for i, name in enumerate(own)]
    if len(names) > MOST_TOGGLES:
        more = counted(len(names) - MOST_TOGGLES, "more ring")
        switches.append(switch(MOST_TOGGLES, more, "rn"))
    switches.append(switch(-1, "other links", "rn"))
    modes = [
        element("label", element("input", type="radio", name="colour", value=mode,
                                 checked=mode == "ring"), text)
        for mode, text in (("ring", "by ring"), ("load", "by load"))
    ]  # fmt: skip
    return element(
        "div",
        element("fieldset", element("legend", "Colour"), modes),
        element("fieldset", element("legend", "Show"), switches),
        element("fieldset", element("legend", "View"), zoom_buttons()),
        class_="controls",
    )


def zoom_buttons() -> Html:
    """Return buttons that the script gives their meaning."""
    return joined(
        element("button", sign, type="button", data_zoom=way, aria_label=name, title=name)
        for sign, way, name in (
            ("+", "in", "zoom in"),
            ("\N{MINUS SIGN}", "out", "zoom out"),
            ("reset", "reset", "show all"),
        )
    )


def _load_key(most: float) -> Html:
    steps = [
        element("span", element("span", class_=f"key l{level}"),
                f"to {most * (level + 1) / _LEVELS:.0%}")
        for level in range(_LEVELS)
    ]  # fmt: skip
    return element("p", "Used of a link's capacity: ", steps, class_="keys loads")


def _busiest(found: Evaluation, use: Floats) -> Html:
    plan, sent = found.plan, found.timeline.link_bytes
    # Loads that differ by the rounding of their sums are ties.
    ranked = sorted(range(len(plan.links)), key=lambda i: (-round(float(use[i]), 9), i))[:10]
    rows = [
        (
            f"{plan.links[i].source} to {plan.links[i].target}",
            number(
                plan.links[i].capacity_bytes_per_s,
                format_bandwidth(plan.links[i].capacity_bytes_per_s),
            ),
            number(float(sent[i]), format_bytes(float(sent[i]))),
            number(float(use[i]), f"{use[i]:.1%}"),
        )
        for i in ranked
    ]
    head = ("link", "capacity", "carries", "used")
    return table(head, rows, caption="The busiest links of the iteration")


def spot(angle: float, radius: float) -> tuple[float, float]:
    """Return where an angle is on a circle about the middle of a drawing."""
    return _MIDDLE + radius * math.cos(angle), _MIDDLE + radius * math.sin(angle)


def curve(start: tuple[float, float], end: tuple[float, float], bend: float, digits: int) -> str:
    """Return a chord, bent to its right so that both directions of a pair can be seen."""
    (x, y), (u, v) = start, end
    middle = ((x + u) / 2 - bend * (v - y), (y + v) / 2 + bend * (u - x))
    points = [f"{value:.{digits}f}" for value in (x, y, *middle, u, v)]
    return f"M{points[0]} {points[1]}Q{' '.join(points[2:])}"
