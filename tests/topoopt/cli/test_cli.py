"""The command line: answers on standard output, one sentence and status 2 for wrong input."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from itertools import product
from pathlib import Path

import pytest
from small_plans import shared_document
from typer.testing import CliRunner

import topoopt as to
from codesign_base import InputError
from parallelism.model_file import load_model
from topoopt.base.interrupts import interrupts_between_steps
from topoopt.cli.app import app, main
from topoopt.fabrics.baselines import ALL_BASELINES
from topoopt.formats.traffic import load_traffic
from topoopt.plan.rebuild import rebuild
from topoopt.problem.options import SearchOptions
from topoopt.topology.network_json import load_network

SMALL = """
name: small
batch_per_gpu: 8
inputs:
  features: [64]
operators:
  - {name: table_0, kind: embedding, rows: 100_000, dim: 32, bag: 4}
  - {name: table_1, kind: embedding, rows: 100_000, dim: 32, bag: 4}
  - {name: bottom, kind: dense, inputs: [features], out_features: 64}
  - {name: concat, kind: concat, inputs: [bottom, table_0, table_1]}
  - {name: top_0, kind: dense, inputs: [concat], out_features: 128}
  - {name: top_1, kind: dense, inputs: [top_0], out_features: 1}
"""
CLUSTER = ("--servers", "4", "--degree", "2", "--bandwidth", "100Gbps")
FAST = (*CLUSTER, "--steps", "12")


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A directory with the small model, and its plan, traffic and network."""
    directory = tmp_path_factory.mktemp("cli")
    (directory / "small.yaml").write_text(SMALL)
    done = topoopt("plan", "small.yaml", *FAST, "-o", "plan.json", "--save-traffic", "traffic.npz",
                   "--save-network", "network.json", directory=directory)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return directory, done


def in_a_process(*arguments, directory="."):
    """Run the console script as a user does."""
    script = "import sys; from topoopt.cli import main; sys.argv[0] = 'topoopt'; main()"
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=directory, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def topoopt(*arguments, directory="."):
    """Run what the console script runs, in this process."""
    output, errors = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(output),
        redirect_stderr(errors),
        pytest.raises(SystemExit) as ended,
    ):
        patch.setattr("sys.argv", ["topoopt", *arguments])
        # Messages name the program by its file, but where it runs as a module.
        patch.setattr(sys.modules["__main__"], "__package__", None, raising=False)
        patch.chdir(directory)
        main()
    status = ended.value.code or 0
    return subprocess.CompletedProcess(arguments, status, output.getvalue(), errors.getvalue())


def inside(*arguments, directory="."):
    """Run a command in this process, with what `main` makes of its errors."""
    before = Path.cwd()
    os.chdir(directory)
    try:
        result = CliRunner().invoke(app, list(arguments), prog_name="topoopt")
    finally:
        os.chdir(before)
    return result


def refused(*arguments, directory="."):
    """Return the sentence of a refusal; the search must not have begun."""
    result = inside(*arguments, directory=directory)
    assert isinstance(result.exception, InputError), result.output
    assert result.stdout == ""
    message = str(result.exception)
    assert "\n" not in message and len(message) < 500
    assert "search" not in result.stderr and "starting" not in result.stderr
    return message


# -- answers ------------------------------------------------------------------------------


def test_plan_prints_a_page_and_writes_the_plan(workplace):
    directory, done = workplace
    page = done.stdout
    for part in ("small on 4 servers", "by packet trains", "no plan takes less than",
                 "ideal-switch", "fat-tree", "expander", "strategy:", "one-way cables",
                 "plan written to plan.json"):  # fmt: skip
        assert part in page
    assert len(page.splitlines()) <= 26
    assert all(len(line) < 200 for line in page.splitlines())
    assert "search: step 12 of at most 12" in done.stderr
    assert "Traceback" not in done.stderr
    plan = to.load_plan(directory / "plan.json")
    assert to.verify_plan(plan).ok
    assert plan.summary() in page
    assert sorted(path.name for path in directory.iterdir()) == [
        "network.json", "plan.json", "small.yaml", "traffic.npz",
    ]  # fmt: skip


def test_plan_as_json_is_the_plan_file(workplace):
    directory, _ = workplace
    done = in_a_process("plan", "small.yaml", *FAST, "--json", directory=directory)
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert document == json.loads((directory / "plan.json").read_text())
    assert "search: step" in done.stderr


