"""Rounds of maximum-weight matching on the transfer demand, halving what was matched.

Source: TopoOpt (NSDI 2023, arXiv 2202.00433), section 4, the model-parallel sub-topology.
"""

from functools import lru_cache

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats, Ints

# Equal demands are told apart by a fixed pseudo-random factor, so that the best matching is
# unique whatever the solver's internal order, and ties do not all fall on neighbours.
_TIE_BREAK = 1e-9
_TIE_SEED = 20220433
_INTEGER_SCALE = 2.0**60
# Pairs with demand from which on bidirectional servers are matched within a gap: the exact
# matching of 512 servers that all send to each other takes half a second, of 1024 five.
_MOST_EDGES = 120_000


def matching_rounds(
    demand: Floats, rounds: int, bidirectional: bool
) -> list[list[tuple[int, int]]]:
    """Match servers by demand for a number of rounds, one port a server and round.

    Parameters
    ----------
    demand : float64 array, shape (servers, servers)
        Bytes from row to column; the diagonal is ignored.
    rounds : int
        Number of rounds (ports).
    bidirectional : bool
        True: undirected matching on the demand of both directions together; an edge joins two
        servers both ways. False: assignment; every server gets one transmit and one receive
        partner.

    Returns
    -------
    list of list of (int, int)
        The edges of each round, sorted: (low, high) in bidirectional mode, else (from, to).
        Servers that demand leaves over are joined to one another where possible, first those
        not joined yet.

    Raises
    ------
    InputError
        If the matrix is not square, not finite or negative, or rounds is negative.

    Notes
    -----
    After each round the demand of matched pairs is halved, so that the next round prefers pairs
    not yet joined, or doubles a link that carries far more than the others.
    """
    remaining = square_demand(demand)
    if rounds < 0:
        raise InputError(f"{rounds} matching rounds; give zero or more")
    servers = remaining.shape[0]
    joined = np.zeros((servers, servers), dtype=np.int64)
    result = []
    for _ in range(rounds):
        free = np.ones(servers, dtype=np.int64)
        edges = match_once(remaining, free, free, bidirectional)
        out, into = _left_free(servers, edges, bidirectional)
        for i, j in edges:
            _join(joined, i, j, bidirectional)
        edges += fill_ports(out, into, joined, bidirectional)
        halve(remaining, edges, bidirectional)
        result.append(sorted(edges))
    return result


def square_demand(demand: Floats) -> Floats:
    """Return a writable copy of the demand with zero diagonal.

    Raises
    ------
    InputError
        If the matrix is not square, not finite or negative.
    """
    matrix = np.array(demand, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"the demand has shape {matrix.shape}; give a square matrix of bytes")
    if not np.all(np.isfinite(matrix) & (matrix >= 0)):
        i, j = np.argwhere(~(np.isfinite(matrix) & (matrix >= 0)))[0].tolist()
        raise InputError(
            f"the demand {i}->{j} is {matrix[i, j]} bytes; give zero or a positive number"
        )
    np.fill_diagonal(matrix, 0.0)
    return matrix


def match_once(
    demand: Floats, free_out: Ints, free_in: Ints, bidirectional: bool
) -> list[tuple[int, int]]:
    """Return the maximum-weight matching among servers with free ports.

    Parameters
    ----------
    demand : float64 array, shape (servers, servers)
        Zero diagonal.
    free_out, free_in : int64 array, shape (servers,)
        Free transmit and receive ports; a server without is left out.
    bidirectional : bool
        As in `matching_rounds`.

    Returns
    -------
    list of (int, int)
        Pairs with positive demand only, sorted.
    """
    return best_matching(demand, free_out, free_in, bidirectional)[0]


def best_matching(
    demand: Floats, free_out: Ints, free_in: Ints, bidirectional: bool
) -> tuple[list[tuple[int, int]], float]:
    """Return the matching of `match_once`, and its gap.

    Returns
    -------
    edges : list of (int, int)
    gap : float
        No matching carries more than ``1 + gap`` times its bytes: zero (exact) but where very
        many pairs of bidirectional servers have demand; see `near_matching`.
    """
    # Of thousands of servers most pairs send nothing: only the others are weighed.
    i, j = np.nonzero(demand)
    usable = (free_out[i] > 0) & (free_in[j] > 0)
    if bidirectional:
        usable &= (free_out[j] > 0) & (free_in[i] > 0)
    i, j = i[usable], j[usable]
    if not i.size:
        return [], 0.0
    weight = np.zeros(demand.shape)
    if bidirectional:
        low, high = np.minimum(i, j), np.maximum(i, j)
        weight[low, high] = demand[low, high] + demand[high, low]
        i, j = np.nonzero(weight)
    else:
        weight[i, j] = demand[i, j]
    weight[i, j] = weight[i, j] / weight.max() * (1.0 + _TIE_BREAK * _noise(len(demand))[i, j])
    if not bidirectional:
        return _assignment(weight), 0.0
    if i.size > _MOST_EDGES:
        from topoopt.topology.near_matching import near_matching

        return near_matching(weight + weight.T)
    return _blossom(weight), 0.0


