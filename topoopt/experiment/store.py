"""The results store: every finished case of every experiment in one SQLite file.

Each case is one transaction, so that a kill at any moment loses at most the cases that were
running. A rollback journal rather than a write-ahead log: one file, also on network drives.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from codesign_base import InputError
from codesign_base.paths import make_directory
from topoopt.experiment.cases import Outcome
from topoopt.experiment.rows import Row

STORE = "store.sqlite"
_VERSION = 1
_SECONDS_TO_WAIT = 60.0  # for another run that writes
_TABLE = """
CREATE TABLE IF NOT EXISTS cases (
    experiment TEXT NOT NULL,
    inputs TEXT NOT NULL,
    code TEXT NOT NULL,
    columns TEXT NOT NULL,
    status TEXT NOT NULL,
    message TEXT NOT NULL,
    rows TEXT NOT NULL,
    seconds REAL NOT NULL,
    digest TEXT NOT NULL,
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    UNIQUE (experiment, inputs, code, columns)
)
"""


class Store:
    """Finished cases by experiment, inputs and software.

    Parameters
    ----------
    connection : sqlite3.Connection
        Of `open_store`.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def save(self, experiment: str, columns: Sequence[str], inputs: Row, outcome: Outcome) -> None:
        """Keep the outcome of a finished case, in place of an earlier one of the same software."""
        kept = (
            experiment, _text(inputs), outcome.code, _text(list(columns)), outcome.status,
            outcome.message, _text(list(outcome.rows)), outcome.seconds,
        )  # fmt: skip
        with self._connection:
            self._connection.execute(
                "INSERT OR REPLACE INTO cases (experiment, inputs, code, columns, status, message,"
                " rows, seconds, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*kept, _digest(kept)),
            )

    def load(
        self, experiment: str, columns: Sequence[str], inputs: Row, code: str | None
    ) -> Outcome | None:
        """Return a finished case.

        Parameters
        ----------
        experiment : str
        columns : sequence of str
        inputs : dict
        code : str or None
            Hash of the software that must have computed it; None: the last that did.

        Returns
        -------
        Outcome or None
            None if there is none, or what is kept is damaged.
        """
        query = (
            "SELECT experiment, inputs, code, columns, status, message, rows, seconds, digest"
            " FROM cases WHERE experiment = ? AND inputs = ? AND columns = ?"
        )
        asked = [experiment, _text(inputs), _text(list(columns))]
        if code is not None:
            query += " AND code = ?"
            asked.append(code)
        row = self._connection.execute(query + " ORDER BY number DESC LIMIT 1", asked).fetchone()
        if row is None or _digest(row[:-1]) != row[-1]:
            return None
        return Outcome(
            row[4], tuple(json.loads(row[6])), row[5], code=row[2], seconds=float(row[7])
        )


@contextmanager
def open_store(directory: Path) -> Iterator[Store]:
    """Open the results store of a directory, made if need be.

    Parameters
    ----------
    directory : Path
        Created if need be.

    Yields
    ------
    Store

    Raises
    ------
    InputError
        If it cannot be created, opened or written, or is no results store.
    """
    path = directory / STORE
    make_directory(directory, parents=True)
    try:
        connection = sqlite3.connect(path, timeout=_SECONDS_TO_WAIT)
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _VERSION):
                raise InputError(
                    f"results store {path} has version {version}, this program writes {_VERSION}; "
                    "choose another --output"
                )
            with connection:
                connection.execute(_TABLE)
                connection.execute(f"PRAGMA user_version = {_VERSION}")
            yield Store(connection)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise InputError(
            f"results store {path} cannot be used ({error}); move it away or choose another "
            "--output"
        ) from None


def _text(value: object) -> str:
    return json.dumps(value, allow_nan=False)


def _digest(kept: Sequence[object]) -> str:
    return hashlib.sha256(_text(list(kept)).encode()).hexdigest()
