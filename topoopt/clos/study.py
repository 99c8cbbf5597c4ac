"""Routers compared on the same jobs: the control loop of each, simulated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codesign_base import InputError
from routing.clos.control import Controller
from routing.clos.fabric import Clos
from routing.clos.jobs import RingJob
from routing.clos.loop import run_loop, run_sprayed
from routing.clos.routers import ROUTERS
from routing.clos.simulation import NIC_RATE


@dataclass(frozen=True)
class JobTimes:
    """What one job's epochs took under one method.

    Parameters
    ----------
    name : str
    flows : int
        Flows of a step, one an accelerator.
    start_s : float
        When it arrives.
    floor_s : float
        Its AllReduce in an empty network.
    allreduce_s : tuple of float
        Of every epoch.
    mean_slowdown, p99_slowdown, worst_slowdown : float
        AllReduce times over the floor.
    mean_flow_s, p99_flow_s, worst_flow_s : float
        Completion times of the job's flows, all steps and epochs.
    """

    name: str
    flows: int
    start_s: float
    floor_s: float
    allreduce_s: tuple[float, ...]
    mean_slowdown: float
    p99_slowdown: float
    worst_slowdown: float
    mean_flow_s: float
    p99_flow_s: float
    worst_flow_s: float


@dataclass(frozen=True)
class MethodTimes:
    """What a run came to under one method; no epoch is left out.

    Parameters
    ----------
    method : str
    mean_slowdown, p99_slowdown, worst_slowdown : float
        Over all jobs and epochs.
    jobs : tuple of JobTimes
    controller_time_s : float
        Time that all decisions of the run took together, exchanges at barriers included.
    slowest_decision_s : float
    decisions : int
        How often the router was asked: at arrivals, departures and changes of the fabric.
    moved_flows : int
        Flows that changed their spine, over the whole run.
    end_s : float
        When the last job ends.
    """

    method: str
    mean_slowdown: float
    p99_slowdown: float
    worst_slowdown: float
    jobs: tuple[JobTimes, ...]
    controller_time_s: float
    slowest_decision_s: float
    decisions: int
    moved_flows: int
    end_s: float


_COLOURING: dict[str, Any] = {"method": "edge-coloring", "predict": True}
_GREEDY: dict[str, Any] = {"method": "greedy", "predict": True}
SPRAY = "spray"
"""Not a router: flows spread over all links of their ToRs, see `routing.clos.loop.run_sprayed`."""

VARIANTS: dict[str, dict[str, Any]] = {
    "best": {"method": "best"},
    "best-by-job": {"method": "best", "by_ring": False},
    "best-static": {"method": "best", "rotate": False},
    "best-by-job-static": {"method": "best", "by_ring": False, "rotate": False},
    "best-no-prediction": {"method": "best", "predict": False},
    "colouring-by-ring": {**_COLOURING, "by_ring": True, "rotate": True},
    "colouring-rotated": {**_COLOURING, "rotate": True},
    "colouring-predicted": _COLOURING,
    "greedy-rotated": {**_GREEDY, "rotate": True},
    "greedy-predicted": _GREEDY,
}
"""Options of `routing.clos.control.Controller` for ablations: the metric that the router serves
(jobs or rings), local search (best against colouring alone), rotation, prediction."""


def run_methods(
    clos: Clos,
    jobs: Sequence[RingJob],
    methods: Sequence[str],
    epochs: int = 10,
    *,
    changes: Sequence[tuple[float, Clos]] = (),
    seed: int = 0,
    nic_rate: float = NIC_RATE,
    predict: bool | None = None,
    rotate: bool | None = None,
    move_cost: float = 0.0,
    time_limit: float | None = None,
) -> tuple[MethodTimes, ...]:
    """Simulate the same jobs under the control loop of several methods.

    Parameters
    ----------
    clos : Clos
    jobs : sequence of RingJob
    methods : sequence of str
        Names of `routing.clos.routers.ROUTERS`, or `SPRAY`.
    epochs : int
        AllReduces of each job.
    changes : sequence of (float, Clos)
        Seconds, and the fabric from then on.
    seed : int
        Of methods that draw random numbers.
    nic_rate : float
        Bytes per second.
    predict, rotate, move_cost, time_limit
        As `routing.clos.control.Controller`.

    Returns
    -------
    tuple of MethodTimes
        In the order of ``methods``.

    Raises
    ------
    InputError
        If a method is unknown or named twice, or cannot handle the fabric.
    InfeasibleError
        If a flow has no live path.
    """
    check_methods(methods)
    options = {
        "seed": seed, "predict": predict, "rotate": rotate, "move_cost": move_cost,
        "time_limit": time_limit,
    }  # fmt: skip
    return tuple(
        _simulated(clos, jobs, method, {"method": method, **options}, epochs, changes, nic_rate)
        for method in methods
    )


def run_variant(clos: Clos, jobs: Sequence[RingJob], name: str, epochs: int = 10) -> MethodTimes:
    """Simulate jobs under one variant of the control loop.

    Parameters
    ----------
    clos : Clos
    jobs : sequence of RingJob
    name : str
        A key of `VARIANTS`.
    epochs : int

    Returns
    -------
    MethodTimes
    """
    if name not in VARIANTS:
        raise InputError(f"variant {name!r} is unknown; choose among {', '.join(VARIANTS)}")
    return _simulated(clos, jobs, name, VARIANTS[name], epochs, (), NIC_RATE)


def check_methods(methods: Sequence[str]) -> None:
    """Raise InputError if a method is unknown or named twice."""
    known = (*ROUTERS, SPRAY)
    for method in methods:
        if method not in known:
            raise InputError(f"method {method!r} is unknown; choose among {', '.join(known)}")
    if not methods or len(set(methods)) < len(methods):
        raise InputError(f"methods are {', '.join(methods)!r}; name one or more, each once")


def warm_up_method(method: str) -> None:
    """Compile and import what a method needs, so that all methods are timed alike."""
    clos = Clos.uniform(2, 3)
    broken = clos.with_failed_spines([0])
    jobs = [
        RingJob("a", np.array([[0, 3], [1, 4]]), NIC_RATE, 0.1),
        RingJob("b", np.array([[2, 5]]), NIC_RATE, 0.1, 0.1),
    ]
    # More flows than live spines and a job that leaves, so that what can happen does.
    run_loop(clos, jobs, Controller(clos, method), [2, 1], changes=[(0.5, broken)])


def _simulated(
    clos: Clos,
    jobs: Sequence[RingJob],
    name: str,
    options: Mapping[str, Any],
    epochs: int,
    changes: Sequence[tuple[float, Clos]],
    nic_rate: float,
) -> MethodTimes:
    if name == SPRAY:
        found = run_sprayed(clos, jobs, epochs, changes=changes, nic_rate=nic_rate)
    else:
        warm_up_method(options["method"])
        controller = Controller(clos, **options)
        found = run_loop(clos, jobs, controller, epochs, changes=changes, nic_rate=nic_rate)
    times = found.times
    rows = []
    for job, floor, took, slow, flow in zip(
        jobs, times.floor, times.allreduce_time, times.slowdown, times.flow_times, strict=True
    ):
        rows.append(
            JobTimes(
                job.name,
                job.flows,
                job.start_time,
                float(floor),
                tuple(took.tolist()),
                float(slow.mean()),
                float(np.quantile(slow, 0.99, method="inverted_cdf")),
                float(slow.max()),
                float(flow.mean()),
                float(np.quantile(flow, 0.99, method="inverted_cdf")),
                float(flow.max()),
            )
        )
    seconds = found.controller_times
    return MethodTimes(
        name,
        times.mean_slowdown,
        times.p99_slowdown,
        times.worst_slowdown,
        tuple(rows),
        sum(seconds) + found.balance_time,
        max(seconds, default=0.0),
        len(seconds),
        found.moved,
        float(max(end[-1] for end in times.end)),
    )