@lru_cache(maxsize=1)
def _noise(servers: int) -> Floats:
    noise: Floats = np.random.default_rng(_TIE_SEED).random((servers, servers))
    return noise


def _blossom(weight: Floats) -> list[tuple[int, int]]:
    """Return the maximum-weight matching of an upper-triangular matrix of weights.

    Only pairs with demand are offered to the solver: servers it leaves single have no demand
    for each other, so any pairing of them completes a maximum-weight perfect matching.
    """
    import rustworkx as rx

    i, j = np.nonzero(weight)
    scaled = (weight[i, j] * _INTEGER_SCALE).astype(np.int64) + 1
    graph = rx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(weight.shape[0]))
    graph.add_edges_from(list(zip(i.tolist(), j.tolist(), scaled.tolist(), strict=True)))
    matching = rx.max_weight_matching(graph, max_cardinality=False, weight_fn=int)
    return sorted((min(a, b), max(a, b)) for a, b in matching)


def _assignment(weight: Floats) -> list[tuple[int, int]]:
    """Return the maximum-weight assignment, without the pairs that carry nothing."""
    from topoopt.topology.assignment_kernels import cheapest_assignment

    rows, columns = np.arange(weight.shape[0]), cheapest_assignment(-weight)
    keep = weight[rows, columns] > 0
    return list(zip(rows[keep].tolist(), columns[keep].tolist(), strict=True))


def halve(demand: Floats, edges: list[tuple[int, int]], bidirectional: bool) -> None:
    """Halve the demand of matched pairs in place (of both directions if bidirectional)."""
    for i, j in edges:
        demand[i, j] /= 2.0
        if bidirectional:
            demand[j, i] /= 2.0


def fill_ports(
    free_out: Ints, free_in: Ints, joined: Ints, bidirectional: bool
) -> list[tuple[int, int]]:
    """Join servers until no two have free ports, preferring pairs not joined yet.

    Parameters
    ----------
    free_out, free_in : int64 array, shape (servers,)
        Free ports, counted down in place. One and the same array in bidirectional mode.
    joined : int64 array, shape (servers, servers)
        Cables from row to column, counted up in place.
    bidirectional : bool
        Whether a cable takes one port of both servers and joins them both ways.

    Returns
    -------
    list of (int, int)
        The cables in the order laid.

    Notes
    -----
    The server with most free ports goes first (as in the Havel-Hakimi construction), which
    leaves a port unused only where no partner but the server itself is left.
    """
    servers = free_out.size
    shuffle = np.random.default_rng(_TIE_SEED).permutation(servers)
    edges: list[tuple[int, int]] = []
    waiting = free_out > 0 if bidirectional else (free_out > 0) | (free_in > 0)
    while waiting.any():
        v = int(np.argmax(np.where(waiting, free_out + free_in, -1)))
        possible = free_in * int(free_out[v] > 0)
        possible[v] = 0
        sends = bool(possible.any())
        if not sends:
            possible = free_out * int(free_in[v] > 0)
            possible[v] = 0
        if not possible.any():
            waiting[v] = False
            continue
        cables = joined[v] if sends else joined[:, v]
        candidates = np.flatnonzero(possible)
        # The distance in a fixed shuffle spreads the chords over the servers.
        spread = (shuffle[candidates] - shuffle[v]) % servers
        best = np.lexsort((spread, -possible[candidates], cables[candidates]))[0]
        w = int(candidates[best])
        i, j = (v, w) if sends else (w, v)
        free_out[i] -= 1
        free_in[j] -= 1
        _join(joined, i, j, bidirectional)
        edges.append((min(i, j), max(i, j)) if bidirectional else (i, j))
        for x in (i, j):
            waiting[x] &= bool(free_out[x] > 0 or free_in[x] > 0)
    return edges


def _left_free(
    servers: int, edges: list[tuple[int, int]], bidirectional: bool
) -> tuple[Ints, Ints]:
    """Return the free transmit and receive ports after one round's edges."""
    out = np.ones(servers, dtype=np.int64)
    into = out if bidirectional else np.ones(servers, dtype=np.int64)
    for i, j in edges:
        out[i] -= 1
        into[j] -= 1
    return out, into


def _join(joined: Ints, i: int, j: int, bidirectional: bool) -> None:
    """Count one cable from i to j (and back, if bidirectional)."""
    joined[i, j] += 1
    if bidirectional:
        joined[j, i] += 1
