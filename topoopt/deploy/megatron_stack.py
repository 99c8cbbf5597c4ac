"""Megatron-LM's options for what a stack counts beside the layout: overlap, widths, kernels."""

from parallelism.transformers.layout import Layout
from parallelism.transformers.records import LayoutQuestion
from topoopt.deploy.megatron_hybrid import has_pattern

_MEGATRON = ("megatron-core", "nemo", "megatron-moe", "megatron-deepep", "megatron-overlap")
_BF16_MOMENTS = 8


def stack_options(job: LayoutQuestion, layout: Layout) -> tuple[list[str], list[str]]:
    """Return the options, one a line, and notes on what Megatron-LM does otherwise.

    Parameters
    ----------
    job : LayoutQuestion
    layout : Layout

    Returns
    -------
    lines, notes : list of str
    """
    stack = job.implementation
    lines, notes = [], []
    if stack.stack not in _MEGATRON:
        notes.append(
            f"times and memory of the plan are those of the stack {stack.stack!r}, not of "
            "Megatron-LM; --stack megatron-core plans for it"
        )
    if not stack.dropout:
        lines.append("--attention-dropout 0.0 --hidden-dropout 0.0")  # 0.1 by default
    if stack.precision == "fp8":
        recipe = "delayed" if stack.delayed_scaling else "tensorwise"
        lines.append(f"--fp8-format hybrid --fp8-recipe {recipe}")
        if stack.fp8_weights and layout.zero:
            lines.append("--fp8-param-gather")
    if layout.data * layout.context > 1 and stack.overlap_data > 0.0:
        lines.append("--overlap-grad-reduce")
        if layout.zero:
            lines.append("--overlap-param-gather")
    if layout.tensor > 1 and stack.overlap_tensor > 0.0:
        if layout.sequence_parallel:
            lines.append("--tp-comm-overlap")
        else:
            notes.append(
                "Megatron-LM hides no messages of tensor groups without sequence parallelism; the "
                f"plan counts {stack.overlap_tensor:g} of them as hidden"
            )
    if stack.gradient_bytes == 2:
        lines.append("--grad-reduce-in-bf16")
    if stack.optimizer_bytes == _BF16_MOMENTS and layout.zero == 1:
        lines.append("--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16")
    elif stack.optimizer_bytes < 12:
        notes.append(
            f"the plan counts {stack.optimizer_bytes:g} bytes of optimizer state a parameter, "
            "Megatron-LM's Adam has 12: more memory"
        )
    if job.model.experts is not None:
        lines += _experts(job, layout, notes)
    return lines, notes


def _experts(job: LayoutQuestion, layout: Layout, notes: list[str]) -> list[str]:
    """Return how tokens get to experts, and that products of all experts are one kernel."""
    stack = job.implementation
    lines = ["--moe-grouped-gemm"]
    notes.append(
        "how a router scores experts and balances them is not in the plan, whose busiest rank gets "
        f"{stack.load_imbalance:g} times the mean: set --moe-router-score-function, "
        "--moe-router-load-balancing-type and their like"
    )
    if layout.tensor > 1 and layout.expert > 1 and not layout.sequence_parallel:
        notes.append(
            "Megatron-LM refuses expert ranks beside tensor ranks without sequence parallelism"
        )
    if stack.forwarded_tokens and layout.expert > 1:
        lines.append("--moe-token-dispatcher-type flex --moe-enable-deepep")
        lines.append("--moe-router-dtype fp32")
        notes.append(
            "DeepEP sends tokens by NVSHMEM, which reads none of NCCL's settings and takes no "
            "all-to-all from a file"
        )
    else:
        lines.append("--moe-token-dispatcher-type alltoall")
    if layout.expert > 1 and stack.fp8_dispatch and stack.precision == "fp8":
        notes.append("Megatron-LM sends tokens to experts in BF16; the plan counts FP8")
    if layout.expert > 1 and stack.overlap_expert > 0.0:
        parts = layout.pipeline == 1 or layout.virtual_stages > 1
        gpt = not has_pattern(job.model)
        again = layout.recompute == "full" or "experts" in layout.modules
        if parts and gpt and not again and job.model.mtp_layers <= 1:
            lines.append("--overlap-moe-expert-parallel-comm")
            notes.append(
                "Megatron-LM exchanges tokens beside another microbatch with "
                "CUDA_DEVICE_MAX_CONNECTIONS above 1, such as 32"
            )
            if layout.virtual_stages > 1:
                notes.append(
                    "Megatron-LM then runs one more forward pass before the first backward pass; "
                    "the plan's memory is without it"
                )
        else:
            notes.append(
                "Megatron-LM exchanges tokens beside another microbatch only in one stage or an "
                "interleaved pipeline, without recomputation in full or of experts, with one "
                "module for multi-token prediction at most, in models without a hybrid pattern; "
                f"the plan counts {stack.overlap_expert:g} of the exchange as hidden"
            )
    return lines
