"""Reads users' text, JSON and YAML files; whatever is wrong with them is one `InputError`."""

import io
import json
import re
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codesign_base import InputError
from codesign_base.arguments import check_kind, check_path
from codesign_base.counted import counted

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
    """Parse JSON, rejecting keys that occur twice in one object.

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
            raise InputError(f"{where}: key {twice!r} occurs twice in one object; keep one")
        return found

    check_kind(where, text, str, "JSON as a text")
    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{where} is not valid JSON: {error.msg.removesuffix(' at')} at line {error.lineno}, "
            f"column {error.colno}; {_json_remedy(error)}"
        ) from None
    except InputError:
        raise
    except RecursionError as error:
        raise InputError(f"{where} is not readable JSON ({error}); check the file") from None
    except ValueError:
        raise InputError(f"{where}: {_LONG_NUMBER}") from None


# Python neither reads nor writes whole numbers of more than 4,300 decimal digits.
_MOST_DIGITS = 3000
_LONG_NUMBER = "a whole number is too long to be read; give one of at most 3000 digits"


def _json_remedy(error: json.JSONDecodeError) -> str:
    rest = error.doc[error.pos :].strip()
    # A text that was cut off ends where something is still expected, or within a word.
    cut = rest in ("", ",", "-") or any(word.startswith(rest) for word in ("true", "false", "null"))
    if error.msg.startswith("Unterminated string") or cut:
        return "the file may be truncated"
    if not error.doc[: error.pos].strip():
        return "give a JSON file"
    if error.msg == "Extra data":
        return "end the file after its first object"
    return "correct the file"


def parse_yaml(text: str, where: str) -> Any:
    """Parse YAML, rejecting keys that occur twice in one block.

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
                    f"{where}: key {key!r} occurs twice in the block at line {line}; keep one"
                )
        return loader.construct_mapping(node, deep=True)

    def whole(loader: UniqueKeys, node: yaml.ScalarNode) -> int:
        if len(node.value) > _MOST_DIGITS:
            raise InputError(f"{where}, line {node.start_mark.line + 1}: {_LONG_NUMBER}")
        return int(loader.construct_yaml_int(node))

    UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    UniqueKeys.add_constructor("tag:yaml.org,2002:int", whole)
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


def check_fields(
    data: Any, where: str, needed: tuple[str, ...], optional: tuple[str, ...] = ()
) -> None:
    """Refuse missing and unknown fields, and what has none.

    Parameters
    ----------
    data : object
        As parsed.
    where : str
        The place, for the message.
    needed, optional : tuple of str

    Raises
    ------
    InputError
        Naming the first field that is missing or unknown.
    """
    known = (*needed, *optional)
    if not isinstance(data, dict):
        raise InputError(f"{where}: expected an object with fields {', '.join(known)}")
    for key in data:
        if key not in known:
            raise InputError(f"{where}: unknown field {key!r}; known: {', '.join(known)}")
    for key in needed:
        if key not in data:
            raise InputError(f"{where}: field {key!r} is missing; add it")


def schema_fault(error: "ValidationError", remedy: str = "") -> str:
    """Return the first finding of pydantic as the end of a sentence.

    Parameters
    ----------
    error : pydantic.ValidationError
    remedy : str
        What helps beside correcting the field ("plan again").
    """
    findings = error.errors(include_url=False)
    first = findings[0]
    # Which of two kinds a record or a value is of is no field of the file.
    where = ".".join(str(part) for part in _place(first) if part not in ("layouts", "operators"))
    if first["type"] == "missing":
        return f"field {where!r} is missing; {remedy or 'add it'}"
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return f"unknown field {where!r}; remove it" + (f" or {remedy}" if remedy else "")
    if first["type"] == "value_error":  # of one of our own classes, whose sentence says all
        return f"field {where!r}: {first['ctx']['error']}"
    also = f"; correct it or {remedy}" if remedy else ""
    kinds = {_KINDS.get(each["type"]): None for each in findings if _place(each) == _place(first)}
    if len(kinds) > 1 and None not in kinds:  # a value of one of several kinds
        return f"field {where!r} is {shown(first['input'])}: input should be " + (
            " or ".join(str(kind) for kind in kinds) + also
        )
    return f"field {where!r} {wrong_value(first)}{also}"


