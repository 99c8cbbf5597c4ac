"""One routing of a set of jobs: how fast each job is, how far that is from the best possible."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

from codesign_base import InputError
from codesign_base.counted import counted
from routing.clos.assignment import Assignment
from routing.clos.bounds import bound_of_paths, gap
from routing.clos.fabric import Clos
from routing.clos.jobs import RingJob, flows_of
from routing.clos.metric import compare_vectors, evaluate
from routing.clos.paths import clos_paths
from routing.clos.routers import check_method, route
from routing.clos.tables import route_table, table_csv
from topoopt.base.atomic import write_text_atomically
from topoopt.base.text import table_lines
from topoopt.base.version import installed_version
from topoopt.clos.study import warm_up_method
from topoopt.problem.units import format_time


@dataclass(frozen=True)
class JobSpeed:
    """One job under the assignment.

    Parameters
    ----------
    name : str
    flows : int
    speed : float
        u_j of the metric: speed of its AllReduce relative to an empty network.
    """

    name: str
    flows: int
    speed: float


@dataclass(frozen=True)
class RoutingReport:
    """An assignment and what the metric says of it; see ``docs/clos.md``.

    Parameters
    ----------
    version : str
    tors, spines, live_spines : int
    method : str
    seed : int
    flows : int
    jobs : tuple of JobSpeed
    efficiency : tuple of float
        The efficiency vector: speeds of the jobs, ascending.
    bound : tuple of float
        A vector that no assignment's efficiency vector exceeds.
    leading_gap : float
        The slowest job cannot be faster by more than this part.
    optimal : bool
        Whether the vector reaches the bound, or the method proved it optimal.
    max_load : float
        Weight of the most loaded link over its capacity.
    slowest_job : str
    mean_slowdown : float
        Mean of 1 / speed.
    jain : float
        Jain's index of the speeds.
    controller_time_s : float
        Time that the router took.
    spine : tuple of int
        Of every flow, job by job and ring by ring; -1 within a ToR.
    """

    version: str
    tors: int
    spines: int
    live_spines: int
    method: str
    seed: int
    flows: int
    jobs: tuple[JobSpeed, ...]
    efficiency: tuple[float, ...]
    bound: tuple[float, ...]
    leading_gap: float
    optimal: bool
    max_load: float
    slowest_job: str
    mean_slowdown: float
    jain: float
    controller_time_s: float
    spine: tuple[int, ...]


def route_jobs(
    clos: Clos,
    jobs: Sequence[RingJob],
    method: str = "best",
    *,
    seed: int = 0,
    time_limit: float | None = None,
) -> RoutingReport:
    """Assign every flow of some jobs a spine, and measure the assignment.

    Parameters
    ----------
    clos : Clos
    jobs : sequence of RingJob
    method : str
        A name of `routing.clos.routers.ROUTERS`.
    seed : int
    time_limit : float, optional
        As `routing.clos.routers.route`.

    Returns
    -------
    RoutingReport

    Raises
    ------
    InputError
        If the method is unknown or cannot handle the fabric.
    InfeasibleError
        If a flow has no live path.
    """
    check_method(method)
    flows = flows_of(clos, jobs)
    warm_up_method(method)
    began = perf_counter()
    found = route(clos, flows, method, seed=seed, time_limit=time_limit)
    seconds = perf_counter() - began
    measured = evaluate(clos, flows, found)
    bound = bound_of_paths(clos_paths(clos, flows), flows)
    return RoutingReport(
        installed_version(),
        clos.tors,
        clos.spines,
        int(clos.live_spines.size),
        method,
        seed,
        flows.count,
        tuple(
            JobSpeed(job.name, job.flows, float(speed))
            for job, speed in zip(jobs, measured.speed, strict=True)
        ),
        tuple(measured.vector.tolist()),
        tuple(bound.tolist()),
        gap(measured.vector, bound),
        bool(found.optimal or compare_vectors(measured.vector, bound) >= 0),
        measured.max_load,
        jobs[measured.slowest_job].name,
        measured.mean_slowdown,
        measured.jain,
        seconds,
        tuple(found.spine.tolist()),
    )


def report_lines(report: RoutingReport) -> list[str]:
    """Return the page that `topoopt clos route` prints, line by line."""
    rows: list[tuple[str, ...]] = [("job", "flows", "speed", "slowdown")]
    rows += [
        (job.name, str(job.flows), f"{job.speed:.3f}", f"{1 / job.speed:.3f}")
        for job in report.jobs
    ]
    if report.optimal:
        distance = "the efficiency vector is proven optimal"
    else:
        distance = (
            f"the slowest job is within {100 * report.leading_gap:.2f} % of the proven bound "
            f"{report.bound[0]:.3f}"
        )
    return [
        f"{counted(report.flows, 'flow')} of {counted(len(report.jobs), 'job')} on "
        f"{counted(report.tors, 'ToR')} x {counted(report.spines, 'spine')} ({report.live_spines} "
        f"live), method {report.method}, {format_time(report.controller_time_s)}",
        "",
        *table_lines(rows),
        "",
        f"efficiency vector {' '.join(f'{speed:.3f}' for speed in report.efficiency)}",
        f"max load {report.max_load:.3f}, slowest job {report.slowest_job}, mean slowdown "
        f"{report.mean_slowdown:.3f}, Jain index {report.jain:.3f}",
        distance,
    ]


def check_table_format(path: Path | None) -> None:
    """Raise InputError unless a route table can be written in the format its name asks for."""
    if path is not None and path.suffix not in (".json", ".csv"):
        raise InputError(f"tables file {str(path)!r} is neither .json nor .csv; name it so")


def write_tables(
    clos: Clos, jobs: Sequence[RingJob], report: RoutingReport, path: Path, *, ports: bool = False
) -> None:
    """Write the route of every flow.

    Parameters
    ----------
    clos : Clos
    jobs : sequence of RingJob
    report : RoutingReport
        Of the same jobs.
    path : Path
        Ends in ``.json`` or ``.csv``.
    ports : bool
        Add UDP source ports by the hash model of `routing.clos.tables`.
    """
    check_table_format(path)
    spine = np.array(report.spine, dtype=np.int64)
    routes = route_table(clos, flows_of(clos, jobs), Assignment(spine), ports=ports)
    text = table_csv(routes) if path.suffix == ".csv" else json.dumps(routes, indent=1) + "\n"
    write_text_atomically(path, text)
