"""Tasks that a rotation of the servers maps on each other.

A rotation maps server v on v + step, modulo the servers. Where an iteration is the same after it,
as where tables are on every sixteenth server, the tasks of all images of a server are alike.
"""

from typing import NamedTuple

import numpy as np

from codesign_base.arrays import Ints, Words
from parallelism.alike import hash_words, numbered, words_of
from parallelism.taskgraph import COMPUTE, TRANSFER, TaskGraph, edges_of

# Steps that are tried, of those by which each server alone does the same as its image.
_TRIED = 3


class Rotated(NamedTuple):
    """Classes of tasks under a rotation of the servers.

    Parameters
    ----------
    step : int
        Servers that the rotation goes on by; a divisor of their number.
    of_task : int64 array, shape (tasks,)
        Class of each task; classes are numbered by their first members.
    first : int64 array, shape (classes,)
        Their first members.
    """

    step: int
    of_task: Ints
    first: Ints


def rotated_classes(tasks: TaskGraph, period: int) -> Rotated | None:
    """Return which tasks a rotation of the servers maps on each other, dependencies included.

    Parameters
    ----------
    tasks : TaskGraph
        One task each, one device a server.
    period : int
        The rotation goes on by a multiple of so many servers; a divisor of their number.

    Returns
    -------
    Rotated or None
        By the least step that serves. All tasks of a class wait for as many of each other class,
        and as many wait for them; each image of a server has as many of a class, and compute tasks
        of one class have the same place in the order of their device. Collectives of one class
        are of groups that hold as many servers of each kind; whether they load links alike is to
        be looked at. None where no step of up to half of the servers serves, or something is not
        sent by what computes on its server. What was found once is looked up.
    """
    known, find = tasks.rotations.known, tasks.rotations.find
    if period not in known:
        for other, least in known.items():
            if period % other == 0 and least is not None and least.step % period == 0:
                # The least of more steps is one of these.
                known[period] = least
                break
        else:
            known[period] = refined_classes(tasks, period) if find is None else find(tasks, period)
    found: Rotated | None = known[period]
    return found


def refined_classes(tasks: TaskGraph, period: int) -> Rotated | None:
    """Return what `rotated_classes` does, found in the graph itself.

    Parameters
    ----------
    tasks, period
        As of `rotated_classes`.

    Returns
    -------
    Rotated or None
    """
    from parallelism.longest_path_kernels import topological_order

    servers = tasks.servers
    if tasks.devices != servers or not np.array_equal(tasks.server_of_device, np.arange(servers)):
        return None
    word = _words(tasks)
    sign = _signature(tasks, word)
    steps = [
        step
        for step in range(period, servers // 2 + 1, period)
        if servers % step == 0 and np.array_equal(sign[step:], sign[:-step])
    ]
    if not steps or not _sent_by_devices(tasks):
        return None
    offsets, successors, predecessors = (
        np.array(each) for each in (tasks.successor_offsets, tasks.successors, tasks.predecessors)
    )
    order = topological_order(offsets, successors, predecessors)
    if order.size < tasks.tasks:
        return None
    for step in steps[:_TRIED]:
        found = _classes(tasks, word, step, (order, offsets, successors))
        if found is not None:
            return found
    return None


def _sent_by_devices(tasks: TaskGraph) -> bool:
    """Whether transfers come from, and go to, what computes on their servers, as bounds ask."""
    before, after = edges_of(tasks)
    compute, moves = tasks.kind == COMPUTE, tasks.kind == TRANSFER
    into, out = moves[before], moves[after]
    return bool(
        compute[after[into]].all()
        and compute[before[out]].all()
        and np.array_equal(tasks.first[after[into]], tasks.second[before[into]])
        and np.array_equal(tasks.first[before[out]], tasks.first[after[out]])
    )


def _words(tasks: TaskGraph) -> Words:
    """Return what each task does, whichever server does it."""
    from parallelism.rotation_kernels import places_on

    compute = tasks.kind == COMPUTE
    place = places_on(np.where(compute, tasks.first, -1), tasks.devices)
    word = hash_words(place.view(np.uint64)) + tasks.kind.astype(np.uint64)
    for values in (tasks.size, tasks.delay):
        word = hash_words(word ^ words_of(values))
    if tasks.priority is not None:
        word = hash_words(word ^ tasks.priority.astype(np.uint64))
    moves = np.flatnonzero(tasks.kind == TRANSFER)
    ahead = (tasks.second[moves] - tasks.first[moves]) % tasks.servers
    word[moves] = hash_words(word[moves] + ahead.astype(np.uint64))
    return word


def _signature(tasks: TaskGraph, word: Words) -> Words:
    """Return what each server does, wherever it is: hashes of words, shape (servers,)."""
    from parallelism.alike_kernels import met_words

    servers, collective = tasks.servers, tasks.collective
    own = np.flatnonzero(~collective)
    reduces = np.flatnonzero(collective)
    none = np.zeros(max(own.size, reduces.size), dtype=np.uint64)
    sign: Words = met_words(tasks.first[own], own, word, none[: own.size], servers)
    moves = np.flatnonzero(tasks.kind == TRANSFER)
    salt = np.ones(moves.size, dtype=np.uint64)
    sign += met_words(tasks.second[moves], moves, word, salt, servers)
    group = met_words(tasks.first[reduces], reduces, word, none[: reduces.size], len(tasks.groups))
    for number, members in enumerate(tasks.groups):
        some = np.array(members, dtype=np.int64)
        sign[some] += hash_words(group[number : number + 1] + np.uint64(some.size))
    return sign


def _classes(
    tasks: TaskGraph, word: Words, step: int, graph: tuple[Ints, Ints, Ints]
) -> Rotated | None:
    from parallelism.rotation_kernels import carry_colours, spread_evenly

    collective = tasks.collective
    colour = hash_words(word ^ hash_words((tasks.first % step).astype(np.uint64)))
    kinds = np.array(
        [int(hash_words(_held(members, step)).sum()) % 2**64 for members in tasks.groups] or [0],
        dtype=np.uint64,
    )
    reduces = np.flatnonzero(collective)
    colour[reduces] = hash_words(word[reduces] ^ kinds[tasks.first[reduces]])
    turn = np.where(collective, -1, tasks.first // step)
    count = 0
    while True:
        carry_colours(*graph, colour)
        of, first = numbered(colour)
        # What is finer is not spread more evenly.
        if 2 * first.size > tasks.tasks:
            return None
        if first.size == count:
            break
        count = first.size
    if not spread_evenly(of, turn, first.size, tasks.servers // step):
        return None
    return Rotated(step, of, first)


def _held(members: tuple[int, ...], step: int) -> Words:
    """Return how many of each kind of servers a group has, as words of kind and number."""
    counts = np.bincount(np.array(members, dtype=np.int64) % step, minlength=step)
    held: Words = (counts * step + np.arange(step)).astype(np.uint64)
    return held[counts > 0]
