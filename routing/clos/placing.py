"""Constructive routers: one flow after another onto the least loaded path."""

import numpy as np

from codesign_base.arrays import Floats, Ints, SmallInts
from routing.clos.arrays_kernels import ClosPaths
from routing.clos.assignment import check_connected, live_spines
from routing.clos.fabric import Clos
from routing.clos.flows import ClosFlows
from routing.clos.paths import clos_paths


def greedy_order(clos: Clos, flows: ClosFlows) -> SmallInts:
    """Return flows by groups "leaving ToR t" and "entering ToR t", largest first.

    Parameters
    ----------
    clos : Clos
        The fabric.
    flows : ClosFlows
        What is sent.

    Returns
    -------
    int32 array, shape (flows,)
        Each flow once; those within a ToR last. Groups of one size: leaving before entering,
        then by ToR; flows of a group keep their order.
    """
    groups = 2 * clos.tors
    source, target = flows.source_tor, flows.target_tor + clos.tors
    size = np.bincount(source[flows.crosses], None, groups)
    size += np.bincount(target[flows.crosses], None, groups)
    rank = np.empty(groups, dtype=np.min_scalar_type(groups))
    rank[np.argsort(-size, kind="stable")] = np.arange(groups)
    first = np.where(flows.crosses, np.minimum(rank.take(source), rank.take(target)), groups)
    return np.argsort(first, kind="stable").astype(np.int32)


def place(
    paths: ClosPaths,
    weight: Floats,
    order: SmallInts,
    chosen: SmallInts | None = None,
    look_ahead: bool = True,
) -> SmallInts:
    """Place flows in the given order, each where its most loaded link is loaded least.

    Parameters
    ----------
    paths : ClosPaths
        Candidates.
    weight : float64 array, shape (flows,)
        What each flow adds to a link.
    order : int32 array
        Flows to place.
    chosen : int32 array, shape (flows,), optional
        Paths that are given already, -1 where none is; by default all are -1.
    look_ahead : bool, default True
        Whether a link's load is counted with the flow on it.

    Returns
    -------
    int32 array, shape (flows,)
        Paths; of equally good ones the first.
    """
    from routing.clos.place_kernels import add_loads, place_flows

    load = np.zeros(paths.capacity.size)
    if chosen is None:
        way = np.full(weight.size, -1, dtype=np.int32)
    else:
        way = chosen.astype(np.int32)
        add_loads(paths, weight, way, load)
    with np.errstate(divide="ignore"):
        inverse = 1.0 / paths.capacity
    place_flows(order, float(look_ahead), paths, weight, inverse, load, way)
    return way


def greedy(clos: Clos, flows: ClosFlows, paths: ClosPaths) -> SmallInts:
    """Place flows as the public greedy does: by counts, in order of groups.

    Each flow takes the spine that minimises max(flows on the link up, flows on the link down),
    the first of several; where capacities differ, counts are divided by them. Weights are
    ignored, as there.

    References
    ----------
    "Routing for Large ML Models", arXiv 2503.05324 (the greedy algorithm), in the form of the
    public simulator of its experiments.
    """
    return place(paths, np.ones(flows.count), greedy_order(clos, flows), look_ahead=False)


def greedy_sorted(clos: Clos, flows: ClosFlows, paths: ClosPaths) -> SmallInts:
    """Place flows by weight, heaviest first, in order of groups among equals."""
    order = greedy_order(clos, flows)
    by_size = order[np.argsort(-flows.weight[order], kind="stable")]
    return place(paths, flows.weight, by_size)


def color(
    clos: Clos, flows: ClosFlows, paths: ClosPaths, given: SmallInts | None = None
) -> SmallInts:
    """Colour the flows' edges, heaviest first; place what dead links leave over greedily.

    A bipartite multigraph of source and target ToRs is coloured with the live spines by Kempe
    chains that keep off dead links. A ToR with D flows and m live links becomes ceil(D / m)
    vertices, so that no link of it carries more than that many flows (the least possible for
    flows of one size) if no live link is missing at another ToR. Capacities are not looked at,
    except in the repair.

    Parameters
    ----------
    clos, flows, paths
        The fabric, what is sent and the candidates of `clos_paths`.
    given : int32 array, shape (flows,), optional
        Spines to keep where they are live, unless a chain has to change them; -1 for none.

    Returns
    -------
    int32 array, shape (flows,)
        Spines, -1 for flows within a ToR.
    """
    from routing.clos.coloring_kernels import color_edges

    spines = clos.live_spines
    up = np.ascontiguousarray(clos.up[:, spines] > 0)
    down = np.ascontiguousarray((clos.down[spines] > 0).T)
    if given is None:
        colour = np.full(flows.count, -1, dtype=np.int32)
    else:
        number = np.full(clos.spines + 1, -1, dtype=np.int32)
        number[spines] = np.arange(spines.size)
        colour = number[given]
    alike = flows.count == 0 or bool(flows.weight.min() == flows.weight.max())
    order = np.flatnonzero(flows.crosses)
    if not alike:
        order = order[np.argsort(-flows.weight[order], kind="stable")]
    found = colour[order]
    color_edges(flows.source_tor[order], flows.target_tor[order], up, down, found)
    colour[order] = found
    colour[~flows.crosses] = -1
    if spines.size < clos.spines:
        colour = np.append(spines, -1)[colour].astype(np.int32)
    return _place_missing(flows, paths, colour)


def place_new(clos: Clos, flows: ClosFlows, spine: Ints) -> Ints:
    """Give a spine to flows that have none, or one that is no longer live; move no other.

    Each takes the spine on which the larger of its two links' load over capacity stays least;
    heavy flows first.

    Parameters
    ----------
    clos : Clos
    flows : ClosFlows
    spine : int64 array, shape (flows,)
        What holds now; -1 for none.

    Returns
    -------
    int64 array, shape (flows,)

    Raises
    ------
    InfeasibleError
        If no spine is live for a flow.
    """
    check_connected(clos, flows)
    return _place_missing(flows, clos_paths(clos, flows), live_spines(clos, flows, spine)).astype(
        np.int64
    )


def _place_missing(flows: ClosFlows, paths: ClosPaths, chosen: SmallInts) -> SmallInts:
    """Place the flows that need a path and have none, heaviest first; move no other."""
    missing = np.flatnonzero((chosen < 0) & flows.crosses)
    if missing.size == 0:
        return chosen
    heaviest = missing[np.argsort(-flows.weight[missing], kind="stable")].astype(np.int32)
    return place(paths, flows.weight, heaviest, chosen)
