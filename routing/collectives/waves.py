"""How long broadcast trees take where every link sends what is nearest to its root first.

Every link first sends what is on its first hop, of all trees together, then what is on its second,
and so on. While the last bytes of a hop are under way the first of the next are sent, so that
latency and sending overlap: small buffers gain most.
"""

from dataclasses import dataclass
from itertools import pairwise

from routing.collectives.trees import Forest, of_links
from routing.network import Network


@dataclass(frozen=True)
class Waves:
    """What links carry hop by hop.

    Parameters
    ----------
    seconds_per_byte : tuple of float
        Of the whole buffer, on the busiest link, of each hop from the roots.
    latency_s : tuple of float
        The largest of a link that carries something on this hop.
    """

    seconds_per_byte: tuple[float, ...]
    latency_s: tuple[float, ...]

    def times(self, factor: float) -> "Waves":
        """Return the same where a buffer makes so many times the bytes."""
        return Waves(tuple(factor * each for each in self.seconds_per_byte), self.latency_s)

    def spans(self, size: float) -> list[tuple[float, float]]:
        """Return when each hop's data of a buffer of so many bytes are sent, in seconds.

        Notes
        -----
        Spans do not overlap. In its span a link sends at one rate what it carries on that hop, of
        all trees at once. So what arrives and what leaves both grow in a line, and no byte
        leaves before it is there if a span begins and ends no earlier than the one before it
        does, plus its latency.
        """
        found = []
        free = begun = arrived = 0.0
        for seconds, latency in zip(self.seconds_per_byte, self.latency_s, strict=True):
            begin = max(free, begun)
            free = max(begin + seconds * size, arrived)
            found.append((begin, free))
            begun, arrived = begin + latency, free + latency
        return found

    def time(self, size: float) -> float:
        """Return the seconds that a buffer of so many bytes takes, the last link's latency too."""
        return self.spans(size)[-1][1] + self.latency_s[-1]


def waves_of(network: Network, forest: Forest) -> Waves:
    """Return what the links carry on each hop of a forest's trees.

    Parameters
    ----------
    network : Network
    forest : Forest
        On this network.
    """
    load: list[dict[tuple[int, int], int]] = []
    for tree in forest.trees:
        depth = {tree.root: 0}
        for path in tree.paths:
            at = depth[path[0]]
            while len(load) < at + len(path) - 1:
                load.append({})
            for hop, pair in enumerate(pairwise(path), start=at):
                load[hop][pair] = load[hop].get(pair, 0) + tree.copies
            depth[path[-1]] = at + len(path) - 1
    capacity, latency = of_links(network, network.capacity), of_links(network, network.latency)
    return Waves(
        tuple(max(n / capacity[pair] for pair, n in hop.items()) / forest.copies for hop in load),
        tuple(max(latency[pair] for pair in hop) for hop in load),
    )
