"""Moore-type bounds: how short the paths of any network of given size and degree could be."""

from collections.abc import Callable
from dataclasses import dataclass
from math import comb

from codesign_base import InputError


@dataclass(frozen=True, slots=True)
class DistanceBound:
    """Lower bounds that hold for every network of a family.

    Parameters
    ----------
    diameter : int
        Hops.
    mean_distance : float
        Hops, over ordered pairs of different servers.
    """

    diameter: int
    mean_distance: float


def moore_bound(servers: int, degree: int, bidirectional: bool = False) -> DistanceBound:
    """Return the Moore bound of d-regular networks.

    Parameters
    ----------
    servers, degree : int
        At least 1 each.
    bidirectional : bool
        Whether links come in pairs (an undirected graph).

    Returns
    -------
    DistanceBound

    Raises
    ------
    InputError
        If a number is below 1, or the degree cannot join the servers.

    Notes
    -----
    At most d servers are one hop away, and from each at most d (undirected: d - 1) others.

    References
    ----------
    M. Miller and J. Siran, "Moore graphs and beyond: a survey of the degree/diameter problem",
    Electronic Journal of Combinatorics, Dynamic Survey DS14.
    """
    _check(servers, degree)
    growth = degree - 1 if bidirectional else degree
    if growth == 0 and servers > 2:
        raise InputError(
            f"degree {degree} cannot join {servers} servers with bidirectional ports; give 2"
        )
    return _filled(servers, lambda hops: degree * growth ** (hops - 1))


def abelian_bound(
    servers: int, generators: int, bidirectional: bool = False, half: bool = False
) -> DistanceBound:
    """Return the bound of circulant networks: steps commute, so fewer sums are different.

    Parameters
    ----------
    servers, generators : int
        Generators p: steps +p, in bidirectional networks +p and -p.
    bidirectional : bool
    half : bool
        Whether there is a step of half the ring, too (odd degree).

    Returns
    -------
    DistanceBound

    Raises
    ------
    InputError
        If a number is below 1.

    Notes
    -----
    t hops reach as many offsets as there are multisets of t steps (directed), or integer points
    at L1 distance t from the origin (bidirectional).

    References
    ----------
    R. Dougherty and V. Faber, "The degree-diameter problem for several varieties of Cayley graphs
    I: the abelian case", SIAM J. Discrete Mathematics 17, 2004.
    """
    _check(servers, generators)

    def points(hops: int) -> int:
        if hops == 0:
            return 1
        if not bidirectional:
            return comb(hops + generators - 1, generators - 1)
        return sum(
            comb(generators, i) * comb(hops - 1, i - 1) * 2**i
            for i in range(1, min(generators, hops) + 1)
        )

    return _filled(servers, lambda hops: points(hops) + (points(hops - 1) if half else 0))


def _check(servers: int, degree: int) -> None:
    if servers < 1:
        raise InputError(f"distance bound of {servers} servers; give at least 1")
    if degree < 1:
        raise InputError(f"distance bound of degree {degree}; give at least 1")


def _filled(servers: int, level: Callable[[int], int]) -> DistanceBound:
    """Put as many servers as near as the levels allow."""
    left, hops, total = servers - 1, 0, 0
    while left > 0:
        hops += 1
        there = min(left, level(hops))
        total += there * hops
        left -= there
    return DistanceBound(hops, total / max(servers - 1, 1))
