"""Task graphs of several jobs as one: iterations in turn, and jobs side by side on servers."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Ints
from codesign_base.counted import counted
from codesign_base.rows import starts
from parallelism.taskgraph import Phase, TaskGraph, TaskKind


def in_turn(tasks: TaskGraph, iterations: int, delay: float = 0.0) -> TaskGraph:
    """Return iterations in a row with a barrier before each, the first one delayed.

    Parameters
    ----------
    tasks : TaskGraph
        One iteration.
    iterations : int
    delay : float
        Seconds, not negative.

    Returns
    -------
    TaskGraph
        Task t of iteration i is task ``i * (tasks.tasks + 1) + t``. The last task of every
        iteration is its gate, on a device of its own: it waits for all of the iteration before,
        all of its own iteration wait for it, and it takes no time, but for the delay of the
        first. An iteration takes from the end of its gate to that of its last task.

    Raises
    ------
    InputError
        If the number of iterations is not positive, the delay out of range, or there is no task.
    """
    if iterations < 1:
        raise InputError(f"iterations is {iterations}; give at least 1")
    if not 0.0 <= delay < np.inf:
        raise InputError(f"an iteration starts after {delay} s; give zero or more")
    if tasks.tasks == 0:
        raise InputError("task graph: it has no task to repeat; give an iteration")
    gate = tasks.tasks
    size = gate + 1
    sources = np.flatnonzero(tasks.predecessors == 0)
    counts = np.diff(tasks.successor_offsets)
    sinks = counts == 0
    # One iteration with its edges to the next one's gate; these sort last, as they must.
    closing = np.where(sinks, 1, counts)
    offsets = np.concatenate(([0], np.cumsum(closing), [closing.sum() + sources.size]))
    successors = np.empty(int(offsets[-1]), dtype=np.int64)
    last = offsets[:gate][sinks]
    inner = np.ones(successors.size, dtype=np.bool_)
    inner[last] = False
    successors[last] = gate + size
    successors[inner] = np.concatenate((tasks.successors, sources))
    predecessors = np.append(tasks.predecessors, int(sinks.sum()))
    predecessors[sources] = 1
    shifts = np.arange(iterations, dtype=np.int64)[:, None]
    many = np.tile(predecessors, iterations)
    many[gate] = 0
    # Nothing follows the last iteration.
    edges = (successors + shifts * size).ravel()
    kept = edges < iterations * size
    lengths = np.tile(np.append(closing, sources.size), iterations)
    lengths[-size:-1][sinks] = 0
    seconds = np.tile(np.append(tasks.size, 0.0), iterations)
    seconds[gate] = delay
    return replace(
        tasks,
        devices=tasks.devices + 1,
        kind=np.tile(np.append(tasks.kind, TaskKind.COMPUTE), iterations),
        first=np.tile(np.append(tasks.first, tasks.devices), iterations),
        second=np.tile(np.append(tasks.second, -1), iterations),
        size=seconds,
        delay=np.tile(np.append(tasks.delay, 0.0), iterations),
        operator=np.tile(np.append(tasks.operator, tasks.operator.max() + 1), iterations),
        phase=np.tile(np.append(tasks.phase, Phase.FORWARD), iterations),
        part=np.tile(np.append(tasks.part, 0), iterations),
        successor_offsets=starts(lengths),
        successors=edges[kept],
        predecessors=many,
        server_of_device=np.append(tasks.server_of_device, 0),
        ids=None,
        priority=None
        if tasks.priority is None
        else np.tile(np.append(tasks.priority, 0), iterations),
    )


def side_by_side(
    jobs: Sequence[TaskGraph], places: Sequence[Sequence[int]], servers: int
) -> TaskGraph:
    """Return the task graphs of several jobs as one, each on servers of its own.

    Parameters
    ----------
    jobs : sequence of TaskGraph
        Without priorities, which would say nothing across jobs.
    places : sequence of sequence of int
        For each job, the server that takes the place of each of its own; ascending, so that
        groups stay sorted.
    servers : int
        Of the cluster.

    Returns
    -------
    TaskGraph
        The tasks of the first job, then those of the second, and so on, with devices, groups and
        operators numbered on.

    Raises
    ------
    InputError
        If there is no job, a job has priorities, or its servers are too few, not ascending,
        outside the cluster or another job's.
    """
    if not jobs or len(jobs) != len(places):
        raise InputError(
            f"{counted(len(places), 'placement')} for {counted(len(jobs), 'job')}; give each job "
            "one"
        )
    taken = np.zeros(servers, dtype=np.bool_)
    for number, (job, place) in enumerate(zip(jobs, places, strict=True)):
        at = np.asarray(place, dtype=np.int64)
        if at.shape != (job.servers,) or np.any(np.diff(at) <= 0):
            raise InputError(
                f"job {number} needs {counted(job.servers, 'server')}, and its placement is "
                f"{at.tolist()}; give as many different servers, ascending"
            )
        if at[0] < 0 or at[-1] >= servers:
            raise InputError(
                f"job {number} is placed on servers {at[0]} to {at[-1]} of a cluster of "
                f"{servers}; give servers 0 to {servers - 1}"
            )
        if taken[at].any():
            raise InputError(
                f"job {number} is placed on server {int(at[taken[at]][0])}, where another job "
                "runs; give each job servers of its own"
            )
        taken[at] = True
        if job.priority is not None:
            raise InputError(f"job {number} has priorities; give a plain task graph")
    moved = [
        _moved(job, np.asarray(p, dtype=np.int64)) for job, p in zip(jobs, places, strict=True)
    ]
    tasks = _shifts([job.tasks for job in jobs])
    devices = _shifts([job.devices for job in jobs])
    groups = _shifts([len(job.groups) for job in jobs])
    operators = _shifts([int(job.operator.max(initial=-1)) + 1 for job in jobs])
    entries = _shifts([job.successors.size for job in jobs])
    first = [
        job.first
        + np.where(job.kind == TaskKind.COMPUTE, device, np.where(job.collective, group, 0))
        for job, device, group in zip(moved, devices, groups, strict=True)
    ]
    return TaskGraph(
        servers=servers,
        devices=sum(job.devices for job in jobs),
        kind=np.concatenate([job.kind for job in moved]),
        first=np.concatenate(first),
        second=np.concatenate([job.second for job in moved]),
        size=np.concatenate([job.size for job in moved]),
        delay=np.concatenate([job.delay for job in moved]),
        operator=_joined([job.operator for job in moved], operators),
        phase=np.concatenate([job.phase for job in moved]),
        part=np.concatenate([job.part for job in moved]),
        successor_offsets=np.append(
            _joined([job.successor_offsets[:-1] for job in moved], entries),
            sum(job.successors.size for job in moved),
        ),
        successors=_joined([job.successors for job in moved], tasks),
        predecessors=np.concatenate([job.predecessors for job in moved]),
        groups=tuple(group for job in moved for group in job.groups),
        server_of_device=np.concatenate([job.server_of_device for job in moved]),
    )


def _moved(job: TaskGraph, at: Ints) -> TaskGraph:
    """Return the job with its servers renamed."""
    sends = job.kind == TaskKind.TRANSFER
    return replace(
        job,
        first=np.where(sends, at[np.where(sends, job.first, 0)], job.first),
        second=np.where(sends, at[np.where(sends, job.second, 0)], -1),
        groups=tuple(tuple(at[list(group)].tolist()) for group in job.groups),
        server_of_device=at[job.server_of_device],
    )


def _shifts(counts: Sequence[int]) -> list[int]:
    """Return how many come before each."""
    return [sum(counts[:number]) for number in range(len(counts))]


def _joined(arrays: Sequence[Ints], shifts: Sequence[int]) -> Ints:
    """Return the arrays in a row, the numbers of each counted on."""
    return np.concatenate([array + shift for array, shift in zip(arrays, shifts, strict=True)])
