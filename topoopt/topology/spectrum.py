"""Spectral gap of a network, and the order of nodes that shows its thinnest cut."""

import numpy as np

from routing.network import FloatArray, Network

# Below this many nodes a dense solver is faster, and finds all eigenvalues.
_DENSE = 600


def spectral_gap(network: Network) -> float:
    """Return 1 - Re(second eigenvalue) of the random walk over links in proportion to capacity.

    Parameters
    ----------
    network : Network
        Strongly connected, of at least two nodes.

    Returns
    -------
    float
        0 (nearly disconnected) to 2. Of a d-regular graph it is (d - lambda_2) / d.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import eigs

    nodes = network.nodes
    share = network.capacity / network.out_rate()[network.source]
    walk = csr_array((share, (network.source, network.target)), shape=(nodes, nodes))
    if nodes <= _DENSE:
        real = np.sort(np.linalg.eigvals(walk.toarray()).real)
        return float(1.0 - real[-2])
    # Started from a fixed vector, so that the result is the same on every run.
    start = np.random.default_rng(0).random(nodes)
    found = eigs(walk, k=3, which="LR", v0=start, return_eigenvectors=False)
    return float(1.0 - np.sort(found.real)[-2])


def cut_order(network: Network) -> FloatArray:
    """Return a number a node: sorted by it, the nodes fall apart along thin cuts.

    Parameters
    ----------
    network : Network

    Returns
    -------
    float64 array, shape (nodes,)
        The eigenvector of the second eigenvalue of the capacities, both directions added and
        scaled by the nodes' capacities.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import eigsh

    nodes = network.nodes
    root = np.sqrt(network.out_rate() + network.in_rate())
    scaled = network.capacity / (root[network.source] * root[network.target])
    matrix = csr_array((scaled, (network.source, network.target)), shape=(nodes, nodes))
    both = matrix + matrix.T
    if nodes <= _DENSE:
        vectors = np.linalg.eigh(both.toarray())[1]
        second = vectors[:, -2]
    else:
        start = np.random.default_rng(0).random(nodes)
        values, vectors = eigsh(both, k=2, which="LA", v0=start)
        second = vectors[:, int(np.argmin(values))]
    return np.asarray(second / root, dtype=np.float64)
