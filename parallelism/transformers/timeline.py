"""The time of a pipeline: every pass starts when its rank is free and its input is there."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats, Ints
from codesign_base.counted import counted
from parallelism.transformers.schedules import PassKind, PipelineSchedule
from parallelism.transformers.timeline_kernels import pass_ends


@dataclass(frozen=True, eq=False)
class PassTimes:
    """Seconds of the passes of each part of a model.

    Parameters
    ----------
    forward, backward, weight : float64 array, shape (parts,)
        Parts along the model (`PipelineSchedule.parts`). ``backward`` is for inputs (with any
        recomputation), ``weight`` for weights; a schedule that does not split them adds them.
    send, send_back : float64 array, shape (parts,)
        From a part to the next one, and of the gradient from the next one to it; the last
        entries are not used. A delay: neither rank is occupied.
    """

    forward: Floats
    backward: Floats
    weight: Floats
    send: Floats
    send_back: Floats


@dataclass(frozen=True, eq=False)
class PipelineTimeline:
    """When passes run.

    Parameters
    ----------
    schedule : PipelineSchedule
    times : PassTimes
    end : float64 array, shape (stages, passes of a rank)
        In the order of the schedule's passes.
    """

    schedule: PipelineSchedule
    times: PassTimes
    end: Floats

    @cached_property
    def duration(self) -> Floats:
        """Seconds of each pass, an array like ``end``."""
        return pass_seconds(self.schedule, self.times)[0]

    @property
    def makespan(self) -> float:
        """Seconds until the last pass ends."""
        return float(self.end.max())


def timeline(schedule: PipelineSchedule, times: PassTimes) -> PipelineTimeline:
    """Run a schedule.

    Parameters
    ----------
    schedule : PipelineSchedule
    times : PassTimes
        Of ``stages * chunks`` parts.

    Returns
    -------
    PipelineTimeline

    Raises
    ------
    InputError
        If there are not as many times as parts, or passes wait for each other in a circle
        (which the orders of `build_schedule` never do).
    """
    seconds = _by_kind(schedule, times)
    delay = np.array([times.send, times.send_back], dtype=np.float64)
    end = pass_ends(schedule.passes, schedule.parts, schedule.microbatches, seconds, delay)
    if np.isnan(end).any():
        raise InputError("pipeline schedule: passes wait for each other; correct their order")
    return PipelineTimeline(schedule, times, end)


def last_starts(schedule: PipelineSchedule, times: PassTimes) -> Floats:
    """Return when the last pass of each part that adds to its gradients starts.

    Parameters
    ----------
    schedule : PipelineSchedule
    times : PassTimes

    Returns
    -------
    float64 array, shape (parts,)
        Seconds. What that pass adds to the gradients leaves no sooner.

    Raises
    ------
    InputError
        As `timeline`.
    """
    ran, part = timeline(schedule, times), _part_of(schedule)
    completing = schedule.passes[:, :, 0] == (
        PassKind.WEIGHT if schedule.split_backward else PassKind.BACKWARD
    )
    starts = np.zeros(times.forward.size)
    np.maximum.at(starts, part[completing], (ran.end - ran.duration)[completing])
    return starts


def pass_seconds(schedule: PipelineSchedule, times: PassTimes) -> tuple[Floats, Ints]:
    """Return the seconds and the part of every pass, in the order of the schedule's passes.

    Raises
    ------
    InputError
        If there are not as many times as parts.
    """
    part = _part_of(schedule)
    return _by_kind(schedule, times)[schedule.passes[:, :, 0], part], part


def _part_of(schedule: PipelineSchedule) -> Ints:
    stage = np.arange(schedule.stages)[:, None]
    return np.asarray(schedule.parts[stage, schedule.passes[:, :, 1]], dtype=np.int64)


def _by_kind(schedule: PipelineSchedule, times: PassTimes) -> Floats:
    parts = schedule.stages * schedule.chunks
    columns = (times.forward, times.backward, times.weight, times.send, times.send_back)
    if any(column.shape != (parts,) for column in columns):
        raise InputError(
            f"pipeline timeline: times of {counted(len(times.forward), 'part')} for a schedule of "
            f"{parts}; give one a part"
        )
    joint = 0.0 if schedule.split_backward else times.weight
    return np.array([times.forward, times.backward + joint, times.weight], dtype=np.float64)
