"""What an experiment may declare and return, and the tables made of it."""

import csv
import json
import sqlite3

import numpy as np
import pytest

from codesign_base import InfeasibleError, InputError
from topoopt.experiment import Experiment, Table, pivot, run_experiment, run_from_command_line
from topoopt.experiment.declaration import expand_grid


def simple(**changes):
    settings = {
        "name": "plain",
        "description": "Plain.",
        "source": "",
        "grid": {"a": [1, 2]},
        "case": lambda a: {"value": a},
        "columns": ("value",),
    }
    return Experiment(**{**settings, **changes})


def test_grid_order():
    assert expand_grid({"b": [2, 1], "a": ["x", "y"]}) == [
        {"b": 2, "a": "x"}, {"b": 2, "a": "y"}, {"b": 1, "a": "x"}, {"b": 1, "a": "y"},
    ]  # fmt: skip
    listed = expand_grid([{"a": 1, "b": None}, {"b": True, "a": 1.5}])
    assert [list(case.items()) for case in listed] == [
        [("a", 1), ("b", None)],
        [("a", 1.5), ("b", True)],
    ]
    assert len(expand_grid({"a": [1, 1.0, True, "1"]})) == 4


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": "No Good"}, "lower-case"),
        ({"columns": ()}, "at least one"),
        ({"columns": "value"}, "at least one"),
        ({"columns": ("a",)}, "'a' is used twice"),
        ({"columns": ("status",)}, "'status' is used twice"),
        ({"columns": ("v", "v")}, "'v' is used twice"),
        ({"grid": {"b": [1]}}, "does not take the inputs"),
        ({"grid": {"a": []}}, "empty grid"),
        ({"grid": {}}, "empty grid"),
        ({"grid": []}, "empty grid"),
        ({"grid": {"a": "xy"}}, "give a list"),
        ({"grid": {"a": [1, 1]}}, "twice"),
        ({"grid": {"a": [float("nan")]}}, "finite"),
        ({"grid": {"a": [[1]]}}, "give text"),
        ({"grid": [{"a": 1}, {"b": 1}]}, "every case the same"),
        ({"quick_grid": {"a": []}}, "empty grid"),
        ({"timings": ("spent_s",)}, "no column"),
    ],
)
def test_bad_declarations(changes, reason):
    with pytest.raises(InputError, match=reason):
        simple(**changes)


def test_quick_needs_a_quick_grid(tmp_path):
    with pytest.raises(InputError, match="no quick grid"):
        run_experiment(simple(), tmp_path, quick=True)
    with pytest.raises(InputError, match="workers is 0"):
        run_experiment(simple(), tmp_path, workers=0)


def test_local_case_cannot_run_in_workers(tmp_path):
    with pytest.raises(InputError, match="top level of a module"):
        run_experiment(simple(), tmp_path, workers=2)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"value": float("inf")}, "column 'value' is inf"),
        ({"value": [1]}, "return text"),
        ({}, "exactly the columns"),
        ({"value": 1, "more": 2}, "exactly the columns"),
        ([], "return a mapping"),
        (None, "return a mapping"),
        ([3], "exactly the columns"),
    ],
)
def test_bad_results_fail_the_case(tmp_path, result, reason):
    run = run_experiment(simple(case=lambda a: result), tmp_path)
    assert run.failed == 2
    assert reason in run.rows[0]["message"]


def test_values_come_back_as_they_went(tmp_path):
    values = {1: np.float64(0.1), 2: np.int64(3), 3: None, 4: True, 5: "a,\n|b", 6: np.bool_(False)}
    experiment = simple(grid={"a": list(values)}, case=lambda a: {"value": values[a]})
    first = run_experiment(experiment, tmp_path)
    again = run_experiment(experiment, tmp_path, resume=True)
    assert first.rows == again.rows
    assert (again.computed, again.reused) == (0, 6)
    plain = [row["value"] for row in again.rows]
    assert plain == [0.1, 3, None, True, "a,\n|b", False]
    assert [type(v) for v in plain] == [float, int, type(None), bool, str, bool]
    with (again.output / "results.csv").open(newline="") as stream:
        cells = [row["value"] for row in csv.DictReader(stream)]
    assert cells == ["0.1", "3", "", "true", "a,\n|b", "false"]


def test_several_rows_a_case(tmp_path):
    experiment = simple(case=lambda a: [{"value": a}, {"value": 10 * a}])
    run = run_experiment(experiment, tmp_path)
    assert [(row["a"], row["value"]) for row in run.rows] == [(1, 1), (1, 10), (2, 2), (2, 20)]


def test_changed_columns_are_computed_again(tmp_path):
    run_experiment(simple(), tmp_path)
    other = simple(case=lambda a: {"other": a}, columns=("other",))
    run = run_experiment(other, tmp_path, resume=True)
    assert run.computed == 2


