"""Workloads of `topoopt bandwidth`: by name, or from a model, plan or workload file."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from codesign_base import InputError

_Kind = TypeVar("_Kind", bound=StrEnum)

if TYPE_CHECKING:
    from parallelism.graph import ModelGraph
    from topoopt.bandwidth.explore.divisions import Division
    from topoopt.bandwidth.model.plan_workload import PlanWorkload
    from topoopt.bandwidth.model.workload import LayerWorkload


def member_named(name: str, value: str, kind: type[_Kind]) -> _Kind:
    """Return the member of an enumeration that an option's value names."""
    if value not in set(kind):
        raise InputError(f"--{name} is {value!r}; choose {', '.join(kind)}")
    return kind(value)


def read_workload(
    name: str, tensor: int | None, searching: bool = False
) -> "LayerWorkload | PlanWorkload":
    """Return a workload.

    Parameters
    ----------
    name : str
        Of a built-in workload, of a preset model, or of a file.
    tensor : int or None
        NPUs of a tensor-parallel group.
    searching : bool, optional
        Whether shapes are searched; then ``tensor`` says the groups of a workload file.
    """
    from topoopt.bandwidth.model.builtin import WORKLOAD_NAMES, builtin_workload
    from topoopt.bandwidth.model.from_model import model_workload
    from topoopt.bandwidth.model.workload import load_layer_workload

    if name in WORKLOAD_NAMES:
        return builtin_workload(name, tensor)
    if _is_plan(name):
        if tensor is not None:
            raise InputError(
                f"--tensor-parallel {tensor} does not apply to plan {name!r}; "
                "its strategy says the groups"
            )
        from topoopt.bandwidth.files.plan_file import load_plan_workload

        return load_plan_workload(name)
    if _is_workload(name):
        if tensor is not None and not searching:
            raise InputError(
                f"--tensor-parallel {tensor} does not apply to workload file {name!r}; "
                "its communicator says the groups"
            )
        made = load_layer_workload(name)
        return replace(made, tensor=tensor) if searching else made
    return model_workload(_model(name), tensor or 1)


def read_divisions(
    name: str, npus: int, tensor: int | None, parallel: bool, memory: float | None
) -> "list[Division]":
    """Return the divisions of a workload over NPUs: all, or only its own.

    Parameters
    ----------
    name : str
        As for `read_workload`.
    npus : int
    tensor : int or None
    parallel : bool
        Whether other divisions than its own are wanted.
    memory : float or None
        Bytes of an NPU.
    """
    from topoopt.bandwidth.explore.divisions import (
        builtin_divisions,
        fixed_division,
        model_divisions,
    )
    from topoopt.bandwidth.model.builtin import WORKLOAD_NAMES
    from topoopt.bandwidth.model.plan_workload import PlanWorkload

    if not parallel:
        job = read_workload(name, tensor, searching=True)
        if isinstance(job, PlanWorkload):
            raise InputError(
                f"plan {name!r} is for one placement on its servers; give a model to search shapes"
            )
        return [fixed_division(job, npus)]
    if tensor is not None:
        raise InputError(
            f"--tensor-parallel {tensor} is what --search-parallelism chooses; give one of them"
        )
    if name in WORKLOAD_NAMES:
        return builtin_divisions(name, npus, memory=memory)
    if _is_plan(name) or _is_workload(name):
        raise InputError(
            f"--search-parallelism cannot divide {name!r}, whose division is worked into its "
            "numbers; give a built-in workload or a model"
        )
    return model_divisions(_model(name), npus)


def _is_model(name: str) -> bool:
    return name.lower().endswith((".yaml", ".yml", ".json"))


def _is_workload(name: str) -> bool:
    return not _is_model(name) and (name.lower().endswith(".txt") or "/" in name)


def _is_plan(name: str) -> bool:
    """Say whether a JSON file is a plan rather than a model."""
    from parallelism.reading import parse_json, read_text
    from topoopt.plan.document import Document, kind_of

    if Path(name).suffix.lower() != ".json":
        return False
    data = parse_json(read_text(name, "workload file"), f"workload file {name!r}")
    return kind_of(data) is Document.PLAN


def _model(name: str) -> "ModelGraph":
    from parallelism.model_file import load_model
    from parallelism.models import PRESETS, get_model
    from parallelism.suggestions import suggestion
    from parallelism.transformers.presets import TRANSFORMERS
    from topoopt.bandwidth.model.builtin import WORKLOAD_NAMES

    if _is_model(name):
        return load_model(name)
    preset = name.removeprefix("preset:")
    if preset not in PRESETS and preset not in TRANSFORMERS:
        names = list(dict.fromkeys([*WORKLOAD_NAMES, *PRESETS, *TRANSFORMERS]))
        raise InputError(
            f"unknown workload {name!r} (files end in .txt, .yaml or .json); "
            f"{suggestion(name, names)}"
        )
    return get_model(preset)
