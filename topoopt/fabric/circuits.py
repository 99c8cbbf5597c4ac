"""Direct circuits on demand: a fabric without forwarding, as SiP-ML has."""

from dataclasses import dataclass

import numpy as np

from codesign_base import InputError
from codesign_base.arguments import is_number, told, whole
from parallelism.taskgraph import TaskGraph
from topoopt.fabric.transport import PACKETS, Transport
from topoopt.fabric.varying import VaryingState

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

    def run(self, tasks: TaskGraph, state: VaryingState) -> bool:
        """Simulate an iteration, moving circuits whenever something comes to wait or ends.

        Parameters
        ----------
        tasks : TaskGraph
        state : VaryingState

        Returns
        -------
        bool
            Whether it was simulated to the end.
        """
        from topoopt.fabric.circuits_kernels import (
            GOT,
            LIT,
            NOTED,
            Circuits,
            simulate_direct,
        )
        from topoopt.fabric.varying_kernels import OVER

        n, demands = self.servers, state.demands
        # A pair's row is its link; the rings of groups follow.
        links = np.concatenate((np.arange(n * n), *demands.edges)).astype(np.int32)
        bounds = np.cumsum([n * n, *(edges.size for edges in demands.edges), 0])
        row = np.where(demands.compute, 0, demands.row)
        ring = np.maximum(row - n * n, -1)
        begin = np.where(ring < 0, row, bounds[ring])
        end = np.where(ring < 0, row + 1, bounds[ring + 1])
        one = np.ones(1)
        lag = self.transport.message_lag(one * self.latency, one, one * self.rate)
        state.set_network(
            begin, end, np.repeat(lag, tasks.tasks), links, np.ones(links.size), np.zeros(n * n)
        )
        ports = np.full((2, n), self.degree, dtype=np.int64)
        rows = n * n + len(demands.groups)
        circuits = Circuits(
            pair=np.zeros((3, n * n), dtype=np.int64),
            ports=ports,
            open_ports=np.zeros_like(ports),
            held=np.zeros_like(ports),
            due=np.zeros(n * self.degree),
            made=np.zeros(n * self.degree, dtype=np.int64),
            setup=np.zeros(2, dtype=np.int64),
            seen=np.zeros(rows, dtype=np.int64),
            waits=np.zeros(rows),
            rows=np.zeros(2 * rows, dtype=np.int64),
            work=np.zeros(1),
        )
        while True:
            why = state.watched(
                lambda stop: simulate_direct(
                    self.rate, self.delay, _ASKING + _ASKING_PAIR * n * n, state.orders, state.it,
                    state.changing, state.flows, circuits, state.horizon, state.tolerance,
                    state.record, stop,
                )
            )  # fmt: skip
            if why != NOTED:
                break
            state.note(circuits.pair[LIT].reshape(n, n))
        state.work = float(circuits.work[0])
        state.moved = int(circuits.setup[GOT])
        return bool(why == OVER)


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
        if whole(what, count, "a whole number of at least 1") < 1:
            raise InputError(f"{what} is {count}; give at least 1")
    if not (is_number(rate) and 0 < rate < float("inf")):
        raise InputError(f"bandwidth is {told(rate)} bytes/s; give a positive number")
    for what, seconds in (("latency", latency), ("reconfiguration delay", delay)):
        if not (is_number(seconds) and 0 <= seconds < float("inf")):
            raise InputError(f"{what} is {told(seconds)} s; give zero or more")
