"""What figures of several experiments have in common: colours that all can tell apart, and bars."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from topoopt.experiment.rows import Row, Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Figures: TypeAlias = "Mapping[str, Figure]"
"""Figures by name."""

# M. Okabe and K. Ito, "Color Universal Design" (2008), black first, yellow left out.
PALETTE = ("#000000", "#D55E00", "#0072B2", "#E69F00", "#009E73", "#56B4E9", "#CC79A7", "#999999")
MARKS = "osD^vP<>"


def panels_of(
    count: int,
    *,
    wide: int = 3,
    size: tuple[float, float] = (3.3, 2.9),
    around: tuple[float, float] = (0.6, 0.5),
    share_y: bool = False,
) -> "tuple[Figure, list[Axes]]":
    """Return a figure with so many panels, row by row.

    Parameters
    ----------
    count : int
        At least one.
    wide : int
        Panels in a row.
    size, around : (float, float)
        Inches of a panel, and what the figure has beside all of them.
    share_y : bool
        Whether panels of a row have one scale.

    Returns
    -------
    Figure, list of Axes
    """
    from matplotlib.figure import Figure

    columns = min(count, wide)
    lines = -(-count // columns)
    inches = (size[0] * columns + around[0], size[1] * lines + around[1])
    figure = Figure(figsize=inches, layout="constrained")
    grid = figure.subplots(
        lines, columns, squeeze=False, sharey="row" if share_y else False
    ).ravel()
    for axes in grid[count:]:
        axes.set_visible(False)
    return figure, list(grid[:count])


def grouped_bars(
    axes: "Axes", rows: Sequence[Row], *, group: str, kind: str, value: str, scale: float = 1.0
) -> None:
    """Draw a bar for each kind in each group: the mean of its rows, and a whisker to the extremes.

    Parameters
    ----------
    axes : Axes
    rows : sequence of dict
    group, kind, value : str
        Columns; groups and kinds are in order of first appearance.
    scale : float
        Values are multiplied by it.
    """
    groups = list(dict.fromkeys(row[group] for row in rows))
    kinds = list(dict.fromkeys(row[kind] for row in rows))
    width = 0.84 / len(kinds)
    for place, name in enumerate(kinds):
        spots, means, below, above = [], [], [], []
        for at, one in enumerate(groups):
            found = values_of(rows, {group: one, kind: name}, value, scale)
            if found:
                spots.append(at + width * (place - (len(kinds) - 1) / 2))
                mean, down, up = mean_and_whiskers(found)
                means.append(mean)
                below.append(down)
                above.append(up)
        several = max((*below, *above), default=0.0) > 0.0
        axes.bar(
            spots, means, 0.92 * width, label=str(name), color=PALETTE[place % len(PALETTE)],
            yerr=(below, above) if several else None, capsize=2, ecolor="#555555",
        )  # fmt: skip
    axes.set_xticks(range(len(groups)), [str(one) for one in groups])
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)


def mean_and_whiskers(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of values, and how far the least and the largest are below and above it."""
    # The mean of equal values may be off them by its rounding.
    mean = sum(values) / len(values)
    return mean, max(mean - min(values), 0.0), max(max(values) - mean, 0.0)


def lines_by_budget(axes: "Axes", rows: Sequence[Row], value: str) -> None:
    """Draw a value over the bandwidth of an NPU, a line a workload and number of dimensions.

    Parameters
    ----------
    axes : Axes
    rows : sequence of dict
        Of LIBRA's experiments.
    value : str
        A column.
    """
    for workload in dict.fromkeys(row["workload"] for row in rows):
        for dimensions, style in ((3, "--"), (4, "-")):
            job: dict[str, Value] = {"workload": workload, "dimensions": dimensions}
            budgets = values_of(rows, job, "budget_gbytes_per_s")
            if budgets:
                line = values_of(rows, job, value)
                axes.plot(budgets, line, style, label=f"{workload} {dimensions}D")
    axes.set_xlabel("GB/s per NPU")


def plain_ticks(axes: "Axes", places: Sequence[float]) -> None:
    """Write plain numbers on both logarithmic axes, none as powers of ten.

    Parameters
    ----------
    axes : Axes
    places : sequence of float
        Where the horizontal axis has its ticks.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    plain = FuncFormatter(lambda value, _: f"{value:g}")
    axes.set_xticks(sorted(set(places)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    low, high = axes.get_ylim()
    # Where there is less than a factor of ten, few of 1, 2 and 5 lie between.
    narrow = high < 10.0 * low
    axes.yaxis.set_major_locator(MaxNLocator(5) if narrow else LogLocator(subs=(1.0, 2.0, 5.0)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(plain)


def values_of(
    rows: Sequence[Row], where: dict[str, Value], value: str, scale: float = 1.0
) -> list[float]:
    """Return the values of the rows that have these entries, times a factor."""
    return [
        scale * float(row[value] or 0)
        for row in rows
        if row[value] is not None and all(row[key] == entry for key, entry in where.items())
    ]


def legend_below(figure: "Figure", axes: "Axes", columns: int = 4) -> None:
    """Set one legend for all panels under them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(columns, len(labels)),
        fontsize="small",
    )  # fmt: skip
