"""A task graph under construction: blocks of like tasks, one of each rank or group.

What is done over and over is added once, and then repeated as a whole.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from codesign_base.arrays import Floats, Ints
from codesign_base.rows import spread, starts
from parallelism.taskgraph import Group, Phase, TaskGraph, TaskKind
from parallelism.transformers.placement import Placement

Label = tuple[int, Phase, int]
"""Part of the model, phase and microbatch of a task."""
NOBODY = -(1 << 40)
"""In a list of tasks to wait for: there is none. It is negative even if it is shifted."""


class Mark(NamedTuple):
    """How much a list held at a moment: tasks, blocks and lists of dependencies."""

    tasks: int
    blocks: int
    waits: int


class Repeated(NamedTuple):
    """What is added again and again.

    Parameters
    ----------
    first, last : Mark
        Before and after it was added first.
    origins : tuple of (int, int)
        Where those tasks begin, and end, that it waited for then beside its own.
    """

    first: Mark
    last: Mark
    origins: tuple[tuple[int, int], ...]


class _Block(NamedTuple):
    begin: int
    kind: int
    first: Ints
    second: Ints | None
    size: float | Floats
    delay: float | Floats
    label: Label
    element: Ints | None
    waits: int


@dataclass
class TaskList:
    """Blocks of tasks and dependencies as they are added; columns are those of `TaskGraph`."""

    tasks: int = 0
    _blocks: list[_Block] = field(default_factory=list)
    _waits: list[Ints] = field(default_factory=list)
    _groups: dict[Group, int] = field(default_factory=dict)
    _repeated: list[tuple[Repeated, Ints, Ints]] = field(default_factory=list)

    def add(
        self,
        kind: TaskKind,
        first: Ints,
        second: Ints | None,
        size: float | Floats,
        waits: list[Ints],
        label: Label,
        delay: float | Floats = 0.0,
        element: Ints | None = None,
    ) -> Ints:
        """Append a block of tasks.

        Parameters
        ----------
        kind : TaskKind
        first, second : int64 arrays, shape (block,)
            As in `TaskGraph`; no ``second`` means -1.
        size, delay : float or float64 array, shape (block,)
        waits : list of int64 array, shape (block,) or (block, any)
            Tasks that each waits for, `NOBODY` or any negative number where there is none.
        label : Label
        element : int64 array, shape (block,), optional
            What each task stands for; -1 by default.

        Returns
        -------
        int64 array, shape (block,)
            Numbers of the tasks.
        """
        begin = self.tasks
        self.tasks += first.size
        self._blocks.append(
            _Block(begin, int(kind), first, second, size, delay, label, element, len(waits))
        )
        self._waits += waits
        return np.arange(begin, self.tasks)

    def group(self, servers: Group) -> int:
        """Return the number of a group of servers."""
        return self._groups.setdefault(servers, len(self._groups))

    def mark(self) -> Mark:
        """Return how much the list holds now."""
        return Mark(self.tasks, len(self._blocks), len(self._waits))

    def since(self, mark: Mark, origins: tuple[tuple[int, int], ...]) -> Repeated:
        """Return what was added since a mark, to be repeated.

        Parameters
        ----------
        mark : Mark
        origins : tuple of (int, int)
            Where those tasks begin, and end, that it waits for beside its own.
        """
        return Repeated(mark, self.mark(), origins)

    def skip(self, count: int) -> None:
        """Leave room for tasks that `repeat` fills."""
        self.tasks += count

    def repeat(self, known: Repeated, begins: Ints, microbatches: Ints) -> None:
        """Add what was added before once more, and again.

        Parameters
        ----------
        known : Repeated
        begins : int64 array, shape (repetitions, 1 + origins)
            Where each begins, in room that was left by `skip`, and where its origins do.
        microbatches : int64 array, shape (repetitions,)
        """
        self._repeated.append((known, begins, microbatches))

    def _edges(self) -> tuple[Ints, Ints, Ints]:
        """Return both tasks of all dependencies of blocks, and where those of each wait begin."""
        none = np.zeros(0, dtype=np.int64)
        before = np.concatenate([none, *(wait.ravel() for wait in self._waits)])
        sizes = np.array([wait.size for wait in self._waits], dtype=np.int64)
        edge = starts(sizes)
        # Of each block where its tasks begin, how many they are, and how many waits they have.
        begin, rows, waits = np.array(
            [(block.begin, block.first.size, block.waits) for block in self._blocks], dtype=np.int64
        ).reshape(-1, 3).T  # fmt: skip
        width = sizes // np.maximum(np.repeat(rows, waits), 1)
        place = np.arange(before.size) - np.repeat(edge[:-1], sizes)
        row = place // np.repeat(width, sizes)
        return before, np.repeat(np.repeat(begin, waits), sizes) + row, edge

    def finish(self, placement: Placement, server_of_device: Ints) -> tuple[TaskGraph, Ints]:
        """Return the task graph, and what each task stands for."""
        from parallelism.transformers.task_list_kernels import successor_lists

        count = self.tasks
        sizes = np.array([block.first.size for block in self._blocks], dtype=np.int64)
        offset = starts(sizes)
        # Of each task its place among those of all blocks, or the place of the one it repeats.
        like = np.empty(count, dtype=np.int64)
        like[spread(np.array([block.begin for block in self._blocks], dtype=np.int64), sizes)] = (
            np.arange(offset[-1])
        )
        waited, waiting, edge = self._edges()
        before, after = [waited], [waiting]
        for known, begins, _ in self._repeated:
            own, size = begins[:, :1], known.last.tasks - known.first.tasks
            place = offset[known.first.blocks]
            like[own + np.arange(size)] = np.arange(place, place + size)
            edges = slice(edge[known.first.waits], edge[known.last.waits])
            there, waits = waited[edges], waiting[edges] - known.first.tasks
            spans = ((known.first.tasks, known.last.tasks), *known.origins)
            for number, (begin, end) in enumerate(spans):
                if begin == end:
                    continue
                among = (there >= begin) & (there < end)
                moved = begins[:, number : number + 1] - begin
                before.append((moved + there[among]).ravel())
                after.append((own + waits[among]).ravel())
        kind, first, second, amounts, delay, operator, phase, part, element = (
            values[like] for values in _columns(self._blocks, sizes)
        )
        for known, begins, microbatches in self._repeated:
            size = known.last.tasks - known.first.tasks
            part[begins[:, :1] + np.arange(size)] = microbatches[:, None]
        offsets, successors = successor_lists(np.concatenate(before), np.concatenate(after), count)
        graph = TaskGraph(
            servers=placement.servers,
            devices=server_of_device.size,
            kind=kind,
            first=first,
            second=second,
            size=amounts,
            delay=delay,
            operator=operator,
            phase=phase,
            part=part,
            successor_offsets=offsets,
            successors=successors,
            predecessors=np.bincount(successors, minlength=count).astype(np.int64),
            groups=tuple(self._groups),
            server_of_device=server_of_device,
        )
        return graph, element


def _columns(blocks: list[_Block], sizes: Ints) -> tuple[npt.NDArray[Any], ...]:
    """Return all columns of all tasks: those of `TaskGraph`, and what each stands for."""
    none = np.zeros(0, dtype=np.int64)
    minus = np.full(sizes.max(initial=0), -1, dtype=np.int64)

    def column(values: list[Ints | None]) -> Ints:
        """Join columns of blocks, -1 where there is none."""
        filled = [
            minus[:size] if value is None else value
            for value, size in zip(values, sizes.tolist(), strict=True)
        ]
        return np.concatenate([none, *filled])

    def each(values: list[int]) -> Ints:
        return np.repeat(np.array(values, dtype=np.int64), sizes)

    begins = starts(sizes).tolist()

    def amounts(values: list[float | Floats]) -> Floats:
        """Join columns of blocks, whose tasks have one value or one each."""
        alike = [0.0 if isinstance(value, np.ndarray) else value for value in values]
        found = np.repeat(np.array(alike, dtype=np.float64), sizes)
        for place, value in enumerate(values):
            if isinstance(value, np.ndarray):
                found[begins[place] : begins[place + 1]] = value
        return found

    return (
        each([block.kind for block in blocks]),
        np.concatenate([none, *(block.first for block in blocks)]),
        column([block.second for block in blocks]),
        amounts([block.size for block in blocks]),
        amounts([block.delay for block in blocks]),
        *(each([int(block.label[row]) for block in blocks]) for row in range(3)),
        column([block.element for block in blocks]),
    )
