"""Plain-Python oracles and small networks for the tests of the fabric."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from math import gcd

import networkx as nx
import numpy as np
from small_networks import circulant_network

from parallelism.taskgraph import TaskGraph, TaskKind
from routing.network import Network
from routing.routes import Routes
from topoopt.fabric import IDEAL, Fabric, Transport
from topoopt.topology.network_json import network_graph

INSTANT = 1e-12


def fill(
    rows: list[dict[int, float]], capacity: list[float], caps: list[float] | None = None
) -> list[float]:
    """Raise all rates together; freeze the flows of each link that fills up, and at their caps."""
    if caps is not None:  # a cap is a link of the flow's own
        rows = [{**row, len(capacity) + f: 1.0} for f, row in enumerate(rows)]
        capacity = [*capacity, *caps]
    rates = [0.0] * len(rows)
    rising = {f for f, row in enumerate(rows) if row}
    spare = dict(enumerate(capacity))
    while rising:
        load: dict[int, float] = {}
        for f in rising:
            for link, weight in rows[f].items():
                load[link] = load.get(link, 0.0) + weight
        step = min(spare[link] / weight for link, weight in load.items())
        if step == float("inf"):
            return [float("inf") if f in rising else rate for f, rate in enumerate(rates)]
        full = {link for link, w in load.items() if spare[link] / w <= step * (1 + 1e-12)}
        for f in rising:
            rates[f] += step
        for link, weight in load.items():
            spare[link] -= step * weight
        rising = {f for f in rising if not full & rows[f].keys()}
    return rates


def fill_by_level(
    rows: list[dict[int, float]], capacity: list[float], caps: list[float], level: list[int]
) -> list[float]:
    """Fill one level after another, each over what those before it leave."""
    rates = [0.0] * len(rows)
    room = list(capacity)
    for each in sorted(set(level)):
        own = [f for f in range(len(rows)) if level[f] == each]
        given = fill([rows[f] for f in own], room, [caps[f] for f in own])
        for f, rate in zip(own, given, strict=True):
            rates[f] = rate
            for link, weight in rows[f].items():
                room[link] -= weight * rate
        # What rounding leaves of a full link is nothing.
        room = [0.0 if left < 1e-9 * capacity[link] else left for link, left in enumerate(room)]
    return rates


def shortest_routes(network: Network, paths: int = 1) -> Routes:
    """Split every pair evenly over up to so many shortest paths."""
    graph = network_graph(network)
    chosen = {}
    for source in range(network.hosts):
        for target in range(network.hosts):
            if source != target and nx.has_path(graph, source, target):
                found = nx.all_shortest_paths(graph, source, target)
                chosen[source, target] = list(islice(found, paths))
    return routes_along(network, chosen)


def routes_along(network: Network, paths: Mapping[tuple[int, int], list[list[int]]]) -> Routes:
    """Split every pair evenly over the given node lists."""
    hosts = network.hosts
    offsets, links, weights = [0], [], []
    latency, hops = np.zeros(hosts * hosts), np.zeros(hosts * hosts)
    for pair in range(hosts * hosts):
        row: dict[int, float] = {}
        for path in paths.get((pair // hosts, pair % hosts), []):
            used = [network.link(a, b) for a, b in pairwise(path)]
            for link in used:
                row[link] = row.get(link, 0.0) + 1 / len(paths[pair // hosts, pair % hosts])
            latency[pair] = max(latency[pair], network.latency[used].sum())
        hops[pair] = sum(row.values())
        links += sorted(row)
        weights += [row[link] for link in sorted(row)]
        offsets.append(len(links))
    return Routes(
        hosts,
        np.array(offsets, dtype=np.int64),
        np.array(links, dtype=np.int64),
        np.array(weights, dtype=np.float64),
        latency,
        hops,
    )


def circulant(
    hosts: int,
    steps: tuple[int, ...],
    capacity: float = 1.0,
    latency: float = 0.0,
    paths: int = 1,
    transport: Transport = IDEAL,
) -> Fabric:
    """Return hosts joined by the steps +p; those that are one cycle are rings of all hosts."""
    network = circulant_network(hosts, steps, capacity, latency)
    rings = tuple(tuple(i * p % hosts for i in range(hosts)) for p in steps if gcd(p, hosts) == 1)
    group = tuple(range(hosts))
    return Fabric(
        "circulant", network, shortest_routes(network, paths), {group: rings}, transport=transport
    )


def star(
    hosts: int, capacity: float = 1.0, latency: float = 0.0, transport: Transport = IDEAL
) -> Fabric:
    """Return hosts around one switch."""
    up = list(range(hosts)) + [hosts] * hosts
    down = [hosts] * hosts + list(range(hosts))
    network = Network.from_links("star", hosts, 1, up, down, capacity, latency)
    return Fabric("star", network, shortest_routes(network), {}, transport=transport)


def message_lag(fabric: Fabric, routes: Routes, source: int, target: int) -> float:
    """Return what a lone message takes beyond its bytes: set-up, propagation, store-and-forward."""
    way = fabric.transport
    pair = source * routes.hosts + target
    links, _ = routes.row(source, target)
    slowest = min(
        fabric.network.capacity[link] / fabric.network.multiplicity[link] for link in links
    )
    return float(
        routes.latency[pair] * (2 if way.handshake else 1)
        + (routes.hops[pair] - 1) * way.segment_bytes / slowest
    )


def wire(fabric: Fabric, size: float) -> float:
    """Return the whole packets that a message takes."""
    segment = fabric.transport.segment_bytes
    return size if segment == 0 else -(-size // segment) * segment


def ring_edges(fabric: Fabric, order: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the pairs that a ring sends over; htsim begins at places rather than servers."""
    hosts, size = fabric.network.hosts, len(order)
    if fabric.transport.htsim and fabric.network.switches == 0 and size < hosts:
        step = order[1] - order[0]
        return [(place, (place + step) % hosts) for place in range(size)]
    return list(zip(order, order[1:] + order[:1], strict=True))


