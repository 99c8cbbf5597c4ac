"""Who sends how much to whom in one iteration of DLRM, by strategy."""

from collections.abc import Sequence

import numpy as np

from parallelism.models import get_model
from parallelism.taskgraph import traffic_of
from topoopt.experiment import Experiment, Figures, Row, Table, grouped, run_from_command_line
from topoopt.experiment.plots import panels_of
from topoopt.studies.setting import setting


def case(model: str, servers: int, strategy: str) -> list[dict[str, object]]:
    """Sum the traffic of one strategy; one row a pair of servers that has any.

    Parameters
    ----------
    model : str
    servers : int
    strategy : {"data-parallel", "hybrid"}
        Whether it fits in memory does not matter here.

    Returns
    -------
    list of dict
        AllReduces run along one ring in the order of the servers.
    """
    given = setting(get_model(model), servers, 4, 100)
    chosen = given.strategy(strategy, must_fit=False)
    traffic = traffic_of(given.builder.build(chosen))
    reduced = np.zeros((servers, servers))
    for group, sent in zip(traffic.groups, traffic.member_bytes().tolist(), strict=True):
        members = np.array(group)
        reduced[members, np.roll(members, -1)] += sent
    sources, targets = np.nonzero(reduced + traffic.transfers)
    return [
        {
            "source": source,
            "target": target,
            "allreduce_bytes": reduced[source, target],
            "transfer_bytes": traffic.transfers[source, target],
        }
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True)
    ]


def tabulate(rows: Sequence[Row]) -> Table:
    """Return the sums of each strategy."""
    lines = []
    for key, mine in grouped(rows, "model", "servers", "strategy").items():
        reduced = [float(row["allreduce_bytes"] or 0) for row in mine]
        moved = [float(row["transfer_bytes"] or 0) for row in mine]
        lines.append(
            (*key, len(mine), sum(reduced) / 1e9, sum(moved) / 1e9,
             max(a + b for a, b in zip(reduced, moved, strict=True)) / 1e9)
        )  # fmt: skip
    columns = ("model", "servers", "strategy", "pairs", "AllReduce [GB]", "transfers [GB]",
               "busiest pair [GB]")  # fmt: skip
    return Table(columns, tuple(lines))


def draw(rows: Sequence[Row]) -> Figures:
    """Draw a heat map of each case, all on one logarithmic scale."""
    from matplotlib.colors import LogNorm

    parts = grouped(rows, "model", "servers", "strategy")
    figure, panels = panels_of(len(parts), wide=len(parts), size=(4.2, 4), around=(0, 0))
    sums = [float(r["allreduce_bytes"] or 0) + float(r["transfer_bytes"] or 0) for r in rows]
    norm = LogNorm(min(sums) / 1e6, max(sums) / 1e6)
    image = None
    for axes, ((model, servers, strategy), mine) in zip(panels, parts.items(), strict=True):
        matrix = np.full((int(servers or 0), int(servers or 0)), np.nan)
        for row in mine:
            total = float(row["allreduce_bytes"] or 0) + float(row["transfer_bytes"] or 0)
            matrix[int(row["source"] or 0), int(row["target"] or 0)] = total / 1e6
        image = axes.imshow(matrix, norm=norm, cmap="viridis")
        axes.set_title(f"{model}, {strategy}")
        ticks = range(0, int(servers or 0), max(1, int(servers or 0) // 4))
        axes.set_xticks(ticks)
        axes.set_yticks(ticks)
        axes.set_xlabel("to server")
        axes.set_ylabel("from server")
    figure.colorbar(image, ax=figure.axes, label="MB an iteration")
    return {"heatmaps": figure}


def _grid(*sizes: tuple[str, int]) -> list[Row]:
    return [
        {"model": model, "servers": servers, "strategy": strategy}
        for model, servers in sizes
        for strategy in ("data-parallel", "hybrid")
    ]


EXPERIMENT = Experiment(
    name="traffic-heatmaps",
    description=(
        "Bytes from server to server in one iteration of DLRM, replicated everywhere and with "
        "its tables placed whole on single servers."
    ),
    source="TopoOpt (NSDI 2023), traffic heat maps of DLRM",
    grid=_grid(("dlrm-16", 16), ("dlrm-32", 32), ("dlrm", 64)),
    quick_grid=_grid(("dlrm-16", 16)),
    columns=("source", "target", "allreduce_bytes", "transfer_bytes"),
    case=case,
    tabulate=tabulate,
    draw=draw,
)

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
