"""Plain-Python simulators of fabrics that are rewired, written from their descriptions."""

from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

import networkx as nx
import numpy as np
from fabric_oracle import INSTANT, fill

from parallelism.taskgraph import TaskKind
from topoopt.topology.matching import matching_rounds


def ring(group):
    """Return the edges of the ring in the order of the servers' numbers."""
    return list(pairwise([*group, group[0]]))


@dataclass
class PlainRun:
    """What an oracle found."""

    start: list
    finish: list
    circuits: list = field(default_factory=list)  # (from, to, lit circuits by pair)


class Circuits:
    """Who gets which ports on demand; see `DirectCircuits`."""

    def __init__(self, fabric):
        self.fabric = fabric
        self.lit, self.coming = {}, []  # circuits by pair; (due, pair)
        self.out = [fabric.degree] * fabric.servers
        self.into = [fabric.degree] * fabric.servers

    def lights(self):
        return {pair: k for pair, k in self.lit.items() if k}

    def row(self, edges):
        """Return the links of some pairs: the pairs themselves."""
        return dict.fromkeys(edges, 1.0)

    def next_time(self):
        return min((due for due, _ in self.coming), default=inf)

    def light(self, now):
        for due, pair in [c for c in self.coming if c[0] <= now * (1 + INSTANT)]:
            self.lit[pair] = self.lit.get(pair, 0) + 1
            self.coming.remove((due, pair))

    def at(self, now, demand):
        self.light(now)
        return False

    def has(self, pair):
        return self.lit.get(pair, 0) + sum(p == pair for _, p in self.coming)

    def ask(self, now, waiting, active, left, edges_of, row_of):
        used = {edge for t in active for edge in edges_of[t]}
        claims = set()
        held_out, held_into = {}, {}

        def takeable(pair, surplus):
            k = self.lit.get(pair, 0)
            return k if pair not in used and pair not in claims else max(k - 1, 0) * surplus

        def open_out(i, surplus):
            there = range(self.fabric.servers)
            return self.out[i] + sum(takeable((i, x), surplus) for x in there) - held_out.get(i, 0)

        def open_into(j, surplus):
            there = range(self.fabric.servers)
            return (
                self.into[j] + sum(takeable((y, j), surplus) for y in there) - held_into.get(j, 0)
            )

        def take(i, j, surplus):
            for side in ("out", "into"):
                free = self.out if side == "out" else self.into
                here = i if side == "out" else j
                if free[here]:
                    free[here] -= 1
                    continue
                pairs = [(i, x) if side == "out" else (x, j) for x in range(self.fabric.servers)]
                ways = [p for p in pairs if takeable(p, False)] or [
                    p for p in pairs if takeable(p, surplus)
                ]
                self.lit[ways[0]] -= 1
                if side == "out":
                    self.into[ways[0][1]] += 1
                else:
                    self.out[ways[0][0]] += 1
            self.coming.append((now + self.fabric.delay, (i, j)))

        # AllReduces of one group and size are one demand, as are all transfers of a pair.
        rows = {}
        for t in waiting:
            rows.setdefault(row_of[t], []).append(t)
        edges = {row: edges_of[flows[0]] for row, flows in rows.items()}
        served = {row for row in rows if all(self.has(edge) for edge in edges[row])}
        for row in served:
            claims.update(edges[row])
        for row in rows:
            if row in served:
                continue
            missing = [edge for edge in edges[row] if not self.has(edge)]
            fits = all(open_out(i, True) > 0 and open_into(j, True) > 0 for i, j in missing)
            if fits:
                claims.update(edges[row])
                served.add(row)
                for i, j in missing:
                    take(i, j, True)
            elif len(edges[row]) > 1:
                claims.update(edges[row])
                for i, j in missing:
                    held_out[i] = held_out.get(i, 0) + 1
                    held_into[j] = held_into.get(j, 0) + 1
        amount = {row: sum(left[t] for t in rows[row]) for row in served}
        for t in active:
            edges[row_of[t]] = edges_of[t]
            amount[row_of[t]] = amount.get(row_of[t], 0.0) + left[t]
        while True:
            fit = [
                (
                    amount[row] / (min(self.has(e) for e in edges[row]) * self.fabric.rate),
                    edges[row],
                )
                for row in amount
                if all(open_out(i, False) > 0 and open_into(j, False) > 0 for i, j in edges[row])
            ]
            fit = [f for f in fit if f[0] > self.fabric.delay]
            if not fit:
                break
            for i, j in max(fit)[1]:
                take(i, j, False)
        self.light(now)


