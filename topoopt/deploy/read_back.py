"""The generated files read back, without anything else of the plan: what hosts would then do."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv4Interface, IPv4Network
from typing import Any

from codesign_base import InputError
from parallelism.reading import parse_yaml
from topoopt.deploy.tables import read_table
from topoopt.deploy.technician import BOTH_WAYS, CABLE_COLUMNS, ONE_WAY

MAIN = 254
"""Number of Linux's main table."""

Port = tuple[str, str]
"""A host's name and an interface."""


@dataclass(frozen=True)
class NextHop:
    """One way out: interface, neighbour (None: the destination itself) and weight."""

    device: str
    via: str | None
    weight: int


@dataclass(frozen=True)
class Filter:
    """What a traffic-control filter does with what it matches."""

    mac: str
    device: str


@dataclass
class Host:
    """What the files of one host set.

    Parameters
    ----------
    loopback : list of str
        Addresses of the loopback interface.
    interfaces : dict of str to list of IPv4Interface
        Addresses of each.
    macs : dict of str to str
        Those that the files give; others are the hardware's.
    mtu : dict of str to int
    routes : dict of (table, network) to list of NextHop
    rules : dict of str to int
        Table for packets of a source address.
    neighbours : dict of (address, interface) to str
    filters, tagged : dict of (interface, source, destination) to Filter
        For packets without and with a VLAN tag.
    settings : dict of str to str
        Below ``/proc/sys``.
    """

    loopback: list[str] = field(default_factory=list)
    interfaces: dict[str, list[IPv4Interface]] = field(default_factory=dict)
    macs: dict[str, str] = field(default_factory=dict)
    mtu: dict[str, int] = field(default_factory=dict)
    routes: dict[tuple[int, IPv4Network], list[NextHop]] = field(default_factory=dict)
    rules: dict[str, int] = field(default_factory=dict)
    neighbours: dict[tuple[str, str], str] = field(default_factory=dict)
    filters: dict[tuple[str, str, str], Filter] = field(default_factory=dict)
    tagged: dict[tuple[str, str, str], Filter] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)

    @cached_property
    def tables(self) -> dict[int, list[tuple[int, dict[int, list[NextHop]]]]]:
        """Routes of each table by prefix length, the longest first, and by the prefix's bits."""
        found: dict[int, dict[int, dict[int, list[NextHop]]]] = {}
        for (table, network), hops in self.routes.items():
            lengths = found.setdefault(table, {})
            lengths.setdefault(network.prefixlen, {})[_bits(network)] = hops
        return {
            table: sorted(lengths.items(), key=lambda each: -each[0])
            for table, lengths in found.items()
        }

    @cached_property
    def subnets(self) -> list[tuple[int, int, int, str]]:
        """Prefix length and bits, the own address and the interface of each address."""
        return [
            (each.network.prefixlen, _bits(each.network), int(each.ip), device)
            for device, addresses in self.interfaces.items()
            for each in addresses
        ]


def _bits(network: IPv4Network) -> int:
    return int(network.network_address) >> (32 - network.prefixlen)


@dataclass(frozen=True)
class CableRow:
    """A row of cables.csv."""

    name: str
    ends: tuple[Port, Port]
    panels: tuple[tuple[str, str], tuple[str, str]]
    both_ways: bool


Files = Mapping[str, str]
"""Path within the deploy directory to text."""


def read_cables(files: Files) -> list[CableRow]:
    """Read cables.csv.

    Parameters
    ----------
    files : mapping of str to str

    Raises
    ------
    InputError
        If it is missing, a column is, a direction is unknown, or a fibre's end is used twice.
    """
    if "cables.csv" not in files:
        raise InputError("cables.csv is missing; deploy again")
    rows = read_table(files["cables.csv"], "cables.csv", CABLE_COLUMNS)
    found = []
    sending, hearing = set(), set()
    for row in rows:
        if row["direction"] not in (BOTH_WAYS, ONE_WAY):
            raise InputError(
                f"cables.csv: direction of {row['cable']} is {row['direction']!r}; give "
                f"{BOTH_WAYS} or {ONE_WAY}"
            )
        both = row["direction"] == BOTH_WAYS
        ends = (row["from_host"], row["from_port"]), (row["to_host"], row["to_port"])
        panels = (
            (row["from_panel"], row["from_position"]), (row["to_panel"], row["to_position"])
        )  # fmt: skip
        for a, b in (ends, ends[::-1]) if both else (ends,):
            if a in sending or b in hearing:
                raise InputError(f"cables.csv: an end of {row['cable']} has another cable, too")
            sending.add(a)
            hearing.add(b)
        found.append(CableRow(row["cable"], ends, panels, both))
    return found


def wires(cables: list[CableRow]) -> dict[Port, Port]:
    """Return the port that hears what each port sends."""
    found = {}
    for cable in cables:
        found[cable.ends[0]] = cable.ends[1]
        if cable.both_ways:
            found[cable.ends[1]] = cable.ends[0]
    return found


