"""Clusters to choose among: the points of a grid, what is known of them, and who is not beaten."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from math import isfinite
from typing import Any

from codesign_base import InputError
from codesign_base.arguments import check_number, python_numbers, whole

# Numbers of a range that counts by one.
_MOST_COUNTS = 1024


class DesignObjective(StrEnum):
    """What the best design has least of.

    ``time``: seconds a sample. ``cost-time``: US dollars times seconds a sample.
    """

    TIME = "time"
    COST_TIME = "cost-time"


@dataclass(frozen=True)
class Limits:
    """What a design may spend at most.

    Parameters
    ----------
    cost_usd : float, optional
        US dollars of network and servers.
    ports : int, optional
        Network ports of all servers together.

    Raises
    ------
    InputError
        If a limit is not positive.

    Examples
    --------
    >>> import topoopt as to
    >>> to.Limits(cost_usd=50_000, ports=64).ports
    64
    """

    cost_usd: float | None = None
    ports: int | None = None

    def __post_init__(self) -> None:
        python_numbers(self)
        if self.cost_usd is not None:
            check_number("cost limit in USD", self.cost_usd)
            if not isfinite(self.cost_usd):
                raise InputError(f"cost limit in USD is {self.cost_usd}; leave it out")
        if self.ports is not None:
            ports = whole("port limit", self.ports, "a whole number of at least 1")
            if ports < 1:
                raise InputError(f"port limit is {ports}; give at least 1")
            object.__setattr__(self, "ports", ports)

    def refuses(self, point: "Point") -> str:
        """Return why a point is over a limit, or ""."""
        if self.cost_usd is not None and point.cost_usd > self.cost_usd:
            limit = f"the limit on costs of {self.cost_usd:,.0f}"
            return f"costs {point.cost_usd:,.0f} USD, over {limit}"
        if self.ports is not None and point.servers * point.degree > self.ports:
            limit = f"the limit on ports of {self.ports}"
            return f"has {point.servers * point.degree} ports, over {limit}"
        return ""


@dataclass(frozen=True)
class Point:
    """A cluster that might be bought.

    Parameters
    ----------
    servers, degree : int
    bandwidth_bytes_per_s : float
        Of a port, each way.
    cost_usd : float
        Of network and servers.
    """

    servers: int
    degree: int
    bandwidth_bytes_per_s: float
    cost_usd: float


@dataclass(frozen=True)
class Design:
    """What became of a point.

    Parameters
    ----------
    point : Point
    state : {"planned", "dominated", "infeasible", "over-limit"}
        Dominated: not planned, because one that costs no more is proven to be no slower by flows,
        or slower by less than the least gain.
    why : str
        Of what was not planned.
    lower_bound_s_per_sample : float or None
        No plan on this cluster is faster by flows; None where it was not worked out.
    iteration_time_s, packet_time_s : float or None
        By flows, and by packet trains where the plan has such a time.
    time_per_sample_s : float or None
        By packet trains where there are such times.
    samples : int or None
        Of an iteration.
    strategy_origin : str
    """

    point: Point
    state: str
    why: str = ""
    lower_bound_s_per_sample: float | None = None
    iteration_time_s: float | None = None
    packet_time_s: float | None = None
    time_per_sample_s: float | None = None
    samples: int | None = None
    strategy_origin: str = ""

    @property
    def planned(self) -> bool:
        """Whether there is a plan."""
        return self.state == "planned"

    def value(self, objective: DesignObjective) -> float:
        """Return the objective of a planned design; infinity otherwise."""
        if self.time_per_sample_s is None:
            return float("inf")
        if objective is DesignObjective.TIME:
            return self.time_per_sample_s
        return self.time_per_sample_s * self.point.cost_usd

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        data = asdict(self)
        return {**data.pop("point"), **data}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Design":
        """Read what `to_dict` returns.

        Raises
        ------
        InputError
            If a field is missing or unknown.
        """
        names = ("servers", "degree", "bandwidth_bytes_per_s", "cost_usd")
        rest = {name: value for name, value in data.items() if name not in names}
        try:
            return cls(Point(**{name: data[name] for name in names}), **rest)
        except (KeyError, TypeError) as error:
            raise InputError(f"design {data!r}: field missing or unknown ({error})") from None


def frontier(designs: Iterable[Design], least_gain: float = 0.0) -> tuple[Design, ...]:
    """Return the planned designs than which none is both cheaper and faster.

    Parameters
    ----------
    designs : iterable of Design
    least_gain : float
        Share by which a design must be faster than the cheaper ones that are kept.

    Returns
    -------
    tuple of Design
        By increasing cost; of designs that are equal in both, the first.
    """
    best = float("inf")
    kept = []
    planned = [design for design in designs if design.planned]
    for design in sorted(planned, key=lambda d: (d.point.cost_usd, d.value(DesignObjective.TIME))):
        if design.value(DesignObjective.TIME) < best:
            best = design.value(DesignObjective.TIME) * (1.0 - least_gain)
            kept.append(design)
    return tuple(kept)


def none_planned(designs: Sequence[Design]) -> str:
    """Return why none of some designs is planned, and what to change, or "" where one is.

    Parameters
    ----------
    designs : sequence of Design

    Examples
    --------
    >>> point = Point(servers=2, degree=2, bandwidth_bytes_per_s=1.25e10, cost_usd=3432.0)
    >>> none_planned([Design(point, "over-limit", "costs 3,432 USD, over the limit of 1")])
    'no design is planned: the cheapest costs 3,432 USD, over the limit of 1; raise that limit'
    """
    if not designs or any(design.planned for design in designs):
        return ""
    first: dict[str, str] = {}  # of each state, the cheapest design's reason
    for design in sorted(designs, key=lambda design: design.point.cost_usd):
        first.setdefault(design.state, design.why)
    why = [reason for state, reason in first.items() if state != "over-limit"]
    if "over-limit" in first:
        least = "the cheapest of the others" if why else "the cheapest"
        why.append(f"{least} {first['over-limit']}; raise that limit")
    return f"no design is planned: {'; '.join(why)}"


def parse_counts(text: str, name: str, *, doubling: bool) -> tuple[int, ...]:
    """Read a list of counts: ``16``, ``16,24,64``, or a range ``16..256``.

    Parameters
    ----------
    text : str
    name : str
        For messages.
    doubling : bool
        A range doubles from its first number up to its last, rather than counting by one.

    Returns
    -------
    tuple of int
        Ascending, without repetitions.

    Raises
    ------
    InputError
        If the text is none of these.

    Examples
    --------
    >>> parse_counts("16..100", "servers", doubling=True)
    (16, 32, 64)
    >>> parse_counts("2..4,8", "degree", doubling=False)
    (2, 3, 4, 8)
    """
    found: set[int] = set()
    remedy = 'write "16", "16,64" or "16..256"'
    for part in text.split(","):
        ends = part.strip().split("..")
        if len(ends) > 2 or not all(re.fullmatch(r"\s*[0-9]{1,18}\s*", end) for end in ends):
            raise InputError(f"{name} is {text!r}; {remedy}")
        low, high = int(ends[0]), int(ends[-1])
        if not 1 <= low <= high:
            raise InputError(f"{name} is {text!r}; ranges begin at 1 or more and do not fall")
        if not doubling and high - low >= _MOST_COUNTS:
            raise InputError(f"{name} is {text!r}; a range has at most {_MOST_COUNTS} numbers")
        while low <= high:
            found.add(low)
            low = 2 * low if doubling else low + 1
    return tuple(sorted(found))