def stream_row(fabric: Fabric, group: tuple[int, ...]) -> tuple[dict[int, float], float, int]:
    """Return the coupled stream of a group, the lag of a round and its rings."""
    row: dict[int, float] = {}
    latency = 0.0
    orders = fabric.rings_of(group)
    routes = fabric.edge_routes
    for order in orders:
        for source, target in ring_edges(fabric, order):
            links, weights = routes.row(source, target)
            for link, weight in zip(links.tolist(), weights.tolist(), strict=True):
                row[link] = row.get(link, 0.0) + weight
            latency = max(latency, message_lag(fabric, routes, source, target))
    return row, latency, len(orders)


@dataclass
class PlainRun:
    """What the oracle found."""

    start: list[float]
    finish: list[float]
    binding: list[int]
    link_bytes: list[float]
    must_carry: list[float]
    most_used: float


def simulate_plainly(fabric: Fabric, tasks: TaskGraph) -> PlainRun:
    """Simulate with plain lists, and all rates filled anew whenever flows change."""
    n = tasks.tasks
    capacity = fabric.network.capacity.tolist()
    row: list[dict[int, float]] = [{} for _ in range(n)]
    volume, lag, delay = [0.0] * n, [0.0] * n, tasks.delay.tolist()
    cap = [float("inf")] * n
    for t in range(n):
        size, first, second = float(tasks.size[t]), int(tasks.first[t]), int(tasks.second[t])
        volume[t] = size
        if tasks.kind[t] == TaskKind.TRANSFER:
            links, weights = fabric.routes.row(first, second)
            row[t] = dict(zip(links.tolist(), weights.tolist(), strict=True))
            lag[t] = message_lag(fabric, fabric.routes, first, second)
            volume[t] = wire(fabric, size)
        elif tasks.kind[t] == TaskKind.ALLREDUCE:
            g = len(tasks.groups[first])
            volume[t] = 0.0
            if g > 1:
                row[t], latency, rings = stream_row(fabric, tasks.groups[first])
                message = wire(fabric, size / (g * rings))
                volume[t] = 2 * (g - 1) * message
                if size == 0:
                    lag[t] = 2 * (g - 1) * latency
                else:
                    alone = min(capacity[link] / weight for link, weight in row[t].items())
                    cap[t] = message / (message / alone + latency)
    waiting = tasks.predecessors.tolist()
    start, ready, finish = [0.0] * n, [0.0] * n, [float("inf")] * n
    binding = [-1] * n
    first_of_all = [0] * n if tasks.priority is None else tasks.priority.tolist()
    queue: dict[int, list[tuple[int, float, int]]] = {d: [] for d in range(tasks.devices)}
    busy: dict[int, bool] = dict.fromkeys(queue, False)
    last: dict[int, int] = dict.fromkeys(queue, -1)
    left: dict[int, float] = {}
    rate: dict[int, float] = {}
    end: dict[int, float] = {}
    events: list[tuple[float, int, str]] = []
    carried = [0.0] * len(capacity)
    most_used = 0.0
    now = 0.0
    stale = False
    fresh = [t for t in range(n) if waiting[t] == 0]
    while True:
        for t in sorted(fresh):
            ready[t] = start[t] = now
            if tasks.kind[t] == TaskKind.COMPUTE:
                queue[int(tasks.first[t])].append((first_of_all[t], now, t))
            elif volume[t] == 0:
                events.append((now + delay[t] + lag[t], t, "finish"))
            elif delay[t] > 0:
                events.append((now + delay[t], t, "begin"))
            else:
                left[t] = volume[t]
                stale = True
        fresh = []
        for d, waiters in queue.items():
            if waiters and not busy[d]:
                waiters.sort()
                _, since, t = waiters.pop(0)
                busy[d] = True
                start[t] = now
                if since < now:
                    binding[t] = last[d]
                events.append((now + volume[t], t, "finish"))
        upcoming = min((e[0] for e in events), default=float("inf"))
        if upcoming > now * (1 + INSTANT) and stale:
            stale = False
            active = sorted(left)
            rates = fill_by_level(
                [row[t] for t in active], capacity, [cap[t] for t in active],
                [first_of_all[t] for t in active],
            )  # fmt: skip
            rate = dict(zip(active, rates, strict=True))
            end = {t: now + left[t] / rate[t] for t in active if rate[t] > 0.0}
            for link, room in enumerate(capacity):
                used = sum(rate[t] * row[t].get(link, 0.0) for t in active)
                most_used = max(most_used, used / room)
        upcoming = min([upcoming, *end.values()])
        if upcoming == float("inf"):
            break
        step = max(upcoming - now, 0.0)
        now = max(upcoming, now)
        for t in rate:
            moved = rate[t] * step
            left[t] -= moved
            for link, weight in row[t].items():
                carried[link] += moved * weight
        limit = now * (1 + INSTANT)
        for t in sorted(end):
            if end[t] <= limit:
                del left[t], rate[t], end[t]  # others may stand still, and have no end
                stale = True
                events.append((now + lag[t], t, "finish"))
        due = [e for e in events if e[0] <= limit]
        events = [e for e in events if e[0] > limit]
        for t, what in sorted((e[1], e[2]) for e in due):
            if what == "begin":
                left[t] = volume[t]
                stale = True
                continue
            finish[t] = now
            if tasks.kind[t] == TaskKind.COMPUTE:
                busy[int(tasks.first[t])] = False
                last[int(tasks.first[t])] = t
            for after in tasks.successors[
                tasks.successor_offsets[t] : tasks.successor_offsets[t + 1]
            ].tolist():
                waiting[after] -= 1
                if waiting[after] == 0:
                    binding[after] = t
                    fresh.append(after)
    must = [
        sum(volume[t] * row[t].get(link, 0.0) for t in range(n)) for link in range(len(capacity))
    ]
    return PlainRun(start, finish, binding, carried, must, most_used)
