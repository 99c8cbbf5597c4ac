"""Groups of options that several commands take: the job and how to search.

A command names the groups that it takes (`topoopt.base.option_groups.takes`), and gets what was
given as one dictionary. The table of which option is which field is here; which fields say nothing
for a family of models is the family's own table.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from codesign_base import InputError
from topoopt.base.option_groups import Options, in_panel, option
from topoopt.cli import common
from topoopt.problem.effort import EFFORTS

if TYPE_CHECKING:
    from parallelism.transformers.choices import Choices
    from topoopt.problem.job import Cluster, Job
    from topoopt.problem.options import SearchOptions

_JOB = "Job"
_LAYOUTS = "Transformers, planned by layouts"
_SEARCH = "Search"
_OPERATORS = "Search of models planned by operators"


def _considered(help_text: str, shown: str, *names: str) -> tuple[Any, Any]:
    return option(str | None, None, help_text, *names, show_default=shown, rich_help_panel=_LAYOUTS)


WIRING: Options = {
    "ports": (common.Ports, "directed"),
    "latency": (common.Latency, "1us"),
    "seed": option(int, 0, "The same seed and steps give the same plan.", rich_help_panel=_SEARCH),
    "prices": (common.Prices, None),
}
"""What all clusters that a plan is sought for have in common, and what they cost."""

CLUSTER: Options = {
    "servers": (common.Servers, ...),
    "degree": option(int, ..., "Network ports of each server."),
    "bandwidth": (common.Bandwidth, ...),
    **WIRING,
}
"""The cluster that a plan is sought for."""

SPENDING: Options = {
    "objective": option(str, "time", "time, or cost-time: cost times time of a sample."),
    "max_cost": option(float | None, None, "US dollars that the network may cost."),
    "max_ports": option(int | None, None, "Ports that all servers together may use."),
}
"""What a cluster should be good at, and may take."""

JOB: Options = {
    "device": option(
        str | None, None,
        "Accelerator: a100, a100-40gb, h100, h100-96gb, h100-pcie, h200, h800, b200, b300, gb200, "
        "gb300, mi300x, mi355x or tpu-v5p.",
        show_default="a100; h100 of layouts",
    ),
    "gpus": option(
        int | None, None, "GPUs of each server.", "--gpus-per-server",
        show_default="4; 8 of layouts",
    ),
    "batch": (common.Batch, None),
    "profile": option(
        Path | None, None, "Measured operator times (JSON).", show_default="roofline of --device"
    ),
    "optimizer": option(str, "sgd", "sgd, momentum or adam; sets the state kept in memory."),
    "global_batch": option(
        int | None, None, "Samples of an iteration (transformers).", rich_help_panel=_JOB
    ),
    "sequence": option(
        int | None, None, "Tokens of a sample (transformers).", show_default="the model's own",
        rich_help_panel=_JOB,
    ),
    "mtp_layers": option(
        int | None, None, "Modules for multi-token prediction.", show_default="the model's own",
        rich_help_panel=_JOB,
    ),
    "tensor": _considered(
        "Tensor-parallel degrees considered, such as 4,8.", "all within a server"
    ),
    "pipeline": _considered("Pipeline stages considered.", "all"),
    "context_degrees": _considered(
        "Context-parallel degrees considered.", "powers of two that leave 1024 tokens", "--context"
    ),
    "expert": _considered("Expert-parallel degrees considered.", "all"),
    "expert_tensor": _considered(
        "Tensor ranks that split an expert considered; with fewer than the tensor degree, expert "
        "groups extend over the others.",
        "1 and the tensor degree",
    ),
    "virtual_stages": _considered(
        "Parts a stage of interleaved and breadth-first schedules considered.",
        "2 to 8, or 12 of one layer",
    ),
    "stage_layers": _considered(
        "Layers of each part along the model, such as 3,4x13,3,3.",
        "as even as they go, and balanced with embedding and head",
    ),
    "microbatch": _considered("Samples of a microbatch considered.", "1,2,4,8"),
    "pipeline_schedule": _considered(
        "gpipe, 1f1b, eager-1f1b, interleaved, breadth-first, zero-bubble, zero-bubble-v: those "
        "considered; docs/llm.md explains them.",
        "all but gpipe",
    ),
    "zero": _considered("ZeRO stages considered; 3 only without pipelines.", "1,3"),
    "recompute": _considered(
        "none, selective, full, modules: recomputation considered.", "none,full"
    ),
    "recompute_modules": _considered(
        "norms, up-projections, activations, shared-experts, experts, feed-forward: what "
        "recomputation by modules does again.",
        "the first three",
    ),
    "tensor_across_servers": option(
        bool, False, "Tensor groups may span servers.", "--tensor-across-servers",
        rich_help_panel=_LAYOUTS,
    ),
    "load_imbalance": option(
        float, 1.0, "Tokens of the busiest expert rank over the mean.", rich_help_panel=_LAYOUTS
    ),
    "stack": option(
        str, "megatron-core",
        "Training software, whose overlaps and memory count: megatron-core, nemo, "
        "megatron-deepep, megatron-overlap, megatron-moe, deepseek-v3, fsdp2, fsdp2-eager, "
        "fsdp2-moe, fsdp1, maxtext, llama3, megatron-2022, megatron-2021, deepspeed-2022, "
        "aleph-alpha-2023.",
        rich_help_panel=_LAYOUTS,
    ),
    "precision": option(
        str | None, None, "Of products inside layers: bf16 or fp8.", show_default="the stack's own",
        rich_help_panel=_LAYOUTS,
    ),
    "per_operator": option(
        bool, False, "Plan a transformer by operators, like other models.", "--per-operator",
        rich_help_panel=_LAYOUTS,
    ),
}  # fmt: skip
"""What is trained, and on what servers."""

SEARCH: Options = {
    "effort": option(
        str | None, None,
        "quick, normal or thorough: how much work the answer is worth; normal stops where the "
        "last tenth of it gained less than 0.2 %. By default normal, or thorough with --steps or "
        "--seconds.",
        rich_help_panel=_SEARCH, show_default="see text",
    ),
    "steps": option(
        int | None, None, "Search budget in strategy proposals.", show_default="suits the job"
    ),
    "seconds": option(
        float | None, None, "Search budget in seconds, instead of --steps.",
        rich_help_panel=_OPERATORS,
    ),
    "chains": option(
        int, 3, "Search chains, each with its own topology.", rich_help_panel=_OPERATORS
    ),
    "faithful": option(
        str | None, None, "paper or artifact: switch back everything that departs from it.",
        rich_help_panel=_OPERATORS,
    ),
    "method": option(
        str, "joint",
        "joint, alternating, sequential, strategy-only or topology-only: what is searched with "
        "what.",
        rich_help_panel=_OPERATORS,
    ),
    "no_parameter_splits": option(
        bool, False, "Split operators by samples only; profiles measure no other splits.",
        "--no-parameter-splits", rich_help_panel=_OPERATORS,
    ),
    "confirm": option(
        str | None, None,
        "packet: choose among the best plans by simulating packet trains; none: by the fluid "
        "model. By default packet for models by operators on up to 128 servers, but with other "
        "methods and schedules.",
        rich_help_panel=_SEARCH, show_default="see text",
    ),
    "schedule": option(
        str | None, None,
        "Order, buckets and overlap inside the iteration: plain (as published), fused (gradients "
        "in buckets where an AllReduce has less than a packet for each member), compute (devices "
        "take the longest remaining path first), barrier (the best that keeps the barrier between "
        "iterations) or auto. By default fused for models by operators on more than 128 servers, "
        "plain elsewhere.",
        rich_help_panel=_SEARCH, show_default="see text",
    ),
    "restarts": option(
        int, 1, "Independent searches, of which the best plan is kept.",
        rich_help_panel=_OPERATORS,
    ),
    "workers": option(
        int, 1, "Searches at a time, each in a process.", rich_help_panel=_OPERATORS
    ),
    "engine": option(
        str, "local", "local processes, ray on this machine, or ray://HOST:PORT.",
        rich_help_panel=_OPERATORS,
    ),
    "simulated": option(
        int | None, None, "Layouts that are simulated.", rich_help_panel=_LAYOUTS,
        show_default="{normal}; {quick} at quick, {thorough} at thorough effort".format_map(
            {name: effort.layouts for name, effort in EFFORTS.items()}
        ),
    ),
    "memory_bytes": option(
        float, 3e9,
        "Bytes that the task graph of a layout may take, as predicted: larger ones are not "
        "simulated, and named.", "--memory",
        rich_help_panel=_LAYOUTS,
    ),
}  # fmt: skip
"""How a plan is sought: the fields of `topoopt.problem.options.SearchOptions`."""

# Titles in the help, of the options that name none of their own.
WIRING, CLUSTER = in_panel("Cluster", WIRING), in_panel("Cluster", CLUSTER)
SPENDING, JOB, SEARCH = in_panel("Cost", SPENDING), in_panel(_JOB, JOB), in_panel(_SEARCH, SEARCH)

# Options that are called otherwise than the field that they set.
_FIELDS = {
    "batch": "batch_per_gpu", "load_imbalance": "implementation",
    "stack": "implementation", "precision": "implementation",
    "no_parameter_splits": "parameter_splits",
    **dict.fromkeys(
        (
            "tensor", "pipeline", "context_degrees", "expert", "expert_tensor", "virtual_stages",
            "stage_layers", "microbatch", "pipeline_schedule", "zero", "recompute",
            "recompute_modules",
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
        Values of `JOB`.
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
        Values of `JOB`.
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
            context, ("virtual_stages",), "no schedule has such parts; leave it out"
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
        Values of `CLUSTER`.
    """
    from topoopt.problem.job import Cluster

    return Cluster(
        *(given[name] for name in ("servers", "degree", "bandwidth", "ports", "latency"))
    )


def make_options(given: Mapping[str, Any], **more: Any) -> "SearchOptions":
    """Return the search that the options describe.

    Parameters
    ----------
    given : mapping
        Values of `SEARCH`.
    **more
        Further fields.
    """
    from topoopt.problem.options import SearchOptions

    fields = {name: given[name] for name in SEARCH if name != "no_parameter_splits"}
    return SearchOptions(**fields, parameter_splits=not given["no_parameter_splits"], **more)


def _refuse(context: typer.Context, refused: Mapping[str, str], more: str = "") -> None:
    """Refuse options that say nothing for the family of a model."""
    names = {*JOB, *SEARCH, "checkpoint"}
    for name in names:
        reason = refused.get(_FIELDS.get(name, name))
        if reason is not None:
            common.refuse_given(context, (name,), reason + (more if "graph" in reason else ""))


def choices_of(given: Mapping[str, Any]) -> "Choices":
    """Return the layouts that options leave.

    Parameters
    ----------
    given : mapping of str to str or bool or None
        Values of `JOB`; None: not given.

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
    return tuple(sorted({int(part) for part in parts}))
