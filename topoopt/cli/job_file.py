"""Job files: a question of `topoopt plan` as a small file, with the options' own names.

The fields are made of the options themselves, so that neither can drift from the other.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import typer

from codesign_base import InputError
from codesign_base.paths import exists, is_file, names_model_file
from topoopt.cli import common
from topoopt.cli.given import LISTS
from topoopt.cli.plan_options import CLUSTER, JOB, SEARCH, SPENDING, WIRED

if TYPE_CHECKING:
    from pydantic import BaseModel

# Options that are quantities: what they are, and an example with its unit.
_UNITS = {"bandwidth": ("a speed", "Gbps", 100), "latency": ("a time", "us", 1)}
_READ = f"{__name__}.read"

QUESTION = {**CLUSTER, **WIRED, **SPENDING, **JOB, **SEARCH}
"""The options that a job file may hold: all that a plan depends on."""


def read_job_file(context: typer.Context, model: str) -> str:
    """Take a job file in place of a model: its values become the options' defaults.

    Parameters
    ----------
    context : typer.Context
        Of a command that takes the groups of `QUESTION`.
    model : str
        A model, or the name of a job file.

    Returns
    -------
    str
        The model.

    Raises
    ------
    InputError
        If the file does not exist, or is a job file with fields that are unknown or have another
        type.
    """
    path = Path(model)
    suffix = path.suffix.lower()
    if suffix not in (".yaml", ".yml", ".json"):
        # A folder may hold job files; what it lacks is no option.
        common.check_model_name(model)
        return model
    if not exists(path):
        # Else the options that a job file holds would be asked for.
        raise InputError(f"file {model!r} does not exist; check the path")
    if not is_file(path):
        return model
    from parallelism.reading import parse_yaml, read_text

    where = f"job file {model!r}"
    text = read_text(path, "job file")
    data = _of_json(text) if suffix == ".json" else parse_yaml(text, where)
    if not isinstance(data, dict) or not ("model" in data or _asks(data, _names(context))):
        return model  # a model file
    context.meta[_READ] = path
    names = _names(context)
    values = _checked(data, names, where)
    for name in ("profile", "prices", "wiring"):
        if values.get(name) is not None:
            values[name] = str(path.parent / values[name])
    context.default_map = {names[key]: value for key, value in values.items() if key != "model"}
    inside = path.parent / values["model"]
    return str(inside) if names_model_file(values["model"]) or is_file(inside) else values["model"]


def _of_json(text: str) -> Any:
    """Return what a JSON file holds if that may be a question; plans have names of options, too."""
    from parallelism.reading import parse_json
    from topoopt.plan.document import Document, kind_of

    with suppress(InputError):
        data = parse_json(text, "job file")
        if isinstance(data, dict) and "model" in data and kind_of(data) is Document.OTHER:
            return data
    return None


def _asks(data: Mapping[str, Any], names: Mapping[str, str]) -> bool:
    """Whether a file without a model holds options, and nothing that a model file begins with."""
    return bool(set(map(str, data)) & set(names)) and not {"name", "operators"} & set(data)


def job_file_of(context: typer.Context) -> Path | None:
    """Return the job file that was given in place of a model."""
    return context.meta.get(_READ)


def job_file_text(context: typer.Context, model: str, path: Path) -> str:
    """Return the job file of what was given on the command line, or in another job file.

    Parameters
    ----------
    context : typer.Context
    model : str
    path : Path
        Where it is to be written: names of files in it are relative to its folder.

    Returns
    -------
    str
        YAML.
    """
    import yaml

    def beside(name: str | Path) -> str:
        # From folder to folder as they are on disk: ".." leads elsewhere behind a link to a folder.
        folder, file = os.path.split(name)
        real = os.path.relpath(os.path.realpath(folder), os.path.realpath(path.parent))
        return str(Path(real, file))

    values: dict[str, Any] = {"model": beside(model) if names_model_file(model) else model}
    for key, name in _names(context).items():
        if common.was_given(context, name):
            value = context.params[name]
            values[key] = beside(value) if isinstance(value, Path) else value
    return yaml.safe_dump(values, sort_keys=False)


def _names(context: typer.Context) -> dict[str, str]:
    """Return the parameters of the question by the options' names, without dashes in front."""
    return {
        max(parameter.opts, key=len).removeprefix("--"): parameter.name
        for parameter in context.command.params
        if parameter.name in QUESTION
    }


def _checked(data: Mapping[str, Any], names: Mapping[str, str], where: str) -> dict[str, Any]:
    from pydantic import ValidationError

    from parallelism.reading import shown

    for key in data:
        if key not in names and key != "model":
            near = get_close_matches(str(key), [*names, "model"], n=1)
            meant = f"did you mean {near[0]!r}, or" if near else "leave it out;"
            raise InputError(
                f"{where} has an unknown field {key!r}; {meant} see topoopt plan --help-all"
            )
    if "model" not in data:
        raise InputError(f"{where} has no model; give the name of one, or of a file")
    try:
        job = _schema(names)(
            **{
                str(key): _listed(value) if names.get(key) in LISTS else value
                for key, value in data.items()
            }
        )
    except ValidationError as error:
        first = error.errors()[0]
        key, given = str(first["loc"][0]), first["input"]
        remedy = _remedy(first["type"], names.get(key, key), given) or first["msg"].lower()
        raise InputError(f"{where}: {key} is {shown(given)}; {remedy}") from None
    return job.model_dump(exclude_unset=True)


def _remedy(finding: str, name: str, given: Any) -> str:
    """Return what to write in place of a value of another type, "" if nothing is known of it.

    ``finding`` is what pydantic calls it.
    """
    import yaml

    if finding in ("int_type", "float_type"):
        wanted = "a whole number" if finding == "int_type" else "a number"
        with suppress(ValueError):
            number = float(given) if isinstance(given, str) else nan
            # YAML takes some numbers for text without quotes, too, such as 1e6.
            unquoted = "" if isinstance(yaml.safe_load(str(given)), str) else ", without quotes"
            if finding == "float_type" and isfinite(number):
                return f"write {number!r}{unquoted}"
            if abs(number) < 1e15 and number == int(number):
                return f"write {int(number)}{unquoted}"
        return f"write {wanted}"
    if finding == "bool_type":
        return "write true or false"
    if finding != "string_type":
        return ""
    if name in _UNITS:
        what, unit, usual = _UNITS[name]
        plain = isinstance(given, int) and not isinstance(given, bool) and 1 <= given < 10_000
        return f"write {what} with its unit, such as {given if plain else usual}{unit}"
    if name in LISTS:
        return "write a whole number, a word, or a list of them"
    return "write text; a number or a truth value that is meant as text needs quotes"


def _listed(value: Any) -> Any:
    """Return a whole number, or a list of numbers or words, as the command line takes them."""
    values = value if isinstance(value, list) else [value]
    words = all(isinstance(one, int | str) and not isinstance(one, bool) for one in values)
    return ",".join(map(str, values)) if words and values else value


def _schema(names: Mapping[str, str]) -> "type[BaseModel]":
    from pydantic import ConfigDict, create_model

    fields: dict[str, Any] = {"model": (str, ...)}
    for key, name in names.items():
        kind = get_args(QUESTION[name][0])[0]
        text = {Path: str, Path | None: str | None}
        fields[key] = (text.get(kind, kind), None)
    return create_model("JobFile", __config__=ConfigDict(extra="forbid", strict=True), **fields)
