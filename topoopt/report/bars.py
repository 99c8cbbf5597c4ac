"""Bars in tables: lengths for the eye, numbers beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topoopt.base.text import dollars
from topoopt.plan.records import Timed
from topoopt.problem.units import format_bandwidth, format_time
from topoopt.report.markup import Html, element, joined, number, table

# Bounds leave a part in 10^9 for rounding, which is no gap.
_NOTHING = 1e-8


@dataclass(frozen=True)
class Bar:
    """One row: a name, a time, and further cells.

    Parameters
    ----------
    name : str
    seconds : float
    cells : tuple of str
    ours : bool
        Whether it is the co-designed fabric.
    """

    name: str
    seconds: float
    cells: tuple[str, ...]
    ours: bool = False


def bar_table(
    bars: Sequence[Bar],
    head: Sequence[str],
    *,
    caption: str,
    mark: float | None = None,
    words: frozenset[int] = frozenset(),
) -> Html:
    """Return times as horizontal bars.

    Parameters
    ----------
    bars : sequence of Bar
    head : sequence of str
        Headings: of the names, of the times, and of the further cells.
    caption : str
    mark : float, optional
        Seconds of a line across all bars, the lower bound.
    words : frozenset of int
        Columns of further cells that hold words, counted from the table's first.
    """
    longest = max([bar.seconds for bar in bars] + [mark or 0.0]) or 1.0
    rows = []
    for bar in bars:
        length = element(
            "span", class_="bar ours" if bar.ours else "bar", style=_width(bar.seconds / longest)
        )
        line = ""
        if mark is not None:
            line = element("span", class_="mark", style=f"left:{mark / longest:.3%}")
        track = element("span", length, line, class_="track", aria_hidden="true")
        time = number(bar.seconds, format_time(bar.seconds), class_="value")
        name: str = element("strong", bar.name) if bar.ours else bar.name
        rows.append((name, element("span", track, time, class_="barcell"), *bar.cells))
    return table(head, rows, words={0, 1} | words, caption=caption)


def fabric_cells(ratio: float, cost: float | None, bandwidth: float, words: str) -> tuple[str, ...]:
    """Return what is behind a fabric's time: time over ours, cost, link, parallelization."""
    price = dollars(cost)
    return (
        number(ratio, f"{ratio:.2f}x"),
        price if cost is None else number(cost, price),
        number(bandwidth, format_bandwidth(bandwidth)),
        words,
    )


@dataclass(frozen=True)
class BarPart:
    """One part of a stacked bar.

    Parameters
    ----------
    name : str
    seconds : float
    colour : str
        A class of the style sheet.
    how : str
        How it was computed.
    """

    name: str
    seconds: float
    colour: str
    how: str


def stacked_bar(parts: Sequence[BarPart], *, label: str) -> Html:
    """Return a stacked bar with its legend as a table.

    Parameters
    ----------
    parts : sequence of BarPart
        Shown in proportion; parts below `_NOTHING` of the whole only in the legend.
    label : str
        What the bar shows, for readers that do not see it.
    """
    whole = sum(part.seconds for part in parts) or 1.0
    pieces, rows = [], []
    for part in parts:
        seconds = part.seconds if part.seconds > _NOTHING * whole else 0.0
        share = f"{seconds / whole:.1%}"
        shown = format_time(seconds)
        tip = f"{part.name}: {shown}, {share} of the iteration. {part.how}"
        if seconds:
            # Words that do not fit are hidden by the style sheet.
            name = element("span", part.name) if seconds > 0.08 * whole else ""
            pieces.append(
                element(
                    "span", name, class_=f"piece {part.colour}", style=_width(seconds / whole),
                    data_tip=tip, tabindex=0, role="img", aria_label=tip,
                )
            )  # fmt: skip
        key = element("span", class_=f"key {part.colour}")
        rows.append((joined(key, part.name), number(part.seconds, shown), share, part.how))
    bar = element("div", pieces, class_="stack", role="group", aria_label=label)
    head = ("part", "time", "share", "how it is computed")
    legend = table(head, rows, words={0, 3}, caption=label, kind="legend")
    return joined(bar, legend)


def _width(share: float) -> str:
    return f"width:{share:.3%}"


def times_text(fabrics: Mapping[str, Timed]) -> str:
    """Say that times are of packet trains, and which are not."""
    fluid = [name for name, each in fabrics.items() if each.packet_time_s is None]
    but = f"; but {', '.join(fluid)}: of the fluid model" if fluid else ""
    return f"Times are of packet trains{but}."
