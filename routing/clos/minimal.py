"""Placing new flows beside those that stay where they are: the least change of routes."""

import numpy as np

from routing.clos.fabric import Clos, IntArray
from routing.clos.flows import Flows
from routing.clos.routers import check_connected


def place_new(clos: Clos, flows: Flows, spine: IntArray) -> IntArray:
    """Give a spine to flows that have none, or one that is no longer live; move no other.

    Each takes the spine on which the larger of its two links' load over capacity stays least,
    the first of equals; heavy flows first.

    Parameters
    ----------
    clos : Clos
    flows : Flows
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
    up, down = clos.up, clos.down.T
    found = spine.copy()
    placed = flows.crosses & (spine >= 0)
    source, target = flows.source_tor[placed], flows.target_tor[placed]
    live = (up[source, spine[placed]] > 0) & (down[target, spine[placed]] > 0)
    placed[placed] = live
    load_up, load_down = np.zeros_like(up), np.zeros_like(up)
    np.add.at(load_up, (flows.source_tor[placed], spine[placed]), flows.weight[placed])
    np.add.at(load_down, (flows.target_tor[placed], spine[placed]), flows.weight[placed])
    missing = np.flatnonzero(flows.crosses & ~placed)
    missing = missing[np.argsort(-flows.weight[missing], kind="stable")]
    with np.errstate(divide="ignore", invalid="ignore"):
        per_up = np.where(up > 0, 1.0 / up, np.inf)
        per_down = np.where(down > 0, 1.0 / down, np.inf)
    for flow in missing.tolist():
        a, b, weight = flows.source_tor[flow], flows.target_tor[flow], flows.weight[flow]
        worst = np.maximum((load_up[a] + weight) * per_up[a], (load_down[b] + weight) * per_down[b])
        best = int(np.argmin(worst))
        found[flow] = best
        load_up[a, best] += weight
        load_down[b, best] += weight
    found[~flows.crosses] = -1
    return found
