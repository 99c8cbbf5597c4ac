"""Routes of a set of flows that changes a little at a time."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from codesign_base import InfeasibleError, InputError
from routing.clos.best import ALL, FLOOR_CHANGE, PER_CHANGE, best_spines, effort_of
from routing.clos.fabric import Clos, FloatArray
from routing.clos.flows import Flows
from routing.clos.metric import Efficiency, compare, efficiency_of
from routing.clos.paths import SmallInts, clos_paths
from routing.clos.routers import Assignment, check_connected
from routing.clos.state import SearchState

RECOLOR = 20  # a change of at least one flow in so many may also recolour the others


class Reoptimizer:
    """Holds an assignment and its loads; a change of k flows costs work in proportion to k.

    Only the changed flows are taken off and placed, and the search that follows is bounded in
    proportion to their number; what remains of the size of the whole are linear passes over
    loads (about 1 ns a flow or link each).

    Parameters
    ----------
    clos : Clos
        The fabric.
    flows : Flows
        All flows. A flow whose ToRs are the same is a vacant place: `change` may give it to a
        job that arrives, and makes the flows of one that leaves vacant.
    previous : Assignment, optional
        What holds now.
    seed : int, default 0
        Of the search.
    """

    def __init__(
        self, clos: Clos, flows: Flows, *, previous: Assignment | None = None, seed: int = 0
    ) -> None:
        flows.check_fits(clos)
        check_connected(clos, flows)
        self._clos = clos
        self._flows = flows
        self._source = flows.source_tor.copy()
        self._target = flows.target_tor.copy()
        self._fresh = True  # whether _flows shows the ToRs of now
        paths = clos_paths(clos, flows)
        if paths.ways.size == 1:  # so that flows can become vacant
            paths = replace(
                paths,
                shift=np.concatenate((paths.shift, paths.shift)),
                ways=np.array([clos.spines, 0], dtype=np.int32),
            )
        with np.errstate(divide="ignore"):
            self._inverse = 1.0 / paths.capacity
        self._whole = clos.core_failures_only and clos.live_spines.size > 0
        self._live = (np.ascontiguousarray(clos.up > 0), np.ascontiguousarray(clos.down.T > 0))
        self._ways = [np.maximum(side.sum(axis=1), 1) for side in self._live]
        self._alike = flows.count == 0 or bool(flows.weight.min() == flows.weight.max())
        jobs = flows.jobs.size
        self._state = SearchState(paths, flows.weight, flows.job_index, jobs, seed)
        self._state.set(best_spines(clos, flows, seed, previous).astype(np.int32))

    @property
    def flows(self) -> Flows:
        """The flows as they are now."""
        if not self._fresh:
            self._flows = replace(self._flows, source_tor=self._source, target_tor=self._target)
            self._fresh = True
        return self._flows

    @property
    def assignment(self) -> Assignment:
        """The spines as they are now."""
        return Assignment(self._state.chosen.astype(np.int64), "best")

    @property
    def efficiency(self) -> Efficiency:
        """The jobs' speeds as they are now."""
        state = self._state
        return efficiency_of(state.speed.copy(), state.load, state.paths, self.flows)

    def change(
        self, changed: npt.ArrayLike, source_tor: npt.ArrayLike, target_tor: npt.ArrayLike
    ) -> SmallInts:
        """Give some flows other ToRs and route anew.

        Jobs and weights stay what they are.

        Parameters
        ----------
        changed : array_like of int, shape (k,)
            Flows, each once.
        source_tor, target_tor : array_like of int, shape (k,)
            Their ToRs from now on; the same one twice for none.

        Returns
        -------
        int32 array
            Flows whose spine is another than before, ascending.

        Raises
        ------
        InputError
            If a flow or ToR does not exist, or a flow stands twice.
        InfeasibleError
            If no spine is live between the ToRs of a flow.
        """
        from routing.clos.place_kernels import replace_flows

        flow = np.asarray(changed, dtype=np.int32)
        source = np.asarray(source_tor, dtype=np.int64)
        target = np.asarray(target_tor, dtype=np.int64)
        self._check(flow, source, target)
        state, clos, paths = self._state, self._clos, self._state.paths
        before, wanted = state.chosen.copy(), state.speed.copy()
        self._source[flow], self._target[flow] = source, target
        self._fresh = False
        replace_flows(
            flow, source, target, clos.spines, clos.tors, state.bits, paths.base, paths.kind,
            paths.shift, paths.ways, paths.group, state.weight, state.job, wanted, state.real[0],
            self._inverse, state.chosen, state.at, state.head, state.after, state.before,
            state.load,
        )  # fmt: skip
        state.fill()
        if state.speed.min(initial=1.0) < ALL:
            self._search(flow, wanted)
        return np.flatnonzero(state.chosen != before).astype(np.int32)

    def _search(self, flow: SmallInts, wanted: FloatArray) -> None:
        """Go back to the wanted speeds, as far as they can be found."""
        state = self._state
        budget, effort = FLOOR_CHANGE + PER_CHANGE * flow.size, effort_of(flow.size)
        many = self._alike and flow.size * RECOLOR >= state.weight.size
        # Chains are exact where all can be uncongested; else they ignore whose flows meet.
        uncongested = wanted.min() >= ALL
        if many and uncongested:
            self._recolor(flow)
        if state.speed.min() < ALL:
            state.settle(wanted, flow, effort, budget)
        if many and not uncongested and self._recolor(flow):
            state.improve(budget, effort)

    def _recolor(self, flow: SmallInts) -> bool:
        """Colour the changed flows into the others' spines; say whether that was better."""
        from routing.clos.coloring_kernels import color_edges

        state = self._state
        moving = np.flatnonzero(self._source != self._target)
        most = 1
        for end, live in ((self._source, self._ways[0]), (self._target, self._ways[1])):
            degree = np.bincount(end[moving], minlength=self._clos.tors)
            most = max(most, int((-(-degree // live)).max()))
        if state.speed.min() * most >= ALL:
            return False  # colouring would give the slowest job no more
        colour = state.chosen.copy()
        colour[flow] = -1
        if moving.size < colour.size:
            found = colour[moving]
            missing = color_edges(self._source[moving], self._target[moving], *self._live, found)
            colour = np.full_like(colour, -1)
            colour[moving] = found
        else:
            missing = color_edges(self._source, self._target, *self._live, colour)
        if missing:
            return False
        placed, vector = state.chosen.copy(), np.sort(state.speed)
        state.set(colour)
        better = compare(np.sort(state.speed), vector) > 0
        if not better:
            state.set(placed)
        return better

    def _check(
        self, flow: SmallInts, source: npt.NDArray[np.int64], target: npt.NDArray[np.int64]
    ) -> None:
        if not flow.shape == source.shape == target.shape or flow.ndim != 1:
            raise InputError(
                f"{flow.size} changed flows, {source.size} sources and {target.size} targets; "
                "give one of each a flow"
            )
        if flow.size == 0:
            return
        count, tors = self._source.size, self._clos.tors
        if flow.min() < 0 or flow.max() >= count:
            raise InputError(f"a changed flow lies outside 0..{count - 1}; name existing flows")
        if np.bincount(flow).max() > 1:
            raise InputError(f"flow {np.bincount(flow).argmax()} stands twice; name it once")
        if min(source.min(), target.min()) < 0 or max(source.max(), target.max()) >= tors:
            raise InputError(f"a ToR of the changed flows lies outside 0..{tors - 1}")
        if self._whole:
            return
        shared = (self._live[0][source] & self._live[1][target]).any(axis=1)
        cut = ~shared & (source != target)
        if cut.any():
            i = int(np.flatnonzero(cut)[0])
            raise InfeasibleError(
                f"flow {flow[i]} cannot go from ToR {source[i]} to ToR {target[i]}: no spine has "
                "live links to both"
            )
