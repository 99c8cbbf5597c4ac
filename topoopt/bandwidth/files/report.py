"""An allocation as JSON and as the page that `topoopt bandwidth` prints."""

from collections.abc import Sequence
from typing import Any

from codesign_base.counted import counted
from topoopt.bandwidth.allocate import Allocation
from topoopt.bandwidth.explore.sensitivity import Sensitivity, relative_change
from topoopt.bandwidth.model.cost import GBYTE
from topoopt.bandwidth.model.several import RelativeTo
from topoopt.bandwidth.model.workload_times import WorkloadTimes
from topoopt.bandwidth.solve.problem import AllocationObjective
from topoopt.base.text import dollars, table_lines
from topoopt.problem.units import format_time

REFERENCES = {
    RelativeTo.OPTIMUM: "the least that it could take alone",
    RelativeTo.EQUAL: "what it takes at 100 GB/s on every dimension",
}
GOALS = {
    AllocationObjective.TIME: "least iteration time",
    AllocationObjective.TIME_COST: "least time x cost",
    AllocationObjective.COST: "least cost",
}


def allocation_document(answer: Allocation) -> dict[str, Any]:
    """Return an allocation as plain data with units in the names.

    Parameters
    ----------
    answer : Allocation

    Returns
    -------
    dict
        The first workload's times at the top, all of them under ``workloads``.
    """
    solution, first = answer.solution, answer.workloads[0]
    return {
        "network": answer.network.notation,
        "npus": answer.network.npus,
        "objective": answer.question.objective.value,
        "bandwidth_gbytes_per_s": (answer.bandwidth / GBYTE).tolist(),
        **_times(first),
        "cost_usd": solution.cost,
        "equal_bandwidth_time_s": first.equal_iteration,
        "equal_bandwidth_cost_usd": answer.equal_cost,
        "speedup_over_equal_bandwidth": _speedup(first),
        "perf_per_cost_over_equal_bandwidth": _per_cost(answer, first),
        "primal_objective": solution.primal,
        "dual_bound": solution.dual,
        "objective_unit": _unit(answer),
        "duality_gap": solution.gap,
        "shadow_prices": [
            {"constraint": price.constraint, "value": price.value, "unit": price.unit}
            for price in answer.shadow_prices
        ],
        "workloads": [
            {
                "name": times.name,
                **_times(times),
                "equal_bandwidth_time_s": times.equal_iteration,
                "reference_time_s": reference,
            }
            for times, reference in _with_references(answer)
        ],
        **_rates(answer),
        "notes": list(answer.notes),
    }


def _with_references(answer: Allocation) -> list[tuple[WorkloadTimes, float | None]]:
    references = answer.references or (None,) * len(answer.workloads)
    return list(zip(answer.workloads, references, strict=True))


def _rates(answer: Allocation) -> dict[str, Any]:
    found = answer.discrete
    if found is None:
        return {}
    return {
        "rates": {
            "nodes": found.nodes,
            "complete": found.complete,
            "bound_with_any_rates": found.relaxed,
        }
    }


def sensitivity_document(answer: Allocation, rows: Sequence[Sensitivity]) -> list[dict[str, Any]]:
    """Return the sensitivity table as plain data; answers that do not exist are null."""
    time = "iteration_time_s" if len(answer.workloads) == 1 else "relative_time"
    keys = (time, "cost_usd", "objective", "relative_objective_change",
            "bandwidth_gbytes_per_s", "duality_gap")  # fmt: skip
    document = []
    for row in rows:
        found = dict.fromkeys(keys)
        if row.solution is not None:
            s = row.solution
            change = relative_change(s.primal, answer.solution.primal)
            rates = [b / GBYTE for b in s.bandwidth.tolist()]
            found = dict(zip(keys, (s.time, s.cost, s.primal, change, rates, s.gap), strict=True))
        document.append(
            {"what": row.what, "relative_change": row.change, **found, "message": row.message}
        )
    return document


def sensitivity_lines(answer: Allocation, rows: Sequence[Sensitivity]) -> list[str]:
    """Return the sensitivity table as lines of text."""
    table: list[tuple[str, ...]] = [("if this changes", "by", "time", "cost", "objective")]
    base = answer.solution
    for row in rows:
        by = f"{row.change:+.0%}"
        if row.solution is None:
            table.append((row.what, by, "none", "none", "none"))
            continue
        table.append(
            (
                row.what,
                by,
                _percent(relative_change(row.solution.time, base.time)),
                _percent(relative_change(row.solution.cost, base.cost)),
                _percent(relative_change(row.solution.primal, base.primal)),
            )
        )
    missing = dict.fromkeys(row.message for row in rows if row.message)
    return [*table_lines(table, left=(0,)), *(f"none: {message}" for message in missing)]


