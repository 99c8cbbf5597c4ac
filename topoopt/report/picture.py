"""Networks as separate pictures: SVG files for pages that are not reports."""

import math

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats
from codesign_base.counted import counted
from routing.network import Network
from topoopt.plan.plan import Plan
from topoopt.report.markup import Html, element
from topoopt.report.wiring import draw, wiring_svg

RING_COLOURS = ("0072b2", "e69f00", "009e73", "d55e00", "c7699b", "b0a000", "7a5ea8", "56a8d8")
"""Those that the colour-blind can tell, on light and dark pages alike."""
_STYLE = (
    "path{fill:none;stroke:#7b8894;stroke-width:2.5}circle,rect{fill:#fff;stroke:#4d5b69;"
    "stroke-width:3}rect{fill:#dfe6ec}text{fill:#7b8894;font:24px system-ui,sans-serif;"
    "text-anchor:middle;dominant-baseline:central}"
    + "".join(f".r{i}{{stroke:#{colour}}}" for i, colour in enumerate(RING_COLOURS))
)
_SIDE, _RADIUS = 1000.0, 430.0


def plan_picture(plan: Plan) -> str:
    """Draw the wiring of a plan: servers on a circle, links in the colours of their rings.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    str
        An SVG document, the same for the same plan.

    Raises
    ------
    InputError
        If the plan is one of a single server.
    """
    if not plan.links:
        raise InputError("the plan is for one server, which has no network to draw")
    return _document(wiring_svg(plan, draw(plan)))


def network_picture(network: Network) -> str:
    """Draw a network: servers on a circle, or under the layers of switches.

    Parameters
    ----------
    network : Network

    Returns
    -------
    str
        An SVG document, the same for the same network.
    """
    spots = _layers(network) if network.switches else _circle(network.hosts, _RADIUS)
    twin = {(int(a), int(b)) for a, b in zip(network.source, network.target, strict=True)}
    lines = []
    for here, there in sorted(twin):
        if (there, here) in twin and here > there:
            continue  # drawn once for both ways
        bend = 0.0 if network.switches else 0.12
        (x, y), (u, v) = spots[here], spots[there]
        middle = (0.5 * (x + u) + bend * (500.0 - 0.5 * (x + u)),
                  0.5 * (y + v) + bend * (500.0 - 0.5 * (y + v)))  # fmt: skip
        points = " ".join(f"{value:.1f}" for value in (*middle, u, v))
        lines.append(element("path", d=f"M{x:.1f} {y:.1f}Q{points}"))
    size = float(np.clip(620.0 / max(network.hosts, 1), 4.0, 15.0))
    nodes = [
        element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=f"{size:.1f}")
        for x, y in spots[: network.hosts]
    ]
    nodes += [
        element("rect", x=f"{x - size:.1f}", y=f"{y - size:.1f}", width=f"{2 * size:.1f}",
                height=f"{2 * size:.1f}")
        for x, y in spots[network.hosts :]
    ]  # fmt: skip
    title = (
        f"{counted(network.hosts, 'server')}"
        + f" and {counted(network.switches, 'switch', 'switches')}" * bool(network.switches)
    )
    return _document(
        element("svg", element("title", title), element("g", lines), element("g", nodes),
                viewBox="0 0 1000 1000", role="img", aria_label=title)
    )  # fmt: skip


def _document(svg: Html) -> str:
    """Make a drawing inside a page a file of its own."""
    opening, inside = svg.split(">", 1)
    style = element("style", Html(_STYLE))
    return f'{opening} xmlns="http://www.w3.org/2000/svg">{style}{inside}\n'


def _circle(count: int, radius: float) -> Floats:
    angle = 2.0 * math.pi * np.arange(count) / max(count, 1) - 0.5 * math.pi
    return 0.5 * _SIDE + radius * np.stack((np.cos(angle), np.sin(angle)), axis=1)


def _layers(network: Network) -> Floats:
    """Put servers below, and every switch as many layers above as it is hops away from one."""
    far = _hops_from_hosts(network)
    same = far[network.source] == far[network.target]
    if np.any(same & (far[network.source] > 0)):
        # Switches of one layer that are joined, as in a dragonfly: one circle inside another.
        inner = _circle(network.switches, 0.6 * _RADIUS)
        return np.concatenate((_circle(network.hosts, _RADIUS), inner))
    spots = np.zeros((far.size, 2))
    top = int(far.max())
    for layer in range(top + 1):
        here = np.flatnonzero(far == layer)
        spots[here, 0] = _SIDE * (np.arange(here.size) + 0.5) / here.size
        spots[here, 1] = 500.0 + 300.0 * (0.5 - layer / top) * 2.0
    return spots


def _hops_from_hosts(network: Network) -> np.ndarray:
    far = np.full(network.hosts + network.switches, -1)
    far[: network.hosts] = 0
    hops = 0
    while np.any(far[network.target[far[network.source] == hops]] < 0):
        reached = network.target[far[network.source] == hops]
        far[reached[far[reached] < 0]] = hops + 1
        hops += 1
    return far
