"""Direct circuits on demand: a fabric without forwarding, as SiP-ML has."""

from dataclasses import dataclass
from math import isfinite

import numpy as np

from codesign_base import InputError
from parallelism.taskgraph import IntArray, TaskGraph, TaskKind
from topoopt.fabric.transport import PACKETS, Transport
from topoopt.fabric.varying import Play, VaryingRun, demands_of

# What a decision costs, and each server pair in it, in streams re-solved (about 0.13 us).
_ASKING, _ASKING_PAIR = 150.0, 0.01


@dataclass(frozen=True)
class DirectCircuits:
    """Servers joined by circuits that are set up when traffic asks for them.

    Parameters
    ----------
    name : str
    servers, degree : int
        Each server has so many transmitters and receivers (wavelengths).
    rate : float
        Bytes/s of a circuit.
    latency : float
        Seconds from one server to another.
    delay : float
        Seconds for which the ports of a new circuit are dark.
    transport : Transport
        Not htsim's.

    Raises
    ------
    InputError
        If a number is out of range.

    Notes
    -----
    Traffic between two servers flows over direct circuits between them only. A circuit is one
    way, from a transmitter to a receiver. A transfer needs one circuit; an AllReduce needs one
    for every edge of one ring over its group, in the order of the servers' numbers. Traffic of
    one pair shares its circuits by max-min fairness. At the start there are none.

    Whenever something comes to wait or ends, waiting demands get circuits, first come first
    served, from ports that are free, whose circuits are idle, or whose pair has more than one;
    an AllReduce gets all its circuits at once, and keeps the ports that are open on its servers
    from what comes after it until it does. Ports left open (free, or in idle circuits) then add
    circuits to the demand that would last longest, if that is longer than the delay; a demand is
    all transfers of a pair, or all AllReduces of a group and size. Circuits stay until their
    ports are needed.

    The idea is that of SiP-ML (SIGCOMM 2021), where traffic flows over direct wavelengths that
    are assigned to the demand; the assignment is ours, greedy, and rings are not shortened by
    reusing a wavelength in several segments.
    """

    name: str
    servers: int
    degree: int
    rate: float
    latency: float
    delay: float
    transport: Transport = PACKETS

    def __post_init__(self) -> None:
        check_circuits(self.servers, self.degree, self.rate, self.latency, self.delay)

    def least_time(self, tasks: TaskGraph) -> float:
        """Return the seconds that the busiest device or server is occupied at least."""
        return least_time(tasks, self.degree * self.rate)

    def run(
        self,
        tasks: TaskGraph,
        completion_tolerance: float = 0.0,
        *,
        limit: float = float("inf"),
        record: bool = False,
    ) -> VaryingRun:
        """Play one iteration.

        Parameters
        ----------
        tasks : TaskGraph
        completion_tolerance, limit
            As in `topoopt.fabric.simulate.score`.
        record : bool
            Keep the history of circuits.

        Returns
        -------
        VaryingRun

        Raises
        ------
        InputError
            If the task graph does not fit, or its tasks wait for each other.
        """
        from topoopt.fabric.circuits_kernels import LIT, assign, light_due, renew_caps
        from topoopt.fabric.varying_kernels import ASKED, GAVE_UP, NOW, OVER, SOLVE_AT

        n, demands = self.servers, demands_of(tasks, self.servers, self.transport, self.name)
        play = Play(tasks, demands, n, completion_tolerance, limit)
        # A pair's row is its link; the rings of groups follow.
        links = np.concatenate((np.arange(n * n), *demands.edges)).astype(np.int32)
        bounds = np.cumsum([n * n, *(edges.size for edges in demands.edges), 0])
        row = np.where(demands.nature == 0, 0, demands.row)
        ring = np.maximum(row - n * n, -1)
        begin = np.where(ring < 0, row, bounds[ring])
        end = np.where(ring < 0, row + 1, bounds[ring + 1])
        one = np.ones(1)
        lag = self.transport.message_lag(one * self.latency, one, one * self.rate)
        play.lay(
            begin, end, np.repeat(lag, tasks.tasks), links, np.ones(links.size), np.zeros(n * n)
        )
        pair = np.zeros((3, n * n), dtype=np.int64)
        ports = np.full((2, n), self.degree, dtype=np.int64)
        work_ports, held = np.zeros_like(ports), np.zeros_like(ports)
        due, made = np.zeros(n * self.degree), np.zeros(n * self.degree, dtype=np.int64)
        setup = np.zeros(2, dtype=np.int64)
        rows = n * n + len(demands.groups)
        seen, waits = np.zeros(rows, dtype=np.int64), np.zeros(rows)
        places = np.zeros(2 * rows, dtype=np.int64)
        history: list[tuple[float, IntArray]] = []
        decisions, control = 0, 0.0
        while True:
            until = float(due[setup[1] % due.size]) if setup[1] < setup[0] else float("inf")
            why = play.advance(until, True)
            if why in (OVER, GAVE_UP):
                break
            light_due(self.rate, play.clock, pair, due, made, setup, play.link)
            if why == ASKED:
                before = int(setup[0])
                control += _ASKING + _ASKING_PAIR * n * n
                assign(
                    self.rate, self.delay, play.left, demands.row, begin, end, links,
                    play.parked, play.clock, play.number, play.slot, play.index, play.member,
                    play.behind, play.count, play.link, pair, ports, work_ports, held, due, made,
                    setup, seen, waits, places,
                )  # fmt: skip
                decisions += int(setup[0]) > before
                light_due(self.rate, play.clock, pair, due, made, setup, play.link)
            if play.clock[SOLVE_AT] > play.clock[NOW]:
                continue
            play.unpark()
            renew_caps(
                play.slot, play.index, demands.pace, play.hold, begin, end, links, play.weights,
                play.link, play.count,
            )  # fmt: skip
            if record:
                history.append((play.now, pair[LIT].reshape(n, n).copy()))
        return play.result(why == OVER, decisions, int(setup[0]), control, history)


