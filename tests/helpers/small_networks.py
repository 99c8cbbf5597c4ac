"""Small networks that several test modules route over."""

import numpy as np
import numpy.typing as npt

from routing.network import Network


def circulant_network(
    hosts: int, steps: npt.ArrayLike, capacity: npt.ArrayLike = 1.0, latency: float = 1e-6
) -> Network:
    """Return hosts joined by the steps +p, of one capacity or of one for each step."""
    count = np.size(steps)
    source = np.repeat(np.arange(hosts), count)
    target = (source + np.tile(steps, hosts)) % hosts
    rates = np.tile(np.broadcast_to(capacity, count), hosts)
    return Network.from_links("circulant", hosts, 0, source, target, rates, latency)


def network_of(arcs, hosts, switches=0, capacity=1e9, latency=1e-6):
    """Return the network of some pairs of nodes."""
    source, target = zip(*arcs, strict=True)
    return Network.from_links("test", hosts, switches, source, target, capacity, latency)
