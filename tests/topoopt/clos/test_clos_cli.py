"""`topoopt clos`: answers, JSON, tables, and one sentence for wrong options."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from codesign_base import InputError
from routing.clos.fabric import Clos
from topoopt.cli.app import app
from topoopt.clos.fabric_options import failures_at, make_fabric

JOBS = """
jobs:
  - {name: first, parameters: 8_000_000_000, tensor: 2, pipeline: 2, replicas: 2,
     compute_time: 500ms, placement: [["0:0-3"], ["1:0-3"]]}
  - {name: second, parameters: 4_000_000_000, tensor: 2, replicas: 3,
     compute_time: 200ms, start_time: 100ms, placement: [["2:0-1"], ["1:4-5"], ["3:0-1"]]}
"""
FABRIC = ("--tors", "4", "--spines", "6")


@pytest.fixture
def jobs(tmp_path):
    path = tmp_path / "jobs.yaml"
    path.write_text(JOBS)
    return str(path)


def clos(*arguments):
    result = CliRunner().invoke(app, ["clos", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def answer(*arguments):
    result = clos(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_route_states_speeds_and_the_bound(jobs):
    found = answer("route", *FABRIC, "--jobs", jobs)
    assert found["method"] == "best"
    assert found["efficiency"] == [1.0, 1.0]
    assert found["max_load"] == 1.0
    assert found["optimal"] is True
    assert found["leading_gap"] == 0.0
    assert found["flows"] == len(found["spine"]) == 14
    assert [job["name"] for job in found["jobs"]] == ["first", "second"]
    failed = answer("route", *FABRIC, "--jobs", jobs, "--fail-spines", "3")
    assert failed["live_spines"] == 3
    assert min(failed["efficiency"]) == 0.5
    assert failed["slowest_job"] in ("first", "second")
    assert not {0, 1, 2} & set(failed["spine"])
    text = clos("route", *FABRIC, "--jobs", jobs, "--fail-spines", "3").stdout
    for part in ("efficiency vector", "max load 2.000", "slowest job", "proven"):
        assert part in text


@pytest.mark.parametrize("method", ["ecmp", "greedy", "edge-coloring", "annealing", "optimum"])
def test_all_methods_route(jobs, method):
    found = answer("route", *FABRIC, "--jobs", jobs, "--method", method, "--fail-spines", "1")
    assert found["method"] == method
    assert found["efficiency"][0] <= found["bound"][0] + 1e-9


def test_run_compares_methods(jobs):
    methods = "ecmp,greedy,edge-coloring,annealing,optimum,best"
    found = answer("run", *FABRIC, "--jobs", jobs, "--epochs", "3", "--methods", methods)
    assert list(found["methods"]) == methods.split(",")
    for result in found["methods"].values():
        assert {"mean_slowdown", "worst_slowdown", "jobs", "controller_time_s"} <= set(result)
        assert result["worst_slowdown"] >= result["mean_slowdown"] >= 1 - 1e-9
        assert result["controller_time_s"] > 0
        assert [len(job["allreduce_s"]) for job in result["jobs"]] == [3, 3]
    for name in ("edge-coloring", "best"):
        assert found["methods"][name]["worst_slowdown"] == pytest.approx(1.0)
    text = clos("run", *FABRIC, "--jobs", jobs, "--epochs", "3", "--methods", methods).stdout
    for part in ("slowdown over the uncongested floor", "controller", "best", "first", "second"):
        assert part in text


def test_the_same_seed_gives_the_same_run(jobs):
    def run():
        found = answer("run", *FABRIC, "--random", "2", "--replicas", "2", "--seed", "3",
                       "--nics-per-tor", "200", "--fail-spines", "2", "--epochs", "2",
                       "--methods", "greedy,best")  # fmt: skip
        for result in found["methods"].values():
            result.pop("controller_time_s")
            result.pop("slowest_decision_s")
        return found

    assert run() == run()


def test_failures_on_the_way(jobs):
    base = ("run", *FABRIC, "--jobs", jobs, "--epochs", "3", "--methods", "best")
    calm = answer(*base)["methods"]["best"]
    hit = answer(*base, "--fail-spine-at", "1s:0", "--fail-spine-at", "1s:1",
                 "--fail-spine-at", "2s:2")["methods"]["best"]  # fmt: skip
    assert calm["mean_slowdown"] == pytest.approx(1.0)
    assert 1 < hit["mean_slowdown"] <= 2
    assert hit["decisions"] > calm["decisions"]
    forgetful = answer(*base, "--no-prediction", "--move-cost", "1ms")["methods"]["best"]
    assert forgetful["worst_slowdown"] >= 1 - 1e-9


def test_tables_are_written(jobs, tmp_path):
    target = tmp_path / "routes.csv"
    found = answer("route", *FABRIC, "--jobs", jobs, "--tables", str(target), "--udp-ports")
    rows = list(csv.DictReader(target.read_text().splitlines()))
    assert len(rows) == 14
    assert {int(row["flow"]): int(row["spine"]) for row in rows} == dict(enumerate(found["spine"]))
    assert all(49152 <= int(row["udp_source_port"]) < 65536 for row in rows)
    target = tmp_path / "routes.json"
    answer("route", *FABRIC, "--jobs", jobs, "--tables", str(target))
    assert len(json.loads(target.read_text())) == 14


def test_traffic_folders_load(tmp_path):
    head = "#src dst src_tor dst_tor start_time flow_size compute_time stage_index\n"
    (tmp_path / "job_0.txt").write_text(
        head + "4 6 0 1 0 1000000000 1000000 0\n6 4 1 0 0 1000000000 1000000 0\n"
    )
    found = answer("run", "--tors", "2", "--spines", "2", "--traffic", str(tmp_path),
                   "--methods", "best")  # fmt: skip
    (job,) = found["methods"]["best"]["jobs"]
    assert job["name"] == "job_0"
    assert job["floor_s"] == pytest.approx(2 * 8 / 100)
    assert job["allreduce_s"] == pytest.approx([0.16] * 10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run",), "exactly one of --jobs, --traffic and --random"),
        (("route", "--jobs", "JOBS", "--random", "2"), "exactly one of"),
        (("route", "--jobs", "absent.yaml"), "does not exist"),
        (("route", "--jobs", "JOBS", "--method", "fastest"), "'fastest' is unknown; choose one"),
        (("run", "--jobs", "JOBS", "--methods", "best,fastest"), "'fastest' is unknown"),
        (("run", "--jobs", "JOBS", "--methods", "best,best"), "each once"),
        (("run", "--jobs", "JOBS", "--epochs", "0"), "epochs is 0"),
        (("run", "--jobs", "JOBS", "--bandwidth", "100"), "names no unit"),
        (("run", "--jobs", "JOBS", "--move-cost", "1 day"), "unknown unit"),
        (("run", "--jobs", "JOBS", "--fail-spine-at", "5s"), "is not time:spine"),
        (("run", "--jobs", "JOBS", "--fail-spine-at", "5s:²"), "is not time:spine"),
        (("run", "--jobs", "JOBS", "--fail-spine-at", "5s:9"), "spine 9 does not exist"),
        (
            ("run", "--jobs", "JOBS", "--fail-spines", "2", "--fail-spine-at", "1s:1"),
            "is down before",
        ),
        (("run", "--jobs", "JOBS", "--fail-spines", "6"), "give 0..5"),
        (("route", "--jobs", "JOBS", "--fail-spines", "-1"), "give 0..5"),
        (("route", "--jobs", "JOBS", "--fail-link", "1-2"), "is not tor:spine"),
        (("route", "--jobs", "JOBS", "--fail-link", "9:0"), "tor 9 does not exist"),
        (("route", "--jobs", "JOBS", "--degrade", "1:2"), "is not tor:spine:share"),
        (("route", "--jobs", "JOBS", "--degrade", "1:2:1.5"), "between 0 and 1"),
        (
            ("route", "--jobs", "JOBS", "--degrade", "1:7:0.5"),
            "spine 7 does not exist; choose one of 0..5",
        ),
        (("route", "--jobs", "JOBS", "--tables", "routes.txt"), "neither .json nor .csv"),
        (("route", "--jobs", "JOBS", "--udp-ports"), "name their file with --tables"),
        (("route", "--random", "5", "--replicas", "8"), "fill at least 1920 NICs"),
        (("route", "--jobs", "JOBS", "--nics-per-tor", "0"), "nics-per-tor is 0"),
        (("route", "--jobs", "JOBS", "--nics-per-tor", "9" * 12), "too many NICs"),
        (("route", "--jobs", "JOBS", "--tors", "9" * 12, "--spines", "6"), "too many links"),
        (("route", "--random", "1", "--cables", "9" * 12), "too many NICs"),
        (("route", "--jobs", "JOBS", "--seed", "-1"), "seed is -1"),
        (("run", "--jobs", "JOBS", "--seed", "-1"), "seed is -1"),
        (("route", "--jobs", "JOBS", "--time-limit", "nan"), "time-limit is nan"),
        (("run", "--jobs", "JOBS", "--time-limit", "-1"), "time-limit is -1.0"),
        (("run", "--jobs", "JOBS", "--epochs", "9" * 12), "give fewer epochs"),
        (("run", "--jobs", "JOBS", "--bandwidth", "1e280Gbps"), "'1e280Gbps' is out of range"),
        (("route", "--jobs", "JOBS", "--method", "bset"), "method 'bset' is unknown"),
        (("route", "--jobs", "JOBS", "--time-limit", "3"), "only the method optimum takes one"),
        (("run", "--jobs", "JOBS", "--time-limit", "3"), "only the method optimum takes one"),
        (("route", "--jobs", "JOBS", "--replicas", "2"), "give it with --random"),
    ],
)
def test_wrong_options_are_one_clear_sentence(jobs, arguments, message):
    command, *rest = [jobs if word == "JOBS" else word for word in arguments]
    fabric = () if "--tors" in rest else FABRIC
    with pytest.raises(InputError, match=message) as error:
        clos(command, *fabric, *rest)
    assert "\n" not in str(error.value)


def test_tables_do_not_overwrite_the_jobs(tmp_path):
    path = tmp_path / "jobs.json"
    text = json.dumps({"jobs": [{"parameters": 8, "compute_time": "1s", "replicas": 2}]})
    path.write_text(text)
    with pytest.raises(InputError, match="is also read"):
        clos("route", *FABRIC, "--jobs", str(path), "--tables", str(path))
    assert path.read_text() == text


def test_the_console_script_exits_with_2(jobs):
    script = "import sys; from topoopt.cli import main; sys.argv[0] = 'topoopt'; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "clos", "route", *FABRIC, "--jobs", "absent.yaml"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: jobs file 'absent.yaml'")
    light = (
        "import sys, topoopt.cli.app; "
        "print([m for m in ('numba', 'ortools', 'scipy', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", light], capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_fabrics_from_options():
    fabric = make_fabric(
        4, 3, cables=2, fail_spines=1, fail_links=["0:1", "1:2:up"], degrade=["2:1:0.5:down"]
    )
    assert fabric.nics_per_tor == 6
    expected = np.full((4, 3), 2.0)
    expected[:, 0] = 0
    up, down = expected.copy(), expected.T.copy()
    up[0, 1] = down[1, 0] = 0
    up[1, 2] = 0
    down[1, 2] = 1.0
    assert np.array_equal(fabric.up, up)
    assert np.array_equal(fabric.down, down)
    assert np.array_equal(make_fabric(4, 3, degrade=["0:0:.25"]).up[0], [0.25, 1, 1])


def test_failures_come_in_the_order_of_time():
    fabric = Clos.uniform(2, 4)
    changes = failures_at(fabric, ["2s:1", "500ms:3"])
    assert [moment for moment, _ in changes] == [0.5, 2.0]
    assert changes[0][1].live_spines.tolist() == [0, 1, 2]
    assert changes[1][1].live_spines.tolist() == [0, 2]


def test_without_rotation_routes_stay_at_barriers(jobs):
    base = ("run", *FABRIC, "--jobs", jobs, "--epochs", "4", "--methods", "best")
    base = (*base, "--fail-spines", "3")
    turning = answer(*base)["methods"]["best"]
    still = answer(*base, "--no-rotation")["methods"]["best"]
    assert still["moved_flows"] < turning["moved_flows"]
    assert still["mean_slowdown"] >= turning["mean_slowdown"]


def test_failures_are_said_and_refused_when_all_jobs_have_ended(jobs):
    base = ("run", *FABRIC, "--jobs", jobs, "--epochs", "2", "--methods", "ecmp,spray")
    free = answer(*base)
    ends = {name: result["end_s"] for name, result in free["methods"].items()}
    assert free["failures"] == [] and ends["spray"] < ends["ecmp"]
    for name, result in free["methods"].items():
        took = [job["start_s"] + sum(job["allreduce_s"]) for job in result["jobs"]]
        assert ends[name] == pytest.approx(max(took[0] + 0.5, took[1] + 0.2))
    with pytest.raises(InputError, match=r"when all jobs have ended .* or more epochs"):
        clos(*base, "--fail-spine-at", f"{ends['ecmp']!r}s:0")
    between = f"{(ends['spray'] + ends['ecmp']) / 2!r}s:0"
    text = clos(*base, "--fail-spine-at", between).stdout
    assert "(6 live, 5 from " in text and "comes after the end of spray (at " in text
    found = answer(*base, "--fail-spine-at", between)
    assert [failure["live_spines"] for failure in found["failures"]] == [5]
    assert found["methods"]["spray"]["end_s"] == ends["spray"]
