"""The files as they are, applied in network namespaces of this machine."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
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
    tried = try_files(made, deploy_files(made))
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
        ("hosts/server-0/routes.sh", r"^route replace 10\.100\.0\.2/32.*\n", "", "do not arrive"),
        slow("hosts/server-0/routes.sh", r"lladdr \S+ dev fab0", "lladdr 2:0:0:0:0:1 dev fab0",
             "do not arrive"),
        ("hosts/server-1/netplan.yaml", r"10\.101\.0\.1/31", "10.101.0.9/31", "RDMA from"),
        ("hosts/server-1/netplan.yaml", r"10\.100\.0\.2/32", "10.100.0.9/32", "host itself"),
        slow("hosts/server-1/routes.sh", r"weight 1 onlink$", "weight 200 onlink", "the plan has"),
        slow("hosts/server-2/routes.sh", r"forwarding 1", "forwarding 0", "do not arrive"),
        slow("cables.csv", r"(C1,.*,)fab1(,,,both)", r"\1fab0\2", "has another cable"),
        ("hosts/server-3/routes.sh", r"^  rm .*\n", "  false\n", "fails"),
    ],
)  # fmt: skip
def test_spoilt_files_are_found(path, pattern, new, words, monkeypatch):
    monkeypatch.setattr(probes, "_SECONDS", 0.2)
    made = deployment(shared_plan())
    spoilt = changed(deploy_files(made), path, pattern, new)
    try:
        faults = try_files(made, spoilt).faults
    except InputError as error:
        faults = (str(error),)
    assert any(words in fault for fault in faults), faults


@needs_root
def test_what_a_killed_run_left_is_removed_by_the_next():
    script = (
        "import time\n"
        "from topoopt.deploy import namespaces as m\n"
        "names = m._names(['a', 'b'])\n"
        "m._batch('ip', [f'netns add {n}' for n in names.values()])\n"
        "kept = m.state_folder()\n"
        "kept.__enter__()\n"
        "print(*names.values(), flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            names = child.stdout.readline().split()
            assert len(names) == 2
            assert set(names) <= set(ours())
            folder = Path(tempfile.gettempdir()) / names[0].replace("-a", "-state")
            assert folder.is_dir()
            assert not set(remove_stale()) & set(names), "of a run that lives"
        finally:
            child.kill()
    assert set(names) <= set(remove_stale())
    assert not folder.exists()
    assert not set(names) & set(ours())


@needs_root
def test_an_interrupt_leaves_nothing(tmp_path):
    shared_plan().save(tmp_path / "plan.json")
    script = (
        "import sys, time\n"
        "from topoopt.deploy.deployment import deployment\n"
        "from topoopt.deploy.files import deploy_files\n"
        "from topoopt.deploy.namespaces import namespaces\n"
        "from topoopt.plan.plan import load_plan\n"
        "made = deployment(load_plan(sys.argv[1]))\n"
        "with namespaces(made, deploy_files(made)):\n"
        "    print('made', flush=True)\n"
        "    time.sleep(60)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path / "plan.json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout.readline() == "made\n"
    mine = [name for name in ours() if f"topoopt-{child.pid}-" in name]
    assert len(mine) == 5
    child.send_signal(signal.SIGINT)
    time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    _, told = child.communicate(timeout=60)
    assert "KeyboardInterrupt" in told
    assert not [name for name in ours() if name in mine]


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
