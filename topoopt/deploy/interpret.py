"""Where packets go by the files that were read back: Linux's forwarding in a few rules.

Rules of policy routing, longest prefix, next hops by weight, neighbours by MAC address, and
traffic-control filters, as ip-rule(8), ip-route(8) and tc-flower(8) describe them.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address

from topoopt.deploy.read_back import MAIN, Host, NextHop, Port

_MOST_HOPS = 64
"""Hops after which a packet's time to live is over."""


class Lost(Exception):
    """A packet does not arrive; the message says where and why."""


@dataclass(frozen=True)
class Lab:
    """Hosts and the cables between them.

    Parameters
    ----------
    hosts : dict of str to Host
    wires : dict of (host, interface) to (host, interface)
        Who hears what a port sends.
    macs : dict of (host, interface) to str
        Of every interface, whether from the files or the hardware's.
    base : dict of (host, interface) to str
        The port that a function for forwarding shares.
    """

    hosts: Mapping[str, Host]
    wires: Mapping[Port, Port]
    macs: Mapping[Port, str]
    base: Mapping[Port, str]

    def send(self, name: str, device: str, mac: str) -> Port:
        """Return the interface that takes a packet, from a port, with this MAC address.

        Raises
        ------
        Lost
            If there is no cable, or nothing at its end has the address.
        """
        if (name, device) not in self.wires:
            raise Lost(f"{name} sends over {device}, which no cable leaves")
        other, port = self.wires[name, device]
        for candidate in (
            port,
            *(f for (h, f), b in self.base.items() if h == other and b == port),
        ):
            if self.macs.get((other, candidate)) == mac:
                return other, candidate
        raise Lost(
            f"{name} sends over {device} to MAC address {mac}, but the cable ends at {other} {port}"
        )


def flow(lab: Lab, start: str, source: str, target: str) -> dict[tuple[Port, Port], float]:
    """Return what part of a host's packets crosses each cable.

    Parameters
    ----------
    lab : Lab
    start : str
        The host that sends.
    source, target : str
        Addresses in the packet.

    Returns
    -------
    dict of (sending port, hearing port) to float

    Raises
    ------
    Lost
        If any part does not arrive.
    """
    shares: dict[tuple[Port, Port], float] = defaultdict(float)
    waiting = {start: 1.0}
    for _ in range(_MOST_HOPS):
        ahead: dict[str, float] = defaultdict(float)
        for name, amount in sorted(waiting.items()):
            host = lab.hosts[name]
            if target in host.loopback:
                continue
            hops = _lookup(host, None if name == start else source, target)
            if not hops:
                raise Lost(f"{name} has no route to {target} for packets of {source}")
            total = sum(hop.weight for hop in hops)
            for hop in hops:
                mac = host.neighbours.get((hop.via or target, hop.device))
                if mac is None:
                    raise Lost(f"{name} has no neighbour {hop.via or target} on {hop.device}")
                other, port = lab.send(name, hop.device, mac)
                _check_arrival(lab, other, port, hop, target)
                part = amount * hop.weight / total
                shares[(name, hop.device), lab.wires[name, hop.device]] += part
                ahead[other] += part
        if not ahead:
            return dict(shares)
        waiting = ahead
    raise Lost(f"packets from {start} to {target} go round in a loop")


def _check_arrival(lab: Lab, name: str, port: str, hop: NextHop, target: str) -> None:
    host = lab.hosts[name]
    addresses = [str(each.ip) for each in host.interfaces.get(port, [])]
    if hop.via is not None and hop.via not in addresses:
        raise Lost(f"next hop {hop.via} is not an address of {name} {port}")
    if target in host.loopback:
        return
    conf = f"net/ipv4/conf/{port}"
    if host.settings.get(f"{conf}/forwarding") != "1":
        raise Lost(f"{name} does not forward what arrives on {port}")
    if host.settings.get(f"{conf}/rp_filter") not in ("0", "2"):
        raise Lost(f"{name} drops what arrives on {port} from elsewhere (rp_filter)")


def _lookup(host: Host, source: str | None, target: str) -> list[NextHop]:
    """Return the next hops; a table of the packet's source is asked first."""
    tables = [MAIN] if source not in host.rules else [host.rules[source], MAIN]
    for table in tables:
        found = _longest(host, table, target)
        if found:
            return found
    return []


def _longest(host: Host, table: int, target: str) -> list[NextHop]:
    address = int(IPv4Address(target))
    best: tuple[int, list[NextHop]] = (-1, [])
    for length, networks in host.tables.get(table, ()):
        if (found := networks.get(address >> (32 - length))) is not None:
            best = length, found
            break
    if table == MAIN:
        for length, network, own, device in host.subnets:
            if address >> (32 - length) == network and length > best[0] and own != address:
                best = length, [NextHop(device, None, 1)]
    return best[1]


def rdma_way(lab: Lab, start: Port, source: str, target: str) -> list[tuple[Port, Port]]:
    """Return the cables that an RDMA packet takes from a port.

    Parameters
    ----------
    lab : Lab
    start : (host, interface)
        The port that the connection is opened on.
    source, target : str
        Addresses in the packet.

    Returns
    -------
    list of (sending port, hearing port)

    Raises
    ------
    Lost
        If it does not arrive on the port that has the target's address.
    """
    name, device = start
    host = lab.hosts[name]
    if source not in (str(each.ip) for each in host.interfaces.get(device, [])):
        raise Lost(f"{source} is not the address of {name} {device}")
    out = [hop for hop in _longest(host, MAIN, target) if hop.device == device]
    if not out:
        raise Lost(f"{name} has no route to {target} over {device}")
    mac = host.neighbours.get((target, device))
    if mac is None:
        raise Lost(f"{name} has no neighbour {target} on {device}")
    way: list[tuple[Port, Port]] = []
    while len(way) < _MOST_HOPS:
        other, port = lab.send(name, device, mac)
        way.append(((name, device), lab.wires[name, device]))
        host = lab.hosts[other]
        rule = host.filters.get((port, source, target))
        if rule is None:
            if target in (str(each.ip) for each in host.interfaces.get(port, [])):
                return way
            raise Lost(f"{other} {port} has no filter from {source} to {target}")
        name, device, mac = other, rule.device, rule.mac
    raise Lost(f"RDMA packets from {source} to {target} go round in a loop")
