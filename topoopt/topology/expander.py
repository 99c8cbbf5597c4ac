"""Random regular wirings: the expander that co-designed topologies are compared with.

As a data centre network: Singla, Hong, Popa and Godfrey, "Jellyfish: Networking Data Centers
Randomly" (NSDI 2012).
"""

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Ints
from topoopt.problem.ports import PortModel
from topoopt.topology.wiring import DegreeTooSmallError, is_strongly_connected

_ATTEMPTS = 1000


def random_regular_cables(
    hosts: int, degree: int, rng: np.random.Generator, ports: PortModel
) -> Ints:
    """Draw a connected random wiring in which every host uses all its ports.

    Parameters
    ----------
    hosts, degree : int
    rng : numpy.random.Generator
    ports : PortModel

    Returns
    -------
    int64 array, shape (hosts, hosts)
        Cables from row to column; symmetric with bidirectional ports.

    Raises
    ------
    InputError
        If there are fewer than two hosts.
    DegreeTooSmallError
        If the degree cannot connect the hosts.
    """
    if hosts < 2:
        raise InputError(f"an expander of {hosts} host; one host needs no network, give 2 or more")
    both_ways = ports is PortModel.BIDIRECTIONAL
    ring = 2 if both_ways and hosts > 2 else 1
    if degree < ring:
        raise DegreeTooSmallError(
            f"degree {degree} cannot join {hosts} servers with {ports} ports; give at least {ring}"
        )
    complete, rest = divmod(degree, hosts - 1)
    base = complete * (1 - np.eye(hosts, dtype=np.int64))
    if rest == 0:
        return base
    if complete == 0 and degree == ring:
        return _random_cycle(hosts, rng, both_ways)
    draw = _random_graph if both_ways else _random_permutations
    for _ in range(_ATTEMPTS):
        cables = base + draw(hosts, rest, rng)
        if is_strongly_connected(cables):
            return cables
    raise DegreeTooSmallError(
        f"no connected wiring of {hosts} hosts with degree {degree} in {_ATTEMPTS} draws; "
        "give a larger degree"
    )


def expander_stream(seed: int) -> np.random.Generator:
    """Return what draws the expander that the plan of a seed is compared with."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1000,)))


def _random_cycle(hosts: int, rng: np.random.Generator, both_ways: bool) -> Ints:
    """Return one random cycle through all hosts (the only connected wiring of least degree)."""
    order = rng.permutation(hosts)
    cables = np.zeros((hosts, hosts), dtype=np.int64)
    cables[order, np.roll(order, -1)] = 1
    return cables + cables.T if both_ways else cables


def _random_permutations(hosts: int, count: int, rng: np.random.Generator) -> Ints:
    """Return a union of random permutations without fixed points or common links.

    Each is the cheapest assignment under random costs; one always exists, since the pairs not
    used yet form a regular bipartite graph.
    """
    from topoopt.topology.assignment_kernels import cheapest_assignment

    cables = np.zeros((hosts, hosts), dtype=np.int64)
    for _ in range(count):
        cost = rng.random((hosts, hosts)) + hosts * (cables + np.eye(hosts))
        cables[np.arange(hosts), cheapest_assignment(cost)] += 1
    return cables


def _random_graph(hosts: int, degree: int, rng: np.random.Generator) -> Ints:
    """Return a random undirected regular graph; one port of one host unused if all are odd."""
    import networkx as nx

    odd = hosts * degree % 2
    cables = np.zeros((hosts, hosts), dtype=np.int64)
    if degree > odd:
        graph = nx.random_regular_graph(degree - odd, hosts, seed=int(rng.integers(2**31)))
        for i, j in graph.edges():
            cables[i, j] = cables[j, i] = 1
    if odd:
        # The last port: random partners, not joined yet where possible.
        for _ in range(_ATTEMPTS):
            order = rng.permutation(hosts)
            one, other = order[0 : hosts - 1 : 2], order[1:hosts:2]
            if not cables[one, other].any():
                break
        cables[one, other] += 1
        cables[other, one] += 1
    return cables
