"""Rings found in flows, and which of them may exchange their routes."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from codesign_base.arrays import Ints
from codesign_base.rows import starts
from routing.clos.flows import ClosFlows


@dataclass(frozen=True, eq=False)
class FlowRings:
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

    ring: Ints
    count: int
    alike: tuple[Ints, ...]

    @cached_property
    def table(self) -> tuple[Ints, Ints, Ints, Ints]:
        """`alike` end to end: part of each class, ring numbers, part of each ring, flows."""
        none = np.zeros(0, dtype=np.int64)
        rings = np.concatenate([none, *(self.ring[rows[:, 0]] for rows in self.alike)])
        hops = [np.full(rows.shape[0], rows.shape[1]) for rows in self.alike]
        return (
            starts([rows.shape[0] for rows in self.alike]),
            rings,
            starts(np.concatenate([none, *hops])),
            np.concatenate([none, *(rows.ravel() for rows in self.alike)]),
        )


def find_rings(flows: ClosFlows) -> FlowRings:
    """Return the rings of flows that have NICs.

    Parameters
    ----------
    flows : ClosFlows
        With NICs; no two of one job from the same NIC.

    Returns
    -------
    FlowRings
    """
    from routing.clos.rotation_kernels import turn_rings, walk

    assert flows.source_nic is not None and flows.target_nic is not None
    count = flows.count
    # Flows of one job from one NIC to the next: an order by (job, source NIC) finds followers.
    wide = int(max(flows.source_nic.max(initial=0), flows.target_nic.max(initial=0))) + 1
    starts = flows.job_index * wide + flows.source_nic
    ends = flows.job_index * wide + flows.target_nic
    order = np.argsort(starts, kind="stable")
    place = np.minimum(np.searchsorted(starts[order], ends), max(count - 1, 0))
    after = np.full(count, -1, dtype=np.int64)
    found = starts[order][place] == ends if count else np.zeros(0, dtype=bool)
    after[found] = order[place[found]]
    entered = np.bincount(after[found], minlength=count).astype(np.int64)
    ring = np.full(count, -1, dtype=np.int64)
    listed = np.empty(count, dtype=np.int64)
    begin = np.empty(count + 1, dtype=np.int64)
    rings = int(walk(after, entered, ring, listed, begin))
    begin = begin[: rings + 1]
    tors = int(max(flows.source_tor.max(initial=0), flows.target_tor.max(initial=0))) + 1
    _, size = np.unique(flows.bytes_, return_inverse=True)
    code = ((flows.job_index * (count + 1) + size) * tors + flows.source_tor) * tors
    code += flows.target_tor
    turn_rings(listed, begin, code)
    return FlowRings(ring, rings, _classes(listed, begin, code))


def _classes(listed: Ints, begin: Ints, code: Ints) -> tuple[Ints, ...]:
    """Return rings whose hops have equal codes, as arrays of their flows."""
    classes: dict[bytes, list[Ints]] = {}
    codes, bounds = code[listed], begin.tolist()
    for first, last in pairwise(bounds):
        classes.setdefault(codes[first:last].tobytes(), []).append(listed[first:last])
    return tuple(np.stack(rows) for rows in classes.values() if len(rows) > 1)
