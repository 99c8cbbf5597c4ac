"""What the options mean that several commands take: a job, a cluster and how to search.

The table of which option is which field is here; which fields say nothing for a family of models
is the family's own table.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from codesign_base import InputError
from topoopt.cli import common
from topoopt.cli.plan_options import JOB, SEARCH

if TYPE_CHECKING:
    from parallelism.transformers.choices import Choices
    from topoopt.problem.cluster import Cluster
    from topoopt.problem.job import Job
    from topoopt.problem.options import SearchOptions

# Options that are called otherwise than the field that they set.
_FIELDS = {
    "batch": "batch_per_gpu", "load_imbalance": "implementation",
    "stack": "implementation", "precision": "implementation",
    "no_parameter_splits": "parameter_splits",
    **dict.fromkeys(
        (
            "tensor", "pipeline", "context_degrees", "expert", "expert_tensor", "virtual_stages",
            "stage_layers", "microbatch", "pipeline_schedule", "zero", "replicate",
            "recompute", "recompute_modules",
            "tensor_across_servers",
        ),
        "choices",
    ),
}  # fmt: skip
LISTS = {name for name, field in _FIELDS.items() if field == "choices"} - {"tensor_across_servers"}
"""Options that are lists of what is considered."""
# Fields of the choices and of the software that options are not called by.
_CHOSEN = {
    "context": "context_degrees", "schedules": "pipeline_schedule", "modules": "recompute_modules",
    "across_servers": "tensor_across_servers",
}  # fmt: skip


def in_options(error: InputError) -> str:
    """Return the message of an error, with options in the place of the fields that they set.

    Parameters
    ----------
    error : InputError
        Its ``fields`` are replaced before a word, or after "to".
    """
    text = " ".join(str(error).split())
    if not error.fields:
        return text
    names = "|".join(error.fields)

    def option_of(found: re.Match[str]) -> str:
        return _flag(_CHOSEN.get(found[0], found[0]))

    text = re.sub(rf"(?<![-'\w])({names})(?= )|(?<= to )({names})\b", option_of, text)
    return text.removeprefix("layouts: ")


def _flag(name: str) -> str:
    return f"--{name.removesuffix('_degrees').replace('_', '-')}"


def plans_layouts(model: str, given: Mapping[str, Any]) -> bool:
    """Say whether a model is planned by layouts: a transformer, unless per operator.

    Parameters
    ----------
    model : str
        A preset, or a file.
    given : mapping
        Values of `topoopt.cli.plan_options.JOB`.
    """
    from parallelism.transformers.load import is_transformer

    return is_transformer(model) and not given["per_operator"]


def make_job(
    context: typer.Context, model: str, given: Mapping[str, Any], *, batch_is_grid: bool = False
) -> "Job":
    """Return the job that the options describe: of a transformer, unless per operator.

    Parameters
    ----------
    context : typer.Context
        Of the command.
    model : str
        A preset, or a file.
    given : mapping
        Values of `topoopt.cli.plan_options.JOB`.
    batch_is_grid : bool
        ``--global-batch`` is not the job's own for models by operators.

    Returns
    -------
    Job

    Raises
    ------
    InputError
        If an option says nothing for such a model, or is out of range.
    """
    from parallelism.accelerators import get_accelerator
    from parallelism.device import Server
    from topoopt.problem.job import USUAL_ACCELERATOR, USUAL_GPUS, Job, nvlink_server

    layouts = plans_layouts(model, given)
    kind = "layouts" if layouts else "operators"
    device = given["device"] or USUAL_ACCELERATOR[kind]
    gpus = USUAL_GPUS[kind] if given["gpus"] is None else given["gpus"]
    if not layouts:
        from parallelism.operator_family import OperatorFamily
        from parallelism.transformers.load import is_transformer, load_transformer
        from parallelism.transformers.operators import model_graph

        refused = dict(OperatorFamily.refused)
        if is_transformer(model):
            changes = changes_of(given)
            graph = model_graph(load_transformer(model, **changes))
            refused = {name: why for name, why in refused.items() if name not in changes}
        else:
            graph = common.read_model(model)  # a name that is not known is no model by operators
        if batch_is_grid:
            del refused["global_batch"]
        _refuse(context, refused)
        server = Server(get_accelerator(device), gpus)
        return Job(graph, given["batch"], server, given["profile"], given["optimizer"])
    from parallelism.transformers.family import LayoutFamily
    from parallelism.transformers.implementation import get_stack
    from parallelism.transformers.load import load_transformer

    _refuse(context, LayoutFamily.refused, " (--per-operator)")
    if given["global_batch"] is None:
        raise InputError(
            f"model {model!r} is a transformer: give --global-batch, the samples of an iteration "
            "(or --per-operator)"
        )
    sequence = given["sequence"]
    transformer = load_transformer(model, **changes_of(given))
    choices = choices_of(given)
    if not {"interleaved", "breadth-first"} & set(choices.schedules):
        common.refuse_given(
            context,
            ("virtual_stages",),
            f"--pipeline-schedule {','.join(choices.schedules)} has no such parts; add interleaved "
            "or breadth-first, or leave it out",
        )
    return Job(
        transformer,
        server=nvlink_server(device, gpus),
        global_batch=given["global_batch"],
        sequence=sequence,
        implementation=get_stack(
            given["stack"], load_imbalance=given["load_imbalance"], precision=given["precision"]
        ),
        choices=choices,
    )


def changes_of(given: Mapping[str, Any]) -> dict[str, int]:
    """Return the fields of a transformer that options change."""
    return {name: given[name] for name in ("sequence", "mtp_layers") if given[name] is not None}


def make_cluster(given: Mapping[str, Any]) -> "Cluster":
    """Return the cluster that the options describe.

    Parameters
    ----------
    given : mapping
        Values of `topoopt.cli.plan_options.CLUSTER`.
    """
    from topoopt.problem.cluster import Cluster

    return Cluster(
        *(given[name] for name in ("servers", "degree", "bandwidth", "ports", "latency"))
    )


def make_options(given: Mapping[str, Any], **more: Any) -> "SearchOptions":
    """Return the search that the options describe.

    Parameters
    ----------
    given : mapping
        Values of `topoopt.cli.plan_options.SEARCH`.
    **more
        Further fields.
    """
    from topoopt.problem.options import SearchOptions

    fields = {name: given[name] for name in SEARCH if name != "no_parameter_splits"}
    return SearchOptions(**fields, parameter_splits=not given["no_parameter_splits"], **more)


def _refuse(context: typer.Context, refused: Mapping[str, str], more: str = "") -> None:
    """Refuse options that say nothing for the family of a model."""
    for name in (*JOB, *SEARCH, "checkpoint"):  # in their order: the first one is named
        reason = refused.get(_FIELDS.get(name, name))
        if reason is not None:
            common.refuse_given(context, (name,), reason + (more if "graph" in reason else ""))


def choices_of(given: Mapping[str, Any]) -> "Choices":
    """Return the layouts that options leave.

    Parameters
    ----------
    given : mapping of str to str or bool or None
        Values of `topoopt.cli.plan_options.JOB`; None: not given.

    Raises
    ------
    InputError
        If a list holds something else than it should.
    """
    from parallelism.transformers.choices import Choices

    wanted: dict[str, Any] = {"across_servers": given["tensor_across_servers"]}
    fields = {option: field for field, option in _CHOSEN.items()}
    for name in _FIELDS:  # in their order
        if name not in LISTS or given[name] is None:
            continue
        field = fields.get(name, name)
        if field in ("recompute", "schedules", "modules"):
            wanted[field] = tuple(part.strip() for part in given[name].split(","))
        elif field == "stage_layers":
            wanted[field] = _stage_map(given[name])
        else:
            wanted[field] = _numbers(name, given[name])
    return Choices(**wanted)


def _stage_map(text: str) -> tuple[int, ...]:
    """Return the layers of each part, of a list in which 4x13 stands for thirteen fours."""
    from parallelism.transformers.layout import MOST_STAGE_PARTS

    found: list[int] = []
    for part in text.split(","):
        layers, _, times = part.strip().partition("x")
        each = (layers, times) if "x" in part else (layers, "1")
        if not all(one.isascii() and one.isdecimal() and len(one) < 6 for one in each):
            raise InputError(f"--stage-layers is {text!r}; give layers, such as 3,4x13,3,3")
        found += [int(each[0])] * min(int(each[1]), MOST_STAGE_PARTS + 1)
        if len(found) > MOST_STAGE_PARTS:
            raise InputError(f"--stage-layers is {text!r}; give at most {MOST_STAGE_PARTS} parts")
    return tuple(found)


def _numbers(option: str, text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        raise InputError(f"{_flag(option)} is {text!r}; give whole numbers, such as 1,2")
    return tuple(sorted(int(part) for part in parts))
