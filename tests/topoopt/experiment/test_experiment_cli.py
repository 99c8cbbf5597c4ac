"""`topoopt experiment`, and what scripts share."""

import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from codesign_base import InputError
from topoopt.cli.app import app, main
from topoopt.experiment.published import sixteen_servers_s
from topoopt.experiment.quantiles import weighted_quantiles
from topoopt.experiment.scripts import find_scripts

SCRIPT = """
from topoopt.experiment import Experiment

def case(a: int):
    return {{"value": a * a}}

EXPERIMENT = Experiment(
    name="{name}", description="Squares.", source="nowhere", grid={{"a": [1, 2, 3]}},
    quick_grid={{"a": [1, 2]}}, columns=("value",), case=case,
)
"""


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    (tmp_path / "experiments").mkdir()
    for name in ("one", "two"):
        (tmp_path / "experiments" / f"{name}.py").write_text(SCRIPT.format(name=name))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "experiments"


def command(*words):
    return CliRunner().invoke(app, ["experiment", *words])


@pytest.mark.slow
def test_list_and_run_all_in_worker_processes(scripts):
    listed = command("list", "--json")
    assert [(e["name"], e["quick_cases"], e["full_cases"]) for e in json.loads(listed.stdout)] == [
        ("one", 2, 3),
        ("two", 2, 3),
    ]
    assert command("run", "all", "--quick", "--workers", "2").exit_code == 0
    for name in ("one", "two"):
        text = (scripts / "results" / name / "quick" / "results.csv").read_text()
        assert text == "a,status,value,message\n1,ok,1,\n2,ok,4,\n"
    again = command("run", "one", "--resume", "--workers", "1", "--from", str(scripts))
    assert (again.exit_code, "1 case computed, 2 reused" in again.stderr) == (0, True)


def test_an_interrupted_run_says_only_that_cases_are_kept(scripts, monkeypatch, capsys):
    def stop(*arguments, **options):
        print("interrupted; finished cases are kept", file=sys.stderr)
        return 130

    monkeypatch.setattr("topoopt.experiment.command.run_and_tell", stop)
    monkeypatch.setattr("sys.argv", ["topoopt", "experiment", "run", "all"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 130
    assert capsys.readouterr().err.splitlines()[-1] == "interrupted; finished cases are kept"


def test_what_is_not_there_is_told_in_one_sentence(scripts, tmp_path):
    unknown = command("run", "three").exception
    assert isinstance(unknown, InputError)
    assert "choose all, one, two" in str(unknown)
    for words, reason in ((("--from", "nowhere"), "no directory"), (("--from", "."), "no exp")):
        found = command("list", *words).exception
        assert isinstance(found, InputError)
        assert reason in str(found)
    (scripts / "three.py").write_text(SCRIPT.format(name="one"))
    with pytest.raises(InputError, match="both declare the experiment 'one'"):
        find_scripts(scripts)
    (scripts / "three.py").write_text("EXPERIMENT = 1 / 0")
    with pytest.raises(InputError, match="ZeroDivisionError"):
        find_scripts(scripts)
    (scripts / "three.py").write_text("EXPERIMENT = None")
    with pytest.raises(InputError, match="declares no experiment"):
        find_scripts(scripts)


def test_a_program_that_is_no_experiment_is_not_run(scripts, tmp_path):
    mark = tmp_path / "ran"
    (scripts / "three.py").write_text(f"open({str(mark)!r}, 'w').close()\nEXPERIMENTS = 3")
    with pytest.raises(InputError, match="declares no experiment"):
        find_scripts(scripts)
    assert not mark.exists()


def test_a_script_that_runs_as_it_is_loaded_is_refused(scripts):
    text = SCRIPT.format(name="three")
    (scripts / "three.py").write_text(f"{text}\nrun_from_command_line(EXPERIMENT)\n")
    with pytest.raises(InputError, match="runs its experiment as it is loaded; call"):
        find_scripts(scripts)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), min_size=1, max_size=12))
def test_weighted_quantiles_are_those_of_repeated_values(pairs):
    values, weights = (np.array(part, dtype=float) for part in zip(*pairs, strict=True))
    repeated = np.repeat(values, weights.astype(int))
    shares = [0.1, 0.5, 0.9, 1.0]
    found = weighted_quantiles(values, weights, shares)
    if not repeated.size:
        assert found == [None] * 4
    else:
        assert found == np.quantile(repeated, shares, method="inverted_cdf").tolist()


def test_published_times_are_those_of_the_searches():
    assert sixteen_servers_s("dlrm-16", 8) == pytest.approx((0.01519, 0.02092))
    with pytest.raises(InputError, match="choose bert-16"):
        sixteen_servers_s("ncf", 4)
