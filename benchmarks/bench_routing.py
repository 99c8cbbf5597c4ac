"""Certified routing beside LP solvers; run by hand: ``python benchmarks/bench_routing.py``.

All-to-all plus hot pairs on random regular and circulant networks of degree 4. Every line gives
CPU seconds on one core (kernels warm, best of several for the short ones), the congestion, the
bound it proved, and its gap. ``--solvers`` adds HiGHS and OR-tools PDLP at N = 128, which take
from seconds to minutes; ``--large`` adds N = 1024.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from routing.congestion_lp import min_congestion_lp
from routing.multicommodity import min_congestion
from routing.network import Network
from topoopt.problem.ports import PortModel
from topoopt.studies.failures import random_cables
from topoopt.studies.repairs import fail_cables
from topoopt.topology.fabrics import random_regular


def circulant(hosts: int, steps: tuple[int, ...]) -> Network:
    i = np.arange(hosts)
    source = np.concatenate([i for _ in steps])
    target = np.concatenate([(i + p) % hosts for p in steps])
    return Network.from_links("circulant", hosts, 0, source, target, 1.0, 1e-6)


def random_network(hosts: int, degree: int = 4, seed: int = 1) -> Network:
    rng = np.random.default_rng(seed)
    return random_regular(hosts, degree, 1.0, 1e-6, rng, PortModel.DIRECTED)[0]


def hot_pairs(hosts: int, pairs: int = 32, amount: float = 20.0, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    demand = np.ones((hosts, hosts)) - np.eye(hosts)
    for _ in range(pairs):
        a, b = rng.choice(hosts, 2, replace=False)
        demand[a, b] += amount
    return demand / demand.sum() * hosts


def line(name: str, work: Callable[[], Any], repeats: int = 1) -> Any:
    best = np.inf
    for _ in range(repeats):
        began = time.process_time()
        found = work()
        best = min(best, time.process_time() - began)
    print(
        f"{name:44s} {best:9.3f} s  congestion {found.congestion:.6f}  "
        f"bound {found.lower_bound:.6f}  gap {found.gap:.2e}",
        flush=True,
    )
    return found


def pdlp(network: Network, demand: np.ndarray, tolerance: float) -> tuple[float, float]:
    """Return seconds and objective of OR-tools PDLP on the by-source formulation."""
    from ortools.linear_solver import pywraplp

    solver = pywraplp.Solver.CreateSolver("PDLP")
    solver.SetSolverSpecificParametersAsString(
        "termination_criteria { simple_optimality_criteria { "
        f"eps_optimal_absolute: {tolerance} eps_optimal_relative: {tolerance} }} }}"
    )
    top = solver.NumVar(0, solver.infinity(), "")
    room = [solver.Constraint(-solver.infinity(), 0.0) for _ in range(network.links)]
    for link, row in enumerate(room):
        row.SetCoefficient(top, -float(network.capacity[link]))
    for s in range(network.hosts):
        keep = {
            v: solver.Constraint(float(demand[s, v]), float(demand[s, v]))
            for v in range(network.hosts)
            if v != s
        }
        ends = zip(network.source.tolist(), network.target.tolist(), strict=True)
        for link, (a, b) in enumerate(ends):
            if b == s:
                continue
            flow = solver.NumVar(0, solver.infinity(), "")
            room[link].SetCoefficient(flow, 1.0)
            keep[b].SetCoefficient(flow, 1.0)
            if a != s:
                keep[a].SetCoefficient(flow, -1.0)
    solver.Minimize(top)
    began = time.process_time()
    solver.Solve()
    return time.process_time() - began, solver.Objective().Value()


def warm_starts() -> None:
    """Route again after the demand changed and after cables failed, cold and from the last."""
    network, demand = random_network(128), hot_pairs(128)
    rng = np.random.default_rng(5)
    other = demand * (1.0 + 0.1 * rng.random(demand.shape))
    moved = hot_pairs(128, seed=9)
    dead = fail_cables(network, random_cables(network, 3, rng, both_ways=False)).network
    for accuracy in (0.05, 0.01, 0.001):
        before = min_congestion(network, demand, accuracy)
        for name, net, wanted in (
            ("10 % noise", network, other),
            ("other hot pairs", network, moved),
            ("3 cables fewer", dead, demand),
        ):
            cold = line(f"N=128 {name}, {accuracy:g}, cold",
                        lambda n=net, d=wanted, a=accuracy: min_congestion(n, d, a), 5)  # type: ignore[misc]  # fmt: skip
            warm = line(f"N=128 {name}, {accuracy:g}, warm",
                        lambda n=net, d=wanted, a=accuracy, s=before: min_congestion(n, d, a, start=s),  # type: ignore[misc]  # noqa: E501
                        5)  # fmt: skip
            print(f"{'':44s} rounds {cold.rounds} cold, {warm.rounds} warm")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--solvers", action="store_true")
    parser.add_argument("--large", action="store_true")
    options = parser.parse_args()
    warm = random_network(16)
    min_congestion(warm, hot_pairs(16, 4))
    min_congestion_lp(warm, hot_pairs(16, 4))
    for name, network in (
        ("random regular", random_network(128)),
        ("circulant 1,13", circulant(128, (1, 13, 115, 127))),
    ):
        demand = hot_pairs(128)
        for accuracy in (0.05, 0.02, 0.01, 0.001, 0.0001):
            label = f"N=128 {name}, {accuracy:g}"
            line(label, lambda a=accuracy, n=network, d=demand: min_congestion(n, d, a), 5)  # type: ignore[misc]
    warm_starts()
    even = np.ones((128, 128)) - np.eye(128)
    for steps in ((1, 13, 115, 127), (1, 5, 13, 39)):
        network = circulant(128, steps)
        line(f"N=128 symmetric {steps}", lambda n=network: min_congestion(n, even), 5)  # type: ignore[misc]
    if options.large:
        network, demand = random_network(1024), hot_pairs(1024)
        for accuracy in (0.05, 0.01):
            line(
                f"N=1024 random regular, {accuracy:g}",
                lambda a=accuracy: min_congestion(network, demand, a),
            )  # type: ignore[misc]
    if options.solvers:
        network, demand = random_network(128), hot_pairs(128)
        line("N=128 HiGHS interior point, crossover", lambda: min_congestion_lp(network, demand))
        seconds, value = pdlp(network, demand, 1e-4)
        print(f"{'N=128 OR-tools PDLP 1e-4':44s} {seconds:9.3f} s  congestion {value:.6f}")


if __name__ == "__main__":
    main()
