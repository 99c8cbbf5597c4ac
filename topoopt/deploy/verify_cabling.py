"""What is cabled against the plan: each wrong cable, and the exchange of plugs that repairs it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codesign_base import InputError
from codesign_base.counted import counted
from parallelism.reading import parse_json, read_text
from topoopt.deploy.cabling import End
from topoopt.deploy.deployment import Deployment
from topoopt.deploy.tables import read_table

CABLING_COLUMNS = ("host", "interface", "neighbour", "neighbour_interface")

Heard = Mapping[End, End]
"""By port, the port that it hears; ports that hear nobody are left out."""


@dataclass(frozen=True)
class CablingVerdict:
    """What is cabled wrongly.

    Parameters
    ----------
    wrong : tuple of str
        One sentence a port that hears another port than planned, or none.
    repairs : tuple of str
        What to do, in this order; after it all is as planned.
    checked : int
        Ports that should hear somebody.
    silent : tuple of str
        Hosts none of whose ports hears anybody, though one should: all their cables are out, or
        they were not asked.
    """

    wrong: tuple[str, ...]
    repairs: tuple[str, ...]
    checked: int
    silent: tuple[str, ...] = ()


def read_neighbours(path: str | Path, made: Deployment) -> tuple[dict[End, End], dict[End, str]]:
    """Read who hears whom.

    Parameters
    ----------
    path : str or Path
        CSV with the columns of `CABLING_COLUMNS`, or JSON: an object of host name to what
        ``lldpcli show neighbors -f json`` (or ``json0``) prints there.
    made : Deployment

    Returns
    -------
    heard : dict of (server, port) to (server, port)
        Interfaces of hosts that are no ports of the plan are left out.
    foreign : dict of (server, port) to str
        Ports that hear something that is no port of the site, such as a switch, and its name.

    Raises
    ------
    InputError
        If the file is not understood, names a host that the site lacks, or a port twice; or, of
        JSON, lacks a host of the plan. CSV has no line of a host that hears nobody.
    """
    where = f"neighbours file {str(path)!r}"
    text = read_text(path, "neighbours file")
    servers = _by_name(made)
    if Path(path).suffix == ".json":
        document = _document(text, where)
        rows = _json_rows(document, where)
        listed = {_known(host, servers, where) for host in document}
        if left_out := [made.name(server) for server in made.servers if server not in listed]:
            raise InputError(
                f"{where} does not list {counted(len(left_out), 'host')} of the plan: "
                f"{', '.join(left_out[:10])}{', ...' if left_out[10:] else ''}; add what lldpcli "
                "prints there, without which their cables are taken for unplugged"
            )
    else:
        rows = _csv_rows(text, where)
    ports = {
        (server, port.interface): (server, index)
        for server, host in enumerate(made.site.hosts)
        for index, port in enumerate(host.ports)
    }
    macs = {made.mac(end): end for end in ports.values()}
    found: dict[End, End] = {}
    foreign: dict[End, str] = {}
    for host, interface, neighbour, others in rows:
        server = _known(host, servers, where)
        end = ports.get((server, interface))
        if end is None or end[1] >= made.degree:
            continue  # the management interface, or a port that the plan leaves alone
        # A port says its hardware address, which the site file may not have, or its name, or both.
        at = _server(neighbour, servers)
        known = [macs[other.lower()] for other in others if other.lower() in macs]
        if at is not None:
            known += [ports[at, other] for other in others if (at, other) in ports]
        if known:
            twice = found.setdefault(end, known[0]) != known[0] or end in foreign
        else:
            name = f"{neighbour} {others[-1]}"
            twice = foreign.setdefault(end, name) != name or end in found
        if twice:
            raise InputError(f"{where}: {host} {interface} hears two ports; keep one")
    return found, foreign


def _by_name(made: Deployment) -> dict[str, int]:
    """Return servers by their names, and by the first part of it where only one has it."""
    names = [host.name.lower() for host in made.site.hosts]
    short = [name.partition(".")[0] for name in names]
    found = {name: server for server, name in enumerate(short) if short.count(name) == 1}
    return found | {name: server for server, name in enumerate(names)}


def _server(name: str, servers: Mapping[str, int]) -> int | None:
    low = name.lower()
    return servers.get(low, servers.get(low.partition(".")[0]))


def _known(host: str, servers: Mapping[str, int], where: str) -> int:
    server = _server(host, servers)
    if server is None:
        raise InputError(f"{where}: host {host!r} is not in the site; correct its name")
    return server


_Row = tuple[str, str, str, tuple[str, ...]]
"""Host, interface, neighbour, and what the neighbour's port may be known by."""


