"""Whether the generated files carry out the plan: every pair over its paths, every RDMA channel.

What is expected comes from the plan and the site alone; what happens is interpreted from the
files as they lie there.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Interface

from codesign_base import InputError
from topoopt.deploy.cabling import End
from topoopt.deploy.deployment import Deployment
from topoopt.deploy.forwarding import MOST_WEIGHT
from topoopt.deploy.interpret import Lab, Lost, flow, rdma_way
from topoopt.deploy.read_back import CableRow, Files, Port, read_cables, read_host, wires
from topoopt.deploy.tables import read_table
from topoopt.deploy.technician import CROSS_COLUMNS, cables_csv, cross_connects_csv

# Whole-number weights round each split; a packet meets a few splits on its way.
_ROUNDING = 4.0 / MOST_WEIGHT
MOST_FAULTS = 20
"""Faults after which no more are told."""


@dataclass(frozen=True)
class Checked:
    """What a check found.

    Parameters
    ----------
    faults : tuple of str
        Sentences, of pairs and channels up to twenty; empty if all is well.
    pairs : int
        Ordered pairs of servers whose packets were followed.
    channels : int
        RDMA channels that were followed.
    """

    faults: tuple[str, ...]
    pairs: int
    channels: int


def lab_of(made: Deployment, files: Files) -> Lab:
    """Return the hosts and cables that the files describe, with the site's hardware addresses.

    Parameters
    ----------
    made : Deployment
    files : mapping of str to str
        As in `topoopt.deploy.files.deploy_files`.

    Raises
    ------
    InputError
        If a file is missing or not understood.
    """
    hosts = {made.name(server): read_host(files, made.name(server)) for server in made.servers}
    macs: dict[Port, str] = {}
    base: dict[Port, str] = {}
    for end in made.port_addresses:
        name, port = made.name(end[0]), made.port(end)
        if port.mac:
            macs[name, port.interface] = port.mac
        if port.forward:
            base[name, port.forward.interface] = port.interface
            if port.forward.mac:
                macs[name, port.forward.interface] = port.forward.mac
    for name, host in hosts.items():
        macs |= {(name, device): mac for device, mac in host.macs.items()}
    return Lab(hosts, wires(read_cables(files)), macs, base)


def check_files(made: Deployment, files: Files) -> Checked:
    """Follow every pair's packets and every RDMA channel through the files.

    Parameters
    ----------
    made : Deployment
        What is expected.
    files : mapping of str to str
        What is there.

    Returns
    -------
    Checked
    """
    try:
        lab = lab_of(made, files)
    except InputError as error:
        return Checked((str(error),), 0, 0)
    faults = [*_set_up(made, lab), *_panels(made, files)]
    pairs = 0
    for source in made.servers:
        for target in made.servers:
            if source != target:
                pairs += 1
                fault = _pair(made, lab, source, target)
                if fault and len(faults) < MOST_FAULTS:
                    faults.append(fault)
    for channel in made.channels.channels:
        fault = _channel(made, lab, channel.source, channel.target, channel.hops)
        if fault and len(faults) < MOST_FAULTS:
            faults.append(fault)
    return Checked(tuple(faults), pairs, len(made.channels.channels))


def _set_up(made: Deployment, lab: Lab) -> Iterator[str]:
    """Yield where addresses and MTU are not those of the plan on its site."""
    for server in made.servers:
        name, host = made.name(server), lab.hosts[made.name(server)]
        if host.loopback != [made.host_address(server)]:
            found = ", ".join(host.loopback) or "no address"
            yield f"{name} has {found} on lo, not {made.host_address(server)}"
        if host.tagged != host.filters:
            yield f"{name} treats RDMA packets with a VLAN tag otherwise than those without"
        if host.settings.get("net/ipv4/fib_multipath_hash_policy") != "1":
            yield f"{name} divides packets by addresses alone (fib_multipath_hash_policy)"
        for device, mtu in host.mtu.items():
            if mtu != made.site.mtu:
                yield f"{name} {device} has MTU {mtu}, the site {made.site.mtu}"
    for end, (address, prefix) in made.port_addresses.items():
        name, device = made.name(end[0]), made.port(end).interface
        given = lab.hosts[name].interfaces.get(device)
        if given != [IPv4Interface(f"{address}/{prefix}")]:
            found = ", ".join(map(str, given or [])) or "no address"
            yield f"{name} {device} has {found}, not {address}/{prefix}"


def _panels(made: Deployment, files: Files) -> Iterator[str]:
    """Yield where the two tables of cables differ from ports' positions, or from each other."""
    cables = {cable.ends: cable for cable in read_cables(files)}
    ports = {
        (host.name, port.interface): (port.panel or "", str(port.position or ""))
        for host in made.site.hosts
        for port in host.ports
    }
    for cable in cables.values():
        for end, given in zip(cable.ends, cable.panels, strict=True):
            if end in ports and ports[end] != given:
                yield f"cables.csv: {cable.name} has {end[0]} {end[1]} on {' '.join(given)}"
    names = [cable.name for cable in cables.values()]
    planned = [row.name for row in read_cables({"cables.csv": cables_csv(made)})]
    if sorted(names) != sorted(planned):
        yield "cables.csv: the names of cables are not those of the plan" + _left_out(
            set(names), set(planned)
        )
    yield from _cross_connects(made, files, list(cables.values()))


