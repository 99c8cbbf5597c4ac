"""What tests of the command line share."""

import shutil

import pytest
from cli_runs import FAST, SMALL, topoopt


@pytest.fixture(scope="session")
def planned_once(tmp_path_factory):
    """What the command that plans the small model leaves and says."""
    directory = tmp_path_factory.mktemp("planned")
    (directory / "small.yaml").write_text(SMALL)
    done = topoopt("plan", "small.yaml", *FAST, "-o", "plan.json", "--save-traffic", "traffic.npz",
                   "--save-network", "network.json", directory=directory)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return directory, done


@pytest.fixture(scope="module")
def workplace(planned_once, tmp_path_factory):
    """A directory with the small model, and its plan, traffic and network."""
    source, done = planned_once
    directory = tmp_path_factory.mktemp("cli")
    shutil.copytree(source, directory, dirs_exist_ok=True)
    return directory, done
