"""Compiled edge colouring of bipartite multigraphs by Kempe chains, with links that may be dead.

A colour is a spine. A ToR with more flows than live links stands as several vertices of at most
so many flows each; a proper colouring then loads each of its links with at most
ceil(flows / live links) flows.
"""

import numpy as np
import numpy.typing as npt

from codesign_base.jit import kernel

Ints = npt.NDArray[np.int64]
SmallInts = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

# Powers of two up to 2^63 leave different remainders modulo 67.
_PLACES = np.zeros(67, dtype=np.int64)
for _i in range(64):
    _PLACES[(1 << _i) % 67] = _i

TRIES = 4  # pairs of free colours tried before a flow is left to the repair


@kernel
def lowest_bit(word: np.uint64) -> int:
    """Return the place of the lowest bit set in a word that is not zero."""
    alone = word & (~word + np.uint64(1))
    return int(_PLACES[alone % np.uint64(67)])


@kernel
def vertices_needed(end: Ints, live: Flags) -> Ints:
    """Return, for every ToR, its flows over its live links, rounded up."""
    tors, colours = live.shape
    degree = np.zeros(tors, dtype=np.int64)
    for flow in range(end.size):
        degree[end[flow]] += 1
    for tor in range(tors):
        ways = 0
        for colour in range(colours):
            ways += live[tor, colour]
        # A ToR without live links has no flows to be coloured: callers see to that.
        degree[tor] = (degree[tor] + ways - 1) // ways if ways > 0 else 0
    return degree


@kernel
def drop_colours(
    source: Ints,
    target: Ints,
    up_live: Flags,
    down_live: Flags,
    need_left: Ints,
    need_right: Ints,
    colour_of: SmallInts,
) -> None:
    """Take the colour from flows that have it over a dead link or once too often at a ToR."""
    tors, colours = up_live.shape
    on_left = np.zeros((tors, colours), dtype=np.int32)
    on_right = np.zeros((tors, colours), dtype=np.int32)
    for flow in range(source.size):
        colour = colour_of[flow]
        if colour < 0:
            continue
        a, b = source[flow], target[flow]
        sound = up_live[a, colour] and down_live[b, colour]
        if sound and on_left[a, colour] < need_left[a] and on_right[b, colour] < need_right[b]:
            on_left[a, colour] += 1
            on_right[b, colour] += 1
        else:
            colour_of[flow] = -1


@kernel
def split_vertices(end: Ints, live: Flags, need: Ints, given: SmallInts, vertex: SmallInts) -> Ints:
    """Give the flows of each ToR to vertices of at most as many flows as it has live links.

    Flows that have a colour go to different vertices if they share it. Returns the ToR of each
    vertex.
    """
    tors, colours = live.shape
    first = np.zeros(tors + 1, dtype=np.int64)
    for tor in range(tors):
        first[tor + 1] = first[tor] + need[tor]
    tor_of = np.empty(first[tors], dtype=np.int64)
    for tor in range(tors):
        for place in range(first[tor], first[tor + 1]):
            tor_of[place] = tor
    held = np.zeros(first[tors], dtype=np.int64)
    seen = np.zeros((tors, colours), dtype=np.int32)
    for flow in range(end.size):
        if given[flow] >= 0:
            tor = end[flow]
            vertex[flow] = first[tor] + seen[tor, given[flow]]
            seen[tor, given[flow]] += 1
            held[vertex[flow]] += 1
    ways = np.zeros(tors, dtype=np.int64)
    for tor in range(tors):
        for colour in range(colours):
            ways[tor] += live[tor, colour]
    for flow in range(end.size):
        if given[flow] < 0:
            tor = end[flow]
            place = first[tor]
            while held[place] >= ways[tor]:
                place += 1
            held[place] += 1
            vertex[flow] = place
    return tor_of


@kernel
def free_words(tor_of: Ints, live: Flags, words: int) -> Words:
    """Return, for every vertex, the bits of the colours that it may take."""
    tors, colours = live.shape
    of_tor = np.zeros((tors, words), dtype=np.uint64)
    for tor in range(tors):
        for colour in range(colours):
            if live[tor, colour]:
                of_tor[tor, colour >> 6] |= np.uint64(1) << np.uint64(colour & 63)
    free = np.empty((tor_of.size, words), dtype=np.uint64)
    for place in range(tor_of.size):
        for word in range(words):
            free[place, word] = of_tor[tor_of[place], word]
    return free


@kernel
def _first_free(free: Words, place: int, skip: int) -> int:
    """Return the colour after so many lower ones among the free ones of a vertex, or -1."""
    for word in range(free.shape[1]):
        bits = free[place, word]
        while bits != 0:
            if skip == 0:
                return (word << 6) + lowest_bit(bits)
            skip -= 1
            bits &= bits - np.uint64(1)
    return -1


