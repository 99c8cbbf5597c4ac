"""The seconds that the parts of a transformer take for each pass of a microbatch, by formula."""

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

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
from parallelism.transformers.implementation import Implementation
from parallelism.transformers.links import Links, collective_seconds, group_placement_of
from parallelism.transformers.stages import Part, alike_parts, part_weights, parts_of, sharded
from parallelism.transformers.training import Training
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
    training: Training,
    costs: PassCosts,
    messages: Iterable[Communication],
    rates: GpuRates,
    links: Links,
) -> PassSeconds:
    """Return the seconds of one layer or end of the model.

    Of each group's messages the stack's fraction hides: those of the context group behind
    attention, those of tensor and expert groups behind all that is computed, as far as it lasts
    (`exposed_seconds`). Each of the tensor group's holds the rank up by ``collective_s``, and by
    the ``copies`` of what it gathers or scatters. Gathering inputs again (``weight``) hides
    behind products. What hides costs its share of ``sending``.

    Parameters
    ----------
    training : Training
    costs : PassCosts
        What a rank computes.
    messages : iterable of Communication
        What its groups exchange meanwhile.
    rates : GpuRates
    links : Links

    Returns
    -------
    PassSeconds
    """
    layout, implementation = training.layout, training.implementation
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
    training: Training,
    layer: int,
    rates: GpuRates,
    links: Links,
    without: frozenset[str] = frozenset(),
) -> PassSeconds:
    """Return the seconds of one layer over one microbatch.

    Parameters
    ----------
    training : Training
    layer : int
    rates : GpuRates
    links : Links
    without : frozenset of {"tensor", "context", "expert"}
        Groups whose bytes are left out, because a network model simulates them.
    """
    return _layer_seconds(training.of_layers, layer, rates, links, without)


def without_bytes(messages: Iterable[Communication], groups: Set[str]) -> list[Communication]:
    """Return messages of which those of some groups hold ranks up, but send nothing."""
    return [replace(one, ranks=1) if one.group in groups else one for one in messages]


@lru_cache(maxsize=512)
def _layer_seconds(
    training: Training, layer: int, rates: GpuRates, links: Links, without: frozenset[str]
) -> PassSeconds:
    model, layout, implementation = training.model, training.layout, training.implementation
    messages = layer_communications(training, layer)
    counted = without_bytes(messages, without)
    found = part_seconds(training, layer_costs(training, layer), counted, rates, links)
    if model.has_experts(layer) and layout.expert > 1 and implementation.dispatch_s:
        twice = layout.recompute == "full" or "experts" in layout.modules
        again = implementation.dispatch_s * twice
        found = found.plus(
            PassSeconds(implementation.dispatch_s, again, 0.0, implementation.dispatch_s + again)
        )
    return found


def shard_seconds(training: Training, part: Part, rates: GpuRates) -> PassSeconds:
    """Return the seconds in which a part's sharded weights and gradients are moved in memory.

    ZeRO 3 gathers weights for the forward and again for the backward pass, ZeRO 2 and 3 scatter
    gradients after it, each through flat buffers (Zhao et al., PyTorch FSDP, 2023, section 4.2).
    Experts of which each is on one rank only stay where they are.
    """
    layout, copies = training.layout, training.implementation.copies
    if layout.zero < 2 or not copies:
        return PassSeconds()
    weights = sharded(part_weights(training.model, part, layout), layout)
    once = rates.traffic_seconds(copies * (weights.dense + weights.expert))
    gathers = float(layout.zero == 3)
    return PassSeconds(forward=gathers * once, backward=gathers * once, weight=once)


def all_part_seconds(training: Training, rates: GpuRates, links: Links) -> tuple[PassSeconds, ...]:
    """Return the seconds of every part of a model over one microbatch.

    Parameters
    ----------
    training : Training
    rates : GpuRates
    links : Links

    Returns
    -------
    tuple of PassSeconds
        Along the model, see `Layout.part_stages`.
    """
    model, layout = training.model, training.layout
    parts, alike = parts_of(model, layout), alike_parts(model, layout)
    known = {first: _one_part_seconds(training, parts[first], rates, links) for first in set(alike)}
    return tuple(known[first] for first in alike)


def _one_part_seconds(training: Training, part: Part, rates: GpuRates, links: Links) -> PassSeconds:
    total = PassSeconds()
    for layer, count in part.kinds(training.model):
        total = total.plus(layer_seconds(training, layer, rates, links), count)
    costs = PassCosts()
    if part.embedding:
        costs += embedding_costs(training)
    if part.head:
        costs += head_costs(training)
    if part.embedding or part.head:
        ends = end_communications(training, part)
        total = total.plus(part_seconds(training, costs, ends, rates, links))
    total = total.plus(scale_seconds(training, links))
    return total.plus(shard_seconds(training, part, rates))


def scale_seconds(training: Training, links: Links) -> PassSeconds:
    """Return the seconds in which a part's ranks agree on FP8 scales after each of its passes.

    With delayed scaling all ranks that share a stage's weights or its tokens look for the greatest
    element of each tensor: an AllReduce of few bytes after a part's forward pass of a microbatch,
    and another after its backward pass, which nothing hides.
    """
    layout = training.layout
    ranks = layout.tensor * layout.context * layout.data
    if not training.implementation.delayed_scaling or not training.fp8 or ranks == 1:
        return PassSeconds()
    once = collective_seconds("allreduce", 0.0, group_placement_of(ranks, 1, links.gpus), links)
    return PassSeconds(forward=once, backward=once, communication=2.0 * once)
