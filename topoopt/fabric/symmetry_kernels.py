"""Compiled parts of collapsing: colour refinement, the quotient's rows, expanding its bindings."""

import numpy as np

from codesign_base.arrays import Floats, Ints, Words
from codesign_base.hash_kernels import hash_word
from codesign_base.jit import kernel
from parallelism.rotation_kernels import carry_colours
from topoopt.fabric.arrays_kernels import Orders

# Salts that keep what a colour stands for apart.
_TASK, _LINK, _DEVICE = 3, 4, 5


@kernel
def _salted(colour: np.uint64, salt: int) -> np.uint64:
    return hash_word(colour ^ (np.uint64(salt) << np.uint64(56)))


@kernel
def _weight_word(bits: np.uint64) -> np.uint64:
    """Return the word of a weight as `parallelism.alike.words_of` does."""
    return (bits + np.uint64(1 << 11)) >> np.uint64(12)


@kernel
def refine_links(
    orders: Orders, weight_bits: Words, task_colour: Words, link_colour: Words
) -> None:
    """Refine the colours of links by those of the flows over them, with their weights."""
    compute, begin, end, links = orders.compute, orders.begin, orders.end, orders.links
    total = np.zeros(link_colour.size, np.uint64)
    for task in range(compute.size):
        if not compute[task]:
            base = _salted(task_colour[task], _TASK)
            for entry in range(begin[task], end[task]):
                total[links[entry]] += hash_word(base ^ _weight_word(weight_bits[entry]))
    for link in range(link_colour.size):
        link_colour[link] = hash_word(link_colour[link] + hash_word(total[link]))


@kernel
def refine_tasks(
    orders: Orders, order: Ints, weight_bits: Words, task_colour: Words, link_colour: Words,
    device_colour: Words,
) -> None:  # fmt: skip
    """Refine the colours of tasks and devices once: by links, devices, and all dependencies."""
    compute, begin, end, links = orders.compute, orders.begin, orders.end, orders.links
    resource, tasks = orders.resource, compute.size
    for task in range(tasks):
        if not compute[task]:
            total = np.uint64(0)
            for entry in range(begin[task], end[task]):
                word = _weight_word(weight_bits[entry])
                total += hash_word(_salted(link_colour[links[entry]], _LINK) ^ word)
            task_colour[task] = hash_word(task_colour[task] + hash_word(total))
    carry_colours(order, orders.successor_offsets, orders.successors, task_colour)
    gathered = np.zeros(device_colour.size, np.uint64)
    for task in range(tasks):
        if compute[task]:
            gathered[resource[task]] += _salted(task_colour[task], _DEVICE)
    for device in range(device_colour.size):
        device_colour[device] = hash_word(device_colour[device] + hash_word(gathered[device]))
    for task in range(tasks):
        if compute[task]:
            task_colour[task] = hash_word(task_colour[task] + device_colour[resource[task]])


@kernel
def quotient_rows(
    orders: Orders, class_of_task: Ints, class_of_link: Ints, first_link: Ints, classes: int
) -> Floats:
    """Return what each class of tasks puts on one link of each class, shape (tasks, links)."""
    compute, links, weights = orders.compute, orders.links, orders.weights
    rows = np.zeros((classes, first_link.size))
    for task in range(compute.size):
        if not compute[task]:
            for entry in range(orders.begin[task], orders.end[task]):
                link = links[entry]
                of = class_of_link[link]
                if first_link[of] == link:
                    rows[class_of_task[task], of] += weights[entry]
    return rows


@kernel
def expand_bindings(
    successor_offsets: Ints, successors: Ints, class_of_task: Ints, class_binding: Ints
) -> Ints:
    """Return, for each task, its first predecessor in the class that binds its class; or -1."""
    tasks = class_of_task.size
    binding = np.full(tasks, -1, np.int64)
    for task in range(tasks):
        for entry in range(successor_offsets[task], successor_offsets[task + 1]):
            after = successors[entry]
            if binding[after] < 0 and class_binding[class_of_task[after]] == class_of_task[task]:
                binding[after] = task
    return binding
