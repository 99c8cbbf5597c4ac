"""The seconds that the parts of a transformer take for each pass of a microbatch, by formula."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from parallelism.transformers.architecture import Transformer
from parallelism.transformers.collectives import (
    Communication,
    end_communications,
    layer_communications,
)
from parallelism.transformers.costs import layer_costs
from parallelism.transformers.end_costs import embedding_costs, head_costs
from parallelism.transformers.exposure import (
    communication_seconds,
    exposed_seconds,
)
from parallelism.transformers.gpu import GpuRates
from parallelism.transformers.implementation import MEGATRON_CORE, Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.links import Links, collective_seconds, group_placement_of
from parallelism.transformers.stages import Part, alike_parts, part_weights, parts_of
from parallelism.transformers.work import PassCosts, Work

# Bytes of an element of an activation.
_ELEMENT = 2.0


@dataclass(frozen=True, slots=True)
class PassSeconds:
    """Seconds of the passes of one part over one microbatch, on one GPU.

    Parameters
    ----------
    forward, backward, weight : float
        With their exposed communication inside the stage; ``backward`` with recomputation.
    communication : float
        What of the three is exposed communication.
    """

    forward: float = 0.0
    backward: float = 0.0
    weight: float = 0.0
    communication: float = 0.0

    def plus(self, other: "PassSeconds", count: float = 1.0) -> "PassSeconds":
        """Return these and ``count`` times the other's."""
        return PassSeconds(
            self.forward + count * other.forward,
            self.backward + count * other.backward,
            self.weight + count * other.weight,
            self.communication + count * other.communication,
        )


def part_seconds(
    costs: PassCosts,
    messages: Iterable[Communication],
    layout: Layout,
    implementation: Implementation,
    rates: GpuRates,
    links: Links,
) -> PassSeconds:
    """Return the seconds of one layer or end of the model.

    Of each group's messages the stack's fraction hides: those of the context group behind
    attention, those of tensor and expert groups behind all that is computed, as far as it lasts
    (`exposed_seconds`). Each of the tensor group's holds the rank up by ``collective_s``, and by
    the ``copies`` of what it gathers or scatters. Gathering inputs again (``weight``) hides
    behind products. What hides costs its share of ``sending``.
    """
    groups: tuple[Literal["tensor", "context", "expert"], ...] = ("tensor", "context", "expert")
    fractions = {group: implementation.hidden(group) for group in groups}
    sent: dict[str, dict[str, float]] = {
        when: dict.fromkeys(fractions, 0.0) for when in ("forward", "recompute", "backward")
    }
    held_up = dict.fromkeys((*sent, "weight"), 0.0)
    for message in messages:
        if message.when in sent:
            seconds = message.count * communication_seconds(message, layout, links)
            if message.group == "tensor":
                held_up[message.when] += message.count * implementation.collective_s
                if implementation.gathered_inputs and message.kind != "allreduce":
                    moved = message.size / _ELEMENT * implementation.copies
                    held_up[message.when] += message.count * rates.traffic_seconds(moved)
            if message.exposed:
                held_up[message.when] += seconds
            else:
                sent[message.when][message.group] += seconds
        elif message.when == "weight":
            seconds = message.count * communication_seconds(message, layout, links)
            held_up["weight"] += implementation.sending * seconds
    works = {
        "forward": costs.forward, "recompute": costs.recompute, "backward": costs.backward_input,
    }  # fmt: skip
    busy: dict[str, float] = {}
    total = held_up["weight"]
    for when, work in works.items():
        computed = stack_seconds(work, rates, implementation)
        waits = held_up[when]
        for group, fraction in fractions.items():
            room = computed
            if group == "context":
                room = rates.attention_seconds(work, implementation.attention)
            waits += exposed_seconds(sent[when][group], fraction, room)
        busy[when] = computed + waits
        total += waits
    weight = stack_seconds(costs.backward_weight, rates, implementation) + held_up["weight"]
    return PassSeconds(busy["forward"], busy["recompute"] + busy["backward"], weight, total)


def stack_seconds(work: Work, rates: GpuRates, implementation: Implementation) -> float:
    """Return the seconds of a pass by the kernels of a stack."""
    products = sum(rates.gemm_seconds(gemm) for gemm in work.gemms) / implementation.kernels
    moved = rates.traffic_seconds(work.traffic) * implementation.elementwise
    attention = rates.attention_seconds(work, implementation.attention)
    return products + attention + moved + work.kernels * rates.launch


