"""Scripts that shells take, and a directory that appears whole or not at all."""

import shutil
import stat
import subprocess

import pytest
import yaml
from sites import full_site, split_plan
from small_plans import shared_plan

from codesign_base import InputError
from topoopt.base import directory
from topoopt.base.directory import mark_text
from topoopt.deploy.deployment import deployment
from topoopt.deploy.files import DEPLOYMENT_FILE, deploy_files, read_files, write_files
from topoopt.deploy.site import load_site


@pytest.fixture(scope="module")
def files():
    return deploy_files(deployment(split_plan(), full_site(5, 3, panels=1)))


def names(folder):
    return [path.name for path in folder.iterdir()]


def test_scripts_are_ones_for_a_shell(files):
    shell = shutil.which("sh")
    for path, text in files.items():
        if path.endswith(".sh"):
            done = subprocess.run([shell, "-n"], input=text, text=True, capture_output=True)
            assert done.returncode == 0, (path, done.stderr)
            assert all(line.isascii() for line in text.splitlines())
            assert not any(char in text for char in "\t\r")


@pytest.mark.parametrize("site", [None, full_site(5, 3, panels=1)])
def test_the_site_file_makes_the_same_deployment(site, tmp_path):
    made = deployment(split_plan(), site)
    (tmp_path / "hosts.yaml").write_text(deploy_files(made)["hosts.yaml"])
    again = load_site(tmp_path / "hosts.yaml")
    assert again == made.site
    assert deploy_files(deployment(split_plan(), again)) == deploy_files(made)


def test_netplan_gives_addresses_and_only_the_missing_mac(files):
    document = yaml.safe_load(files["hosts/node-1.lab/netplan.yaml"])["network"]
    assert document["version"] == 2
    ports = document["ethernets"]
    assert ports["lo"]["addresses"] == ["10.100.0.2/32"]
    assert "macaddress" not in ports["enp0s0np0"]
    assert ports["enp0s0v0"]["macaddress"] == "02:54:00:01:00:01"
    assert ports["enp0s0np0"]["mtu"] == 9000
    assert "enp3s0np3" not in ports, "the plan leaves this port alone"


def test_ports_keep_their_addresses_while_the_other_end_restarts(files):
    for path, text in files.items():
        if path.endswith("netplan.yaml"):
            ports = yaml.safe_load(text)["network"]["ethernets"]
            assert all(ports[name]["ignore-carrier"] for name in ports if name != "lo")


def test_packets_for_others_go_to_functions_without_rdma(files):
    """Filters are where the twin hears, and all MAC addresses but a last hop's are twins'."""
    lines = [
        line
        for path, text in files.items()
        if path.endswith("rdma.sh")
        for line in text.splitlines()
        if line.startswith("filter add") and "802.1Q" not in line
    ]
    assert lines
    owner = {}
    for host in range(5):
        document = yaml.safe_load(files[f"hosts/node-{host}.lab/netplan.yaml"])
        for name, entry in document["network"]["ethernets"].items():
            for address in entry.get("addresses", []):
                owner[address.split("/")[0]] = host, name
    for line in lines:
        words = line.split()
        assert words[3].endswith("v0")
        host, port = owner[words[words.index("dst_ip") + 1]]
        mac = words[words.index("set") + 1]
        if mac.startswith("b8"):
            assert mac == f"b8:ce:f6:00:{host:02x}:{int(port[3]):02x}"


def test_a_directory_is_written_and_read_back(tmp_path, files):
    target = tmp_path / "deploy"
    write_files(files, target)
    assert read_files(target) == files
    assert names(tmp_path) == ["deploy"]
    script = target / "hosts/node-0.lab/routes.sh"
    assert script.stat().st_mode & stat.S_IXUSR


def test_an_older_deployment_is_replaced_and_nothing_else(tmp_path, files):
    target = tmp_path / "deploy"
    older = {**files, "old": "x"}
    write_files(older | {DEPLOYMENT_FILE: mark_text({}, older, DEPLOYMENT_FILE)}, target)
    write_files(files, target)
    assert read_files(target) == files
    assert names(tmp_path) == ["deploy"]
    other = tmp_path / "photos"
    other.mkdir()
    (other / "cat.txt").write_text("meow")
    with pytest.raises(InputError, match="no deployment"):
        write_files(files, other)
    with pytest.raises(InputError, match="not a directory"):
        write_files(files, other / "cat.txt")
    assert names(other) == ["cat.txt"]


@pytest.mark.parametrize("at", ["a file", "the rename"])
def test_a_failure_leaves_what_was_there(tmp_path, files, monkeypatch, at):
    target = tmp_path / "deploy"
    write_files(files, target)
    if at == "a file":
        broken = {**files, "cables.csv/x": "a name below a file"}
    else:
        broken = {**files, "more": "x"}

        def fail(new, old):
            raise KeyboardInterrupt

        monkeypatch.setattr(directory, "_put", fail)
    with pytest.raises((InputError, KeyboardInterrupt)):
        write_files(broken, target)
    assert read_files(target) == files
    assert names(tmp_path) == ["deploy"]


def test_what_is_no_deployment_is_not_read(tmp_path):
    with pytest.raises(InputError, match="is not a deploy directory"):
        read_files(tmp_path)
    (tmp_path / DEPLOYMENT_FILE).write_bytes(b"\xff\xfe\xff")
    with pytest.raises(InputError, match="cannot be read"):
        read_files(tmp_path)


def test_the_same_plan_and_site_give_the_same_files():
    plan = shared_plan()
    assert deploy_files(deployment(plan)) == deploy_files(deployment(plan))
