"""An allocation as JSON and as the page that `topoopt bandwidth` prints."""

from typing import Any

from topoopt.bandwidth.allocate import Allocation, WorkloadTimes
from topoopt.bandwidth.cost import GBYTE
from topoopt.bandwidth.problem import Objective
from topoopt.summary import dollars, table_lines
from topoopt.units import format_time


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
        "objective": answer.objective.value,
        "bandwidth_gbytes_per_s": (answer.bandwidth / GBYTE).tolist(),
        "iteration_time_s": first.iteration,
        "compute_time_s": first.compute,
        "exposed_communication_s": list(first.exposed),
        "latency_s": first.latency,
        "utilisation": list(first.utilisation),
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
                "iteration_time_s": times.iteration,
                "compute_time_s": times.compute,
                "exposed_communication_s": list(times.exposed),
                "latency_s": times.latency,
                "utilisation": list(times.utilisation),
                "equal_bandwidth_time_s": times.equal_iteration,
            }
            for times in answer.workloads
        ],
        "notes": list(answer.notes),
    }


def _speedup(times: WorkloadTimes) -> float:
    return times.equal_iteration / times.iteration if times.iteration > 0 else 1.0


def _per_cost(answer: Allocation, times: WorkloadTimes) -> float | None:
    if answer.solution.cost == 0 or times.iteration == 0:
        return None
    equal = times.equal_iteration * answer.equal_cost
    return equal / (times.iteration * answer.solution.cost)


def _unit(answer: Allocation) -> str:
    if answer.objective == Objective.COST:
        return "USD"
    time = "s" if len(answer.workloads) == 1 else "relative time"
    return time if answer.objective == Objective.TIME else f"{time}*USD"


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
    goal = {
        Objective.TIME: "least iteration time",
        Objective.TIME_COST: "least time x cost",
        Objective.COST: "least cost",
    }[answer.objective]
    lines = [
        f"{answer.network.notation}, {answer.network.npus:,} NPUs: {goal} for "
        + ", ".join(times.name for times in answer.workloads)
    ]
    for times in answer.workloads:
        lines += ["", *_workload_lines(answer, times)]
    ratio = _per_cost(answer, answer.workloads[0])
    lines += [
        "",
        f"cost {dollars(solution.cost)}; equal bandwidths {dollars(answer.equal_cost)}"
        + (f"; performance per cost {ratio:.3g}x of equal bandwidths" if ratio else ""),
        f"proof: objective {solution.primal:.9g} {_unit(answer)}, lower bound "
        f"{solution.dual:.9g}, gap {solution.gap:.1e}",
    ]
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
        f"{times.name}: iteration {times.iteration * 1e3:.6g} ms = compute "
        f"{format_time(times.compute)} + exposed communication {exposed}{latency}",
        f"equal bandwidths {format_time(times.equal_iteration)}: {faster:.3f}x as fast",
    ]
