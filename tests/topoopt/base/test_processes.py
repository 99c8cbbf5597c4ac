"""How many cores a search may keep busy."""

import pytest

from topoopt.base import processes
from topoopt.base.processes import THREAD_VARIABLES, granted_cores


@pytest.mark.parametrize(
    ("given", "granted"),
    [
        ({}, 4),
        ({"OMP_NUM_THREADS": "1"}, 1),
        ({"OMP_NUM_THREADS": "9"}, 4),
        ({"NUMBA_NUM_THREADS": "2", "OMP_NUM_THREADS": "3"}, 2),
        ({"OMP_NUM_THREADS": "4,2"}, 4),
        ({"OPENBLAS_NUM_THREADS": "1"}, 4),
    ],
)
def test_a_search_takes_the_cores_that_its_environment_grants(monkeypatch, given, granted):
    monkeypatch.setattr(processes, "usable_cores", lambda: 4)
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert granted_cores() == granted