def _left_out(given: set[str], planned: set[str]) -> str:
    """Return how to check files of fewer cables: those of `topoopt deploy --without`."""
    lacking = sorted(planned - given)
    if given - planned or not lacking:
        return ""
    options = " ".join(f"--without {name}" for name in lacking[:4])
    more = " and so on" if len(lacking) > 4 else ""
    names = ", ".join(lacking[:4])
    return f": {names}{more} lacking; files without them are checked with {options}{more}"


def _cross_connects(made: Deployment, files: Files, cables: list[CableRow]) -> Iterator[str]:
    expected = cross_connects_csv(made)
    if expected is None:
        return
    if "cross-connects.csv" not in files:
        yield "cross-connects.csv is missing"
        return
    leads = {
        (cable.panels[i], cable.panels[1 - i])
        for cable in cables
        for i in ((0, 1) if cable.both_ways else (0,))
    }
    try:
        rows = read_table(files["cross-connects.csv"], "cross-connects.csv", CROSS_COLUMNS)
    except InputError as error:
        yield str(error)
        return
    joined = {((row["panel"], row["input"]), (row["panel"], row["output"])) for row in rows}
    for (panel, at), (_, to) in sorted(leads ^ joined):
        yield f"cross-connects.csv and cables.csv differ about {at} to {to} of panel {panel}"


def _port(made: Deployment, end: End) -> Port:
    return made.name(end[0]), made.port(end).interface


def planned_shares(made: Deployment, source: int, target: int) -> dict[tuple[int, int], float]:
    """Return what part of a pair's packets the plan has on each link.

    Parameters
    ----------
    made : Deployment
    source, target : int
    """
    links, weights = made.routes.row(source, target)
    ends = zip(
        made.network.source[links].tolist(), made.network.target[links].tolist(), strict=True
    )
    return dict(zip(ends, weights.tolist(), strict=True))


def _pair(made: Deployment, lab: Lab, source: int, target: int) -> str | None:
    a, b = made.name(source), made.name(target)
    try:
        shares = flow(lab, a, made.host_address(source), made.host_address(target))
    except Lost as lost:
        return f"{a} to {b}: {lost}"
    numbers = {made.name(server): server for server in made.servers}
    found: dict[tuple[int, int], float] = defaultdict(float)
    each: dict[tuple[int, int], list[float]] = defaultdict(list)
    for ((one, _), (other, _)), share in shares.items():
        found[numbers[one], numbers[other]] += share
        each[numbers[one], numbers[other]].append(share)
    planned = planned_shares(made, source, target)
    for link in sorted({*found, *planned}):
        if abs(found[link] - planned.get(link, 0.0)) > _ROUNDING:
            return (
                f"{a} to {b}: {found[link]:.1%} of the packets go from {made.name(link[0])} to "
                f"{made.name(link[1])}, the plan has {planned.get(link, 0.0):.1%}"
            )
        cables = len(made.cabling.ports_to.get(link, ()))
        if planned.get(link, 0.0) > _ROUNDING and (
            len(each[link]) != cables or max(each[link]) - min(each[link]) > _ROUNDING
        ):
            return (
                f"{a} to {b}: the {cables} cables from {made.name(link[0])} to "
                f"{made.name(link[1])} do not carry the same share"
            )
    return None


def _channel(
    made: Deployment, lab: Lab, start: End, end: End, hops: tuple[tuple[End, End], ...]
) -> str | None:
    first, last = _port(made, start), _port(made, end)
    what = f"RDMA from {first[0]} {first[1]} to {last[0]} {last[1]}"
    try:
        way = rdma_way(lab, first, made.port_address(start), made.port_address(end))
    except Lost as lost:
        return f"{what}: {lost}"
    if way != [(_port(made, a), _port(made, b)) for a, b in hops]:
        return f"{what}: goes by {', '.join(port[0] for _, port in way)}, not as planned"
    return None
