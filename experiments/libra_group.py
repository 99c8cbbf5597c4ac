"""One network for several workloads: what each loses to a network of its own."""

from collections.abc import Sequence

from topoopt.bandwidth.allocate import (
    Allocation,
    allocate_bandwidth,
    default_communicator,
    workload_layer_times,
)
from topoopt.bandwidth.files.libra_files import (
    WORKLOADS,
    LibraInputs,
    data_option,
    libra_inputs,
    source,
)
from topoopt.bandwidth.model.collectives import PartialGroups
from topoopt.bandwidth.model.expressions import Expr
from topoopt.bandwidth.model.loops import Loop, add_up
from topoopt.bandwidth.model.several import RelativeTo, Together
from topoopt.bandwidth.solve.problem import AllocationObjective
from topoopt.bandwidth.solve.question import Question
from topoopt.experiment import Experiment, Figures, Row, Table, pivot, run_from_command_line
from topoopt.experiment.plots import panels_of

GROUP_SUM, GROUP_WORST = "group (sum)", "group (worst)"


def case(
    inputs: str, dimensions: int, objective: str, budget_gbytes_per_s: int, network_for: str
) -> list[dict[str, object]]:
    """Optimise a network for one workload or for all, and run every workload on it.

    Parameters
    ----------
    inputs : {"files", "built-in"}
    dimensions : {3, 4}
    objective : {"time", "time*cost"}
    budget_gbytes_per_s : int
    network_for : str
        A workload, "group (sum)" or "group (worst)".

    Returns
    -------
    list of dict
        A row a workload.
    """
    every = [libra_inputs(name, dimensions, inputs) for name in WORKLOADS]
    times = [_time(given) for given in every]
    goal = AllocationObjective(objective)
    own = [_optimise([given], budget_gbytes_per_s, goal) for given in every]
    if network_for in WORKLOADS:
        answer = own[WORKLOADS.index(network_for)]
    else:
        # Everything counts relative to the objective that a network of one's own gives.
        equal = [100e9] * dimensions
        weights = [
            time.evaluate(equal) / alone.solution.primal
            for time, alone in zip(times, own, strict=True)
        ]
        together = Together.MAXIMUM if network_for == GROUP_WORST else Together.SUM
        answer = _optimise(every, budget_gbytes_per_s, goal, weights, together)
    rows = []
    for name, expression, alone in zip(WORKLOADS, times, own, strict=True):
        time = expression.evaluate(answer.bandwidth.tolist())
        paid = (
            answer.solution.cost / alone.solution.cost
            if goal == AllocationObjective.TIME_COST
            else 1.0
        )
        rows.append(
            {
                "workload": name,
                "iteration_time_s": time,
                "own_network_time_s": alone.solution.time,
                "loss": time / alone.solution.time * paid - 1.0,
                "cost_usd": answer.solution.cost,
                "duality_gap": answer.solution.gap,
            }
        )
    return rows


def _optimise(
    chosen: list[LibraInputs],
    budget: int,
    objective: AllocationObjective,
    weights: list[float] | None = None,
    together: Together = Together.SUM,
) -> Allocation:
    groups = [given.communicator for given in chosen if given.communicator is not None]
    return allocate_bandwidth(
        chosen[0].network,
        [given.workload for given in chosen],
        Question(cost=chosen[0].cost, budget=f"{budget}GB/s", objective=objective),
        groups or None,
        weights=weights,
        together=together,
        relative_to=RelativeTo.EQUAL,
    )


def _time(given: LibraInputs) -> Expr:
    groups = given.communicator or default_communicator(given.network, given.workload)
    layers = workload_layer_times(given.network, given.workload, groups, PartialGroups.USABLE)
    return add_up(layers, Loop.NONE)


def tabulate(rows: Sequence[Row]) -> list[Table]:
    """Return the losses, a table for each network and objective."""
    tables = []
    keys = ("dimensions", "objective", "budget_gbytes_per_s")
    for key in dict.fromkeys(tuple(row[k] for k in keys) for row in rows):
        chosen = [row for row in rows if tuple(row[k] for k in keys) == key]
        title = f"{key[0]}D, {key[1]}, {key[2]} GB/s: loss against a network of its own"
        tables.append(
            pivot(chosen, index="network_for", columns="workload", value="loss", title=title)
        )
    return tables


def draw(rows: Sequence[Row]) -> Figures:
    """Draw the largest and the mean loss of each network."""
    figure, (axes,) = panels_of(1, size=(9, 4), around=(0, 0))
    names = list(dict.fromkeys(str(row["network_for"]) for row in rows))
    losses = [
        [float(row["loss"] or 0.0) for row in rows if row["network_for"] == name] for name in names
    ]
    axes.bar(names, [max(part, default=0.0) for part in losses], color="tab:red", label="largest")
    axes.bar(names, [sum(part) / max(len(part), 1) for part in losses], label="mean")
    axes.set_ylabel("loss against a network of its own")
    axes.set_xlabel("network optimised for")
    axes.legend()
    return {"losses": figure}


if __name__ == "__main__":
    data_option()  # before the inputs are looked for

EXPERIMENT = Experiment(
    name="libra-group",
    description=(
        "Every workload on networks optimised for another one, for the sum of all relative "
        "times, and for the worst of them."
    ),
    source="LIBRA (ISPASS 2024), figure 16 (group optimisation)",
    grid={
        "inputs": [source()],
        "dimensions": [3, 4],
        "objective": ["time", "time*cost"],
        "budget_gbytes_per_s": [500, 1000],
        "network_for": [*WORKLOADS, GROUP_SUM, GROUP_WORST],
    },
    quick_grid={
        "dimensions": [4],
        "objective": ["time"],
        "budget_gbytes_per_s": [1000],
    },
    columns=(
        "workload", "iteration_time_s", "own_network_time_s", "loss", "cost_usd",
        "duality_gap",
    ),
    case=case,
    tabulate=tabulate,
    draw=draw,
)  # fmt: skip

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
