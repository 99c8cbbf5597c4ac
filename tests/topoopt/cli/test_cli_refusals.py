"""The command line: one sentence and status 2 for wrong input."""

import json
from itertools import product

import pytest
from cli_runs import CLUSTER, FAST, SMALL, in_a_process, inside, refused, topoopt

import topoopt as to

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
    "endless latency": (("--latency", "1e300s"), "latency '1e300s' is out of range; give at most"),
    "no bandwidth": (("--bandwidth", "1e-300bps"), "bandwidth '1e-300bps' is out of range; give"),
    "all bandwidth": (("--bandwidth", "1e9Tbps"), "bandwidth '1e9Tbps' is out of range; give"),
    "memory of layouts": (("--memory", "1e9"), "--memory is 1000000000.0, but the model is"),
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
    "standard output": (("-o", "-"), "output is '-', but files do not go to standard output"),
    "output is a directory": (("-o", "."), "output . is a directory"),
    "no files there": (("-o", "/proc/plan.json"), "/proc takes no new files; choose another path"),
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


@pytest.mark.parametrize("group", ["clos", "experiment"])
def test_a_group_without_a_command_says_where_its_commands_are(group):
    run = topoopt(group)
    said = f"error: Missing command; see topoopt {group} --help\n"
    assert (run.returncode, run.stdout, run.stderr) == (2, "", said)


@pytest.mark.parametrize("case", PLAN_ONLY)
def test_wrong_options_of_plan_are_refused_before_the_search(workplace, case):
    directory, _ = workplace
    before = sorted(directory.iterdir())
    options, said = PLAN_ONLY[case]
    assert said in refused(*command_line("plan", options), directory=directory)
    assert sorted(directory.iterdir()) == before


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


def test_an_unknown_transformer_is_called_unknown_before_its_options_are_refused(tmp_path):
    words = ("llama3-9b", *CLUSTER, "--global-batch", "64", "--tensor", "2")
    for command in ("plan", "compare"):
        message = refused(command, *words, directory=tmp_path)
        assert "unknown model 'llama3-9b'; did you mean 'llama3-8b'?" in message


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
    little = ("--steps", "5", "--effort", "quick")
    options = ("--servers", servers, "--degree", "1", *little, "-q", "-o", path)
    result = inside(*command_line("plan", options[:-3]), *options[-3:], directory=workplace[0])
    assert result.exit_code == 0, result.exception
    assert to.verify_plan(path).ok


def test_a_batch_that_servers_do_not_divide_is_planned(workplace, tmp_path):
    path = str(tmp_path / "plan.json")
    little = ("--steps", "5", "--effort", "quick")
    options = ("--gpus-per-server", "1", "--batch-per-gpu", "3", "--servers", "5", *little)
    result = inside(*command_line("plan", options), "-q", "-o", path, directory=workplace[0])
    assert result.exit_code == 0, result.exception
    plan = to.load_plan(path)
    assert plan.global_batch == 15 and to.verify_plan(plan).ok


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"schema_version": 2}', "\x00\xff", pytest.param("[" * 10_000, id="deep")],
)
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
    "sequence": (("plan", "small.yaml", *FAST, "--sequence", "512"), "give it to the transformer"),
    "multi-token": (("plan", "small.yaml", *FAST, "--mtp-layers", "1"), "is an operator graph"),
    "zero": (("plan", "small.yaml", *FAST, "--zero", "1"), "planned operator by operator"),
    "across": (("plan", "small.yaml", *FAST, "--tensor-across-servers"), "planned operator by"),
    "workers": (("plan", "small.yaml", *FAST, "--workers", "2"), "one search only"),
    "window": (
        ("compare", "small.yaml", *FAST, "--fabrics", "sip-ml", "--demand-window", "20ms"),
        "none of sip-ml is rewired by it",
    ),
    "forwarding": (
        ("compare", "small.yaml", *FAST, "--fabrics", "fat-tree", "--no-forwarding"),
        "--no-forwarding is given",
    ),
    "selection": (
        ("topology", "torus", "--dims", "2x2", "--selection", "exact"),
        "torus has no rings to choose",
    ),
    "expert tensor": ((*LAYOUTS, "--expert-tensor", "2"), "gpt2 has no experts"),
    "imbalance": ((*LAYOUTS, "--load-imbalance", "1.2"), "gpt2 has no experts"),
    "impossible imbalance": (
        ("plan", "mixtral-8x7b", *CLUSTER, "--global-batch", "64", "--load-imbalance", "4.5"),
        "2 of 8 experts, no rank has more than 4 times its share; give 1 to 4",
    ),
    "modules": ((*LAYOUTS, "--recompute-modules", "norms"), "add 'modules' to recompute"),
    "part": (
        (*LAYOUTS, "--recompute", "modules", "--recompute-modules", "experts"),
        "modules names experts, but gpt2 has no such part",
    ),
    "parts": (
        (*LAYOUTS, "--virtual-stages", "4", "--pipeline-schedule", "1f1b"),
        "has no such parts; add interleaved",
    ),
    "ports": (("topology", "torus", "--dims", "2x2", "--ports", "directed"), "has its own"),
    "draw": (("topology", "torus", "--dims", "2x2", "--seed", "1"), "nothing of torus is drawn"),
    "layer": (
        ("topology", "fat-tree", "--servers", "4", "--layer", "ocs"),
        "fat-tree has switches for it",
    ),
    "tier": (
        ("topology", "hypercube", "--servers", "8", "--tier", "tor"),
        "hypercube has no choice of tiers",
    ),
    "untapered": (
        ("topology", "fat-tree", "--servers", "8", "--tier", "aggregation"),
        "give --oversubscription above 1",
    ),
    "taper": (
        ("topology", "hypercube", "--servers", "8", "--oversubscription", "1"),
        "nothing of hypercube tapers",
    ),
    "together": (
        ("bandwidth", "--network", "RI(4)", "--workload", "gpt-3", "--together", "max"),
        "there is one workload",
    ),
    "relative": (
        ("bandwidth", "--network", "RI(4)", "--workload", "gpt-3", "--relative-to", "equal"),
        "there is one workload",
    ),
    "list": (("topology", "list", "--servers", "4"), "list builds nothing"),
    "room": (
        ("bandwidth", "--network", "RI(4)", "--workload", "gpt-3", "--memory", "80GB"),
        "give --search-parallelism",
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
