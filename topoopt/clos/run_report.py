"""A comparison of methods as JSON and as a page of text."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from codesign_base import InputError
from codesign_base.counted import counted
from routing.clos.fabric import Clos
from topoopt.base.text import table_lines
from topoopt.base.version import installed_version
from topoopt.clos.study import MethodTimes
from topoopt.problem.units import format_time

Changes = Sequence[tuple[float, Clos]]
"""Seconds, and the fabric from then on, ascending."""


def check_failures(results: Sequence[MethodTimes], changes: Changes) -> None:
    """Raise InputError if a spine fails when no method has anything left to send.

    Parameters
    ----------
    results : sequence of MethodTimes
    changes : sequence of (float, Clos)
        Seconds, and the fabric from then on.
    """
    end = max(result.end_s for result in results)
    for moment, _ in changes:
        if moment >= end:
            raise InputError(
                f"fail-spine-at names {format_time(moment)}, when all jobs have ended (the last "
                f"at {format_time(end)}); give an earlier time or more epochs"
            )


def run_document(
    clos: Clos,
    results: Sequence[MethodTimes],
    *,
    epochs: int,
    seed: int,
    move_cost: float,
    changes: Changes = (),
) -> dict[str, Any]:
    """Return what `topoopt clos run --json` prints; see ``docs/clos.md``."""
    methods = {}
    for result in results:
        fields = asdict(result)
        methods[fields.pop("method")] = fields
    return {
        "version": installed_version(),
        "tors": clos.tors,
        "spines": clos.spines,
        "live_spines": int(clos.live_spines.size),
        "epochs": epochs,
        "seed": seed,
        "move_cost_s": move_cost,
        "failures": [
            {"time_s": moment, "live_spines": int(later.live_spines.size)}
            for moment, later in changes
        ],
        "methods": methods,
    }


def run_lines(
    clos: Clos,
    results: Sequence[MethodTimes],
    *,
    epochs: int,
    move_cost: float,
    changes: Changes = (),
) -> list[str]:
    """Return the page that `topoopt clos run` prints, line by line.

    Parameters
    ----------
    clos : Clos
    results : sequence of MethodTimes
    epochs : int
    move_cost : float
        Seconds that a flow could not send while it was moved.
    changes : sequence of (float, Clos)
        Failures on the way: seconds, and the fabric from then on.

    Returns
    -------
    list of str
    """
    jobs = results[0].jobs
    flows = sum(job.flows for job in jobs)
    lines = [
        f"{counted(len(jobs), 'job')}, {counted(flows, 'flow')} a step, "
        f"{counted(epochs, 'epoch')} on {counted(clos.tors, 'ToR')} x "
        f"{counted(clos.spines, 'spine')} ({_live(clos, changes)})",
        "",
        "slowdown over the uncongested floor, all jobs and epochs",
    ]
    rows: list[tuple[str, ...]] = [
        ("method", "mean", "p99", "worst", "controller", "decisions", "moved flows")
    ]
    rows += [
        (
            r.method,
            f"{r.mean_slowdown:.3f}",
            f"{r.p99_slowdown:.3f}",
            f"{r.worst_slowdown:.3f}",
            format_time(r.controller_time_s),
            str(r.decisions),
            str(r.moved_flows),
        )
        for r in results
    ]
    lines += table_lines(rows)
    lines += _move_lines(results, epochs, move_cost)
    lines += _late_lines(results, changes)
    for result in results:
        lines += ["", f"{result.method}: AllReduce of each epoch (s)"]
        rows = [("job", "floor", "mean", "p99", "worst", "flow mean", "flow p99", "epochs")]
        rows += [
            (
                job.name,
                _seconds(job.floor_s),
                f"{job.mean_slowdown:.3f}",
                f"{job.p99_slowdown:.3f}",
                f"{job.worst_slowdown:.3f}",
                format_time(job.mean_flow_s),
                format_time(job.p99_flow_s),
                " ".join(map(_seconds, job.allreduce_s)),
            )
            for job in result.jobs
        ]
        lines += table_lines(rows)
    return lines


def _move_lines(results: Sequence[MethodTimes], epochs: int, move_cost: float) -> list[str]:
    """Say what moving a flow took, and how many moves that makes where there were some."""
    price = "is instant and free (see --move-cost)"
    if move_cost > 0:
        price = f"stops it for {format_time(move_cost)}"
    moves = [
        f"{r.method} moves {r.moved_flows / (epochs * len(r.jobs)):.0f} an AllReduce"
        for r in results
        if r.moved_flows
    ]
    return [f"moving a flow {price}" + (": " + ", ".join(moves) if moves else "")]


def _live(clos: Clos, changes: Changes) -> str:
    later = [f", {after.live_spines.size} from {format_time(moment)}" for moment, after in changes]
    return f"{clos.live_spines.size} live{''.join(later)}"


def _late_lines(results: Sequence[MethodTimes], changes: Changes) -> list[str]:
    """Say which methods end before a failure that others meet."""
    lines = []
    for moment, _ in changes:
        ended = [result for result in results if result.end_s <= moment]
        if ended:
            names = ", ".join(f"{r.method} (at {format_time(r.end_s)})" for r in ended)
            lines.append(f"the failure at {format_time(moment)} comes after the end of {names}")
    return lines


def _seconds(time: float) -> str:
    """Milliseconds are enough for usual AllReduces; others need four digits to say anything."""
    return f"{time:.3f}" if 0.1 <= time < 1e4 else f"{time:.4g}"
