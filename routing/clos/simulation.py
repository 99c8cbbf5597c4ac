"""Barrier-synchronised ring AllReduces on a Clos fabric, event by event, at max-min fair rates."""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from codesign_base import InfeasibleError, InputError
from codesign_base.arrays import Flags, Floats, Ints
from codesign_base.rows import starts
from routing.clos import run_kernels as k
from routing.clos.epoch_times import EpochTimes
from routing.clos.fabric import Clos
from routing.clos.flows import ClosFlows
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
    ) -> None:
        if not jobs:
            raise InputError("there are no jobs to simulate; give at least one")
        if not (np.isfinite(nic_rate) and nic_rate > 0):
            raise InputError(f"nic_rate is {nic_rate}; give a positive number of bytes/s")
        count = [epochs] * len(jobs) if isinstance(epochs, int) else list(epochs)
        if len(count) != len(jobs) or min(count) < 1:
            raise InputError(f"epochs is {epochs}; give one or more for each of {len(jobs)} jobs")
        sizes = [n * job.steps * job.flows for n, job in zip(count, jobs, strict=True)]
        _check_length(jobs, count, nic_rate, sum(sizes))
        from routing.clos import simulate_kernels

        self._kernels = simulate_kernels
        self.jobs = tuple(jobs)
        self.clos = clos
        self.flows: ClosFlows = flows_of(clos, jobs)
        self.nic_rate = nic_rate
        source_nic, target_nic = self.flows.source_nic, self.flows.target_nic
        assert source_nic is not None and target_nic is not None
        fabric, nics = clos.tors * clos.spines, clos.tors * clos.nics_per_tor
        self._names = np.stack(
            (
                source_nic + 2 * fabric,
                self.flows.source_tor * clos.spines,
                self.flows.target_tor * clos.spines + fabric,
                target_nic + 2 * fabric + nics,
            ),
            axis=1,
        ).astype(np.int32)
        rings = np.array([job.rings for job in jobs])
        bounds = starts(rings)
        flows = self.flows.count
        table = np.zeros((9, len(jobs)), dtype=np.int64)
        table[k.STEPS] = [job.steps for job in jobs]
        table[k.EPOCHS] = count
        table[k.RING_0], table[k.RING_1] = bounds[:-1], bounds[1:]
        table[k.FCT_0] = starts(sizes)[:-1]
        size = np.repeat([job.replicas for job in jobs], rings)
        ring = np.zeros((5, int(rings.sum())), dtype=np.int64)
        ring[k.OWNER] = np.repeat(np.arange(len(jobs)), rings)
        ring[k.FLOW_1] = np.cumsum(size)
        ring[k.FLOW_0] = ring[k.FLOW_1] - size
        flow = np.zeros((10, flows))
        flow[k.SIZE] = self.flows.bytes_
        flow[k.CAP] = flow[k.NIC] = nic_rate
        mark = np.zeros((5, flows), dtype=np.int64)
        mark[k.PLACE] = -1
        mark[k.RING] = np.repeat(np.arange(ring.shape[1]), size)
        names = 2 * (fabric + nics)
        self._rates = k.Rates(
            flow=flow,
            mark=mark,
            link=np.full((2, names), np.inf),
            links=np.full((flows, k.SLOTS), -1, dtype=np.int32),
            begin=np.zeros(names + 1, dtype=np.int64),
            members=np.zeros(k.SLOTS * flows, dtype=np.int32),
            queue=np.zeros(names + 1, dtype=np.int64),
            queued=np.zeros(names, dtype=np.bool_),
            counts=np.zeros(3, dtype=np.int64),
        )
        self._run = k.RingRun(
            rates=self._rates,
            clock=np.zeros(1),
            job=table,
            times=np.array(
                [[job.start_time for job in jobs], [job.compute_time for job in jobs]],
                dtype=np.float64,
            ),
            ring=ring,
            spans=np.full((2, len(jobs), max(count)), np.nan),
            fct=np.full(sum(sizes), np.nan),
        )

    @property
    def time(self) -> float:
        """Seconds simulated."""
        return float(self._run.clock[0])

    @property
    def present(self) -> Flags:
        """Jobs that have arrived and not left, shape (jobs,)."""
        arrived = ~np.isnan(self._run.spans[0, :, 0])
        here: Flags = arrived & (self._run.job[k.PHASE] != k.GONE)
        return here

    @property
    def finished(self) -> Flags:
        """Jobs that have ended their last epoch, shape (jobs,)."""
        over: Flags = self._run.job[k.PHASE] == k.GONE
        return over

    @property
    def in_flight(self) -> Flags:
        """Flows that are sending now, shape (flows,)."""
        sending: Flags = self._rates.mark[k.PLACE] >= 0
        return sending

    @property
    def unfinished(self) -> Flags:
        """Flows of rings whose AllReduce is not over: sending or waiting at a barrier."""
        owner = self._run.ring[k.OWNER]
        sending = self._run.job[k.PHASE][owner] == k.SENDING
        busy: Flags = sending & (self._run.ring[k.STEP] < self._run.job[k.STEPS][owner])
        found: Flags = busy[self._rates.mark[k.RING]]
        return found

    def work_left(self) -> Floats:
        """Return how much of its AllReduce each flow's ring has before it, shape (flows,).

        1 at the begin, 0 after the end and while the job computes; a step is over with its last
        flow.
        """
        return self._kernels.work_left(self._run)

    def _wanted(self, spine: Ints, chosen: Ints) -> npt.NDArray[np.int32]:
        """Return the links of chosen flows: NIC out, up, down, NIC in; -1 where there is none.

        Links as `Clos` numbers them, then every NIC out, then every NIC in.
        """
        wanted = self._names[chosen]
        at = np.where(self.flows.crosses[chosen], spine[chosen], -1)[:, None]
        wanted[:, 1:3] = np.where(at >= 0, wanted[:, 1:3] + at, -1)
        return wanted

    def exchange(self, movers: Ints, spine: Ints) -> None:
        """Let flows take over each other's spines; no link gets more or fewer flows.

        Parameters
        ----------
        movers : int64 array
            The flows that move.
        spine : int64 array, shape (flows,)
            Spines of all flows.
        """
        wanted = self._wanted(spine, movers)
        wanted[(self._rates.begin[wanted + 1] == self._rates.begin[wanted]) | (wanted < 0)] = -1
        self._kernels.exchange_links(movers, wanted, self._rates)

    def hold(self, moved: Ints, seconds: float) -> None:
        """Let flows send nothing for some time from now on, because they are being moved.

        Parameters
        ----------
        moved : int64 array
            The flows; those that wait at a barrier may not begin their next step before.
        seconds : float
            At least 0.
        """
        if seconds > 0 and moved.size:
            self._kernels.hold(moved, self.time + seconds, self._rates)

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
        here = np.asarray(present, dtype=bool)[self.flows.job]
        chosen = np.asarray(spine, dtype=np.int64)
        missing = here & self.flows.crosses & ((chosen < 0) | (chosen >= clos.spines))
        if missing.any():
            flow = int(np.flatnonzero(missing)[0])
            raise InputError(f"flow {flow} has no spine; give one of 0..{clos.spines - 1}")
        self._relink(clos, chosen, here, clos.capacity)

    def spray(self, clos: Clos) -> None:
        """Send from now on over all links of each ToR at once, which share what it sends.

        Parameters
        ----------
        clos : Clos
            The fabric as it is now; of the same size.

        Raises
        ------
        InfeasibleError
            If a ToR that a flow leaves or enters has no live link that way.
        """
        flows = self.flows
        room = (clos.up.sum(axis=1), clos.down.sum(axis=0))
        for way, total, tor in (
            ("up", room[0], flows.source_tor), ("down", room[1], flows.target_tor)
        ):  # fmt: skip
            dead = np.flatnonzero(flows.crosses & (total[tor] <= 0))
            if dead.size:
                raise InfeasibleError(
                    f"ToR {tor[dead[0]]} has no live link {way} for flow {dead[0]}; "
                    "fail fewer links"
                )
        # The links of a ToR are one: the first of them, with the capacity of all.
        capacity = np.zeros((2, clos.tors, clos.spines))
        capacity[:, :, 0] = room
        everyone = np.ones(flows.count, dtype=bool)
        self._relink(clos, np.where(flows.crosses, 0, -1), everyone, capacity.ravel())

    def _relink(self, clos: Clos, spine: Ints, here: Flags, capacity: Floats) -> None:
        """Put the flows that are here on links of given capacities, in NIC rates."""
        wanted = self._wanted(spine, np.arange(self.flows.count))
        self._rates.link[k.ROOM] = self.nic_rate
        self._rates.link[k.ROOM, : capacity.size] = capacity * self.nic_rate
        self.clos = clos
        self._kernels.relink(wanted, here, self._rates)
        binds = (self._rates.links >= 0).any(axis=1)
        self._run.job[k.WATCH] = np.bincount(self.flows.job, binds, len(self.jobs)) > 0

    def run(self, until: float = float("inf"), *, pause: bool = False, steps: bool = False) -> Stop:
        """Simulate until a time, or until a job leaves or all have ended.

        Parameters
        ----------
        until : float
            Seconds; events at this very time are included.
        pause : bool
            Stop also when a job has just begun an AllReduce, before it has sent anything.
        steps : bool
            Stop also when rings of jobs that share links have just ended a step.

        Returns
        -------
        Stop

        Raises
        ------
        InfeasibleError
            If flows are left that can never end (their link has no capacity).
        """
        reason = self._kernels.run_until(until, pause, steps, self._run)
        if reason == k.STUCK:
            dead = int(self._rates.mark[k.HEAP, 0])
            raise InfeasibleError(
                f"flow {dead} from ToR {self.flows.source_tor[dead]} to ToR "
                f"{self.flows.target_tor[dead]} never ends: its link has no capacity; route it "
                "over a live spine"
            )
        return Stop(reason)

    def result(self) -> EpochTimes:
        """Return what was measured so far; epochs not ended are left out."""
        done = self._run.job[k.EPOCH]
        flow_times = tuple(
            self._run.fct[first : first + n * job.steps * job.flows].reshape(
                n, job.steps, job.flows
            )[:ended]
            for job, first, n, ended in zip(
                self.jobs, self._run.job[k.FCT_0], self._run.job[k.EPOCHS], done, strict=True
            )
        )
        start, end = (
            tuple(row[:n].copy() for row, n in zip(rows, done, strict=True))
            for rows in self._run.spans
        )
        floor = np.array([job.floor(self.nic_rate) for job in self.jobs])
        return EpochTimes(floor, start, end, flow_times)


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
