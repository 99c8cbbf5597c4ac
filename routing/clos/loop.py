"""The control loop run against the simulator: jobs arrive and leave, links fail."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Ints
from routing.clos.control import Controller
from routing.clos.epoch_times import EpochTimes
from routing.clos.fabric import Clos
from routing.clos.flows import ClosFlows
from routing.clos.jobs import RingJob
from routing.clos.simulation import NIC_RATE, Simulation, Stop


@dataclass(frozen=True, eq=False)
class LoopResult:
    """What a run of the control loop came to.

    Parameters
    ----------
    times : EpochTimes
        AllReduce times of every job and epoch.
    controller_times : tuple of float
        Seconds (of the clock) of every decision of the router: at arrivals, departures and
        changes of the fabric.
    balance_time : float
        Seconds (of the clock) spent on exchanging routes at barriers, in all.
    moved : int
        Changes of a flow from one spine to another, over the whole run.
    """

    times: EpochTimes
    controller_times: tuple[float, ...]
    balance_time: float
    moved: int


def run_loop(
    clos: Clos,
    jobs: Sequence[RingJob],
    controller: Controller,
    epochs: int | Sequence[int] = 10,
    *,
    changes: Sequence[tuple[float, Clos]] = (),
    nic_rate: float = NIC_RATE,
) -> LoopResult:
    """Simulate epochs of jobs whose routes a controller decides.

    The controller looks at the network whenever a job begins an AllReduce or leaves, and when
    the fabric changes. It is told what is in flight then, and which jobs have left; all the rest
    it must remember.

    Parameters
    ----------
    clos : Clos
        The fabric at time 0.
    jobs : sequence of RingJob
        They arrive at their start times.
    controller : Controller
        Fresh; it ends with the last job forgotten. A flow that it moves to another spine sends
        nothing for the controller's ``move_cost`` seconds.
    epochs : int or sequence of int
        AllReduces of each job, after which it leaves.
    changes : sequence of (float, Clos)
        Seconds, and the fabric from then on (failures, repairs); of the same size.
    nic_rate : float
        Bytes per second.

    Returns
    -------
    LoopResult

    Raises
    ------
    InfeasibleError
        If a flow has no live path.
    """
    pending = _in_order(clos, changes)
    simulation = Simulation(clos, jobs, epochs, nic_rate)
    flows = simulation.flows
    spine = np.full(flows.count, -1, dtype=np.int64)
    left = np.zeros(len(jobs), dtype=bool)
    order = np.zeros(0, dtype=np.int64)
    seconds: list[float] = []
    floor = np.array([job.floor(nic_rate) for job in jobs])[flows.job]
    balancing = 0.0
    moved, exchanged = 0, 0

    def balance() -> None:
        nonlocal balancing, exchanged
        if not controller.rotate or order.size == 0:
            return
        work = simulation.work_left()[order]
        began = perf_counter()
        found = controller.balance(work, floor[order])
        balancing += perf_counter() - began
        if found.size:
            spine[order[found]] = controller.spine[found]
            simulation.exchange(order[found], spine)
            simulation.hold(order[found], controller.move_cost)
            exchanged += int(found.size)

    while True:
        due = pending[0][0] if pending else float("inf")
        stop = simulation.run(due, pause=True, steps=controller.rotate)
        if stop == Stop.FINISHED:
            break
        if stop == Stop.STEPPED:
            balance()
            continue
        renewed = None
        if stop == Stop.TIME:
            renewed = pending.pop(0)[1]
        present = simulation.present
        gone = simulation.finished & ~left
        if gone.any():
            controller.forget(np.flatnonzero(gone))
            left |= gone
        # After a failure flows that wait at a barrier need a live route too.
        seen = simulation.in_flight if renewed is None else simulation.unfinished
        decided = controller.observe(flows.subset(seen), simulation.time, renewed)
        if decided.decided:
            seconds.append(decided.seconds)
        if decided.any or renewed is not None:
            given = controller.spines_of(flows)
            # Also those that the controller had forgotten, which come back on another spine.
            movers = np.flatnonzero((given >= 0) & (spine >= 0) & (given != spine))
            moved += int(movers.size)
            spine[given >= 0] = given[given >= 0]
            simulation.set_routes(simulation.clos if renewed is None else renewed, spine, present)
            simulation.hold(movers, controller.move_cost)
        order = _order(controller, flows)
        balance()
    return LoopResult(simulation.result(), tuple(seconds), balancing, moved + exchanged)


def run_sprayed(
    clos: Clos,
    jobs: Sequence[RingJob],
    epochs: int | Sequence[int] = 10,
    *,
    changes: Sequence[tuple[float, Clos]] = (),
    nic_rate: float = NIC_RATE,
) -> LoopResult:
    """Simulate epochs of jobs whose packets are spread over all links, without any decision.

    What packet spraying could reach at best: the links up of a ToR act as one, and so do those
    down; reordered packets cost nothing. Where failures are not alike at all ToRs, more is sent
    so than packets spread evenly could.

    Parameters
    ----------
    clos, jobs, epochs, changes, nic_rate
        As `run_loop`.

    Returns
    -------
    LoopResult

    Raises
    ------
    InfeasibleError
        If a ToR that sends or receives has no live link.
    """
    pending = _in_order(clos, changes)
    simulation = Simulation(clos, jobs, epochs, nic_rate)
    simulation.spray(clos)
    while True:
        stop = simulation.run(pending[0][0] if pending else float("inf"))
        if stop == Stop.FINISHED:
            return LoopResult(simulation.result(), (), 0.0, 0)
        if stop == Stop.TIME:
            simulation.spray(pending.pop(0)[1])


def _in_order(clos: Clos, changes: Sequence[tuple[float, Clos]]) -> list[tuple[float, Clos]]:
    """Return changes of a fabric by time; raise InputError if one changes its size."""
    for _, later in changes:
        if (later.tors, later.spines) != (clos.tors, clos.spines):
            raise InputError(
                f"a change turns {clos.tors} ToRs x {clos.spines} spines into {later.tors} x "
                f"{later.spines}; fail links instead of removing them"
            )
    return sorted(changes, key=lambda change: change[0])


def _order(controller: Controller, flows: ClosFlows) -> Ints:
    """Return, for each flow that the controller knows, its position in ``flows``."""
    places = controller.places_of(flows)
    known = places >= 0
    order = np.empty(controller.flows.count, dtype=np.int64)
    order[places[known]] = np.flatnonzero(known)
    return order
