"""Spectral gap of a network."""

import numpy as np

from routing.network import Network

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