def _percent(change: float | None) -> str:
    return "" if change is None else f"{change:+.2%}"


def _speedup(times: WorkloadTimes) -> float:
    return times.equal_iteration / times.iteration if times.iteration > 0 else 1.0


def _per_cost(answer: Allocation, times: WorkloadTimes) -> float | None:
    if answer.solution.cost == 0 or times.iteration == 0:
        return None
    equal = times.equal_iteration * answer.equal_cost
    return equal / (times.iteration * answer.solution.cost)


def objective_unit(objective: AllocationObjective, time: str = "s") -> str:
    """Return the unit of an objective, of times in another unit than seconds if given."""
    priced = {AllocationObjective.COST: "USD", AllocationObjective.TIME_COST: f"{time}*USD"}
    return priced.get(objective, time)


def _unit(answer: Allocation) -> str:
    time = "s" if len(answer.workloads) == 1 else "relative time"
    return objective_unit(answer.question.objective, time)


def _times(times: WorkloadTimes) -> dict[str, Any]:
    return {
        "iteration_time_s": times.iteration,
        "compute_time_s": times.compute,
        "exposed_communication_s": list(times.exposed),
        "latency_s": times.latency,
        "utilisation": list(times.utilisation),
    }


def allocation_summary(answer: Allocation) -> str:
    """Return the page that `topoopt bandwidth` prints.

    Parameters
    ----------
    answer : Allocation

    Returns
    -------
    str
        Plain text without a trailing newline.
    """
    solution = answer.solution
    goal = GOALS[answer.question.objective]
    lines = [
        f"{answer.network.notation}, {answer.network.npus:,} NPUs: {goal} for "
        + ", ".join(times.name for times in answer.workloads)
    ]
    for times, reference in _with_references(answer):
        lines += ["", *_workload_lines(answer, times)]
        if reference is not None:
            lines.append(
                f"counts as {times.iteration / reference:.4g}: its time over "
                f"{format_time(reference)}, {REFERENCES[answer.relative_to]}"
            )
    ratio = _per_cost(answer, answer.workloads[0])
    lines += [
        "",
        f"cost {dollars(solution.cost)}; equal bandwidths {dollars(answer.equal_cost)}"
        + (f"; performance per cost {ratio:.3g}x of equal bandwidths" if ratio else ""),
        f"proof: objective {solution.primal:.9g} {_unit(answer)}, lower bound "
        f"{solution.dual:.9g}, gap {solution.gap:.1e}",
    ]
    if answer.discrete is not None:
        lines.append(
            f"rates: {counted(f'{answer.discrete.nodes:,}', 'box', 'boxes')} looked at; with any "
            f"rates at least {answer.discrete.relaxed:.9g} {_unit(answer)}"
        )
    if answer.shadow_prices:
        rows: list[tuple[str, ...]] = [("relaxing", "saves", "")]
        rows += [
            (price.constraint, f"{price.value:.4g}", price.unit) for price in answer.shadow_prices
        ]
        lines += ["", *table_lines(rows, left=(0, 2))]
    lines += [f"note: {note}" for note in answer.notes]
    return "\n".join(lines)


def _workload_lines(answer: Allocation, times: WorkloadTimes) -> list[str]:
    rows: list[tuple[str, ...]] = [
        ("dimension", "level", "GB/s per NPU", "exposed", "utilisation", "cost")
    ]
    for d, (block, size) in enumerate(
        zip(answer.network.blocks, answer.network.sizes, strict=True)
    ):
        rate = float(answer.bandwidth[d])
        rows.append(
            (
                f"b{d} {block}({size})",
                answer.network.levels[d],
                f"{rate / GBYTE:.2f}",
                format_time(times.exposed[d]),
                f"{times.utilisation[d]:.1%}",
                dollars(float(answer.problem.cost[d]) * rate),
            )
        )
    faster = _speedup(times)
    latency = f" + latency {format_time(times.latency)}" if times.latency > 0 else ""
    exposed = format_time(sum(times.exposed))
    return [
        *table_lines(rows, left=(0, 1)),
        f"{times.name}: iteration {format_time(times.iteration)} = compute "
        f"{format_time(times.compute)} + exposed communication {exposed}{latency}",
        f"equal bandwidths {format_time(times.equal_iteration)}: {faster:.3f}x as fast",
    ]