def _csv_rows(text: str, where: str) -> list[_Row]:
    found: list[_Row] = []
    for number, row in enumerate(read_table(text, where, CABLING_COLUMNS), start=2):
        values = [row[column].strip() for column in CABLING_COLUMNS]
        if not all(values):
            raise InputError(f"{where}: line {number} leaves a column empty; fill it or delete it")
        found.append((values[0], values[1], values[2], (values[3],)))
    return found


_FORM = "an object of host names to what lldpcli show neighbors -f json prints"


def _document(text: str, where: str) -> dict[str, Any]:
    document = parse_json(text, where)
    if not isinstance(document, dict):
        raise InputError(f"{where} is not {_FORM}; see docs/deploy.md")
    for host, told in document.items():
        if isinstance(told, dict) and told.get("lldp") == []:
            raise InputError(
                f"{where}: lldp of host {host!r} is an empty list, which lldpcli prints nowhere; "
                "ask the host again"
            )
    return document


def _json_rows(document: Mapping[str, Any], where: str) -> list[_Row]:
    try:
        return [(host, *neighbour) for host, told in document.items() for neighbour in _lldp(told)]
    except (AttributeError, KeyError, TypeError, IndexError, StopIteration):
        raise InputError(f"{where} is not {_FORM}; see docs/deploy.md") from None


