"""Memory that is given back is gone from the process, and what is in use stays."""

import sys
from pathlib import Path

import numpy as np
import pytest

from topoopt.base import freed


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or freed._trim() is None, reason="glibc only"
)
def test_free_pages_between_arrays_in_use_go_back():
    arrays = [np.full(2_000, number, dtype=np.float64) for number in range(8_000)]
    kept = arrays[::100]
    del arrays
    before = _resident()
    freed.give_back()
    assert before - _resident() > 50e6
    assert [float(array.sum()) for array in kept] == [2_000.0 * 100 * n for n in range(len(kept))]
