"""One task for all that a rotation of the servers maps on each other, on networks that allow it.

Circulants, switches and Fat-trees do not notice a rotation of their hosts, and many iterations do
not either, be it by some servers. Then no routes are made but those of one transfer of each kind:
thousands of servers have half a million pairs in use, each with hundreds of links on its shortest
paths.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from codesign_base.rows import spread
from parallelism.alike import READS, SENDS, Alike, Classes, FloatArray, IntArray, Pattern, Rows
from parallelism.rotation import Rotated, rotated_classes
from parallelism.taskgraph import COMPUTE, TRANSFER, TaskGraph
from routing.rotation import evenly_routed
from routing.routes import tabled
from topoopt.fabric.collapse import seeks_symmetry
from topoopt.fabric.fabric import Fabric

# Rounding up to which loads of links, and numbers of groups, count as equal.
_SAME = 1e-9
# Places of a table, an entry, up to which entries are added up in one.
_SPARSE = 4


def rotated_tasks(fabric: Fabric, tasks: TaskGraph) -> TaskGraph | None:
    """Return a task graph in which one task stands for its images under a rotation.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
        Whose tasks stand for themselves.

    Returns
    -------
    TaskGraph or None
        With `TaskGraph.alike` made for this fabric. None of few servers, of which the routes of
        all pairs are at hand; of few transfers, which take no longer by themselves; where routes
        are not all shortest paths, evenly, which alone follow every rotation; and where none
        serves network, tasks and rings together.

    Notes
    -----
    Max-min fair rates are the same for what an automorphism maps on each other, and so are all
    times. A class of tasks loads all images of a link alike: with all that it sends over them,
    divided by how many they are.
    """
    from parallelism.rotation_kernels import cycles

    found = rotated_kinds(fabric, tasks)
    rotation = None if found is None else fabric.rotation
    if found is None or rotation is None:
        return None
    image = rotation.times(found.step // rotation.hosts).links
    return _Folding(fabric, tasks, found, cycles(image)).tasks()


def rotated_kinds(fabric: Fabric, tasks: TaskGraph) -> Rotated | None:
    """Return what `rotated_tasks` makes one of, unless rings load links unalike.

    Parameters
    ----------
    fabric : Fabric
        None of its routes are made.
    tasks : TaskGraph

    Returns
    -------
    Rotated or None
        None as there, and where tasks stand for others.
    """
    network = fabric.network
    if tabled(network.hosts) or tasks.servers != network.hosts or fabric.transport.htsim:
        return None
    if tasks.alike is not None or not seeks_symmetry(tasks):
        return None
    if fabric.ring_routes is not None or not evenly_routed(network, fabric.routes):
        return None
    return None if fabric.rotation is None else rotated_classes(tasks, fabric.rotation.hosts)


def for_each(tasks: TaskGraph, whole: TaskGraph, times: FloatArray) -> FloatArray:
    """Return times of the network tasks of a whole graph; zero for those that compute.

    The same times where its tasks stand for themselves.

    Parameters
    ----------
    tasks : TaskGraph
        What `rotated_tasks` made of it, or the whole graph.
    whole : TaskGraph
    times : float64 array, shape (tasks,)
        Of the tasks that stand for others, seconds.

    Returns
    -------
    float64 array, shape (tasks of ``whole``,)
    """
    alike = tasks.alike
    if alike is None:
        return times
    sent = alike.of_task >= 0
    own = np.zeros(alike.classes.first_element.size)
    own[alike.of_task[sent]] = times[sent]
    every: FloatArray = np.zeros(whole.tasks)
    every[whole.kind != COMPUTE] = own[alike.classes.element]
    return every


class _Folding:
    """Makes the task graph of one task a class.

    Parameters
    ----------
    fabric : Fabric
    whole : TaskGraph
    found : Rotated
    orbit : int64 array, shape (links,)
        Which links the rotation maps on each other, numbered by the first of them.
    """

    def __init__(self, fabric: Fabric, whole: TaskGraph, found: Rotated, orbit: IntArray) -> None:
        self.fabric, self.whole, self.found, self.orbit = fabric, whole, found, orbit
        self.sends = np.flatnonzero(whole.kind != COMPUTE)
        self.of_task = np.full(found.first.size, -1, dtype=np.int64)
        sent = whole.kind[found.first] != COMPUTE
        # Classes are numbered by their first members, here and there.
        self.of_task[sent] = np.arange(np.count_nonzero(sent))
        self.element = self.of_task[found.of_task[self.sends]]
        self.first_element = np.searchsorted(self.sends, found.first[sent])
        self.sizes = np.bincount(orbit).astype(np.float64)
        # Of the images of a transfer that to the first servers, to which distances are then few.
        self.source, self.target = whole.first[found.first], whole.second[found.first]
        moves = whole.kind[found.first] == TRANSFER
        back = self.target[moves] // found.step * found.step
        self.source[moves] = (self.source[moves] - back) % whole.servers
        self.target[moves] -= back

    def tasks(self) -> TaskGraph | None:
        """Return the graph, or None if rings do not load links alike."""
        rows = self._rows()
        if not self._rings_alike():
            return None
        whole, fabric, (step, _, first) = self.whole, self.fabric, self.found
        servers = np.arange(whole.servers)
        orbit = 2 * step + self.orbit
        classes = Classes(
            servers % step, self.element,
            np.concatenate((servers % step, step + servers % step, orbit)),
        )  # fmt: skip

        def rebuild(classes: Classes | None, rows: Rows, fabric: Any) -> TaskGraph:
            return whole

        alike = Alike(
            self._pattern(), classes, rows, self.of_task, rebuild, fabric, self._loads(rows)
        )
        before, after = self._edges()
        compute = whole.kind[first] == COMPUTE
        return replace(
            whole,
            devices=step,
            kind=whole.kind[first],
            first=np.where(compute, self.source % step, self.source),
            second=self.target,
            size=whole.size[first],
            delay=whole.delay[first],
            operator=whole.operator[first],
            phase=whole.phase[first],
            part=whole.part[first],
            successor_offsets=np.searchsorted(before, np.arange(first.size + 1)).astype(np.int64),
            successors=after,
            predecessors=np.bincount(after, minlength=first.size).astype(np.int64),
            server_of_device=np.arange(step),
            ids=None,
            priority=None if whole.priority is None else whole.priority[first],
            alike=alike,
        )

    def _edges(self) -> tuple[IntArray, IntArray]:
        """Return which classes wait for which: those before, ascending, and those after."""
        first, of, offsets = self.found.first, self.found.of_task, self.whole.successor_offsets
        counts = np.diff(offsets)[first]
        entries = spread(offsets[first], counts)
        source = np.repeat(np.arange(first.size), counts)
        edges = np.unique(source * first.size + of[self.whole.successors[entries]])
        return edges // first.size, edges % first.size

    def _pattern(self) -> Pattern:
        whole, sends = self.whole, self.sends
        moves = whole.kind[sends] == TRANSFER
        element = np.flatnonzero(moves)
        source, target = whole.first[sends][moves], whole.second[sends][moves]
        role = np.repeat(np.array([SENDS, READS], dtype=np.uint64), element.size)
        return Pattern(
            whole.servers, whole.servers, np.where(moves, -1, whole.first[sends]),
            np.where(moves, whole.first[sends], -1), np.where(moves, whole.second[sends], -1),
            np.zeros(sends.size, dtype=np.uint64), whole.groups,
            np.concatenate((element, element)), np.concatenate((source, target)), role,
        )  # fmt: skip

    def _rows(self) -> Rows:
        """Return what the first element of each class, or its image, puts on links."""
        whole, fabric, hosts = self.whole, self.fabric, self.fabric.network.hosts
        own = np.flatnonzero(self.of_task >= 0)
        first = self.found.first[own]
        begin, end = (np.zeros(first.size, dtype=np.int64) for _ in range(2))
        moves = np.flatnonzero(whole.kind[first] == TRANSFER)
        pairs = self.source[own[moves]] * hosts + self.target[own[moves]]
        begin[moves], end[moves] = fabric.rows.entries(pairs)
        reduces = np.flatnonzero(whole.kind[first] != TRANSFER)
        numbers = whole.first[first[reduces]]
        groups = np.unique(whole.first[self.sends[whole.kind[self.sends] != TRANSFER]])
        fabric.prepare(whole.groups[number] for number in groups.tolist())
        for at, number in zip(reduces.tolist(), numbers.tolist(), strict=True):
            if len(whole.groups[number]) > 1:
                begin[at], end[at] = fabric.group_row(whole.groups[number])[:2]
        counts = end - begin
        entries = spread(begin, counts)
        return Rows(
            np.repeat(self.first_element, counts),
            2 * whole.servers + fabric.rows.links[entries].astype(np.int64),
            fabric.rows.weights[entries],
        )

    def _loads(self, rows: Rows) -> Rows:
        """Return what all elements of each class put on one link of each kind."""
        of, link = self.element[rows.element], rows.resource - 2 * self.whole.servers
        kinds = self.sizes.size
        cells = of * kinds + self.orbit[link]
        if self.first_element.size * kinds <= _SPARSE * cells.size:
            sums = np.bincount(cells, rows.weight)
            found = np.flatnonzero(sums)
            sums = sums[found]
        else:
            found, which = np.unique(cells, return_inverse=True)
            sums = np.bincount(which, rows.weight, found.size)
        members = np.bincount(self.element, minlength=1)[found // kinds]
        step = self.found.step
        return Rows(
            found // kinds, 2 * step + found % kinds, sums * members / self.sizes[found % kinds]
        )

    def _rings_alike(self) -> bool:
        """Whether the collectives of each class load all images of a link, and servers, alike."""
        whole = self.whole
        reduces = np.flatnonzero(whole.kind[self.sends] != TRANSFER)
        keys = self.element[reduces] * len(whole.groups) + whole.first[self.sends[reduces]]
        known, counts = np.unique(keys, return_counts=True)
        met: dict[tuple[tuple[int, int], ...], bool] = {}
        for number in np.unique(known // max(len(whole.groups), 1)).tolist():
            own = slice(*np.searchsorted(known, np.array([number, number + 1]) * len(whole.groups)))
            key = tuple(
                zip((known[own] % len(whole.groups)).tolist(), counts[own].tolist(), strict=True)
            )
            if key not in met:
                met[key] = self._groups_alike(key)
            if not met[key]:
                return False
        return True

    def _groups_alike(self, held: tuple[tuple[int, int], ...]) -> bool:
        """Whether groups, each so many times, load all images of links and of servers alike."""
        fabric, whole, step = self.fabric, self.whole, self.found.step
        total, members = np.zeros(self.orbit.size), np.zeros(whole.servers)
        of_one: FloatArray | None = None
        for number, count in held:
            group = whole.groups[number]
            members[list(group)] += count
            row, own = [float(len(group))], np.zeros(self.sizes.size)
            if len(group) > 1:
                begin, end, *rest = fabric.group_row(group)
                links, weights = fabric.rows.links[begin:end], fabric.rows.weights[begin:end]
                total[links] += count * weights
                own = np.bincount(self.orbit[links], weights, own.size).astype(np.float64)
                row += rest
            numbers = np.concatenate((row, own))
            if of_one is None:
                of_one = numbers
            if of_one.shape != numbers.shape or not np.allclose(of_one, numbers, _SAME, 0.0):
                return False
        mean = np.bincount(self.orbit, total, self.sizes.size) / self.sizes
        return bool(
            np.allclose(total, mean[self.orbit], _SAME, 0.0)
            and np.array_equal(members, np.tile(members[:step], whole.servers // step))
        )


__all__ = ["for_each", "rotated_kinds", "rotated_tasks"]