@kernel
def _flip_chain(
    begin: int,
    alpha: int,
    beta: int,
    left: SmallInts,
    right: SmallInts,
    left_tor: Ints,
    right_tor: Ints,
    left_at: SmallInts,
    right_at: SmallInts,
    left_free: Words,
    right_free: Words,
    up_live: Flags,
    down_live: Flags,
    colour_of: SmallInts,
    chain: SmallInts,
    whole: bool,
) -> bool:
    """Swap two colours along the chain that leaves a right vertex by an edge of colour alpha."""
    length = 0
    place = begin
    colour, other = alpha, beta
    on_right = True
    while True:
        edge = right_at[place, colour] if on_right else left_at[place, colour]
        if edge < 0:
            break
        if not whole:
            sound = up_live[left_tor[left[edge]], other]
            if not (sound and down_live[right_tor[right[edge]], other]):
                return False
        chain[length] = edge
        length += 1
        place = left[edge] if on_right else right[edge]
        on_right = not on_right
        colour, other = other, colour
    colour = alpha
    for i in range(length):
        left_at[left[chain[i]], colour] = -1
        right_at[right[chain[i]], colour] = -1
        colour = alpha + beta - colour
    colour = beta
    for i in range(length):
        left_at[left[chain[i]], colour] = chain[i]
        right_at[right[chain[i]], colour] = chain[i]
        colour_of[chain[i]] = colour
        colour = alpha + beta - colour
    one = np.uint64(1)
    right_free[begin, alpha >> 6] ^= one << np.uint64(alpha & 63)
    right_free[begin, beta >> 6] ^= one << np.uint64(beta & 63)
    # At the chain's far end one of the two colours was used and the other free.
    if on_right:
        right_free[place, alpha >> 6] ^= one << np.uint64(alpha & 63)
        right_free[place, beta >> 6] ^= one << np.uint64(beta & 63)
    else:
        left_free[place, alpha >> 6] ^= one << np.uint64(alpha & 63)
        left_free[place, beta >> 6] ^= one << np.uint64(beta & 63)
    return True


@kernel
def color_edges(
    source: Ints, target: Ints, up_live: Flags, down_live: Flags, colour_of: SmallInts
) -> int:
    """Colour flows so that each vertex meets a colour once; return how many stayed without.

    Parameters
    ----------
    source, target : int64 arrays, shape (flows,)
        ToRs.
    up_live, down_live : bool arrays, shape (tors, colours)
        Which colours a ToR may use as a source and as a target.
    colour_of : int32 array, shape (flows,)
        In: -1, or a colour to keep unless a chain changes it or a ToR has it too often. Out: the
        colours, -1 where dead links prevented one.
    """
    flows = source.size
    colours = up_live.shape[1]
    words = (colours + 63) >> 6
    whole = bool(np.all(up_live)) and bool(np.all(down_live))
    need_left = vertices_needed(source, up_live)
    need_right = vertices_needed(target, down_live)
    drop_colours(source, target, up_live, down_live, need_left, need_right, colour_of)
    left = np.empty(flows, dtype=np.int32)
    right = np.empty(flows, dtype=np.int32)
    left_tor = split_vertices(source, up_live, need_left, colour_of, left)
    right_tor = split_vertices(target, down_live, need_right, colour_of, right)
    left_free = free_words(left_tor, up_live, words)
    right_free = free_words(right_tor, down_live, words)
    left_at = np.full((left_tor.size, colours), -1, dtype=np.int32)
    right_at = np.full((right_tor.size, colours), -1, dtype=np.int32)
    chain = np.empty(left_tor.size + right_tor.size + 1, dtype=np.int32)
    missing = 0
    one = np.uint64(1)
    for flow in range(flows):
        colour = colour_of[flow]
        if colour >= 0:
            a, b = left[flow], right[flow]
            left_at[a, colour] = flow
            right_at[b, colour] = flow
            left_free[a, colour >> 6] ^= one << np.uint64(colour & 63)
            right_free[b, colour >> 6] ^= one << np.uint64(colour & 63)
    for flow in range(flows):
        if colour_of[flow] >= 0:
            continue
        a, b = left[flow], right[flow]
        colour = -1
        for word in range(words):
            bits = left_free[a, word] & right_free[b, word]
            if bits != 0:
                colour = (word << 6) + lowest_bit(bits)
                break
        attempt = 0
        while colour < 0 and attempt < TRIES * TRIES:
            alpha = _first_free(left_free, a, attempt // TRIES)
            beta = _first_free(right_free, b, attempt % TRIES)
            attempt += 1
            if alpha < 0 or beta < 0 or not down_live[right_tor[b], alpha]:
                continue
            if _flip_chain(
                b, alpha, beta, left, right, left_tor, right_tor, left_at, right_at, left_free,
                right_free, up_live, down_live, colour_of, chain, whole,
            ):  # fmt: skip
                colour = alpha
        colour_of[flow] = colour
        if colour < 0:
            missing += 1
            continue
        left_at[a, colour] = flow
        right_at[b, colour] = flow
        left_free[a, colour >> 6] ^= one << np.uint64(colour & 63)
        right_free[b, colour >> 6] ^= one << np.uint64(colour & 63)
    return missing
