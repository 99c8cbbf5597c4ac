"""Random direct-connect fabrics that several test modules share."""

from routing.network import Network
from routing.paths import ecmp_routes
from topoopt.fabric.fabric import Fabric


def random_fabric(servers, degree, bandwidth, rng):
    """A strongly connected digraph of random permutations, one a port."""
    source, target = [], []
    ring = rng.permutation(servers)
    for port in range(degree):
        order = ring if port == 0 else rng.permutation(servers)
        source += order.tolist()
        target += [order[(at + 1) % servers] for at in range(servers)]
    if servers == 1:
        source, target = [], []
    network = Network.from_links("random", servers, 0, source, target, bandwidth, 1e-6)
    return Fabric("random", network, ecmp_routes(network), {})
