"""The task graph of a placed layout, and its time on a fabric."""

from parallelism.taskgraph import TaskGraph
from parallelism.transformers.loads import loads_of
from parallelism.transformers.placed_tasks import iteration_tasks
from parallelism.transformers.placement import Placement
from parallelism.transformers.schedules import schedule_of
from topoopt.fabric.reconfigurable import Playable, play
from topoopt.transformers.job import TransformerJob


def tasks_of(job: TransformerJob, placement: Placement) -> TaskGraph:
    """Return the task graph of one iteration of a placed layout."""
    loads = loads_of(
        job.model, placement, job.gpu_rates, job.server, job.implementation, sequence=job.tokens
    )
    return iteration_tasks(placement, schedule_of(placement.layout, job.global_batch), loads)


def played(fabric: Playable, tasks: TaskGraph, limit: float = float("inf")) -> float:
    """Return the seconds of an iteration on a fabric; more than the limit, if it exceeds it."""
    return float(play(fabric, tasks, limit=limit).finish.max(initial=0.0))


__all__ = ["played", "tasks_of"]
