"""How fast members of a group can broadcast to it at once: the bottleneck cut.

In an AllGather each of ``n`` members is a root, which sends its part to all others; in a Broadcast
one is. Through any cut that parts at least one member from a set with ``m`` roots, ``m`` parts
must leave it; so no part flows faster than the least of (capacity out of the set) / m. By Edmonds'
theorem on disjoint arborescences
trees reach that rate (Zhao et al., "ForestColl: Throughput-Optimal Collective Communications on
Heterogeneous Network Fabrics", 2024, section 5.1), so it is a bound and an optimum.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

from codesign_base import InfeasibleError, InputError
from routing.collectives.cuts import Capacities, Cuts, joined_arcs
from routing.network import Network

MOST_UNITS = 10**6
"""Of the greatest common divisor of all capacities, in the largest one."""


@dataclass(frozen=True)
class GatherRate:
    """The rate at which members of a group can broadcast to it at once.

    Parameters
    ----------
    members : tuple of int
        Hosts, ascending.
    roots : tuple of int
        Members that broadcast, ascending.
    unit : float
        Bytes/s of one unit of capacity.
    capacity : mapping of (int, int) to int
        Of each link, in units.
    per_root : Fraction
        Units of capacity that each root's broadcast gets.
    cut : tuple of int
        Nodes of a set that binds: what leaves it is its roots' broadcasts, and no more.
    """

    members: tuple[int, ...]
    roots: tuple[int, ...]
    unit: float
    capacity: Capacities
    per_root: Fraction
    cut: tuple[int, ...]

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second of each root's broadcast."""
        return float(self.per_root) * self.unit


def gather_rate(network: Network, group: Sequence[int], root: int | None = None) -> GatherRate:
    """Return the best rate of an AllGather or Broadcast, and the cut that forbids a better one.

    Parameters
    ----------
    network : Network
    group : sequence of int
        Hosts, at least two; the others and switches forward.
    root : int, optional
        The member that broadcasts; all do without.

    Returns
    -------
    GatherRate

    Raises
    ------
    InputError
        If the group is none of distinct hosts, or capacities have no common unit.
    InfeasibleError
        If members cannot reach each other.
    """
    members = members_of(network, group)
    roots = roots_of(members, root)
    unit, capacity = whole_capacities(network)
    source = network.hosts + network.switches
    # What leaves all but one member bounds the rate; each cut found lowers it until none does
    # (Dinkelbach's iteration, which ends at the smallest ratio).
    last = next(member for member in reversed(members) if roots != (member,))
    rest = frozenset(range(source)) - {last}
    rate, side = _ratio(capacity, rest, roots), rest
    while True:
        if rate == 0:
            raise InfeasibleError(
                f"network {network.name!r}: host {min(set(members) - side)} cannot be reached from "
                f"host {min(set(roots) & side)}; choose a group that is connected both ways"
            )
        cuts = Cuts(
            joined_arcs(
                ((pair, amount * rate.denominator) for pair, amount in capacity.items()),
                (((source, member), rate.numerator) for member in roots),
            )
        )
        better = None
        for member in members:
            if cuts.value(source, member) < len(roots) * rate.numerator:
                found = frozenset(cuts.side() - {source})
                ratio = _ratio(capacity, found, roots)
                if better is None or ratio < better[0]:
                    better = ratio, found
        if better is None:
            return GatherRate(members, roots, unit, capacity, rate, tuple(sorted(side)))
        rate, side = better


def whole_capacities(network: Network) -> tuple[float, Capacities]:
    """Return capacities as whole multiples of a unit.

    Returns
    -------
    unit : float
        Bytes/s.
    capacity : mapping of (int, int) to int

    Raises
    ------
    InputError
        If the largest is more than `MOST_UNITS` of the greatest common divisor.
    """
    exact = [Fraction(value) for value in network.capacity.tolist()]
    if not exact:
        raise InfeasibleError(f"network {network.name!r} has no links; add some")
    denominator = 1
    for value in exact:
        denominator = denominator * value.denominator // gcd(denominator, value.denominator)
    whole = [int(value * denominator) for value in exact]
    divisor = gcd(*whole)
    if max(whole) // divisor > MOST_UNITS:
        raise InputError(
            f"network {network.name!r}: capacities have no common unit of at least "
            f"{float(max(exact)) / MOST_UNITS:.4g} bytes/s; round them"
        )
    pairs = zip(network.source.tolist(), network.target.tolist(), strict=True)
    return (
        float(Fraction(divisor, denominator)),
        {pair: amount // divisor for pair, amount in zip(pairs, whole, strict=True)},
    )


def members_of(network: Network, group: Sequence[int]) -> tuple[int, ...]:
    """Return the hosts of a group, ascending.

    Raises
    ------
    InputError
        If they are not at least two distinct hosts of the network.
    """
    members = tuple(sorted(group))
    if len(members) < 2 or len(set(members)) < len(members):
        raise InputError(f"group {list(group)}: give at least two distinct hosts")
    if members[0] < 0 or members[-1] >= network.hosts:
        raise InputError(f"group {list(group)}: give hosts 0 to {network.hosts - 1}")
    return members


def roots_of(members: tuple[int, ...], root: int | None) -> tuple[int, ...]:
    """Return the members that broadcast: one, or all where none is named.

    Raises
    ------
    InputError
        If the root is no member.
    """
    if root is None:
        return members
    if root not in members:
        raise InputError(f"root is {root}, which is not in the group; give one of its hosts")
    return (root,)


def _ratio(capacity: Capacities, side: frozenset[int], roots: Sequence[int]) -> Fraction:
    out = sum(amount for (a, b), amount in capacity.items() if a in side and b not in side)
    return Fraction(out, sum(root in side for root in roots))
