"""Placing new flows beside those that stay where they are: the least change of routes."""

import numpy as np

from routing.clos.fabric import Clos, IntArray
from routing.clos.flows import Flows
from routing.clos.paths import clos_paths
from routing.clos.placing import place
from routing.clos.routers import check_connected


def place_new(clos: Clos, flows: Flows, spine: IntArray) -> IntArray:
    """Give a spine to flows that have none, or one that is no longer live; move no other.

    Each takes the spine on which the larger of its two links' load over capacity stays least;
    heavy flows first.

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
    live = (clos.up[flows.source_tor, spine] > 0) & (clos.down[spine, flows.target_tor] > 0)
    kept = np.where(flows.crosses & (spine >= 0) & live, spine, -1).astype(np.int32)
    missing = np.flatnonzero(flows.crosses & (kept < 0))
    heaviest = missing[np.argsort(-flows.weight[missing], kind="stable")].astype(np.int32)
    return place(clos_paths(clos, flows), flows.weight, heaviest, kept).astype(np.int64)
