"""Products of rings, full meshes and switches; torus, hypercube and full mesh among them."""

from collections.abc import Sequence
from math import prod

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Ints
from codesign_base.counted import counted
from routing.network import Network
from topoopt.topology.cables import both_ways, check_rates
from topoopt.topology.zoo.blocks import BuildingBlock


def torus(dims: Sequence[int], bandwidth: float, latency: float) -> Network:
    """Join servers to their neighbours in every dimension.

    Parameters
    ----------
    dims : sequence of int
        Servers along each dimension. A dimension takes two ports, of length 2 one.
    bandwidth : float
        Bytes per second of one cable in each direction.
    latency : float
        Seconds of each link.

    Returns
    -------
    Network
        Server numbers count the last dimension fastest.

    Raises
    ------
    InputError
        If a dimension is below 1, or there are fewer than two servers.
    """
    return product([(BuildingBlock.RING, n) for n in dims], bandwidth, latency, name="torus")


def hypercube(servers: int, bandwidth: float, latency: float) -> Network:
    """Join servers whose numbers differ in one bit.

    Raises
    ------
    InputError
        If the number of servers is no power of two.
    """
    bits = max(servers, 1).bit_length() - 1
    if servers < 2 or 1 << bits != servers:
        raise InputError(
            f"a hypercube of {counted(servers, 'server')}; give a power of two, such as "
            f"{1 << max(bits, 1)}"
        )
    return product([(BuildingBlock.RING, 2)] * bits, bandwidth, latency, name="hypercube")


def full_mesh(servers: int, bandwidth: float, latency: float) -> Network:
    """Join every two servers by a cable: servers - 1 ports each."""
    return product([(BuildingBlock.FULLY_CONNECTED, servers)], bandwidth, latency, name="full mesh")


def product(
    blocks: Sequence[tuple[BuildingBlock, int]],
    bandwidth: float,
    latency: float,
    name: str = "product",
) -> Network:
    """Join servers along each dimension by a ring, a full mesh or a switch.

    Parameters
    ----------
    blocks : sequence of (BuildingBlock, int)
        Kind and servers of each dimension, the slowest counting first.
    bandwidth : float
        Bytes per second of one cable in each direction.
    latency : float
        Seconds of each link.
    name : str

    Returns
    -------
    Network
        With a switch dimension, hosts 0 .. n-1 each have a forwarding node n .. 2n-1 of their
        own, since where there are switches hosts do not forward; every path then has two more
        links, inside its servers, with the bandwidth of all their ports.

    Raises
    ------
    InputError
        If a size is below 1, or there are fewer than two servers.

    Notes
    -----
    The networks of LIBRA (Won et al., ISPASS 2024): dimensions are building blocks of one kind.
    """
    sizes = [size for _, size in blocks]
    if not sizes or min(sizes) < 1:
        raise InputError(f"{name} of dimensions {sizes}; give sizes of at least 1")
    servers = prod(sizes)
    check_rates(servers, bandwidth, latency)
    grid = np.arange(servers, dtype=np.int64).reshape(sizes)
    switched = any(kind is BuildingBlock.SWITCH and size > 1 for kind, size in blocks)
    first = servers if switched else 0  # the nodes that forward
    low: list[Ints] = []
    high: list[Ints] = []
    switches = servers if switched else 0
    ports = 0
    for axis, (kind, size) in enumerate(blocks):
        if size == 1:
            continue
        lines = np.moveaxis(grid, axis, -1).reshape(-1, size)
        if kind is BuildingBlock.RING:
            ahead = lines[:, :1] if size == 2 else lines
            low.append(first + ahead.ravel())
            high.append(first + np.roll(lines, -1, axis=1)[:, : ahead.shape[1]].ravel())
            ports += 1 if size == 2 else 2
        elif kind is BuildingBlock.FULLY_CONNECTED:
            a, b = np.triu_indices(size, 1)
            low.append(first + lines[:, a].ravel())
            high.append(first + lines[:, b].ravel())
            ports += size - 1
        else:
            low.append(first + lines.ravel())
            high.append(servers + switches + np.repeat(np.arange(lines.shape[0]), size))
            switches += lines.shape[0]
            ports += 1
    rates = [np.full(part.size, float(bandwidth)) for part in low]
    if switched:
        low.append(np.arange(servers, dtype=np.int64))
        high.append(np.arange(servers, 2 * servers, dtype=np.int64))
        rates.append(np.full(servers, float(bandwidth) * ports))
    return both_ways(
        name,
        servers,
        switches,
        np.concatenate(low),
        np.concatenate(high),
        np.concatenate(rates),
        latency,
    )