def check_circuits(servers: int, degree: int, rate: float, latency: float, delay: float) -> None:
    """Refuse numbers out of range.

    Parameters
    ----------
    servers, degree : int
    rate, latency, delay : float
        Bytes/s, seconds, seconds.

    Raises
    ------
    InputError
        With the number that is out of range.
    """
    for what, count in (("servers", servers), ("degree", degree)):
        if count < 1:
            raise InputError(f"{what} is {count}; give at least 1")
    if not (rate > 0 and isfinite(rate)):
        raise InputError(f"bandwidth is {rate} bytes/s; give a positive number")
    for what, seconds in (("latency", latency), ("reconfiguration delay", delay)):
        if not (seconds >= 0 and isfinite(seconds)):
            raise InputError(f"{what} is {seconds} s; give zero or more")


def least_time(tasks: TaskGraph, leaving: float) -> float:
    """Return the seconds that the busiest device, or server, is occupied at least.

    Parameters
    ----------
    tasks : TaskGraph
    leaving : float
        Bytes/s of all ports of a server, each way.

    Returns
    -------
    float
        No iteration is shorter, whatever the circuits: a transfer leaves and enters a server at
        least once, and so does every byte of a ring AllReduce on each of its servers.
    """
    compute = tasks.kind == TaskKind.COMPUTE
    busy = np.bincount(tasks.first[compute], weights=tasks.size[compute], minlength=1).max()
    moves = tasks.kind == TaskKind.TRANSFER
    load = np.zeros((2, tasks.servers))
    load[0] = np.bincount(tasks.first[moves], weights=tasks.size[moves], minlength=tasks.servers)
    load[1] = np.bincount(tasks.second[moves], weights=tasks.size[moves], minlength=tasks.servers)
    reduces = tasks.collective
    reduced = np.bincount(
        tasks.first[reduces],
        weights=tasks.passes[reduces] * tasks.size[reduces],
        minlength=len(tasks.groups),
    )
    for group, amount in zip(tasks.groups, reduced.tolist(), strict=True):
        if len(group) > 1:
            load[:, list(group)] += (len(group) - 1) / len(group) * amount
    # Sums in another order must not rule out what is exactly as fast.
    return float(max(busy, load.max(initial=0.0) / leaving)) * (1.0 - 1e-9)