class Windows:
    """Circuits by demand, window by window, with forwarding; see `WindowedCircuits`."""

    def __init__(self, fabric, demand):
        self.fabric = fabric
        self.wired = self.wire(demand)
        self.windows, self.due = 1, inf

    def wire(self, demand):
        n, d = self.fabric.servers, self.fabric.degree
        matrix = np.zeros((n, n))
        for (i, j), amount in demand.items():
            matrix[i, j] += amount
        rounds = matching_rounds(matrix, d, False)
        for chosen in (rounds, [*rounds[: d - 1], [(i, (i + 1) % n) for i in range(n)]]):
            wired = {}
            for edges in chosen:
                for edge in edges:
                    wired[edge] = wired.get(edge, 0) + 1
            graph = nx.DiGraph(list(wired))
            graph.add_nodes_from(range(n))
            if nx.is_strongly_connected(graph):
                break
        return wired

    def lights(self):
        if self.due == inf:
            return self.wired
        both = {p: min(k, self.coming.get(p, 0)) for p, k in self.wired.items()}
        return {p: k for p, k in both.items() if k}

    def row(self, edges):
        """Return the links of some pairs, split over all shortest paths at every hop."""
        graph = nx.DiGraph(list(self.wired))
        total = {}
        for i, j in edges:
            far = nx.single_target_shortest_path_length(graph, j)
            far = dict(far)
            share = {i: 1.0}
            for here in sorted(far, key=lambda v: -far[v]):
                if here == j or here not in share:
                    continue
                onward = [v for v in graph.successors(here) if far.get(v, inf) == far[here] - 1]
                for v in onward:
                    part = share[here] / len(onward)
                    share[v] = share.get(v, 0.0) + part
                    total[here, v] = total.get((here, v), 0.0) + part
        return total

    def next_time(self):
        return min(self.due, self.windows * self.fabric.window)

    def at(self, now, demand):
        if now == self.due:
            self.wired = self.coming
            self.due = inf
            return True
        self.windows += 1
        coming = self.wire(demand) if demand and self.due == inf else self.wired
        if coming == self.wired:
            return False
        self.coming, self.due = coming, now + self.fabric.delay
        return True


def demand_of(flows, amount, edges_of):
    """Return the bytes of some flows by server pair."""
    total = {}
    for t in flows:
        for edge in edges_of[t]:
            total[edge] = total.get(edge, 0.0) + amount[t]
    return total