def test_details_are_printed_where_asked(workplace):
    directory, _ = workplace
    result = inside("plan", "small.yaml", *FAST, "--details", directory=directory)
    for part in ("packet time", "fluid time", "exposed communication", "lower bound",
                 "wiring: 2 ports", "seed 0, thorough effort, 12 steps", "note: "):  # fmt: skip
        assert part in result.stdout
    sentence = refused("plan", "small.yaml", *FAST, "--details", "--json", directory=directory)
    assert sentence.startswith("--details is True, but")


def test_quiet_is_quiet(workplace):
    directory, _ = workplace
    result = inside("plan", "small.yaml", *FAST, "--quiet", "--json", directory=directory)
    assert result.exit_code == 0 and result.stderr == ""
    assert json.loads(result.stdout)["search"]["steps"] == 12


def test_saved_traffic_and_network_are_those_of_the_plan(workplace):
    directory, _ = workplace
    plan = to.load_plan(directory / "plan.json")
    parts = rebuild(plan)
    network = load_network(directory / "network.json")
    for field in ("source", "target", "multiplicity"):
        assert (getattr(network, field) == getattr(parts.fabric.network, field)).all()
    assert network.capacity == pytest.approx(parts.fabric.network.capacity, rel=1e-12)
    traffic = load_traffic(directory / "traffic.npz")
    assert traffic.allreduce_sent() == plan.allreduce_bytes
    assert traffic.transfer_sent() == plan.transfer_bytes


def test_verify_accepts_and_says_what_it_checked(workplace):
    directory, _ = workplace
    result = inside("verify", "plan.json", directory=directory)
    assert result.exit_code == 0
    assert result.stdout.startswith("plan.json: ok (structure, parallelization,")
    result = inside("verify", "plan.json", "--json", directory=directory)
    verdict = json.loads(result.stdout)
    assert verdict["ok"] and not verdict["failures"] and "routes" in verdict["checks"]


