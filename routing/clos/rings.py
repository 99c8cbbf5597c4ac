"""Rings found in flows, and which of them may exchange their routes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from routing.clos.fabric import IntArray
from routing.clos.flows import Flows


@dataclass(frozen=True, eq=False)
class Rings:
    """The rings of some flows.

    Flows of one job form a ring if each ends at the NIC where the next begins; a chain that is
    not closed (flows not seen yet) counts as one too. Two rings of a job whose flows pass the
    same ToRs in the same order are *alike*: they may exchange all of their spines, and no link
    carries more or less for it.

    Parameters
    ----------
    ring : int64 array, shape (flows,)
        Number of each flow's ring.
    count : int
        Number of rings.
    alike : tuple of int64 array, shape (rings of the class, flows of a ring)
        One array for each class of two rings or more: a row lists the flows of a ring, so that
        flows in one column pass the same ToRs.
    """

    ring: IntArray
    count: int
    alike: tuple[IntArray, ...]

    @cached_property
    def table(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """`alike` end to end: part of each class, ring numbers, part of each ring, flows."""
        none = np.zeros(0, dtype=np.int64)
        rings = np.concatenate([none, *(self.ring[rows[:, 0]] for rows in self.alike)])
        hops = [np.full(rows.shape[0], rows.shape[1]) for rows in self.alike]
        return (
            np.cumsum([0, *(rows.shape[0] for rows in self.alike)]),
            rings,
            np.cumsum(np.concatenate([[0], *hops])).astype(np.int64),
            np.concatenate([none, *(rows.ravel() for rows in self.alike)]),
        )


def find_rings(flows: Flows) -> Rings:
    """Return the rings of flows that have NICs.

    Parameters
    ----------
    flows : Flows
        With NICs; no two of one job from the same NIC.

    Returns
    -------
    Rings
    """
    assert flows.source_nic is not None and flows.target_nic is not None
    starts = {
        key: flow
        for flow, key in enumerate(zip(flows.job.tolist(), flows.source_nic.tolist(), strict=True))
    }
    after = [
        starts.get(key, -1)
        for key in zip(flows.job.tolist(), flows.target_nic.tolist(), strict=True)
    ]
    entered = [False] * flows.count
    for flow in after:
        if flow >= 0:
            entered[flow] = True
    ring = np.full(flows.count, -1, dtype=np.int64)
    members: list[list[int]] = []
    # Chains begin where nothing enters; what is left then are closed rings.
    order = sorted(range(flows.count), key=lambda flow: (entered[flow], flow))
    for first in order:
        if ring[first] >= 0:
            continue
        chain, flow = [], first
        while flow >= 0 and ring[flow] < 0:
            ring[flow] = len(members)
            chain.append(flow)
            flow = after[flow]
        members.append(chain)
    return Rings(ring, len(members), _classes(flows, members))


def _classes(flows: Flows, members: Sequence[list[int]]) -> tuple[IntArray, ...]:
    source, target = flows.source_tor.tolist(), flows.target_tor.tolist()
    job, size = flows.job.tolist(), flows.bytes_.tolist()
    classes: dict[tuple[object, ...], list[list[int]]] = {}
    for chain in members:
        hops = [(source[flow], target[flow], size[flow]) for flow in chain]
        turn = _least_turn(hops)
        key = (job[chain[0]], *hops[turn:], *hops[:turn])
        classes.setdefault(key, []).append(chain[turn:] + chain[:turn])
    return tuple(np.array(rows, dtype=np.int64) for rows in classes.values() if len(rows) > 1)


def _least_turn(hops: Sequence[tuple[int, int, float]]) -> int:
    """Return where a ring must be cut so that its hops come first in dictionary order."""
    least = min(hops)
    turns = [place for place, hop in enumerate(hops) if hop == least]
    if len(turns) == 1:
        return turns[0]
    return min(turns, key=lambda turn: [*hops[turn:], *hops[:turn]])
