"""One task for all that a rotation of the servers maps on each other, on networks that allow it.

Circulants, switches and Fat-trees do not notice a rotation of their hosts, and many iterations do
not either, be it by some servers. Then no routes are made but those of one transfer of each kind:
thousands of servers have half a million pairs in use, each with hundreds of links on its shortest
paths.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from codesign_base.arrays import Floats, Ints
from codesign_base.rows import spread, starts, summed
from parallelism.alike import READS, SENDS, Alike, Classes, Pattern, Rows
from parallelism.rotation import Rotated, rotated_classes
from parallelism.taskgraph import COMPUTE, TRANSFER, TaskGraph, dependency_lists
from routing.rotation import Rotation, evenly_routed
from routing.routes import tabled
from topoopt.fabric.collapse import seeks_symmetry
from topoopt.fabric.fabric import Fabric

# Rounding up to which loads of links, and numbers of groups, count as equal.
_SAME = 1e-9


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
    found = rotated_kinds(fabric, tasks)
    rotation = None if found is None else fabric.rotation
    if found is None or rotation is None:
        return None
    return _Folding(fabric, rotation, tasks, found.step, _kinds(tasks, found)).tasks()


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


def for_each(tasks: TaskGraph, whole: TaskGraph, times: Floats) -> Floats:
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
    every: Floats = np.zeros(whole.tasks)
    every[whole.kind != COMPUTE] = own[alike.classes.element]
    return every


class _Kinds(NamedTuple):
    """One task of each kind, whatever the fabric.

    Parameters
    ----------
    tasks : TaskGraph
        The first task of each class; a transfer is the image of it that goes to the first servers,
        to which distances are then few.
    of_task, element, patterned
        As in `parallelism.alike.Alike`.
    first_element : int64 array, shape (classes of elements,)
    members : float64 array, shape (classes of elements,)
        Their elements.
    reduced : tuple of int64 arrays
        Of collectives: classes of elements, groups, and how many each class has of each group.
    """

    tasks: TaskGraph
    of_task: Ints
    element: Ints
    first_element: Ints
    members: Floats
    patterned: Callable[[], Pattern]
    reduced: tuple[Ints, Ints, Ints]


def _kinds(whole: TaskGraph, found: Rotated) -> _Kinds:
    """Return one task of each kind; what was made of a graph and a step once is looked up."""
    known = whole.rotations.folded
    if found.step not in known:
        known[found.step] = _new_kinds(whole, found)
    made: _Kinds = known[found.step]
    return made


def _new_kinds(whole: TaskGraph, found: Rotated) -> _Kinds:
    step, of, first = found
    sends = np.flatnonzero(whole.kind != COMPUTE)
    of_task = np.full(first.size, -1, dtype=np.int64)
    sent = whole.kind[first] != COMPUTE
    # Classes are numbered by their first members, here and there.
    of_task[sent] = np.arange(np.count_nonzero(sent))
    element = of_task[of[sends]]
    source, target = whole.first[first], whole.second[first]
    moves, compute = whole.kind[first] == TRANSFER, whole.kind[first] == COMPUTE
    back = target[moves] // step * step
    source[moves] = (source[moves] - back) % whole.servers
    target[moves] -= back
    offsets, successors, predecessors = _dependencies(whole, found)
    tasks = replace(
        whole,
        devices=step,
        kind=whole.kind[first],
        first=np.where(compute, source % step, source),
        second=target,
        size=whole.size[first],
        delay=whole.delay[first],
        operator=whole.operator[first],
        phase=whole.phase[first],
        part=whole.part[first],
        successor_offsets=offsets,
        successors=successors,
        predecessors=predecessors,
        server_of_device=np.arange(step),
        ids=None,
        priority=None if whole.priority is None else whole.priority[first],
    )
    reduces = np.flatnonzero(whole.kind[sends] != TRANSFER)
    count = max(len(whole.groups), 1)
    keys, each = np.unique(
        element[reduces] * count + whole.first[sends[reduces]], return_counts=True
    )
    return _Kinds(
        tasks, of_task, element, np.searchsorted(sends, first[sent]),
        np.bincount(element, minlength=1).astype(np.float64),
        # Of its arrays, not of the graph: that keeps this, and would never be freed.
        cache(
            partial(
                _pattern, whole.servers, whole.groups, sends, whole.kind, whole.first, whole.second
            )
        ),
        (keys // count, keys % count, each),
    )  # fmt: skip


def _dependencies(whole: TaskGraph, found: Rotated) -> tuple[Ints, Ints, Ints]:
    """Return which classes wait for which, as `dependency_lists`."""
    first, of, offsets = found.first, found.of_task, whole.successor_offsets
    counts = np.diff(offsets)[first]
    entries = spread(offsets[first], counts)
    source = np.repeat(np.arange(first.size), counts)
    return dependency_lists(source, of[whole.successors[entries]], first.size, once=True)


def _pattern(
    servers: int, groups: tuple[tuple[int, ...], ...], sends: Ints, kind: Ints,
    first: Ints, second: Ints,
) -> Pattern:  # fmt: skip
    moves, first, second = kind[sends] == TRANSFER, first[sends], second[sends]
    element = np.flatnonzero(moves)
    role = np.repeat(np.array([SENDS, READS], dtype=np.uint64), element.size)
    return Pattern(
        servers, servers, np.where(moves, -1, first), np.where(moves, first, -1),
        np.where(moves, second, -1), np.zeros(sends.size, dtype=np.uint64), groups,
        np.concatenate((element, element)), np.concatenate((first[moves], second[moves])), role,
    )  # fmt: skip


class _Folding:
    """Makes the task graph of one task a class.

    Parameters
    ----------
    fabric : Fabric
    rotation : Rotation
        Of its network, by the fewest hosts.
    whole : TaskGraph
    step : int
        Servers that the rotation of the iteration goes on by.
    kinds : _Kinds
    """

    def __init__(
        self, fabric: Fabric, rotation: Rotation, whole: TaskGraph, step: int, kinds: _Kinds
    ) -> None:
        from parallelism.rotation_kernels import cycles

        self.fabric, self.rotation, self.whole = fabric, rotation, whole
        self.step, self.kinds = step, kinds
        # Which links the rotation maps on each other, numbered by the first of them.
        self.orbit = cycles(rotation.times(step // rotation.hosts).links)
        self.sizes = np.bincount(self.orbit).astype(np.float64)

    def tasks(self) -> TaskGraph | None:
        """Return the graph, or None if rings do not load links alike."""
        if not self._rings_alike():
            return None
        rows, loads = self._loads()
        whole, kinds, step = self.whole, self.kinds, self.step
        servers = np.arange(whole.servers)
        classes = Classes(
            servers % step, kinds.element,
            np.concatenate((servers % step, step + servers % step, 2 * step + self.orbit)),
        )  # fmt: skip

        def rebuild(classes: Classes | None, rows: Rows, fabric: Any) -> TaskGraph:
            return whole

        alike = Alike(kinds.patterned, classes, rows, kinds.of_task, rebuild, self.fabric, loads)
        return replace(kinds.tasks, alike=alike)

    def _loads(self) -> tuple[Rows, Rows]:
        """Return where elements take longest, and what those of a class put on a link of each kind.

        The first is one entry a class. Routes are made of one pair of hosts for all pairs that the
        network's own rotation maps on each other.
        """
        from topoopt.fabric.rotated_kernels import orbit_loads

        tasks, fabric, hosts = self.kinds.tasks, self.fabric, self.fabric.network.hosts
        own = np.flatnonzero(self.kinds.of_task >= 0)
        begin, end, turn = (np.zeros(own.size, dtype=np.int64) for _ in range(3))
        moves = np.flatnonzero(tasks.kind[own] == TRANSFER)
        pairs = tasks.first[own[moves]] * hosts + tasks.second[own[moves]]
        images, turn[moves] = self.rotation.first_images(pairs, hosts)
        begin[moves], end[moves] = fabric.rows.entries(images)
        reduces = np.flatnonzero(tasks.kind[own] != TRANSFER)
        for at, number in zip(reduces.tolist(), tasks.first[own[reduces]].tolist(), strict=True):
            if len(tasks.groups[number]) > 1:
                begin[at], end[at] = fabric.group_row(tasks.groups[number])[:2]
        order = np.argsort(turn, kind="stable")
        counts, slowest, kind, total = orbit_loads(
            order, begin, end, turn, fabric.rows.links,
            fabric.rows.weights, self.rotation.links, self.orbit, 1.0 / fabric.network.capacity,
            int(np.minimum(end - begin, self.sizes.size).sum()),
        )  # fmt: skip
        # In the order of classes again.
        place = np.empty(order.size, dtype=np.int64)
        place[order] = starts(counts[order])[:-1]
        entry = spread(place, counts)
        kind, total = kind[entry], total[entry]
        element = np.repeat(np.arange(own.size), counts)
        loads = total * self.kinds.members[element] / self.sizes[kind]
        longest = np.flatnonzero(slowest >= 0)
        entries = slowest[longest]
        rows = Rows(
            self.kinds.first_element[longest],
            2 * self.whole.servers + fabric.rows.links[entries].astype(np.int64),
            fabric.rows.weights[entries],
        )
        return rows, Rows(element, 2 * self.step + kind, loads)

    def _rings_alike(self) -> bool:
        """Whether the collectives of each class load all images of a link, and servers, alike."""
        elements, groups, counts = self.kinds.reduced
        self.fabric.prepare(self.whole.groups[number] for number in np.unique(groups).tolist())
        met: dict[tuple[tuple[int, int], ...], bool] = {}
        for number in np.unique(elements).tolist():
            own = slice(*np.searchsorted(elements, (number, number + 1)))
            key = tuple(zip(groups[own].tolist(), counts[own].tolist(), strict=True))
            if key not in met:
                met[key] = self._groups_alike(key)
            if not met[key]:
                return False
        return True

    def _groups_alike(self, held: tuple[tuple[int, int], ...]) -> bool:
        """Whether groups, each so many times, load all images of links and of servers alike."""
        fabric, whole, step = self.fabric, self.whole, self.step
        total, members = np.zeros(self.orbit.size), np.zeros(whole.servers)
        of_one: Floats | None = None
        for number, count in held:
            group = whole.groups[number]
            members[list(group)] += count
            row, own = [float(len(group))], np.zeros(self.sizes.size)
            if len(group) > 1:
                begin, end, *rest = fabric.group_row(group)
                links, weights = fabric.rows.links[begin:end], fabric.rows.weights[begin:end]
                total[links] += count * weights
                own = summed(self.orbit[links], weights, own.size)
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
