"""Rows to CSV and Markdown, the same bytes for the same rows."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from codesign_base import InputError
from codesign_base.counted import counted
from topoopt.experiment.rows import Row, Value
from topoopt.problem.units import format_number


@dataclass(frozen=True)
class Table:
    """A table to print: column names and rows of values.

    Parameters
    ----------
    columns : tuple of str
    rows : tuple of tuple
        One value a column; floats are printed with four significant digits.
    title : str
        A heading above it; empty for none.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    title: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise InputError(
                    f"table {self.title!r}: row {row} has {counted(len(row), 'value')} for "
                    f"{counted(len(self.columns), 'column')}; give one each"
                )


def listed(rows: Sequence[Row], columns: Sequence[str], title: str = "") -> Table:
    """Return the table that lists some columns of every row."""
    return Table(tuple(columns), tuple(tuple(row[c] for c in columns) for row in rows), title)


def grouped(rows: Sequence[Row], *columns: str) -> dict[tuple[Value, ...], list[Row]]:
    """Return the rows of cases with a result by their values in some columns."""
    found: dict[tuple[Value, ...], list[Row]] = {}
    for row in rows:
        if row["status"] == "ok":
            found.setdefault(tuple(row[c] for c in columns), []).append(row)
    return found


def pivot(rows: Sequence[Row], *, index: str, columns: str, value: str, title: str = "") -> Table:
    """Return a table with one row for each value of one column and one column for another's.

    Parameters
    ----------
    rows : sequence of dict
    index, columns : str
        The row and column headings, in order of first appearance.
    value : str
        What the cells hold. A row without a value shows its status instead.
    title : str

    Returns
    -------
    Table

    Raises
    ------
    InputError
        If two rows fall into one cell; filter the rows first.
    """
    heads = list(dict.fromkeys(row[columns] for row in rows))
    cells: dict[tuple[Value, Value], Value] = {}
    for row in rows:
        place = (row[index], row[columns])
        if place in cells:
            raise InputError(
                f"two rows have {index}={place[0]} and {columns}={place[1]}; "
                "filter the rows so that each cell has one"
            )
        cells[place] = row[value] if row["status"] == "ok" else row["status"]
    lines = tuple(
        (name, *(cells.get((name, head)) for head in heads))
        for name in dict.fromkeys(row[index] for row in rows)
    )
    return Table((index, *(_cell(head) for head in heads)), lines, title)


def pivots(
    rows: Sequence[Row],
    titles: Mapping[str, str],
    *,
    columns: str,
    label: str,
    index: str = "job",
    first: Value = None,
) -> list[Table]:
    """Return a table as `pivot` does for each of several values.

    Parameters
    ----------
    rows : sequence of dict
    titles : mapping of str to str
        What the cells hold, and the title of that table.
    columns : str
        The column headings.
    label : str
        The row heading, with names of columns to be filled in: ``"{model}, d={degree}"``.
    index : str
        What is over the row headings.
    first : str, number or None
        In which column the status of a case without a result is.

    Returns
    -------
    list of Table
    """
    named = [{**row, index: label.format(**row), columns: row[columns] or first} for row in rows]
    return [
        pivot(named, index=index, columns=columns, value=value, title=title)
        for value, title in titles.items()
    ]


def to_csv(rows: Iterable[Row], columns: Sequence[str]) -> str:
    """Return rows as CSV with all digits of every number; None is an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_exact(row[column]) for column in columns])
    return text.getvalue()


def to_markdown(title: str, description: str, source: str, tables: Sequence[Table]) -> str:
    """Return a page of Markdown: what was run, where it is from (if anywhere), and tables."""
    lines = [f"# {title}", "", description, ""]
    if source:
        lines += [f"Source: {source}", ""]
    for table in tables:
        if table.title:
            lines += [f"## {table.title}", ""]
        lines += [*_markdown_lines(table), ""]
    return "\n".join(lines)


def _markdown_lines(table: Table) -> list[str]:
    body = [[_cell(value) for value in row] for row in table.rows]
    heads = [_cell(column) for column in table.columns]
    widths = [max(3, *map(len, column)) for column in zip(heads, *body, strict=True)]
    numeric = [
        all(value is None or isinstance(value, int | float) for value in column)
        for column in zip(*table.rows, strict=True)
    ] or [False] * len(heads)

    def line(cells: list[str]) -> str:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        ]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * (width - 1) + (":" if right else "-")
            for width, right in zip(widths, numeric, strict=True)]  # fmt: skip
    return [line(heads), line(rule), *map(line, body)]


def _exact(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def _cell(value: Value) -> str:
    text = format_number(value) if isinstance(value, float) else _exact(value)
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
