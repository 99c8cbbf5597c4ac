"""Routers that do not look at loads, or only at random: ECMP, flowlet-like, annealing."""

import numpy as np

from codesign_base.arrays import Flags, Ints, SmallInts
from routing.clos.arrays_kernels import ClosPaths
from routing.clos.fabric import Clos
from routing.clos.flows import ClosFlows, parts

_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15)
STEPS_PER_FLOW = 100
HOT, COLD = 16.0, 0.05  # in units of (load / capacity)^4; one collision of equal flows costs 14


def hash_ecmp(clos: Clos, flows: ClosFlows, seed: int = 0) -> Ints:
    """Choose spines by a static hash of source ToR, source and destination.

    The hash is a chain of the finaliser of SplitMix64, ``h = mix(h + x * 0x9E3779B97F4A7C15)``,
    over seed, source ToR + 1, source + 1 and destination + 1; the flow takes live spine number
    ``h mod (live spines of its pair of ToRs)``. Source and destination are NICs; for flows
    without NIC numbers the flow's index stands for both.

    Parameters
    ----------
    clos : Clos
        The fabric.
    flows : ClosFlows
        What is sent.
    seed : int, default 0
        Of the hash.

    Returns
    -------
    int64 array, shape (flows,)
        Spines, -1 within a ToR.

    References
    ----------
    G. L. Steele, D. Lea and C. H. Flood, "Fast splittable pseudorandom number generators",
    OOPSLA 2014 (the finaliser).
    """
    index = np.arange(flows.count)
    source = index if flows.source_nic is None else flows.source_nic
    target = index if flows.target_nic is None else flows.target_nic
    state = np.full(flows.count, seed % 2**64, dtype=np.uint64)
    for part in (flows.source_tor, source, target):
        state += (part + 1).astype(np.uint64) * np.uint64(_MIX[2])
        state = (state ^ (state >> np.uint64(30))) * np.uint64(_MIX[0])
        state = (state ^ (state >> np.uint64(27))) * np.uint64(_MIX[1])
        state ^= state >> np.uint64(31)
    live = clos.live(flows.source_tor, flows.target_tor)
    ways = np.maximum(live.sum(axis=1), 1).astype(np.uint64)
    return _nth_live(live, (state % ways).astype(np.int64), flows)


def draw_random(clos: Clos, flows: ClosFlows, seed: int) -> Ints:
    """Draw every flow's spine at random among its live ones, as flowlet switching would."""
    live = clos.live(flows.source_tor, flows.target_tor)
    rng = np.random.default_rng(seed)
    pick = (rng.random(flows.count) * live.sum(axis=1)).astype(np.int64)
    return _nth_live(live, pick, flows)


def _nth_live(live: Flags, pick: Ints, flows: ClosFlows) -> Ints:
    reached = np.cumsum(live, axis=1, dtype=np.int32) > pick[:, None]
    return np.where(flows.crosses, np.argmax(reached, axis=1), -1).astype(np.int64)


def anneal_spines(clos: Clos, flows: ClosFlows, paths: ClosPaths, seed: int) -> SmallInts:
    """Anneal the map from destinations to spines for the least sum of (load / capacity)^4.

    Flows to one NIC whose candidates are all alike move together; without NIC numbers every
    flow moves alone. Starts from a random draw.

    Parameters
    ----------
    clos, flows, paths
        The fabric, what is sent and the candidates of `clos_paths`.
    seed : int
        Of start and proposals.

    Returns
    -------
    int32 array, shape (flows,)
        The best assignment seen.
    """
    from routing.clos.annealing_kernels import anneal_assignment
    from routing.clos.chase_kernels import seeded
    from routing.clos.place_kernels import add_loads

    way = draw_random(clos, flows, seed).astype(np.int32)
    moving = np.flatnonzero(flows.crosses)
    if moving.size == 0:
        return way
    unit = np.arange(moving.size)
    if flows.target_nic is not None:
        _, unit = np.unique(flows.target_nic[moving], return_inverse=True)
    first, member = parts(unit, int(unit.max()) + 1)
    load = np.zeros(paths.capacity.size)
    add_loads(paths, flows.weight, way, load)
    with np.errstate(divide="ignore"):
        inverse = 1.0 / paths.capacity
    anneal_assignment(
        STEPS_PER_FLOW * moving.size, HOT, COLD, first, moving[member].astype(np.int32),
        paths, flows.weight, inverse, load, way, seeded(seed),
    )  # fmt: skip
    return way
