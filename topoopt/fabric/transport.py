"""How bytes travel: packets, connection set-up, windows; and the artefacts of htsim."""

from dataclasses import dataclass

import numpy as np

from codesign_base import InputError
from codesign_base.arguments import check_flags, check_not_negative, whole
from codesign_base.arrays import Floats, Ints

_MTU = 9000.0


@dataclass(frozen=True, slots=True)
class Transport:
    """The transport of the packet simulator that TopoOpt's results come from, by default.

    Parameters
    ----------
    segment_bytes : float
        Payload of a packet; every message is sent in whole packets. 0: no packets.
    handshake : bool
        Whether a message is announced first, which takes one way more of latency: a flow of S
        bytes over h hops of delay d and rate b alone takes 2 h d + W / b + (h - 1) P / b
        seconds, for packets of P bytes and W = P ceil(S / P).
    initial_window : int
        Packets that a flow sends before it hears from its receiver (packet trains only).
    marking_backlog : int
        Packets in a queue above which it marks what leaves it (packet trains only).
    train_packets : int
        Most packets that are simulated as one (packet trains only).
    reconnect : bool
        Whether every round of a ring begins with a new connection, as in TopoOpt's simulator: it
        draws its paths anew and sends the whole first window at once (packet trains only).
    timeout : float
        Seconds without acknowledgement after which a sender takes what is under way for lost and
        sends it again, with a window of one packet (packet trains only). 0: never.
    htsim : bool
        Repeat the artefacts of that simulator, to compare with its numbers: in the
        methods below, in sizes, groups and single servers, and in rounds (``reconnect``).

    Raises
    ------
    InputError
        If a number is out of range.
    """

    segment_bytes: float = 8936.0
    handshake: bool = True
    initial_window: int = 100
    marking_backlog: int = 50
    train_packets: int = 32
    reconnect: bool = False
    timeout: float = 0.010
    htsim: bool = False

    def __post_init__(self) -> None:
        check_flags("transport", self)
        check_not_negative("transport", self, ("segment_bytes",), "zero or more bytes")
        check_not_negative("transport", self, ("timeout",), "zero or more seconds")
        for name in ("initial_window", "marking_backlog", "train_packets"):
            if whole(name, getattr(self, name), "at least 1 packet") < 1:
                raise InputError(f"{name} is {getattr(self, name)}; give at least 1 packet")

    @property
    def ways(self) -> float:
        """How often a message takes the latency of its path: to be announced, and to be sent."""
        return 2.0 if self.handshake else 1.0

    def wire_bytes(self, size: Floats) -> Floats:
        """Return the bytes that messages take on a link: whole packets.

        Parameters
        ----------
        size : float64 array
            Bytes of each message.

        Returns
        -------
        float64 array, of the same shape
            htsim counts ceil((S - 1) / P) packets, and sends at least one.
        """
        if self.segment_bytes == 0:
            return size
        if self.htsim:
            packets = np.maximum(np.ceil((size - 1.0) / self.segment_bytes), 1.0)
        else:
            # A chunk of 2 P bytes may come out of a division one bit above 2 P.
            packets = np.ceil(size / self.segment_bytes * (1.0 - 1e-12))
        return packets * self.segment_bytes

    def rounds(
        self, size: Floats, members: Ints, rings: Ints, passes: Floats
    ) -> tuple[Floats, Floats]:
        """Return how ring collectives are cut into rounds.

        Parameters
        ----------
        size : float64 array, shape (collectives,)
            Bytes of each buffer.
        members, rings : int64 arrays, of the same shape
            Servers of its group (two or more), and rings that share the buffer.
        passes : float64 array, of the same shape
            2 for AllReduce, 1 for ReduceScatter and AllGather.

        Returns
        -------
        rounds, message : float64 arrays, of the same shape
            Rounds of each ring, and bytes that each member sends to the next in one round:
            2 (g - 1) rounds of S / (g R), or half as many. htsim sends less than 9000 g bytes
            in a single round of floor(2 (g - 1) S / g) / (g R), and stops after the first round
            up to 18000 (g - 1) bytes.
        """
        count = members.astype(np.float64)
        rounds = passes * (count - 1.0)
        message = size / (count * rings)
        if self.htsim:
            small = size < _MTU * count
            message = np.where(small, np.floor(rounds * size / count) / (count * rings), message)
            rounds = np.where(small | (size <= _MTU * rounds), 1.0, rounds)
        return rounds, message

    def message_lag(self, latency: Floats, hops: Floats, rate: Floats) -> Floats:
        """Return the seconds that a lone message takes beyond its bytes at the slowest link.

        Parameters
        ----------
        latency, hops, rate : float64 arrays, of one shape
            Of each route: seconds one way, links crossed, bytes/s of its slowest cable.

        Returns
        -------
        float64 array
            Set-up, propagation, and the store-and-forward of one packet at each hop but one.
        """
        return self.ways * latency + np.maximum(hops - 1.0, 0.0) * self.segment_bytes / rate


PACKETS = Transport()
"""Packets, set-up and windows as in the packet simulator of TopoOpt."""

IDEAL = Transport(segment_bytes=0.0, handshake=False)
"""No packets and no set-up: bytes flow like a fluid, and arrive one latency later."""