def _lldp(told: Any) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return (interface, neighbour, its port's id and description) of what lldpcli prints."""
    found = []
    for block in _listed(told["lldp"]):
        for item in _listed(block.get("interface", [])):
            # "json": {"fab0": {...}}; "json0": {"name": "fab0", ...}.
            name, entry = (item["name"], item) if "name" in item else next(iter(item.items()))
            chassis = _listed(entry["chassis"])[0]
            if "name" in chassis:
                neighbour = _value(chassis["name"])
            elif "id" in chassis:
                neighbour = _value(chassis["id"])
            else:
                neighbour = next(iter(chassis))
            port = _listed(entry["port"])[0]
            others = tuple(_value(port[key]) for key in ("id", "descr") if key in port)
            if not others:
                raise KeyError("id")
            found.append((str(name), neighbour, others))
    return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _value(value: Any) -> str:
    first = _listed(value)[0]
    return str(first["value"] if isinstance(first, dict) else first)


def verify_cabling(
    made: Deployment, heard: Heard, foreign: Mapping[End, str] | None = None
) -> CablingVerdict:
    """Compare what is cabled with the plan.

    Cables that carry both ways are repaired by exchanging two plugs, which joins the right
    ports of at least one cable; of fibres of one direction the receiving ends are exchanged, and
    of all cables, where ports of both kinds hear each other, or those of cables do one way only.

    Parameters
    ----------
    made : Deployment
    heard : mapping of (server, port) to (server, port)
    foreign : mapping of (server, port) to str, optional
        Ports with a plug of something else.

    Returns
    -------
    CablingVerdict
    """
    foreign = foreign or {}
    planned = {other: end for end, other in made.cabling.leads_to.items()}
    wrong = []
    for end in sorted(planned):
        if heard.get(end) != planned[end]:
            hears = _named(made, heard[end]) if end in heard else foreign.get(end, "nobody")
            wanted = _named(made, planned[end])
            wrong.append(f"{_named(made, end)} hears {hears}, planned is {wanted}")
    for end in sorted((heard.keys() | foreign.keys()) - planned.keys()):
        hears = _named(made, heard[end]) if end in heard else foreign[end]
        wrong.append(f"{_named(made, end)} hears {hears}, planned is nobody")
    if not wrong:
        return CablingVerdict((), (), len(planned))
    repairs = [
        f"take the plug of {name} out of {_named(made, end)}"
        for end, name in sorted(foreign.items())
    ]
    fibres = {
        end
        for cable in made.cabling.cables
        if not cable.both_ways
        for end in (cable.source, cable.target)
    }
    mixed = any(
        (end in fibres) != (other in fibres) or not (end in fibres or heard.get(other) == end)
        for end, other in heard.items()
    )
    if fibres and mixed:
        repairs += _exchange_fibres(made, planned, dict(heard))
    else:
        (plugs, hear), (ends, receive) = (
            [{end: other for end, other in each.items() if (end in fibres) == one_way}
             for each in (planned, heard)]
            for one_way in (False, True)
        )  # fmt: skip
        repairs += _exchange_plugs(made, plugs, hear) + _exchange_fibres(made, ends, receive)
    hearing = {end[0] for end in heard.keys() | foreign.keys()}
    silent = sorted({end[0] for end in planned} - hearing)
    names = tuple(made.name(server) for server in silent)
    return CablingVerdict(tuple(wrong), tuple(repairs), len(planned), names)


def _named(made: Deployment, end: End) -> str:
    return f"{made.name(end[0])} {made.port(end).interface}"


def _exchange_plugs(made: Deployment, planned: Heard, heard: dict[End, End]) -> list[str]:
    """Repair cables: one after the other comes right."""
    at: dict[End, End] = {}
    for end, other in sorted(heard.items()):
        # Of neighbours that contradict each other, as two ports that hear one, the first counts.
        if end != other and end not in at and other not in at:
            at[end], at[other] = other, end
    steps = []
    for end in sorted(planned):
        wanted = planned[end]
        if at.get(end) == wanted or end > wanted:
            continue
        mine, its = at.pop(end, None), at.pop(wanted, None)
        if mine is not None:
            del at[mine]
        if its is not None:
            del at[its]
        names = [None if e is None else _named(made, e) for e in (end, wanted, mine, its)]
        at[end], at[wanted] = wanted, end
        if mine is None and its is None:
            steps.append(f"put a cable between {names[0]} and {names[1]}")
        elif its is None:
            steps.append(f"move the plug in {names[2]} to {names[1]}")
        elif mine is None:
            steps.append(f"move the plug in {names[3]} to {names[0]}")
        else:
            steps.append(f"exchange the plugs in {names[0]} and {names[3]}")
            at[mine], at[its] = its, mine
    for end in sorted(at):
        if end not in planned and at[end] > end:
            steps.append(
                f"remove the cable between {_named(made, end)} and {_named(made, at[end])}"
            )
    return steps


def _exchange_fibres(made: Deployment, planned: Heard, heard: dict[End, End]) -> list[str]:
    steps = []
    for end in sorted(planned):
        wanted = planned[end]
        if heard.get(end) == wanted:
            continue
        holder = next((e for e, hears in sorted(heard.items()) if hears == wanted), None)
        name, source = _named(made, end), _named(made, wanted)
        if holder is None:
            steps.append(
                f"lead the fibre from the transmitter of {source} to the receiver of {name}"
            )
        elif end in heard:
            steps.append(f"exchange the receiving fibres of {name} and {_named(made, holder)}")
            heard[holder] = heard[end]
        else:
            steps.append(f"move the receiving fibre of {_named(made, holder)} to {name}")
            del heard[holder]
        heard[end] = wanted
    for end in sorted(heard.keys() - planned.keys()):
        steps.append(f"remove the receiving fibre of {_named(made, end)}")
    return steps
