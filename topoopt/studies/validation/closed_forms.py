"""Small networks whose iteration time is known in closed form.

A message of S bytes over h links of rate b and delay d, alone, takes 2 h d + W / b +
(h - 1) P / b seconds: set-up and propagation, W = P ceil(S / P) bytes in packets of P bytes,
and store-and-forward. The formulas below follow from that by hand, and use nothing of the
simulator.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np

from parallelism.taskgraph import TaskGraph, TaskKind
from routing.network import Network
from routing.paths import ecmp_routes
from topoopt.fabric.fabric import Fabric
from topoopt.topology.fabrics import ideal_switch

RATE = 12.5e9
"""Bytes/s of every link."""

DELAY = 1e-6
"""Seconds of every hop."""

PACKET = 8936.0
"""Bytes of a packet."""

_EXACT = 1e-9
"""Relative error that rounding may make."""

_QUEUED = 1e-3
"""Relative error allowed where windows of a few packets keep one queue from running empty."""

SHARED = 0.02
"""Relative error allowed where flows that share a link are whole packets, not a fluid."""

Built = tuple[Fabric, TaskGraph]


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """A case whose iteration time a formula gives.

    Parameters
    ----------
    name, family : str
    time_s : float
        What a formula says.
    tolerance : mapping of str to float
        Largest relative error of each simulation model.
    build : callable
        Makes the fabric and its task graph.
    """

    name: str
    family: str
    time_s: float
    tolerance: Mapping[str, float]
    build: Callable[[], Built]


def closed_forms() -> tuple[ClosedForm, ...]:
    """Return all cases with a closed form."""
    exact = {"fluid": _EXACT, "packet": _EXACT}
    cases = []
    for servers in (4, 16, 64):
        for where, hops in (("ideal-switch", 2), ("direct-ring", 1)):
            cases.append(
                ClosedForm(
                    f"ring-allreduce-{servers}-{where}",
                    "ring-allreduce",
                    # 2 (n - 1) rounds of a message of S / n.
                    2 * (servers - 1) * alone(1e8 / servers, hops),
                    exact,
                    _builder(_ring, servers, 1e8, hops),
                )
            )
    for servers in (4, 16):
        cases.append(
            ClosedForm(
                f"all-to-all-{servers}-full-mesh",
                "all-to-all",
                # Every message is alone on its link.
                alone(1e7, 1),
                exact,
                _builder(_all_to_all, servers, 1e7),
            )
        )
    for servers in (4, 16):
        cases.append(
            ClosedForm(
                f"incast-{servers}-ideal-switch",
                "incast",
                # n - 1 messages one after another through the receiver's link.
                alone(1e7, 2, messages=servers - 1),
                {"fluid": _EXACT, "packet": _QUEUED},
                _builder(_incast, servers, 1e7),
            )
        )
    for links in (2, 4):
        cases.append(
            ClosedForm(
                f"parking-lot-{links}-links",
                "parking-lot",
                # A message of 3 S over all links of a line, and one of S over each: the long one
                # ends when its first link has carried all.
                alone(3e8, links) + wire(1e8) / RATE,
                {"fluid": _EXACT, "packet": SHARED},
                _builder(_parking_lot, links, 1e8),
            )
        )
    return tuple(cases)


def wire(size: float) -> float:
    """Return the bytes of the packets of a message."""
    return PACKET * ceil(size / PACKET)


def alone(size: float, hops: int, messages: int = 1) -> float:
    """Return the seconds of messages one right behind the other on an empty path."""
    return 2 * hops * DELAY + messages * wire(size) / RATE + (hops - 1) * PACKET / RATE


def _builder(make: Callable[..., Built], *numbers: float) -> Callable[[], Built]:
    return lambda: make(*numbers)


def _direct(name: str, hosts: int, ends: list[tuple[int, int]], ring: bool = False) -> Fabric:
    network = Network.from_links(
        name, hosts, 0, [a for a, _ in ends], [b for _, b in ends], RATE, DELAY
    )
    group = tuple(range(hosts))
    return Fabric(name, network, ecmp_routes(network), {group: (group,)} if ring else {})


def _switch(hosts: int) -> Fabric:
    return Fabric("ideal switch", *ideal_switch(hosts, RATE, DELAY))


def _transfers(hosts: int, moves: list[tuple[int, int, float]]) -> TaskGraph:
    return TaskGraph.from_lists(hosts, [(TaskKind.TRANSFER, *move, 0.0) for move in moves], [])


def _ring(servers: int, size: float, hops: int) -> Built:
    tasks = TaskGraph.from_lists(
        servers, [(TaskKind.ALLREDUCE, 0, -1, size, 0.0)], [], (tuple(range(servers)),)
    )
    if hops == 2:
        return _switch(servers), tasks
    ends = [(server, (server + 1) % servers) for server in range(servers)]
    return _direct("ring", servers, ends, ring=True), tasks


def _all_to_all(servers: int, size: float) -> Built:
    pairs = np.argwhere(~np.eye(servers, dtype=bool)).tolist()
    ends = [(int(a), int(b)) for a, b in pairs]
    return _direct("full mesh", servers, ends), _transfers(servers, [(a, b, size) for a, b in ends])


def _incast(servers: int, size: float) -> Built:
    return _switch(servers), _transfers(servers, [(a, 0, size) for a in range(1, servers)])


def _parking_lot(links: int, size: float) -> Built:
    steps = [(at, at + 1) for at in range(links)]
    # Both ways, because every server must reach every other.
    fabric = _direct("line", links + 1, [*steps, *((b, a) for a, b in steps)])
    moves = [(0, links, 3 * size), *((a, b, size) for a, b in steps)]
    return fabric, _transfers(links + 1, moves)