def test_cases_of_other_software_are_taken_only_if_asked(tmp_path, monkeypatch, capsys):
    run_experiment(simple(), tmp_path)
    monkeypatch.setattr("topoopt.experiment.run.software_hash", lambda *given: "other")
    run = run_experiment(simple(), tmp_path, stale=True, show_progress=True)
    assert (run.computed, run.reused) == (0, 2)
    assert "2 of them were computed by other software" in capsys.readouterr().err
    (code,) = json.loads((run.output / "manifest.json").read_text())["code_of_cases"]
    assert code != "other"
    run = run_experiment(simple(), tmp_path, resume=True)
    assert (run.computed, run.reused) == (2, 0)
    # What this software computed comes first; the other's is still there.
    run = run_experiment(simple(), tmp_path, stale=True)
    (code,) = json.loads((run.output / "manifest.json").read_text())["code_of_cases"]
    assert code == "other"


def test_without_resume_all_is_computed_again_and_nothing_is_lost(tmp_path, capsys):
    run_experiment(simple(), tmp_path)
    failing = simple(case=lambda a: 1 / 0)
    run = run_experiment(failing, tmp_path, show_progress=True)
    assert (run.computed, run.failed) == (2, 2)
    assert "--resume would skip them" in capsys.readouterr().err
    assert run_experiment(simple(), tmp_path, resume=True).reused == 2


def test_what_a_clock_measured_stands_in_a_file_of_its_own(tmp_path):
    experiment = simple(
        case=lambda a: {"value": a, "spent_s": 0.25}, columns=("value", "spent_s"),
        timings=("spent_s",),
    )  # fmt: skip
    run = run_experiment(experiment, tmp_path)
    assert (run.output / "results.csv").read_text() == "a,status,value,message\n1,ok,1,\n2,ok,2,\n"
    assert "spent_s" not in run.table
    measured = list(csv.DictReader((run.output / "timings.csv").read_text().splitlines()))
    assert [row["spent_s"] for row in measured] == ["0.25", "0.25"]
    assert all(float(row["case_s"]) >= 0 for row in measured)


def test_a_store_that_is_none_is_refused(tmp_path):
    (tmp_path / "store.sqlite").write_text("no database, but long enough to look like one" * 40)
    with pytest.raises(InputError, match="cannot be used"):
        run_experiment(simple(), tmp_path)
    (tmp_path / "store.sqlite").unlink()
    run_experiment(simple(), tmp_path)
    connection = sqlite3.connect(tmp_path / "store.sqlite")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(InputError, match="has version 99"):
        run_experiment(simple(), tmp_path)


def test_a_damaged_case_is_computed_again(tmp_path):
    first = run_experiment(simple(), tmp_path)
    connection = sqlite3.connect(tmp_path / "store.sqlite")
    with connection:
        connection.execute("UPDATE cases SET rows = '[{\"value\": 9}]' WHERE inputs LIKE '%2%'")
    connection.close()
    again = run_experiment(simple(), tmp_path, resume=True)
    assert (again.computed, again.reused) == (1, 1)
    assert again.rows == first.rows


def fabric_case(model, fabric):
    if (model, fabric) == ("bert", "ring"):
        raise InfeasibleError("no")
    return {"time_s": len(model) / len(fabric)}


def test_own_tables(tmp_path):
    experiment = simple(
        grid={"model": ["dlrm", "bert"], "fabric": ["switch", "ring"]},
        case=fabric_case,
        columns=("time_s",),
        tabulate=lambda rows: pivot(
            rows, index="model", columns="fabric", value="time_s", title="Times [s]"
        ),
    )
    assert run_experiment(experiment, tmp_path).table.splitlines()[4:] == [
        "## Times [s]",
        "",
        "| model | switch | ring       |",
        "| ----- | -----: | ---------- |",
        "| dlrm  | 0.6667 | 1          |",
        "| bert  | 0.6667 | infeasible |",
    ]


def test_pivot_refuses_two_rows_in_a_cell():
    rows = [{"a": 1, "b": 1, "c": c, "status": "ok"} for c in (1, 2)]
    with pytest.raises(InputError, match="filter the rows"):
        pivot(rows, index="a", columns="b", value="c")
    with pytest.raises(InputError, match="2 values for 1 column;"):
        Table(("a",), ((1, 2),))


def test_live_progress_on_a_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    run_experiment(simple(), tmp_path, show_progress=True)
    assert "[2/2] ok          a=2" in capsys.readouterr().err


def test_from_the_command_line(tmp_path, capsys, monkeypatch):
    words = ["script.py", "--output", str(tmp_path / "out"), "--workers", "1"]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as end:
        run_from_command_line(simple())
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("# plain (full)")
