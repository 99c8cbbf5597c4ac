"""Which cable joins which ports: the links of a plan, fibre by fibre, on the ports of a site."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from codesign_base import InfeasibleError
from topoopt.deploy.site import Site
from topoopt.plan.plan import Plan
from topoopt.topology.ring_links import ring_links

End = tuple[int, int]
"""A server and the index of its port."""


@dataclass(frozen=True)
class Cable:
    """A cable, or one fibre of a split one.

    Parameters
    ----------
    source, target : (int, int)
        Its ends; a one-way fibre carries from the first to the second.
    both_ways : bool
        Whether it carries the other direction, too.
    """

    source: End
    target: End
    both_ways: bool


@dataclass(frozen=True)
class Cabling:
    """All cables, sorted by their first end.

    Parameters
    ----------
    cables : tuple of Cable
    """

    cables: tuple[Cable, ...]

    @cached_property
    def leads_to(self) -> dict[End, End]:
        """The port that hears what each port sends."""
        found = {}
        for cable in self.cables:
            found[cable.source] = cable.target
            if cable.both_ways:
                found[cable.target] = cable.source
        return found

    @cached_property
    def place(self) -> dict[Cable, int]:
        """Where each cable stands."""
        return {cable: place for place, cable in enumerate(self.cables)}

    @cached_property
    def ports_to(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """Ports of a server that send to another, ascending."""
        found: dict[tuple[int, int], list[int]] = {}
        for (server, port), (other, _) in sorted(self.leads_to.items()):
            found.setdefault((server, other), []).append(port)
        return {pair: tuple(ports) for pair, ports in found.items()}


def cable_plan(plan: Plan, site: Site) -> Cabling:
    """Choose ports for all links of a plan.

    Where both directions of a pair are wanted they share a cable, unless ports are on several
    panels: then each fibre stays on one panel, which an edge colouring of transmit and receive
    sides with as many colours as ports makes possible (Koenig, 1916), if all hosts are cabled to
    the panels in the same order.

    Parameters
    ----------
    plan : Plan
    site : Site
        Checked with `topoopt.deploy.site.check_site`.

    Returns
    -------
    Cabling

    Raises
    ------
    InfeasibleError
        If panels would have to be joined.
    """
    links = {(link.source, link.target): link.cables for link in plan.links}
    degree = plan.cluster.degree
    panels = [[port.panel for port in host.ports[:degree]] for host in site.hosts]
    one_panel = len({panel for row in panels for panel in row}) < 2
    cables: list[Cable]
    if one_panel:
        rings = [tuple(ring.order) for ring in plan.rings]
        cables = _freely(links, rings, plan.cluster.servers, degree)
    elif plan.cluster.ports == "bidirectional":
        cables = _on_panels(links, panels)
    else:
        cables = _paired(_by_colour(links, plan.cluster.servers, degree))
        _check_panels(cables, panels, site)
    return Cabling(tuple(sorted(cables, key=lambda cable: cable.source)))


def _freely(
    links: dict[tuple[int, int], int],
    rings: Sequence[tuple[int, ...]],
    servers: int,
    degree: int,
) -> list[Cable]:
    """Give both directions of a pair one cable, and the rest of the fibres the ports left over.

    Cables lie in the direction of the first ring that goes over them, from the lowest port that
    is free to the highest: those of one ring go from port 0 of each server to the last one's of
    the next, so that a slip shows.
    """
    free = [list(range(degree)) for _ in range(servers)]
    left = {(u, v): min(count, links.get((v, u), 0)) for (u, v), count in links.items() if u < v}
    rest = [
        pair
        for pair, count in sorted(links.items())
        for _ in range(count - min(count, links.get(pair[::-1], 0)))
    ]
    around = [link for ring in rings for link in ring_links(ring)]
    cables = []
    for u, v in (*around, *(pair for pair, count in sorted(left.items()) for _ in range(count))):
        pair = min(u, v), max(u, v)
        if left.get(pair, 0):
            left[pair] -= 1
            cables.append(Cable((u, free[u].pop(0)), (v, free[v].pop()), True))
    hearing = [row.copy() for row in free]
    for u, v in rest:
        cables.append(Cable((u, free[u].pop(0)), (v, hearing[v].pop(0)), False))
    return cables


def _by_colour(links: dict[tuple[int, int], int], servers: int, degree: int) -> list[Cable]:
    """Join equal port indices only: colours of the fibres, by alternating paths."""
    # at[side][server][colour]: the other end; senders are side 0.
    at: list[list[list[int]]] = [[[-1] * degree for _ in range(servers)] for _ in range(2)]
    for (u, v), count in sorted(links.items()):
        for _ in range(count):
            a, b = at[0][u].index(-1), at[1][v].index(-1)
            if a != b:
                _swap(at, v, a, b)
            at[0][u][a], at[1][v][a] = v, u
    return [
        Cable((u, colour), (v, colour), False)
        for u in range(servers)
        for colour, v in enumerate(at[0][u])
        if v >= 0
    ]


def _paired(fibres: Sequence[Cable]) -> list[Cable]:
    """Make one cable of two fibres between the same ports."""
    ways = {(fibre.source, fibre.target) for fibre in fibres}
    return [
        Cable(fibre.source, fibre.target, (fibre.target, fibre.source) in ways)
        for fibre in fibres
        if (fibre.target, fibre.source) not in ways or fibre.source < fibre.target
    ]


def _swap(at: list[list[list[int]]], receiver: int, a: int, b: int) -> None:
    """Swap colours a and b along the path from a receiver that has no b, so that it has no a."""
    path = [(1, receiver)]
    colour = a
    while (other := at[path[-1][0]][path[-1][1]][colour]) >= 0:
        path.append((1 - path[-1][0], other))
        colour = a + b - colour
    for side, node in path:
        row = at[side][node]
        row[a], row[b] = row[b], row[a]


def _on_panels(
    links: dict[tuple[int, int], int], panels: Sequence[Sequence[str | None]]
) -> list[Cable]:
    """Give each cable the first ports that are free on both sides of one panel."""
    free = [list(range(len(row))) for row in panels]
    cables = []
    for (u, v), count in sorted(links.items()):
        for _ in range(count if u < v else 0):
            found = next(
                ((p, q) for p in free[u] for q in free[v] if panels[u][p] == panels[v][q]), None
            )
            if found is None:
                raise InfeasibleError(
                    f"a cable from server {u} to server {v} finds no free ports on one panel; "
                    "cable all ports to one panel, or plan with --ports directed"
                )
            cables.append(Cable((u, found[0]), (v, found[1]), True))
            free[u].remove(found[0])
            free[v].remove(found[1])
    return cables


def _check_panels(
    cables: Sequence[Cable], panels: Sequence[Sequence[str | None]], site: Site
) -> None:
    for cable in cables:
        (u, p), (v, q) = cable.source, cable.target
        if panels[u][p] != panels[v][q]:
            raise InfeasibleError(
                f"port {p} of host {site.hosts[u].name!r} is on panel {panels[u][p]!r}, but of "
                f"host {site.hosts[v].name!r} on {panels[v][q]!r}; cable port 0 of every host to "
                "one panel, port 1 to one panel, and so on"
            )
