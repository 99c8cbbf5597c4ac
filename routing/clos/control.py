"""The control loop: what is seen in the network goes in, changes of routes come out."""

from dataclasses import dataclass
from time import perf_counter

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from codesign_base.arrays import Flags, Floats, Ints
from codesign_base.rows import starts
from routing.clos.assignment import Assignment
from routing.clos.fabric import Clos
from routing.clos.flow_keys import joined_flows, keys_of, with_own_weights
from routing.clos.flows import ClosFlows
from routing.clos.metric import evaluate
from routing.clos.placing import place_new
from routing.clos.rings import FlowRings, find_rings
from routing.clos.route_changes import RouteChanges
from routing.clos.routers import OBLIVIOUS, route

_PATIENCE = 3.0
"""A job is given up when it is silent for so many times its longest silence so far."""

_LEAST = 0.02
"""Rings whose work left differs by less do not exchange routes."""

HORIZON = 600.0
"""Seconds for which a job that never came back is waited for, and present traffic is expected
to last."""


@dataclass
class _Memory:
    """What is known of one job: when it was last seen, and its longest silence (s)."""

    seen: float
    silent: bool = False
    longest: float = 0.0


class Controller:
    """Keeps the routes of persistent flows near the optimum while jobs come, go and links fail.

    Call `observe` whenever flows were looked at, or the fabric changed. With prediction, flows
    that were seen keep their route and count as load while they wait at a barrier, and while
    their job computes: until the whole job has been silent for `_PATIENCE` times the longest
    silence after which it ever came back, or `HORIZON` seconds if it never did.

    Parameters
    ----------
    clos : Clos
        The fabric as it is now.
    method : str
        A router of `routing.clos.routers.ROUTERS`.
    predict : bool, optional
        False: only flows seen in flight count (what the paper's public simulator does). By
        default for ``"best"`` only: static routes that are chosen anew for what is in flight
        hurt other rings each time, where those for all known flows hurt the same ones.
    seed : int
        Of routers that draw random numbers.
    move_cost : float
        Seconds that a flow cannot send while it is moved. A better assignment that moves flows
        for which there is no need is taken only if, over `HORIZON` seconds, the mean slowdown
        of the jobs falls by more than the moves take, one after the other; rings exchange
        routes only where that ends the later of them sooner.
    by_ring : bool, optional
        Let the router treat every ring as a job of its own: the fewest rings then suffer where
        links must be shared, with the same rings at every ToR. By default for ``"best"``.
    rotate : bool, optional
        Whether `balance` exchanges routes among rings, so that all of them suffer a little
        instead of some all the time. By default for ``"best"`` with prediction.
    time_limit : float, optional
        Of one decision, for routers that search; see `routing.clos.routers.route`.

    Examples
    --------
    >>> from routing.clos.fabric import Clos
    >>> from routing.clos.flows import ClosFlows
    >>> controller = Controller(Clos.uniform(tors=2, spines=2))
    >>> flows = ClosFlows.of([0, 0], [1, 1], [0, 1], 1e9, source_nic=[0, 1], target_nic=[2, 3])
    >>> controller.observe(flows, time=0.0).spine.tolist()
    [0, 1]
    """

    def __init__(
        self,
        clos: Clos,
        method: str = "best",
        *,
        predict: bool | None = None,
        seed: int = 0,
        move_cost: float = 0.0,
        by_ring: bool | None = None,
        rotate: bool | None = None,
        time_limit: float | None = None,
    ) -> None:
        if not (np.isfinite(move_cost) and move_cost >= 0):
            raise InputError(f"move_cost is {move_cost}; give a number of at least 0")
        self.clos = clos
        self.method = method
        self.predict = method == "best" if predict is None else predict
        self.seed = seed
        self.move_cost = move_cost
        self.by_ring = method == "best" if by_ring is None else by_ring
        self.rotate = (method == "best" and self.predict) if rotate is None else rotate
        self.time_limit = time_limit
        self.time = float("-inf")
        self._keys = np.zeros(0, dtype=np.int64)  # ascending, so that flows are found by search
        self._flows = ClosFlows.of([], [], [], [], [], [])
        self._spine = np.zeros(0, dtype=np.int64)
        self._seen = np.zeros(0)
        self._memory: dict[int, _Memory] = {}
        self._undecided = False
        self._rings: FlowRings | None = None
        self._ring_speed = np.zeros(0)
        self._movers = np.zeros(0, dtype=np.int64)

    @property
    def flows(self) -> ClosFlows:
        """Flows that hold a route."""
        return self._flows

    @property
    def spine(self) -> Ints:
        """Spines of `flows`."""
        return self._spine

    def spines_of(self, flows: ClosFlows) -> Ints:
        """Return the spines of given flows, -1 for those without a route.

        Parameters
        ----------
        flows : ClosFlows
            With NICs.

        Returns
        -------
        int64 array, shape (flows,)
        """
        place = self.places_of(flows)
        return np.where(place >= 0, np.append(self._spine, -1)[place], -1)

    def forget(self, jobs: npt.ArrayLike) -> None:
        """Drop the routes of jobs that have ended, without waiting for their silence.

        Parameters
        ----------
        jobs : array_like of int
            Job numbers.
        """
        held = self._keys.size
        self._take(~np.isin(self._flows.job, np.asarray(jobs, dtype=np.int64)))
        self._undecided |= self._keys.size < held

    def observe(self, flows: ClosFlows, time: float, clos: Clos | None = None) -> RouteChanges:
        """Take note of what is in flight, and decide about routes.

        Parameters
        ----------
        flows : ClosFlows
            Flows in flight, or announced; with NICs, which with the job tell them apart.
        time : float
            Seconds of any clock; must not decrease.
        clos : Clos, optional
            The fabric, if it has changed.

        Returns
        -------
        RouteChanges
            Empty if the traffic and the fabric are as before.

        Raises
        ------
        InputError
            If flows have no NICs or do not fit the fabric, one occurs twice, or time decreases
            or is not finite. The controller is then as before the call.
        InfeasibleError
            If no spine is live for a flow. Traffic and fabric are noted, routes stay, and the
            next call decides anew.
        """
        began = perf_counter()
        # All is checked before anything is noted, so that a refused call changes nothing.
        if not np.isfinite(time):
            raise InputError(f"time is {time}; give a finite number of seconds")
        if time < self.time:
            raise InputError(f"time is {time} after {self.time}; observe in the order of time")
        keys = keys_of(flows)
        if keys.size != np.unique(keys).size:
            raise InputError("a flow of one job occurs twice between two NICs; give it once")
        flows.check_fits(self.clos if clos is None else clos)
        self.time = time
        if clos is not None and clos is not self.clos:
            self.clos, self._undecided = clos, True
        place, known = self._find(keys)
        self._seen[place[known]] = time
        self._note(flows.jobs, time)
        held = self._keys.size
        if self.predict:
            self._take(~self._overdue(time))
        else:
            self._take(np.isin(self._keys, keys))
        self._undecided |= self._keys.size < held
        added = self._add(flows.subset(~known), keys[~known], time)
        self._memory = {job: self._memory[job] for job in self._flows.jobs.tolist()}
        changed, moved = np.zeros(0, dtype=np.int64), 0
        # Stays set if no route exists, so that the next call asks the router again.
        self._undecided |= bool(added)
        decided = bool(self._keys.size and self._undecided)
        if decided:
            changed, moved = self._decide()
        self._undecided = False
        return RouteChanges(
            self._flows,
            self._spine.copy(),
            changed,
            moved,
            decided,
            perf_counter() - began,
        )

    def balance(self, left: Floats, floor: Floats | None = None) -> Ints:
        """Exchange routes among rings that are alike: those that lag get the fast ones.

        Call it when rings have ended a step. No link's load changes, so that no other job is
        hurt, and nothing moves while no ring is further than another.

        Parameters
        ----------
        left : float64 array, shape (flows,)
            For every flow of `flows`, how much of its AllReduce its ring has before it: 1 at
            the begin, 0 if it is over or the job computes.
        floor : float64 array, shape (flows,), optional
            Seconds of each flow's AllReduce in an empty network; needed if moves cost time:
            rings then exchange only if the later of two ends sooner by more than that.

        Returns
        -------
        int64 array
            Positions in `flows` of those that exchanged their spines, ascending.

        Raises
        ------
        InputError
            If moves cost time and the floor is not given.
        """
        if floor is None:
            if self.move_cost > 0:
                raise InputError(
                    f"move_cost is {self.move_cost} s and no floor is given; say how long each "
                    "flow's AllReduce takes in an empty network"
                )
            floor = np.ones(left.size)
        if not self.rotate or self._ring_speed.min(initial=1.0) >= 1.0:
            return np.zeros(0, dtype=np.int64)
        from routing.clos.rotation_kernels import rotate

        rings = self._rings
        assert rings is not None
        classes, names, begin, flows = rings.table
        if self._movers.size < 2 * flows.size:
            self._movers = np.empty(2 * flows.size, dtype=np.int64)
        count = rotate(
            classes, names, begin, flows, left, self._ring_speed, self._spine, _LEAST, floor,
            self.move_cost, self._movers,
        )  # fmt: skip
        return np.unique(self._movers[:count]) if count else self._movers[:0]

    def places_of(self, flows: ClosFlows) -> Ints:
        """Return the positions of given flows in `flows`, -1 for those not known."""
        place, known = self._find(keys_of(flows))
        return np.where(known, place, -1)

    def _decide(self) -> tuple[Ints, int]:
        """Choose new spines; return the flows that changed and how many of them moved."""
        old = self._spine
        previous = Assignment(old) if (old >= 0).any() else None
        new = self._routed(previous)
        fresh = self._flows.crosses & (old < 0)
        held = self._flows.crosses & ~fresh
        if self.move_cost > 0 and held.any():
            new = self._worth_it(old, new, held)
        changed = np.flatnonzero(new != old).astype(np.int64)
        self._spine = new
        if self.rotate:
            held_now = evaluate(self.clos, self._as_rings(), Assignment(new))
            self._ring_speed = held_now.speed
        return changed, int((held & (new != old)).sum())

    def _routed(self, previous: Assignment | None) -> Ints:
        flows, order = self._flows, np.arange(self._flows.count)
        if self.by_ring:
            flows, order = self._as_rings(), self._interleaved()
        if previous is not None:
            previous = Assignment(previous.spine[order])
        found = route(
            self.clos,
            flows.subset(order),
            self.method,
            seed=self.seed,
            previous=previous,
            time_limit=self.time_limit,
        )
        spine = np.empty(flows.count, dtype=np.int64)
        spine[order] = found.spine
        return spine

    def _interleaved(self) -> Ints:
        """Return the flows ring by ring, the rings of all jobs in turn.

        Routers that colour let the last flows of a ToR share links; so each job gives its part.
        """
        rings = self._rings
        assert rings is not None
        first = np.full(rings.count, self._flows.count, dtype=np.int64)
        np.minimum.at(first, rings.ring, np.arange(self._flows.count))
        job = self._flows.job_index[first]
        size = np.bincount(job)
        rank = np.empty(rings.count)
        by_job = np.lexsort((first, job))
        begin = starts(size)
        rank[by_job] = (np.arange(rings.count) - begin[job[by_job]] + 0.5) / size[job[by_job]]
        return np.lexsort((rings.ring, job[rings.ring], rank[rings.ring]))

    def _as_rings(self) -> ClosFlows:
        """Return the known flows with their rings for jobs."""
        if self._rings is None:
            self._rings = find_rings(self._flows)
        flows = self._flows
        return ClosFlows.of(flows.source_tor, flows.target_tor, self._rings.ring, flows.bytes_)

    def _worth_it(self, old: Ints, new: Ints, held: Flags) -> Ints:
        """Return the new spines, or the old ones where moving costs more than it gains."""
        kept = old
        if self.method in OBLIVIOUS:  # also where new flows go is not this controller's choice
            kept = np.where(held, old, new)
        least = place_new(self.clos, self._flows, kept)
        saved = HORIZON * (self._mean_slowdown(least) - self._mean_slowdown(new))
        extra = int((held & (new != old)).sum()) - int((held & (least != old)).sum())
        return new if saved > self.move_cost * extra else least

    def _mean_slowdown(self, spine: Ints) -> float:
        speed: Floats = evaluate(self.clos, self._flows, Assignment(spine)).speed
        return float((1.0 / speed).mean())

    def _find(self, keys: Ints) -> tuple[Ints, Flags]:
        """Return where keys are in the table, and whether they do."""
        place = np.searchsorted(self._keys, keys).astype(np.int64)
        known = place < self._keys.size
        known[known] = self._keys[place[known]] == keys[known]
        return place, known

    def _note(self, jobs: Ints, time: float) -> None:
        """Note which known jobs are seen, and after what silence those come back that were not."""
        here = set(jobs.tolist())
        for job, memory in self._memory.items():
            if job not in here:
                memory.silent = True
                continue
            if memory.silent:
                memory.longest = max(memory.longest, time - memory.seen)
            memory.silent, memory.seen = False, time
        for job in here:
            self._memory.setdefault(job, _Memory(time))

    def _overdue(self, time: float) -> Flags:
        """Return the flows of jobs that are silent for too long, or that their jobs gave up."""
        late = []
        for job in self._flows.jobs.tolist():  # those forgotten are not among them
            memory = self._memory[job]
            allowed = _PATIENCE * memory.longest if memory.longest > 0 else HORIZON
            late.append(time - memory.seen > allowed)
        gone: Flags = np.array(late, dtype=bool)[self._flows.job_index]
        return gone | (time - self._seen > HORIZON)

    def _take(self, mask: Flags) -> None:
        """Keep only some of the known flows."""
        if mask.all():
            return
        self._flows = with_own_weights(self._flows.subset(mask))
        self._rings = None
        self._keys, self._spine = self._keys[mask], self._spine[mask]
        self._seen = self._seen[mask]

    def _add(self, flows: ClosFlows, keys: Ints, time: float) -> int:
        """Add unknown flows without spines; return how many."""
        if keys.size == 0:
            return 0
        joined = np.concatenate((self._keys, keys))
        order = np.argsort(joined, kind="stable")
        self._keys = joined[order]
        spine = np.full(keys.size, -1, dtype=np.int64)
        self._spine = np.concatenate((self._spine, spine))[order]
        self._seen = np.concatenate((self._seen, np.full(keys.size, time)))[order]
        self._flows = joined_flows(self._flows, flows, order)
        self._rings = None
        return int(keys.size)
