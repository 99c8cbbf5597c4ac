"""Jobs that come and go on dedicated partitions, and how a port layer's reach makes them wait."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite

import numpy as np

from codesign_base import InfeasibleError, InputError
from codesign_base.arguments import check_not_negative, whole
from codesign_base.counted import counted


@dataclass(frozen=True)
class Request:
    """A job that asks for a partition.

    Parameters
    ----------
    arrival_s : float
    servers : int
    duration_s : float
        For which it keeps the partition.

    Raises
    ------
    InputError
        If the servers are no whole number of at least 1, or a time is not finite or negative.
    """

    arrival_s: float
    servers: int
    duration_s: float

    def __post_init__(self) -> None:
        if whole("servers of a request", self.servers, "a whole number of at least 1") < 1:
            raise InputError(f"servers of a request is {self.servers}; give at least 1")
        check_not_negative("a request", self, ("arrival_s", "duration_s"))


@dataclass(frozen=True)
class Stay:
    """What a request got.

    Parameters
    ----------
    start_s : float
    place : tuple of int
        Its servers, ascending.
    fragmented : bool
        Whether it once was next in line and had to wait although as many servers were free,
        because no part of the port layer reached so many of them.
    """

    start_s: float
    place: tuple[int, ...]
    fragmented: bool


@dataclass(frozen=True)
class Queued:
    """What all requests got.

    Parameters
    ----------
    stays : tuple of Stay
        In the order of the requests.
    waits_s : tuple of float
        From arrival to start.
    utilisation : float
        Share of the servers' time in use between the first arrival and the last.
    """

    stays: tuple[Stay, ...]
    waits_s: tuple[float, ...]
    utilisation: float


def poisson_requests(
    jobs: int,
    servers: int,
    sizes: Sequence[int],
    load: float,
    mean_duration_s: float,
    rng: np.random.Generator,
) -> list[Request]:
    """Draw requests that arrive at random and keep their partitions for random times.

    Parameters
    ----------
    jobs : int
        How many.
    servers : int
        Of the cluster.
    sizes : sequence of int
        Servers of a job, each as likely.
    load : float
        Offered: mean size x mean duration x arrivals a second, over the servers.
    mean_duration_s : float
    rng : numpy.random.Generator

    Returns
    -------
    list of Request
        By arrival; times between arrivals and durations are exponential.

    Raises
    ------
    InputError
        If a number is out of range.
    """
    for what, value in (("jobs", jobs), ("servers", servers), ("load", load),
                        ("mean duration", mean_duration_s)):  # fmt: skip
        if not (value > 0 and isfinite(value)):
            raise InputError(f"{what} is {value}; give a positive number")
    if not sizes or min(sizes) < 1:
        raise InputError(f"sizes of jobs are {list(sizes)}; give positive ones")
    gap = float(np.mean(sizes)) * mean_duration_s / (load * servers)
    arrivals = np.cumsum(rng.exponential(gap, jobs))
    durations = rng.exponential(mean_duration_s, jobs)
    chosen = rng.choice(np.array(sizes), jobs)
    return [
        Request(float(arrival), int(size), float(duration))
        for arrival, size, duration in zip(arrivals, chosen, durations, strict=True)
    ]


def serve(
    requests: Sequence[Request], servers: int, reach: int, *, overtaking: bool = False
) -> Queued:
    """Give each request a partition as soon as it can have one.

    A partition is wired by the port layer, so its servers need not be neighbours; but all their
    ports must end in one part of the layer (a patch panel, an optical switch, or several joined),
    which reaches so many servers. Running jobs are not moved.

    Parameters
    ----------
    requests : sequence of Request
        By arrival.
    servers : int
        Of the cluster.
    reach : int
        Servers that one part of the layer joins: servers 0 to reach - 1 are the first part's, and
        so on. As many as there are servers: any can be joined.
    overtaking : bool
        Whether requests may start before earlier ones that must wait; otherwise all wait for
        the first in line.

    Returns
    -------
    Queued
        A request gets the lowest free servers of the part with the fewest that suffice.

    Raises
    ------
    InputError
        If the reach is out of range or the requests are not by arrival.
    InfeasibleError
        If a request needs more servers than a part reaches.
    """
    if not 1 <= reach <= servers:
        raise InputError(f"reach is {reach} of {counted(servers, 'server')}; give 1 to {servers}")
    if any(a.arrival_s > b.arrival_s for a, b in pairwise(requests)):
        raise InputError("the requests are not in the order of their arrival; sort them")
    parts = [list(range(low, min(low + reach, servers))) for low in range(0, servers, reach)]
    largest = max((request.servers for request in requests), default=0)
    if largest > len(parts[0]):
        raise InfeasibleError(
            f"a job needs {largest} servers and the port layer joins {len(parts[0])}; "
            "give it a larger reach"
        )
    stays: dict[int, Stay] = {}
    blocked: set[int] = set()
    waiting: list[int] = []
    leaving: list[tuple[float, int]] = []
    arrived = 0
    while arrived < len(requests) or waiting:
        upcoming = requests[arrived].arrival_s if arrived < len(requests) else np.inf
        if leaving and leaving[0][0] <= upcoming:
            # All that leave at one instant, before anyone takes their place.
            now = leaving[0][0]
            while leaving and leaving[0][0] == now:
                _, gone = heapq.heappop(leaving)
                for server in stays[gone].place:
                    parts[server // reach].append(server)
        else:
            now = upcoming
            waiting.append(arrived)
            arrived += 1
        for number in tuple(waiting):
            size = requests[number].servers
            fits = [part for part in parts if len(part) >= size]
            if fits:
                part = min(fits, key=len)
                part.sort()
                place = tuple(part[:size])
                del part[:size]
                stays[number] = Stay(now, place, number in blocked)
                heapq.heappush(leaving, (now + requests[number].duration_s, number))
                waiting.remove(number)
                continue
            if sum(map(len, parts)) >= size:
                blocked.add(number)
            if not overtaking:
                break
    ordered = tuple(stays[number] for number in range(len(requests)))
    waits = tuple(s.start_s - r.arrival_s for s, r in zip(ordered, requests, strict=True))
    return Queued(ordered, waits, _utilisation(requests, ordered, servers))


def _utilisation(requests: Sequence[Request], stays: Sequence[Stay], servers: int) -> float:
    if len(requests) < 2:
        return 0.0
    first, last = requests[0].arrival_s, requests[-1].arrival_s
    used = sum(
        request.servers * max(0.0, min(stay.start_s + request.duration_s, last) - stay.start_s)
        for request, stay in zip(requests, stays, strict=True)
    )
    return used / (servers * (last - first)) if last > first else 0.0