def read_host(files: Files, name: str) -> Host:
    """Read the files of a host.

    Parameters
    ----------
    files : mapping of str to str
    name : str

    Returns
    -------
    Host

    Raises
    ------
    InputError
        If a file is missing or has a line that is not understood.
    """
    host = Host()
    texts = {}
    for file in ("netplan.yaml", "routes.sh", "rdma.sh"):
        path = f"hosts/{name}/{file}"
        if path not in files:
            raise InputError(f"{path} is missing; deploy again")
        texts[file] = files[path]
    _read_netplan(host, texts["netplan.yaml"], f"hosts/{name}/netplan.yaml")
    for file in ("routes.sh", "rdma.sh"):
        for line in apply_lines(texts[file]):
            try:
                _read_line(host, line.split())
            except InputError as error:
                raise InputError(f"hosts/{name}/{file}: {error}") from None
            except (ValueError, IndexError, KeyError, StopIteration):
                raise InputError(f"hosts/{name}/{file}: not understood: {line!r}") from None
    return host


def apply_lines(script: str) -> Iterator[str]:
    """Yield the lines that ``apply`` feeds to ip, tc and its settings, in order."""
    body = script.partition("\napply() {")[2]
    for block in re.findall(r"<<'END'\n(.*?)^END$", body, flags=re.DOTALL | re.MULTILINE):
        yield from block.splitlines()


def _read_netplan(host: Host, text: str, where: str) -> None:
    document: Any = parse_yaml(text, where)
    try:
        for name, entry in document["network"]["ethernets"].items():
            addresses = [IPv4Interface(each) for each in entry.get("addresses", [])]
            if name == "lo":
                if any(each.network.prefixlen != 32 for each in addresses):
                    raise ValueError("an own address with a subnet")
                host.loopback += [str(each.ip) for each in addresses]
                continue
            host.interfaces[name] = addresses
            host.mtu[name] = int(entry["mtu"])
            if "macaddress" in entry:
                host.macs[name] = str(entry["macaddress"])
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise InputError(f"{where} is not as topoopt writes it ({error!r}); deploy again") from None


def _read_line(host: Host, words: list[str]) -> None:
    match words:
        case ["neigh", "replace", address, "lladdr", mac, "dev", device, "nud", "permanent",
              "protocol", "84" | "85"]:  # fmt: skip
            host.neighbours[address, device] = mac
        case ["route" | "rule" | "neigh", "flush", *_, "84"]:
            pass  # what an earlier apply left
        case ["route", "replace", network, *rest]:
            _read_route(host, IPv4Network(network), rest)
        case ["rule", "add", "pref", _, "from", source, "lookup", table, "protocol", _]:
            host.rules[source] = int(table)
        case ["filter", "add", "dev", device, "ingress", "protocol", _, "pref", _, "flower", *rest]:
            if rest[:2] == ["vlan_ethtype", "ip"]:
                _read_filter(host.tagged, device, rest[2:])
            else:
                _read_filter(host.filters, device, rest)
        case [key, value] if key.startswith("net/"):
            host.settings[key] = value
        case [device] if device in host.interfaces:
            pass  # gets a place for filters
        case _:
            raise ValueError(words)


def _read_route(host: Host, network: IPv4Network, words: list[str]) -> None:
    at = next(i for i, word in enumerate(words) if word in ("nexthop", "via", "dev"))
    options = dict(zip(words[:at:2], words[1:at:2], strict=True))
    if unknown := options.keys() - {"src", "proto", "table"}:
        raise ValueError(unknown)
    parts = _split(words[at:])
    if "src" in options and options["src"] not in host.loopback:
        raise InputError(f"a route's source {options['src']} is no address of the host itself")
    table = int(options.get("table", MAIN))
    host.routes[table, network] = [_next_hop(part) for part in parts]


def _next_hop(words: list[str]) -> NextHop:
    plain = [word for word in words if word != "onlink"]
    said = dict(zip(plain[::2], plain[1::2], strict=True))
    if unknown := said.keys() - {"via", "dev", "weight"}:
        raise ValueError(unknown)
    return NextHop(said["dev"], said.get("via"), int(said.get("weight", 1)))


def _split(words: list[str]) -> list[list[str]]:
    """Return the next hops of a route: several begin with a word each, one with none."""
    if words[0] != "nexthop":
        return [words]
    begins = [i for i, word in enumerate(words) if word == "nexthop"]
    return [words[a + 1 : b] for a, b in zip(begins, [*begins[1:], len(words)], strict=True)]


def _read_filter(
    filters: dict[tuple[str, str, str], Filter], device: str, words: list[str]
) -> None:
    match words:
        case ["src_ip", source, "dst_ip", target, "ip_proto", "udp", "dst_port", "4791",
              "action", "pedit", "ex", "munge", "eth", "dst", "set", mac,
              "pipe", "action", "mirred", "egress", "redirect", "dev", out]:  # fmt: skip
            filters[device, source, target] = Filter(mac, out)
        case _:
            raise ValueError(words)
