"""Epochs of jobs whose routes stay as they are: every flow at its fair rate, or jobs paced."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from codesign_base import InfeasibleError, InputError
from routing.clos.epoch_times import EpochTimes
from routing.clos.fabric import Clos, FloatArray
from routing.clos.jobs import RingJob
from routing.clos.simulation import NIC_RATE, Simulation, Stop

Pacing = Literal["flow", "job"]


def simulate(
    clos: Clos,
    jobs: Sequence[RingJob],
    spine: npt.ArrayLike,
    epochs: int | Sequence[int] = 10,
    *,
    nic_rate: float = NIC_RATE,
    pacing: Pacing = "flow",
    record_flows: bool = False,
) -> EpochTimes:
    """Simulate jobs whose routes stay as they are.

    Parameters
    ----------
    clos : Clos
    jobs : sequence of RingJob
    spine : array_like of int, shape (flows,)
        For the flows of `routing.clos.jobs.flows_of`; -1 within a ToR.
    epochs : int or sequence of int
        AllReduces of each job.
    nic_rate : float
        Bytes per second of a NIC.
    pacing : {"flow", "job"}
        ``"flow"``: every flow takes its max-min fair rate, as transports do. ``"job"``: each
        job sends all of its flows at one common speed, and the speeds are max-min fair among
        jobs: what the metric of `routing.clos.metric` assumes.
    record_flows : bool
        Keep the completion time of every flow (``"flow"`` only).

    Returns
    -------
    EpochTimes

    Raises
    ------
    InputError
        If a flow has no spine, or a value is out of range.
    InfeasibleError
        If a flow's link has no capacity.
    """
    if pacing == "job":
        return _simulate_paced(clos, jobs, spine, epochs, nic_rate)
    if pacing != "flow":
        raise InputError(f"pacing is {pacing!r}; choose flow or job")
    simulation = Simulation(clos, jobs, epochs, nic_rate, record_flows)
    simulation.set_routes(clos, spine, np.ones(len(jobs), dtype=bool))
    while simulation.run() != Stop.FINISHED:
        pass
    return simulation.result()


def _simulate_paced(
    clos: Clos,
    jobs: Sequence[RingJob],
    spine: npt.ArrayLike,
    epochs: int | Sequence[int],
    nic_rate: float,
) -> EpochTimes:
    """Simulate jobs that send at the max-min fair speeds of the metric.

    While the set of sending jobs is J, job j goes on at the speed u_j of the efficiency vector
    of the flows of J. Barriers then cost nothing: all flows of a step end together.

    The times have no flow times.
    """
    from routing.fairness_kernels import max_min

    checked = Simulation(clos, jobs, epochs, nic_rate)
    checked.set_routes(clos, spine, np.ones(len(jobs), dtype=bool))
    count = [epochs] * len(jobs) if isinstance(epochs, int) else list(epochs)
    links, weights, room = _loads(checked, clos, np.asarray(spine, dtype=np.int64))
    floor = np.array([job.floor(nic_rate) for job in jobs])
    rest = np.zeros(len(jobs))
    due = np.array([job.start_time for job in jobs], dtype=np.float64)
    sending = np.zeros(len(jobs), dtype=bool)
    start: list[list[float]] = [[] for _ in jobs]
    end: list[list[float]] = [[] for _ in jobs]
    speed: FloatArray = np.zeros(len(jobs))
    now = 0.0
    while sending.any() or np.isfinite(due).any():
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.where(sending, now + rest / speed, np.inf)
        instant = min(float(ends.min()), float(due.min()))
        if not np.isfinite(instant):
            raise InfeasibleError(
                f"job {jobs[int(np.argmax(sending))].name!r} never ends: one of its links has no "
                "capacity; route it over live spines"
            )
        rest[sending] -= (instant - now) * speed[sending]
        now = instant
        horizon = now * (1 + 1e-12)
        for j in np.flatnonzero(ends <= horizon).tolist():
            sending[j] = False
            end[j].append(now)
            due[j] = now + jobs[j].compute_time if len(end[j]) < count[j] else np.inf
        for j in np.flatnonzero(due <= horizon).tolist():
            sending[j] = True
            start[j].append(now)
            due[j], rest[j] = np.inf, floor[j]
        active = np.flatnonzero(sending)
        bounds = np.cumsum([0, *(links[j].size for j in active)]).astype(np.int64)
        joined = np.concatenate([np.zeros(0, dtype=np.int32), *(links[j] for j in active)])
        parts = np.concatenate([np.zeros(0), *(weights[j] for j in active)])
        speed[active] = max_min(
            bounds[:-1], bounds[1:], joined, parts, room, np.full(bounds.size - 1, np.inf)
        )
    return EpochTimes(floor, tuple(np.array(s) for s in start), tuple(np.array(e) for e in end))


def _loads(
    simulation: Simulation, clos: Clos, spine: npt.NDArray[np.int64]
) -> tuple[list[npt.NDArray[np.int32]], list[FloatArray], FloatArray]:
    """Return each job's links and how many of its flows each carries, and the capacities."""
    wanted = simulation.links_of(clos, spine, np.arange(simulation.flows.count))
    room = np.concatenate((clos.capacity, np.ones(2 * clos.tors * clos.nics_per_tor)))
    links, weights = [], []
    for number in range(len(simulation.jobs)):
        used = wanted[simulation.flows.job == number]
        names, counts = np.unique(used[used >= 0], return_counts=True)
        links.append(names)
        weights.append(counts.astype(np.float64))
    return links, weights, room
