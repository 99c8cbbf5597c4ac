"""The timeline of an iteration, drawn from its lanes."""

from topoopt.problem.units import format_time
from topoopt.report.evaluation import Evaluation
from topoopt.report.lanes import CLASSES, NANOSECONDS, Lane, Lanes, make_lanes
from topoopt.report.markup import Html, data_script, element, joined
from topoopt.report.wiring import zoom_buttons

_UNITS = 100_000
"""Widths of lanes are in so many parts of the iteration."""

_NAMES = {
    "forward": "forward",
    "backward": "backward",
    "update": "update",
    "transfer": "transfers",
}


def timeline_section(found: Evaluation) -> Html:
    """Return the lanes with their switches, and the data of what pointing at them tells."""
    made = make_lanes(found)
    whole = found.timeline.makespan or 1.0
    texts: dict[str, int] = {}
    lanes = []
    for lane in made.lanes:
        numbers: list[int] = []
        for segment in lane.segments:
            begin, end = (round(t * NANOSECONDS) for t in (segment.start, segment.end))
            numbers += [begin, end - begin, texts.setdefault(segment.label, len(texts))]
        lanes.append([lane.spoken, numbers])
    data = {"lanes": lanes, "texts": list(texts), "length": whole, "units": _UNITS}
    rows = [_row(number, lane, whole) for number, lane in enumerate(made.lanes)]
    names = {**_NAMES, "allreduce": made.collectives}
    keys = [
        element("span", element("span", class_=f"key t-{kind}"), names[kind]) for kind in CLASSES
    ]
    keys.append(element("span", element("span", class_="key t-critical"), "critical"))
    return joined(
        element("p", _about(found, made), class_="note"),
        element(
            "figure",
            element(
                "div",
                element("p", keys, class_="keys"),
                element("fieldset", element("legend", "View", class_="unseen"), zoom_buttons()),
                class_="controls",
            ),
            element(
                "div",
                element("div", "time", class_="lane-name"),
                element("div", _axis(whole), class_="axis"),
                rows,
                class_="lanes", tabindex=0, role="application",
                aria_label="Timeline: plus and minus zoom, arrow keys move, 0 shows all",
            ),
            element("p", "Point at a segment or tap it. Zoom with the buttons, + and -, or Ctrl "
                    "and the wheel; drag or use the arrow keys to move.",
                    class_="readout", aria_live="polite"),
            id="timeline", class_="wide",
        ),
        data_script("timeline-data", data),
    )  # fmt: skip


def _about(found: Evaluation, made: Lanes) -> str:
    servers = found.plan.cluster.servers
    words = (
        "One iteration, simulated again from the plan. The critical path is the chain of tasks of "
        "which each starts when the one before ends; its parts are marked below. Of each server "
        "the upper lane shows what it computes, the lower one when it sends or receives transfers."
    )
    if found.tasks.devices > servers:
        words += (
            " Ranks of a server that compute the same at the same times share a lane; others have "
            "lanes of their own."
        )
    if found.built.schedule.streaming:
        words += (
            " It is alone on an idle cluster here; iterations in a row overlap, and the plan's "
            "time is their period."
        )
    if len(made.servers) < servers:
        words += (
            f" Shown are {len(made.servers)} of {servers} servers: those of the critical path, as "
            "far as there is room, and an even sample of the others."
        )
    if made.left_out:
        words += (
            f" {made.left_out} of {made.streams} {made.collectives} found no room in the lanes."
        )
    return words


def _axis(whole: float) -> Html:
    marks = []
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        marks.append(element("span", format_time(part * whole), style=f"left:{part:.0%}"))
    return joined(marks)


def _row(number: int, lane: Lane, whole: float) -> Html:
    shapes = []
    for kind in CLASSES:
        pieces = [
            _box(segment.start / whole, segment.end / whole, 0, 10)
            for segment in lane.segments
            if segment.kind == kind
        ]
        if pieces:
            shapes.append(element("path", d="".join(pieces), class_=f"t-{kind}"))
    marked = [
        _box(segment.start / whole, segment.end / whole, 8, 2)
        for segment in lane.segments
        if segment.critical
    ]
    if marked and number:
        shapes.append(element("path", d="".join(marked), class_="t-critical"))
    svg = element(
        "svg", shapes, viewBox=f"0 0 {_UNITS} 10", preserveAspectRatio="none", aria_hidden="true",
        class_=lane.size, data_lane=number,
    )  # fmt: skip
    return joined(element("div", lane.name, class_="lane-name"), svg)


def _box(start: float, end: float, top: int, height: int) -> str:
    x = round(start * _UNITS)
    width = max(1, round(end * _UNITS) - x)
    return f"M{x} {top}h{width}v{height}h-{width}z"
