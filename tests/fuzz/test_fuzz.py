"""Ten thousand mutated inputs of each kind: every one succeeds or is refused in a sentence."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fuzzing import KINDS

import topoopt

CASES = 10_000
HELPERS = Path(__file__).parents[1] / "helpers"
SOURCES = Path(topoopt.__file__).parents[1]


def worked(kinds, first, end, folder):
    """Run cases in a process of their own, which shares the compiled kernels of the others."""
    kernels = {k: os.environ[k] for k in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME") if k in os.environ}
    return subprocess.run(
        [sys.executable, HELPERS / "fuzz_worker.py", kinds, str(first), str(end), folder],
        env={"PYTHONPATH": f"{SOURCES}:{HELPERS}", "PATH": "/usr/bin:/bin", **kernels},
        capture_output=True,
        text=True,
    )


def run(kind, first, end, folder):
    """Return the sentences of failing cases; one that never ends is a failing case."""
    found = []
    while first < end:
        done = worked(kind, first, end, folder)
        lines = done.stdout.splitlines()
        found += [line for line in lines if line.startswith("failed")]
        last = max([int(line.split()[1]) for line in lines if line.startswith("case")], default=-1)
        if done.returncode == 0:
            break
        assert last >= 0, done.stderr[-2000:]
        found.append(f"failed {kind} {last}: ended the process ({done.returncode})")
        first = last + 1
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_mutated_inputs_succeed_or_are_refused_in_a_sentence(kind, tmp_path):
    assert run(kind, 0, CASES, tmp_path) == []


def test_some_of_each_kind(tmp_path):
    done = worked(",".join(KINDS), 0, 2, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "failed" not in done.stdout, done.stdout
    assert done.stdout.count("case") == 2 * len(KINDS)
