"""Settings of Megatron-LM (core_r0.14 or later) for the layout of a plan.

Names of options are those of megatron/training/arguments.py.
What a program cannot express is returned as notes, never left out in silence.
"""

from dataclasses import replace

from codesign_base.counted import counted
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.assumptions import LACKING, MEGATRON_SCHEDULES
from parallelism.transformers.layout import FOLDED, Layout
from parallelism.transformers.records import LayoutQuestion, LayoutRecord
from parallelism.transformers.stages import parts_of
from topoopt.deploy.megatron_hybrid import (
    blocks_a_layer,
    has_pattern,
    hybrid_options,
    not_in_megatron,
)
from topoopt.deploy.megatron_model import model_options
from topoopt.deploy.megatron_stack import stack_options
from topoopt.plan.plan import Plan

MODULES = {
    "norms": "layernorm", "up-projections": "mla_up_proj", "activations": "moe_act",
    "shared-experts": "shared_experts", "experts": "moe", "feed-forward": "mlp",
}  # fmt: skip
"""Megatron-LM's names of modules that are computed again."""
LinesAndNotes = tuple[list[str], list[str]]
"""Lines of a file, and notes."""


def planned_layout(plan: Plan) -> tuple[LayoutQuestion, Layout] | None:
    """Return the job and the layout of a plan by layouts, None of one by operators."""
    record = plan.parallelization
    if isinstance(record, LayoutRecord) and isinstance(plan.job, LayoutQuestion):
        return plan.job, record.layout
    return None


def as_megatron_runs(layout: Layout) -> Layout:
    """Return a layout with 1F1B where Megatron-LM lacks its pipeline schedule.

    Parameters
    ----------
    layout : Layout

    Examples
    --------
    >>> as_megatron_runs(Layout(pipeline=4, schedule="eager-1f1b")).schedule
    '1f1b'
    """
    if layout.pipeline == 1 or layout.schedule in MEGATRON_SCHEDULES:
        return layout
    maps = () if layout.schedule in FOLDED else layout.stage_layers
    return replace(layout, schedule="1f1b", virtual_stages=1, stage_layers=maps)


def megatron(plan: Plan, job: LayoutQuestion, layout: Layout) -> LinesAndNotes:
    """Return Megatron-LM's arguments, one option with its value a line.

    None, and a note that says why, for models that Megatron-LM lacks.

    Parameters
    ----------
    plan : Plan
    job : LayoutQuestion
    layout : Layout
    """
    model = job.model
    if missing := not_in_megatron(model.linear):
        why = f"Megatron-LM has no {missing} and cannot run this model"
        return [], [f"{why}: megatron.args is not written"]
    lines = [
        f"--tensor-model-parallel-size {layout.tensor}",
        f"--context-parallel-size {layout.context}",
        f"--pipeline-model-parallel-size {layout.pipeline}",
        f"--micro-batch-size {layout.microbatch}",
        f"--global-batch-size {plan.global_batch}",
        f"--seq-length {job.sequence}",
    ]
    notes = []
    if layout.sequence_parallel and layout.tensor > 1:
        lines.append("--sequence-parallel")
    if model.experts is not None:
        lines.append(f"--expert-model-parallel-size {layout.expert}")
        lines.append(f"--expert-tensor-parallel-size {layout.expert_split}")
    runs = as_megatron_runs(layout)
    if runs != layout:
        notes.append(
            f"{LACKING} {layout.schedule!r} and runs 1F1B instead; "
            f"--pipeline-schedule {','.join(MEGATRON_SCHEDULES)} plans for what it has"
        )
        if layout.schedule in FOLDED:
            notes.append("Megatron-LM has no stage with both ends of a model: its layers are even")
        layout = runs
    if layout.pipeline > 1 or layout.virtual_stages > 1:
        if not has_pattern(model):
            lines += _megatron_cuts(model, layout)
        if layout.schedule == "breadth-first":
            together = layout.microbatches(plan.global_batch)
            lines.append(f"--microbatch-group-size-per-virtual-pipeline-stage {together}")
    match layout.recompute:
        case "full":
            lines.append("--recompute-granularity full --recompute-method uniform")
            together = blocks_a_layer(model) if has_pattern(model) else 1
            lines.append(f"--recompute-num-layers {together}")
        case "selective":
            lines.append("--recompute-granularity selective")
            if job.implementation.selective != "core":
                notes.append(
                    "Megatron-LM's selective recomputation does attention cores again; the plan "
                    f"counts {job.implementation.selective!r}"
                )
        case "modules":
            lines += _megatron_modules(job, layout, notes)
    for found, more in zip((lines, notes), stack_options(job, layout), strict=True):
        found += more
    if layout.zero == 1:
        lines.append("--use-distributed-optimizer")
    elif layout.zero > 1:
        shards = "optim_grads" if layout.zero == 2 else "optim_grads_params"
        lines.append("--use-distributed-optimizer --use-megatron-fsdp --ckpt-format fsdp_dtensor")
        lines.append(f"--data-parallel-sharding-strategy {shards}")
        if layout.replicate > 1:
            lines.append("--outer-dp-sharding-strategy no_shard")
        notes.append(
            "Megatron-LM's FSDP refuses CUDA_DEVICE_MAX_CONNECTIONS=1; set it to 32 in the job's "
            "environment"
        )
        if max(layout.tensor, layout.context) > 1:
            notes.append(
                "Megatron-LM warns of FSDP beside tensor or context ranks, whose messages it hides "
                "less well then"
            )
    if layout.replicate > 1:
        lines.append(f"--num-distributed-optimizer-instances {layout.replicate}")
    beside = "--overlap-moe-expert-parallel-comm" in lines
    if layout.zero < 2 and max(layout.tensor, layout.context) > 1 and not beside:
        notes.append(
            "Megatron-LM asks for CUDA_DEVICE_MAX_CONNECTIONS=1 in the job's environment on GPUs "
            "before Blackwell"
        )
    if layout.context > 1 and job.sequence % (2 * layout.context):
        notes.append(
            f"Megatron-LM refuses {job.sequence} tokens over {layout.context} context ranks: it "
            "wants a multiple of twice as many"
        )
    if layout.context > 1:
        lines += _context_messages(model, layout, notes)
    lines += model_options(model, job.sequence, notes)
    lines += hybrid_options(model, layout, job.implementation.precision == "fp8", notes)
    kv_heads = model.attention.kv_heads
    if model.attention.latent is None and kv_heads % layout.tensor:
        first = "core_r0.17" if model.attention.output_gate else "core_r0.16"
        notes.append(
            f"Megatron-LM before {first} refuses {counted(kv_heads, 'key-value head')} over "
            f"{layout.tensor} tensor ranks; later ones gather projections among them, which the "
            "plan does not count"
        )
    return lines, notes


