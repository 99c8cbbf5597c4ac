"""Reads users' text, JSON and YAML files; whatever is wrong with them is one `InputError`."""

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codesign_base import InputError
from codesign_base.arguments import check_path

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails


def read_bytes(path: str | Path, what: str) -> bytes:
    """Read a file.

    Parameters
    ----------
    path : str or Path
    what : str
        What the file should be, for the message ("task-graph file").

    Raises
    ------
    InputError
        If it does not exist or cannot be read, or this is no path.
    """
    check_path(what, path)
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise InputError(f"{what} {str(path)!r} does not exist; check the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"{what} {str(path)!r} cannot be read ({reason}); check the path"
        ) from None


def read_text(path: str | Path, what: str) -> str:
    """Read a UTF-8 text file.

    Parameters
    ----------
    path : str or Path
    what : str
        What the file should be, for the message ("model file").

    Raises
    ------
    InputError
        If it does not exist, cannot be read, is not text, or is empty.
    """
    data = read_bytes(path, what)
    try:
        text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig").read()
    except UnicodeDecodeError:
        raise InputError(f"{what} {str(path)!r} is not UTF-8 text; check the file") from None
    if not text.strip():
        raise InputError(f"{what} {str(path)!r} is empty; see the documentation for its format")
    return text


def parse_json(text: str, where: str) -> Any:
    """Parse JSON, rejecting keys that stand twice in one object.

    Parameters
    ----------
    text : str
    where : str
        The file, for the message.

    Raises
    ------
    InputError
        If the text is not valid JSON or repeats a key.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise InputError(f"{where}: key {twice!r} stands twice in one object; keep one")
        return found

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{where} is not valid JSON: {error.msg} at line {error.lineno}, column "
            f"{error.colno}; the file may be truncated"
        ) from None
    except (RecursionError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{where} is not readable JSON ({error}); check the file") from None


def parse_yaml(text: str, where: str) -> Any:
    """Parse YAML, rejecting keys that stand twice in one block.

    Parameters
    ----------
    text : str
    where : str
        The file, for the message.

    Raises
    ------
    InputError
        If the text is not valid YAML or repeats a key.
    """
    import yaml

    class UniqueKeys(yaml.SafeLoader):
        """The safe loader, which would silently keep the last of equal keys."""

    def mapping(loader: UniqueKeys, node: yaml.MappingNode) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in keys:
            if keys.count(key) > 1:
                line = node.start_mark.line + 1
                raise InputError(
                    f"{where}: key {key!r} stands twice in the block at line {line}; keep one"
                )
        return loader.construct_mapping(node, deep=True)

    UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    try:
        return yaml.load(text, Loader=UniqueKeys)
    except InputError:
        raise
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
        raise InputError(f"{where} is not valid YAML: {problem}{at}; correct the file") from None
    except (RecursionError, ValueError, TypeError) as error:
        raise InputError(f"{where} is not readable YAML ({error}); correct the file") from None


def schema_fault(error: "ValidationError", remedy: str = "") -> str:
    """Return the first finding of pydantic as the end of a sentence.

    Parameters
    ----------
    error : pydantic.ValidationError
    remedy : str
        What helps beside correcting the field ("plan again").
    """
    first = error.errors(include_url=False)[0]
    # Which of two kinds a record is of is no field of the file.
    where = ".".join(str(part) for part in first["loc"] if part not in ("layouts", "operators"))
    if first["type"] == "missing":
        return f"field {where!r} is missing; {remedy or 'add it'}"
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return f"unknown field {where!r}; remove it" + (f" or {remedy}" if remedy else "")
    if first["type"] == "value_error":  # of one of our own classes, whose sentence says all
        return f"field {where!r}: {first['ctx']['error']}"
    also = f"; correct it or {remedy}" if remedy else ""
    return f"field {where!r} {wrong_value(first)}{also}"


def wrong_value(finding: "ErrorDetails") -> str:
    """Return what pydantic found a value to be, and what is wrong with it."""
    given = " ".join(repr(finding["input"]).split())
    shown = given if len(given) <= 60 else given[:57] + "..."
    return f"is {shown}: {finding['msg'][0].lower()}{finding['msg'][1:]}"
