"""Optical switches set anew in every demand window: OCS-reconfig."""

from dataclasses import dataclass
from math import floor

import numpy as np
import numpy.typing as npt

from codesign_base import InfeasibleError, InputError
from codesign_base.arguments import is_number, told
from codesign_base.arrays import Floats, Ints
from codesign_base.rows import starts
from parallelism.taskgraph import TaskGraph, TaskKind
from routing.network import Network
from routing.paths import ecmp_routes
from routing.routes import Routes
from topoopt.fabric.circuits import check_circuits
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.transport import PACKETS, Transport
from topoopt.fabric.varying import Demands, VaryingState
from topoopt.problem.ports import PortModel, port_model
from topoopt.topology.matching import matching_rounds
from topoopt.topology.wiring import is_strongly_connected

# What a choice of circuits costs with its routes, and each server pair in it, in streams re-solved.
_WIRING, _WIRING_PAIR = 1e4, 45.0


@dataclass(frozen=True)
class WindowedCircuits:
    """Servers joined by optical switches that a controller sets by demand, window by window.

    Parameters
    ----------
    name : str
    servers, degree : int
    rate : float
        Bytes/s of a port each way.
    latency : float
        Seconds of a link.
    delay : float
        Seconds for which circuits that are moved are dark.
    window : float
        Seconds between two decisions, not less than the delay.
    forwarding : bool
        Whether servers forward for each other. If not, traffic flows over direct circuits only.
    ports : {"directed", "bidirectional"}
        See `topoopt.problem.cluster.Cluster`.
    transport : Transport
        Not htsim's.

    Raises
    ------
    InputError
        If a number is out of range.
    InfeasibleError
        If the degree cannot join the servers.

    Notes
    -----
    An AllReduce runs on one ring over its group, in the order of the servers' numbers. The demand
    between two servers is the bytes that are outstanding, those of ring edges included.

    The iteration begins with circuits for its whole demand, as the controller has seen it in the
    iteration before. At the end of each window circuits are chosen for what is outstanding, and
    kept if nothing is. Circuits that change go dark for the delay; until it is over routes stay
    as they were, so that flows with a dark link on their way wait, and others go on.

    With forwarding circuits are chosen by `matching_rounds`, one for each port. If they do not
    join all servers, the last port (bidirectional: two) goes to a ring of all servers. Traffic is
    split over all shortest paths. Without forwarding each circuit goes to the largest demand that
    still finds ports, whole rings at once, and halves it; pairs without circuit wait.

    The comparison is that of TopoOpt (NSDI 2023), section 5. Ours are: how it begins, the order
    of rings, keeping all servers joined, and that circuits which do not change go on.
    """

    name: str
    servers: int
    degree: int
    rate: float
    latency: float
    delay: float
    window: float
    forwarding: bool = True
    ports: str = PortModel.DIRECTED
    transport: Transport = PACKETS

    def __post_init__(self) -> None:
        check_circuits(self.servers, self.degree, self.rate, self.latency, self.delay)
        both_ways = port_model(self.ports) is PortModel.BIDIRECTIONAL
        if not (is_number(self.window) and 0 < self.window < float("inf")):
            raise InputError(f"demand window is {told(self.window)} s; give a positive time")
        if self.window < self.delay:
            raise InputError(
                f"demand window is {self.window} s, shorter than the reconfiguration delay of "
                f"{self.delay} s; give a longer window"
            )
        if both_ways and self.degree < 2 < self.servers:
            raise InfeasibleError(
                f"degree {self.degree} cannot join {self.servers} servers with bidirectional "
                "ports; give at least 2"
            )

    def run(self, tasks: TaskGraph, state: VaryingState) -> bool:
        """Simulate an iteration, choosing circuits at the end of every window.

        Parameters
        ----------
        tasks : TaskGraph
        state : VaryingState

        Returns
        -------
        bool
            Whether it was simulated to the end.
        """
        from topoopt.fabric.varying_kernels import OVER, PAUSED

        demands, left = state.demands, state.changing.left
        choosing = _WIRING + _WIRING_PAIR * self.servers**2
        state.work = choosing
        circuits = self.wire(demands, state.sending, left[state.sending])
        fabric = self.fabric(circuits, demands)
        coming = circuits
        state.set_network(*self._ways(demands, tasks, fabric, circuits))
        state.note(circuits)
        lit_at = float("inf")
        windows = 1
        while True:
            tick = windows * self.window
            why = state.advance(min(tick, lit_at))
            if why != PAUSED:
                return why == OVER
            if lit_at <= tick:
                lit_at = float("inf")
                circuits, fabric = coming, self.fabric(coming, demands)
                state.change_network(*self._ways(demands, tasks, fabric, circuits))
                state.note(circuits)
                continue
            windows += 1
            waiting = state.outstanding()
            if waiting.size == 0:
                # Nothing to decide before something happens.
                upcoming = state.it.times[0] if state.it.events[0] else 0.0
                windows = max(windows, floor(upcoming / self.window))
                continue
            coming = self.wire(demands, waiting, left[waiting])
            if np.array_equal(coming, circuits):
                continue
            state.work += choosing
            state.moved += int(np.maximum(coming - circuits, 0).sum())
            # A delay of a whole window ends with it, whatever the last digit of the sum.
            lit_at = min(state.now + self.delay, windows * self.window)
            kept = np.minimum(circuits, coming)
            state.change_network(*self._ways(demands, tasks, fabric, kept))
            state.note(kept)

    def _ways(
        self, demands: Demands, tasks: TaskGraph, fabric: Fabric, lit: Ints
    ) -> tuple[Ints, Ints, Floats, npt.NDArray[np.int32], Floats, Floats]:
        """Return a fabric's routes as `VaryingState.set_network` takes them; some may be dark."""
        n = self.servers
        begin = np.zeros(tasks.tasks, dtype=np.int64)
        end = np.zeros(tasks.tasks, dtype=np.int64)
        lag = np.zeros(tasks.tasks)
        moves = np.flatnonzero(tasks.kind == TaskKind.TRANSFER)
        pairs = demands.row[moves]
        begin[moves], end[moves] = fabric.rows.entries(pairs)
        lag[moves] = fabric.rows.lags(pairs)
        routed = np.diff(fabric.routes.offsets) > 0
        rings = np.array(
            [
                fabric.group_row(group)[:3] if edges.size and routed[edges].all() else (0, 0, 0.0)
                for group, edges in zip(demands.groups, demands.edges, strict=True)
            ]
        )
        reduces = np.flatnonzero(tasks.collective)
        if reduces.size:
            chosen = rings[demands.row[reduces] - n * n]
            begin[reduces], end[reduces] = chosen[:, 0], chosen[:, 1]
            lag[reduces] = chosen[:, 2]
        network = fabric.network
        capacity = self.rate * lit[network.source, network.target].astype(np.float64)
        return begin, end, lag, fabric.rows.links, fabric.rows.weights, capacity

    def fabric(self, circuits: Ints, demands: Demands) -> Fabric:
        """Return the fabric of some circuits.

        Parameters
        ----------
        circuits : int64 array, shape (servers, servers)
            From row to column.
        demands : Demands
            Whose groups have rings.

        Returns
        -------
        Fabric
            Without forwarding only pairs with a circuit have routes.
        """
        source, target = np.nonzero(circuits)
        network = Network.from_links(
            self.name,
            self.servers,
            0,
            np.repeat(source, circuits[source, target]),
            np.repeat(target, circuits[source, target]),
            self.rate,
            self.latency,
        )
        routes = ecmp_routes(network) if self.forwarding else _direct_routes(network)
        rings = {group: (group,) for group in demands.groups if len(group) > 1}
        return Fabric(self.name, network, routes, rings, transport=self.transport)

    def wire(self, demands: Demands, tasks: Ints, amount: Floats) -> Ints:
        """Choose circuits for what some network tasks have to send.

        Parameters
        ----------
        demands : Demands
        tasks : int64 array
        amount : float64 array, of the same shape
            Bytes of each that are outstanding.

        Returns
        -------
        int64 array, shape (servers, servers)
            Circuits from row to column, at most ``degree`` in every row and column.
        """
        if self.servers == 1:
            return np.zeros((1, 1), dtype=np.int64)
        both_ways = port_model(self.ports) is PortModel.BIDIRECTIONAL
        if not self.forwarding:
            return self._greedy(demands, tasks, amount, both_ways)
        matrix = demands.matrix(self.servers, tasks, amount)
        rounds = matching_rounds(matrix, self.degree, both_ways)
        circuits = _joined(self.servers, rounds, both_ways)
        if not is_strongly_connected(circuits):
            spent = 2 if both_ways and self.servers > 2 else 1
            circuits = _joined(self.servers, rounds[: self.degree - spent], both_ways)
            ring = [(i, (i + 1) % self.servers) for i in range(self.servers)]
            if self.servers == 2 and both_ways:
                ring = ring[:1]
            circuits += _joined(self.servers, [ring], both_ways)
        return circuits

    def _greedy(self, demands: Demands, tasks: Ints, amount: Floats, both_ways: bool) -> Ints:
        """Give circuits to the largest demand, a ring's edges all at once, and halve it."""
        from heapq import heapify, heappop, heapreplace

        n = self.servers
        by_row = np.bincount(
            demands.row[tasks], weights=amount, minlength=n * n + len(demands.groups)
        )
        edges = [self._cables(pairs, both_ways) for pairs in demands.edges]
        waiting = [(-by_row[row], row) for row in np.flatnonzero(by_row).tolist()]
        heapify(waiting)
        circuits = np.zeros((n, n), dtype=np.int64)
        # With bidirectional ports both are the same list.
        out = [self.degree] * n
        into = out if both_ways else [self.degree] * n
        while waiting:
            size, row = waiting[0]
            cables = [divmod(row, n)] if row < n * n else edges[row - n * n]
            taken = 0
            for source, target in cables:
                if out[source] == 0 or into[target] == 0:
                    break
                out[source] -= 1
                into[target] -= 1
                taken += 1
            if taken < len(cables):
                for source, target in cables[:taken]:
                    out[source] += 1
                    into[target] += 1
                heappop(waiting)
                continue
            for source, target in cables:
                circuits[source, target] += 1
                if both_ways:
                    circuits[target, source] += 1
            heapreplace(waiting, (size / 2.0, row))
        return circuits

    def _cables(self, pairs: Ints, both_ways: bool) -> list[tuple[int, int]]:
        """Return the cables of a ring's edges; one serves both directions where it can."""
        edges = [divmod(pair, self.servers) for pair in pairs.tolist()]
        if both_ways:
            edges = sorted({(min(edge), max(edge)) for edge in edges})
        return edges


def _direct_routes(network: Network) -> Routes:
    """Return the routes of pairs that share a circuit; others have none."""
    hosts = network.hosts
    pairs = network.source * hosts + network.target
    count = np.zeros(hosts * hosts, dtype=np.int64)
    count[pairs] = 1
    latency = np.zeros(hosts * hosts)
    latency[pairs] = network.latency
    return Routes(
        hosts,
        starts(count),
        np.arange(network.links, dtype=np.int64),
        np.ones(network.links),
        latency,
        count.astype(np.float64),
    )


def _joined(servers: int, rounds: list[list[tuple[int, int]]], both_ways: bool) -> Ints:
    """Return the circuits of some matchings."""
    circuits = np.zeros((servers, servers), dtype=np.int64)
    for edges in rounds:
        for source, target in edges:
            circuits[source, target] += 1
            if both_ways:
                circuits[target, source] += 1
    return circuits
