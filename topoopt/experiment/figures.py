"""Draws the figures of an experiment, if matplotlib is there; the same bytes for the same rows."""

import io
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from topoopt.base.atomic import write_bytes_atomically
from topoopt.experiment.declaration import Experiment
from topoopt.experiment.rows import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MISSING = (
    "figures are not drawn: matplotlib is missing; pip install 'topoopt[figures]', then run the "
    "same with --resume"
)
_DOTS_PER_INCH = 150


def draw_figures(
    experiment: Experiment, rows: Sequence[Row], output: Path
) -> tuple[tuple[str, ...], str]:
    """Draw the figures of a finished run into its directory.

    Parameters
    ----------
    experiment : Experiment
    rows : sequence of dict
        Only those of cases that are ok are drawn.
    output : Path

    Returns
    -------
    names : tuple of str
        Files written, a PNG and an SVG for each figure.
    note : str
        Why there are none, if that needs saying.
    """
    good = [row for row in rows if row["status"] == "ok"]
    if experiment.draw is None or not good:
        return (), ""
    if find_spec("matplotlib") is None:
        return (), MISSING
    names: list[str] = []
    for name, figure in experiment.draw(good).items():
        for ending in ("png", "svg"):
            write_bytes_atomically(output / f"{name}.{ending}", _picture(figure, ending, name))
            names.append(f"{name}.{ending}")
    return tuple(names), ""


def _picture(figure: "Figure", ending: str, name: str) -> bytes:
    import matplotlib

    stream = io.BytesIO()
    # Without these an SVG would hold the date and random names.
    metadata = {"Date": None} if ending == "svg" else {"Software": None}
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(stream, format=ending, metadata=metadata, dpi=_DOTS_PER_INCH)
    return stream.getvalue()
