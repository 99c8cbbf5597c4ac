"""What the second process of a first run compiles; see `topoopt.codesign.ahead`."""

import os
import signal
import sys
import threading

import numpy as np

from codesign_base.jit import compile_for
from codesign_base.rows import starts
from parallelism.taskgraph import TaskGraph, TaskKind
from routing.network import Network
from routing.routes import Routes
from topoopt.bounds.bounds import strategy_bound
from topoopt.fabric.arrays_kernels import Orders
from topoopt.fabric.collapse import collapse
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.flows_kernels import no_flows, update_rates
from topoopt.fabric.iteration_kernels import begun
from topoopt.fabric.orders import task_orders
from topoopt.fabric.packets import run_packets
from topoopt.topology.cayley import select_cayley
from topoopt.topology.circulants import select_circulant


def compile_late_kernels(layouts: bool = False) -> None:
    """Use once, or only compile, what a search needs, in its order, but for what comes first.

    That is parts of the fluid simulation, wirings, rings, packet trains, symmetries and bounds.

    Parameters
    ----------
    layouts : bool
        Whether the search is of layouts, which need packet trains last if at all.
    """
    # Four servers, each joined to every other, routed by hand: the search itself begins with
    # the kernels of task graphs and of routes.
    hosts = 4
    source, target = np.nonzero(~np.eye(hosts, dtype=bool))
    links = source.size
    network = Network(
        "mesh", hosts, 0, source, target, np.full(links, 1e9), np.full(links, 1e-6),
        np.ones(links, dtype=np.int64),
    )  # fmt: skip
    there = np.zeros(hosts * hosts)
    there[source * hosts + target] = 1.0
    routes = Routes(
        hosts, starts(there), np.arange(links), np.ones(links), 1e-6 * there, there.copy()
    )
    fabric = Fabric("mesh", network, routes)
    sent = [
        *((TaskKind.COMPUTE, server, -1, 1e-3, 0.0) for server in range(hosts)),
        *(
            (TaskKind.TRANSFER, a, b, 1e4, 0.0)
            for a, b in zip(source.tolist(), target.tolist(), strict=True)
        ),
    ]
    after = [(0, hosts), (1, hosts + 1)]
    _compile_fluid(task_orders(fabric, TaskGraph.from_lists(hosts, sent, after, ())))
    select_circulant(8, 3)
    select_cayley(6, 2)
    summed = [*sent, (TaskKind.ALLREDUCE, 0, -1, 1e4, 0.0)]
    tasks = TaskGraph.from_lists(hosts, summed, after, (tuple(range(hosts)),))
    # A search by packets needs symmetries before them, but would wait for packets thereafter: it
    # compiles symmetries itself meanwhile. Bounds of the plan come last of all.
    if not layouts:
        run_packets(fabric, tasks)
    collapse(task_orders(fabric, tasks))
    strategy_bound(tasks, 3, 1e9)
    if layouts:
        run_packets(fabric, tasks)


def _compile_fluid(orders: Orders) -> None:
    """Compile what the fluid simulation is made of, but for the loop itself.

    The search reaches it while the other process would still be busy, and it is the largest of
    what that compiles.
    """
    flows = no_flows(
        orders.compute.size, orders.rows, orders.slots, orders.entries, orders.links,
        orders.weights, orders.capacity,
    )  # fmt: skip
    compile_for(update_rates, flows, 0.0, 1, 0.0)
    compile_for(begun, orders)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    compile_late_kernels("layouts" in sys.argv[1:])