def _context_messages(model: Transformer, layout: Layout, notes: list[str]) -> list[str]:
    """Return how context ranks exchange keys and values, where it cannot be a ring.

    Transformer Engine refuses sliding windows in rings of context ranks, and learned sinks
    anywhere but in an exchange of heads (attn_forward_func_with_cp).
    """
    if model.indexer is not None:
        notes.append("Megatron-LM has context ranks beside dsa from core_r0.19 on")
        return ["--cp-comm-type all_gather"]
    attention, window = model.attention, model.window
    windows = window is not None and not window.chunked
    if not (windows or attention.sinks):
        return []
    ranks = layout.tensor * layout.context
    heads = attention.heads % ranks == 0 and attention.kv_heads % ranks == 0
    kind = "a2a" if heads or attention.sinks else "all_gather"
    what = "exchange heads" if kind == "a2a" else "gather keys and values"
    notes.append(
        f"context ranks {what} in Megatron-LM, since rings of them have no sliding windows or "
        "sinks; the plan counts rings"
    )
    if not heads and kind == "a2a":
        notes.append(
            f"Megatron-LM refuses this: {layout.context} context ranks cannot share out "
            f"{counted(attention.kv_heads, 'key-value head')} over {layout.tensor} tensor ranks; "
            "--context plans for fewer"
        )
    return [f"--cp-comm-type {kind}"]


def _megatron_cuts(model: Transformer, layout: Layout) -> list[str]:
    """Return the options for the parts of a pipeline, none where it is cut evenly by default."""
    parts = parts_of(model, layout)
    if len({part.layers for part in parts}) > 1:
        cut = [
            ("E" if part.embedding else "")
            + "t" * part.layers
            + ("m" * model.mtp_layers + "L" if part.head else "")
            for part in parts
        ]
        return [f"--pipeline-model-parallel-layout {'|'.join(cut)}"]
    if layout.virtual_stages > 1:
        return [f"--num-virtual-stages-per-pipeline-rank {layout.virtual_stages}"]
    return []


def _megatron_modules(job: LayoutQuestion, layout: Layout, notes: list[str]) -> list[str]:
    """Return the options that compute single modules again, as far as there are such."""
    model, stack = job.model, job.implementation
    experts = model.experts
    does = {
        "norms": True,
        "up-projections": model.attention.latent is not None,
        "activations": experts is not None,
        "shared-experts": experts is not None and experts.shared > 0,
        "experts": experts is not None,
        "feed-forward": True,
    }
    names = [MODULES[module] for module in layout.modules if does[module]]
    if "activations" in layout.modules:
        notes.append("Megatron-LM computes nonlinearities of experts only again")
    if not names:
        return []
    if stack.precision == "fp8" and stack.delayed_scaling and {"layernorm", "moe_act"} & {*names}:
        notes.append(
            "Megatron-LM refuses FP8 with delayed scaling where norms or nonlinearities are "
            "computed again"
        )
    return [f"--recompute-granularity selective --recompute-modules {' '.join(names)}"]
