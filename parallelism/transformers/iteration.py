"""The time of one training iteration of a transformer, by formula and pipeline timeline."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from parallelism.transformers.architecture import Transformer
from parallelism.transformers.collectives import (
    Communication,
    GroupKind,
    end_communications,
    layer_communications,
    pipeline_send,
    step_communications,
)
from parallelism.transformers.costs import layer_costs, model_flops
from parallelism.transformers.end_costs import embedding_costs, head_costs
from parallelism.transformers.exposure import (
    communication_seconds,
    exposed_seconds,
    exposed_sums,
)
from parallelism.transformers.gpu import GpuRates
from parallelism.transformers.implementation import MEGATRON_CORE, Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.links import Links, collective_seconds, group_placement_of
from parallelism.transformers.schedules import PipelineSchedule, schedule_of
from parallelism.transformers.stages import Part, alike_parts, part_weights, parts_of, stage_weights
from parallelism.transformers.timeline import PassTimes, timeline
from parallelism.transformers.work import PassCosts, Work

# Times that a step reads or writes a gradient: to unscale and check it (2), for the norm (1), to
# clip it (2), for the update (1), to set it to zero (1).
_GRADIENT_PASSES = 7.0
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


@dataclass(frozen=True)
class IterationTime:
    """One iteration, and where its time goes.

    Parameters
    ----------
    seconds : float
        All of it.
    pipeline : float
        From the first forward to the last backward pass.
    bubble : float
        Of that, idle time of the busiest stage.
    communication : float
        Of that, exposed communication inside the stages (tensor, context, expert groups) on the
        busiest stage.
    data_parallel : float
        Exposed sums of gradients and gathering of weights after and around it.
    optimizer : float
        The optimizer's step, and what the stack does once an iteration.
    passes : tuple of PassSeconds
        Of each part of the model, along the model.
    model_flops : float
        Per iteration, by the convention of `costs.model_flops` without recomputation.
    """

    seconds: float
    pipeline: float
    bubble: float
    communication: float
    data_parallel: float
    optimizer: float
    passes: tuple[PassSeconds, ...]
    model_flops: float


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
        Groups whose messages are left out.
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
    without: Collection[GroupKind] = (),
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
    without : collection of {"tensor", "context", "expert"}
        Groups whose messages are left out, because a network model simulates them.

    Returns
    -------
    tuple of PassSeconds
        Along the model, see `Layout.part_stages`.
    """
    parts, alike, left_out = parts_of(model, layout), alike_parts(model, layout), frozenset(without)
    known = {
        first: _one_part_seconds(
            model, parts[first], layout, rates, links, implementation, sequence, left_out
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
    without: frozenset[str],
) -> PassSeconds:
    total = PassSeconds()
    for layer, count in part.kinds(model):
        one = layer_seconds(
            model, layer, layout, rates, links, implementation, without, sequence=sequence
        )
        total = total.plus(one, count)
    costs = PassCosts()
    if part.embedding:
        costs += embedding_costs(model, layout, implementation, sequence=sequence)
    if part.head:
        costs += head_costs(model, layout, implementation, sequence=sequence)
    if part.embedding or part.head:
        ends = end_communications(model, part, layout, sequence=sequence)
        counted = [message for message in ends if message.group not in without]
        total = total.plus(part_seconds(costs, counted, layout, implementation, rates, links))
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


def optimizer_seconds(
    model: Transformer,
    layout: Layout,
    rates: GpuRates,
    implementation: Implementation = MEGATRON_CORE,
) -> float:
    """Return the seconds of the optimizer's step on the GPU with most weights.

    State is read and written, the FP32 weight read and the weight written, and gradients are
    unscaled, checked, clipped by their norm, used and cleared. In FP8 training all weights are
    then read and written in FP8 twice, as they lie and transposed.
    """
    ranks = layout.data * layout.context
    worst = most = 0.0
    for count in dict.fromkeys(stage_weights(model, layout)):
        most = max(most, count.dense + count.expert)
        dense = count.dense / (ranks if layout.zero else 1)
        expert = count.expert / (ranks / layout.expert_ranks if layout.zero else 1)
        worst = max(worst, dense + expert)
    each = 2.0 * implementation.optimizer_bytes + 4.0 + model.dense_bytes
    each += _GRADIENT_PASSES * implementation.gradient_bytes
    cast = (model.dense_bytes + 2.0) * most if implementation.precision == "fp8" else 0.0
    return rates.traffic_seconds(worst * each + cast)


def pass_times(
    model: Transformer,
    layout: Layout,
    passes: tuple[PassSeconds, ...],
    links: Links,
    implementation: Implementation = MEGATRON_CORE,
    *,
    sequence: int | None = None,
) -> PassTimes:
    """Return the times of passes and of the messages between parts, for a pipeline timeline."""
    delay = {"forward": 0.0, "backward": 0.0}
    for message in pipeline_send(model, layout, implementation, sequence=sequence):
        delay[message.when] += message.count * communication_seconds(message, layout, links)
    forward = np.array([one.forward for one in passes])
    backward = np.array([one.backward for one in passes])
    # What a part waits for occupies it; ends of the model get nothing from one side.
    waits = 1.0 - implementation.overlap_pipeline
    sends = np.array([*layout.part_steps, 0]) != 0  # the last entry is not used
    forward[1:] += waits * delay["forward"] * sends[:-1]
    backward[:-1] += waits * delay["backward"] * sends[:-1]
    delay = {when: seconds - waits * seconds for when, seconds in delay.items()}
    return PassTimes(
        forward=forward,
        backward=backward,
        weight=np.array([one.weight for one in passes]),
        send=delay["forward"] * sends,
        send_back=delay["backward"] * sends,
    )


def iteration_time(
    model: Transformer,
    layout: Layout,
    global_batch: int,
    rates: GpuRates,
    links: Links,
    implementation: Implementation = MEGATRON_CORE,
    *,
    sequence: int | None = None,
    schedule: PipelineSchedule | None = None,
) -> IterationTime:
    """Return the time of one iteration on servers that are filled in rank order.

    Parameters
    ----------
    model : Transformer
    layout : Layout
    global_batch : int
        Samples of an iteration.
    rates : GpuRates
    links : Links
    implementation : Implementation
    sequence : int, optional
        Tokens of a sample, the model's own by default.
    schedule : PipelineSchedule, optional
        That of the layout, if it is at hand.

    Returns
    -------
    IterationTime

    Raises
    ------
    InputError
        If the layout cannot split the model or the batch.

    Notes
    -----
    Every message is alone on its links. Gradients are summed after a stage's last backward
    pass; ``overlap_data`` of that, less ``sending``, hides behind this pass, and of gathering
    weights behind the next first forward pass, all but what exceeds them (`exposed_sums`).
    """
    order = schedule if schedule is not None else schedule_of(layout, global_batch)
    passes = all_part_seconds(model, layout, rates, links, implementation, sequence=sequence)
    times = pass_times(model, layout, passes, links, implementation, sequence=sequence)
    run = timeline(order, times)
    messages = step_communications(model, layout, order.microbatches, implementation)
    finish = 0.0
    for stage, end in enumerate(run.end[:, -1].tolist()):
        own = [passes[part] for part in order.parts[stage].tolist()]
        exposed = exposed_sums(
            messages[stage], layout, order, links, implementation,
            {
                "gradients": [one.backward + one.weight for one in own],
                "weights": [one.forward for one in own],
            },
        )  # fmt: skip
        finish = max(finish, end + exposed)
    optimizer = optimizer_seconds(model, layout, rates, implementation)
    optimizer += implementation.iteration_s
    by_stage = [PassSeconds() for _ in range(layout.pipeline)]
    for stage, one in zip(layout.part_stages, passes, strict=True):
        by_stage[stage] = by_stage[stage].plus(one)
    busiest = int(run.duration.sum(axis=1).argmax())
    return IterationTime(
        seconds=finish + optimizer,
        pipeline=run.makespan,
        bubble=run.makespan - float(run.duration[busiest].sum()),
        communication=by_stage[busiest].communication * order.microbatches,
        data_parallel=finish - run.makespan,
        optimizer=optimizer,
        passes=passes,
        model_flops=model_flops(model, global_batch, sequence=sequence),
    )
