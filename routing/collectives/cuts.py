"""Smallest cuts of integer networks: the library's maximum flow on arcs that change."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
from ortools.graph.python.max_flow import SimpleMaxFlow

Arc = tuple[int, int]
Capacities = Mapping[Arc, int]


class Cuts:
    """Minimum cuts between nodes of a network with whole capacities.

    Parameters
    ----------
    capacity : mapping of (int, int) to int
        Of each arc; zeros are arcs that may get a capacity later.

    Raises
    ------
    ValueError
        If an arc that is changed is unknown.
    """

    def __init__(self, capacity: Capacities) -> None:
        self._flow = cast(Any, SimpleMaxFlow())  # stubs know arrays of 32 bits only
        ends = np.array(list(capacity), dtype=np.int64).reshape(-1, 2)
        amounts = np.fromiter(capacity.values(), dtype=np.int64, count=len(capacity))
        arcs = self._flow.add_arcs_with_capacity(ends[:, 0], ends[:, 1], amounts)
        self._arc = {pair: int(arc) for pair, arc in zip(capacity, arcs, strict=True)}

    def change(self, capacity: Capacities) -> None:
        """Give some arcs new capacities."""
        for pair, amount in capacity.items():
            if pair not in self._arc:
                raise ValueError(f"no arc {pair}")
            self._flow.set_arc_capacity(self._arc[pair], amount)

    @property
    def arcs(self) -> int:
        """How many arcs there are, about as many of which each flow looks at."""
        return len(self._arc)

    def value(self, source: int, sink: int) -> int:
        """Return the capacity of the smallest cut that parts the sink from the source."""
        status = self._flow.solve(source, sink)
        if status != SimpleMaxFlow.OPTIMAL:
            raise ValueError(f"the flow from {source} to {sink} is {status.name}")
        return int(self._flow.optimal_flow())

    def side(self) -> set[int]:
        """Return the source's side of the cut found last."""
        return {int(node) for node in self._flow.get_source_side_min_cut()}


def joined_arcs(*parts: Iterable[tuple[Arc, int]]) -> dict[Arc, int]:
    """Return arcs with the capacities of parallel ones added."""
    found: dict[Arc, int] = {}
    for part in parts:
        for pair, amount in part:
            found[pair] = found.get(pair, 0) + amount
    return found