def test_verify_rejects_with_status_2_and_one_sentence(workplace, tmp_path):
    document = shared_document()
    document["iteration_time_s"] *= 0.5
    (tmp_path / "wrong.json").write_text(json.dumps(document))
    done = topoopt("verify", "wrong.json", directory=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: plan file wrong.json is wrong: times: iteration_time_s")
    done = topoopt("verify", "wrong.json", "--json", directory=tmp_path)
    assert done.returncode == 2
    assert json.loads(done.stdout)["failures"] and len(done.stderr.splitlines()) == 1


def test_compare_lists_every_fabric(workplace):
    directory, _ = workplace
    result = inside("compare", "small.yaml", *FAST, "-q", directory=directory)
    assert result.exit_code == 0
    names = [line.split()[0] for line in result.stdout.splitlines() if "Gbps" in line]
    assert names == [
        "topoopt", "ideal-switch", "fat-tree", "oversubscribed-fat-tree", "expander", "sip-ml",
        "ocs-reconfig",
    ]  # fmt: skip
    result = inside(
        "compare", "small.yaml", *FAST, "--fabrics", "fat-tree, expander", "--json",
        directory=directory,
    )  # fmt: skip
    document = json.loads(result.stdout)
    assert [row["fabric"] for row in document["fabrics"]] == ["topoopt", "fat-tree", "expander"]
    assert document["fabrics"][0]["relative_time"] == 1.0
    plan = to.load_plan(directory / "plan.json")
    assert document["fabrics"][0]["iteration_time_s"] == plan.iteration_time_s
    assert "step" in result.stderr


def test_models_in_text_and_json():
    text = inside("models").stdout
    listed = json.loads(inside("models", "--json").stdout)
    assert [line.split()[0] for line in text.splitlines()[1:]] == [m["name"] for m in listed]
    assert {"dlrm", "candle", "bert", "ncf", "resnet50", "vgg16"} <= {m["name"] for m in listed}
    (resnet,) = (m for m in listed if m["name"] == "resnet50-imagenet")
    assert round(resnet["parameters"] / 1e6, 2) == 25.56
    # Columns line up.
    assert len({len(line) for line in text.splitlines()}) == 1


# -- wrong input --------------------------------------------------------------------------

# An option replaces what CLUSTER says; the sentence must name it.
WRONG = {
    "no unit": (("--bandwidth", "100"), "bandwidth '100' names no unit"),
    "zero bandwidth": (("--bandwidth", "0Gbps"), "bandwidth '0Gbps' must be greater than zero"),
    "negative bandwidth": (("--bandwidth", "-1Gbps"), "bandwidth '-1Gbps'"),
    "nan bandwidth": (("--bandwidth", "nanGbps"), "bandwidth 'nanGbps'"),
    "infinite bandwidth": (("--bandwidth", "infGbps"), "bandwidth 'infGbps'"),
    "overflowing bandwidth": (("--bandwidth", "1e999Gbps"), "bandwidth '1e999Gbps'"),
    "unknown unit": (("--bandwidth", "100parsecs"), "unknown unit 'parsecs'"),
    "empty bandwidth": (("--bandwidth", ""), "bandwidth ''"),
    "latency without unit": (("--latency", "5"), "latency '5' names no unit"),
    "negative latency": (("--latency", "-1us"), "latency '-1us'"),
    "degree 0": (("--degree", "0"), "degree is 0"),
    "degree -3": (("--degree", "-3"), "degree is -3"),
    "huge degree": (("--degree", "100000"), "degree is 100000; at most"),
    "servers 0": (("--servers", "0"), "servers is 0"),
    "servers -1": (("--servers", "-1"), "servers is -1"),
    "huge servers": (("--servers", "1000000"), "servers is 1000000; at most"),
    "ports": (("--ports", "duplex"), "ports is 'duplex'; choose directed or bidirectional"),
    "optimizer": (("--optimizer", "lamb"), "optimizer is 'lamb'; choose sgd, momentum, adam"),
    "device": (("--device", "tpu"), "unknown accelerator 'tpu'"),
    "gpus 0": (("--gpus-per-server", "0"), "gpus is 0"),
    "batch 0": (("--batch-per-gpu", "0"), "batch_per_gpu is 0"),
    "batch -8": (("--batch-per-gpu", "-8"), "batch_per_gpu is -8"),
    "seed": (("--seed", "-1"), "seed is -1"),
    "steps": (("--steps", "-1"), "steps is -1"),
    "missing profile": (("--profile", "none.json"), "profile 'none.json' does not exist"),
    "missing prices": (("--prices", "none.json"), "price file 'none.json'"),
}
PLAN_ONLY = {
    "faithful": (("--faithful", "thesis"), "faithful is 'thesis'; choose paper, artifact"),
    "artifact needs bidirectional": (("--faithful", "artifact"), "ports='bidirectional'"),
    "seconds 0": (("--seconds", "0"), "seconds is 0.0"),
    "seconds nan": (("--seconds", "nan"), "seconds is nan"),
    "seconds negative": (("--seconds", "-2"), "seconds is -2.0"),
    "chains 0": (("--chains", "0"), "chains is 0"),
    "both budgets": (("--steps", "5", "--seconds", "1"), "both steps=5 and seconds=1.0"),
    "no such directory": (("-o", "none/plan.json"), "directory none does not exist"),
    "output is a directory": (("-o", "."), "output . is a directory"),
    "traffic directory": (("--save-traffic", "none/t.npz"), "directory none does not exist"),
    "network directory": (("--save-network", "none/n.json"), "directory none does not exist"),
    "one file twice": (("-o", "a.json", "--save-network", "./a.json"), "two outputs"),
}


def command_line(command, options):
    """Give the options, and what they leave out of the cluster."""
    given = set(options[::2])
    pairs = zip(CLUSTER[::2], CLUSTER[1::2], strict=True)
    rest = [word for option, value in pairs if option not in given for word in (option, value)]
    return [command, "small.yaml", *rest, *options]


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("command", ["plan", "compare"])
def test_wrong_options_are_refused_in_one_sentence(workplace, command, case):
    options, said = WRONG[case]
    assert said in refused(*command_line(command, options), directory=workplace[0])


@pytest.mark.parametrize("case", PLAN_ONLY)
def test_wrong_options_of_plan_are_refused_before_the_search(workplace, case):
    directory, _ = workplace
    before = sorted(directory.iterdir())
    options, said = PLAN_ONLY[case]
    assert said in refused(*command_line("plan", options), directory=directory)
    assert sorted(directory.iterdir()) == before


def test_compare_plays_every_fabric_that_can_be_built(workplace):
    directory, _ = workplace
    options = ("--fabrics", "all", "--json", "-q", "--demand-window", "20ms")
    result = inside("compare", "small.yaml", *FAST, *options, directory=directory)
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    names = [row["fabric"] for row in document["fabrics"]]
    assert sorted([*names[1:], *document["refused"]]) == sorted(ALL_BASELINES)
    assert {"torus2d", "hypercube", "switch-ring", "rail", "dragonfly"} <= set(names)
    assert "full mesh needs 3 ports" in document["refused"]["full-mesh"]
    message = refused("compare", "small.yaml", *FAST, "--fabrics", "full-mesh", directory=directory)
    assert message in document["refused"]["full-mesh"] or "needs 3 ports" in message


def test_wrong_reconfiguration_times_are_refused(workplace):
    for options, said in (
        (("--reconfiguration-delay", "10"), "reconfiguration delay"),
        (("--demand-window", "0ms"), "demand window"),
        (("--demand-window", "1ms"), "shorter than the reconfiguration delay of 10 ms"),
    ):
        message = refused("compare", "small.yaml", *FAST, *options, directory=workplace[0])
        assert said in message


@pytest.mark.parametrize("fabrics", ["sphere", "", "fat-tree,", "fat-tree;expander"])
def test_unknown_fabrics_are_refused_before_the_search(workplace, fabrics):
    message = refused("compare", "small.yaml", *FAST, "--fabrics", fabrics, directory=workplace[0])
    assert "fabric is" in message and "oversubscribed-fat-tree" in message


MODELS = {
    "near miss": ("dlmr", None, "did you mean 'dlrm'?"),
    "unknown": ("zzz", None, "unknown model 'zzz'"),
    "missing file": ("none.yaml", None, "'none.yaml' does not exist"),
    "empty file": ("m.yaml", "", "is empty"),
    "not yaml": ("m.yaml", "a: [1, 2", "not valid YAML"),
    "not json": ("m.json", '{"name": ', "not valid JSON"),
    "unknown field": ("m.yaml", SMALL.replace("bag: 4}", "colour: 4}"), "'colour'"),
    "unknown input": ("m.yaml", SMALL.replace("[top_0]", "[top_9]"), "top_9"),
    "unknown kind": ("m.yaml", SMALL.replace("concat, inputs", "join, inputs"), "kind 'join'"),
    "negative number": ("m.yaml", SMALL.replace("dim: 32", "dim: -32"), "-32"),
    "no operators": ("m.yaml", SMALL.split("operators:")[0], "operators"),
}


@pytest.mark.parametrize("case", MODELS)
def test_wrong_models_are_refused(tmp_path, case):
    name, text, said = MODELS[case]
    if text is not None:
        (tmp_path / name).write_text(text)
    assert said in refused("plan", name, *FAST, directory=tmp_path)


def test_a_profile_of_another_model_is_refused(workplace, tmp_path):
    row = {"name": "Dense_9_9", "pc_str": "2-1-4", "fw_time": 1.0, "bw_time": 1.0, "mem_req": 1.0}
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps({"batch_size": 128, "ngpus": 4, "measurements": [row]}))
    arguments = ("plan", "small.yaml", *FAST, "--profile", str(profile))
    assert "profile" in refused(*arguments, directory=workplace[0])
    profile.write_text(json.dumps({"batch_size": 128, "ngpus": 4, "measurements": [row]})[:-9])
    assert "truncated" in refused(*arguments, directory=workplace[0])


