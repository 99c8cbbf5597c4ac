"""An assignment under improvement: the arrays that the compiled search works in."""

import numpy as np

from routing.clos.chase_kernels import REFUSALS, SLACK, room_of_groups, seeded
from routing.clos.exact_kernels import branch_and_bound
from routing.clos.fabric import FloatArray, IntArray
from routing.clos.paths import Paths, SmallInts
from routing.clos.search_kernels import improve
from routing.clos.state_kernels import build_state, fill_jobs, group_jobs


class SearchState:
    """Work space of one set of flows, allocated once and used for any number of starts.

    Parameters
    ----------
    paths : Paths
        Candidate paths.
    weight : float64 array, shape (flows,)
    job_index : int array, shape (flows,)
        Jobs, numbered densely.
    jobs : int
        How many there are.
    seed : int
        Of the search's random numbers.
    """

    def __init__(
        self, paths: Paths, weight: FloatArray, job_index: IntArray, jobs: int, seed: int = 0
    ) -> None:
        flows, slots = paths.base.shape
        links = paths.capacity.size
        self.paths = paths
        self.bits = slots.bit_length() - 1
        self.weight = weight
        self.job = job_index.astype(np.int32)
        self.job_first = np.empty(jobs + 1, dtype=np.int32)
        self.job_flow = np.empty(flows, dtype=np.int32)
        group_jobs(self.job, self.job_first, self.job_flow)
        self.thresholds = np.zeros(REFUSALS)
        self.room = room_of_groups(
            paths.capacity, paths.group_of_link, paths.groups, self.thresholds
        )
        self.asked = np.empty_like(self.room)
        self.chosen = np.empty(flows, dtype=np.int32)
        self.at = np.empty(flows * slots, dtype=np.int32)
        self.head = np.empty(links, dtype=np.int32)
        self.after = np.empty(flows * slots, dtype=np.int32)
        self.before = np.empty(flows * slots, dtype=np.int32)
        self.load = np.empty(links)
        self.speed = np.empty(jobs)
        self.real = np.empty((2, links))
        self.whole = np.zeros((3, links), dtype=np.int32)
        self.whole[2] = -1
        self.limit = paths.capacity * (1.0 + SLACK)
        self.tabu = np.empty((2, flows), dtype=np.int32)
        self.log = np.empty((2, 4 * flows + 1000), dtype=np.int32)
        self.spent = np.zeros(1, dtype=np.int32)
        self.random = seeded(seed)

    def set(self, way: SmallInts) -> None:
        """Take over an assignment and compute the jobs' speeds."""
        paths = self.paths
        build_state(
            self.bits, way, paths.base, paths.kind, paths.shift, self.weight, self.chosen,
            self.at, self.head, self.after, self.before, self.load,
        )  # fmt: skip
        fill_jobs(
            self.bits, self.weight, self.job, self.job_first, self.job_flow, self.at, self.head,
            self.after, self.load, self.paths.capacity, self.speed, self.real, self.whole,
        )  # fmt: skip

    def improve(self, budget: int, effort: int, kicks: int = 0) -> None:
        """Search from here, looking at about so many candidates in all and in one attempt."""
        paths = self.paths
        self.spent[0] = 0
        improve(
            budget, effort, kicks, self.bits, paths.base, paths.kind, paths.shift, paths.ways,
            self.weight, self.job, self.job_first, self.job_flow, paths.capacity, paths.group,
            self.room, self.thresholds, self.asked, self.chosen, self.at, self.head, self.after,
            self.before, self.load, self.speed, self.real, self.whole, self.limit, self.tabu,
            self.log, self.random, self.spent,
        )  # fmt: skip

    def prove(self, way: SmallInts, most_nodes: int) -> tuple[SmallInts, bool]:
        """Return the lexicographically best assignment, and whether that was proved.

        ``way`` is a known assignment, returned if nothing better is found within the nodes.
        """
        self.set(way)
        best = np.sort(self.speed)
        found = way.copy()
        moving = np.flatnonzero(self.paths.ways[self.paths.kind] > 0)
        order = moving[np.argsort(-self.weight[moving], kind="stable")].astype(np.int32)
        self.set(np.full_like(way, -1))
        paths = self.paths
        proved = branch_and_bound(
            order, most_nodes, self.bits, paths.base, paths.kind, paths.shift, paths.ways,
            self.weight, self.job, self.job_first, self.job_flow, paths.capacity, self.chosen,
            self.at, self.head, self.after, self.before, self.load, self.speed, self.real,
            self.whole, found, best,
        )  # fmt: skip
        self.set(found)
        return found, proved
