"""Compiled parts of finding what a rotation of the servers maps on each other."""

import numpy as np

from codesign_base.arrays import Ints, Words
from codesign_base.hash_kernels import hash_word
from codesign_base.jit import kernel

# Salts that keep what a colour stands for apart.
_PREDECESSOR, _SUCCESSOR = np.uint64(1 << 56), np.uint64(2 << 56)
# Values of TaskKind (enums cannot be used inside kernels).
_COMPUTE, _TRANSFER = 0, 1


@kernel
def carry_colours(order: Ints, offsets: Ints, successors: Ints, colour: Words) -> None:
    """Refine the colours of tasks by those of all that they wait for, and of all that waits.

    One sweep each way, along an ``order`` that dependencies allow, carries colours along whole
    chains.
    """
    told = np.zeros(colour.size, np.uint64)
    for place in range(order.size):
        task = order[place]
        own = hash_word(colour[task] + hash_word(told[task]))
        colour[task] = own
        word = hash_word(own ^ _PREDECESSOR)
        for entry in range(offsets[task], offsets[task + 1]):
            told[successors[entry]] += word
    for place in range(order.size - 1, -1, -1):
        task = order[place]
        total = np.uint64(0)
        for entry in range(offsets[task], offsets[task + 1]):
            total += hash_word(colour[successors[entry]] ^ _SUCCESSOR)
        colour[task] = hash_word(colour[task] + hash_word(total))


@kernel
def places_on(device: Ints, devices: int) -> Ints:
    """Return how many tasks are before each on its device; -1 of a task that is on none (-1)."""
    count = np.zeros(devices, np.int64)
    place = np.full(device.size, -1, np.int64)
    for task in range(device.size):
        if device[task] >= 0:
            place[task] = count[device[task]]
            count[device[task]] += 1
    return place


@kernel
def spread_evenly(classes: Ints, turn: Ints, count: int, turns: int) -> bool:
    """Whether each of ``count`` classes has as many members at each of so many turns.

    Members at turn -1 do not count.
    """
    held = np.zeros(count * turns, np.int64)
    for member in range(classes.size):
        if turn[member] >= 0:
            held[classes[member] * turns + turn[member]] += 1
    for number in range(count):
        for place in range(1, turns):
            if held[number * turns + place] != held[number * turns]:
                return False
    return True


@kernel
def cycles(image: Ints) -> Ints:
    """Return the cycle of each member of a permutation, numbered by its first."""
    of = np.full(image.size, -1, np.int64)
    count = int(np.int64(0))
    for begin in range(image.size):
        if of[begin] >= 0:
            continue
        member = begin
        while of[member] < 0:
            of[member] = count
            member = image[member]
        count += 1
    return of


@kernel
def rotated_keys(
    orbit: Ints,
    reduced: Ints,
    first_part: Ints,
    turn: Ints,
    turns: int,
    kind: Ints,
    operator: Ints,
    phase: Ints,
    part: Ints,
    offsets: Ints,
    successors: Ints,
) -> Words:
    """Return a word of each task of a strategy, the same for what a rotation maps on each other.

    Parameters
    ----------
    orbit, turn : int64 arrays, shape (parts,)
        Of each part of an operator: what it is mapped on has the same orbit, and is the one at
        the next of so many ``turns``.
    reduced : int64 array, shape (AllReduces,)
        Their orbits, in the order of their tasks.
    first_part : int64 array, shape (operators + 1,)
    turns : int
    kind, operator, phase, part, offsets, successors : int64 arrays
        As in `parallelism.taskgraph.TaskGraph`; transfers are between two compute tasks.
    """
    word = np.empty(kind.size, np.uint64)
    reduces = 0
    for task in range(kind.size):
        if kind[task] == _COMPUTE:
            here = first_part[operator[task]] + part[task]
            salt = np.uint64(phase[task] + 1) << np.uint64(56)
            word[task] = hash_word(np.uint64(orbit[here]) ^ salt)
            for entry in range(offsets[task], offsets[task + 1]):
                move = successors[entry]
                if kind[move] == _TRANSFER:
                    reader = successors[offsets[move]]
                    there = first_part[operator[reader]] + part[reader]
                    ahead = (turn[there] - turn[here]) % turns
                    own = hash_word(word[task] ^ (np.uint64(phase[move] + 1) << np.uint64(48)))
                    word[move] = hash_word(own + np.uint64(orbit[there] * turns + ahead))
        elif kind[task] != _TRANSFER:
            word[task] = hash_word(np.uint64(reduced[reduces]) ^ (np.uint64(9) << np.uint64(56)))
            reduces += 1
    return word
