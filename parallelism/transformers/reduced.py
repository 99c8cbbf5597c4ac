"""The task graph of an iteration with one task of each kind."""

from dataclasses import replace
from typing import Any

import numpy as np

from codesign_base.arrays import Ints
from parallelism.alike import Alike, Classes, Pattern, Rows, refine
from parallelism.taskgraph import TaskGraph
from parallelism.transformers.loads import Loads
from parallelism.transformers.placed_tasks import iteration_tasks, represented_tasks
from parallelism.transformers.placement import Placement
from parallelism.transformers.schedules import PipelineSchedule
from parallelism.transformers.shape import pattern_of, reduced_shape, whole_shape

# Ranks that one stands for, on the average, below which little is alike.
_GAIN = 2


def reduced_tasks(
    placement: Placement, schedule: PipelineSchedule, loads: Loads
) -> TaskGraph | None:
    """Return the task graph of one rank, and one exchange, of each kind.

    Replicas do the same at the same time: with data, context and expert groups that are laid
    out evenly, one rank of each stage stands for all.

    Parameters
    ----------
    placement : Placement
    schedule : PipelineSchedule
        Of the placement's layout.
    loads : Loads

    Returns
    -------
    TaskGraph or None
        Of what is alike where all servers are; `topoopt.fabric.represented` divides it
        further where a fabric tells servers apart. None where tensor groups span servers, or
        little is alike.
    """
    if placement.servers_per_rank > 1:
        return None
    whole = whole_shape(placement)
    pattern, shape = pattern_of(placement, whole, loads)
    colour = np.repeat(np.array([1, 2], dtype=np.uint64), placement.servers)
    found = refine(pattern, pattern.ports, colour, _GAIN)
    if found is None:
        return None

    def rebuild(classes: Classes | None, rows: Rows, fabric: Any) -> TaskGraph:
        if classes is None:
            return iteration_tasks(placement, schedule, loads, shape=whole)
        tasks, of_task = represented_tasks(
            placement, schedule, loads, reduced_shape(shape, classes), pattern.groups
        )
        alike = Alike(lambda: pattern, classes, rows, of_task, rebuild, fabric)
        return replace(tasks, groups=pattern.groups, alike=alike)

    tasks = rebuild(found, pattern.ports, None)
    assert tasks.alike is not None
    pattern, rank = _in_order_of_use(pattern, found, tasks.alike.of_task)
    return replace(
        tasks,
        first=np.where(
            tasks.collective, rank[np.where(tasks.collective, tasks.first, 0)], tasks.first
        ),
        groups=pattern.groups,
        alike=replace(tasks.alike, patterned=lambda: pattern),
    )


def _in_order_of_use(pattern: Pattern, classes: Classes, of_task: Ints) -> tuple[Pattern, Ints]:
    """Return the pattern with its groups in the order in which the whole graph meets them.

    Also each group's new number.
    """
    begin = np.full(classes.first_element.size, of_task.size)
    tasks = np.flatnonzero(of_task >= 0)
    np.minimum.at(begin, of_task[tasks], tasks)
    own = np.flatnonzero(pattern.group >= 0)
    # Exchanges of one kind and stage are added together, whatever classes they are of.
    _, block = np.unique(pattern.word[own], return_inverse=True)
    first = np.full(own.size, of_task.size)
    np.minimum.at(first, block, begin[classes.element[own]])
    order = pattern.group[own][np.lexsort((own, first[block]))]
    groups, at = np.unique(order, return_index=True)
    rank = np.zeros(len(pattern.groups) + 1, dtype=np.int64)
    rank[groups[np.argsort(at)]] = np.arange(groups.size)
    names = [pattern.groups[number] for number in groups[np.argsort(at)].tolist()]
    group = np.where(pattern.group >= 0, rank[pattern.group], -1)
    return replace(pattern, group=group, groups=tuple(names)), rank
