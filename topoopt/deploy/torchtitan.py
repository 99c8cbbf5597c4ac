"""Settings of torchtitan (v0.2.2) for the layout of a plan.

Names of options are those of torchtitan/config/job_config.py. What the program cannot do is
returned as notes, never left out in silence.
"""

import json
from dataclasses import replace
from types import MappingProxyType

from codesign_base.counted import counted
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.layout import LOOPED, SPLIT, Layout
from parallelism.transformers.presets import get_transformer
from parallelism.transformers.records import LayoutQuestion
from parallelism.transformers.stages import parts_of
from topoopt.deploy.launch import LinesAndNotes
from topoopt.plan.plan import Plan

PIPELINE_FILE = "pipeline.csv"
"""Name of the file with the order of a pipeline's passes."""
TORCH_SCHEDULES = MappingProxyType({
    "gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B",
    "zero-bubble-v": "ZBVZeroBubble",
})  # fmt: skip
"""PyTorch's names of pipeline schedules (torch.distributed.pipelining); it reads others from a
file."""
FLAVORS = MappingProxyType({
    "llama3-8b": ("llama3", "8B"), "llama3.1-8b": ("llama3", "8B"),
    "llama3-70b": ("llama3", "70B"), "llama3.1-70b": ("llama3", "70B"),
    "llama3.1-405b": ("llama3", "405B"),
    "llama4-scout": ("llama4", "17bx16e_irope"), "llama4-maverick": ("llama4", "17bx128e_irope"),
    "qwen3-0.6b": ("qwen3", "0.6B"), "qwen3-1.7b": ("qwen3", "1.7B"), "qwen3-4b": ("qwen3", "4B"),
    "qwen3-8b": ("qwen3", "8B"), "qwen3-14b": ("qwen3", "14B"), "qwen3-32b": ("qwen3", "32B"),
    "qwen3-30b-a3b": ("qwen3", "30B-A3B"), "qwen3-235b-a22b": ("qwen3", "235B-A22B"),
    "deepseek-v2-lite": ("deepseek_v3", "16B"), "deepseek-v2": ("deepseek_v3", "236B"),
    "deepseek-v3": ("deepseek_v3", "671B"),
    "gpt-oss-20b": ("gpt_oss", "20b"), "gpt-oss-120b": ("gpt_oss", "120b"),
})  # fmt: skip
"""torchtitan's name and flavor of models that it has."""
# Those with ``pipelining_fn=None`` in their TrainSpec.
_NO_PIPELINE = ("qwen3", "gpt_oss")
# Their attention is flexible, which context ranks refuse; Qwen3's README says that it has none.
_NO_CONTEXT = ("llama4", "qwen3", "deepseek_v3", "gpt_oss")


