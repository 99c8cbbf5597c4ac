"""Tables for pandas and figures for matplotlib, which are optional and loaded on demand."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from codesign_base import InputError
from codesign_base.arguments import told

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


def frame(rows: Iterable[Mapping[str, Any]]) -> "DataFrame":
    """Return rows as a pandas DataFrame; a column of None alone is one of numbers, not known.

    Parameters
    ----------
    rows : iterable of mapping
        Values by the names of columns, all with the same names.

    Returns
    -------
    pandas.DataFrame

    Raises
    ------
    InputError
        If pandas is not installed.
    """
    pandas = _optional("pandas", "frames")
    made: DataFrame = pandas.DataFrame.from_records([dict(row) for row in rows])
    # Else nothing could be worked out of it, and tables of several models would not go together.
    unknown = [name for name in made if made[name].isna().all()]
    return made.astype(dict.fromkeys(unknown, float))


def new_axes(axes: "Axes | None", size: tuple[float, float]) -> "Axes":
    """Return axes to draw in: those given, or of a new figure.

    Parameters
    ----------
    axes : matplotlib.axes.Axes, optional
    size : (float, float)
        Inches of a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        If matplotlib is not installed, or these are no axes.
    """
    if axes is not None:
        if not hasattr(axes, "plot"):
            raise InputError(f"axes is {told(axes)}; give axes of matplotlib, or leave it out")
        return axes
    pyplot = _optional("matplotlib.pyplot", "figures")
    made: Axes = pyplot.subplots(figsize=size, layout="constrained")[1]
    return made


def _optional(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError:
        name = module.split(".")[0]
        raise InputError(
            f"{name} is not installed; give pip install '{name}' or the extra topoopt[{extra}]"
        ) from None