def simulate_plainly(fabric, tasks, on_demand):
    """Simulate over a fabric without packets, set-up and latency (`IDEAL`)."""
    n = tasks.tasks
    network = tasks.kind != TaskKind.COMPUTE
    edges_of, volume = [[] for _ in range(n)], tasks.size.tolist()
    for t in np.flatnonzero(network).tolist():
        first, second = int(tasks.first[t]), int(tasks.second[t])
        if tasks.kind[t] == TaskKind.TRANSFER:
            edges_of[t] = [(first, second)]
            continue
        group = tasks.groups[first]
        edges_of[t] = ring(group) if len(group) > 1 else []
        volume[t] *= 2 * (len(group) - 1) / len(group)
    row_of = [(tuple(edges_of[t]), volume[t] * (len(edges_of[t]) > 1)) for t in range(n)]
    sending = [t for t in range(n) if network[t] and volume[t] > 0]
    control = (
        Circuits(fabric) if on_demand else Windows(fabric, demand_of(sending, volume, edges_of))
    )
    out = PlainRun([0.0] * n, [inf] * n)
    left, waiting, active, joined = {}, [], [], []
    queue = {d: [] for d in range(tasks.devices)}
    busy = dict.fromkeys(queue, False)
    missing = tasks.predecessors.tolist()
    events, now, asks = [], 0.0, False
    fresh = [t for t in range(n) if missing[t] == 0]

    def let_go(flows):
        """Return the flows whose links are all lit, and the others."""
        lights = control.lights()
        lit = [t for t in flows if all(edge in lights for edge in control.row(edges_of[t]))]
        return lit, [t for t in flows if t not in lit]

    while True:
        for t in sorted(fresh):
            out.start[t] = now
            if not network[t]:
                queue[int(tasks.first[t])].append((now, t))
            elif volume[t] == 0:
                events.append((now + tasks.delay[t], t, "finish"))
            elif tasks.delay[t] > 0:
                events.append((now + tasks.delay[t], t, "begin"))
            else:
                joined.append(t)
        fresh = []
        for d, waiters in queue.items():
            if waiters and not busy[d]:
                waiters.sort()
                t = waiters.pop(0)[1]
                busy[d] = True
                out.start[t] = now
                events.append((now + tasks.size[t], t, "finish"))
        left |= {t: volume[t] for t in joined}
        lit, dark = let_go(joined)
        active += lit
        waiting += dark
        asks = asks or bool(dark)
        joined = []
        upcoming = min((e[0] for e in events), default=inf)
        if on_demand and asks and upcoming > now * (1 + INSTANT):
            asks = False
            control.ask(now, waiting, active, left, edges_of, row_of)
            lit, waiting = let_go(waiting)
            active += lit
        lights = control.lights()
        names = {edge: place for place, edge in enumerate(lights)}
        active.sort()
        rows = [{names[edge]: w for edge, w in control.row(edges_of[t]).items()} for t in active]
        rates = fill(rows, [k * fabric.rate for k in lights.values()])
        used = [
            sum(r * row.get(place, 0.0) for r, row in zip(rates, rows, strict=True))
            for place in names.values()
        ]
        assert all(
            u <= k * fabric.rate * (1 + 1e-9) for u, k in zip(used, lights.values(), strict=True)
        )
        ends = {t: now + left[t] / rate for t, rate in zip(active, rates, strict=True)}
        upcoming = min([upcoming, *ends.values()])
        if upcoming == inf and not waiting:
            break
        change = control.next_time()
        step = min(upcoming, change)
        assert step < inf
        for t, rate in zip(active, rates, strict=True):
            left[t] = max(left[t] - rate * max(step - now, 0.0), 0.0)
        if step > now:
            out.circuits.append((now, step, lights))
        now = max(now, step)
        if change < upcoming:
            flows = sorted([*waiting, *active])
            rewired = control.at(now, demand_of(flows, left, edges_of))
            # Where routes may change, everything is let go anew.
            lit, waiting = let_go(flows if rewired else waiting)
            active = lit if rewired else active + lit
            continue
        limit = now * (1 + INSTANT)
        for t in [t for t in active if ends[t] <= limit]:
            active.remove(t)
            assert left[t] <= 1e-6 * volume[t]
            events.append((now, t, "finish"))
            asks = True
        due = [e for e in events if e[0] <= limit]
        events = [e for e in events if e[0] > limit]
        for _, t, what in sorted(due, key=lambda e: e[1]):
            if what == "begin":
                joined.append(t)
                continue
            out.finish[t] = now
            if not network[t]:
                busy[int(tasks.first[t])] = False
            for after in tasks.successors[
                tasks.successor_offsets[t] : tasks.successor_offsets[t + 1]
            ].tolist():
                missing[after] -= 1
                if missing[after] == 0:
                    fresh.append(after)
    return out
