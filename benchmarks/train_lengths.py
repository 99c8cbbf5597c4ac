"""A transfer beside ring AllReduces: its time in packet trains over that in single packets.

``python benchmarks/train_lengths.py`` draws sixty messages and rounds, and prints for every length
of trains the geometric mean of this ratio and the standard deviation of its logarithm.
"""

from itertools import pairwise

import numpy as np

from parallelism.taskgraph import TaskGraph, TaskKind
from routing.network import Network
from routing.paths import ecmp_routes
from topoopt.fabric import PACKETS, Fabric, Transport
from topoopt.fabric.packets import run_packets

SERVERS, RATE, LATENCY = 6, 3.125e9, 1e-6
LENGTHS = (64, 32, 16, 8, 1)
PAIRS = 60


def ring(length: int) -> Fabric:
    """Return servers on a one-way ring of 25 Gbps ports, for trains of at most this length."""
    source = np.arange(SERVERS)
    target = (source + 1) % SERVERS
    network = Network.from_links("ring", SERVERS, 0, source, target, RATE, LATENCY)
    group = tuple(range(SERVERS))
    return Fabric(
        "ring",
        network,
        ecmp_routes(network),
        rings={group: (group,)},
        transport=Transport(reconnect=True, train_packets=length),
    )


def iteration(packets: int, in_round: int) -> TaskGraph:
    """Return a transfer of so many packets beside AllReduces that last longer than it does."""
    size = PACKETS.segment_bytes
    reduces = -(-6 * packets // (10 * in_round)) + 2
    tasks = [(TaskKind.TRANSFER, 0, 1, packets * size, 0.0)]
    tasks += [(TaskKind.ALLREDUCE, 0, -1, SERVERS * in_round * size, 0.0)] * reduces
    after = list(pairwise(range(1, reduces + 1)))
    return TaskGraph.from_lists(SERVERS, tasks, after, (tuple(range(SERVERS)),))


def main() -> None:
    """Print the table."""
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(PAIRS):
        in_round = int(np.exp(rng.uniform(np.log(20), np.log(2000))))
        packets = int(np.exp(rng.uniform(np.log(100), np.log(4000))))
        tasks = iteration(packets, in_round)
        times = [run_packets(ring(length), tasks).finish[0] for length in LENGTHS]
        ratios.append(np.log(np.array(times) / times[-1]))
    for column, length in enumerate(LENGTHS[:-1]):
        found = np.array(ratios)[:, column]
        print(f"{length:3d} packets  mean {np.exp(found.mean()):.2f}  deviation {found.std():.2f}")


if __name__ == "__main__":
    main()
