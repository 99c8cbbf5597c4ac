"""Compiled Clos kernels give what their plain-Python form gives, to the last spine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from clos_oracle import permutation_traffic, random_instance

from routing.clos.bounds import bound_of_paths
from routing.clos.fabric import Clos
from routing.clos.metric import evaluate
from routing.clos.paths import clos_paths
from routing.clos.routers import route
from routing.clos.spreading import anneal_spines

METHODS = ("ecmp", "greedy", "greedy-sorted", "edge-coloring", "best", "optimum")
TESTS = Path(__file__).resolve().parents[1]


def everything() -> list[list[float]]:
    """What all kernels compute on small instances, as lists of numbers."""
    from routing.clos import best, spreading

    best.FLOOR, spreading.STEPS_PER_FLOW = 3000, 20  # plain Python is a hundred times slower
    found: list[list[float]] = []
    for seed in range(8):
        clos, flows = random_instance(seed, 9)
        for method in METHODS:
            assignment = route(clos, flows, method, seed=seed)
            found.append(assignment.spine.tolist())
            found.append(evaluate(clos, flows, assignment).speed.tolist())
        found.append(bound_of_paths(clos_paths(clos, flows), flows).tolist())
        paths = clos_paths(clos, flows)
        found.append(anneal_spines(clos, flows, paths, seed).tolist())
    clos = Clos.uniform(8, 70).with_failed_spines([3]).with_share(1, 2, 0.0, "up")
    flows = permutation_traffic(8, 70, 300, 3, 1)
    found.append(route(clos, flows, "edge-coloring").spine.tolist())
    return found


def in_plain_python(disable: str) -> list[list[float]]:
    program = "import json, test_clos_kernels as t; print(json.dumps(t.everything()))"
    places = [str(TESTS.parent), str(TESTS / "helpers"), str(TESTS / "routing")]
    environment = {
        **os.environ, "NUMBA_DISABLE_JIT": disable, "PYTHONPATH": os.pathsep.join(places)
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: list[list[float]] = json.loads(done.stdout)
    return result


@pytest.mark.slow
def test_compiled_kernels_equal_plain_python():
    plain, compiled = in_plain_python("1"), in_plain_python("0")
    assert len(plain) == len(compiled) > 100
    for number, (left, right) in enumerate(zip(plain, compiled, strict=True)):
        np.testing.assert_allclose(left, right, rtol=1e-12, err_msg=str(number))
