"""The cables as a picture: hosts on a circle, lines coloured by the port of their first end."""

import math
from collections import Counter

from codesign_base.counted import counted
from topoopt.deploy.deployment import Deployment
from topoopt.deploy.technician import label
from topoopt.report.markup import element
from topoopt.report.picture import RING_COLOURS
from topoopt.report.wiring import curve, seats_of, spot

_SIZE, _RADIUS = 1000.0, 380.0


def cabling_svg(made: Deployment) -> str:
    """Return the drawing; each line's title names its cable and ends.

    Parameters
    ----------
    made : Deployment
    """
    seats = seats_of(made.plan)
    angle = {server: 2 * math.pi * i / len(seats) - math.pi / 2 for i, server in enumerate(seats)}
    lines, dots, twins = [], [], Counter[tuple[int, int]]()
    for number, cable in enumerate(made.cabling.cables):
        (u, p), (v, q) = cable.source, cable.target
        # Parallel cables, and the two directions of a pair, are bent apart.
        twins[min(u, v), max(u, v)] += 1
        bend = 0.06 * twins[min(u, v), max(u, v)]
        shape = curve(spot(angle[u], _RADIUS), spot(angle[v], _RADIUS), bend, 1)
        title = (
            f"{label(made, cable)}: {made.name(u)} {made.port((u, p)).interface} "
            f"{'to and from' if cable.both_ways else 'to'} "
            f"{made.name(v)} {made.port((v, q)).interface}"
        )
        lines.append(
            element(
                "g", element("title", title),
                element("g", element("path", d=shape), fill="none", stroke_width="2.5",
                        stroke=f"#{RING_COLOURS[p % len(RING_COLOURS)]}",
                        marker_end=None if cable.both_ways else "url(#tip)"),
                id=f"cable-{number + 1}",
            )
        )  # fmt: skip
    for server in seats:
        x, y = spot(angle[server], _RADIUS)
        far = (_RADIUS + 24) / _RADIUS
        cos = math.cos(angle[server])
        anchor = "middle" if abs(cos) < 0.2 else ("start" if cos > 0 else "end")
        dots += [
            element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="7", fill="#444"),
            element("text", made.name(server), x=f"{_SIZE / 2 + far * (x - _SIZE / 2):.1f}",
                    y=f"{_SIZE / 2 + far * (y - _SIZE / 2) + 5:.1f}", text_anchor=anchor),
        ]  # fmt: skip
    tip = element(
        "defs",
        element("marker", element("path", d="M0 0L8 4L0 8z", fill="#444"), id="tip",
                viewBox="0 0 8 8", refX="14", refY="4", markerWidth="5", markerHeight="5",
                orient="auto"),
    )  # fmt: skip
    ports = [
        element("text", f"first end in port {p}", x="10", y=str(24 + 20 * place),
                fill=f"#{RING_COLOURS[p % len(RING_COLOURS)]}")
        for place, p in enumerate(sorted({cable.source[1] for cable in made.cabling.cables}))
    ]  # fmt: skip
    title = f"{counted(len(lines), 'cable')} of {counted(len(seats), 'server')}"
    return element(
        "svg", element("title", title), tip, lines, dots,
        ports, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {_SIZE:.0f} {_SIZE:.0f}",
        font_family="sans-serif", font_size="16",
    ) + "\n"  # fmt: skip