_KINDS = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dataclass_type": "fields with values",
    "dict_type": "fields with values",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a number of at most 64 bits",
    "int_type": "a whole number",
    "list_type": "a list",
    "mapping_type": "fields with values",
    "model_attributes_type": "fields with values",
    "model_type": "fields with values",
    "none_required": "null",
    "string_type": "text",
    "tuple_type": "a list",
}
"""What a value should be, by pydantic's name of the error: files have no tuples and instances."""

_TYPES = ("bool", "float", "int", "str")
_WORDS: dict[bool | None, str] = {None: "null", True: "true", False: "false"}
_WORDS_OF_PYTHON = re.compile(r"\b(True|False|None)\b")
_LIMITS = {
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("greater than or equal to", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("less than or equal to", "le"),
}


def _place(finding: "ErrorDetails") -> tuple[int | str, ...]:
    """Return where a finding is, without the type that pydantic tried last."""
    place = finding["loc"]
    return place[:-1] if len(place) > 1 and place[-1] in _TYPES else place


def wrong_value(finding: "ErrorDetails") -> str:
    """Return what pydantic found a value to be, and what is wrong with it, in words of files."""
    kind, message = finding["type"], finding["msg"]
    bounds = finding.get("ctx", {})
    if kind in _KINDS:
        message = f"input should be {_KINDS[kind]}"
    elif kind in ("too_short", "too_long"):
        at, of = ("least", "min_length") if kind == "too_short" else ("most", "max_length")
        message = f"give at {at} {counted(bounds[of], 'entry', 'entries')}"
    elif kind in _LIMITS:
        relation, of = _LIMITS[kind]
        limit = bounds[of]
        # Not in full: 3.6e12 has 13 digits.
        message = f"input should be {relation} " + (
            f"{limit:.12g}" if isinstance(limit, float) else str(limit)
        )
    elif kind in ("literal_error", "enum"):
        message = f"input should be {_WORDS_OF_PYTHON.sub(_plain_word, bounds['expected'])}"
    elif kind.startswith("string_"):
        message = message.replace("String should", "text should")
    return f"is {shown(finding['input'])}: {message[0].lower()}{message[1:]}"


def _plain_word(found: re.Match[str]) -> str:
    return {"True": "true", "False": "false", "None": "null"}[found[0]]


def shown(value: Any, most: int = 60) -> str:
    """Return a value of a YAML or JSON file on one line, in words of files.

    Parameters
    ----------
    value : object
        As parsed.
    most : int
        Letters; longer texts are cut and end in three dots.
    """
    text = " ".join(_written(value, 4).split())
    return text if len(text) <= most else text[: most - 3] + "..."


def _written(value: Any, depth: int) -> str:
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    if isinstance(value, dict | list | tuple) and value and depth == 0:
        return "..."
    # Of long and deep ones no more is looked at than is shown: aliases of YAML repeat themselves.
    if isinstance(value, dict):
        pairs = islice(value.items(), 30)
        parts = (f"{_written(key, 0)}: {_written(part, depth - 1)}" for key, part in pairs)
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_written(part, depth - 1) for part in value[:30]) + "]"
    return repr(value)


def kind_in_file(value: Any) -> str:
    """Return what a value of a YAML or JSON file is, for a message: "a list", "null", ...

    Parameters
    ----------
    value : object
        As parsed.
    """
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    if isinstance(value, dict):
        return "fields with values"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, int | float):
        return "a number"
    return "text" if isinstance(value, str) else "a date"
