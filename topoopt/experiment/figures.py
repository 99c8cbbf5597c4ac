"""Draws the figures of an experiment, if matplotlib is there."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from topoopt.experiment.declaration import Experiment, Row

MISSING = "figures are not drawn: matplotlib is missing; pip install 'topoopt[figures]'"


def draw_figures(
    experiment: Experiment, rows: Sequence[Row], output: Path
) -> tuple[tuple[str, ...], str]:
    """Draw the figures of a finished run into its directory.

    Parameters
    ----------
    experiment : Experiment
    rows : sequence of dict
    output : Path

    Returns
    -------
    names : tuple of str
        Files written.
    note : str
        Why there are none, if that needs saying.
    """
    if experiment.draw is None:
        return (), ""
    if find_spec("matplotlib") is None:
        return (), MISSING
    return tuple(experiment.draw(rows, output)), ""
