"""One path a pair: rounding a split routing, and what that loses."""

import numpy as np

from codesign_base.rows import spread, starts
from routing.path_routing import PathRouting

_DRAWS = 8
# Passes of improvement at most, each of which offers every pair its other paths.
_SWEEPS = 20


def round_to_single_paths(
    routing: PathRouting, *, seed: int | np.random.Generator = 0
) -> PathRouting:
    """Choose one of each pair's paths, so that the most loaded link is loaded least.

    Parameters
    ----------
    routing : PathRouting
        Its paths are the candidates.
    seed : int or numpy.random.Generator
        Of the draws.

    Returns
    -------
    PathRouting
        With one path a pair and the same lower bound, so that its ``gap`` holds the loss too;
        the loss alone is ``rounded.congestion / routing.congestion - 1``.

    Notes
    -----
    Besides the choice of every pair's largest share, several random roundings are tried (each
    path with its share as probability). From each, pairs move in order of demand, largest first,
    to the path on which the sum of exp(a * utilisation) over links rises least, with a such that
    the most loaded link dominates; the best counts.

    References
    ----------
    P. Raghavan and C. Thompson, "Randomized rounding", Combinatorica 7, 1987; the improvement
    by single moves is ours.

    Examples
    --------
    >>> import numpy as np
    >>> from routing.network import Network
    >>> around = np.arange(4)
    >>> ends = np.append(around, (around + 1) % 4), np.append((around + 1) % 4, around)
    >>> ring = Network.from_links("ring", 4, 0, *ends, 12.5e9, 1e-6)
    >>> demand = 1e6 * (1.0 - np.eye(4))
    >>> from routing.multicommodity import min_congestion
    >>> single = round_to_single_paths(min_congestion(ring, demand))
    >>> [share for _, share in single.paths(0, 2)]
    [1.0]
    """
    from routing.unsplittable_kernels import improve_choice

    if routing.pairs.size == 0:
        return routing
    rng = np.random.default_rng(seed)
    network = routing.network
    first, last = routing.path_offsets[:-1], routing.path_offsets[1:]
    demand = routing.demand.ravel()[routing.pairs]
    order = np.lexsort((routing.pairs, -demand))
    ends = np.cumsum(routing.shares)
    before = ends[first] - routing.shares[first]
    by_share = np.lexsort((-routing.shares, np.repeat(np.arange(first.size), last - first)))
    links = routing.links.astype(np.int32)
    best, choice = np.inf, first
    for draw in range(_DRAWS + 1):
        if draw == 0:
            picked = by_share[first]
        else:
            at = before + rng.random(first.size) * (ends[last - 1] - before)
            picked = np.minimum(np.searchsorted(ends, at, side="right"), last - 1)
        picked = np.ascontiguousarray(picked, dtype=np.int64)
        top = improve_choice(
            order, routing.path_offsets, routing.link_offsets, links, demand,
            1.0 / network.capacity, picked, _SWEEPS,
        )  # fmt: skip
        if top < best * (1.0 - 1e-12):
            best, choice = top, picked
    lengths = routing.path_hops[choice]
    return PathRouting(
        network=network,
        demand=routing.demand,
        pairs=routing.pairs,
        path_offsets=np.arange(first.size + 1),
        link_offsets=starts(lengths),
        links=routing.links[spread(routing.link_offsets[choice], lengths)],
        shares=np.ones(first.size),
        lengths=routing.lengths,
        lower_bound=routing.lower_bound,
        method=f"{routing.method}, one path a pair",
        rounds=routing.rounds,
    )
