"""Whether the fluid model, which searches score with, ranks strategies as packet trains do."""

from collections.abc import Sequence
from itertools import combinations

from parallelism.models import get_model
from topoopt.experiment import (
    Experiment,
    Figures,
    Row,
    Table,
    grouped,
    listed,
    run_from_command_line,
)
from topoopt.experiment.plots import panels_of
from topoopt.search.confirm import confirmed_times
from topoopt.studies.setting import setting


def case(
    model: str, servers: int, degree: int, bandwidth_gbps: float, most: int, seed: int
) -> list[dict[str, object]]:
    """Time named strategies, each on a topology built for it; one row a strategy.

    Parameters
    ----------
    model : str
    servers, degree : int
    bandwidth_gbps : float
        Of a port, each way.
    most : int
        Of the named strategies that fit, the first so many.
    seed : int
        Of the packet trains' paths and delays.

    Returns
    -------
    list of dict
    """
    given = setting(get_model(model), servers, degree, bandwidth_gbps)
    rows: list[dict[str, object]] = []
    for name, strategy in list(given.strategies().items())[:most]:
        pair = given.wired(strategy, name)
        packets = confirmed_times(pair.fabric, given.builder.build(strategy), seed)
        rows.append(
            {
                "strategy": name,
                "fluid_s": pair.time,
                "packet_s": packets.mean,
                "packet_spread_s": packets.spread,
                "packet_over_fluid": packets.mean / pair.time,
            }
        )
    return rows


def tabulate(rows: Sequence[Row]) -> list[Table]:
    """Return how well the rankings agree, and every time."""
    lines = []
    for (model, degree, gbps), mine in grouped(rows, "model", "degree", "bandwidth_gbps").items():
        times = [(float(row["fluid_s"] or 0), float(row["packet_s"] or 0)) for row in mine]
        pairs = list(combinations(times, 2))
        alike = sum((a[0] - b[0]) * (a[1] - b[1]) >= 0 for a, b in pairs)
        chosen = min(times)[1]
        ratios = [packet / fluid for fluid, packet in times]
        lines.append(
            (str(model), str(degree), str(gbps), len(times), alike / len(pairs) if pairs else None,
             chosen / min(packet for _, packet in times) - 1, min(ratios), max(ratios))
        )  # fmt: skip
    columns = ("model", "degree", "Gbps", "strategies", "pairs ranked alike",
               "loss of the fluid choice", "least packet/fluid", "most packet/fluid")  # fmt: skip
    names = ("model", "degree", "bandwidth_gbps", "strategy", "fluid_s", "packet_s",
             "packet_over_fluid")  # fmt: skip
    return [
        Table(columns, tuple(lines), "agreement"),
        listed(rows, names, "times"),
    ]


def draw(rows: Sequence[Row]) -> Figures:
    """Draw the one time over the other."""
    from matplotlib.ticker import NullFormatter

    figure, (axes,) = panels_of(1, size=(4.5, 4.2), around=(0, 0))
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == model]
        fluid = [1e3 * float(row["fluid_s"] or 0) for row in mine]
        axes.loglog(
            fluid, [1e3 * float(row["packet_s"] or 0) for row in mine], "o", label=str(model)
        )
    axes.xaxis.set_minor_formatter(NullFormatter())
    ends = axes.get_xlim()
    axes.plot(ends, ends, ":", color="grey")
    axes.set_xlabel("fluid model [ms]")
    axes.set_ylabel("packet trains [ms]")
    axes.legend()
    return {"fluid-packet": figure}


EXPERIMENT = Experiment(
    name="fluid-packet",
    description=(
        "Iteration times of named strategies in both fabric models. Loss of the fluid choice: "
        "packet time of the strategy that the fluid model likes best over the best packet time, "
        "less one."
    ),
    source="extends TopoOpt (NSDI 2023), whose search scores with a cruder model than its results",
    grid={
        "model": ["dlrm-16", "candle-16", "bert-16", "vgg16-16"],
        "servers": [16],
        "degree": [4, 8],
        "bandwidth_gbps": [25, 100],
        "most": [12],
        "seed": [0],
    },
    quick_grid={
        "model": ["dlrm-16", "bert-16"],
        "degree": [4],
        "bandwidth_gbps": [100],
        "most": [4],
    },
    columns=("strategy", "fluid_s", "packet_s", "packet_spread_s", "packet_over_fluid"),
    case=case,
    tabulate=tabulate,
    draw=draw,
)

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
