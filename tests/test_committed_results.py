"""Committed results of the experiments: what they are, and that their fastest case comes again.

They also stand in for those of full grids, whose tables and figures must be made all the same.

Cases are held against the numbers in results.csv rather than against a hash of the code: an edit
that changes no number need not renew anything.
"""

import csv
import json
import math
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from topoopt.experiment import Table, run_experiment
from topoopt.experiment.declaration import RESERVED_COLUMNS
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


def value(text):
    """Return the value of a cell of a CSV file."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return {"": None, "true": True, "false": False}.get(text, text)


def stand_ins(directory, experiment):
    """Return rows of the full grid, each case with the results of a committed one."""
    head, *rows = read(directory / "results.csv")
    named = [dict(zip(head, map(value, row), strict=True)) for row in rows]
    inputs = [name for name in head if name not in (*experiment.columns, *RESERVED_COLUMNS)]
    done = [row for row in named if row["status"] == "ok"]
    one = [row for row in done if all(row[name] == done[0][name] for name in inputs)]
    measured = dict.fromkeys(experiment.timings, 1.0)
    return [
        {**row, **measured, **case, "message": ""} for case in experiment.cases() for row in one
    ]


def without_first(experiment, rows):
    """Return the rows but those of the first case, with whatever seed."""
    first = [pair for pair in experiment.cases()[0].items() if pair[0] != "seed"]
    return [row for row in rows if any(row[name] != entry for name, entry in first)]


QUICK = [found for found in RESULTS if found.name == "quick"]


@pytest.mark.parametrize("directory", QUICK, ids=name)
def test_tables_of_full_grids_are_made_whatever_came_of_the_cases(directory, scripts):
    experiment = scripts[directory.parent.name].experiment
    if experiment.tabulate is None:
        return
    rows = stand_ins(directory, experiment)
    empty = {**dict.fromkeys(experiment.columns), "status": "failed", "message": "why"}
    failed = [{**case, **empty} for case in experiment.cases()]
    others = without_first(experiment, rows)
    for some in (rows, failed, [failed[0], *others]):
        made = experiment.tabulate(some)
        assert [made] if isinstance(made, Table) else made


@pytest.mark.slow
@pytest.mark.parametrize("directory", QUICK, ids=name)
def test_figures_of_full_grids_are_drawn_whatever_case_is_missing(directory, scripts):
    pytest.importorskip("matplotlib")
    experiment = scripts[directory.parent.name].experiment
    rows = stand_ins(directory, experiment)
    others = without_first(experiment, rows)
    for some in (rows, others) if experiment.draw else ():
        assert experiment.draw(some)
