"""Committed results of the experiments: what they are, and that their fastest case comes again.

Cases are held against the numbers in results.csv rather than against a hash of the code: an edit
that changes no number need not renew anything.
"""

import csv
import json
import math
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from topoopt.experiment import run_experiment
from topoopt.experiment.run import result_columns
from topoopt.experiment.scripts import find_scripts

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"
RESULTS = sorted(path.parent for path in EXPERIMENTS.glob("results/*/*/manifest.json"))
MOST_SECONDS = 1.0  # of a case that is computed again
AGAIN = 1  # case of each experiment


@pytest.fixture(scope="module")
def scripts():
    return find_scripts(EXPERIMENTS)


def read(path):
    with path.open(newline="") as stream:
        return list(csv.reader(stream))


def name(directory):
    return f"{directory.parent.name}-{directory.name}"


@pytest.mark.parametrize("directory", RESULTS, ids=name)
def test_results_are_whole_and_of_their_script(directory, scripts):
    manifest = json.loads((directory / "manifest.json").read_text())
    experiment = scripts[directory.parent.name].experiment
    assert (manifest["experiment"], manifest["mode"]) == (experiment.name, directory.name)
    assert manifest["state"] == "finished"
    assert manifest["columns"] == list(experiment.columns)
    assert set(manifest["case_counts"]) <= {"ok", "infeasible"}
    assert len(manifest["cases"]) == len(experiment.cases(quick=directory.name == "quick"))
    head, *rows = read(directory / "results.csv")
    inputs = manifest["cases"][0]
    assert head == result_columns(experiment, [{**inputs, **dict.fromkeys(experiment.columns)}])
    assert {tuple(row[: len(inputs)]) for row in rows} == {
        tuple(texts(case)) for case in manifest["cases"]
    }
    for figure in manifest["figures"]:
        assert (directory / figure).is_file()


def texts(inputs):
    """Return the inputs of a case as the CSV file has them."""
    return [
        str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
        for value in inputs.values()
    ]


def alike(mine, theirs):
    """Whether two cells agree, but for what another processor's libraries round otherwise."""
    try:
        return math.isclose(float(mine), float(theirs), rel_tol=1e-9, abs_tol=1e-12)
    except ValueError:
        return mine == theirs


def test_only_rounding_is_alike():
    assert alike("1.1477697344394053", "1.1477697344394056") and alike("-5.69e-12", "-5.71e-12")
    assert alike("ok", "ok") and alike("", "")
    assert not alike("1.1477697", "1.1477698") and not alike("12", "13")
    assert not alike("ok", "infeasible") and not alike("", "0")


@pytest.mark.parametrize(
    "directory",
    [
        pytest.param(found, marks=pytest.mark.slow) if "dedicated-cluster" in name(found) else found
        for found in RESULTS
    ],
    ids=name,
)
def test_the_fastest_cases_come_again(directory, scripts, tmp_path):
    manifest = json.loads((directory / "manifest.json").read_text())
    count = len(manifest["cases"][0])
    head, *timings = read(directory / "timings.csv")
    seconds = {tuple(row[:count]): float(row[head.index("case_s")]) for row in timings}
    quick = [case for case in manifest["cases"] if seconds[tuple(texts(case))] <= MOST_SECONDS]
    chosen = sorted(quick, key=lambda case: seconds[tuple(texts(case))])[:AGAIN]
    committed = read(directory / "results.csv")
    experiment = scripts[directory.parent.name].experiment
    for number, case in enumerate(chosen):
        alone = replace(
            experiment, grid=[case], quick_grid=None, tabulate=None, draw=None
        )  # fmt: skip
        run = run_experiment(alone, tmp_path / str(number))
        again = read(run.output / "results.csv")
        kept = [row for row in committed[1:] if row[:count] == texts(case)]
        assert again[0] == committed[0]
        cells = zip(chain(*again[1:]), chain(*kept), strict=True)
        assert all(alike(*pair) for pair in cells), f"renew {directory}: {case} changed"