def torchtitan(plan: Plan, job: LayoutQuestion, layout: Layout) -> LinesAndNotes:
    """Return a torchtitan job file (TOML); data, and names of other models, are the user's.

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
    name, flavor = _flavor_of(job.model)
    notes = _refused(name, job, layout)
    if not name and job.model.experts is not None:
        notes.append(
            f"torchtitan v0.2 has no {job.model.name}: torchtitan.toml holds its layout only, and "
            "its layers are to be added there"
        )
    elif not name:
        notes.append("torchtitan.toml names no model: torchtitan v0.2 has no flavor of this name")
    if not (stack := job.implementation.stack).startswith("fsdp2"):
        notes.append(
            f"times and memory of the plan are those of the stack {stack!r}, not of torchtitan; "
            "--stack fsdp2 plans for it"
        )
    replicate, shard = layout.replicate, layout.data // layout.replicate
    match layout.zero:
        case 0:
            shard = _least_shard(layout)
            replicate = layout.data // shard
            if shard * layout.context > 1:
                notes.append(
                    "torchtitan shards states over context ranks, over those that experts are "
                    "spread over, and over some wherever there are tensor or pipeline ranks: ZeRO "
                    f"stage 0 of the plan runs as stage 2 over {shard * layout.context} ranks"
                )
        case 1 if layout.data * layout.context > 1:
            notes.append(
                "torchtitan shards gradients with optimizer states: ZeRO stage 1 of the plan runs "
                "as stage 2"
            )
    microbatches = layout.microbatches(plan.global_batch)
    pipelined = layout.pipeline > 1
    if layout.replicate > 1 and microbatches > 1:
        notes.append(
            "torchtitan adds up the gradients of its replicas after every microbatch, the plan "
            "once an iteration: call set_requires_all_reduce(False) before all but the last"
        )
    local = layout.microbatch * (microbatches if pipelined else 1)
    lines = [
        *(["[model]", f'name = "{name}"', f'flavor = "{flavor}"', ""] if name else []),
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
        lines.append(f"expert_tensor_parallel_degree = {layout.expert_split}")
    if pipelined:
        schedule = TORCH_SCHEDULES.get(layout.schedule)
        if schedule is None:
            # That says how parts go round the ranks, and the file in which order they run.
            schedule = "Interleaved1F1B" if layout.schedule in LOOPED else "1F1B"
            lines.append(f'pipeline_parallel_schedule_csv = "{PIPELINE_FILE}"')
            notes.append(
                f"torchtitan reads the order of passes from {PIPELINE_FILE} in the directory in "
                "which it starts, since PyTorch has no schedule "
                f"{layout.schedule!r}"
            )
        if layout.schedule in SPLIT and stack != "fsdp2-eager":
            notes.append(
                f"PyTorch cannot run models of torch.compile by schedule {layout.schedule!r}; "
                "--stack fsdp2-eager plans without it"
            )
        lines.append(f'pipeline_parallel_schedule = "{schedule}"')
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


def _flavor_of(model: Transformer) -> tuple[str, str]:
    """Return torchtitan's name and flavor of a model, empty if it has none."""
    if model.name not in FLAVORS:
        return "", ""
    usual = replace(
        get_transformer(model.name), sequence=model.sequence, mtp_layers=model.mtp_layers,
        mtp_repeated=model.mtp_repeated,
    )  # fmt: skip
    return FLAVORS[model.name] if usual == model else ("", "")


def _refused(name: str, job: LayoutQuestion, layout: Layout) -> list[str]:
    """Return what torchtitan, or its model of a name, lacks of a layout."""
    notes = []
    if layout.pipeline > 1 and name in _NO_PIPELINE:
        notes.append(
            f"torchtitan v0.2 refuses pipelines of {name}; --pipeline 1 plans for what it has"
        )
    if layout.context > 1 and name in _NO_CONTEXT:
        notes.append(
            f"torchtitan v0.2 has no context ranks for {name}; --context 1 plans for what it has"
        )
    if layout.expert > 1 and layout.expert_split not in (1, layout.tensor):
        notes.append(
            f"torchtitan refuses experts over {layout.expert_split} of {layout.tensor} tensor "
            "ranks; --expert-tensor 1 plans for what it has"
        )
    parts = layout.tensor * 2 * layout.context
    if job.sequence % parts:
        notes.append(
            f"torchtitan refuses {job.sequence} tokens over {layout.tensor} tensor and "
            f"{layout.context} context ranks: it wants a multiple of {parts}"
        )
    attention = job.model.attention
    if attention.latent is None and attention.kv_heads % layout.tensor:
        notes.append(
            f"torchtitan cannot divide {counted(attention.kv_heads, 'key-value head')} over "
            f"{layout.tensor} tensor ranks"
        )
    if layout.data * layout.context == 1 and layout.tensor * layout.pipeline > 1:
        notes.append(
            "torchtitan trains in FP32 where no ranks shard states: memory and time are not the "
            "plan's; --tensor and --pipeline of fewer ranks leave some to data"
        )
    return notes


def _least_shard(layout: Layout) -> int:
    """Return the fewest data ranks over which torchtitan can shard states.

    With context and tensor ranks they hold all experts; and replicas alone, whose states nobody
    shards, it has without tensor and pipeline ranks only.
    """
    experts = layout.expert * layout.expert_split if layout.expert > 1 else 1
    lone = layout.tensor * layout.pipeline == 1
    return next(
        shard
        for shard in range(1, layout.data + 1)
        if layout.data % shard == 0
        and shard * layout.context * layout.tensor % experts == 0
        and (lone or layout.data == 1 or shard * layout.context > 1)
    )


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
