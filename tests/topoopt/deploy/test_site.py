"""The site file, and the sites that are refused."""

import re
from pathlib import Path

import pytest
import yaml
from sites import full_site
from small_plans import shared_plan

from codesign_base import InfeasibleError, InputError
from topoopt.deploy.deployment import deployment
from topoopt.deploy.site import Site, default_site, load_site


def written(tmp_path, document):
    path = tmp_path / "hosts.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def document(servers=4, degree=2, **asked):
    return full_site(servers, degree, **asked).model_dump(mode="json", exclude_none=True)


def test_a_file_is_read_as_it_was_meant(tmp_path):
    site = full_site(3, 2, panels=2)
    found = load_site(written(tmp_path, site.model_dump(mode="json", exclude_none=True)))
    assert found == site


def test_a_few_lines_are_enough(tmp_path):
    ports = [{"interface": "fab0"}, {"interface": "fab1"}]
    site = load_site(written(tmp_path, {"hosts": [{"name": "a", "ports": ports}]}))
    assert site.mtu == 9000
    assert [port.interface for port in site.hosts[0].ports] == ["fab0", "fab1"]


@pytest.mark.parametrize("place", [[1e30, 0, 0], [0, -1e6, 0]])
def test_places_lie_within_100_km(tmp_path, place):
    far = document()
    far["hosts"][1]["place_m"] = place
    with pytest.raises(InputError, match=r"place_m.*than or equal to -?100000"):
        load_site(written(tmp_path, far))


def test_defaults_have_a_host_a_server_and_a_port_a_degree():
    site = default_site(11, 3)
    assert [host.name for host in site.hosts][:2] == ["server-00", "server-01"]
    assert all(len(host.ports) == 3 for host in site.hosts)


def _with(change):
    found = document()
    change(found)
    return found


SPOILT = {
    "occurs twice": lambda d: d["hosts"][1].update(name="NODE-0.lab"),
    "management address": lambda d: d["hosts"][1].update(management="192.0.2.1"),
    "interface": lambda d: d["hosts"][0]["ports"][1].update(interface="enp0s0np0"),
    "RDMA device": lambda d: d["hosts"][0]["ports"][1].update(rdma="mlx5_0"),
    "MAC address": lambda d: d["hosts"][0]["ports"][1].update(mac="B8:CE:F6:00:01:00"),
    "unicast": lambda d: d["hosts"][0]["ports"][1].update(mac="01:00:5e:00:00:01"),
    "IPv4 address": lambda d: d["hosts"][0].update(management="192.0.2.1000"),
    "range such as": lambda d: d.update(addresses={"hosts": "10.0.0.1/16"}),
    "unknown field": lambda d: d["hosts"][0].update(rack="A"),
    "letters": lambda d: d["hosts"][0].update(name="a; reboot"),
    "digits": lambda d: d["hosts"][0]["ports"][0].update(interface="$(reboot)"),
    "other than lo": lambda d: d["hosts"][0]["ports"][0].update(interface="all"),
    "both or neither": lambda d: d["hosts"][0]["ports"][0].update(panel="ocs"),
    "not listed": lambda d: d["hosts"][0]["ports"][0].update(panel="ocs", position=1),
}


@pytest.mark.parametrize("words", SPOILT)
def test_what_is_wrong_is_said_in_one_sentence(tmp_path, words):
    with pytest.raises(InputError, match=words) as caught:
        load_site(written(tmp_path, _with(SPOILT[words])))
    assert "\n" not in str(caught.value)


def test_positions_are_used_once_and_exist(tmp_path):
    found = document(panels=1)
    found["hosts"][1]["ports"][0]["position"] = 1
    with pytest.raises(InputError, match=r"position 1 of panel 'ocs-0' occurs twice"):
        load_site(written(tmp_path, found))
    found["hosts"][1]["ports"][0]["position"] = 1001
    with pytest.raises(InputError, match="which has 1000"):
        load_site(written(tmp_path, found))


def test_a_file_without_hosts_is_refused(tmp_path):
    with pytest.raises(InputError, match="hosts"):
        load_site(written(tmp_path, {"mtu": 1500}))
    with pytest.raises(InputError, match="start it with 'hosts:'"):
        load_site(written(tmp_path, ["hosts"]))


def changed(site, **fields):
    return Site.model_validate({**site.model_dump(), **fields})


def test_a_site_that_cannot_carry_the_plan_is_refused():
    plan = shared_plan()
    site = full_site(4, 2, spare=0)
    cases = {
        "3 hosts, the plan 4": changed(site, hosts=site.hosts[:3]),
        "needs 2 of each": full_site(4, 1, spare=0),
        "overlap": changed(site, addresses={"hosts": "10.0.0.0/8", "cables": "10.1.0.0/16"}),
        "4 hosts need 5, as the first is the network's own": changed(
            site, addresses={"hosts": "10.0.0.0/30"}
        ),
        "2 ports need 16": changed(site, addresses={"cables": "10.2.0.0/29"}),
        "lies in": changed(site, addresses={"hosts": "192.0.2.0/24"}),
    }
    for words, spoilt in cases.items():
        with pytest.raises(InfeasibleError, match=words):
            deployment(plan, spoilt)


def test_ports_are_on_panels_all_or_none():
    site = full_site(4, 2, panels=1)
    hosts = [host.model_dump() for host in site.hosts]
    hosts[2]["ports"][0] |= {"panel": None, "position": None}
    with pytest.raises(InfeasibleError, match="1 of 2 ports on panels"):
        deployment(shared_plan(), changed(site, hosts=hosts))
    hosts[2]["ports"][1] |= {"panel": None, "position": None}
    with pytest.raises(InfeasibleError, match="some hosts are on panels"):
        deployment(shared_plan(), changed(site, hosts=hosts))


def test_panels_in_another_order_are_refused():
    site = full_site(4, 2, panels=2)
    hosts = [host.model_dump() for host in site.hosts]
    first, second = hosts[3]["ports"][:2]
    first["panel"], second["panel"] = second["panel"], first["panel"]
    with pytest.raises(InfeasibleError, match=r"node-3\.lab.*port 1 to one panel"):
        deployment(shared_plan(), changed(site, hosts=hosts))


def test_a_given_mac_address_must_not_be_one_that_is_made_up():
    site = default_site(4, 2)
    hosts = [host.model_dump() for host in site.hosts]
    hosts[3]["ports"][0]["mac"] = "02:54:00:00:01:00"
    with pytest.raises(InfeasibleError, match="02:54:00:00:01:00"):
        deployment(shared_plan(), changed(site, hosts=hosts))


def test_places_may_be_whole_numbers(tmp_path):
    found = document()
    found["hosts"][0]["place_m"] = [1, 0, 2]
    assert load_site(written(tmp_path, found)).hosts[0].place_m == (1.0, 0.0, 2.0)


def test_the_example_of_the_documentation_is_a_site(tmp_path):
    page = Path(__file__).resolve().parents[3] / "docs" / "deploy.md"
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), flags=re.M | re.S)
    path = tmp_path / "hosts.yaml"
    path.write_text(text)
    site = load_site(path)
    defaults = Site(hosts=site.hosts)
    assert (site.addresses, site.mtu, site.slack_m) == (
        defaults.addresses,
        defaults.mtu,
        defaults.slack_m,
    )
    assert site.hosts[0].ports[0].position == 17