def test_tables_beyond_memory_are_infeasible(workplace, tmp_path):
    (tmp_path / "big.yaml").write_text(SMALL.replace("rows: 100_000", "rows: 90_000_000_000"))
    message = refused("plan", "big.yaml", *FAST, directory=tmp_path)
    assert "does not fit" in message and "use more servers" in message


def test_too_few_ports_to_join_the_servers(workplace):
    options = ("--degree", "1", "--ports", "bidirectional")
    message = refused(*command_line("plan", options), directory=workplace[0])
    assert "degree 1 cannot join 4 servers" in message and "at least 2" in message


@pytest.mark.parametrize("servers", ["1", "2", "3"])
def test_the_smallest_clusters_are_planned(workplace, servers, tmp_path):
    path = str(tmp_path / "plan.json")
    options = ("--servers", servers, "--degree", "1", "--steps", "5", "-q", "-o", path)
    result = inside(*command_line("plan", options[:-3]), *options[-3:], directory=workplace[0])
    assert result.exit_code == 0, result.exception
    assert to.verify_plan(path).ok


def test_a_batch_that_servers_do_not_divide_is_planned(workplace, tmp_path):
    path = str(tmp_path / "plan.json")
    options = ("--gpus-per-server", "1", "--batch-per-gpu", "3", "--servers", "5", "--steps", "5")
    result = inside(*command_line("plan", options), "-q", "-o", path, directory=workplace[0])
    assert result.exit_code == 0, result.exception
    plan = to.load_plan(path)
    assert plan.global_batch == 15 and to.verify_plan(plan).ok


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema_version": 2}', "\x00\xff"])
def test_verify_refuses_what_is_no_plan(tmp_path, text):
    (tmp_path / "plan.json").write_text(text, encoding="latin-1")
    assert "plan file" in refused("verify", "plan.json", directory=tmp_path)


