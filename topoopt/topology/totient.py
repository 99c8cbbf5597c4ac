"""TotientPerms: the regular ring orderings of a group of servers.

Source: TopoOpt (NSDI 2023, arXiv 2202.00433), section 4. The step +p over n servers
(i -> i + p mod n) is one cycle through all of them iff gcd(p, n) = 1, so a group has phi(n)
regular orderings (Euler's totient) instead of n!.
"""

import math
from collections.abc import Sequence

from codesign_base import InputError
from codesign_base.counted import counted
from topoopt.topology.ring_links import ring_links


def totient_permutations(n: int) -> tuple[int, ...]:
    """Return every ring step p of a group of n servers, ascending.

    The paper keeps only 1 and primes in large groups.

    Parameters
    ----------
    n : int
        Servers in the group, at least 2.

    Returns
    -------
    tuple of int
        All p in 1 .. n-1 with gcd(p, n) = 1.

    Raises
    ------
    InputError
        If n is below 2.
    """
    if n < 2:
        raise InputError(f"ring orderings of {counted(n, 'server')}; a ring needs at least 2")
    return tuple(p for p in range(1, n) if math.gcd(p, n) == 1)


def ring_order(members: Sequence[int], p: int) -> tuple[int, ...]:
    """Return the members in the order in which the ring +p visits them.

    Parameters
    ----------
    members : sequence of int
        The group; positions in this sequence are what p counts.
    p : int
        Ring step, coprime to the number of members.

    Returns
    -------
    tuple of int
        Starts at the first member; each sends to the next, the last to the first.

    Raises
    ------
    InputError
        If the step does not visit all members.
    """
    n = len(members)
    _check_step(n, p)
    return tuple(members[i * p % n] for i in range(n))


def ring_places(order: Sequence[int], p: int) -> tuple[int, ...]:
    """Return the member at each place: what `ring_order` made the ring +p of.

    Parameters
    ----------
    order : sequence of int
        The ring; its first member is at place 0.
    p : int
        Ring step, coprime to the number of members.

    Returns
    -------
    tuple of int

    Raises
    ------
    InputError
        If the step is not coprime to the number of members.
    """
    n = len(order)
    _check_step(n, p)
    return tuple(order[place * pow(p, -1, n) % n] for place in range(n))


def _check_step(n: int, p: int) -> None:
    if math.gcd(p, n) != 1:
        raise InputError(
            f"ring step {p} over {n} servers makes {math.gcd(p, n)} cycles; "
            f"choose a step coprime to {n}"
        )


def ring_step(order: Sequence[int], seats: Sequence[int]) -> int:
    """Return the step p of a ring, such that `ring_order` of the places makes it; 0 if none does.

    Parameters
    ----------
    order : sequence of int
        The ring.
    seats : sequence of int
        The member at each place.

    Returns
    -------
    int
    """
    place = {member: at for at, member in enumerate(seats)}
    n = len(order)
    steps = {(place[b] - place[a]) % n for a, b in ring_links(order)}
    return steps.pop() if len(steps) == 1 else 0
