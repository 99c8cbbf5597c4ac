"""Collapse what is symmetric: tasks, links and devices that must behave alike, as one of each.

A partition is *equitable* if all members of a class see the same numbers of members of every
other class: flows of the same sizes and dependencies over links of the same classes with the
same weights, links under the same flows, devices with the same tasks in the same order. On an
equitable partition max-min fair rates, and so all times, are equal within a class; simulating
one member of each gives them exactly.
"""

from dataclasses import dataclass

import numpy as np

from codesign_base.arrays import Ints, Words
from codesign_base.rows import spread
from parallelism.alike import hash_words, numbered, words_of
from parallelism.taskgraph import TRANSFER, TaskGraph, dependency_lists
from topoopt.fabric.arrays_kernels import Orders

Numbered = tuple[Ints, Ints]
"""The class of each member, and the first member of each class."""

COLLAPSE_FROM = 4096
"""Transfers from which on it is worth while to look for symmetry."""

# Classes of tasks times classes of links above which there is too little to gain: so many, and of
# large graphs a few for each task, beside which they take little memory.
_CELLS, _CELLS_EACH = 4_000_000, 4


@dataclass(frozen=True, eq=False)
class Quotient:
    """A collapsed task graph.

    Parameters
    ----------
    orders : Orders
        One task, link and device of each class.
    class_of_task : int64 array, shape (tasks,)
        Classes are numbered by their first member.
    """

    orders: Orders
    class_of_task: Ints


def seeks_symmetry(tasks: TaskGraph) -> bool:
    """Say whether a task graph has enough transfers for looking for symmetry to pay."""
    return int(np.count_nonzero(tasks.kind == TRANSFER)) >= COLLAPSE_FROM


def collapse(orders: Orders) -> Quotient | None:
    """Return the coarsest equitable partition's quotient, or None where little would be gained.

    Parameters
    ----------
    orders : Orders

    Returns
    -------
    Quotient or None
        None if more than half of the links, or of the tasks, are in classes of their own kind,
        or if dependencies form a cycle.

    Notes
    -----
    Colour refinement with 64-bit hashes; two different neighbourhoods get one colour with a
    probability below 1e-6 for a million tasks. Tasks of one device are told apart by their
    order, because that breaks ties.

    References
    ----------
    M. Grohe, K. Kersting, M. Mladenov, E. Selman, "Dimension reduction via colour refinement"
    (ESA 2014): the quotient of an equitable partition preserves linear programs, of which
    max-min fairness is a sequence.
    """
    from parallelism.longest_path_kernels import topological_order
    from topoopt.fabric.symmetry_kernels import refine_links, refine_tasks

    link_colour = hash_words(words_of(orders.capacity))
    weight_bits = orders.weights.view(np.uint64)
    # Links that bytes alone tell apart stay so whatever else is told apart.
    coarse = link_colour.copy()
    refine_links(orders, weight_bits, hash_words(words_of(orders.volume)), coarse)
    if 2 * numbered(coarse)[1].size > orders.capacity.size:
        return None
    task_colour = _first_colours(orders)
    device_colour = np.zeros(orders.devices, dtype=np.uint64)
    counts = [0, 0, 0]
    order: Ints | None = None
    while True:
        refine_links(orders, weight_bits, task_colour, link_colour)
        links = numbered(link_colour)
        link_classes = links[1].size
        if 2 * link_classes > orders.capacity.size:
            return None
        if order is None:
            order = topological_order(
                orders.successor_offsets, orders.successors, orders.predecessors
            )
            if order.size < orders.compute.size:
                return None
        refine_tasks(orders, order, weight_bits, task_colour, link_colour, device_colour)
        known = [numbered(task_colour), links, numbered(device_colour)]
        found = [first.size for _, first in known]
        task_classes = found[0]
        tasks = orders.compute.size
        most = max(_CELLS, _CELLS_EACH * tasks)
        if 2 * task_classes > tasks or task_classes * link_classes > most:
            return None
        if found == counts:
            return _quotient(orders, *known)
        counts = found


