"""Routes of a traffic matrix on a given network, and how far from the best they are."""

from dataclasses import dataclass
from enum import StrEnum
from math import gcd

import numpy as np

from codesign_base import InfeasibleError, InputError
from codesign_base.arguments import member
from codesign_base.arrays import Floats, Ints
from routing.coin_change import coin_change_routes
from routing.congestion_lp import min_congestion_lp
from routing.forwarding import forwarding_tables, path_routing_tables
from routing.multicommodity import min_congestion
from routing.network import Network
from routing.path_routing import PathRouting
from routing.paths import (
    USUAL_PATHS,
    USUAL_SLACK,
    ecmp_routes,
    hops_toward_hosts,
    k_shortest_routes,
    shortest_routes,
)
from routing.routes import Routes
from routing.throughput_bounds import CongestionBound, any_wiring_bound, network_bound
from routing.unsplittable import round_to_single_paths
from routing.valiant import valiant_routes


class Method(StrEnum):
    """Ways to route: the first two minimise congestion, the others do not look at the demand."""

    MCF = "mcf"
    LP = "lp"
    ECMP = "ecmp"
    K_SHORTEST = "k-shortest"
    SHORTEST = "shortest"
    VALIANT = "valiant"
    COIN_CHANGE = "coin-change"


@dataclass(frozen=True, eq=False)
class RoutedTraffic:
    """Routes of a demand, with bounds on what any routing or any wiring could do.

    Parameters
    ----------
    method : Method
    network : Network
    demand : float64 array, shape (hosts, hosts)
        Bytes, AllReduce rings included if they were asked for.
    routes : Routes
    paths : PathRouting or None
        The paths behind them, for the methods that minimise congestion.
    rounding_loss : float or None
        Congestion of one path a pair over that of split paths, less one; None if split. It may
        be slightly negative, as the split paths are themselves only within the accuracy.
    bound : CongestionBound
        Of this network.
    wiring_bound : CongestionBound or None
        Of any network of as many ports of the same speed a host; None with switches.
    """

    method: Method
    network: Network
    demand: Floats
    routes: Routes
    paths: PathRouting | None
    rounding_loss: float | None
    bound: CongestionBound
    wiring_bound: CongestionBound | None

    def link_bytes(self) -> Floats:
        """Return the bytes on each link, shape (links,)."""
        return self.routes.link_bytes(self.network, self.demand)

    def congestion(self) -> float:
        """Return the seconds of the most loaded link."""
        return float((self.link_bytes() / self.network.capacity).max(initial=0.0))

    def worst_hops(self) -> int | None:
        """Return the links of the longest path in use.

        None for ``k-shortest`` and ``valiant`` if links differ in latency (or have none): they
        are kept as flows, whose longest path is known by its latency only.
        """
        if self.paths is not None:
            return self.paths.worst_hops
        asked = self.demand.ravel() > 0
        if self.method not in (Method.K_SHORTEST, Method.VALIANT):
            return round(float(self.routes.hops[asked].max(initial=0.0)))
        hop = self.network.latency
        if hop.size == 0 or hop.min() != hop.max() or hop[0] == 0:
            return None
        return round(float(self.routes.latency[asked].max(initial=0.0)) / float(hop[0]))

    def rules(self) -> tuple[str, Ints]:
        """Return what rules are keyed by, and their number at each node, shape (nodes,).

        ``destination`` where the routes can be told so, or where they minimise congestion
        (then tables by destination load no link more); else ``pair`` of source and destination.
        """
        try:
            if self.paths is not None and self.rounding_loss is None:
                return "destination", path_routing_tables(self.paths).rules()
            return "destination", forwarding_tables(self.network, self.routes).rules()
        except InfeasibleError:
            raise
        except InputError:
            leaving = self.network.source[self.routes.links]
            return "pair", np.bincount(leaving, minlength=self.network.nodes)


