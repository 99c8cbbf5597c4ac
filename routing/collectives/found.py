"""Forests and meetings of one group, found in several numberings of its network.

Which of links, roots and members that are alike is taken first decides how well the later ones fit,
for which no rule is best everywhere. So schedules are sought in an order that follows structure and
in shuffled ones, and the fastest on the mean of all sizes is kept.
"""

from collections.abc import Sequence

import numpy as np

from codesign_base import InfeasibleError
from routing.circulant_flow import is_circulant
from routing.collectives.forest import gather_forest
from routing.collectives.joint import joint_forests
from routing.collectives.meeting import Meeting, Meetings
from routing.collectives.member_links import TooMuchWorkError
from routing.collectives.numbering import (
    MOST_NUMBERED,
    Numbering,
    around,
    mean_time,
    orders,
    renumbered,
)
from routing.collectives.reduce_broadcast import reduce_broadcast_forests
from routing.collectives.rings import ring_forest, strided_rings
from routing.collectives.shortest import shortest_forest
from routing.collectives.trees import Forest
from routing.collectives.waves import Waves, waves_of
from routing.network import Network

MOST_RINGS = 8

MOST_PACKED = 128
"""Members that trees of the best rate are made for: the work grows with their cube."""

MOST_MET = 2048
"""Members that meetings are made for: the work grows with their square."""

# What takes longest is sought in fewer numberings: of n nodes trees of the best rate in at most the
# first over n cubed, meetings in at most the second over n squared.
_TRIED_PACKED = 2**18
_TRIED_MET = 2**14


class Sought:
    """What is found for one group.

    Parameters
    ----------
    network : Network
    members : sequence of int
    root : int or None
        The only member that broadcasts.

    Notes
    -----
    All but rings is the same however nodes are numbered, unless there are too many to try enough
    numberings (`routing.collectives.numbering.orders`). Rings are over the members as they are
    sorted, or, of all hosts of a circulant of other numbers, around it.
    """

    def __init__(self, network: Network, members: Sequence[int], root: int | None) -> None:
        self.network, self.members, self.root = network, members, root
        self.orders = orders(network, members, root)
        self.around = None
        if len(members) == network.nodes <= MOST_NUMBERED and not is_circulant(network):
            self.around = around(network)

    def forests(self, network: Network, *, packed: bool = True) -> dict[str, Forest]:
        """Return forests of each kind; joint trees stand for the best where these are not found.

        Parameters
        ----------
        network : Network
            The given one, or the one turned round.
        packed : bool
            Whether trees of the best rate are asked for.

        Returns
        -------
        dict of str to Forest
            Without "rings" where one is as fast; without "trees" of more than `MOST_PACKED` members
            or where they take too much work.
        """
        members, root = self.members, self.root
        found = self._rings(network)
        places = [_Place(renumbered(network, each), members, root) for each in self.orders]
        found["shortest-trees"] = _fastest(network, [each.shortest() for each in places])
        if network.latency.max() > network.latency.min():
            nearest = [each.shortest(nearest=True) for each in places]
            found["nearest-trees"] = _fastest(network, nearest)
        if packed and len(members) <= MOST_PACKED:
            some = places[: max(1, _TRIED_PACKED // network.nodes**3)]
            try:
                trees = [made for each in some if (made := each.packed()) is not None]
            except TooMuchWorkError:
                return found
            # None where nodes that forward receive and send at different rates.
            found["trees"] = _fastest(network, trees or [places[0].joint()])
        return found

    def _rings(self, network: Network) -> dict[str, Forest]:
        """Return rings over the sorted members, or around all hosts where these are faster."""
        tried = [renumbered(network, np.arange(network.nodes))]
        if self.around is not None:
            tried.append(renumbered(network, self.around))
        one, several = [], []
        for place in tried:
            strided = strided_rings(place.network, place.numbers(self.members), MOST_RINGS)
            root = None if self.root is None else place.numbers([self.root])[0]
            one.append(place.forest(ring_forest(place.network, strided[:1], root)))
            if len(strided) > 1:
                several.append(place.forest(ring_forest(place.network, strided, root)))
        found = {"ring": _fastest(network, one)}
        if several:
            found["rings"] = _fastest(network, several)
        return found

    def reduce_broadcasts(self) -> list[tuple[Forest, Forest]]:
        """Return trees of sums and of whole parts that flow at once, of each numbering.

        Returns
        -------
        list of (Forest, Forest)
            None of more than `MOST_PACKED` members, or where they take too much work.
        """
        found: list[tuple[Forest, Forest]] = []
        if len(self.members) > MOST_PACKED:
            return found
        for order in self.orders[: max(1, _TRIED_PACKED // self.network.nodes**3)]:
            there = renumbered(self.network, order)
            try:
                sums, parts = reduce_broadcast_forests(there.network, there.numbers(self.members))
            except (TooMuchWorkError, InfeasibleError):
                continue
            found.append((there.forest(sums), there.forest(parts)))
        return found

    def meetings(self) -> list[Meeting]:
        """Return meetings that are fastest at some size, of each name one."""
        found: dict[str, list[Meeting]] = {}
        for order in self.orders[: max(1, _TRIED_MET // self.network.nodes**2)]:
            there = renumbered(self.network, order)
            for each in Meetings(there.network, there.numbers(self.members)).chosen():
                found.setdefault(each.name, []).append(there.meeting(each))
        return [
            min(some, key=lambda each: _mean(each.bytes_per_s, each.latency_s, each.waves))
            for some in found.values()
        ]


class _Place:
    """A numbering in which forests are sought, which are returned by given numbers."""

    def __init__(self, numbering: Numbering, members: Sequence[int], root: int | None) -> None:
        self.numbering = numbering
        self.members = numbering.numbers(members)
        self.root = None if root is None else numbering.numbers([root])[0]

    def shortest(self, *, nearest: bool = False) -> Forest:
        found = shortest_forest(self.numbering.network, self.members, self.root, nearest=nearest)
        return self.numbering.forest(found)

    def packed(self) -> Forest | None:
        try:
            found = gather_forest(self.numbering.network, self.members, self.root)
        except InfeasibleError:
            return None
        return self.numbering.forest(found)

    def joint(self) -> Forest:
        joint = joint_forests(self.numbering.network, [self.members], root=self.root)
        return self.numbering.forest(joint.forests[0])


def _fastest(network: Network, forests: Sequence[Forest]) -> Forest:
    if len(forests) == 1:
        return forests[0]
    return min(
        forests,
        key=lambda each: _mean(
            each.whole_bytes_per_s, each.latency(network), waves_of(network, each)
        ),
    )


def _mean(bytes_per_s: float, latency_s: float, waves: Waves) -> float:
    return mean_time(lambda size: min(size / bytes_per_s + latency_s, waves.time(size)))
