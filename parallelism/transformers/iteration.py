"""The time of one training iteration of a transformer, by formula and pipeline timeline."""

import numpy as np

from parallelism.transformers.collectives import (
    pipeline_send,
    step_communications,
)
from parallelism.transformers.exposure import (
    communication_seconds,
    exposed_sums,
)
from parallelism.transformers.gpu import GpuRates
from parallelism.transformers.links import Links
from parallelism.transformers.pass_seconds import PassSeconds, all_part_seconds
from parallelism.transformers.schedules import PipelineSchedule
from parallelism.transformers.stages import stage_weights
from parallelism.transformers.timeline import PassTimes, timeline
from parallelism.transformers.training import Training

# Times that a step reads or writes a gradient: to unscale and check it (2), for the norm (1), to
# clip it (2), for the update (1), to set it to zero (1).
_GRADIENT_PASSES = 7.0


def optimizer_seconds(training: Training, rates: GpuRates) -> float:
    """Return the seconds of the optimizer's step on the GPU with most weights.

    State is read and written, the FP32 weight read and the weight written, and gradients are
    unscaled, checked, clipped by their norm, used and cleared. In FP8 training all weights are
    then read and written in FP8 twice, as they lie and transposed.
    """
    model, layout, implementation = training.model, training.layout, training.implementation
    ranks = layout.sharing
    worst = most = 0.0
    for count in dict.fromkeys(stage_weights(model, layout)):
        most = max(most, count.dense + count.expert)
        dense = count.dense / (ranks if layout.zero else 1)
        expert = count.expert / (ranks / layout.expert_ranks if layout.zero else 1)
        worst = max(worst, dense + expert)
    each = 2.0 * implementation.optimizer_bytes + 4.0 + model.dense_bytes
    each += _GRADIENT_PASSES * implementation.gradient_bytes
    cast = (model.dense_bytes + 2.0) * most if training.fp8 else 0.0
    return rates.traffic_seconds(worst * each + cast)


def pass_times(training: Training, passes: tuple[PassSeconds, ...], links: Links) -> PassTimes:
    """Return the times of passes and of the messages between parts, for a pipeline timeline."""
    layout = training.layout
    delay = {"forward": 0.0, "backward": 0.0}
    for message in pipeline_send(training):
        delay[message.when] += message.count * communication_seconds(message, layout, links)
    forward = np.array([one.forward for one in passes])
    backward = np.array([one.backward for one in passes])
    # What a part waits for occupies it; ends of the model get nothing from one side.
    waits = 1.0 - training.implementation.overlap_pipeline
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
    training: Training, schedule: PipelineSchedule, rates: GpuRates, links: Links
) -> float:
    """Return the time of one iteration on servers that are filled in rank order.

    Parameters
    ----------
    training : Training
    schedule : PipelineSchedule
        Of its layout, see `schedules.schedule_of`.
    rates : GpuRates
    links : Links

    Returns
    -------
    float
        Seconds.

    Raises
    ------
    InputError
        If the layout cannot split the model.

    Notes
    -----
    Every message is alone on its links. Gradients are summed after a stage's last backward
    pass; ``overlap_data`` of that, less ``sending``, hides behind this pass, and of gathering
    weights behind the next first forward pass, all but what exceeds them (`exposed_sums`).
    """
    passes = all_part_seconds(training, rates, links)
    run = timeline(schedule, pass_times(training, passes, links))
    messages = step_communications(training, schedule.microbatches)
    finish = 0.0
    for stage, end in enumerate(run.end[:, -1].tolist()):
        own = [passes[part] for part in schedule.parts[stage].tolist()]
        exposed = exposed_sums(
            training, messages[stage], schedule, links,
            {
                "gradients": [one.backward + one.weight for one in own],
                "weights": [one.forward for one in own],
            },
        )  # fmt: skip
        finish = max(finish, end + exposed)
    optimizer = optimizer_seconds(training, rates)
    return finish + optimizer + training.implementation.iteration_s
