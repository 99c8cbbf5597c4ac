"""Compiled parts of finding what is alike: sums of hashed colours, and their classes."""

import numpy as np

from codesign_base.arrays import Ints, Words
from codesign_base.hash_kernels import hash_word
from codesign_base.jit import kernel


@kernel
def met_words(at: Ints, of: Ints, colour: Words, salt: Words, count: int) -> Words:
    """Add up, for each of ``count`` members, the hashed colours of those that it meets.

    Entry i adds that of ``of[i]``, changed by ``salt[i]``, to the sum of ``at[i]``.
    """
    total = np.zeros(count, np.uint64)
    for i in range(at.size):
        total[at[i]] += hash_word(colour[of[i]] + salt[i])
    return total


@kernel
def numbered_words(words: Words) -> tuple[Ints, Ints]:
    """Return the class of each word, and the first place of each class; equal words are a class.

    Classes are numbered by their first places. A table of places by hash, so that nothing is
    sorted.
    """
    room = 16
    while room < 2 * words.size:
        room *= 2
    mask = np.uint64(room - 1)
    held = np.full(room, -1, dtype=np.int64)
    of = np.empty(words.size, dtype=np.int64)
    first = np.empty(words.size, dtype=np.int64)
    count = int(np.int64(0))
    for place in range(words.size):
        word = words[place]
        slot = hash_word(word) & mask
        while held[slot] >= 0 and words[first[held[slot]]] != word:
            slot = (slot + np.uint64(1)) & mask
        if held[slot] < 0:
            held[slot] = count
            first[count] = place
            count += 1
        of[place] = held[slot]
    return of, first[:count].copy()
