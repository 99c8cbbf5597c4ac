"""Settings of Megatron-LM (core_r0.14 or later) and torchtitan (v0.2) for the layout of a plan.

Names of options are those of megatron/training/arguments.py and torchtitan/config/job_config.py.
What a program cannot express is returned as notes, never left out in silence.
"""

import json
from dataclasses import replace

from codesign_base.counted import counted
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.layout import FOLDED, LOOPED, Layout
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
PIPELINE_FILE = "pipeline.csv"
"""Name of the file with the order of a pipeline's passes."""
TORCH_SCHEDULES = {
    "gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B",
    "zero-bubble-v": "ZBVZeroBubble",
}  # fmt: skip
"""PyTorch's names of pipeline schedules (torch.distributed.pipelining); it reads others from a
file."""

Said = tuple[list[str], list[str]]
"""Lines of a file, and notes."""


def question_of(plan: Plan) -> tuple[LayoutQuestion, Layout] | None:
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
    if layout.pipeline == 1 or layout.schedule in ("1f1b", *LOOPED):
        return layout
    maps = () if layout.schedule in FOLDED else layout.stage_layers
    return replace(layout, schedule="1f1b", virtual_stages=1, stage_layers=maps)


def megatron(plan: Plan, job: LayoutQuestion, layout: Layout) -> Said:
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
        lines.append(f"--expert-tensor-parallel-size {_expert_tensor(layout)}")
    runs = as_megatron_runs(layout)
    if runs != layout:
        notes.append(
            f"Megatron-LM has no schedule {layout.schedule!r} and runs 1F1B instead; "
            "--pipeline-schedule 1f1b,interleaved,breadth-first plans for what it has"
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
        notes.append(
            "Megatron-LM's FSDP refuses CUDA_DEVICE_MAX_CONNECTIONS=1; set it to 32 in the job's "
            "environment"
        )
    if layout.zero < 2 and max(layout.tensor, layout.context) > 1:
        notes.append(
            "Megatron-LM asks for CUDA_DEVICE_MAX_CONNECTIONS=1 in the job's environment on GPUs "
            "before Blackwell"
        )
    if layout.context > 1 and job.sequence % (2 * layout.context):
        notes.append(
            f"Megatron-LM refuses {job.sequence} tokens over {layout.context} context ranks: it "
            "wants a multiple of twice as many"
        )
    if layout.context > 1 and model.indexer is not None:
        lines.append("--cp-comm-type allgather")
        notes.append("Megatron-LM has context ranks beside dsa from core_r0.19 on")
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


def torchtitan(plan: Plan, job: LayoutQuestion, layout: Layout) -> Said:
    """Return a torchtitan job file (TOML); the model's name and data are the user's.

    None, and a note that says why, for models that torchtitan lacks (v0.2.2 has llama3, llama4,
    qwen3, deepseek_v3 and gpt_oss, and dense decoders of Hugging Face's transformers 4.57).

    Parameters
    ----------
    plan : Plan
    job : LayoutQuestion
    layout : Layout
    """
    if missing := _not_in_torchtitan(job.model):
        why = f"torchtitan v0.2 has no models with {missing} and cannot run this one"
        return [], [f"{why}: torchtitan.toml is not written"]
    notes = []
    if job.model.experts is not None:
        notes.append(
            "torchtitan v0.2 has llama4, qwen3, deepseek_v3 and gpt_oss with experts: of any other "
            "model torchtitan.toml holds the layout only, and its layers are to be added there"
        )
    if not (stack := job.implementation.stack).startswith("fsdp2"):
        notes.append(
            f"times and memory of the plan are those of the stack {stack!r}, not of torchtitan; "
            "--stack fsdp2 plans for it"
        )
    replicate, shard = 1, layout.data
    match layout.zero:
        case 0:
            shard = _least_shard(layout)
            replicate = layout.data // shard
            if shard > 1:
                notes.append(
                    "torchtitan spreads experts over ranks that shard states: ZeRO stage 0 of the "
                    f"plan runs as stage 2 over {shard} ranks"
                )
        case 1:
            notes.append(
                "torchtitan shards gradients with optimizer states: ZeRO stage 1 of the plan runs "
                "as stage 2"
            )
    microbatches = layout.microbatches(plan.global_batch)
    pipelined = layout.pipeline > 1
    local = layout.microbatch * (microbatches if pipelined else 1)
    lines = [
        "[training]",
        f"local_batch_size = {local}",
        f"global_batch_size = {plan.global_batch}",
        f"seq_len = {job.sequence}",
        "",
        "[parallelism]",
        f"data_parallel_replicate_degree = {replicate}",
        f"data_parallel_shard_degree = {shard}",
        f'fsdp_reshard_after_forward = "{"always" if layout.zero == 3 else "never"}"',
        f"tensor_parallel_degree = {layout.tensor}",
        f"context_parallel_degree = {layout.context}",
        f"pipeline_parallel_degree = {layout.pipeline}",
    ]
    if job.model.experts is not None:
        lines.append(f"expert_parallel_degree = {layout.expert}")
        lines.append(f"expert_tensor_parallel_degree = {_expert_tensor(layout)}")
    if pipelined:
        name = TORCH_SCHEDULES.get(layout.schedule)
        if name is None:
            # That says how parts go round the ranks, and the file in which order they run.
            name = "Interleaved1F1B" if layout.schedule in LOOPED else "1F1B"
            lines.append(f'pipeline_parallel_schedule_csv = "{PIPELINE_FILE}"')
            notes.append(
                f"torchtitan reads the order of passes from {PIPELINE_FILE} in the directory in "
                "which it starts, since PyTorch has no schedule "
                f"{layout.schedule!r}"
            )
        lines.append(f'pipeline_parallel_schedule = "{name}"')
        lines.append(f"pipeline_parallel_microbatch_size = {layout.microbatch}")
        lines.append(f"module_fqns_per_model_part = {json.dumps(_modules(job.model, layout))}")
    if job.model.mtp_layers:
        notes.append(
            "torchtitan has no multi-token prediction: the plan's time includes "
            f"{job.model.mtp_layers} of its modules"
        )
    if layout.tensor > 1 and not layout.sequence_parallel:
        notes.append("torchtitan always splits norms along the sequence; the plan does not")
    if job.implementation.precision == "fp8":
        notes.append("torchtitan trains in FP8 by its converters of modules, which the user names")
    recompute = layout.recompute
    if recompute == "modules":
        recompute = "full"
        notes.append(
            "torchtitan does not recompute single modules: it does all again, in more time"
        )
    lines += ["", "[activation_checkpoint]", f'mode = "{recompute}"']
    if recompute == "selective":
        lines.append('selective_ac_option = "op"')
        notes.append(
            "torchtitan's selective recomputation of operators is not the plan's "
            f"({job.implementation.selective!r}): memory and time differ"
        )
    return lines, notes


def _not_in_torchtitan(model: Transformer) -> str:
    """Return what of a model's layers torchtitan has in none of its own, empty if all is there."""
    missing = []
    if model.linear is not None:
        kind = model.linear.kind
        delta = kind in ("gated-deltanet", "kda")
        missing.append("linear attention" if delta else model.linear.title)
    if model.without_feed_forward or model.without_attention:
        missing.append("layers of one part")
    if model.attention.output_gate:
        missing.append("an output gate of attention")
    if model.indexer is not None:
        missing.append("keys that an indexer chooses")
    return " or ".join(missing)


def _least_shard(layout: Layout) -> int:
    """Return the fewest data ranks that, with context and tensor ranks, hold all experts."""
    experts = layout.expert * _expert_tensor(layout) if layout.expert > 1 else 1
    return next(
        shard
        for shard in range(1, layout.data + 1)
        if layout.data % shard == 0 and shard * layout.context * layout.tensor % experts == 0
    )


def _expert_tensor(layout: Layout) -> int:
    """Return the tensor ranks that split each expert."""
    return layout.tensor if layout.expert_tensor is None else layout.expert_tensor


def _modules(model: Transformer, layout: Layout) -> list[list[str]]:
    """Return the modules of each part of a pipeline, by torchtitan's names."""
    return [
        [
            *(["tok_embeddings"] if part.embedding else []),
            *(f"layers.{i}" for i in range(part.first, part.first + part.layers)),
            *(["norm", "output"] if part.head else []),
        ]
        for part in parts_of(model, layout)
    ]
