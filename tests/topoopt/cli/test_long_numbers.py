"""Whole numbers of more digits than Python reads are refused in a sentence, wherever they are."""

import pytest
from cli_runs import inside

from codesign_base import InputError
from parallelism.operator_text import operator_names
from parallelism.reading import parse_json, parse_yaml
from topoopt.report.layers import layer_names

LONG = "9" * 5000
PLAN = ("dlrm-16", "--servers", "4", "--degree", "2", "--bandwidth", "10Gbps")
CLOS = ("--tors", "64", "--spines", "32", "--random", "1")


def refusal(*arguments):
    """Return the sentence of a refusal, however long its value is."""
    result = inside(*arguments)
    assert isinstance(result.exception, InputError), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("topology", "torus", "--dims", f"4x{LONG}"), "dims is '4x99"),
        (("clos", "route", *CLOS, "--fail-link", f"{LONG}:0"), "fail-link '99"),
        (("clos", "route", *CLOS, "--degrade", f"0:{LONG}:0.5"), "degrade '0:99"),
        (("clos", "run", *CLOS, "--fail-spine-at", f"1s:{LONG}"), "fail-spine-at '1s:99"),
        (("pareto", *PLAN, "--servers", f"4..{LONG}"), "servers"),
        (("compare", *PLAN, "--fabrics", f"rail-only:group={LONG}"), "group is '99"),
    ],
)
def test_options(arguments, message):
    assert message in refusal(*arguments)


def test_jobs_of_clos(tmp_path):
    path = tmp_path / "jobs.yaml"
    path.write_text(
        "jobs: [{parameters: 4, replicas: 2, compute_time: 1s, "
        f"placement: [['0:{LONG}'], ['1:0']]}}]"
    )
    options = ("--tors", "4", "--spines", "2", "--jobs", str(path))
    assert "placement '0:99" in refusal("clos", "route", *options)


def test_files():
    with pytest.raises(InputError, match="a file: a whole number is too long to be read"):
        parse_json(f'{{"a": {LONG}}}', "a file")
    for written in (LONG, "0x" + "f" * 5000, "0b" + "1" * 20000, "1" + ":59" * 3000):
        with pytest.raises(InputError, match=r"a file, line 2: a whole number is too long"):
            parse_yaml(f"b: 1\na: {written}", "a file")
    assert parse_yaml("a: 0x1f\nb: 1:30\nc: -12", "a file") == {"a": 31, "b": 90, "c": -12}


def test_names_of_operators_may_end_in_any_number():
    names = [f"d{LONG}", f"d{LONG[:-1]}8", "e1", "e2", "e3", "4"]
    assert operator_names(names).endswith("e1..3, 4")
    assert layer_names([*names[:2], f"d{LONG[:-1]}7"]).startswith("d{99")
    assert layer_names(names[2:5]) == "e1..3"
