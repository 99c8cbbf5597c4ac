"""What the times of a placed layout rest on, in sentences."""

from typing import TYPE_CHECKING

from parallelism.transformers.gpu import fitted_on
from parallelism.transformers.huggingface import CONFIGURATION
from parallelism.transformers.layout import LOOPED, Layout
from parallelism.transformers.linear_attention import LinearAttention
from parallelism.transformers.links import near_links
from parallelism.transformers.placement import Placement
from parallelism.transformers.shares import sums_once
from parallelism.transformers.training import Training

if TYPE_CHECKING:
    from parallelism.transformers.records import LayoutQuestion

MEGATRON_SCHEDULES = ("1f1b", *LOOPED)
"""Those of pipelines that Megatron-LM has."""
LACKING = "Megatron-LM has no schedule"
"""How the note begins that a stack lacks the schedule of a layout."""


def _of_linear(linear: LinearAttention, layout: Layout) -> list[str]:
    """Return what the times of linear attention rest on."""
    found = []
    if linear.kind in ("gated-deltanet", "kda", "mamba-2"):
        found.append(
            "kernels of linear attention reach shares of the memory's rate that were fitted on "
            "Gated DeltaNet on GB200 alone; published runs of hybrid models are met within "
            "19 % in the mean, 41 % at most"
        )
    else:
        found.append(
            f"no published run holds the times of {linear.title}"
            + ("" if linear.kind == "short-convolution" else ", whose kernels reach shares of the "
               "memory's rate that were fitted on Gated DeltaNet on GB200 alone")
        )  # fmt: skip
    if linear.beside_attention and layout.tensor > 1:
        found.append(
            f"attention and {linear.title} of a layer are parallel: a tensor group sums their "
            "outputs together, which Megatron Bridge does one after the other"
        )
    if layout.context > 1 and linear.passed_on is not None:
        what = "states after" if linear.kind == "lightning" else "the last of"
        found.append(
            f"context ranks pass on {what} their tokens for {linear.title}, as ranks of contiguous "
            "shares of a sequence can; Megatron-LM has no such layers"
        )
    elif layout.context > 1:
        found.append(
            "context ranks exchange heads of linear attention before and after its kernels, which "
            "nothing hides"
            + (
                "; no public software does so for Kimi Delta Attention"
                if linear.kind == "kda"
                else ""
            )
        )
    return found


def assumptions_of(question: "LayoutQuestion", placement: Placement) -> list[str]:
    """Return what the times of a placed layout rest on, one sentence each.

    Parameters
    ----------
    question : LayoutQuestion
    placement : Placement
    """
    model, implementation, rates = question.model, question.implementation, question.rates
    reached = near_links(question.server).inter_efficiency
    found = [
        f"times of products and attention are those of {rates.accelerator.name} with "
        f"rates fitted on {fitted_on(rates)}",
        f"the training software is {implementation.stack}: its overlaps, its kernels and "
        "the memory that it keeps",
        f"messages to other servers count {1 / reached:g} times their bytes: long ones reach "
        f"{reached:g} of a NIC's rate",
    ]
    if implementation.iteration_s:
        found.append(
            f"{implementation.stack} takes {implementation.iteration_s:g} s an iteration beside "
            "what is computed and sent, which counts as compute"
        )
    remark = model.source.partition(f"{CONFIGURATION}: ")[2]
    if remark and question.sequence == model.sequence:
        found.append(f"{model.name}: {remark}")
    schedule, stages = placement.layout.schedule, placement.layout.pipeline
    megatron = implementation.stack.startswith(("megatron", "nemo"))
    if megatron and stages > 1 and schedule not in MEGATRON_SCHEDULES:
        found.append(
            f"{LACKING} {schedule!r}; PyTorch runs it by pipeline.csv of a deployment, and "
            f"--pipeline-schedule {','.join(MEGATRON_SCHEDULES)} plans for what Megatron-LM has"
        )
    if implementation.precision == "fp8":
        found.append(
            f"products inside layers are in FP8, at a share of its peak of {rates.fp8_efficiency:g}"
        )
    if model.linear is not None:
        found += _of_linear(model.linear, placement.layout)
    if model.indexer is not None:
        found.append(
            "no published run that was tuned holds the times and memory of keys that an "
            "indexer chooses"
        )
    if sums_once(model) and placement.layout.tensor > 1:
        found.append(
            "attention and feed-forward part of a layer are parallel: a tensor group sums "
            "their outputs together, and the gradients of their inputs"
        )
    if question.memory_reserve:
        found.append(f"{question.memory_reserve:.0%} of each GPU's memory is left free")
    training = Training(model, placement.layout, implementation, question.sequence)
    imbalance = training.load_imbalance if model.experts else 1.0
    if imbalance > 1.0:
        found.append(f"the busiest expert rank has {imbalance:g} times its share of tokens")
    elif implementation.load_imbalance > 1.0:
        found.append("each expert rank holds all experts, so that load_imbalance has no effect")
    elif model.experts:
        found.append("tokens are spread evenly over experts")
    return found
