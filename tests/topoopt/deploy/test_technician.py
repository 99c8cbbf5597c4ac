"""Lists for whoever pulls cables."""

import csv
import io
from xml.etree import ElementTree

import pytest
from sites import full_site, split_plan
from small_layouts import lone_layout_plan
from small_plans import shared_bidirectional_plan, shared_plan

from codesign_base import InputError
from topoopt.deploy.check import check_files
from topoopt.deploy.deployment import deployment
from topoopt.deploy.files import deploy_files
from topoopt.deploy.launch_exports import exported
from topoopt.deploy.picture import cabling_svg
from topoopt.deploy.technician import cables_csv, cross_connects_csv, labels_csv, netbox_csv


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module", params=["both ways", "split"])
def made(request):
    plan = shared_plan() if request.param == "both ways" else split_plan()
    cluster = plan.cluster
    return deployment(plan, full_site(cluster.servers, cluster.degree, panels=1))


def test_cables_are_in_the_order_of_walking(made):
    found = rows(cables_csv(made))
    assert [row["cable"].removeprefix("C") for row in found] == sorted(
        row["cable"].removeprefix("C") for row in found
    )
    walked = [(row["from_host"], row["from_port"]) for row in found]
    assert walked == sorted(walked)
    assert len(found) == len(made.cabling.cables)


def test_cables_are_the_links_of_the_plan(made):
    server = {host.name: number for number, host in enumerate(made.site.hosts)}
    fibres = {}
    for row in rows(cables_csv(made)):
        pair = server[row["from_host"]], server[row["to_host"]]
        ways = [pair, pair[::-1]] if row["direction"] == "both" else [pair]
        for way in ways:
            fibres[way] = fibres.get(way, 0) + 1
    assert fibres == {(link.source, link.target): link.cables for link in made.plan.links}


def test_lengths_are_the_way_along_axes_and_slack(made):
    for row in rows(cables_csv(made)):
        away = abs(int(row["from_host"][5]) - int(row["to_host"][5]))
        assert float(row["length_m"]) == pytest.approx(1.5 * away + 1.0)


def test_cross_connects_join_positions_as_cables_do(made):
    joined = {(row["input"], row["output"]) for row in rows(cross_connects_csv(made))}
    cables = rows(cables_csv(made))
    expected = {(row["from_position"], row["to_position"]) for row in cables}
    expected |= {
        (row["to_position"], row["from_position"]) for row in cables if row["direction"] == "both"
    }
    assert joined == expected
    assert len({into for into, _ in joined}) == len({out for _, out in joined}) == len(joined)


def test_netbox_has_one_cable_an_interface(made):
    found = rows(netbox_csv(made))
    ends = [
        (row[f"side_{side}_device"], row[f"side_{side}_name"]) for row in found for side in "ab"
    ]
    assert len(set(ends)) == len(ends)
    assert {row[f"side_{side}_type"] for row in found for side in "ab"} == {"dcim.interface"}
    assert {row["status"] for row in found} == {"planned"}


def test_an_export_for_netbox_says_what_interfaces_must_exist(made):
    files, notes = exported(made, "netbox")
    assert files == {"netbox-cables.csv": netbox_csv(made)}
    split = any(row["side_a_name"].endswith("-tx") for row in rows(netbox_csv(made)))
    assert [note.startswith("NetBox: ") for note in notes] == [True] * split


def test_a_plan_for_one_server_has_its_job_files_and_no_collectives():
    made = deployment(lone_layout_plan())
    for kind in ("megatron", "torchtitan", "nccl"):
        assert exported(made, kind)[0]
    with pytest.raises(InputError, match="nothing in it reduces or exchanges over several servers"):
        exported(made, "msccl")
    files = deploy_files(made)
    assert not rows(files["cables.csv"]) and "server-0 slots=4" in files["job/hostfile"]
    assert check_files(made, files).faults == ()


def test_two_labels_a_cable_name_both_ends():
    made = deployment(shared_plan())
    found = rows(labels_csv(made))
    assert len(found) == 2 * len(made.cabling.cables)
    assert found[0]["text"] == "C1 server-0:fab0 <-> server-1:fab1"
    assert found[1]["text"] == "C1 server-1:fab1 <-> server-0:fab0"


def test_without_panels_there_is_nothing_to_cross_connect():
    assert cross_connects_csv(deployment(shared_plan())) is None


def test_the_picture_has_a_line_a_cable_and_a_dot_a_host():
    made = deployment(shared_bidirectional_plan())
    top = ElementTree.fromstring(cabling_svg(made))
    svg = "{http://www.w3.org/2000/svg}"
    titles = [element.text for element in top.iter(f"{svg}title")]
    assert len(titles) == 1 + len(made.cabling.cables)
    first = made.cabling.cables[0]
    ends = [f"server-{v} fab{p}" for v, p in (first.source, first.target)]
    assert titles[1] == f"C01: {ends[0]} to and from {ends[1]}"
    assert len(list(top.iter(f"{svg}circle"))) == made.plan.cluster.servers
    # A line's colour is that of one end, and the other may be in another port.
    legend = [e.text for e in top.iter(f"{svg}text") if "port" in (e.text or "")]
    ports = sorted({cable.source[1] for cable in made.cabling.cables})
    assert legend == [f"first end in port {port}" for port in ports]
