"""A task graph under construction: blocks of like tasks, one of each rank or group."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from parallelism.taskgraph import FloatArray, Phase, TaskGraph, TaskKind
from parallelism.transformers.placement import Group, Placement

IntArray = npt.NDArray[np.int64]
Label = tuple[int, Phase, int]
"""Part of the model, phase and microbatch of a task."""
NOBODY = -1
"""Stands in a list of tasks to wait for where there is none."""


@dataclass
class TaskList:
    """Blocks of tasks and dependencies as they are added; columns are those of `TaskGraph`."""

    tasks: int = 0
    _columns: list[tuple[int, IntArray, IntArray, float, float, Label]] = field(
        default_factory=list
    )
    _before: list[IntArray] = field(default_factory=list)
    _after: list[IntArray] = field(default_factory=list)
    _groups: dict[Group, int] = field(default_factory=dict)

    def add(
        self,
        kind: TaskKind,
        first: IntArray,
        second: IntArray | None,
        size: float,
        waits: list[IntArray],
        label: Label,
        delay: float = 0.0,
    ) -> IntArray:
        """Append a block of tasks.

        Parameters
        ----------
        kind : TaskKind
        first, second : int64 arrays, shape (block,)
            As in `TaskGraph`; no ``second`` means -1.
        size, delay : float
            Of each of them.
        waits : list of int64 array, shape (block,) or (block, any)
            Tasks that each waits for, `NOBODY` where there is none.
        label : Label

        Returns
        -------
        int64 array, shape (block,)
            Numbers of the tasks.
        """
        numbers = np.arange(self.tasks, self.tasks + first.size)
        self.tasks += first.size
        other = np.full(first.size, -1, dtype=np.int64) if second is None else second
        self._columns.append((int(kind), first, other, size, delay, label))
        for wait in waits:
            self._before.append(wait.ravel())
            self._after.append(numbers if wait.ndim == 1 else np.repeat(numbers, wait.shape[1]))
        return numbers

    def group(self, servers: Group) -> int:
        """Return the number of a group of servers."""
        return self._groups.setdefault(servers, len(self._groups))

    def finish(self, placement: Placement) -> TaskGraph:
        """Return the task graph."""
        count = self.tasks
        sizes = [first.size for _, first, *_ in self._columns]

        def column(values: list[float]) -> FloatArray:
            return np.repeat(np.array(values, dtype=np.float64), sizes)

        def labels(values: list[int]) -> IntArray:
            return np.repeat(np.array(values, dtype=np.int64), sizes)

        none = np.zeros(0, dtype=np.int64)
        before = np.concatenate([none, *self._before])
        after = np.concatenate([none, *self._after])
        # Sorted by the task that is waited for, each dependency once.
        edges = np.sort((before * count + after)[before != NOBODY])
        edges = edges[np.diff(edges, prepend=-1) > 0]
        before, after = edges // count, edges % count
        offsets = np.concatenate(([0], np.cumsum(np.bincount(before, minlength=count))))
        ranks = placement.rank.size
        home = np.arange(ranks) // placement.ranks_per_server * placement.servers_per_rank
        return TaskGraph(
            servers=placement.servers,
            devices=ranks,
            kind=labels([kind for kind, *_ in self._columns]),
            first=np.concatenate([none, *(c[1] for c in self._columns)]),
            second=np.concatenate([none, *(c[2] for c in self._columns)]),
            size=column([c[3] for c in self._columns]),
            delay=column([c[4] for c in self._columns]),
            operator=labels([c[5][0] for c in self._columns]),
            phase=labels([c[5][1] for c in self._columns]),
            part=labels([c[5][2] for c in self._columns]),
            successor_offsets=offsets.astype(np.int64),
            successors=after,
            predecessors=np.bincount(after, minlength=count).astype(np.int64),
            groups=tuple(self._groups),
            server_of_device=home.astype(np.int64),
        )
