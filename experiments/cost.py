"""What the networks of a cluster cost, by size and port speed; no simulation."""

from collections.abc import Sequence

from topoopt.experiment import Experiment, Figures, Row, Table, pivots, run_from_command_line
from topoopt.experiment.plots import panels_of
from topoopt.problem.prices import (
    default_prices,
    direct_connect_cost,
    equal_cost_fat_tree_bandwidth,
    fat_tree_cost,
)


def case(servers: int, degree: int, bandwidth_gbps: float) -> list[dict[str, object]]:
    """Price the fabrics of one cluster; one row a fabric.

    Parameters
    ----------
    servers, degree : int
    bandwidth_gbps : float
        Of a port, each way; switched fabrics give each server all ports' bandwidth in one link.

    Returns
    -------
    list of dict
    """
    prices, rate = default_prices(), bandwidth_gbps * 1e9 / 8
    ours = direct_connect_cost(servers, degree, rate, prices)
    same = equal_cost_fat_tree_bandwidth(ours, servers, prices)
    costs = {
        "patch panels": (ours, degree * bandwidth_gbps),
        "optical switches": (
            direct_connect_cost(servers, degree, rate, prices, "ocs"),
            degree * bandwidth_gbps,
        ),
        "full Fat-tree": (
            fat_tree_cost(servers, degree * rate, prices),
            degree * bandwidth_gbps,
        ),
        "2:1 Fat-tree": (
            fat_tree_cost(servers, degree * rate, prices, oversubscription=2),
            degree * bandwidth_gbps,
        ),
        "similar-cost Fat-tree": (fat_tree_cost(servers, same, prices), same * 8 / 1e9),
    }
    return [
        {
            "fabric": name,
            "server_bandwidth_gbps": gbps,
            "cost_usd": cost,
            "relative_cost": cost / ours,
            "usd_per_gbps_and_server": cost / servers / gbps,
            "extrapolated": bool(prices.note(gbps * 1e9 / 8 if "Fat" in name else rate)),
        }
        for name, (cost, gbps) in costs.items()
    ]


def tabulate(rows: Sequence[Row]) -> list[Table]:
    """Return cost and relative cost, a table each, by cluster."""
    titles = {
        "cost_usd": "cost in US dollars (servers x ports x speed)",
        "relative_cost": "cost over that of patch panels",
        "server_bandwidth_gbps": "bandwidth of a server in Gbps",
    }
    label = "{servers} x {degree} x {bandwidth_gbps} Gbps"
    return pivots(rows, titles, columns="fabric", label=label, index="cluster")


def draw(rows: Sequence[Row]) -> Figures:
    """Draw cost over servers for each port speed, degree 4."""
    degree = min(int(row["degree"] or 0) for row in rows)
    speeds = list(dict.fromkeys(row["bandwidth_gbps"] for row in rows))
    figure, panels = panels_of(len(speeds), wide=len(speeds), size=(3.6, 3.6), around=(0, 0))
    for axes, speed in zip(panels, speeds, strict=True):
        mine = [r for r in rows if r["bandwidth_gbps"] == speed and r["degree"] == degree]
        for fabric in dict.fromkeys(r["fabric"] for r in mine):
            line = [r for r in mine if r["fabric"] == fabric]
            axes.loglog(
                [r["servers"] for r in line],
                [float(r["cost_usd"] or 0) / 1e6 for r in line],
                "--" if fabric == "similar-cost Fat-tree" else "-",
                label=str(fabric),
            )
        axes.set_title(f"d={degree}, {speed} Gbps")
        axes.set_xlabel("servers")
        sizes = sorted({int(r["servers"] or 0) for r in mine})
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
    figure.axes[0].set_ylabel("million US dollars")
    figure.axes[0].legend(fontsize="x-small")
    return {"cost": figure}


EXPERIMENT = Experiment(
    name="cost",
    description=(
        "Network cost from the built-in price table; prices outside 100 to 200 Gbps are "
        "extrapolated in proportion. Published as a figure only, so there is no column for it."
    ),
    source="TopoOpt (NSDI 2023), cost comparison",
    grid={
        "servers": [128, 256, 432, 512, 1024, 2048],
        "degree": [4, 8],
        "bandwidth_gbps": [10, 25, 40, 100, 200],
    },
    quick_grid={"servers": [128, 512, 2048], "degree": [4, 8], "bandwidth_gbps": [25, 100, 200]},
    columns=(
        "fabric", "server_bandwidth_gbps", "cost_usd", "relative_cost",
        "usd_per_gbps_and_server", "extrapolated",
    ),
    case=case,
    tabulate=tabulate,
    draw=draw,
)  # fmt: skip

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
