"""Speed of the topology finder: many groups of several sizes and matching, up to 1,024 servers.

    python benchmarks/bench_topology.py [--servers 1024] [--degree 8] [--repeat 3]

Prints CPU seconds (the least of the repetitions) of one topology for each demand, port model and
way to choose rings, and the proven gap of its matchings.
"""

import argparse
import time

import numpy as np

from parallelism.taskgraph import Traffic
from topoopt.problem.ports import PortModel
from topoopt.topology.choosing import Selection
from topoopt.topology.finder import find_topology


def traffic(servers: int, partners: int | None, seed: int = 0) -> Traffic:
    """Return groups of three sizes, and demand with so many partners (None: all)."""
    rng = np.random.default_rng(seed)
    everyone = tuple(range(servers))
    strided = [tuple(range(k, servers, 16)) for k in range(16)]
    racks = [tuple(range(k, min(k + 8, servers))) for k in range(0, servers, 8)]
    demand = np.zeros((servers, servers))
    if partners is None:
        demand = rng.random((servers, servers)) * 1e8
    else:
        for _ in range(partners // 2):  # every server sends to one and hears from one
            order = rng.permutation(servers)
            demand[order, np.roll(order, 1)] += rng.integers(1, 1000, servers) * 1e6
    np.fill_diagonal(demand, 0.0)
    groups = (everyone, *strided, *racks)
    sizes = np.array([1e8] + [3e8] * len(strided) + [5e8] * len(racks))
    return Traffic(servers, demand, groups, sizes)


def main() -> None:
    """Print one line a case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=1024)
    parser.add_argument("--degree", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    for name, partners in (("32 partners", 32), ("all partners", None)):
        wanted = traffic(given.servers, partners)
        for ports in PortModel:
            for selection, placement in (
                (Selection.GEOMETRIC, False),
                (Selection.TRAFFIC, False),
                (Selection.TRAFFIC, True),
            ):
                spent = []
                for _ in range(given.repeat):
                    begun = time.process_time()
                    found = find_topology(
                        wanted, given.degree, 12.5e9, ports=ports, surplus="rings",
                        selection=selection, placement=placement,
                    )  # fmt: skip
                    spent.append(time.process_time() - begun)
                print(
                    f"{given.servers} servers, degree {given.degree}, {name:12}, {ports:13}, "
                    f"{selection:9} {'placed' if placement else '':6}: {min(spent):7.2f} s CPU, "
                    f"matching gap {100 * found.matching_gap:.3f} %"
                )


if __name__ == "__main__":
    main()
