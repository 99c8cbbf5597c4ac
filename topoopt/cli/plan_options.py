"""Groups of options that commands which plan take: the job, the cluster and how to search.

A command names the groups that it takes (`topoopt.base.option_groups.takes`), and gets what was
given as one dictionary, of which `topoopt.cli.given` makes a job, a cluster and a search.
"""

from pathlib import Path
from typing import Any

from topoopt.base.option_groups import Options, in_panel, option
from topoopt.cli import common
from topoopt.problem.effort import EFFORTS

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

WIRED: Options = {
    "wiring": option(
        Path | None, None,
        "How the servers are wired already (network file or plan): plan for that, and no other.",
        show_default="wired for the plan",
    ),
}  # fmt: skip
"""The wires that are there."""

SPENDING: Options = {
    "objective": option(str, "time", "time, or cost-time: cost times time of a sample."),
    "max_cost": option(
        float | None, None, "US dollars that the network, and servers that have a price, may cost."
    ),
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
        int | None, None, "Tokens of a sample (transformers).",
        show_default="the model's own; of a config.json its positions, at most 4096",
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
        "Context-parallel degrees considered.", "all that leave 1024 tokens a rank", "--context"
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
    "microbatch": _considered("Samples of a microbatch considered.", "1 to 8"),
    "pipeline_schedule": _considered(
        "gpipe, 1f1b, eager-1f1b, interleaved, breadth-first, zero-bubble, zero-bubble-v: those "
        "considered; docs/llm.md explains them.",
        "all but gpipe",
    ),
    "zero": _considered(
        "ZeRO stages considered; 3 only without pipelines.",
        "1 and 3; without pipelines 2 where 1 does not fit",
    ),
    "replicate": _considered(
        "Copies of sharded states considered, divisors of the data degree (hybrid sharding).", "1",
    ),
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
