"""Which rings a group gets: their steps, and which member takes which place.

Source: TopoOpt (NSDI 2023, arXiv 2202.00433), section 4. The paper takes steps near a geometric
sequence; the other choices here are departures, each of which can be had alone.
"""

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from codesign_base import InfeasibleError
from codesign_base.arguments import member
from codesign_base.rows import summed
from topoopt.topology.cayley import CayleyGraph, select_cayley
from topoopt.topology.circulants import circulant_distances, select_circulant
from topoopt.topology.placement import place_servers
from topoopt.topology.select import select_permutations

_Order = tuple[int, ...]

# Sets that are tried for a group while a topology is built.
_MOST_SETS = 20_000
# Steps and places are chosen in turn; large groups get one turn.
_ROUNDS = 2
_LARGE = 256
# The least and the most members for which Cayley graphs are searched.
_CAYLEY_SIZES = (6, 256)


class Selection(StrEnum):
    """How the steps of a group's rings are chosen.

    ``geometric``: near a geometric sequence (paper). ``exact``: for the least mean distance of
    the circulant network. ``traffic``: for the least bytes x hops of the group's transfers.
    ``cayley``: rings of a Cayley graph of any group instead, where that has shorter paths than the
    best circulant network; otherwise as ``exact``.
    """

    GEOMETRIC = "geometric"
    EXACT = "exact"
    TRAFFIC = "traffic"
    CAYLEY = "cayley"


def selection_named(value: str) -> Selection:
    """Return the selection of a name.

    Raises
    ------
    InputError
        If there is none.
    """
    return member("selection", value, Selection)


@dataclass(eq=False)
class RingChooser:
    """Chooses rings for one topology under construction.

    Parameters
    ----------
    selection : Selection
    placed : bool
        Whether members may take any place on their group's rings.
    transfers : float64 array, shape (servers, servers)
        Bytes from row server to column server.
    bidirectional : bool
        Whether a step p also gives -p.
    """

    selection: Selection = Selection.GEOMETRIC
    placed: bool = False
    transfers: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    bidirectional: bool = False

    def steps(self, order: _Order, count: int, used: _Order = ()) -> tuple[int, ...]:
        """Return steps for a group, those in use first or left out of the geometric sequence.

        Parameters
        ----------
        order : tuple of int
            The server of each place.
        count : int
            Steps in all; fewer where the group has fewer.
        used : tuple of int
            Steps wired already (one of +p and -p in bidirectional mode).
        """
        n = len(order)
        both_ways = self.bidirectional and n > 2
        if self.selection is Selection.GEOMETRIC or count <= len(used):
            return select_permutations(n, count, bidirectional=both_ways)
        demand = None
        if self.selection is Selection.TRAFFIC:
            demand = self._by_offset(order)
            demand = demand if demand.any() else None
        chosen = select_circulant(
            n, count, bidirectional=both_ways, demand=demand, fixed=used, most=_MOST_SETS
        )
        return chosen.generators

    def arrange(self, group: _Order, count: int) -> _Order:
        """Return the server of each place of a group that gets ``count`` steps.

        The group itself unless another placement serves its transfers better.
        """
        if not self.placed or len(group) < 4 or count < 1:
            return group
        members = list(group)
        demand = self.transfers[np.ix_(members, members)]
        if not demand.any():
            return group
        both_ways = self.bidirectional
        graph = self.cayley(len(group), count)
        if graph is not None:
            return tuple(members[v] for v in place_servers(demand, graph.between))
        places: tuple[int, ...] = tuple(range(len(group)))
        for _ in range(_ROUNDS if len(group) <= _LARGE else 1):
            order = tuple(members[v] for v in places)
            steps = self.steps(order, count)
            distance = circulant_distances(len(group), steps, both_ways)
            moved = place_servers(demand, distance, start=places)
            if moved == places or self.selection is not Selection.TRAFFIC:
                places = moved
                break
            places = moved
        return tuple(members[v] for v in places)

    def cayley(self, n: int, count: int) -> CayleyGraph | None:
        """Return a Cayley graph of ``count`` rings if one has shorter paths than steps have."""
        least, most = _CAYLEY_SIZES
        degree = 2 * count if self.bidirectional else count
        if self.selection is not Selection.CAYLEY or not least <= n <= most:
            return None
        if count < 2 or degree >= n:
            return None
        try:
            graph = select_cayley(n, degree, bidirectional=self.bidirectional)
        except InfeasibleError:
            return None
        steps = select_circulant(n, count, bidirectional=self.bidirectional, most=_MOST_SETS)
        shorter = (graph.mean_distance, graph.diameter) < (steps.mean_distance, steps.diameter)
        return graph if shorter else None

    def cycles(self, order: _Order, count: int) -> tuple[_Order, ...]:
        """Return ``count`` rings of a Cayley graph; none if those of steps serve better.

        Parameters
        ----------
        order : tuple of int
            The server of each place.
        count : int
        """
        graph = self.cayley(len(order), count)
        if graph is None:
            return ()
        return tuple(tuple(order[v] for v in ring) for ring in graph.rings)

    def _by_offset(self, order: _Order) -> npt.NDArray[np.float64]:
        """Return the bytes that members send to the place ``offset`` farther, shape (n,)."""
        n = len(order)
        between = self.transfers[np.ix_(list(order), list(order))]
        place = np.arange(n)
        offset = (place[None, :] - place[:, None]) % n
        return summed(offset.ravel(), between.ravel(), n)
