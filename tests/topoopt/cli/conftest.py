"""What tests of the command line share."""

import pytest
from cli_runs import FAST, SMALL, topoopt


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A directory with the small model, and its plan, traffic and network."""
    directory = tmp_path_factory.mktemp("cli")
    (directory / "small.yaml").write_text(SMALL)
    done = topoopt("plan", "small.yaml", *FAST, "-o", "plan.json", "--save-traffic", "traffic.npz",
                   "--save-network", "network.json", directory=directory)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return directory, done
