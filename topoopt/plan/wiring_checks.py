"""The checks of the wiring: ports, links and rings."""

import math
from collections import Counter

from codesign_base import InputError
from codesign_base.counted import counted
from topoopt.plan.arithmetic import require_same
from topoopt.plan.plan import Plan
from topoopt.plan.rebuild import Rebuilt
from topoopt.plan.recorded import degree_split, ring_edges, ring_key
from topoopt.plan.records import RingRecord
from topoopt.topology.ring_links import ring_links
from topoopt.topology.totient import ring_places
from topoopt.topology.wiring import labelled


def check_ports(plan: Plan, rebuilt: Rebuilt) -> None:
    """No server uses more ports than it has, and every link is what its cables make it."""
    network, cluster = rebuilt.fabric.network, rebuilt.cluster
    for what, degrees in (("sends", network.out_degree()), ("receives", network.in_degree())):
        if degrees.max(initial=0) > cluster.degree:
            server = int(degrees.argmax())
            raise InputError(
                f"server {server} {what} on {counted(degrees[server], 'port')}; it has "
                f"{cluster.degree}"
            )
    for link in plan.links:
        name = f"link {link.source}->{link.target}"
        capacity = link.cables * cluster.port_rate
        require_same(f"capacity of {name}", link.capacity_bytes_per_s, capacity)
        require_same(f"latency of {name}", link.latency_s, cluster.hop_latency)
    if cluster.ports == "bidirectional":
        for link in plan.links:
            back = (link.target, link.source)
            if (
                not network.has_link(*back)
                or network.multiplicity[network.link(*back)] != link.cables
            ):
                raise InputError(
                    f"link {link.source}->{link.target} has no equal link back, "
                    "but ports are bidirectional"
                )
    split = degree_split(plan.links, cluster.degree if cluster.servers > 1 else 0)
    if (plan.degree_allreduce, plan.degree_transfer) != split:
        raise InputError(
            f"degree_allreduce is {plan.degree_allreduce} and degree_transfer "
            f"{plan.degree_transfer}, but rings take {counted(split[0], 'port')} of {sum(split)}"
        )


def check_rings(plan: Plan, rebuilt: Rebuilt) -> None:
    """Every ring is one cycle of its generator, if it has one, over cables of its own.

    All rings of a group that have generators count steps in the same places: those of its first
    such ring, in which the first server of the order is at place 0.
    """
    network = rebuilt.fabric.network
    used: Counter[tuple[int, int]] = Counter()
    places: dict[tuple[int, ...], dict[int, int]] = {}
    if plan.rings != sorted(plan.rings, key=ring_key):
        raise InputError("rings are not sorted by their servers, generator and order")
    edges = ring_edges(plan.rings)
    for link in plan.links:
        over = edges[link.source, link.target]
        if over != link.rings:
            raise InputError(
                f"link {link.source}->{link.target} has {counted(link.rings, 'ring')}, but {over} "
                "go over it"
            )
    for ring in plan.rings:
        order, size = ring.order, len(ring.order)
        if len(set(order)) != size or size < 2:
            raise InputError(f"ring +{ring.generator} visits a server twice or has one server")
        if order[0] != min(order):
            raise InputError(f"ring +{ring.generator} does not begin at its lowest server")
        if ring.generator:
            _check_steps(ring, places)
        for a, b in ring_links(order):
            if not network.has_link(a, b):
                name = f"ring +{ring.generator}" if ring.generator else "a ring"
                raise InputError(f"{name} uses link {a}->{b}, which is not wired")
            used[a, b] += 1
            if used[a, b] > network.multiplicity[network.link(a, b)]:
                raise InputError(f"more rings use link {a}->{b} than it has cables")

    rings = [ring.wired for ring in plan.rings]
    for ring, again in zip(plan.rings, labelled(rings), strict=True):
        if ring.generator != again.generator:
            raise InputError(
                f"the ring {ring.order[0]}->{ring.order[1]}->... has generator 0, but is the ring "
                f"+{again.generator}"
            )


def _check_steps(ring: RingRecord, places: dict[tuple[int, ...], dict[int, int]]) -> None:
    """Each server of a ring is its generator's places after the one before."""
    order, size = ring.order, len(ring.order)
    if not 0 < ring.generator < size:
        raise InputError(
            f"ring +{ring.generator} over {counted(size, 'server')}; give 1 to {size - 1}, or 0 "
            "for no step"
        )
    cycles = math.gcd(ring.generator, size)
    if cycles != 1:
        raise InputError(f"ring +{ring.generator} over {size} servers is {cycles} cycles, not one")
    if ring.group not in places:
        seats = ring_places(order, ring.generator)
        places[ring.group] = {server: position for position, server in enumerate(seats)}
    place = places[ring.group]
    for a, b in ring_links(order):
        if (place[b] - place[a]) % size != ring.generator:
            raise InputError(f"ring +{ring.generator} goes {a}->{b}, which is another step")
