"""Oracles of flows: a pair-by-pair LP, random networks and demands."""

import numpy as np
from scipy.optimize import linprog

from routing.network import Network
from routing.paths import forwarding_nodes


def random_network(
    rng: np.random.Generator, hosts: int | None = None, switches: int | None = None
) -> Network:
    """A connected network of hosts (ring and chords), or of hosts around switches."""
    hosts = int(rng.integers(2, 8)) if hosts is None else hosts
    switches = int(rng.choice([0, 0, 2])) if switches is None else switches
    cables = []
    if switches:
        cables += [(h, hosts + h % switches) for h in range(hosts)]
        cables += [(hosts + s, hosts + (s + 1) % switches) for s in range(switches - 1)]
        cables += [(h, hosts + (h + 1) % switches) for h in range(0, hosts, 2)]
        cables += [(b, a) for a, b in cables]
    else:
        cables += [(v, (v + 1) % hosts) for v in range(hosts)]
        extra = rng.integers(0, hosts, (2 * hosts, 2)).tolist()
        cables += [(a, b) for a, b in extra if a != b]
    source, target = zip(*cables, strict=True)
    capacity = rng.choice([1.0, 1.0, 2.0, 5.0], len(cables))
    return Network.from_links("drawn", hosts, switches, source, target, capacity, 1e-6)


def random_demand(rng: np.random.Generator, hosts: int) -> np.ndarray:
    """Some pairs, never none."""
    demand = rng.random((hosts, hosts)) * (rng.random((hosts, hosts)) < 0.6)
    np.fill_diagonal(demand, 0.0)
    demand[0, 1] = 1.0
    return demand


def edge_lp(network: Network, demand: np.ndarray) -> float:
    """Least congestion by the flow of every pair on every link: dense, slow and plain."""
    pairs = np.argwhere(demand > 0).tolist()
    links, nodes = network.links, network.nodes
    may = forwarding_nodes(network)
    incidence = np.zeros((nodes, links))
    incidence[network.source, np.arange(links)] += 1.0
    incidence[network.target, np.arange(links)] -= 1.0
    unit = float(demand.max())
    speed = float(network.capacity.max())
    conserve = np.zeros((len(pairs) * nodes, len(pairs) * links + 1))
    supply = np.zeros(len(pairs) * nodes)
    bounds = []
    for k, (s, t) in enumerate(pairs):
        conserve[k * nodes : (k + 1) * nodes, k * links : (k + 1) * links] = incidence
        supply[k * nodes + s] = demand[s, t] / unit
        supply[k * nodes + t] = -demand[s, t] / unit
        bounds += [(0, None if may[v] or v == s else 0) for v in network.source.tolist()]
    load = np.hstack([np.eye(links)] * len(pairs) + [-network.capacity[:, None] / speed])
    cost = np.zeros(conserve.shape[1])
    cost[-1] = 1.0
    answer = linprog(
        cost, A_ub=load, b_ub=np.zeros(links), A_eq=conserve, b_eq=supply,
        bounds=[*bounds, (0, None)], method="highs-ds",
    )  # fmt: skip
    assert answer.status == 0, answer.message
    return float(answer.fun) * unit / speed