def layer_seconds(
    model: Transformer,
    layer: int,
    layout: Layout,
    rates: GpuRates,
    links: Links,
    implementation: Implementation = MEGATRON_CORE,
    without: frozenset[str] = frozenset(),
    *,
    sequence: int | None = None,
) -> PassSeconds:
    """Return the seconds of one layer over one microbatch.

    Parameters
    ----------
    model : Transformer
    layer : int
    layout : Layout
    rates : GpuRates
    links : Links
    implementation : Implementation
    without : frozenset of {"tensor", "context", "expert"}
        Groups whose messages are left out, because a network model simulates them.
    sequence : int, optional
    """
    return _layer_seconds(
        model, layer, layout.of_layers, rates, links, implementation, without, sequence
    )


@lru_cache(maxsize=512)
def _layer_seconds(
    model: Transformer,
    layer: int,
    layout: Layout,
    rates: GpuRates,
    links: Links,
    implementation: Implementation,
    without: frozenset[str],
    sequence: int | None,
) -> PassSeconds:
    costs = layer_costs(model, layer, layout, implementation, sequence=sequence)
    messages = layer_communications(model, layer, layout, implementation, sequence=sequence)
    counted = [message for message in messages if message.group not in without]
    found = part_seconds(costs, counted, layout, implementation, rates, links)
    if model.has_experts(layer) and layout.expert > 1 and implementation.dispatch_s:
        twice = layout.recompute == "full" or "experts" in layout.modules
        again = implementation.dispatch_s * twice
        found = found.plus(
            PassSeconds(implementation.dispatch_s, again, 0.0, implementation.dispatch_s + again)
        )
    return found


def shard_seconds(
    model: Transformer,
    part: Part,
    layout: Layout,
    rates: GpuRates,
    implementation: Implementation = MEGATRON_CORE,
) -> PassSeconds:
    """Return the seconds in which a part's sharded weights and gradients are moved in memory.

    ZeRO 3 gathers weights for the forward and again for the backward pass, ZeRO 2 and 3 scatter
    gradients after it, each through flat buffers (Zhao et al., PyTorch FSDP, 2023, section 4.2).
    """
    if layout.zero < 2 or not implementation.copies:
        return PassSeconds()
    weights = part_weights(model, part, layout)
    once = rates.traffic_seconds(implementation.copies * (weights.dense + weights.expert))
    gathers = float(layout.zero == 3)
    return PassSeconds(forward=gathers * once, backward=gathers * once, weight=once)


def all_part_seconds(
    model: Transformer,
    layout: Layout,
    rates: GpuRates,
    links: Links,
    implementation: Implementation = MEGATRON_CORE,
    *,
    sequence: int | None = None,
) -> tuple[PassSeconds, ...]:
    """Return the seconds of every part of a model over one microbatch.

    Parameters
    ----------
    model : Transformer
    layout : Layout
    rates : GpuRates
    links : Links
    implementation : Implementation
    sequence : int, optional

    Returns
    -------
    tuple of PassSeconds
        Along the model, see `Layout.part_stages`.
    """
    parts, alike = parts_of(model, layout), alike_parts(model, layout)
    known = {
        first: _one_part_seconds(
            model, parts[first], layout, rates, links, implementation, sequence
        )
        for first in set(alike)
    }
    return tuple(known[first] for first in alike)


def _one_part_seconds(
    model: Transformer,
    part: Part,
    layout: Layout,
    rates: GpuRates,
    links: Links,
    implementation: Implementation,
    sequence: int | None,
) -> PassSeconds:
    total = PassSeconds()
    for layer, count in part.kinds(model):
        one = layer_seconds(model, layer, layout, rates, links, implementation, sequence=sequence)
        total = total.plus(one, count)
    costs = PassCosts()
    if part.embedding:
        costs += embedding_costs(model, layout, implementation, sequence=sequence)
    if part.head:
        costs += head_costs(model, layout, implementation, sequence=sequence)
    if part.embedding or part.head:
        ends = end_communications(model, part, layout, sequence=sequence)
        total = total.plus(part_seconds(costs, ends, layout, implementation, rates, links))
    total = total.plus(scale_seconds(layout, links, implementation))
    return total.plus(shard_seconds(model, part, layout, rates, implementation))


def scale_seconds(layout: Layout, links: Links, implementation: Implementation) -> PassSeconds:
    """Return the seconds in which a part's ranks agree on FP8 scales after each of its passes.

    With delayed scaling all ranks that share a stage's weights or its tokens look for the greatest
    element of each tensor: an AllReduce of few bytes after a part's forward pass of a microbatch,
    and another after its backward pass, which nothing hides.
    """
    ranks = layout.tensor * layout.context * layout.data
    if not implementation.delayed_scaling or implementation.precision != "fp8" or ranks == 1:
        return PassSeconds()
    once = collective_seconds("allreduce", 0.0, group_placement_of(ranks, 1, links.gpus), links)
    return PassSeconds(forward=once, backward=once, communication=2.0 * once)
