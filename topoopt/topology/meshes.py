"""Links among the servers of a group that all send to each other: full meshes, or near ones."""

from dataclasses import dataclass

import numpy as np

from codesign_base import InfeasibleError, InputError
from codesign_base.arrays import Ints
from codesign_base.counted import counted
from topoopt.topology.cayley import select_cayley
from topoopt.topology.circulants import select_circulant
from topoopt.topology.totient import ring_order

Cycle = tuple[int, ...]

# Members up to which Cayley graphs are looked at, and sets of circulant steps that are tried.
_CAYLEY = (6, 64)
_MOST_SETS = 2_000


@dataclass(frozen=True, eq=False)
class GroupGraph:
    """Links of a group, some of which make up rings over all of it.

    Parameters
    ----------
    rings : tuple of tuple of int
        Members 0 .. n-1 in ring order. Between bidirectional ports a ring has both directions.
    cables : int64 array, shape (n, n)
        Those of no ring, from row to column.
    """

    rings: tuple[Cycle, ...]
    cables: Ints


def full_mesh_graph(n: int, *, bidirectional: bool = False) -> GroupGraph:
    """Return a link between every two members, made of as many rings as can be.

    Parameters
    ----------
    n : int
        Members, at least 2.
    bidirectional : bool
        Whether a ring stands for both of its directions.

    Returns
    -------
    GroupGraph
        All n - 1 ports of a member are in rings where n is odd, n - 2 where it is even.

    Raises
    ------
    InputError
        If n is below 2.

    References
    ----------
    Walecki's decomposition of complete graphs into Hamiltonian cycles: B. Alspach, "The wonderful
    Walecki construction" (2008). For even n a vertex is put into an edge of each cycle of n - 1;
    the edges it replaces join opposite places, and so are a matching.
    """
    if n < 2:
        raise InputError(f"a mesh of {counted(n, 'server')}; give at least 2")
    cables = np.zeros((n, n), dtype=np.int64)
    if n == 2:
        return GroupGraph(((0, 1),), cables)
    around = n - 2 + n % 2  # places on the rim; then the hub, and for even n one more
    half = around // 2
    # 0, 1, -1, 2, -2, ...: every difference once each way, over all turns of the rim.
    zigzag = np.array([(i + 1) // 2 if i % 2 else -(i // 2) for i in range(around)])
    opposite = next(
        i for i in range(around - 1) if (zigzag[i + 1] - zigzag[i]) % around == half % around
    )
    rings: list[Cycle] = []
    for turn in range(half):
        rim = ((zigzag + turn) % around).tolist()
        if n % 2 == 0:
            a, b = rim[opposite], rim[opposite + 1]
            cables[a, b] = cables[b, a] = 1
            rim.insert(opposite + 1, n - 1)
        rings.append((around, *rim))
    if n % 2 == 0:
        cables[around, n - 1] = cables[n - 1, around] = 1
    if not bidirectional:
        rings = [order for ring in rings for order in (ring, (ring[0], *reversed(ring[1:])))]
    return GroupGraph(tuple(rings), cables)


def near_mesh(n: int, ports: int, *, bidirectional: bool = False) -> GroupGraph:
    """Return links of a group of more members than ports, with short paths between all of them.

    Parameters
    ----------
    n : int
        Members.
    ports : int
        Of each member, at least 2 and at most n - 2.
    bidirectional : bool

    Returns
    -------
    GroupGraph
        Of the best Cayley graph (of 6 to 64 members), the best circulant one and, between
        directed ports, the generalised Kautz network that with the least mean distance; one
        that is all rings before one that is not.

    Raises
    ------
    InputError
        If there are too few ports, or enough for a full mesh.
    """
    if not 2 <= ports <= n - 2:
        raise InputError(
            f"{counted(ports, 'port')} among {counted(n, 'server')}; give 2 to {n - 2}, or make a "
            "full mesh"
        )
    found: list[tuple[float, int, GroupGraph]] = []
    none = np.zeros((n, n), dtype=np.int64)
    if _CAYLEY[0] <= n <= _CAYLEY[1]:
        try:
            graph = select_cayley(n, ports, bidirectional=bidirectional)
            rest = none.copy()
            for a, b in graph.rest:
                rest[a, b] += 1
                rest[b, a] += bidirectional
            found.append((graph.mean_distance, 0, GroupGraph(graph.rings, rest)))
        except InfeasibleError:
            pass
    count = ports // 2 if bidirectional else ports
    steps = select_circulant(n, count, bidirectional=bidirectional, most=_MOST_SETS)
    seats = tuple(range(n))
    rings = tuple(ring_order(seats, step) for step in steps.generators)
    found.append((steps.mean_distance, 1, GroupGraph(rings, none)))
    if not bidirectional:
        kautz = _kautz(n, ports)
        mean = _mean_distance(kautz)
        if mean is not None:
            found.append((mean, 2, GroupGraph((), kautz)))
    return min(found, key=lambda each: (round(each[0], 9), each[1]))[2]


def _kautz(n: int, ports: int) -> Ints:
    """Return the cables of the generalised Kautz network; none from a member to itself."""
    at = np.arange(n, dtype=np.int64)
    cables = np.zeros((n, n), dtype=np.int64)
    for r in range(1, ports + 1):
        np.add.at(cables, (at, (-at * ports - r) % n), 1)
    np.fill_diagonal(cables, 0)
    return cables


def _mean_distance(cables: Ints) -> float | None:
    """Return the mean hops between members; None where some cannot reach others."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import shortest_path

    hops = shortest_path(csr_array((cables > 0).astype(np.float64)), unweighted=True)
    n = cables.shape[0]
    total = float(hops.sum())
    return total / (n * (n - 1)) if np.isfinite(total) else None
