"""Direct circuits on demand: a fabric without forwarding, as SiP-ML has."""

from dataclasses import dataclass
from math import isfinite

import numpy as np

from codesign_base import InputError
from parallelism.taskgraph import IntArray, TaskGraph
from topoopt.fabric.transport import PACKETS, Transport
from topoopt.fabric.varying import Play

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

    def controller(self, tasks: TaskGraph, play: Play) -> "OnDemand":
        """Return what moves the circuits of an iteration."""
        return OnDemand(self, tasks, play)


class OnDemand:
    """Sets circuits up when something comes to wait or ends.

    Parameters
    ----------
    fabric : DirectCircuits
    tasks : TaskGraph
    play : Play
        Of these tasks, at the start; the network is put under them.
    """

    on_demand = True

    def __init__(self, fabric: DirectCircuits, tasks: TaskGraph, play: Play) -> None:
        n, demands = fabric.servers, play.demands
        self._fabric, self._play, self._row = fabric, play, demands.row
        # A pair's row is its link; the rings of groups follow.
        self._links = np.concatenate((np.arange(n * n), *demands.edges)).astype(np.int32)
        bounds = np.cumsum([n * n, *(edges.size for edges in demands.edges), 0])
        row = np.where(demands.nature == 0, 0, demands.row)
        ring = np.maximum(row - n * n, -1)
        self._begin = np.where(ring < 0, row, bounds[ring])
        self._end = np.where(ring < 0, row + 1, bounds[ring + 1])
        one = np.ones(1)
        lag = fabric.transport.message_lag(one * fabric.latency, one, one * fabric.rate)
        play.lay(
            self._begin, self._end, np.repeat(lag, tasks.tasks), self._links,
            np.ones(self._links.size), np.zeros(n * n),
        )  # fmt: skip
        self._pair = np.zeros((3, n * n), dtype=np.int64)
        self._ports = np.full((2, n), fabric.degree, dtype=np.int64)
        self._open, self._held = np.zeros_like(self._ports), np.zeros_like(self._ports)
        self._due = np.zeros(n * fabric.degree)
        self._made = np.zeros(n * fabric.degree, dtype=np.int64)
        self._setup = np.zeros(2, dtype=np.int64)
        rows = n * n + len(demands.groups)
        self._seen, self._waits = np.zeros(rows, dtype=np.int64), np.zeros(rows)
        self._places = np.zeros(2 * rows, dtype=np.int64)
        self.lit: IntArray | None = None
        self.decisions, self.work = 0, 0.0

    @property
    def moved(self) -> int:
        """Circuits set up so far."""
        return int(self._setup[0])

    @property
    def until(self) -> float:
        """Seconds at which the next circuit that is being set up carries bytes."""
        made, lit = self._setup.tolist()
        return float(self._due[lit % self._due.size]) if lit < made else float("inf")

    def act(self, asked: bool) -> bool:
        """Let circuits carry bytes that are due, and begin others if it is asked to."""
        from topoopt.fabric.circuits_kernels import LIT, assign, light_due, renew_caps
        from topoopt.fabric.varying_kernels import NOW, SOLVE_AT

        fabric, play, demands = self._fabric, self._play, self._play.demands
        n = fabric.servers
        lighting = (
            fabric.rate, play.clock, self._pair, self._due, self._made, self._setup, play.link,
        )  # fmt: skip
        light_due(*lighting)
        if asked:
            before = self.moved
            self.work += _ASKING + _ASKING_PAIR * n * n
            assign(
                fabric.rate, fabric.delay, play.left, self._row, self._begin, self._end,
                self._links, play.parked, play.clock, play.number, play.slot, play.index,
                play.member, play.behind, play.count, play.link, self._pair, self._ports,
                self._open, self._held, self._due, self._made, self._setup, self._seen,
                self._waits, self._places,
            )  # fmt: skip
            self.decisions += self.moved > before
            light_due(*lighting)
        if play.clock[SOLVE_AT] > play.clock[NOW]:
            return False
        play.unpark()
        renew_caps(
            play.slot, play.index, demands.pace, play.hold, self._begin, self._end, self._links,
            play.weights, play.link, play.count,
        )  # fmt: skip
        self.lit = self._pair[LIT].reshape(n, n)
        return True


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
