"""`topoopt plan` for transformers: which options count, and the plan of layouts."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from codesign_base import InputError
from topoopt.cli import common

if TYPE_CHECKING:
    from parallelism.transformers.enumeration import Choices
    from topoopt.transformers.plan import TransformerPlan


def plans_layouts(model: str, global_batch: int | None, per_operator: bool) -> bool:
    """Whether a model is planned by layouts: a transformer, unless operators are asked for.

    Raises
    ------
    InputError
        If a global batch is given for a model that is planned by operators.
    """
    from parallelism.transformers.load import is_transformer

    layouts = not per_operator and is_transformer(model)
    if not layouts and global_batch is not None:
        raise InputError(
            f"--global-batch is {global_batch}, but {model!r} is planned by operators; give "
            "--batch-per-gpu"
        )
    return layouts


# Parameters of `topoopt plan` that say something about one way to plan only.
_OF_LAYOUTS = frozenset(
    (
        "sequence", "tensor", "pipeline", "context_degrees", "expert", "microbatch",
        "pipeline_schedule", "zero", "recompute", "tensor_across_servers", "load_imbalance",
        "simulated",
    )
)  # fmt: skip
_OF_OPERATORS = frozenset(
    (
        "batch", "profile", "optimizer", "steps", "seconds", "chains", "faithful", "confirm",
        "method", "no_parameter_splits", "restarts", "workers", "engine", "checkpoint",
        "schedule", "objective", "max_cost", "max_ports", "save_traffic", "save_network",
    )
)  # fmt: skip


def refuse_unused(context: typer.Context, model: str, layouts: bool) -> None:
    """Refuse options that say nothing about the way in which a model is planned.

    Raises
    ------
    InputError
        Naming the first that is given.
    """
    if layouts:
        common.refuse_given(
            context,
            _OF_OPERATORS,
            "a transformer is planned by layouts, where it says nothing; leave it out, or add "
            "--per-operator",
        )
    else:
        common.refuse_given(
            context,
            _OF_LAYOUTS,
            f"{model!r} is planned by operators, where it says nothing; leave it out",
        )


def plan_layouts(
    model: str,
    cluster_options: tuple[int, int, str, str, str],
    *,
    device: str,
    gpus: int,
    global_batch: int | None,
    sequence: int | None,
    considered: Mapping[str, Any],
    load_imbalance: float,
    simulated: int,
    prices: Path | None,
    seed: int,
    quiet: bool,
) -> "TransformerPlan":
    """Plan a transformer as the options say.

    Parameters
    ----------
    considered : mapping of str to str or bool or None
        What `choices_of` reads.

    Returns
    -------
    TransformerPlan
    """
    from parallelism.transformers.implementation import Implementation
    from parallelism.transformers.load import load_transformer
    from topoopt.transformers.job import TransformerJob, nvlink_server
    from topoopt.transformers.solve import plan_transformer

    if global_batch is None:
        raise InputError(
            f"model {model!r} is a transformer: give --global-batch, the samples of an iteration "
            "(or --per-operator)"
        )
    overrides = {} if sequence is None else {"sequence": sequence}
    job = TransformerJob(
        load_transformer(model, **overrides),
        global_batch,
        nvlink_server(device, gpus),
        sequence,
        Implementation(load_imbalance=load_imbalance),
        choices_of(considered),
    )
    cluster = common.make_cluster(*cluster_options)
    table = common.make_prices(prices)
    with common.progress_reports(quiet) as progress:
        return plan_transformer(
            job, cluster, seed=seed, simulated=simulated, prices=table, progress=progress
        )


def choices_of(considered: Mapping[str, Any]) -> "Choices":
    """Return the layouts that options leave.

    Parameters
    ----------
    considered : mapping of str to str or bool or None
        Options without their dashes; None: not given.

    Raises
    ------
    InputError
        If a list holds something else than it should.
    """
    from parallelism.transformers.enumeration import Choices

    wanted: dict[str, Any] = {}
    for option, text in considered.items():
        if text is None:
            continue
        if option == "tensor-across-servers":
            wanted["across_servers"] = text
        elif option in ("recompute", "pipeline-schedule"):
            name = "schedules" if option == "pipeline-schedule" else option
            wanted[name] = tuple(part.strip() for part in text.split(","))
        else:
            wanted[option] = _numbers(option, text)
    return Choices(**wanted)


def _numbers(option: str, text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise InputError(f"--{option} is {text!r}; give whole numbers, such as 1,2")
    return tuple(sorted({int(part) for part in parts}))
