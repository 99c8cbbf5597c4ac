"""A multi-dimensional network with its bandwidths as a fabric that the simulators take."""

from itertools import product

from topoopt.bandwidth.model.links import build_network, dimension_routes, strides
from topoopt.bandwidth.model.network import BuildingBlock, MultiDimNetwork
from topoopt.bandwidth.model.time_model import Floats
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.transport import PACKETS, Transport


def block_rings(block: BuildingBlock, members: int) -> tuple[tuple[int, ...], ...]:
    """Return rings that load all links of a block equally.

    Parameters
    ----------
    block : BuildingBlock
    members : int

    Returns
    -------
    tuple of tuple of int
        Orders of 0 .. members - 1. A Ring both ways, a Switch once. On FullyConnected the
        2 (n-1) rotations and reversals of a zigzag through all members: every directed link
        lies on exactly two of them, for any n.

    Notes
    -----
    The zigzag 0, 1, -1, 2, -2, ... modulo m = n - 1, closed over one more member, meets each
    difference twice (half a turn once), so that its m rotations meet each pair twice. This is
    Walecki's construction, turned all the way around.
    """
    order = tuple(range(members))
    if members == 2:
        return (order,)
    if block == BuildingBlock.SWITCH:
        return (order,)
    if block == BuildingBlock.RING:
        return (order, order[::-1])
    m = members - 1
    zigzag = [0]
    for k in range(1, m):
        zigzag.append((k + 1) // 2 if k % 2 else m - k // 2)
    turned = [(*((v + turn) % m for v in zigzag), m) for turn in range(m)]
    return tuple(ring for order in turned for ring in (order, order[::-1]))


def lines(network: MultiDimNetwork, dimension: int) -> list[tuple[int, ...]]:
    """Return the NPUs of each group that spans one dimension, in coordinate order."""
    step, n = strides(network)[dimension], network.sizes[dimension]
    starts = product(range(network.npus // (step * n)), range(step))
    return [tuple(high * step * n + low + k * step for k in range(n)) for high, low in starts]


def multi_dim_fabric(
    network: MultiDimNetwork, bandwidth: Floats, transport: Transport = PACKETS
) -> Fabric:
    """Return a network with its routes, and rings over the groups of each dimension.

    Parameters
    ----------
    network : MultiDimNetwork
    bandwidth : float64 array, shape (dimensions,)
        Bytes/s per NPU of each dimension.
    transport : Transport, optional

    Returns
    -------
    Fabric
        Dimension-ordered routes. An AllReduce over a whole dimension uses all of its links, so
        that it takes `2 (n-1) / n` of its bytes over the bandwidth; groups over several
        dimensions get rings as on any fabric.

    Raises
    ------
    InputError
        If a dimension has no bandwidth, or there are too many NPUs.
    """
    made = build_network(network, bandwidth)
    rings = {}
    for d, (block, n) in enumerate(zip(network.blocks, network.sizes, strict=True)):
        orders = block_rings(block, n)
        for line in lines(network, d):
            rings[line] = tuple(tuple(line[v] for v in order) for order in orders)
    return Fabric(network.notation, made, dimension_routes(network, made), rings, None, transport)
