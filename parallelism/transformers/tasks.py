"""A pipeline schedule as a task graph: passes, messages between stages, sums of gradients."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from parallelism.taskgraph import Phase, TaskGraph, TaskKind
from parallelism.transformers.schedules import PassKind, PipelineSchedule
from parallelism.transformers.timeline import PassTimes, pass_seconds

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GradientSum:
    """Gradients that several stages of pipelines sum after their last backward pass.

    Parameters
    ----------
    members : tuple of (int, int)
        (replica, stage) of each device that takes part.
    size : float
        Bytes of the buffer that one server of the group reduces with the others: the
        gradients of a whole tensor group, or of all its shards that lie on the server.
    delay : float
        Seconds of the sum inside each server, before network traffic.
    """

    members: tuple[tuple[int, int], ...]
    size: float
    delay: float = 0.0


@dataclass(frozen=True, eq=False)
class PipelineTasks:
    """A task graph, and where in it the passes are.

    Parameters
    ----------
    graph : TaskGraph
        Device ``replica * stages + stage``. ``operator`` is the part of the model (of a sum of
        gradients, its index in ``sums``; of an update, the stage), ``part`` the microbatch
        (-1: none).
    task_of : int64 array, shape (replicas, stages, passes of a rank)
        Task of each pass, in the schedule's order.
    update_of : int64 array, shape (replicas, stages)
        Task of each optimizer step; -1 where there is none.
    sum_of : int64 array, shape (sums,)
        Task of each sum of gradients.
    """

    graph: TaskGraph
    task_of: IntArray
    update_of: IntArray
    sum_of: IntArray


class _Tasks:
    """Arrays of tasks and edges that grow."""

    def __init__(self) -> None:
        self.count = 0
        self.columns: list[tuple[npt.ArrayLike, ...]] = []
        self.edges: list[tuple[IntArray, IntArray]] = []

    def add(
        self,
        count: int,
        kind: TaskKind,
        first: npt.ArrayLike,
        second: npt.ArrayLike,
        size: npt.ArrayLike,
        delay: npt.ArrayLike,
        operator: npt.ArrayLike,
        phase: npt.ArrayLike,
        part: npt.ArrayLike,
    ) -> IntArray:
        """Append tasks and return their indices."""
        rows = (int(kind), first, second, size, delay, operator, phase, part)
        self.columns.append(tuple(np.broadcast_to(np.asarray(row), (count,)) for row in rows))
        self.count += count
        return np.arange(self.count - count, self.count, dtype=np.int64)

    def link(self, before: IntArray, after: IntArray) -> None:
        """Let each task of ``after`` wait for that of ``before``."""
        self.edges.append((before, after))

    def graph(
        self, servers: int, server_of_device: IntArray, groups: tuple[tuple[int, ...], ...]
    ) -> TaskGraph:
        """Return the task graph."""
        columns = [np.concatenate(column) for column in zip(*self.columns, strict=True)]
        kind, first, second, size, delay, operator, phase, part = columns
        empty = np.zeros(0, dtype=np.int64)
        before = np.concatenate([edge[0] for edge in self.edges] or [empty])
        after = np.concatenate([edge[1] for edge in self.edges] or [empty])
        order = np.lexsort((after, before))
        offsets = np.concatenate(([0], np.cumsum(np.bincount(before, minlength=self.count))))
        return TaskGraph(
            servers=servers,
            devices=int(server_of_device.size),
            kind=kind.astype(np.int64),
            first=first.astype(np.int64),
            second=second.astype(np.int64),
            size=size.astype(np.float64),
            delay=delay.astype(np.float64),
            operator=operator.astype(np.int64),
            phase=phase.astype(np.int64),
            part=part.astype(np.int64),
            successor_offsets=offsets.astype(np.int64),
            successors=after[order],
            predecessors=np.bincount(after, minlength=self.count).astype(np.int64),
            groups=groups,
            server_of_device=server_of_device,
        )


def pipeline_tasks(
    schedule: PipelineSchedule,
    times: PassTimes,
    boundary: float,
    server_of: IntArray,
    servers: int,
    *,
    local_seconds: float = 0.0,
    sums: Sequence[GradientSum] = (),
    update: FloatArray | None = None,
) -> PipelineTasks:
    """Return the task graph of one iteration of replicated pipelines.

    A device is one stage of one replica: the tensor group (and whatever else shares its work)
    acts as one. Replicas are data-parallel ranks, and context-parallel ranks as well where these
    have servers of their own. The order of passes becomes dependencies, so that a device never
    chooses.

    Parameters
    ----------
    schedule : PipelineSchedule
    times : PassTimes
        Of the parts; its ``send`` and ``send_back`` are not used, because messages are tasks.
    boundary : float
        Bytes of activations, and of their gradients, that a device passes to the next part.
    server_of : int64 array, shape (replicas, stages)
        Server of each device.
    servers : int
        Number of servers.
    local_seconds : float
        What a message takes that stays on its server, added to the pass that waits for it.
    sums : sequence of GradientSum
        AllReduces after the last backward passes of their members.
    update : float64 array, shape (stages,), optional
        Seconds of the optimizer's step of each stage, after all sums that it is a member of.

    Returns
    -------
    PipelineTasks

    Raises
    ------
    InputError
        If a server or member does not exist, or the times are not those of the parts.
    """
    stages, length = schedule.stages, schedule.length
    places = np.asarray(server_of, dtype=np.int64)
    if places.ndim != 2 or places.shape[1] != stages or places.shape[0] < 1:
        raise InputError(
            f"pipeline tasks: server_of has shape {places.shape}; give (replicas, {stages})"
        )
    if places.min() < 0 or places.max() >= servers:
        raise InputError(
            f"pipeline tasks: server_of names servers {places.min()} to {places.max()} of "
            f"{servers}; give 0 to {servers - 1}"
        )
    replicas = places.shape[0]
    tasks = _Tasks()
    task_of = np.empty((replicas, stages, length), dtype=np.int64)
    seconds, part = pass_seconds(schedule, times)
    links = _links(schedule, part)
    for replica in range(replicas):
        _add_replica(
            tasks, schedule, seconds, part, links, boundary, places[replica], replica,
            local_seconds, task_of[replica],
        )  # fmt: skip
    groups: dict[tuple[int, ...], int] = {}
    sum_of = np.array([_add_sum(tasks, s, i, groups, places, task_of) for i, s in enumerate(sums)])
    update_of = np.full((replicas, stages), -1, dtype=np.int64)
    if update is not None:
        stage = np.tile(np.arange(stages), replicas)
        ids = tasks.add(
            replicas * stages, TaskKind.COMPUTE, np.arange(replicas * stages), -1,
            np.tile(update, replicas), 0.0, stage, int(Phase.UPDATE), -1,
        )  # fmt: skip
        update_of[:] = ids.reshape(replicas, stages)
        tasks.link(task_of[:, :, -1].ravel(), ids)
        for index, one in enumerate(sums):
            members = np.array(one.members, dtype=np.int64)
            after = update_of[members[:, 0], members[:, 1]]
            tasks.link(np.full(len(after), sum_of[index]), after)
    graph = tasks.graph(servers, places.ravel(), tuple(groups))
    return PipelineTasks(graph, task_of, update_of, sum_of.astype(np.int64))


def _links(
    schedule: PipelineSchedule, part: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return positions (stage * length + pass) of senders and receivers, their kind and part."""
    stages, length = schedule.stages, schedule.length
    kind, batch = schedule.passes[:, :, 0], schedule.passes[:, :, 2]
    parts = stages * schedule.chunks
    where = np.full((3, parts, schedule.microbatches), -1, dtype=np.int64)
    where[kind, part, batch] = np.arange(stages * length).reshape(stages, length)
    forward, backward = where[PassKind.FORWARD], where[PassKind.BACKWARD]
    sender = np.concatenate([forward[:-1].ravel(), backward[1:].ravel()])
    receiver = np.concatenate([forward[1:].ravel(), backward[:-1].ravel()])
    phase = np.repeat([int(Phase.ACTIVATION), int(Phase.GRADIENT)], sender.size // 2)
    return sender, receiver, phase, batch.ravel()


def _add_replica(
    tasks: _Tasks,
    schedule: PipelineSchedule,
    seconds: FloatArray,
    part: IntArray,
    links: tuple[IntArray, IntArray, IntArray, IntArray],
    boundary: float,
    places: IntArray,
    replica: int,
    local_seconds: float,
    task_of: IntArray,
) -> None:
    stages, length = schedule.stages, schedule.length
    sender, receiver, phase, batch = links
    near = places[sender // length] == places[receiver // length]
    # A rank with several consecutive parts passes nothing on.
    moved = near & (sender // length != receiver // length)
    durations = seconds.ravel().copy()
    np.add.at(durations, receiver[moved], local_seconds)
    device = np.repeat(np.arange(stages), length) + replica * stages
    kind = schedule.passes[:, :, 0].ravel()
    ids = tasks.add(
        stages * length, TaskKind.COMPUTE, device, -1, durations, 0.0, part.ravel(),
        np.where(kind == PassKind.FORWARD, int(Phase.FORWARD), int(Phase.BACKWARD)), batch,
    )  # fmt: skip
    task_of[:] = ids.reshape(stages, length)
    tasks.link(task_of[:, :-1].ravel(), task_of[:, 1:].ravel())
    tasks.link(ids[sender[near]], ids[receiver[near]])
    source, target = sender[~near], receiver[~near]
    sends = tasks.add(
        source.size, TaskKind.TRANSFER, places[source // length], places[target // length],
        boundary, 0.0, part.ravel()[source], phase[~near], batch[source],
    )  # fmt: skip
    tasks.link(ids[source], sends)
    tasks.link(sends, ids[target])


def _add_sum(
    tasks: _Tasks,
    one: GradientSum,
    index: int,
    groups: dict[tuple[int, ...], int],
    places: IntArray,
    task_of: IntArray,
) -> int:
    members = np.array(one.members, dtype=np.int64).reshape(-1, 2)
    if not members.size or (members < 0).any() or (members >= places.shape).any():
        raise InputError(
            f"pipeline tasks: sum {index} has members {one.members}; give (replica, stage) below "
            f"{places.shape}"
        )
    on = tuple(sorted({int(s) for s in places[members[:, 0], members[:, 1]]}))
    group = groups.setdefault(on, len(groups))
    (task,) = tasks.add(
        1, TaskKind.ALLREDUCE, group, -1, one.size, one.delay, index, int(Phase.SYNCHRONISE), -1
    )
    last = task_of[members[:, 0], members[:, 1], -1]
    tasks.link(last, np.full(len(last), task))
    return int(task)
