"""The designs that a search found, as JSON and as a page of text."""

from typing import Any

from codesign_base.counted import counted
from topoopt.bandwidth.explore.sweep import NetworkDesign, Sweep, describe_design
from topoopt.bandwidth.files.report import GOALS, objective_unit
from topoopt.bandwidth.model.cost import GBYTE
from topoopt.base.text import dollars, table_lines
from topoopt.problem.units import format_time


def sweep_document(found: Sweep) -> dict[str, Any]:
    """Return a search as plain data with units in the names.

    Parameters
    ----------
    found : Sweep

    Returns
    -------
    dict
    """
    tally = found.tally
    return {
        "npus": found.designs[0].network.npus,
        "objective": found.question.objective.value,
        "objective_unit": objective_unit(found.question.objective),
        "candidates": found.candidates,
        "solved": tally.solved,
        "repeated": tally.repeated,
        "pruned_by_bound": tally.pruned,
        "not_fitting": tally.unfit,
        "infeasible": tally.infeasible,
        "interrupted": found.interrupted,
        "designs": [_design(design) for design in found.designs],
        "notes": _notes(found),
    }


def _design(design: NetworkDesign) -> dict[str, Any]:
    solution, division = design.solution, design.division
    return {
        "network": design.network.notation,
        "tensor_parallel": division.layout.tensor,
        "data_parallel": division.layout.data,
        "pipeline_stages": division.layout.pipeline,
        "microbatches": division.microbatches,
        "axes_from_inside": [axis for axis in design.order if getattr(division.layout, axis) > 1],
        "bandwidth_gbytes_per_s": (solution.bandwidth / GBYTE).tolist(),
        "iteration_time_s": solution.time,
        "cost_usd": solution.cost,
        "primal_objective": solution.primal,
        "dual_bound": solution.dual,
        "duality_gap": solution.gap,
        "equal_designs": list(design.equals),
    }


def _notes(found: Sweep) -> list[str]:
    notes = []
    for design in found.designs:
        notes += [note for note in design.division.workload.notes if note not in notes]
    if found.interrupted:
        notes.append("the search was interrupted; designs that it did not reach may be better")
    return notes


def sweep_summary(found: Sweep) -> str:
    """Return a search as a page of text without a trailing newline.

    Parameters
    ----------
    found : Sweep

    Returns
    -------
    str
    """
    tally = found.tally
    rows: list[tuple[str, ...]] = [("design", "iteration", "cost", "GB/s per NPU", "gap")]
    for design in found.designs:
        more = f" (and {len(design.equals)} equal)" if design.equals else ""
        rows.append(
            (
                describe_design(design.network, design.division, design.order) + more,
                format_time(design.solution.time),
                dollars(design.solution.cost),
                " / ".join(f"{b / GBYTE:.4g}" for b in design.solution.bandwidth),
                f"{design.solution.gap:.1e}",
            )
        )
    looked = "interrupted" if found.interrupted else "complete"
    return "\n".join(
        [
            f"{found.designs[0].network.npus:,} NPUs: {GOALS[found.question.objective]} over "
            f"{counted(f'{found.candidates:,}', 'design')}",
            "",
            *table_lines(rows, left=(0, 3)),
            "",
            f"search {looked}: {tally.solved:,} solved, {tally.repeated:,} equal to one of these, "
            f"{tally.pruned:,} ruled out by a bound, {tally.unfit:,} do not fit, "
            f"{tally.infeasible:,} break the constraints",
            *(f"note: {note}" for note in _notes(found)),
        ]
    )