def _first_colours(orders: Orders) -> Words:
    """Colour tasks by what they are, and by their place on their device."""
    place = np.zeros(orders.compute.size, dtype=np.int64)
    computing = np.flatnonzero(orders.compute)
    by_device = computing[np.argsort(orders.resource[computing], kind="stable")]
    device = orders.resource[by_device]
    first = np.searchsorted(device, device)
    place[by_device] = 1 + np.arange(by_device.size) - first
    colour = hash_words(place.view(np.uint64))
    for field in (orders.volume, orders.delay, orders.lag, orders.cap):
        colour = hash_words(colour ^ words_of(field))
    if orders.priority.any():
        colour = hash_words(colour ^ orders.priority.astype(np.uint64))
    return colour


def _quotient(orders: Orders, tasks: Numbered, links: Numbered, devices: Numbered) -> Quotient:
    from topoopt.fabric.symmetry_kernels import quotient_rows

    (class_of_task, first_task), (class_of_link, first_link) = tasks, links
    class_of_device, first_device = devices
    classes = first_task.size
    dense = quotient_rows(orders, class_of_task, class_of_link, first_link, classes)
    row, met = np.nonzero(dense)
    offsets = np.searchsorted(row, np.arange(classes + 1)).astype(np.int64)
    compute = orders.compute[first_task]
    device = orders.resource[first_task]
    resource = np.where(compute, class_of_device[np.where(compute, device, 0)], np.arange(classes))
    counts = np.diff(orders.successor_offsets)[first_task]
    source = np.repeat(np.arange(classes), counts)
    entries = spread(orders.successor_offsets[first_task], counts)
    successor_offsets, successors, predecessors = dependency_lists(
        source, class_of_task[orders.successors[entries]], classes, once=True
    )
    quotient = Orders(
        compute=compute,
        resource=resource.astype(np.int64),
        volume=orders.volume[first_task],
        delay=orders.delay[first_task],
        lag=orders.lag[first_task],
        cap=orders.cap[first_task],
        begin=offsets[:-1].copy(),
        end=offsets[1:].copy(),
        successor_offsets=successor_offsets,
        successors=successors,
        predecessors=predecessors,
        start_order=np.arange(classes, dtype=np.int64),
        priority=orders.priority[first_task],
        levels=orders.levels,
        devices=first_device.size,
        rows=classes,
        slots=classes,
        entries=met.size,
        links=met.astype(np.int32),
        weights=dense[row, met],
        capacity=orders.capacity[first_link],
    )
    return Quotient(quotient, class_of_task)


def expand_binding(orders: Orders, quotient: Quotient, binding: Ints) -> Ints:
    """Return the bindings of all tasks from those of their classes.

    Parameters
    ----------
    orders : Orders
        Before collapsing.
    quotient : Quotient
    binding : int64 array, shape (classes,)
        Class that fixed the start of each class; -1: none.

    Returns
    -------
    int64 array, shape (tasks,)
        The predecessor of that class with the lowest id, or the task of that class that ran
        just before on the same device.
    """
    from topoopt.fabric.symmetry_kernels import expand_bindings

    of = quotient.class_of_task
    expanded = expand_bindings(orders.successor_offsets, orders.successors, of, binding)
    late = np.flatnonzero((expanded < 0) & (binding[of] >= 0))
    computing = np.flatnonzero(orders.compute)
    classes = binding.size
    # A class has at most one task on each device.
    keys = orders.resource[computing] * classes + of[computing]
    sorted_keys = np.argsort(keys)
    wanted = orders.resource[late] * classes + binding[of[late]]
    expanded[late] = computing[sorted_keys[np.searchsorted(keys[sorted_keys], wanted)]]
    return np.asarray(expanded, dtype=np.int64)
