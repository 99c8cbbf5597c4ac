"""Barrier-synchronised ring AllReduces on a Clos fabric, event by event, at max-min fair rates."""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from codesign_base import InfeasibleError, InputError
from routing.clos.epoch_times import EpochTimes
from routing.clos.fabric import BoolArray, Clos, FloatArray, IntArray
from routing.clos.flows import Flows
from routing.clos.jobs import RingJob, flows_of

NIC_RATE = 100e9 / 8
"""Bytes per second of a NIC of 100 Gbps, as in the paper's experiments."""

MOST_TIMES = 2**28
"""Times of epochs and flows that a run may keep (2 GiB)."""

RESOLUTION = 1e-4
"""The clock must tell apart this share of the shortest AllReduce at the end of a run."""


class Stop(IntEnum):
    """Why `Simulation.run` returned."""

    TIME = 0
    """The given time is reached."""
    STARTED = 1
    """A job has just begun an AllReduce."""
    LEFT = 2
    """A job has just ended its last epoch."""
    FINISHED = 3
    """All jobs have ended."""
    STEPPED = 5
    """A ring of a job that shares links has just ended a step."""


class Simulation:
    """Rings that send over the routes they are given, until they have done their epochs.

    Flows of one instant share links max-min fairly; a flow is held back by its NICs too. Links
    that are full of capacity for all of their flows never hold back and cost nothing.

    Parameters
    ----------
    clos : Clos
        Links and their capacities in NIC rates.
    jobs : sequence of RingJob
    epochs : int or sequence of int
        AllReduces of each job, at least 1.
    nic_rate : float
        Bytes per second of a NIC.
    record_flows : bool
        Keep the completion time of every flow.

    Raises
    ------
    InputError
        If there is no job, the rate is not positive, a number of epochs is below 1, or the run
        is too long to be kept or to be timed.
    """

    def __init__(
        self,
        clos: Clos,
        jobs: Sequence[RingJob],
        epochs: int | Sequence[int],
        nic_rate: float = NIC_RATE,
        record_flows: bool = False,
    ) -> None:
        if not jobs:
            raise InputError("there are no jobs to simulate; give at least one")
        if not (np.isfinite(nic_rate) and nic_rate > 0):
            raise InputError(f"nic_rate is {nic_rate}; give a positive number of bytes/s")
        count = [epochs] * len(jobs) if isinstance(epochs, int) else list(epochs)
        if len(count) != len(jobs) or min(count) < 1:
            raise InputError(f"epochs is {epochs}; give one or more for each of {len(jobs)} jobs")
        sizes = [n * job.steps * job.flows for n, job in zip(count, jobs, strict=True)]
        _check_length(jobs, count, nic_rate, sum(sizes) if record_flows else 0)
        from routing.clos import levels_kernels as table
        from routing.clos import simulate_kernels as k

        self.jobs = tuple(jobs)
        self.clos = clos
        self.flows: Flows = flows_of(clos, jobs)
        self.nic_rate = nic_rate
        self._clock = np.zeros(1)
        rings = np.array([job.rings for job in jobs])
        last = np.cumsum(rings)
        flows = self.flows.count
        self._job = np.zeros((9, len(jobs)), dtype=np.int64)
        self._job[k.STEPS] = [job.steps for job in jobs]
        self._job[k.EPOCHS] = count
        self._job[k.RING_0], self._job[k.RING_1] = last - rings, last
        self._job[k.FCT_0] = np.cumsum([0, *sizes])[:-1]
        self._times = np.array(
            [[job.start_time for job in jobs], [job.compute_time for job in jobs]], dtype=np.float64
        )
        size = np.repeat([job.replicas for job in jobs], rings)
        self._ring = np.zeros((5, int(rings.sum())), dtype=np.int64)
        self._ring[k.OWNER] = np.repeat(np.arange(len(jobs)), rings)
        self._ring[k.FLOW_1] = np.cumsum(size)
        self._ring[k.FLOW_0] = self._ring[k.FLOW_1] - size
        self._flow = np.zeros((7, flows))
        self._flow[table.SIZE] = self.flows.bytes_
        self._flow[table.CAP] = nic_rate
        self._mark = np.zeros((3, flows), dtype=np.int64)
        self._mark[table.PLACE] = -1
        self._mark[table.RING] = np.repeat(np.arange(self._ring.shape[1]), size)
        nics = clos.tors * clos.nics_per_tor
        names = 2 * clos.tors * clos.spines + 2 * nics
        self._links = np.full((flows, table.SLOTS), -1, dtype=np.int32)
        self._link = np.full((2, names), np.inf)
        self._begin = np.zeros(names + 1, dtype=np.int64)
        self._members = np.zeros(table.SLOTS * flows, dtype=np.int32)
        self._heap = np.zeros(flows, dtype=np.int64)
        self._heaped = np.zeros(1, dtype=np.int64)
        self._starts = np.full((len(jobs), max(count)), np.nan)
        self._ends = np.full((len(jobs), max(count)), np.nan)
        self._fct = np.full(sum(sizes) if record_flows else 0, np.nan)
        # What `advance` looks at first: links and flows that a change of routes concerns.
        self._queue = np.zeros(names + 1, dtype=np.int64)
        self._queued = np.zeros(names, dtype=np.bool_)
        self._news = np.zeros(flows, dtype=np.int64)
        self._pending = np.zeros(2, dtype=np.int64)

    @property
    def time(self) -> float:
        """Seconds simulated."""
        return float(self._clock[0])

    @property
    def present(self) -> BoolArray:
        """Jobs that have arrived and not left, shape (jobs,)."""
        from routing.clos import simulate_kernels as k

        arrived = ~np.isnan(self._starts[:, 0])
        here: BoolArray = arrived & (self._job[k.PHASE] != k.GONE)
        return here

    @property
    def finished(self) -> BoolArray:
        """Jobs that have ended their last epoch, shape (jobs,)."""
        from routing.clos import simulate_kernels as k

        over: BoolArray = self._job[k.PHASE] == k.GONE
        return over

    @property
    def in_flight(self) -> BoolArray:
        """Flows that are sending now, shape (flows,)."""
        from routing.clos import levels_kernels as table

        sending: BoolArray = self._mark[table.PLACE] >= 0
        return sending

    @property
    def unfinished(self) -> BoolArray:
        """Flows of rings whose AllReduce is not over: sending or waiting at a barrier."""
        from routing.clos import levels_kernels as table
        from routing.clos import simulate_kernels as k

        owner = self._ring[k.OWNER]
        sending = self._job[k.PHASE][owner] == k.SENDING
        busy: BoolArray = sending & (self._ring[k.STEP] < self._job[k.STEPS][owner])
        found: BoolArray = busy[self._mark[table.RING]]
        return found

    def work_left(self) -> FloatArray:
        """Return how much of its AllReduce each flow's ring has before it, shape (flows,).

        1 at the begin, 0 after the end and while the job computes; a step is over with its last
        flow.
        """
        from routing.clos import simulate_kernels as k

        return k.work_left(self.time, self._job, self._ring, self._flow, self._mark)

    def links_of(self, clos: Clos, spine: IntArray, chosen: IntArray) -> npt.NDArray[np.int32]:
        """Return the links of chosen flows: NIC out, up, down, NIC in; -1 where there is none.

        Parameters
        ----------
        clos : Clos
        spine : int64 array, shape (flows,)
            Spines of all flows; -1 for none.
        chosen : int64 array
            Flows.

        Returns
        -------
        int32 array, shape (chosen flows, 4)
            Links of the fabric as `Clos` numbers them, then every NIC out, then every NIC in.
        """
        flows = self.flows
        assert flows.source_nic is not None and flows.target_nic is not None
        fabric = clos.tors * clos.spines
        at = spine[chosen]
        over = flows.crosses[chosen] & (at >= 0)
        up = flows.source_tor[chosen] * clos.spines + at
        down = fabric + flows.target_tor[chosen] * clos.spines + at
        wanted = np.empty((chosen.size, 4), dtype=np.int32)
        wanted[:, 0] = 2 * fabric + flows.source_nic[chosen]
        wanted[:, 1] = np.where(over, up, -1)
        wanted[:, 2] = np.where(over, down, -1)
        wanted[:, 3] = 2 * fabric + clos.tors * clos.nics_per_tor + flows.target_nic[chosen]
        return wanted

    def exchange(self, movers: IntArray, spine: IntArray) -> None:
        """Let flows take over each other's spines; no link gets more or fewer flows.

        Parameters
        ----------
        movers : int64 array
            The flows that move.
        spine : int64 array, shape (flows,)
            Spines of all flows.
        """
        from routing.clos import simulate_kernels as k

        wanted = self.links_of(self.clos, spine, movers)
        wanted[(self._begin[wanted + 1] == self._begin[wanted]) | (wanted < 0)] = -1
        k.exchange(
            movers, wanted, self._mark, self._links, self._begin, self._members,
            self._queue, self._queued, self._news, self._pending,
        )  # fmt: skip

    def set_routes(self, clos: Clos, spine: npt.ArrayLike, present: npt.ArrayLike) -> None:
        """Send from now on over these spines; what was sent stays sent.

        Parameters
        ----------
        clos : Clos
            The fabric as it is now; of the same size.
        spine : array_like of int, shape (flows,)
            -1 for flows within a ToR, and for those of jobs that are not there.
        present : array_like of bool, shape (jobs,)
            Jobs that are there; others may not send before they are given routes.

        Raises
        ------
        InputError
            If a flow of a present job has no spine.
        """
        from routing.clos import levels_kernels as table
        from routing.clos import simulate_kernels as k

        here = np.asarray(present, dtype=bool)[self.flows.job]
        chosen = np.asarray(spine, dtype=np.int64)
        missing = here & self.flows.crosses & ((chosen < 0) | (chosen >= clos.spines))
        if missing.any():
            flow = int(np.flatnonzero(missing)[0])
            raise InputError(f"flow {flow} has no spine; give one of 0..{clos.spines - 1}")
        wanted = self.links_of(clos, chosen, np.arange(self.flows.count))
        self._link[table.ROOM] = np.inf
        fabric = 2 * clos.tors * clos.spines
        self._link[table.ROOM, :fabric] = clos.capacity * self.nic_rate
        self._link[table.ROOM, fabric:] = self.nic_rate
        self.clos = clos
        k.relink(
            wanted, here, self._flow, self._mark, self._links, self._link, self._begin,
            self._members, self._queue, self._queued, self._news, self._pending,
        )  # fmt: skip
        binds = (self._links >= 0).any(axis=1)
        self._job[k.WATCH] = np.bincount(self.flows.job, binds, len(self.jobs)) > 0

    def run(self, until: float = float("inf"), *, pause: bool = False) -> Stop:
        """Simulate until a time, or until a job leaves or all have ended.

        Parameters
        ----------
        until : float
            Seconds; events at this very time are included.
        pause : bool
            Stop also when a job has just begun an AllReduce, before it has sent anything, and
            when rings of jobs that share links have just ended a step.

        Returns
        -------
        Stop

        Raises
        ------
        InfeasibleError
            If flows are left that can never end (their link has no capacity).
        """
        from routing.clos import simulate_kernels as k

        reason = k.advance(
            self._clock, until, pause, self._job, self._times, self._ring, self._flow,
            self._mark, self._links, self._link, self._begin, self._members, self._heap,
            self._heaped, self._queue, self._queued, self._news, self._pending,
            self._starts, self._ends, self._fct,
        )  # fmt: skip
        if reason == k.STUCK:
            dead = int(self._heap[0])
            raise InfeasibleError(
                f"flow {dead} from ToR {self.flows.source_tor[dead]} to ToR "
                f"{self.flows.target_tor[dead]} never ends: its link has no capacity; route it "
                "over a live spine"
            )
        return Stop(reason)

    def result(self) -> EpochTimes:
        """Return what was measured so far; epochs not ended are left out."""
        from routing.clos import simulate_kernels as k

        done = self._job[k.EPOCH]
        flow_times: tuple[FloatArray, ...] = ()
        if self._fct.size:
            flow_times = tuple(
                self._fct[first : first + n * job.steps * job.flows].reshape(
                    n, job.steps, job.flows
                )[:ended]
                for job, first, n, ended in zip(
                    self.jobs, self._job[k.FCT_0], self._job[k.EPOCHS], done, strict=True
                )
            )
        return EpochTimes(
            np.array([job.floor(self.nic_rate) for job in self.jobs]),
            tuple(row[:n].copy() for row, n in zip(self._starts, done, strict=True)),
            tuple(row[:n].copy() for row, n in zip(self._ends, done, strict=True)),
            flow_times,
        )


def _check_length(
    jobs: Sequence[RingJob], epochs: Sequence[int], nic_rate: float, recorded: int
) -> None:
    """Refuse runs of more times than memory holds, or longer than the clock can resolve."""
    times = len(jobs) * max(epochs) + recorded
    if times > MOST_TIMES:
        raise InputError(
            f"epochs is {max(epochs)}; that makes {times} times to keep, and at most {MOST_TIMES} "
            "are kept: give fewer epochs"
        )
    for job, count in zip(jobs, epochs, strict=True):
        floor = job.floor(nic_rate)
        end = job.start_time + count * (job.compute_time + floor)
        if not (np.isfinite(end) and np.spacing(end) <= RESOLUTION * floor):
            raise InputError(
                f"job {job.name!r} starts at {job.start_time:g} s, computes for "
                f"{job.compute_time:g} s and needs {floor:g} s for an AllReduce; these times are "
                "too far apart to be simulated together: check their units, and those of the rate"
            )
