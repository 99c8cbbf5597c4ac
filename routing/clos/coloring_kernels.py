"""Compiled edge colouring of bipartite multigraphs by Kempe chains, with links that may be dead.

A colour is a spine. A ToR with more flows than live links becomes several vertices of at most
so many flows each; a proper colouring then loads each of its links with at most
ceil(flows / live links) flows.
"""

from typing import NamedTuple

import numpy as np

from codesign_base.arrays import Flags, Ints, SmallInts, Words
from codesign_base.jit import inner_kernel, kernel

# Powers of two up to 2^63 leave different remainders modulo 67.
_PLACES = np.zeros(67, dtype=np.int64)
for _i in range(64):
    _PLACES[(1 << _i) % 67] = _i

TRIES = 4  # pairs of free colours tried before a flow is left to the repair


class Side(NamedTuple):
    """One side of the multigraph: sources or targets.

    Parameters
    ----------
    vertex : int32 array, shape (flows,)
    tor : int64 array, shape (vertices,)
    live : bool array, shape (tors, colours)
        Colours that a ToR may use.
    at : int32 array, shape (vertices, colours)
        The flow that has a colour there, -1 for none.
    free : uint64 array, shape (vertices, words)
        Bits of the colours that a vertex may still take.
    """

    vertex: SmallInts
    tor: Ints
    live: Flags
    at: SmallInts
    free: Words


@inner_kernel
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
def make_side(end: Ints, live: Flags, need: Ints, given: SmallInts) -> Side:
    """Split the ToRs of one side into vertices and give those the flows that have a colour."""
    tors, colours = live.shape
    vertex = np.empty(end.size, dtype=np.int32)
    tor_of = split_vertices(end, live, need, given, vertex)
    at = np.full((tor_of.size, colours), -1, dtype=np.int32)
    of_tor = np.zeros((tors, (colours + 63) >> 6), dtype=np.uint64)
    for tor in range(tors):
        for colour in range(colours):
            if live[tor, colour]:
                _toggle(of_tor, tor, colour)
    side = Side(vertex, tor_of, live, at, of_tor[tor_of])
    for flow in range(end.size):
        if given[flow] >= 0:
            _take(side, flow, given[flow])
    return side


@inner_kernel
def _toggle(bits: Words, row: int, colour: int) -> None:
    bits[row, colour >> 6] ^= np.uint64(1) << np.uint64(colour & 63)


@inner_kernel
def _take(side: Side, flow: int, colour: int) -> None:
    """Give a flow's vertex a colour that is free there."""
    side.at[side.vertex[flow], colour] = flow
    _toggle(side.free, side.vertex[flow], colour)


@inner_kernel
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


@inner_kernel
def _flip_chain(
    begin: int,
    alpha: int,
    beta: int,
    left: Side,
    right: Side,
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
        edge = right.at[place, colour] if on_right else left.at[place, colour]
        if edge < 0:
            break
        if not whole:
            sound = left.live[left.tor[left.vertex[edge]], other]
            if not (sound and right.live[right.tor[right.vertex[edge]], other]):
                return False
        chain[length] = edge
        length += 1
        place = left.vertex[edge] if on_right else right.vertex[edge]
        on_right = not on_right
        colour, other = other, colour
    colour = alpha
    for i in range(length):
        left.at[left.vertex[chain[i]], colour] = -1
        right.at[right.vertex[chain[i]], colour] = -1
        colour = alpha + beta - colour
    colour = beta
    for i in range(length):
        left.at[left.vertex[chain[i]], colour] = chain[i]
        right.at[right.vertex[chain[i]], colour] = chain[i]
        colour_of[chain[i]] = colour
        colour = alpha + beta - colour
    end = right.free if on_right else left.free
    for colour in (alpha, beta):
        _toggle(right.free, begin, colour)
        # At the chain's far end one of the two colours was used and the other free.
        _toggle(end, place, colour)
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
    whole = bool(np.all(up_live)) and bool(np.all(down_live))
    need_left = vertices_needed(source, up_live)
    need_right = vertices_needed(target, down_live)
    drop_colours(source, target, up_live, down_live, need_left, need_right, colour_of)
    left = make_side(source, up_live, need_left, colour_of)
    right = make_side(target, down_live, need_right, colour_of)
    chain = np.empty(left.tor.size + right.tor.size + 1, dtype=np.int32)
    missing = 0
    for flow in range(flows):
        if colour_of[flow] >= 0:
            continue
        a, b = left.vertex[flow], right.vertex[flow]
        colour = -1
        for word in range(left.free.shape[1]):
            bits = left.free[a, word] & right.free[b, word]
            if bits != 0:
                colour = (word << 6) + lowest_bit(bits)
                break
        attempt = 0
        while colour < 0 and attempt < TRIES * TRIES:
            alpha = _first_free(left.free, a, attempt // TRIES)
            beta = _first_free(right.free, b, attempt % TRIES)
            attempt += 1
            if alpha < 0 or beta < 0 or not down_live[right.tor[b], alpha]:
                continue
            if _flip_chain(b, alpha, beta, left, right, colour_of, chain, whole):
                colour = alpha
        colour_of[flow] = colour
        if colour < 0:
            missing += 1
        else:
            _take(left, flow, colour)
            _take(right, flow, colour)
    return missing
