"""Search over network shapes and parallelization, against the networks of the paper."""

from collections.abc import Sequence

from topoopt.bandwidth.explore.divisions import builtin_divisions, fixed_division
from topoopt.bandwidth.explore.shapes import network_shapes
from topoopt.bandwidth.explore.sweep import describe_design, search_designs
from topoopt.bandwidth.model.builtin import builtin_workload
from topoopt.bandwidth.model.network import parse_network
from topoopt.bandwidth.solve.problem import AllocationObjective
from topoopt.bandwidth.solve.question import Question
from topoopt.experiment import Experiment, Figures, Row, Table, Value, run_from_command_line
from topoopt.experiment.plots import panels_of

# The first dimensions of LIBRA's 3D network, with as many pods as the NPUs need.
PAPER = {4096: "RI(16)_FC(8)_SW(32)", 1024: "RI(16)_FC(8)_SW(8)", 256: "RI(16)_FC(4)_SW(4)"}


def case(
    workload: str, npus: int, objective: str, budget_gbytes_per_s: int, max_dimensions: int,
    search: str,
) -> dict[str, object]:  # fmt: skip
    """Find the best design of one search.

    Parameters
    ----------
    workload : str
        Built-in.
    npus : int
    objective : {"time", "time*cost"}
    budget_gbytes_per_s : int
    max_dimensions : int
    search : {"paper", "shapes", "parallelism", "both"}
        What is chosen besides the bandwidths: nothing, the network's shape, the division of
        the job, or both.

    Returns
    -------
    dict
        The columns of `EXPERIMENT`.
    """
    fixed = search in ("paper", "parallelism")
    shapes = [parse_network(PAPER[npus])] if fixed else network_shapes(npus, max_dimensions)
    if search in ("paper", "shapes"):
        divisions = [fixed_division(builtin_workload(workload), npus)]
    else:
        divisions = builtin_divisions(workload, npus)
    found = search_designs(
        shapes,
        divisions,
        Question(budget=f"{budget_gbytes_per_s}GB/s", objective=AllocationObjective(objective)),
        keep=3,
    )
    best = found.designs[0]
    return {
        "design": describe_design(best.network, best.division, best.order),
        "bandwidth_gbytes_per_s": " / ".join(f"{b / 1e9:.1f}" for b in best.solution.bandwidth),
        "iteration_time_s": best.solution.time,
        "cost_usd": best.solution.cost,
        "duality_gap": best.solution.gap,
        "candidates": found.candidates,
        "solved": found.tally.solved,
        "pruned_by_bound": found.tally.pruned,
    }


def _key(row: Row) -> tuple[Value, ...]:
    return (row["workload"], row["npus"], row["objective"], row["budget_gbytes_per_s"])


def tabulate(rows: Sequence[Row]) -> Table:
    """Return the designs with their gains over the paper's network and division."""
    paper = {_key(row): row for row in rows if row["search"] == "paper"}
    lines: list[tuple[Value, ...]] = []
    for row in rows:
        base = paper.get(_key(row))
        if row["status"] != "ok" or base is None or base["status"] != "ok":
            continue
        faster = float(base["iteration_time_s"] or 0) / float(row["iteration_time_s"] or 1)
        cheaper = float(base["cost_usd"] or 0) / float(row["cost_usd"] or 1)
        lines.append(
            (*_key(row), row["search"], row["design"], row["iteration_time_s"], faster,
             faster * cheaper, row["candidates"], row["solved"])
        )  # fmt: skip
    names = (
        "workload", "npus", "objective", "GB/s", "search", "best design", "iteration (s)",
        "speed-up", "perf per cost", "candidates", "solved",
    )  # fmt: skip
    return Table(names, tuple(lines), "gains over the paper's network and division")


def draw(rows: Sequence[Row]) -> Figures:
    """Draw the gains of the searches in what they search for."""
    table = tabulate(rows).rows
    jobs = list(dict.fromkeys((str(line[0]), line[1], str(line[2])) for line in table))
    searches = list(dict.fromkeys(str(line[4]) for line in table))
    figure, (axes,) = panels_of(1, size=(max(5.0, 1.2 * len(jobs)), 4), around=(0, 0))
    for at, search in enumerate(searches):
        heights = [
            max(
                (
                    float(x[7 if x[2] == "time" else 8] or 0)
                    for x in table
                    if (str(x[0]), x[1], str(x[2])) == job and x[4] == search
                ),
                default=0.0,
            )
            for job in jobs
        ]  # fmt: skip
        places = [k + at / (len(searches) + 1) for k in range(len(jobs))]
        axes.bar(places, heights, 1 / (len(searches) + 1), label=search)
    axes.set_xticks(range(len(jobs)), [f"{a}\n{b}\n{c}" for a, b, c in jobs])
    axes.tick_params(labelsize="small")
    axes.set_ylabel("speed-up, or gain of performance per cost")
    if searches:
        axes.legend()
    return {"speedups": figure}


EXPERIMENT = Experiment(
    name="libra-shapes",
    description=(
        "Best network shape and best division into tensor, data and pipeline parallelism, each "
        "alone and together, with optimal bandwidths throughout."
    ),
    source="extends LIBRA (ISPASS 2024), which takes both as given",
    grid={
        "workload": ["turing-nlg", "gpt-3", "msft-1t", "dlrm", "resnet-50"],
        "npus": [1024, 4096],
        "objective": ["time", "time*cost"],
        "budget_gbytes_per_s": [500],
        "max_dimensions": [3],
        "search": ["paper", "shapes", "parallelism", "both"],
    },
    quick_grid={
        "workload": ["gpt-3", "dlrm"],
        "npus": [256],
        "objective": ["time"],
    },
    columns=(
        "design", "bandwidth_gbytes_per_s", "iteration_time_s", "cost_usd", "duality_gap",
        "candidates", "solved", "pruned_by_bound",
    ),
    case=case,
    tabulate=tabulate,
    draw=draw,
)  # fmt: skip

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
