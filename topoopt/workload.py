"""What `topoopt simulate` plays: the tasks of a task-graph file or of a plan."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from codesign_base import InputError
from parallelism.taskgraph import Phase, TaskGraph, TaskKind
from topoopt.fabric.fabric import Fabric

if TYPE_CHECKING:
    from routing.routes import Routes
    from topoopt.formats.fbuf_file import FbufFile
    from topoopt.plan import Plan


@dataclass(frozen=True, eq=False)
class Workload:
    """The tasks of one iteration, and what their file says about a network.

    Parameters
    ----------
    name : str
        Of the file, without its ending.
    kind : {"task-graph file", "plan"}
    tasks : TaskGraph
    label : callable
        What a trace calls a task, by its index.
    processors : int
        The first devices of the task graph are processors; others serve transfers inside a
        server.
    port_rate : float
        Bytes/s of one port, 0 if the file has none.
    ports : int
        Ports of a server.
    latency : float or None
        Seconds of a hop; None if the file does not say.
    direct : bool
        Whether the file has a direct-connect network of its own.
    own : callable
        Makes the fabric of the file's own network for a port rate (bytes/s) and a latency (s).
    """

    name: str
    kind: str
    tasks: TaskGraph
    label: Callable[[int], str]
    processors: int
    port_rate: float
    ports: int
    latency: float | None
    direct: bool
    own: Callable[[float, float], Fabric]


def load_workload(path: str | Path) -> Workload:
    """Read what is to be simulated.

    Parameters
    ----------
    path : str or Path
        A plan if its name ends in ``.json``, a task-graph file if in ``.fbuf``.

    Returns
    -------
    Workload

    Raises
    ------
    InputError
        If the name has another ending, or the file cannot be read or is malformed.
    """
    suffix = Path(path).suffix.lower()
    if suffix == ".fbuf":
        from topoopt.formats.fbuf_read import read_fbuf

        return fbuf_workload(read_fbuf(path), Path(path).stem)
    if suffix == ".json":
        from topoopt.plan import load_plan

        return plan_workload(load_plan(path), Path(path).stem)
    raise InputError(
        f"{str(path)!r} ends neither in .fbuf (task graph) nor in .json (plan); name a file of "
        "either kind"
    )


def fbuf_workload(file: "FbufFile", name: str) -> Workload:
    """Return the workload of a task-graph file.

    Parameters
    ----------
    file : FbufFile
    name : str

    Returns
    -------
    Workload
        A file with one switch only, as published, has no direct-connect network.
    """
    from topoopt.formats.taskgraph_fbuf import task_graph_of

    found = task_graph_of(file)
    hosts = file.nodes
    degree = np.bincount(
        np.concatenate((file.conn_source, file.conn_target)),
        weights=np.concatenate((file.conn_cables, file.conn_cables)),
        minlength=hosts,
    )[:hosts]
    return Workload(
        name=name,
        kind="task-graph file",
        tasks=found.graph,
        label=found.label,
        processors=found.compute_devices,
        port_rate=file.net_bandwidth,
        ports=max(1, int(degree.max(initial=0.0))),
        latency=None,
        direct=file.switches == 0 and bool(file.conn_source.size),
        own=lambda rate, latency: _fbuf_fabric(file, name, rate, latency),
    )


def _fbuf_fabric(file: "FbufFile", name: str, rate: float, latency: float) -> Fabric:
    from topoopt.formats.fbuf_network import network_of, rings_of, routes_of

    network = network_of(file, latency, name)
    if rate != file.net_bandwidth:
        network = replace(network, capacity=network.multiplicity.astype(np.float64) * rate)
    routes = routes_of(file, network)
    rings = rings_of(file)
    fabric = Fabric("own network", network, routes, rings)
    jumps = file.ring_jumps()
    if not jumps:
        return fabric
    return replace(fabric, ring_routes=_ring_routes(fabric, jumps))


def _ring_routes(fabric: Fabric, jumps: "dict[int, tuple[tuple[int, ...], ...]]") -> "Routes":
    """Return the file's routes, with those of ring edges along the jumps that the file gives.

    Where the rings of two group sizes join one pair along different links, the pair takes both
    in equal parts.
    """
    from routing.routes import Routes

    network, routes = fabric.network, fabric.routes
    hosts = network.hosts
    paths: dict[int, list[tuple[int, ...]]] = {}
    for group, orders in fabric.rings.items():
        for order, steps in zip(orders, jumps[len(group)], strict=True):
            for a, b in zip(order, order[1:] + order[:1], strict=True):
                nodes = [a]
                for jump in steps:
                    nodes.append((nodes[-1] + jump) % hosts)
                links = tuple(network.link(s, t) for s, t in pairwise(nodes))
                known = paths.setdefault(a * hosts + b, [])
                if links not in known:
                    known.append(links)
    rows: list[tuple[list[int], list[float]]] = []
    latency, hops = routes.latency.copy(), routes.hops.copy()
    for pair in range(hosts * hosts):
        found = paths.get(pair)
        if found is None:
            links_, weights = routes.row(*divmod(pair, hosts))
            rows.append((links_.tolist(), weights.tolist()))
            continue
        shares: dict[int, float] = {}
        for path in found:
            for link in path:
                shares[link] = shares.get(link, 0.0) + 1.0 / len(found)
        used = sorted(shares)
        rows.append((used, [min(shares[link], 1.0) for link in used]))
        latency[pair] = max(float(network.latency[list(path)].sum()) for path in found)
        hops[pair] = sum(shares.values())
    lengths = np.array([len(row[0]) for row in rows], dtype=np.int64)
    return Routes(
        hosts,
        np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        np.array([link for row in rows for link in row[0]], dtype=np.int64),
        np.array([weight for row in rows for weight in row[1]], dtype=np.float64),
        latency,
        hops,
    )


def plan_workload(plan: "Plan", name: str) -> Workload:
    """Return the workload of a plan.

    Parameters
    ----------
    plan : Plan
    name : str

    Returns
    -------
    Workload

    Raises
    ------
    InputError
        If the plan is not well formed.
    """
    from topoopt.rebuild import rebuild

    built = rebuild(plan)
    tasks = built.builder.build(built.strategy)
    names = [op.name for op in plan.model.operators]

    def label(task: int) -> str:
        kind, phase = TaskKind(tasks.kind[task]), Phase(tasks.phase[task]).name.lower()
        operator = int(tasks.operator[task])
        of = f" of {names[operator]}" if 0 <= operator < len(names) else ""
        if kind is TaskKind.COMPUTE:
            return f"{phase}{of}"
        if kind is TaskKind.TRANSFER:
            return f"{phase}{of} {tasks.first[task]}->{tasks.second[task]}"
        return f"AllReduce{of} over {len(tasks.groups[tasks.first[task]])} servers"

    return Workload(
        name=name,
        kind="plan",
        tasks=tasks,
        label=label,
        processors=tasks.devices,
        port_rate=plan.cluster.bandwidth_bytes_per_s,
        ports=plan.cluster.degree,
        latency=plan.cluster.latency_s,
        direct=True,
        own=lambda _rate, _latency: built.fabric,
    )
