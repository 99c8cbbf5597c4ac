"""The files as they are, applied in network namespaces of this machine."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from sites import full_site, split_plan
from small_plans import shared_bidirectional_layout_plan, shared_plan

from codesign_base import InputError
from topoopt.deploy import namespaces as module
from topoopt.deploy import probes
from topoopt.deploy.deployment import deployment
from topoopt.deploy.files import deploy_files
from topoopt.deploy.namespaces import namespaces, remove_stale, why_not
from topoopt.deploy.pulled_check import repair_of
from topoopt.deploy.trial import try_files

needs_root = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def ours():
    found = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return [line.split()[0] for line in found.stdout.splitlines() if "topoopt-" in line]


@needs_root
@pytest.mark.parametrize("plan", [shared_plan, split_plan, slow(shared_bidirectional_layout_plan)])
def test_every_pair_is_reached_over_the_planned_cables(plan, monkeypatch):
    monkeypatch.setattr(probes, "_SECONDS", 0.5)
    plan = plan()
    made = deployment(plan, full_site(plan.cluster.servers, plan.cluster.degree, panels=1))
    tried = try_files(made, deploy_files(made), repair_of(made))
    assert tried.faults == ()
    assert tried.pairs == plan.cluster.servers * (plan.cluster.servers - 1)
    assert tried.probes >= 2 * tried.pairs
    assert tried.pulled is not None
    assert not [name for name in ours() if f"-{os.getpid()}-" in name]


def changed(files, path, pattern, new):
    text, count = re.subn(pattern, new, files[path], count=1, flags=re.MULTILINE)
    assert count == 1
    return {**files, path: text}


@needs_root
@pytest.mark.parametrize(
    ("path", "pattern", "new", "words"),
    [
        ("hosts/server-0/routes.sh", r"^route replace 10\.100\.0\.2/32.*\n", "", "did not arrive"),
        slow("hosts/server-0/routes.sh", r"lladdr \S+ dev fab0", "lladdr 2:0:0:0:0:1 dev fab0",
             "did not arrive"),
        ("hosts/server-1/netplan.yaml", r"10\.101\.0\.1/31", "10.101.0.9/31", "RDMA from"),
        ("hosts/server-1/netplan.yaml", r"10\.100\.0\.2/32", "10.100.0.9/32", "host itself"),
        slow("hosts/server-1/routes.sh", r"weight 1 onlink$", "weight 200 onlink", "the plan has"),
        slow("hosts/server-2/routes.sh", r"forwarding 1", "forwarding 0", "did not arrive"),
        slow("cables.csv", r"(C1,.*,)fab1(,,,both)", r"\1fab0\2", "has another cable"),
        ("hosts/server-3/routes.sh", r"^  rm .*\n", "  false\n", "fails"),
    ],
)  # fmt: skip
def test_spoilt_files_are_found(path, pattern, new, words, monkeypatch):
    monkeypatch.setattr(probes, "_SECONDS", 0.2)
    made = deployment(shared_plan())
    spoilt = changed(deploy_files(made), path, pattern, new)
    try:
        faults = try_files(made, spoilt, None).faults
    except InputError as error:
        faults = (str(error),)
    assert any(words in fault for fault in faults), faults


def left_of(process):
    """Return what a check of some process still has: namespaces, cables and state."""
    own = f"topoopt-{process}-"
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    cables = [line for line in links.splitlines() if "fab" in line or "f0p" in line]
    folders = [path.name for path in Path(tempfile.gettempdir()).glob(f"{own}*")]
    return [name for name in ours() if name.startswith(own)], cables, folders


@contextmanager
def check_in_namespaces(folder, count):
    """Yield a process of ``topoopt deploy --check`` that stands still amid its namespaces."""
    shared_plan().save(folder / "plan.json")
    child = subprocess.Popen(
        [sys.executable, "-m", "topoopt", "deploy", folder / "plan.json", "--check"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        while len(list(Path("/run/netns").glob(f"topoopt-{child.pid}-*"))) < count:
            assert child.poll() is None, child.communicate()
            time.sleep(0.01)
        child.send_signal(signal.SIGSTOP)
        yield child
    finally:
        child.kill()
        child.communicate()


@needs_root
@pytest.mark.parametrize(("number", "count"), [(signal.SIGINT, 2), slow(signal.SIGTERM, 5)])
def test_a_check_that_is_stopped_leaves_nothing(number, count, tmp_path):
    Path("/run/netns").mkdir(exist_ok=True)
    with check_in_namespaces(tmp_path, count) as child:
        assert left_of(child.pid)[0]
        for each in (number, signal.SIGCONT, number, number):
            child.send_signal(each)
        out, told = child.communicate(timeout=60)
        assert child.returncode == 128 + number
        assert "namespaces: ok" not in out
        assert "Traceback" not in told
        assert left_of(child.pid) == ([], [], [])


@pytest.mark.slow
@needs_root
def test_what_a_killed_check_left_is_removed_by_the_next(tmp_path):
    with check_in_namespaces(tmp_path, 5) as child:
        names, _, folders = left_of(child.pid)
        assert len(names) == 5
        assert len(folders) == 1
        assert not set(remove_stale()) & set(names), "of a run that lives"
        assert left_of(child.pid)[0] == names
        child.kill()
        child.wait()
        assert left_of(child.pid)[0] == names
    made = deployment(shared_plan())
    files = deploy_files(made)
    assert try_files(made, files, None).faults == ()
    assert left_of(child.pid) == ([], [], [])


def test_without_root_one_sentence_says_what_is_needed(monkeypatch):
    monkeypatch.setattr(module.os, "geteuid", lambda: 1000)
    assert why_not() == "namespaces need root and ip (of iproute2) on Linux"


@needs_root
def test_a_port_that_the_plan_does_not_use_is_refused():
    made = deployment(shared_plan())
    files = deploy_files(made)
    spoilt = {**files, "cables.csv": files["cables.csv"].replace("server-3,fab1", "server-3,fab7")}
    with pytest.raises(InputError, match="no port fab7"), namespaces(made, spoilt):
        pass
    assert not [name for name in ours() if f"-{os.getpid()}-" in name]
