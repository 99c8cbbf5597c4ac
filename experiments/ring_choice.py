"""Rings by TotientPerms against random coprime steps, random permutations and a single ring."""

import statistics
from collections.abc import Sequence

import numpy as np

from parallelism.models import get_model
from routing.paths import ecmp_routes, hop_distances
from topoopt.experiment import Experiment, Figures, Row, Table, grouped, run_from_command_line
from topoopt.experiment.plots import grouped_bars, legend_below, panels_of
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.simulation import simulate
from topoopt.problem.ports import PortModel
from topoopt.studies.setting import setting
from topoopt.topology.select import select_permutations
from topoopt.topology.totient import ring_order, totient_permutations
from topoopt.topology.wiring import Wiring

RULES = ("geometric", "random coprime steps", "random permutations", "single ring")


def orders(rule: str, servers: int, degree: int, seed: int) -> list[tuple[int, ...]]:
    """Return the ring on each port of a server.

    Parameters
    ----------
    rule : str
        One of `RULES`. ``geometric`` is TotientPerms with SelectPermutations; the single ring
        has all ports in parallel.
    servers, degree : int
    seed : int
        Of the random rules.

    Returns
    -------
    list of tuple of int
    """
    rng = np.random.default_rng(seed)
    everyone = tuple(range(servers))
    if rule == "random permutations":
        return [tuple(rng.permutation(servers).tolist()) for _ in range(degree)]
    if rule == "geometric":
        steps = select_permutations(servers, degree)
    elif rule == "random coprime steps":
        known = totient_permutations(servers)
        steps = tuple(rng.choice(known, min(degree, len(known)), replace=False).tolist())
    else:
        steps = (1,) * degree
    return [ring_order(everyone, step) for step in steps]


def case(
    model: str, strategy: str, servers: int, degree: int, bandwidth_gbps: float, rule: str,
    seed: int,
) -> dict[str, object]:  # fmt: skip
    """Wire rings on all ports and simulate one iteration over them, routed over all shortest paths.

    Parameters
    ----------
    model, strategy : str
    servers, degree : int
    bandwidth_gbps : float
        Of a port, each way.
    rule : str
    seed : int

    Returns
    -------
    dict
        The columns of `EXPERIMENT`.
    """
    given = setting(get_model(model), servers, degree, bandwidth_gbps)
    tasks = given.builder.build(given.strategy(strategy))
    rings = orders(rule, servers, degree, seed)
    wiring = Wiring(servers, degree, PortModel.DIRECTED)
    for ring in rings:
        members = np.array(ring)
        wiring.cables[members, np.roll(members, -1)] += 1
    network = wiring.network(rule, given.cluster.port_rate, given.cluster.hop_latency)
    fabric = Fabric(rule, network, ecmp_routes(network), {tuple(range(servers)): tuple(rings)})
    timeline = simulate(fabric, tasks)
    distance = hop_distances(network)
    return {
        "iteration_time_s": timeline.makespan,
        "diameter_hops": int(distance.max()),
        "mean_distance_hops": float(distance.sum()) / (servers * (servers - 1)),
        "busiest_link_s": float((timeline.link_bytes / network.capacity).max()),
    }


def tabulate(rows: Sequence[Row]) -> Table:
    """Return each rule's mean and worst over its seeds, and its mean time over geometric's."""
    lines = []
    jobs = grouped(rows, "model", "strategy", "servers", "degree", "bandwidth_gbps")
    for (model, strategy, servers, degree, gbps), rules in jobs.items():
        means = {}
        for (rule,), mine in grouped(rules, "rule").items():
            times = [float(row["iteration_time_s"] or 0) for row in mine]
            means[rule] = statistics.fmean(times)
            lines.append(
                (
                    f"{model}, {strategy}", f"{servers} x {degree} x {gbps} Gbps", rule, len(mine),
                    means[rule], max(times), means[rule] / means.get("geometric", means[rule]),
                    max(float(row["diameter_hops"] or 0) for row in mine),
                    statistics.fmean(float(row["mean_distance_hops"] or 0) for row in mine),
                )
            )  # fmt: skip
    columns = ("job", "servers x ports", "rings", "seeds", "mean [s]", "worst [s]",
               "mean over geometric", "largest diameter", "mean distance")  # fmt: skip
    return Table(columns, tuple(lines))


def _grid(
    jobs: Sequence[tuple[str, int]], degrees: Sequence[int], speeds: Sequence[int], seeds: int
) -> list[Row]:
    return [
        {
            "model": model, "strategy": "hybrid", "servers": servers, "degree": degree,
            "bandwidth_gbps": gbps, "rule": rule, "seed": seed,
        }
        for model, servers in jobs
        for degree in degrees
        for gbps in speeds
        for rule in RULES
        for seed in range(seeds if rule.startswith("random") else 1)
    ]  # fmt: skip


def draw(rows: Sequence[Row]) -> Figures:
    """Draw the mean time of each rule, whiskers over its seeds; a panel a job and speed."""
    jobs = list(dict.fromkeys((r["model"], r["bandwidth_gbps"]) for r in rows))
    figure, panels = panels_of(len(jobs), size=(4.4, 2.9))
    for axes, (model, gbps) in zip(panels, jobs, strict=True):
        mine = [
            {**row, "ports": f"d={row['degree']}"} for row in rows
            if (row["model"], row["bandwidth_gbps"]) == (model, gbps)
        ]  # fmt: skip
        grouped_bars(axes, mine, group="ports", kind="rule", value="iteration_time_s", scale=1e3)
        axes.set_title(f"{model}, {gbps} Gbps a port", fontsize="medium")
        axes.set_ylabel("iteration time [ms]")
    legend_below(figure, panels[0], 2)
    return {"ring-choice": figure}


EXPERIMENT = Experiment(
    name="ring-choice",
    description=(
        "Iteration time of a fixed strategy where all ports carry AllReduce rings that are chosen "
        "by TotientPerms (geometric), drawn from it, drawn from all permutations, or all the same."
    ),
    source="TopoOpt (NSDI 2023), section 4, TotientPerms and SelectPermutations; ablation",
    grid=_grid((("dlrm-16", 16), ("dlrm-32", 32), ("dlrm", 128)), (4, 8), (25, 100), 10),
    quick_grid=_grid((("dlrm-16", 16),), (4, 8), (25,), 5),
    columns=("iteration_time_s", "diameter_hops", "mean_distance_hops", "busiest_link_s"),
    case=case,
    tabulate=tabulate,
    draw=draw,
)

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
