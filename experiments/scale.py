"""Topologies of 16 to 1024 servers for AllReduce groups of several sizes: how good, how quickly."""

import time
from collections.abc import Sequence

import numpy as np

from parallelism.taskgraph import Traffic
from topoopt.experiment import Experiment, Figures, Row, Table, listed, run_from_command_line
from topoopt.experiment.plots import MARKS, PALETTE, legend_below, panels_of, values_of
from topoopt.problem.prices import default_prices
from topoopt.studies.topology_report import topology_report
from topoopt.topology.choosing import Selection
from topoopt.topology.finder import find_topology
from topoopt.topology.zoo.registry import BuiltFabric

ALLREDUCE_BYTES = 1e9


def case(
    servers: int, degree: int, group: int, transfer_share: float, selection: str
) -> dict[str, object]:
    """Build and measure the topology of one traffic.

    Parameters
    ----------
    servers, degree : int
    group : int
        Members of each AllReduce group; server v belongs to group v mod (servers / group), and
        every group reduces a gigabyte.
    transfer_share : float
        Bytes sent all-to-all over the bytes of all AllReduces.
    selection : {"geometric", "exact", "traffic"}
        How generators are chosen.

    Returns
    -------
    dict
        ``wiring_gap``: time of the busiest link over the least that any wiring of this degree
        and any routing could have, less one.
    """
    stride = servers // group
    groups = tuple(tuple(range(first, servers, stride)) for first in range(stride))
    sent = 2.0 * (group - 1) * ALLREDUCE_BYTES * stride
    even = (np.ones((servers, servers)) - np.eye(servers)) / (servers * (servers - 1))
    traffic = Traffic(
        servers, even * sent * transfer_share, groups, np.full(stride, ALLREDUCE_BYTES)
    )
    start = time.perf_counter()
    built = find_topology(
        traffic, degree, 100e9 / 8, selection=Selection(selection), surplus="rings"
    )
    build = time.perf_counter() - start
    fabric = BuiltFabric(
        "topoopt", built.network, degree, rings=built.rings, bidirectional=False
    )  # fmt: skip
    measures = topology_report(fabric, 100e9 / 8, default_prices(), traffic).measures
    return {
        "ports_for_rings": built.degree_allreduce,
        "diameter_hops": measures.diameter,
        "moore_diameter_hops": measures.moore_diameter,
        "mean_distance_hops": measures.mean_distance,
        "moore_mean_hops": measures.moore_mean_distance,
        "bandwidth_tax": measures.bandwidth_tax,
        "busiest_link_s": measures.busiest_link_s,
        "wiring_gap": measures.wiring_gap,
        "build_s": build,
    }


def tabulate(rows: Sequence[Row]) -> Table:
    """Return one row a case."""
    columns = ("servers", "degree", "group", "transfer_share", "selection", "ports_for_rings",
               "diameter_hops", "moore_diameter_hops", "mean_distance_hops", "moore_mean_hops",
               "bandwidth_tax", "busiest_link_s", "wiring_gap")  # fmt: skip
    return listed(rows, columns)


def _grid(sizes: Sequence[int], degrees: Sequence[int], selections: Sequence[str]) -> list[Row]:
    return [
        {
            "servers": servers, "degree": degree, "group": group, "transfer_share": share,
            "selection": selection,
        }
        for servers in sizes
        for degree in degrees
        for group in dict.fromkeys((4, 16, servers))
        for share in (0.0, 0.1)
        for selection in selections
    ]  # fmt: skip


def draw(rows: Sequence[Row]) -> Figures:
    """Draw the wiring's gap to the bound and its longest path over servers, a line a group size."""
    degree = min(int(row["degree"] or 0) for row in rows)
    rule = rows[0]["selection"]
    mine = [row for row in rows if row["degree"] == degree and row["selection"] == rule]
    shares = list(dict.fromkeys(row["transfer_share"] for row in mine))
    figure, panels = panels_of(2 * len(shares), wide=2)
    named: list[Row] = [
        {**row, "of": "all" if row["group"] == row["servers"] else f"{row['group']}"}
        for row in mine
    ]
    sizes = sorted({int(row["servers"] or 0) for row in mine})
    for line, share in enumerate(shares):
        for axes, (value, scale, label) in zip(
            panels[2 * line :],
            (("wiring_gap", 100.0, "busiest link over bound - 1 [%]"),
             ("mean_distance_hops", 1.0, "mean distance [hops]")),
            strict=False,
        ):  # fmt: skip
            for place, group in enumerate(("4", "16", "all")):
                dots = [
                    (size, found[0]) for size in sizes
                    if (found := values_of(named, {"servers": size, "of": group,
                                                   "transfer_share": share}, value, scale))
                ]  # fmt: skip
                if dots:
                    axes.plot(*zip(*dots, strict=True), marker=MARKS[place], color=PALETTE[place],
                              label=f"groups of {group}")  # fmt: skip
            if value == "mean_distance_hops":
                moore = [values_of(named, {"servers": size}, "moore_mean_hops")[0]
                         for size in sizes]  # fmt: skip
                axes.plot(sizes, moore, ":", color="#999999", label="least possible (Moore)")
            axes.set_xscale("log", base=2)
            axes.set_xticks(sizes, [str(size) for size in sizes])
            axes.set_ylim(bottom=0)
            axes.grid(alpha=0.3)
            axes.set_xlabel("servers")
            axes.set_ylabel(label)
            axes.set_title(f"{float(share or 0):.0%} all-to-all, d={degree}", fontsize="medium")
    legend_below(figure, panels[1])
    return {"scale": figure}


EXPERIMENT = Experiment(
    name="scale",
    description=(
        "Topologies for AllReduce groups of 4, 16 and all servers, without and with 10 % of the "
        "bytes sent all-to-all. timings.csv has the time that building took (build_s)."
    ),
    source="extends TopoOpt (NSDI 2023), section 4, to group sizes and scale",
    grid=_grid((16, 32, 64, 128, 256, 512, 1024), (4, 8), ("geometric", "exact")),
    quick_grid=_grid((16, 64, 128), (4,), ("geometric",)),
    columns=(
        "ports_for_rings", "diameter_hops", "moore_diameter_hops", "mean_distance_hops",
        "moore_mean_hops", "bandwidth_tax", "busiest_link_s", "wiring_gap", "build_s",
    ),
    timings=("build_s",),
    case=case,
    tabulate=tabulate,
    draw=draw,
)  # fmt: skip

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
