"""The time of one training iteration of a transformer, by formula and pipeline timeline."""

from dataclasses import dataclass

import numpy as np

from parallelism.transformers.architecture import Transformer
from parallelism.transformers.collectives import (
    pipeline_send,
    step_communications,
)
from parallelism.transformers.costs import model_flops
from parallelism.transformers.exposure import (
    communication_seconds,
    exposed_sums,
)
from parallelism.transformers.gpu import GpuRates
from parallelism.transformers.implementation import MEGATRON_CORE, Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.links import Links
from parallelism.transformers.pass_seconds import PassSeconds, all_part_seconds
from parallelism.transformers.schedules import PipelineSchedule, schedule_of
from parallelism.transformers.stages import stage_weights
from parallelism.transformers.timeline import PassTimes, timeline

# Times that a step reads or writes a gradient: to unscale and check it (2), for the norm (1), to
# clip it (2), for the update (1), to set it to zero (1).
_GRADIENT_PASSES = 7.0


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
