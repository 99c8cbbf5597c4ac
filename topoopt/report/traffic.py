"""The traffic matrix as heat maps: AllReduce, transfers, and both."""

import numpy as np

from codesign_base.arrays import Floats
from topoopt.fabric.report import collective_noun
from topoopt.problem.units import format_bytes
from topoopt.report.evaluation import Evaluation
from topoopt.report.markup import Html, data_script, element, joined
from topoopt.report.raster import blocks, cell_texts, colour, levels, png_uri

MOST_CELLS = 144
"""Rows of a picture; with more servers, cells are sums over blocks of them."""

_SPREAD = 30.0  # largest over smallest, above which the scale is logarithmic
_LEFT, _TOP, _SIDE = 34, 18, 300


def traffic_section(found: Evaluation) -> Html:
    """Return the heat maps, and the data of what pointing at a cell tells."""
    servers = found.plan.cluster.servers
    if servers == 1:
        return element("p", "One server: nothing is sent.")
    size = -(-servers // MOST_CELLS)
    both = found.allreduce + found.transfers
    rings = collective_noun(found.tasks)
    shown = (
        (rings[:1].upper() + rings[1:], "to the next on their rings", found.allreduce),
        ("Transfers", "activations and their gradients", found.transfers),
        ("Both", f"{rings} and transfers", both),
    )
    texts: dict[str, int] = {}
    figures, cells = [], {}
    for name, about, matrix in shown:
        summed = blocks(matrix, size)
        figures.append(_map(name, about, matrix, summed, size))
        cells[name] = cell_texts(summed, texts)
    data = {
        "servers": servers,
        "block": size,
        "cells": cells,
        "texts": list(texts),
        "frame": [_LEFT, _TOP, _SIDE],
    }
    words = (
        "Bytes that the row server sends to the column server in one iteration. What servers "
        "forward for each other is not in it; a blank cell is nothing."
    )
    if size > 1:
        words += f" A cell is the sum over {size} x {size} servers."
    return joined(
        element("p", words, class_="note"),
        element(
            "div",
            element("div", figures, class_="maps"),
            element("p", "Point at a cell, tap it, or focus a map and use the arrow keys.",
                    class_="readout", aria_live="polite"),
            id="traffic",
        ),
        data_script("traffic-data", data),
    )  # fmt: skip


def _map(name: str, about: str, matrix: Floats, summed: Floats, size: int) -> Html:
    total = format_bytes(float(matrix.sum()))
    positive = summed[summed > 0.0]
    head = element("figcaption", element("strong", name), f" {total}", element("small", about))
    if not positive.size:
        return element("figure", head, element("p", "Nothing is sent.", class_="empty"))
    low, high = float(positive.min()), float(positive.max())
    logarithmic = high > _SPREAD * low
    picture = png_uri(levels(summed, low, high, logarithmic))
    cells, servers = summed.shape[0], matrix.shape[0]
    label = f"Heat map of {name} traffic, {total}; from {format_bytes(low)} to {format_bytes(high)}"
    marks = []
    for server in _ticks(servers):
        middle = (server / size + 0.5) * _SIDE / cells
        marks.append(
            element("text", str(server), x=_LEFT - 5, y=f"{_TOP + middle:.1f}", class_="row")
        )
        marks.append(element("text", str(server), x=f"{_LEFT + middle:.1f}", y=_TOP - 6))
    frame = {"x": _LEFT, "y": _TOP, "width": _SIDE, "height": _SIDE}
    svg = element(
        "svg",
        element("rect", class_="frame", **frame),
        element("image", href=picture, preserveAspectRatio="none", **frame),
        marks,
        element("rect", class_="cursor", x=0, y=0, width=0, height=0),
        viewBox=f"0 0 {_LEFT + _SIDE + 4} {_TOP + _SIDE + 4}",
        class_="map",
        role="application",
        tabindex=0,
        aria_label=f"{label}. Arrow keys go from cell to cell.",
        data_map=name,
    )
    return element("figure", head, svg, _scale(low, high, logarithmic))


def _scale(low: float, high: float, logarithmic: bool) -> Html:
    ramp = ",".join(f"rgb{colour(i / 8)}".replace(" ", "") for i in range(9))
    start = low if logarithmic else 0.0
    return element(
        "p",
        format_bytes(start),
        element("span", class_="ramp", style=f"background:linear-gradient(90deg,{ramp})"),
        format_bytes(high),
        " logarithmic" if logarithmic else "",
        class_="scale",
    )


def _ticks(servers: int) -> list[int]:
    """Return at most nine evenly spaced servers, by steps of a power of two."""
    step = 1
    while servers > 9 * step:
        step *= 2
    return np.arange(0, servers, step).tolist()
