"""Tables as CSV, written and read back."""

import csv
import io
from collections.abc import Iterable, Sequence

from codesign_base import InputError


def write_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with a line of its columns.

    Parameters
    ----------
    columns : sequence of str
    rows : iterable of sequence
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return stream.getvalue()


def read_table(text: str, where: str, columns: Sequence[str]) -> list[dict[str, str]]:
    """Read some columns of a table; what a line lacks is empty.

    Parameters
    ----------
    text : str
    where : str
        The file, for the message.
    columns : sequence of str

    Raises
    ------
    InputError
        If it is no CSV, or a column is missing.
    """
    try:
        rows = csv.DictReader(io.StringIO(text))
        if missing := [each for each in columns if each not in (rows.fieldnames or ())]:
            raise InputError(f"{where} lacks the column {missing[0]}; give {', '.join(columns)}")
        return [{each: row[each] or "" for each in columns} for row in rows]
    except csv.Error as error:
        raise InputError(f"{where} is not readable CSV ({error}); correct the file") from None
