"""HammingMesh: boards of servers in a mesh, whose rows and columns meet in switches.

Source: Hoefler et al., "HammingMesh: A Network Topology for Large-Scale Deep Learning" (SC 2022),
section 3.
"""

from collections.abc import Sequence

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Ints
from routing.network import Network
from topoopt.topology.cables import both_ways, check_rates

SWITCH_PORTS = 64
"""Of the switches of the paper's cost study (section 3.3)."""


def hamming_mesh(sizes: Sequence[int], bandwidth: float, latency: float) -> Network:
    """Join servers on boards to their neighbours, and boards of a row or column by switches.

    Parameters
    ----------
    sizes : sequence of int
        Rows and columns of a board, then of the grid of boards: (2, 2, 4, 4) is a 4 x 4 Hx2Mesh.
    bandwidth : float
        Bytes per second of one cable in each direction.
    latency : float
        Seconds of each link.

    Returns
    -------
    Network
        Of one plane, four ports a server. Every row of servers has a switch to which each board has
        two cables, from its first and its last server of the row; columns alike. Hosts 0 .. n-1,
        row by row, have forwarding nodes n .. 2n-1 of their own, as in
        `topoopt.topology.zoo.products.product`; then come the switches of rows, then of columns.

    Raises
    ------
    InputError
        If the sizes are not four, there are fewer than two boards in a row or column, or so many
        that a switch of 64 ports does not join them.

    Notes
    -----
    The paper joins longer rows by Fat-trees, and tapers those; here one switch joins a row.
    """
    if len(sizes) != 4 or min(sizes) < 1:
        raise InputError(
            f"hamming-mesh of sizes {'x'.join(map(str, sizes))}; give rows and columns of a board, "
            "then rows and columns of boards, such as 2x2x4x4"
        )
    tall, wide, down, across = sizes
    if not 2 <= min(down, across) <= max(down, across) <= SWITCH_PORTS // 2:
        raise InputError(
            f"hamming-mesh of {down} x {across} boards; give 2 to {SWITCH_PORTS // 2} boards in a "
            f"row and a column, which a switch of {SWITCH_PORTS} ports joins"
        )
    rows, columns = tall * down, wide * across
    servers = rows * columns
    check_rates(servers, bandwidth, latency)
    grid = np.arange(servers, 2 * servers, dtype=np.int64).reshape(rows, columns)
    low: list[Ints] = [np.arange(servers, dtype=np.int64)]
    high: list[Ints] = [np.arange(servers, 2 * servers, dtype=np.int64)]
    first = 2 * servers
    for lines, length in ((grid, wide), (grid.T, tall)):
        count, size = lines.shape
        inside = np.arange(1, size) % length > 0
        low.append(lines[:, :-1][:, inside].ravel())
        high.append(lines[:, 1:][:, inside].ravel())
        for end in (0, length - 1):
            ends = lines[:, end::length]
            low.append(ends.ravel())
            high.append(np.repeat(first + np.arange(count), ends.shape[1]))
        first += count
    rates = np.full(sum(part.size for part in low), float(bandwidth))
    rates[:servers] *= 4
    return both_ways(
        "HammingMesh", servers, servers + rows + columns, np.concatenate(low),
        np.concatenate(high), rates, latency,
    )  # fmt: skip
