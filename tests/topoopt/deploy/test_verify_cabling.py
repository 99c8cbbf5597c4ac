"""What is cabled against the plan, and whether the repairs that are named repair it."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sites import full_site, split_plan
from small_plans import shared_bidirectional_plan, shared_plan

from codesign_base import InputError
from topoopt.deploy.deployment import deployment
from topoopt.deploy.verify_cabling import read_neighbours, verify_cabling


def planned(made):
    return {other: end for end, other in made.cabling.leads_to.items()}


def named(made):
    return {
        f"{host.name} {port.interface}": (server, index)
        for server, host in enumerate(made.site.hosts)
        for index, port in enumerate(host.ports)
    }


def joined(cables):
    """What ports hear of cables that carry both ways."""
    return {end: other for pair in cables for end, other in (tuple(pair), tuple(pair)[::-1])}


def repaired_cables(made, heard, steps):
    """Carry the steps out on a set of cables."""
    at = named(made)
    cables = {frozenset(pair) for pair in heard.items()}

    def of(end):
        return next((cable for cable in cables if end in cable), None)

    for step in steps:
        if match := re.fullmatch(r"put a cable between (.+) and (.+)", step):
            ends = at[match[1]], at[match[2]]
            assert all(of(end) is None for end in ends)
            cables.add(frozenset(ends))
        elif match := re.fullmatch(r"move the plug in (.+) to (.+)", step):
            old, new = at[match[1]], at[match[2]]
            cable = of(old)
            assert of(new) is None
            cables = cables - {cable} | {cable - {old} | {new}}
        elif match := re.fullmatch(r"exchange the plugs in (.+) and (.+)", step):
            one, two = at[match[1]], at[match[2]]
            first, second = of(one), of(two)
            cables = cables - {first, second} | {first - {one} | {two}, second - {two} | {one}}
        else:
            match = re.fullmatch(r"remove the cable between (.+) and (.+)", step)
            cables = cables - {frozenset((at[match[1]], at[match[2]]))}
    return joined(cables)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_exchanges_of_plugs_repair_any_cabling(data):
    made = deployment(shared_bidirectional_plan())
    ends = sorted(planned(made))
    order = data.draw(st.permutations(ends))
    cables = list(zip(order[::2], order[1::2], strict=True))
    kept = data.draw(st.lists(st.booleans(), min_size=len(cables), max_size=len(cables)))
    heard = joined(cable for cable, keep in zip(cables, kept, strict=True) if keep)
    verdict = verify_cabling(made, heard)
    assert bool(verdict.wrong) == (heard != planned(made))
    assert repaired_cables(made, heard, verdict.repairs) == planned(made)
    assert len(verdict.repairs) <= len(made.cabling.cables)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_exchanges_of_fibres_repair_any_cabling(data):
    made = deployment(split_plan())
    right = planned(made)
    ends = sorted(right)
    senders = data.draw(st.permutations([right[end] for end in ends]))
    kept = data.draw(st.lists(st.booleans(), min_size=len(ends), max_size=len(ends)))
    heard = {e: s for e, s, keep in zip(ends, senders, kept, strict=True) if keep}
    verdict = verify_cabling(made, heard)
    at, now = named(made), dict(heard)
    for step in verdict.repairs:
        if match := re.fullmatch(r"exchange the receiving fibres of (.+) and (.+)", step):
            one, two = at[match[1]], at[match[2]]
            now[one], now[two] = now[two], now[one]
        elif match := re.fullmatch(r"move the receiving fibre of (.+) to (.+)", step):
            now[at[match[2]]] = now.pop(at[match[1]])
        elif match := re.fullmatch(
            r"lead the fibre from the transmitter of (.+) to the receiver of (.+)", step
        ):
            now[at[match[2]]] = at[match[1]]
        else:
            # Of ordinary cables, whose ports hear each other.
            plugs = {end: other for end, other in now.items() if now.get(other) == end}
            now = {end: now[end] for end in now.keys() - plugs.keys()}
            now |= repaired_cables(made, plugs, [step])
    assert now == right
    assert bool(verdict.wrong) == (heard != right)


def test_one_exchange_is_one_repair():
    made = deployment(shared_plan())
    heard = planned(made)
    # The plugs at the far ends of the first two cables are exchanged.
    (a, b), (c, d) = ((cable.source, cable.target) for cable in made.cabling.cables[:2])
    heard |= {a: d, d: a, c: b, b: c}
    verdict = verify_cabling(made, heard)
    assert len(verdict.wrong) == 4
    assert len(verdict.repairs) == 1
    assert verdict.wrong[0] == "server-0 fab0 hears server-2 fab1, planned is server-1 fab1"


def test_plugs_of_ordinary_cables_are_exchanged_beside_split_ones():
    made = deployment(split_plan())
    heard = planned(made)
    ordinary = [cable for cable in made.cabling.cables if cable.both_ways]
    assert 1 < len(ordinary) < len(made.cabling.cables)
    (a, b), (c, d) = ((cable.source, cable.target) for cable in ordinary[:2])
    heard |= {a: d, d: a, c: b, b: c}
    (repair,) = verify_cabling(made, heard).repairs
    assert repair.startswith("exchange the plugs in ")


def test_neighbours_that_contradict_each_other_are_named():
    """Two ports that hear one, and a port that hears itself, are no cables."""
    made = deployment(shared_plan())
    heard = planned(made)
    first, second, *_ = sorted(heard)
    heard[first], heard[second] = heard[second], second
    verdict = verify_cabling(made, heard)
    assert len(verdict.wrong) == 2
    assert all(len(step.splitlines()) == 1 for step in verdict.repairs)


def neighbours_csv(made, heard):
    lines = ["host,interface,neighbour,neighbour_interface"]
    for end, other in heard.items():
        ports = made.port(end).interface, made.port(other).interface
        lines.append(f"{made.name(end[0])},{ports[0]},{made.name(other[0])},{ports[1]}")
    return "\n".join(lines) + "\n"


def test_neighbours_are_read_from_csv(tmp_path):
    made = deployment(shared_plan())
    path = tmp_path / "neighbours.csv"
    path.write_text(neighbours_csv(made, planned(made)))
    assert read_neighbours(path, made) == (planned(made), {})


@pytest.mark.parametrize("form", ["json", "json0"])
def test_neighbours_are_read_from_lldp(tmp_path, form):
    """Both forms of lldpcli: objects keyed by name, and lists; one neighbour is no list."""
    plan = shared_plan()
    made = deployment(plan, full_site(4, 2))
    document = {}
    for server in made.servers:
        blocks = []
        for end, other in planned(made).items():
            if end[0] != server:
                continue
            name, mac = made.name(other[0]).split(".")[0], made.mac(other).upper()
            if form == "json":
                entry = {
                    "chassis": {name: {"id": {"type": "mac", "value": "00:00:00:00:00:00"}}},
                    "port": {"id": {"type": "mac", "value": mac}, "descr": "a port"},
                }
                blocks.append({made.port(end).interface: entry})
            else:
                ident = {"type": "ifname", "value": made.port(other).interface}
                entry = {
                    "name": made.port(end).interface,
                    "chassis": [{"name": [{"value": name}]}],
                    "port": [{"id": [ident]}],
                }
                blocks.append(entry)
        told = {"interface": blocks if len(blocks) > 1 else blocks[0]}
        document[made.name(server)] = {"lldp": told if form == "json" else [told]}
    if form == "json":
        # What a switch says on the management interface is no matter of the plan's.
        port = {"id": {"type": "local", "value": "17"}, "descr": "uplink"}
        uplink = {"eno1": {"chassis": {"switch": {}}, "port": port}}
        document[made.name(0)]["lldp"]["interface"].append(uplink)
    path = tmp_path / "lldp.json"
    path.write_text(json.dumps(document))
    assert read_neighbours(path, made) == (planned(made), {})


def lldp_of(made, heard):
    """As lldpd 1.0.16 tells neighbours: ports by hardware address, interfaces as description."""
    document = {}
    for server in made.servers:
        entries = [
            {
                made.port(end).interface: {
                    "via": "LLDP",
                    "rid": "1",
                    "chassis": {name: {"id": {"type": "mac", "value": "36:19:06:84:55:5b"}}},
                    "port": {
                        "id": {"type": "mac", "value": f"36:19:06:84:{end[0]:02}:{end[1]:02}"},
                        "descr": interface,
                        "ttl": "120",
                    },
                }
            }
            for end, (name, interface) in heard.items()
            if end[0] == server
        ]
        document[made.name(server)] = {"lldp": {"interface": entries} if entries else {}}
    return document


def test_hardware_addresses_that_the_site_lacks_are_no_hindrance(tmp_path):
    """Cables are compared before netplan has given ports the addresses of the plan."""
    made = deployment(shared_plan())
    told = {
        end: (made.name(other[0]), made.port(other).interface)
        for end, other in planned(made).items()
    }
    path = tmp_path / "lldp.json"
    path.write_text(json.dumps(lldp_of(made, told)))
    assert read_neighbours(path, made) == (planned(made), {})


def test_a_cable_to_something_else_is_named_and_taken_out(tmp_path):
    made = deployment(shared_plan())
    first = made.cabling.cables[0].source
    told = {
        end: (made.name(other[0]), made.port(other).interface)
        for end, other in planned(made).items()
    }
    del told[planned(made)[first]]
    told[first] = ("switch-7", "Ethernet1/3")
    path = tmp_path / "lldp.json"
    path.write_text(json.dumps(lldp_of(made, told)))
    verdict = verify_cabling(made, *read_neighbours(path, made))
    assert len(verdict.wrong) == 2
    assert "hears switch-7 Ethernet1/3, planned is" in verdict.wrong[0]
    assert verdict.repairs == (
        "take the plug of switch-7 Ethernet1/3 out of server-0 fab0",
        "put a cable between server-0 fab0 and server-1 fab1",
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("host,interface\n", "lacks the column neighbour;"),
        ("x" * 200_000, "not readable CSV"),
        ("host,interface,neighbour,neighbour_interface\nx,fab0,server-0,fab0\n", "not in the site"),
        ("host,interface,neighbour,neighbour_interface\nserver-0,,y,fab0\n", "line 2"),
        (
            "host,interface,neighbour,neighbour_interface\n"
            "server-0,fab0,server-1,fab0\nserver-0,fab0,server-1,fab1\n",
            "hears two ports",
        ),
        (
            "host,interface,neighbour,neighbour_interface\n"
            "server-0,fab0,server-1,fab0\nserver-0,fab0,switch,swp1\n",
            "hears two ports",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, text, words):
    path = tmp_path / "neighbours.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        read_neighbours(path, deployment(shared_plan()))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"server-9": {"lldp": {}}}, "host 'server-9' is not in the site; correct its name"),
        ({"server-1": {"lldp": []}}, "lldp of host 'server-1' is an empty list"),
        ({"server-1": None, "server-3": None},
         "does not list 2 hosts of the plan: server-1, server-3; add what lldpcli prints"),
    ],
)  # fmt: skip
def test_hosts_of_a_json_file_are_those_of_the_plan(tmp_path, change, words):
    made = deployment(shared_plan())
    document = {**{made.name(server): {"lldp": {}} for server in made.servers}, **change}
    path = tmp_path / "lldp.json"
    kept = {host: told for host, told in document.items() if told is not None}
    path.write_text(json.dumps(kept))
    with pytest.raises(InputError, match=words):
        read_neighbours(path, made)


def test_hosts_that_hear_nobody_are_named():
    made = deployment(shared_plan())
    heard = {a: b for a, b in planned(made).items() if 2 not in (a[0], b[0])}
    verdict = verify_cabling(made, heard)
    assert verdict.silent == ("server-2",) and verdict.repairs
    assert verify_cabling(made, planned(made)).silent == ()


def test_json_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "lldp.json"
    nameless = '{"lldp": {"interface": {"fab0": {"chassis": {"x": {}}, "port": {}}}}}'
    for told in ('{"cdp": []}', nameless, "null"):
        path.write_text(f'{{"server-0": {told}}}')
        with pytest.raises(InputError, match="is not an object of host names to what lldpcli"):
            read_neighbours(path, deployment(shared_plan()))
