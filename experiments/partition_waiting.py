"""Jobs that come and go on dedicated partitions: who waits, and what fragmentation adds."""

from collections.abc import Sequence

import numpy as np

from topoopt.experiment import Experiment, Figures, Row, Table, pivots, run_from_command_line
from topoopt.experiment.plots import panels_of
from topoopt.studies.shared.arrivals import poisson_requests, serve


def case(
    servers: int, reach: int, sizes: str, load: float, overtaking: bool, jobs: int, seed: int
) -> dict[str, object]:
    """Serve random arrivals of jobs.

    Parameters
    ----------
    servers : int
        Of the cluster.
    reach : int
        Servers whose ports end in one part of the port layer.
    sizes : str
        Servers of a job; several by slashes, each as likely.
    load : float
        Offered.
    overtaking : bool
        Whether later jobs may start before one that must wait.
    jobs : int
        Arrivals; the first tenth, which find the cluster empty, are not counted.
    seed : int

    Returns
    -------
    dict
        Waits in units of the mean duration of a job.
    """
    choices = [int(size) for size in sizes.split("/")]
    rng = np.random.default_rng(seed)
    requests = poisson_requests(jobs, servers, choices, load, 1.0, rng)
    found = serve(requests, servers, reach, overtaking=overtaking)
    counted = slice(jobs // 10, None)
    waits = np.array(found.waits_s)[counted]
    return {
        "share_waiting": float((waits > 0).mean()),
        "share_fragmented": float(np.mean([stay.fragmented for stay in found.stays[counted]])),
        "mean_wait": float(waits.mean()),
        "p99_wait": float(np.quantile(waits, 0.99)),
        "utilisation": found.utilisation,
    }


def tabulate(rows: Sequence[Row]) -> list[Table]:
    """Return shares and waits by load, a column a reach."""
    named: list[Row] = [
        {
            **row,
            "turn": "overtaking" if row["overtaking"] else "in turn",
            "reach of": f"{row['reach']} servers",
        }
        for row in rows
    ]
    titles = {
        "share_waiting": "share of jobs that wait",
        "share_fragmented": "share of jobs that wait while as many servers are free",
        "mean_wait": "mean wait over the mean duration of a job",
        "utilisation": "share of servers in use",
    }
    label = "{load:.0%}, jobs of {sizes}, {turn}, seed {seed}"
    return pivots(named, titles, columns="reach of", label=label, index="load of")


def draw(rows: Sequence[Row]) -> Figures:
    """Draw the share of jobs that wait over load, a line a reach and a panel a mix of sizes."""
    kinds = list(dict.fromkeys((row["sizes"], row["overtaking"]) for row in rows))
    figure, panels = panels_of(
        len(kinds), wide=len(kinds), size=(3.3, 3.4), around=(1.0, 0), share_y=True
    )
    colours = ("#000000", "#0072B2", "#009E73", "#E69F00", "#D55E00", "#CC79A7")
    for axes, kind in zip(panels, kinds, strict=True):
        mine = [row for row in rows if (row["sizes"], row["overtaking"]) == kind]
        for place, reach in enumerate(dict.fromkeys(row["reach"] for row in mine)):
            shares: dict[float, list[float]] = {}
            for row in mine:
                if row["reach"] == reach:
                    load = 100 * float(row["load"] or 0)
                    shares.setdefault(load, []).append(100 * float(row["share_waiting"] or 0))
            axes.plot(
                list(shares), [float(np.mean(found)) for found in shares.values()],
                marker="osD^vP"[place % 6], markersize=4, color=colours[place % 6],
                label=f"{reach} servers",
            )  # fmt: skip
        axes.set_title(f"jobs of {kind[0]} servers" + (", overtaking" if kind[1] else ""),
                       fontsize="medium")  # fmt: skip
        axes.set_xlabel("offered load [%]")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("jobs that wait [%]")
    panels[0].legend(title="a partition lies within", fontsize="small", title_fontsize="small")
    return {"partition-waiting": figure}


EXPERIMENT = Experiment(
    name="partition-waiting",
    description=(
        "Random arrivals of jobs on 432 servers with dedicated partitions. The port layer joins "
        "any free servers of one part (reach); running jobs stay where they are, so that free "
        "servers may lie in parts that are each too small."
    ),
    source="extends TopoOpt (NSDI 2023), figure 16, to arrivals, departures and fragmentation",
    grid={
        "servers": [432],
        "reach": [432, 216, 144, 72, 48, 32],
        "sizes": ["16", "8/16/24"],
        "load": [0.4, 0.6, 0.7, 0.8, 0.9],
        "overtaking": [False, True],
        "jobs": [20000],
        "seed": [0, 1, 2, 3, 4],
    },
    quick_grid={
        "reach": [432, 144, 72, 48],
        "load": [0.4, 0.6, 0.8],
        "overtaking": [False],
        "jobs": [4000],
        "seed": [0],
    },
    columns=("share_waiting", "share_fragmented", "mean_wait", "p99_wait", "utilisation"),
    case=case,
    tabulate=tabulate,
    draw=draw,
)

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
