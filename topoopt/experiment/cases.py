"""One case: compute it, and keep its outcome in a content-addressed file."""

import hashlib
import json
import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codesign_base import InfeasibleError
from topoopt.atomic import write_text_atomically
from topoopt.experiment.declaration import Experiment, Row, Value

SCHEMA = "topoopt-experiment-case/1"


@dataclass(frozen=True)
class Outcome:
    """What came of one case.

    Parameters
    ----------
    status : str
        ``"ok"``, ``"infeasible"`` or ``"failed"``.
    rows : tuple of dict
        Result rows; empty unless ok.
    message : str
        Why it is infeasible or failed.
    code : str
        Hash of the source code that computed it.
    detail : str
        Traceback of a failure; not kept.
    """

    status: str
    rows: tuple[Row, ...] = ()
    message: str = ""
    code: str = ""
    detail: str = ""


class UnusableCaseError(Exception):
    """A case file exists but cannot be used; the message says why."""


def compute_case(
    case: Callable[..., Any], columns: tuple[str, ...], inputs: Row, code: str
) -> Outcome:
    """Compute one case and say what came of it; never raises an ordinary exception.

    Top level and with plain arguments, so that worker processes can be sent it.
    """
    try:
        return Outcome("ok", _checked_rows(case(**inputs), columns), code=code)
    except InfeasibleError as error:
        return Outcome("infeasible", message=_one_line(str(error)), code=code)
    except Exception as error:
        message = _one_line(f"{type(error).__name__}: {error}")
        return Outcome("failed", message=message, code=code, detail=traceback.format_exc())


def case_path(directory: Path, experiment: Experiment, inputs: Row, version: str) -> Path:
    """Return the file of a case, addressed by experiment name, inputs and version."""
    content = {"experiment": experiment.name, "inputs": inputs, "version": version}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return directory / f"{digest[:20]}.json"


def save_case(
    path: Path, experiment: Experiment, inputs: Row, version: str, outcome: Outcome
) -> None:
    """Write the outcome of a finished case whole or not at all."""
    content = {
        "schema": SCHEMA,
        "experiment": experiment.name,
        "version": version,
        "inputs": inputs,
        "status": outcome.status,
        "message": outcome.message,
        "rows": list(outcome.rows),
        "code": outcome.code,
    }
    content["digest"] = _digest(content)
    write_text_atomically(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def load_case(path: Path, experiment: Experiment, inputs: Row, version: str) -> Outcome | None:
    """Read a finished case.

    Returns
    -------
    Outcome or None
        None if the case was not finished before.

    Raises
    ------
    UnusableCaseError
        If the file is damaged, or its columns are not those of the experiment.
    """
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UnusableCaseError(f"unreadable ({_one_line(str(error))})") from None
    if not isinstance(content, dict) or content.pop("digest", None) != _digest(content):
        raise UnusableCaseError("damaged (its digest does not match its content)")
    expected = {
        "schema": SCHEMA, "experiment": experiment.name, "version": version, "inputs": inputs,
    }  # fmt: skip
    for key, value in expected.items():
        if content.get(key) != value:
            raise UnusableCaseError(f"of another run ({key} is {content.get(key)!r})")
    rows = tuple(content["rows"])
    if any(tuple(row) != tuple(experiment.columns) for row in rows):
        raise UnusableCaseError("computed with other columns")
    return Outcome(content["status"], rows, content["message"], content["code"])


def _checked_rows(result: object, columns: tuple[str, ...]) -> tuple[Row, ...]:
    if isinstance(result, Mapping):
        result = [result]
    if not isinstance(result, Sequence) or isinstance(result, str) or not result:
        raise TypeError(f"case() returned {result!r}; return a mapping or a list of mappings")
    rows = []
    for row in result:
        if not isinstance(row, Mapping) or set(row) != set(columns):
            names = sorted(map(str, row)) if isinstance(row, Mapping) else row
            raise TypeError(f"case() returned {names}; return exactly the columns {list(columns)}")
        rows.append({column: _plain(row[column], column) for column in columns})
    return tuple(rows)


def _plain(value: Any, column: str) -> Value:
    """Return a value as JSON keeps it; numpy scalars become Python's."""
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"column {column!r} is {value}; return None for an empty cell")
    if value is None or isinstance(value, bool):
        return value
    # Subclasses (enumerations, numpy's float64) would not come back from JSON as they went.
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"column {column!r} is {value!r}; return text, a number, a boolean or None")


def _digest(content: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _one_line(text: str) -> str:
    return " ".join(text.split())
