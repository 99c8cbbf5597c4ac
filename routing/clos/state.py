"""An assignment under improvement: the arrays that the compiled search works in."""

import numpy as np

from codesign_base.arrays import Floats, SmallInts
from routing.clos.arrays_kernels import ClosPaths, Demand, State
from routing.clos.chase_kernels import seeded
from routing.clos.exact_kernels import branch_and_bound
from routing.clos.flows import ClosFlows
from routing.clos.search_kernels import improve
from routing.clos.state_kernels import build_state


class AssignmentState:
    """Work space of one set of flows, allocated once and used for any number of starts.

    Parameters
    ----------
    paths : ClosPaths
        Candidate paths.
    flows : ClosFlows
        What is sent.
    seed : int
        Of the search's random numbers.
    """

    def __init__(self, paths: ClosPaths, flows: ClosFlows, seed: int = 0) -> None:
        jobs, nodes, links = flows.jobs.size, paths.base.size, paths.capacity.size
        job = flows.job_index.astype(np.int32)
        bits = paths.slots.bit_length() - 1
        self.demand = Demand(paths, bits, flows.weight, job, *flows.by_job)
        at, after, before = np.empty((3, nodes), dtype=np.int32)
        open_, head, listed = np.zeros((3, links), dtype=np.int32)
        load, use, rising = np.empty((3, links))
        self.state = State(
            np.empty_like(job), at, after, before, head, load, np.empty(jobs), use, rising,
            open_, listed,
        )  # fmt: skip
        self.random = seeded(seed)

    @property
    def chosen(self) -> SmallInts:
        """Path of each flow."""
        return self.state.chosen

    @property
    def speed(self) -> Floats:
        """Speed of each job."""
        return self.state.speed

    @property
    def max_load(self) -> float:
        """Largest load of a link over its capacity; infinite on a failed one."""
        room, load = self.demand.paths.capacity[:-1], self.state.load[:-1]
        ratio = np.where(load > 0, np.inf, 0.0)
        np.divide(load, room, out=ratio, where=room > 0)
        return float(ratio.max(initial=0.0))

    def set(self, way: SmallInts) -> None:
        """Take over an assignment and compute the jobs' speeds."""
        build_state(way, self.demand, self.state)

    def improve(self, budget: int, effort: int, kicks: int = 0) -> None:
        """Search from here, looking at about so many candidates in all and in one attempt."""
        improve(budget, effort, kicks, self.demand, self.state, self.random)

    def prove(self, way: SmallInts, most_nodes: int) -> tuple[SmallInts, bool]:
        """Return the lexicographically best assignment, and whether that was proved.

        ``way`` is a known assignment, returned if nothing better is found within the nodes.
        """
        self.set(way)
        best = np.sort(self.speed)
        found = way.copy()
        paths = self.demand.paths
        moving = np.flatnonzero(paths.ways[paths.kind] > 0)
        order = moving[np.argsort(-self.demand.weight[moving], kind="stable")].astype(np.int32)
        self.set(np.full_like(way, -1))
        proved = branch_and_bound(order, most_nodes, self.demand, self.state, found, best)
        self.set(found)
        return found, proved
