"""Task graphs with one task of each kind over a fabric: what it tells apart, and its rows."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from codesign_base.arrays import Floats, Ints, Words
from codesign_base.rows import spread
from parallelism.alike import Alike, Pattern, Rows, hash_words, refine, words_of
from parallelism.taskgraph import TaskGraph
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.rotated import rotated_tasks


def tasks_over(fabric: Fabric, tasks: TaskGraph) -> TaskGraph:
    """Return a task graph in which one task stands only for those that are alike on a fabric.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph

    Returns
    -------
    TaskGraph
        The same, if the graph was made for this fabric. The whole graph, if on this fabric little
        is alike. Where each task stands for itself: what `rotated_tasks` returns, else the same.
    """
    alike = tasks.alike
    if alike is not None and alike.fabric is fabric:
        return tasks
    if fabric.transport.htsim:  # it goes by the order in which tasks are found ready
        return whole_tasks(tasks)
    made = tasks_within(fabric, tasks, float("inf"))
    assert made is not None
    return made


def tasks_within(fabric: Fabric, tasks: TaskGraph, most: float) -> TaskGraph | None:
    """Return what `tasks_over` does, unless it has more tasks than that.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
    most : float
        Tasks: where there would be more, none is made.

    Returns
    -------
    TaskGraph or None
    """
    alike = tasks.alike
    if alike is not None and alike.fabric is fabric:
        return tasks
    if alike is None or alike.loads is not None:
        whole = whole_tasks(tasks)
        return rotated_tasks(fabric, whole) or whole
    pattern, network = alike.pattern, fabric.network
    rows, word = _rows(fabric, pattern)
    hosts = network.hosts
    out, into = network.out_rate(), network.in_rate()
    servers = pattern.servers
    assert servers <= hosts
    colour = np.concatenate([
        hash_words(words_of(amount.astype(np.float64)) + np.uint64(kind))
        for kind, amount in enumerate((out[:servers], into[:servers], network.capacity))
    ])  # fmt: skip
    each, passes = _tasks_each(tasks, alike)

    def serves(colours: Words) -> bool:
        return bool(each[np.unique(colours, return_index=True)[1]].sum() <= most)

    within = serves if most < float("inf") else None
    classes = refine(replace(pattern, word=word), rows, colour, serves=within)
    if within is not None:
        sent = each if classes is None else each[classes.first_element]
        kinds = pattern.places if classes is None else classes.first_place.size
        if sent.sum() + passes * kinds > most:
            return None
    if (
        classes is not None
        and np.array_equal(classes.place, alike.classes.place)
        and np.array_equal(classes.element, alike.classes.element)
    ):  # the fabric tells no more apart
        return replace(tasks, alike=replace(alike, classes=classes, rows=rows, fabric=fabric))
    made: TaskGraph = alike.rebuild(classes, rows, fabric)
    return made


def _tasks_each(tasks: TaskGraph, alike: Alike) -> tuple[Ints, int]:
    """Return how many tasks each element has, and how many passes a place."""
    sends = alike.of_task[alike.of_task >= 0]
    # A class of elements is sent as often as each of them.
    each = np.bincount(sends, minlength=alike.classes.first_element.size)[alike.classes.element]
    return each, (tasks.tasks - sends.size) // alike.classes.first_place.size


def whole_size(tasks: TaskGraph) -> int:
    """Return how many tasks `whole_tasks` has."""
    if tasks.alike is None:
        return tasks.tasks
    if tasks.alike.loads is not None:
        return whole_tasks(tasks).tasks
    each, passes = _tasks_each(tasks, tasks.alike)
    return int(each.sum()) + passes * tasks.alike.pattern.places


def whole_tasks(tasks: TaskGraph) -> TaskGraph:
    """Return the task graph in which each task stands for itself."""
    if tasks.alike is None:
        return tasks
    whole: TaskGraph = tasks.alike.rebuild(None, tasks.alike.rows, None)
    return whole


def _rows(fabric: Fabric, pattern: Pattern) -> tuple[Rows, Words]:
    """Return what elements put on ports and links, and words that tell their latencies, too."""
    hosts = fabric.network.hosts
    moves = np.flatnonzero(pattern.group < 0)
    reduces = np.flatnonzero(pattern.group >= 0)
    pairs = pattern.source[moves] * hosts + pattern.target[moves]
    fabric.prepare(pattern.groups)
    streams = np.array(
        [fabric.group_row(g) if len(g) > 1 else (0,) * 7 for g in pattern.groups], dtype=np.float64
    ).reshape(-1, 7)
    begin, end = (np.zeros(pattern.elements, dtype=np.int64) for _ in range(2))
    begin[moves], end[moves] = fabric.rows.entries(pairs)
    own = pattern.group[reduces]
    begin[reduces], end[reduces] = streams[own, :2].T.astype(np.int64)
    counts = end - begin
    element = np.repeat(np.arange(pattern.elements), counts)
    at = spread(begin, counts)
    links = fabric.rows.links[at].astype(np.int64)
    ports = pattern.ports
    rows = Rows(
        np.concatenate((ports.element, element)),
        np.concatenate((ports.resource, 2 * pattern.servers + links)),
        np.concatenate((ports.weight, fabric.rows.weights[at])),
    )
    word = pattern.word.copy()
    word[moves] = hash_words(word[moves] + words_of(fabric.rows.lags(pairs)))
    members = np.array([len(group) for group in pattern.groups], dtype=np.float64)
    for numbers in (members, *streams.T[2:]):
        word[reduces] = hash_words(word[reduces] + words_of(numbers)[own])
    return rows, word


class Represented(NamedTuple):
    """Rows of links of the classes of elements, as `Orders` holds rows.

    ``begin`` and ``end`` are by class; ``capacity`` by class of links.
    """

    begin: Ints
    end: Ints
    links: npt.NDArray[np.int32]
    weights: Floats
    capacity: Floats


def class_rows(fabric: Fabric, tasks: TaskGraph) -> Represented:
    """Return what each class of elements puts on one link of each class of links.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
        Made for this fabric by `tasks_over`.

    Returns
    -------
    Represented
    """
    alike = tasks.alike
    assert alike is not None and alike.fabric is fabric
    ports = 2 * tasks.servers
    first = alike.classes.first_resource
    links = np.flatnonzero(first >= ports)
    # Numbered by their first member, ports come before all links.
    offset = int(links[0]) if links.size else first.size
    uses = alike.uses
    kept = uses.resource >= offset
    element = uses.element[kept]
    edges = np.searchsorted(element, np.arange(alike.classes.first_element.size + 1))
    return Represented(
        edges[:-1].astype(np.int64),
        edges[1:].astype(np.int64),
        (uses.resource[kept] - offset).astype(np.int32),
        uses.weight[kept],
        fabric.network.capacity[first[links] - ports],
    )


def seconds_per_byte(fabric: Fabric, tasks: TaskGraph) -> Floats:
    """Return what one element of each class takes a byte with all links to itself.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
        Made for this fabric by `tasks_over`.

    Returns
    -------
    float64 array, shape (classes,)
    """
    alike = tasks.alike
    assert alike is not None and alike.fabric is fabric
    rows, first = alike.rows, alike.classes.first_element
    ports = 2 * tasks.servers
    kept = (rows.resource >= ports) & (first[alike.classes.element[rows.element]] == rows.element)
    of = alike.classes.element[rows.element[kept]]
    slowest: Floats = np.zeros(first.size)
    capacity = fabric.network.capacity[rows.resource[kept] - ports]
    np.maximum.at(slowest, of, rows.weight[kept] / capacity)
    return slowest