def route_traffic(
    network: Network,
    demand: Floats,
    method: str = "mcf",
    *,
    accuracy: float = 0.01,
    unsplittable: bool = False,
    seed: int = 0,
) -> RoutedTraffic:
    """Route a demand, and bound from below what any routing of it takes.

    Parameters
    ----------
    network : Network
    demand : float64 array, shape (hosts, hosts)
        Bytes.
    method : str
        One of `Method`.
    accuracy : float
        Of ``mcf``, which also gives the other methods their bound.
    unsplittable : bool
        One path a pair; with ``mcf`` and ``lp`` only.
    seed : int
        Of the rounding to one path.

    Raises
    ------
    InputError
        If an option is out of range or does not suit the network.
    InfeasibleError
        If a host cannot reach another.

    Examples
    --------
    >>> import numpy as np
    >>> from routing.network import Network
    >>> around = np.arange(4)
    >>> ends = np.append(around, (around + 1) % 4), np.append((around + 1) % 4, around)
    >>> ring = Network.from_links("ring", 4, 0, *ends, 12.5e9, 1e-6)
    >>> demand = 1e6 * (1.0 - np.eye(4))
    >>> print(f"{route_traffic(ring, demand, 'ecmp').bound.seconds * 1e6:.1f} us")
    160.0 us
    """
    way = member("method", method, Method)
    best = min_congestion_lp(network, demand) if way is Method.LP else min_congestion(
        network, demand, accuracy
    )  # fmt: skip
    paths: PathRouting | None = None
    loss = None
    if way in (Method.MCF, Method.LP):
        paths = best
        if unsplittable:
            paths = round_to_single_paths(best, seed=seed)
            loss = paths.congestion / best.congestion - 1.0 if best.congestion else 0.0
        routes = paths.routes()
    elif unsplittable:
        raise InputError(f"one path a pair needs method mcf or lp, not {way}; choose one of them")
    else:
        routes = _oblivious(network, way)
    return RoutedTraffic(
        way, network, best.demand, routes, paths, loss,
        network_bound(network, best.demand, best.lengths), _wiring_bound(network, best.demand),
    )  # fmt: skip


def _oblivious(network: Network, way: Method) -> Routes:
    if way is Method.ECMP:
        return ecmp_routes(network)
    if way is Method.K_SHORTEST:
        return k_shortest_routes(network, USUAL_PATHS, slack=USUAL_SLACK)
    if way is Method.SHORTEST:
        return shortest_routes(network)
    if way is Method.VALIANT:
        return valiant_routes(network)
    return coin_change_routes(network, circulant_steps(network))


def circulant_steps(network: Network) -> list[int]:
    """Return the steps p for which every link i -> i + p (mod hosts) exists.

    Raises
    ------
    InputError
        If they do not join all hosts.
    """
    n = network.hosts
    inside = (network.source < n) & (network.target < n)
    step = (network.target - network.source)[inside] % n
    steps = np.flatnonzero(np.bincount(step, minlength=n) == n).tolist()
    if not steps or gcd(n, *steps) > 1:
        raise InputError(
            f"network {network.name!r} has no rings i -> i + p that join all hosts, which "
            "coin-change routes follow; choose another method"
        )
    return steps


def _wiring_bound(network: Network, demand: Floats) -> CongestionBound | None:
    if network.switches or network.links == 0:
        return None
    degree = int(max(network.out_degree().max(), network.in_degree().max()))
    rate = float((network.capacity / network.multiplicity).max())
    return any_wiring_bound(demand, degree, rate)


def hop_statistics(network: Network, demand: Floats) -> tuple[int, float, float]:
    """Return diameter and mean distance between hosts in hops, plain and weighted by demand.

    Raises
    ------
    InfeasibleError
        If a host cannot reach another.
    """
    hosts = network.hosts
    between = hops_toward_hosts(network)[:, :hosts].T
    total = float(demand.sum())
    pairs = max(hosts * (hosts - 1), 1)
    weighted = float((demand * between).sum()) / total if total else 0.0
    return int(between.max()), float(between.sum()) / pairs, weighted
