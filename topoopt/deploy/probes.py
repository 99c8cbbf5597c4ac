"""Packets sent in namespaces, and heard on every interface that they arrive at."""

import select
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from codesign_base import InputError
from routing.clos.tables import ROCE_PORT
from topoopt.deploy.namespaces import entered

FIRST_TTL = 64
"""Hops that a probe may make; each host that forwards it takes one off."""

_MAGIC = b"topoopt probe "
_NUMBER = struct.Struct("!Q")
_PORT = 40_000
# ETH_P_ALL of Linux: heard before filters redirect, which sockets of one protocol are not.
_ALL = 0x0003
_BUFFER_BYTES = 64 << 20
# SO_RCVBUFFORCE of Linux, by which root may go beyond the system's limit.
_BUFFER_OPTION = 33
# SOL_PACKET and PACKET_IGNORE_OUTGOING of Linux 4.20.
_IGNORE_SENT = (263, 23)
_SECONDS = 1.0


@dataclass(frozen=True)
class ProbeTrace:
    """Where a probe was heard.

    Parameters
    ----------
    stops : tuple of (int, str, int)
        Server, interface and time to live of each arrival, in order of travel.
    taken : int or None
        The server whose program got it.
    """

    stops: tuple[tuple[int, str, int], ...]
    taken: int | None


class Prober:
    """Sends probes and hears them.

    Parameters
    ----------
    spaces : dict of int to str
        Namespace of each server.
    addresses : dict of int to str
        Each server's own address.
    """

    def __init__(self, spaces: Mapping[int, str], addresses: Mapping[int, str]) -> None:
        self._addresses = dict(addresses)
        self._spaces = dict(spaces)
        self._open = ExitStack()
        self._ears: dict[socket.socket, int] = {}
        self._sinks: dict[socket.socket, int] = {}
        self._next = 0
        try:
            for server, space in spaces.items():
                with entered(space):
                    ear = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ALL))
                    self._open.enter_context(ear)
                    ear.setsockopt(socket.SOL_SOCKET, _BUFFER_OPTION, _BUFFER_BYTES)
                    ear.setsockopt(*_IGNORE_SENT, 1)
                    self._ears[ear] = server
                    for port in (_PORT, ROCE_PORT):
                        sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                        self._open.enter_context(sink)
                        sink.bind(("0.0.0.0", port))
                        self._sinks[sink] = server
            for each in (*self._ears, *self._sinks):
                each.setblocking(False)
        except OSError as error:
            self.close()
            raise InputError(f"namespaces cannot be listened in ({error})") from None

    def close(self) -> None:
        """Close all sockets."""
        self._open.close()

    def pairs(self, source: int, counts: Mapping[int, int]) -> dict[int, list[ProbeTrace]]:
        """Send probes from a server's own address to others', each from another UDP port.

        Parameters
        ----------
        source : int
        counts : dict of int to int
            How many to each of some servers.

        Returns
        -------
        dict of int to list of ProbeTrace
        """
        numbers = {}
        with entered(self._spaces[source]), ExitStack() as stack:
            mouths = [
                stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                for _ in range(max(counts.values(), default=0))
            ]
            for target, count in counts.items():
                numbers[target] = range(self._next, self._next + count)
                self._next += count
                for mouth, number in zip(mouths, numbers[target], strict=False):
                    _say(mouth, self._addresses[source], self._addresses[target], _PORT, number)
        heard = iter(self._listen(range(self._next - sum(counts.values()), self._next)))
        return {target: [next(heard) for _ in numbers[target]] for target in counts}

    def port(self, server: int, device: str, source: str, target: str) -> ProbeTrace:
        """Send an RDMA probe out of one interface.

        Parameters
        ----------
        server : int
        device : str
        source, target : str
            Addresses of ports.
        """
        number = self._next
        self._next += 1
        with (
            entered(self._spaces[server]),
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth,
        ):
            mouth.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
            _say(mouth, source, target, ROCE_PORT, number)
        return self._listen(range(number, number + 1))[0]

    def _listen(self, numbers: range) -> list[ProbeTrace]:
        """Wait until all probes are taken, or time is over, then collect where they were heard."""
        taken: dict[int, int] = {}
        until = time.monotonic() + _SECONDS
        while len(taken) < len(numbers) and (left := until - time.monotonic()) > 0:
            for sink in select.select(list(self._sinks), [], [], left)[0]:
                for data, _ in _waiting(sink):
                    if (number := _number(data)) in numbers:
                        taken[number] = self._sinks[sink]
        stops: dict[int, list[tuple[int, str, int]]] = defaultdict(list)
        for ear, server in self._ears.items():
            for data, (device, _, kind, *_) in _waiting(ear):
                number = _number(data[4 * (data[0] & 15) + 8 :]) if data else -1
                if kind == socket.PACKET_HOST and number in numbers:
                    stops[number].append((server, device, data[8]))
        return [
            ProbeTrace(tuple(sorted(stops[number], key=lambda stop: -stop[2])), taken.get(number))
            for number in numbers
        ]


def _say(mouth: socket.socket, source: str, target: str, port: int, number: int) -> None:
    """Send one probe; where there is no route it is never heard, which is said of the probe."""
    mouth.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, FIRST_TTL)
    try:
        if not mouth.getsockname()[1]:
            mouth.bind((source, 0))
        mouth.sendto(_MAGIC + _NUMBER.pack(number), (target, port))
    except OSError:
        return


def _waiting(source: socket.socket) -> Iterator[tuple[bytes, Any]]:
    while True:
        try:
            yield source.recvfrom(2048)
        except BlockingIOError:
            return


def _number(data: bytes) -> int:
    """Return the number of a probe, -1 for other packets."""
    if not data.startswith(_MAGIC) or len(data) != len(_MAGIC) + _NUMBER.size:
        return -1
    return int(_NUMBER.unpack(data[len(_MAGIC) :])[0])
