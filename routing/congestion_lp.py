"""Minimum congestion as a linear program: exact, for small and medium networks.

One flow a source (not a pair): for source s and link e a variable x[s, e], at each node what
arrives less what leaves is the demand from s, and the sum over sources is at most the congestion
times the capacity.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from codesign_base import InfeasibleError
from codesign_base.arrays import Floats, Ints
from codesign_base.rows import starts
from routing.network import Network
from routing.path_routing import (
    PathRouting,
    checked_demand,
    dual_bound,
    idle_routing,
    normalised,
    require_served,
    reversed_rows,
)
from routing.paths import forwarding_nodes, links_into

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# Flows below this fraction of the largest demand are the solver's rounding.
_DUST = 1e-9


def min_congestion_lp(network: Network, demand: Floats) -> PathRouting:
    """Route a demand matrix with the least possible congestion, by linear programming.

    Parameters
    ----------
    network : Network
    demand : float array, shape (hosts, hosts)
        Bytes from row to column, zero on the diagonal.

    Returns
    -------
    PathRouting
        Its ``gap`` is that of the solver's rounding.

    Raises
    ------
    InputError
        If the demand does not fit the network.
    InfeasibleError
        If a pair with demand has no path, or the solver gives up.

    Notes
    -----
    Sources x links variables and sources x nodes equalities. At 128 hosts of degree 4 interior
    point takes seconds and simplex minutes; `routing.multicommodity.min_congestion` is within
    0.1 % of the optimum in a fraction of a second.

    Examples
    --------
    >>> import numpy as np
    >>> from routing.network import Network
    >>> around = np.arange(4)
    >>> ends = np.append(around, (around + 1) % 4), np.append((around + 1) % 4, around)
    >>> ring = Network.from_links("ring", 4, 0, *ends, 12.5e9, 1e-6)
    >>> demand = 1e6 * (1.0 - np.eye(4))
    >>> print(f"{min_congestion_lp(ring, demand).congestion * 1e6:.1f} us")
    160.0 us
    """
    from scipy.optimize import linprog

    matrix = checked_demand(network, demand)
    sources = np.flatnonzero(matrix.sum(axis=1) > 0)
    if sources.size == 0:
        return idle_routing(network, matrix, "linear program")
    require_served(network, matrix)
    # Numbers near one suit the solver: demand in units of its mean a source, capacity likewise.
    unit, speed = float(matrix.sum()) / sources.size, float(network.capacity.mean())
    conserve, supply, share, link_of = _rows(network, matrix / unit, sources)
    cost = np.append(np.zeros(link_of.size), 1.0)
    answer: Any = linprog(  # type: ignore[call-overload]
        cost,
        A_ub=_with_last(share, -network.capacity / speed),
        b_ub=np.zeros(network.links),
        A_eq=_with_last(conserve, np.zeros(conserve.shape[0])),
        b_eq=supply,
        bounds=(0.0, None),
        method="highs-ipm",  # interior point with crossover
    )
    if answer.x is None:
        raise InfeasibleError(
            f"network {network.name!r}: the LP solver gave up ({answer.message.split('.')[0]}); "
            "choose the method mcf (--method mcf)"
        )
    lengths = np.maximum(-answer.ineqlin.marginals, 0.0)
    if not lengths.any():
        lengths = np.ones(network.links)
    flows = np.zeros((sources.size, network.links))
    flows[_row_of(network, sources)] = np.maximum(answer.x[:-1], 0.0)
    return _decomposed(network, matrix, sources, flows * unit, lengths, int(answer.nit))


def _allowed(network: Network, sources: Ints) -> npt.NDArray[np.bool_]:
    """Return which links each source's flow may use, shape (sources, links)."""
    transit = forwarding_nodes(network)[network.source] != 0
    own = network.source[None, :] == sources[:, None]
    back = network.target[None, :] == sources[:, None]
    return np.asarray((transit[None, :] | own) & ~back, dtype=np.bool_)


def _row_of(network: Network, sources: Ints) -> tuple[Ints, Ints]:
    """Return source index and link of every flow variable."""
    which, link = np.nonzero(_allowed(network, sources))
    return which, link


def _rows(
    network: Network, demand: Floats, sources: Ints
) -> "tuple[csr_array, Floats, csr_array, Ints]":
    """Return conservation (matrix and right side), the loads' matrix and each variable's link."""
    from scipy.sparse import csr_array

    which, link = _row_of(network, sources)
    nodes = network.nodes
    variable = np.arange(link.size)
    row = np.concatenate((
        which * nodes + network.target[link], which * nodes + network.source[link],
    ))  # fmt: skip
    sign = np.concatenate((np.ones(link.size), -np.ones(link.size)))
    balance = csr_array(
        (sign, (row, np.concatenate((variable, variable)))),
        shape=(sources.size * nodes, link.size),
    )
    supply = np.zeros((sources.size, nodes))
    supply[:, : network.hosts] = demand[sources]
    # The row of a source itself follows from the others.
    keep = np.ones((sources.size, nodes), dtype=np.bool_)
    keep[np.arange(sources.size), sources] = False
    kept = np.flatnonzero(keep.ravel())
    share = csr_array((np.ones(link.size), (link, variable)), shape=(network.links, link.size))
    return csr_array(balance[kept]), supply.ravel()[kept], share, link


def _with_last(matrix: "csr_array", column: Floats) -> "csr_array":
    from scipy.sparse import csr_array, hstack

    return csr_array(hstack([matrix, csr_array(column[:, None])]))


def _decomposed(
    network: Network,
    demand: Floats,
    sources: Ints,
    flows: Floats,
    lengths: Floats,
    rounds: int,
) -> PathRouting:
    """Turn flows by source into paths; what rounding leaves unserved is scaled up."""
    from routing.flow_kernels import decompose

    into_offsets, into = links_into(network)
    pairs, per_pair, lengths_of, links, amounts = [], [], [], [], []
    for index, source in enumerate(sources.tolist()):
        targets = np.flatnonzero(demand[source])
        wanted = demand[source, targets]
        path_offsets, link_offsets, back, parts = decompose(
            network.out_offsets, network.source, network.target, into_offsets, into, source,
            flows[index], targets, wanted, _DUST * float(wanted.max()),
        )  # fmt: skip
        pairs.append(source * network.hosts + targets)
        per_pair.append(np.diff(path_offsets))
        lengths_of.append(np.diff(link_offsets))
        links.append(reversed_rows(link_offsets, back))
        amounts.append(parts)
    counts_of = np.concatenate(per_pair)
    if np.any(counts_of == 0):
        raise InfeasibleError(
            f"network {network.name!r}: the LP solver's flow misses a pair of very small demand; "
            "choose the method mcf (--method mcf)"
        )
    path_offsets = starts(counts_of)
    return PathRouting(
        network=network,
        demand=demand,
        pairs=np.concatenate(pairs),
        path_offsets=path_offsets,
        link_offsets=starts(np.concatenate(lengths_of)),
        links=np.concatenate(links),
        shares=normalised(path_offsets, np.concatenate(amounts)),
        lengths=lengths / float(network.capacity @ lengths),
        lower_bound=dual_bound(network, demand, lengths),
        method="linear program",
        rounds=rounds,
    )
