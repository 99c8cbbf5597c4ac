"""What an experiment script declares: its grid, what a case computes, its columns."""

import inspect
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from codesign_base import InputError
from topoopt.experiment.plots import Figures
from topoopt.experiment.rows import Row, Value
from topoopt.experiment.tables import Table

CaseGrid: TypeAlias = Mapping[str, Sequence[Value]] | Sequence[Mapping[str, Value]]

RESERVED_COLUMNS = ("status", "message")


@dataclass(frozen=True)
class Experiment:
    """One table or figure: which cases there are, and what each computes.

    Parameters
    ----------
    name : str
        Lower-case words joined by hyphens; also the name of its results directory.
    description : str
        One line above the table.
    source : str
        Paper and figure or table that it reproduces or extends; empty if none.
    grid : mapping of str to sequence, or sequence of mappings
        The cases: every combination of the listed values, the last name varying fastest, or an
        explicit list of inputs. Values are text, numbers, booleans or None.
    case : callable
        Called with the inputs of one case as keywords. Returns a mapping from exactly the
        names in ``columns`` to values (None: an empty cell), or a sequence of such mappings,
        one a row. It must be defined at the top level of a module and depend on nothing but
        its inputs. `InfeasibleError` makes the case a row marked infeasible.
    columns : sequence of str
        Result columns in the order of the table, with units in their names.
    quick_grid : same as grid, optional
        A grid of a minute or so, for ``--quick``; of a mapping, the entries in which it differs.
    tabulate : callable, optional
        Turns all rows (inputs, status, results, message) into the tables of ``table.md``;
        without it the table lists every row.
    draw : callable, optional
        Turns all rows into matplotlib figures by name, which are written as PNG and SVG. Called
        only where matplotlib is installed, which it imports itself.
    timings : sequence of str
        Those of ``columns`` that a clock measured. They go to ``timings.csv``, so that all other
        files are the same in every run.

    Raises
    ------
    InputError
        If the name, the columns or a grid are malformed, or ``case`` cannot take the inputs.
    """

    name: str
    description: str
    source: str
    grid: CaseGrid
    case: Callable[..., Mapping[str, object] | Sequence[Mapping[str, object]]]
    columns: Sequence[str]
    quick_grid: CaseGrid | None = None
    tabulate: Callable[[Sequence[Row]], Table | Sequence[Table]] | None = None
    draw: Callable[[Sequence[Row]], Figures] | None = None
    timings: Sequence[str] = ()

    def __post_init__(self) -> None:
        if re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", self.name) is None:
            raise InputError(
                f"experiment name is {self.name!r}; give lower-case words joined by hyphens"
            )
        if isinstance(self.columns, str) or not self.columns:
            raise InputError(
                f"experiment {self.name!r}: columns is {self.columns!r}; list at least one name"
            )
        unknown = [name for name in self.timings if name not in self.columns]
        if unknown:
            raise InputError(
                f"experiment {self.name!r}: timings names {unknown[0]!r}, which is no column; "
                "list it in columns, too"
            )
        self._check_names(expand_grid(self.grid, self.name)[0])
        if self.quick_grid is not None:
            self._check_names(self.cases(quick=True)[0])

    def _check_names(self, inputs: Row) -> None:
        names = [*inputs, *RESERVED_COLUMNS, *self.columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputError(
                f"experiment {self.name!r}: the column name {twice[0]!r} is used twice "
                f"(inputs, columns and {', '.join(RESERVED_COLUMNS)} must differ); rename one"
            )
        try:
            inspect.signature(self.case).bind(**inputs)
        except TypeError as error:
            raise InputError(
                f"experiment {self.name!r}: case() does not take the inputs {list(inputs)} "
                f"({error}); name its parameters like the grid"
            ) from None

    @property
    def lasting_columns(self) -> tuple[str, ...]:
        """The result columns that are the same in every run."""
        return tuple(column for column in self.columns if column not in self.timings)

    def cases(self, *, quick: bool = False) -> list[Row]:
        """Return the inputs of every case in the order of the grid.

        Raises
        ------
        InputError
            If ``quick`` is asked for and there is no quick grid.
        """
        if not quick:
            return expand_grid(self.grid, self.name)
        if self.quick_grid is None:
            raise InputError(f"experiment {self.name!r} has no quick grid; run it without --quick")
        grid, quick_grid = self.grid, self.quick_grid
        if isinstance(grid, Mapping) and isinstance(quick_grid, Mapping):
            quick_grid = {**grid, **quick_grid}
        return expand_grid(quick_grid, self.name)


def expand_grid(grid: CaseGrid, name: str = "grid") -> list[Row]:
    """Return the inputs of every case, in order.

    Parameters
    ----------
    grid : mapping of str to sequence, or sequence of mappings
        As in `Experiment`.
    name : str
        What the experiment is called in an error.

    Returns
    -------
    list of dict
        One mapping a case, all with the same names in the same order.

    Raises
    ------
    InputError
        If the grid is empty, cases differ in names or repeat, or a value is not text, a
        finite number, a boolean or None.

    Examples
    --------
    >>> expand_grid({"a": [1, 2], "b": ["x", "y"]})[1]
    {'a': 1, 'b': 'y'}
    """
    cases: list[Row]
    if isinstance(grid, Mapping):
        for key, values in grid.items():
            if isinstance(values, str) or not isinstance(values, Sequence):
                raise InputError(
                    f"experiment {name!r}: grid entry {key!r} is {values!r}; give a list of values"
                )
        cases = [
            dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())
        ]
    else:
        for given in grid:
            if set(given) != set(grid[0]):
                raise InputError(
                    f"experiment {name!r}: case {dict(given)} does not name the inputs "
                    f"{list(grid[0])} of the first case; give every case the same"
                )
        cases = [{key: given[key] for key in grid[0]} for given in grid]
    if not cases or not cases[0]:
        raise InputError(f"experiment {name!r} has an empty grid; give at least one case")
    seen: set[str] = set()
    for case in cases:
        for key, value in case.items():
            finite = not isinstance(value, float) or math.isfinite(value)
            if not (value is None or isinstance(value, str | int | float)) or not finite:
                raise InputError(
                    f"experiment {name!r}: input {key!r} is {value!r}; "
                    "give text, a finite number, a boolean or None"
                )
        text = json.dumps(case)
        if text in seen:
            raise InputError(f"experiment {name!r} lists the case {case} twice; remove one")
        seen.add(text)
    return cases


def case_text(inputs: Mapping[str, Value]) -> str:
    """Return the inputs of a case in one line: ``model=dlrm servers=16``."""
    return " ".join(f"{key}={value}" for key, value in inputs.items())
