"""The files carry out the plan; whatever is changed in them is found."""

import functools
import random
import re
from dataclasses import replace

import pytest
from sites import full_site, split_plan
from small_plans import (
    shared_bidirectional_layout_plan,
    shared_bidirectional_plan,
    shared_layout_plan,
    shared_plan,
)

from routing.paths import k_shortest_routes
from topoopt.deploy.check import check_files
from topoopt.deploy.deployment import deployment
from topoopt.deploy.files import deploy_files

PLANS = {
    "directed": shared_plan,
    "both ways": shared_bidirectional_plan,
    "split ports": split_plan,
    "layouts": shared_layout_plan,
    "layouts both ways": shared_bidirectional_layout_plan,
}


@functools.cache
def made_and_files(name, panels=None):
    """A deployment on made-up hosts, or on a full site with a number of panels."""
    plan = PLANS[name]()
    cluster = plan.cluster
    site = None if panels is None else full_site(cluster.servers, cluster.degree, panels=panels)
    made = deployment(plan, site)
    return made, deploy_files(made)


@pytest.mark.parametrize("panels", [None, 0, 1])
@pytest.mark.parametrize("name", PLANS)
def test_the_files_carry_out_the_plan(name, panels):
    made, files = made_and_files(name, panels)
    checked = check_files(made, files)
    assert checked.faults == ()
    servers = made.plan.cluster.servers
    assert checked.pairs == servers * (servers - 1)
    assert checked.channels >= checked.pairs


def test_fibres_on_several_panels_carry_out_the_plan():
    made, files = made_and_files("split ports", 3)
    assert not all(cable.both_ways for cable in made.cabling.cables)
    assert check_files(made, files).faults == ()


@pytest.mark.parametrize("name", ["directed", "split ports"])
@pytest.mark.parametrize("k", [2, 3])
def test_routes_that_depend_on_the_source_get_tables(name, k):
    made, _ = made_and_files(name)
    other = replace(made, routes=k_shortest_routes(made.network, k, slack=2))
    assert other.forwarding.transit
    files = deploy_files(other)
    assert "rule add" in files["hosts/server-0/routes.sh"]
    assert check_files(other, files).faults == ()
    # The plan's own files do not carry out other routes.
    assert check_files(made, files).faults


def lines_of(files, kind):
    """Return (file, number of the line) of all lines that a kind of change applies to."""
    found = []
    for path, text in files.items():
        if kind == "cable" and path != "cables.csv":
            continue
        if kind == "address" and not path.endswith("netplan.yaml"):
            continue
        if kind not in ("cable", "address") and not path.endswith(".sh"):
            continue
        begin = text.find("\napply() {")
        for number, line in enumerate(text.splitlines()):
            at = sum(len(each) + 1 for each in text.splitlines()[:number])
            if kind not in ("cable", "address") and at < begin:
                continue
            if re.match(_KINDS[kind], line):
                found.append((path, number))
    return found


_KINDS = {
    "cable": r"C\d+,",
    "address": r" +- \d+\.",
    "route": r"route replace",
    "rule": r"rule add",
    "neighbour": r"neigh replace",
    "filter": r"filter add",
    "setting": r"net/ipv4/conf/enp\S+/(forwarding|rp_filter)",
}


def changed_line(line, kind, draw):
    """Return a line of the same form that says something else, or None to leave it out."""
    if kind == "setting":
        return line[:-1] + {"0": "2", "1": "0", "2": "1"}[line[-1]]
    if kind == "cable":
        words = line.split(",")
        at = draw.choice([1, 2, 5, 6])
        words[at] += "0"
        return draw.choice([None, ",".join(words)])
    if kind == "route" and "weight" in line and line.count("nexthop") > 1 and draw.random() < 0.5:
        return re.sub(r"weight (\d+)", lambda m: f"weight {2 * int(m[1]) + 1}", line, count=1)
    parts = r"\d+(?=[./ ]|$)"
    if kind != "address":
        parts = r"(?<=\.)\d+(?=[/ ]|$)|(?<=[0-9a-f]:)[0-9a-f]{2}(?= )"
    numbers = list(re.finditer(parts, line))
    if not numbers or (kind != "address" and draw.random() < 0.3):
        return None
    number = draw.choice(numbers)
    base = 16 if ":" in line[number.start() - 1 : number.start()] else 10
    value = int(number[0], base)
    other = draw.choice([v for v in (value - 1, value + 1) if 0 <= v < 255])
    text = f"{other:02x}" if base == 16 else str(other)
    return line[: number.start()] + text + line[number.end() :]


@pytest.mark.parametrize("tries", [28, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("name", "panels"), [("directed", 1), pytest.param("split ports", 3, marks=pytest.mark.slow)]
)
def test_every_change_of_a_route_address_or_cable_is_found(name, panels, tries):
    made, files = made_and_files(name, panels)
    kinds = [kind for kind in _KINDS if lines_of(files, kind)]
    assert {"cable", "address", "route", "neighbour", "filter", "setting"} <= set(kinds)
    for seed in range(tries):
        draw = random.Random(seed)
        kind = kinds[seed % len(kinds)]
        path, number = draw.choice(lines_of(files, kind))
        lines = files[path].splitlines()
        line = changed_line(lines[number], kind, draw)
        new = [] if line is None else [line]
        spoilt = {**files, path: "\n".join([*lines[:number], *new, *lines[number + 1 :]]) + "\n"}
        assert check_files(made, spoilt).faults, (path, lines[number], line)


def test_exchanged_plugs_are_found():
    made, files = made_and_files("both ways")
    head, *rows = files["cables.csv"].splitlines()
    one, other = rows[0].split(","), rows[1].split(",")
    one[5:9], other[5:9] = other[5:9], one[5:9]
    swapped = "\n".join([head, ",".join(one), ",".join(other), *rows[2:]]) + "\n"
    faults = check_files(made, {**files, "cables.csv": swapped}).faults
    assert any("but the cable ends at" in fault for fault in faults)


def test_cross_connects_must_join_what_cables_join():
    made, files = made_and_files("directed", 1)
    lines = files["cross-connects.csv"].splitlines()
    for spoilt in (lines[:-1], [*lines, lines[-1].replace("ocs-0,", "ocs-0,9")]):
        text = "\n".join(spoilt) + "\n"
        faults = check_files(made, {**files, "cross-connects.csv": text}).faults
        assert any("cross-connects.csv and cables.csv differ" in fault for fault in faults)
    without = {path: text for path, text in files.items() if path != "cross-connects.csv"}
    assert check_files(made, without).faults == ("cross-connects.csv is missing",)


def test_a_missing_or_foreign_file_is_one_sentence():
    made, files = made_and_files("directed", 1)
    path = "hosts/node-0.lab/routes.sh"
    without = {name: text for name, text in files.items() if name != path}
    assert check_files(made, without).faults == (f"{path} is missing; deploy again",)
    without = {name: text for name, text in files.items() if name != "cables.csv"}
    assert check_files(made, without).faults == ("cables.csv is missing; deploy again",)
    short = {**files, "cross-connects.csv": "panel\nocs-0\n", "cables.csv": files["cables.csv"]}
    assert check_files(made, short).faults
    cut = {**files, "cables.csv": "\n".join(files["cables.csv"].split("\n")[:2])[:-12]}
    assert check_files(made, cut).faults
    odd = files[path].replace("\nroute replace", "\nroute mangle", 2)
    (fault,) = check_files(made, {**files, path: odd}).faults
    assert "not understood" in fault