def test_verify_refuses_a_truncated_or_missing_plan(workplace, tmp_path):
    text = (workplace[0] / "plan.json").read_text()
    (tmp_path / "cut.json").write_text(text[: len(text) // 2])
    assert "truncated" in refused("verify", "cut.json", directory=tmp_path)
    assert "does not exist" in refused("verify", "none.json", directory=tmp_path)


REFUSED_BY_THE_PARSER = [
    ("plan",),
    ("plan", "dlrm"),
    ("plan", "dlrm", *CLUSTER, "--servers", "four"),
    ("plan", "dlrm", *CLUSTER, "--servers", "2.5"),
    ("plan", "dlrm", *CLUSTER, "--colour", "red"),
    ("plna", "dlrm"),
    ("verify",),
]


@pytest.mark.parametrize("arguments", REFUSED_BY_THE_PARSER)
def test_usage_errors_have_status_2(arguments):
    result = inside(*arguments)
    assert result.exit_code == 2 and result.stdout == ""
    assert "Usage: topoopt" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("run", "arguments"),
    [(in_a_process, REFUSED_BY_THE_PARSER[0]), *product([topoopt], REFUSED_BY_THE_PARSER)],
)
def test_the_shell_sees_one_line_for_usage_errors(run, arguments):
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    command = " plan" if arguments[0] == "plan" else " verify" if arguments[0] == "verify" else ""
    assert line.startswith("error: ") and line.endswith(f"; see topoopt{command} --help")


LAYOUTS = ("plan", "gpt2", *CLUSTER, "--global-batch", "64")
# What would count for nothing, and why.
UNUSED = {
    "optimizer": ((*LAYOUTS, "--optimizer", "adam"), "planned by layouts"),
    "default optimizer": ((*LAYOUTS, "--optimizer", "sgd"), "planned by layouts"),
    "chains": ((*LAYOUTS, "--chains", "5"), "none is proposed at random"),
    "sequence": (("plan", "small.yaml", *FAST, "--sequence", "512"), "planned operator by"),
    "zero": (("plan", "small.yaml", *FAST, "--zero", "1"), "planned operator by operator"),
    "across": (("plan", "small.yaml", *FAST, "--tensor-across-servers"), "planned operator by"),
    "workers": (("plan", "small.yaml", *FAST, "--workers", "2"), "one search only"),
    "window": (
        ("compare", "small.yaml", *FAST, "--fabrics", "sip-ml", "--demand-window", "20ms"),
        "none of sip-ml is rewired by it",
    ),
    "forwarding": (
        ("compare", "small.yaml", *FAST, "--fabrics", "fat-tree", "--no-forwarding"),
        "--no-forwarding is False",
    ),
    "selection": (
        ("topology", "torus", "--dims", "2x2", "--selection", "exact"),
        "torus has no rings to choose",
    ),
    "seed": (("route", "network.json", "traffic.npz", "--seed", "3"), "nothing is drawn"),
    "steps": (("what-if", "plan.json", "--steps", "20"), "give --fail-servers"),
    "blocks": (
        ("bandwidth", "--network", "RI(4)", "--workload", "gpt-3", "--blocks", "RI(2..4)"),
        "give --search-shapes",
    ),
    "jobs": (
        ("bandwidth", "--network", "RI(4)", "--workload", "gpt-3", "--jobs", "2"),
        "there is one design",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNUSED)
def test_options_that_count_for_nothing_are_refused(workplace, case):
    arguments, said = UNUSED[case]
    assert said in refused(*arguments, directory=workplace[0])


def test_seeds_are_checked_before_anything_is_drawn(workplace):
    said = refused("what-if", "plan.json", "--seed", "-1", directory=workplace[0])
    assert said.startswith("seed is -1")


def test_routes_do_not_overwrite_the_network_they_are_for(workplace):
    said = refused("route", "network.json", "traffic.npz", "-o", "network.json",
                   directory=workplace[0])  # fmt: skip
    assert "is also read" in said


@pytest.mark.parametrize("case", ["no unit", "degree 0", "device", "missing profile"])
def test_the_shell_sees_one_line_and_status_2(workplace, case):
    options, said = WRONG[case]
    run = in_a_process if case == "no unit" else topoopt
    done = run(*command_line("plan", options), directory=workplace[0])
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and said in line


def test_the_shell_sees_one_line_for_an_infeasible_job(workplace, tmp_path):
    (tmp_path / "big.yaml").write_text(SMALL.replace("rows: 100_000", "rows: 90_000_000_000"))
    done = topoopt("plan", "big.yaml", *FAST, "-o", "plan.json", directory=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert [line[:7] for line in done.stderr.splitlines()] == ["error: "]
    assert not (tmp_path / "plan.json").exists()


def test_an_old_plan_stays_when_the_new_one_fails(workplace, tmp_path):
    (tmp_path / "plan.json").write_text("old")
    (tmp_path / "big.yaml").write_text(SMALL.replace("rows: 100_000", "rows: 90_000_000_000"))
    refused("plan", "big.yaml", *FAST, "-o", "plan.json", directory=tmp_path)
    assert (tmp_path / "plan.json").read_text() == "old"


def test_interrupting_from_the_keyboard_leaves_the_best_plan(workplace, tmp_path):
    program = "from topoopt.cli import main; main()"
    path = tmp_path / "plan.json"
    running = subprocess.Popen(
        [sys.executable, "-c", program, "plan", "dlrm-16", "--servers", "8", "--degree", "4",
         "--bandwidth", "100Gbps", "--seconds", "100", "-o", str(path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert running.stderr is not None
    for line in running.stderr:
        if line.startswith("search"):
            break
    time.sleep(0.2)
    running.send_signal(signal.SIGINT)
    output, errors = running.communicate(timeout=60)
    assert running.returncode == 0, errors
    assert "search interrupted: the best so far" in output and "Traceback" not in errors
    plan = to.load_plan(path)
    assert plan.search.interrupted and to.verify_plan(plan).ok


def test_an_interrupted_comparison_says_so(workplace):
    def stop(report):
        if report.stage == "search":
            raise KeyboardInterrupt

    job = to.Job(load_model(workplace[0] / "small.yaml"))
    cluster = to.Cluster(servers=4, degree=2, bandwidth="100Gbps")
    found = to.compare(job, cluster, SearchOptions(steps=12), fabrics=("fat-tree",), progress=stop)
    assert found.interrupted and found.summary().endswith("interrupted: the best so far")
    whole = to.compare(job, cluster, SearchOptions(steps=12), fabrics=("fat-tree",))
    assert not whole.interrupted and "interrupted" not in whole.summary()


def test_interrupting_before_any_plan_has_status_130(workplace, monkeypatch, capsys):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("topoopt.codesign.solve.co_optimize", stop)
    monkeypatch.setattr("sys.argv", ["topoopt", "plan", str(workplace[0] / "small.yaml"), *FAST])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 130
    assert "interrupted: there is no result yet" in capsys.readouterr().err


def _left_by(error, workplace, monkeypatch, capsys):
    def stop(*arguments, **options):
        raise error

    monkeypatch.setattr("topoopt.codesign.solve.co_optimize", stop)
    monkeypatch.setattr("sys.argv", ["topoopt", "plan", str(workplace[0] / "small.yaml"), *FAST])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code, capsys.readouterr().err


def test_interrupted_kernels_and_lack_of_memory_are_one_sentence(workplace, monkeypatch, capsys):
    error = SystemError("kernel returned a result with an exception set")
    error.__cause__ = SystemError("helper returned a result with an exception set")
    error.__cause__.__cause__ = KeyboardInterrupt()
    status, message = _left_by(error, workplace, monkeypatch, capsys)
    assert status == 130 and message.startswith("interrupted: ") and message.count("\n") == 1
    lack = MemoryError("Unable to allocate 7 TiB")
    status, message = _left_by(lack, workplace, monkeypatch, capsys)
    assert status == 2 and message.startswith("error: not enough memory (Unable to allocate 7 TiB)")


def test_interrupts_wait_for_the_next_report_and_a_second_does_not():
    reports = []
    with interrupts_between_steps(reports.append) as report:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            report("first")
        report("second")
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert reports == ["first", "second"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_programs_own_handler_of_interrupts_is_left_alone():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_between_steps() as report:
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            report(None)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_reader_that_stops_early_is_no_error(workplace):
    program = f"{sys.executable} -c 'from topoopt.cli import main; main()' models | head -n 1"
    done = subprocess.run(program, shell=True, capture_output=True, text=True)
    assert done.stdout.startswith("model ") and "Traceback" not in done.stderr
