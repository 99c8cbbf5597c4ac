"""Groups of arrays that kernels of routing take as one argument.

They lie in a module of kernels, without any, so that the cache of compiled code notices an edit.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from codesign_base.arrays import Floats, SmallInts, Words


class ClosPaths(NamedTuple):
    """Candidate paths of some flows.

    Parameters
    ----------
    capacity : float64 array, shape (links + 1,)
        In units of a NIC's rate, 0 for a failed link; the last is a stand-in for "no link" with
        infinite capacity.
    base : int32 array, shape (flows, slots)
        First link of each slot; the number of slots is a power of two.
    kind : int32 array, shape (flows,)
        Which row of `shift` holds.
    shift : int32 array, shape (kinds, slots, paths)
        What is added to the base.
    ways : int32 array, shape (kinds,)
        Number of candidate paths; 0 for flows that need no link.
    group : int32 array, shape (flows, 2)
        A set of links at the flow's source, and one at its target, of which every candidate
        uses exactly one (bounds and quick refusals rest on them).
    group_of_link : int32 array, shape (links + 1,)
        The set that a link belongs to, -1 for none.
    """

    capacity: Floats
    base: SmallInts
    kind: SmallInts
    shift: SmallInts
    ways: SmallInts
    group: SmallInts
    group_of_link: SmallInts

    @property
    def slots(self) -> int:
        """Most links of a path (a power of two)."""
        return int(self.base.shape[1])

    @property
    def groups(self) -> int:
        """Number of sets of links."""
        return int(self.group_of_link.max(initial=-1)) + 1

    def links(self, way: npt.ArrayLike) -> SmallInts:
        """Return the links of the chosen paths, shape (flows, slots); -1 chooses none."""
        chosen = np.asarray(way, dtype=np.int64)
        slots = np.arange(self.slots)
        found = self.base + self.shift[self.kind[:, None], slots, np.maximum(chosen, 0)[:, None]]
        return np.where((chosen < 0)[:, None], self.capacity.size - 1, found).astype(np.int32)


class Demand(NamedTuple):
    """What is to be routed: flows over candidate paths, and the jobs that they belong to.

    Parameters
    ----------
    paths : ClosPaths
    bits : int
        Logarithm of the number of slots of a path.
    weight, job : arrays, shape (flows,)
    job_first : int32 array, shape (jobs + 1,)
        Flows ``job_flow[job_first[j] : job_first[j + 1]]`` are those of job j.
    """

    paths: ClosPaths
    bits: int
    weight: Floats
    job: SmallInts
    job_first: SmallInts
    job_flow: SmallInts


class State(NamedTuple):
    """An assignment that may change.

    Node ``(flow << bits) + slot`` stands for a flow on the link of one slot of its path; the
    nodes of a link form a doubly linked list, so that moving a flow costs the same however many
    there are.

    Parameters
    ----------
    chosen : int32 array, shape (flows,)
        Path of each flow, -1 for none.
    at, after, before : int32 arrays, shape (flows * slots,)
        Link of each node, and its neighbours in the list of that link.
    head : int32 array, shape (links + 1,)
        First node of each link.
    load : float64 array, shape (links + 1,)
    speed : float64 array, shape (jobs,)
        Speeds under the assignment; while jobs are filled a negative one marks a job that rises.
    use, rising : float64 arrays, shape (links + 1,)
        Work space.
    open, listed : int32 arrays, shape (links + 1,)
        Work space: ``open`` is 0 on entry and return.
    """

    chosen: SmallInts
    at: SmallInts
    after: SmallInts
    before: SmallInts
    head: SmallInts
    load: Floats
    speed: Floats
    use: Floats
    rising: Floats
    open: SmallInts
    listed: SmallInts


class AssignmentSearch(NamedTuple):
    """What a search over assignments keeps besides the assignment.

    Parameters
    ----------
    limit : float64 array, shape (links + 1,)
        The load from which a link is overfull.
    place : int32 array, shape (links + 1,)
        Position of each overfull link among those listed; -1 on entry and return.
    room, thresholds, asked : float64 arrays
        Of `chase_kernels.room_of_groups`, and work space of the shape of ``room``.
    tabu : int32 array, shape (2, flows)
        The path that a flow left, and until when it does not return.
    log : int32 array, shape (2, most moves)
        Flows moved and the paths they left.
    random : uint64 array, shape (1,)
        Of `chase_kernels.draw`.
    spent : int32 array, shape (1,)
        Candidates looked at are added.
    """

    limit: Floats
    place: SmallInts
    room: Floats
    thresholds: Floats
    asked: Floats
    tabu: SmallInts
    log: SmallInts
    random: Words
    spent: SmallInts
