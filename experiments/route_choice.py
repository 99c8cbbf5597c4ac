"""Transfers by coin change, k-shortest paths, all shortest paths, and least congestion."""

from collections.abc import Sequence

from codesign_base.arrays import Floats
from parallelism.models import get_model
from parallelism.taskgraph import traffic_of
from routing.coin_change import coin_change_routes
from routing.multicommodity import min_congestion
from routing.network import Network
from routing.paths import ecmp_routes, k_shortest_routes, shortest_routes
from routing.routes import Routes
from topoopt.experiment import Experiment, Figures, Row, Table, pivots, run_from_command_line
from topoopt.experiment.plots import grouped_bars, legend_below, panels_of
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.simulation import simulate
from topoopt.problem.ports import PortModel
from topoopt.studies.setting import setting
from topoopt.topology.select import select_permutations
from topoopt.topology.totient import ring_order
from topoopt.topology.wiring import Wiring

ROUTERS = ("coin change", "k-shortest", "all shortest", "one shortest", "least congestion")


def routed(
    router: str, network: Network, steps: Sequence[int], demand: Floats, seed: int
) -> Routes:
    """Return the routes of transfers by one of `ROUTERS`.

    Parameters
    ----------
    router : str
    network : Network
    steps : sequence of int
        Generators of its rings.
    demand : float64 array, shape (hosts, hosts)
        Bytes of the transfers, for least congestion; pairs without any go over all shortest
        paths there.
    seed : int
        Of ``one shortest``.

    Returns
    -------
    Routes
    """
    if router == "coin change":
        return coin_change_routes(network, steps)
    if router == "k-shortest":
        return k_shortest_routes(network, 8, slack=1)
    if router == "one shortest":
        return shortest_routes(network, seed=seed)
    if router == "least congestion":
        return min_congestion(network, demand, 0.01).routes()
    return ecmp_routes(network)


def case(
    model: str, strategy: str, servers: int, degree: int, bandwidth_gbps: float, router: str,
    seed: int,
) -> dict[str, object]:  # fmt: skip
    """Simulate one iteration on TotientPerms rings over all ports; AllReduces stay on their rings.

    Parameters
    ----------
    model, strategy : str
    servers, degree : int
    bandwidth_gbps : float
        Of a port, each way.
    router : str
    seed : int

    Returns
    -------
    dict
        ``transfer_s``: what transfers alone keep the busiest link; ``bound_s``: no routing has
        less, within 1 %.
    """
    given = setting(get_model(model), servers, degree, bandwidth_gbps)
    tasks = given.builder.build(given.strategy(strategy))
    demand = traffic_of(tasks).transfers
    steps = select_permutations(servers, degree)
    everyone = tuple(range(servers))
    wiring = Wiring(servers, degree, PortModel.DIRECTED)
    for step in steps:
        wiring.add_ring(everyone, step)
    network = wiring.network(router, given.cluster.port_rate, given.cluster.hop_latency)
    routes = routed(router, network, steps, demand, seed)
    rings = tuple(ring_order(everyone, step) for step in steps)
    fabric = Fabric(router, network, routes, {everyone: rings}, ecmp_routes(network))
    loads = routes.link_bytes(network, demand.ravel()) / network.capacity
    return {
        "iteration_time_s": simulate(fabric, tasks).makespan,
        "transfer_s": float(loads.max()),
        "bound_s": min_congestion(network, demand, 0.01).lower_bound,
        "mean_hops": float((routes.hops * demand.ravel()).sum() / demand.sum()),
    }


def tabulate(rows: Sequence[Row]) -> list[Table]:
    """Return iteration time, the transfers' busiest link over the bound, and hops, by router."""
    bounded: list[Row] = [
        {
            **row,
            "over_bound": (
                float(row["transfer_s"] or 0) / float(row["bound_s"]) if row["bound_s"] else None
            ),
        }
        for row in rows
    ]
    titles = {
        "iteration_time_s": "iteration time in seconds",
        "over_bound": "busiest link of the transfers over the least of any routing",
        "mean_hops": "hops of a transferred byte",
    }
    label = "{model}, {strategy}, {servers} x {degree} x {bandwidth_gbps} Gbps, seed {seed}"
    return pivots(bounded, titles, columns="router", label=label)


def draw(rows: Sequence[Row]) -> Figures:
    """Draw time and the busiest link of the transfers under each router; a row a job."""
    jobs = list(dict.fromkeys((r["strategy"], r["bandwidth_gbps"]) for r in rows))
    figure, panels = panels_of(2 * len(jobs), wide=2, size=(4.2, 2.8))
    for line, (strategy, gbps) in enumerate(jobs):
        mine: list[Row] = [
            {**row, "ports": f"d={row['degree']}"} for row in rows
            if (row["strategy"], row["bandwidth_gbps"]) == (strategy, gbps)
        ]  # fmt: skip
        left, right = panels[2 * line : 2 * line + 2]
        grouped_bars(left, mine, group="ports", kind="router", value="iteration_time_s", scale=1e3)
        left.set_ylabel("iteration time [ms]")
        grouped_bars(right, mine, group="ports", kind="router", value="transfer_s", scale=1e3)
        right.set_ylabel("busiest link, transfers [ms]")
        for at, ports in enumerate(dict.fromkeys(row["ports"] for row in mine)):
            bound = 1e3 * max(float(r["bound_s"] or 0) for r in mine if r["ports"] == ports)
            right.hlines(bound, at - 0.45, at + 0.45, color="#CC79A7", linestyle="--",
                         label=None if at else "least of any routing")  # fmt: skip
        for axes in (left, right):
            axes.set_title(f"{strategy}, {gbps} Gbps a port", fontsize="medium")
    legend_below(figure, panels[1], 3)
    return {"route-choice": figure}


EXPERIMENT = Experiment(
    name="route-choice",
    description=(
        "A fixed strategy on the same rings under five routings of its transfers; rings keep to "
        "their links. Least congestion is of the iteration's summed transfers, which need not be "
        "what a schedule likes best."
    ),
    source="TopoOpt (NSDI 2023), section 4, CoinChangeMod; ablation",
    grid={
        "model": ["dlrm-16"],
        "strategy": ["hybrid", "sharded-tables-8"],
        "servers": [16],
        "degree": [2, 4, 8],
        "bandwidth_gbps": [25, 100],
        "router": list(ROUTERS),
        "seed": [0],
    },
    quick_grid={
        "strategy": ["hybrid"],
        "degree": [2, 4],
        "bandwidth_gbps": [25],
    },
    columns=("iteration_time_s", "transfer_s", "bound_s", "mean_hops"),
    case=case,
    tabulate=tabulate,
    draw=draw,
)

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
