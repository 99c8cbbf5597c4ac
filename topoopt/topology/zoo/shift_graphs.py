"""De Bruijn and Kautz networks of any size: the shortest known directed wirings.

Sources: Imase and Itoh, "Design to minimize diameter on building-block network" (IEEE Trans.
Computers, 1981) and "A design for directed graphs with minimum diameter" (1983); Reddy, Pradhan
and Kuhl (1980).
"""

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Ints
from codesign_base.counted import counted
from routing.network import Network
from topoopt.topology.cables import check_rates
from topoopt.topology.wiring import DegreeTooSmallError, is_strongly_connected


def de_bruijn(servers: int, degree: int, bandwidth: float, latency: float) -> Network:
    """Join server i to (d i + r) mod n, r = 0 .. d-1: diameter at most ceil(log_d n).

    Parameters
    ----------
    servers, degree : int
    bandwidth : float
        Bytes per second of one port in one direction; ports are directed.
    latency : float
        Seconds of each link.

    Returns
    -------
    Network
        A server whose neighbour would be itself leaves that port unused.

    Raises
    ------
    InputError
        If a number is out of range.
    DegreeTooSmallError
        If the ports cannot join the servers.
    """
    check_rates(servers, bandwidth, latency)
    at = np.arange(servers, dtype=np.int64)[:, None]
    steps = np.arange(degree, dtype=np.int64)[None, :]
    return _wired("de Bruijn", (at * degree + steps) % servers, bandwidth, latency)


def kautz(servers: int, degree: int, bandwidth: float, latency: float) -> Network:
    """Join server i to (-d i - r) mod n, r = 1 .. d: Kautz where n = d^k + d^(k-1).

    Parameters, returns and errors are those of `de_bruijn`. The diameter is at most
    ceil(log_d n), and one less than that of de Bruijn at Kautz's sizes.
    """
    check_rates(servers, bandwidth, latency)
    at = np.arange(servers, dtype=np.int64)[:, None]
    steps = np.arange(1, degree + 1, dtype=np.int64)[None, :]
    return _wired("Kautz", (-at * degree - steps) % servers, bandwidth, latency)


def _wired(name: str, target: Ints, bandwidth: float, latency: float) -> Network:
    servers, degree = target.shape
    if degree < 1:
        raise InputError(f"{name} of degree {degree}; give at least 1 port a server")
    source = np.repeat(np.arange(servers, dtype=np.int64), degree)
    kept = source != target.ravel()
    cables = np.zeros((servers, servers), dtype=np.int64)
    np.add.at(cables, (source[kept], target.ravel()[kept]), 1)
    if not is_strongly_connected(cables):
        raise DegreeTooSmallError(
            f"{name} of {servers} servers with {counted(degree, 'port')} is not connected; give a "
            "larger degree"
        )
    return Network.from_links(
        name, servers, 0, source[kept], target.ravel()[kept], bandwidth, latency
    )
