"""Mistakes that newcomers make on the command line: one sentence says what to change."""

import sys

import pytest
import typer

from topoopt.cli import main
from topoopt.cli.app import app
from topoopt.cli.misplaced import TAKEN_BY

CLUSTER = ["--servers", "16", "--degree", "4", "--bandwidth", "100Gbps"]
LLM = ["plan", "llama3-8b", *CLUSTER, "--global-batch", "64"]
# The words, what the sentence names, and what it says to give.
CASES = {
    "fraction": (["plan", "dlrm-16", "--servers", "16.5"], ["--servers is '16.5'", "whole number"]),
    "word": (["plan", "dlrm-16", "--degree=four"], ["--degree is 'four'", "whole number"]),
    "no number": (["pareto", "dlrm-16", *CLUSTER, "--server-usd", "1k"], ["--server-usd is '1k'"]),
    "no unit": (["plan", "dlrm-16", *CLUSTER[:-1], "100"], ["bandwidth '100'", "100Gbps"]),
    "bits or bytes": (["plan", "dlrm-16", *CLUSTER[:-1], "100Gb"], ["'100Gb'", "100Gbps"]),
    "missing": (["plan", "dlrm-16", *CLUSTER[:4]], ["--bandwidth"]),
    "near model": (["plan", "dlrm16", *CLUSTER], ["'dlrm16'", "'dlrm-16'"]),
    "no model": (["plan", "", *CLUSTER], ["model is empty", "topoopt models"]),
    "folder": (["plan", "folder", *CLUSTER], ["'folder'", "folder/config.json"]),
    "empty folder": (["plan", "./empty", *CLUSTER], ["'./empty'", "config.json"]),
    "download": (["plan", "meta/Llama-3-8B", *CLUSTER], ["'meta/Llama-3-8B'", "config.json"]),
    "no batch": (LLM[:-2], ["'llama3-8b'", "--global-batch"]),
    "tensor over servers": ([*LLM, "--tensor", "16"], ["stay within", "--tensor-across-servers"]),
    "degree of tensor": ([*LLM, "--tensor", "3"], ["no multiple of --tensor 3", "leave it out"]),
    "near transformer": (
        ["plan", "lama3-8b", *CLUSTER, "--global-batch", "64"], ["'lama3-8b'", "'llama3-8b'"]
    ),
    "no such configuration": (
        ["plan", "./none/config.json", *CLUSTER, "--global-batch", "64"], ["none/config.json"]
    ),
    "skew of no experts": (
        [*LLM, "--load-imbalance", "1.5"], ["--load-imbalance is 1.5", "no experts", "leave it out"]
    ),
    "degree of no experts": ([*LLM, "--expert", "2,4"], ["expert is 2, 4", "no experts"]),
    "split of no experts": ([*LLM, "--expert-tensor", "1"], ["--expert-tensor is 1", "no experts"]),
    "modules that are kept": (
        [*LLM, "--recompute-modules", "norms"],
        ["--recompute-modules is norms, but --recompute is none, full"],
    ),
    "no such schedule": (
        [*LLM, "--pipeline-schedule", "2f2b"], ["--pipeline-schedule is '2f2b'; give some of gpipe"]
    ),
    "no such module": (
        [*LLM, "--recompute", "modules", "--recompute-modules", "head"],
        ["--recompute-modules is 'head'"],
    ),
    "no number of parts": ([*LLM, "--virtual-stages", "two"], ["--virtual-stages is 'two'"]),
    "short name": ([*LLM, "--tp", "2"], ["--tp", "(Possible options: --tensor)"]),
    "name in Megatron-LM": ([*LLM, "--context-parallel-size", "2"], ["options: --context)"]),
    "fabric twice": (
        ["compare", "dlrm-16", *CLUSTER, "--fabrics", "fat-tree,fat-tree"],
        ["fabric 'fat-tree' is given twice; give it once"],
    ),
    "given twice": (
        ["plan", "dlrm-16", *CLUSTER, "--seed", "1", "--seed=2"],
        ["--seed is given twice; give it once"],
    ),
    "yes and no": (
        ["pareto", "dlrm-16", *CLUSTER, "--prune", "--no-prune"],
        ["--prune/--no-prune is given twice"],
    ),
    "no such layout": (
        [*LLM, "--microbatch", "3", "--pipeline-schedule", "gpipe", "--recompute", "none,modules"],
        ["with --microbatch 3, --recompute none, modules, --pipeline-schedule gpipe; 64 samples",
         "are no multiple of --microbatch 3; give a divisor, or leave it out"],
    ),
    "too large": (
        ["plan", "llama3-70b", *CLUSTER[2:], "--servers", "1", "--global-batch", "8",
         "--tensor", "8", "--pipeline-schedule", "1f1b", "--context", "1", "-q"],
        ["does not fit", "or --tensor or --context or --pipeline-schedule other values"],
    ),
    "length of other samples": (
        ["plan", "dlrm-16", *CLUSTER, "--sequence", "5"],
        ["--sequence is 5, but the model is an operator graph", "leave it out"],
    ),
    "layers of another model": (
        [*LLM, "--stage-layers", "8,8,8,9"], ["adds up to 33", "give the 32 of llama3-8b"]
    ),
    "sharded stages": (
        [*LLM, "--zero", "3", "--pipeline", "2,4"],
        ["--pipeline is 2, 4 with --zero 3", "list 1 beside it, or give --zero another"],
    ),
    "near fabric": (
        ["compare", "dlrm-16", *CLUSTER, "--fabrics", "fattree"], ["'fattree'", "'fat-tree'"]
    ),
    "near network": (["topology", "fattree", "--servers", "4"], ["'fattree'", "'fat-tree'"]),
    "near command": (["pln", "dlrm-16"], ["'pln'", "'plan'"]),
    "near option": (["plan", "dlrm-16", "--server", "16"], ["--server ", "--servers"]),
    "no plan": (["verify", "other.json"], ["'other.json'", "plan -o"]),
    "routes": (["report", "routes.json", "-o", "x.html"], ["a file of routes", "no command takes"]),
    "network": (
        ["simulate", "net.json"],
        ["'net.json' is a network", "`topoopt route`", "`topoopt simulate --fabric` take it"],
    ),
    "empty configuration": (
        ["plan", "empty.json", *CLUSTER], ["'empty.json' is neither", "config.json", "operators"]
    ),
    "no report": (["report", "other.json", "-o", "x.html"], ["'other.json'", "plan -o"]),
    "report as PDF": (["report", "other.json", "-o", "x.pdf"], ["'x.pdf'", ".html"]),
    "network as PDF": (
        ["topology", "totient", "--servers", "8", "--degree", "2", "-o", "x.pdf"],
        ["x.pdf", ".svg"],
    ),
    "no folder": (["plan", "dlrm-16", *CLUSTER, "-o", "none/plan.json"], ["none", "create it"]),
    "job file": (["plan", "job.yaml"], ["'server'", "'servers'"]),
    "torn file": (["plan", "torn.json", *CLUSTER], ["'torn.json'", "truncated"]),
    "range": (
        ["pareto", "dlrm-16", "--servers", "8-16", "--degree", "2", "--bandwidth", "40Gbps"],
        ["'8-16'", "16..256"],
    ),
}  # fmt: skip

# A file in the place of another: the words, what it is, and a command that takes it.
MIXED_UP = {
    "plan as model": (["plan", "p.json", *CLUSTER], "a plan", "verify"),
    "plan as model, no options": (["compare", "p.json"], "a plan", "report"),
    "task graph as model": (["plan", "g.fbuf", *CLUSTER], "a task graph", "wire"),
    "network as model": (["space", "n.json", "--servers", "4"], "a network", "route"),
    "model as plan": (["verify", "m.yaml"], "a model", "plan"),
    "model as report": (["report", "m.yaml", "-o", "r.html"], "a model", "plan"),
    "model as tasks": (["simulate", "m.yaml"], "a model", "plan"),
    "config as plan": (["deploy", "config.json", "-o", "d"], "a model", "compare"),
    "job as plan": (["what-if", "j.yaml"], "a job", "plan"),
    "network as plan": (["what-if", "n.json"], "a network", "collective"),
    "task graph as plan": (["deploy", "g.fbuf", "-o", "d"], "a task graph", "simulate"),
    "comparison as plan": (["export", "c.json", "--format", "fbuf"], "a comparison", "report"),
    "plan as network": (["route", "p.json", "t.npz"], "a plan", "what-if"),
    "traffic first": (["route", "t.npz", "n.json"], "a traffic file", "route"),
    "network as traffic": (["route", "n.json", "p.json"], "a plan", "wire"),
}


@pytest.mark.parametrize("case", MIXED_UP)
def test_a_file_in_the_place_of_another_is_called_what_it_is(case, desk, monkeypatch, capsys):
    for name, text in {
        "p.json": '{"schema_version": 5}', "n.json": '{"nodes": [], "edges": []}',
        "c.json": '{"fabrics": []}', "config.json": '{"model_type": "llama"}', "g.fbuf": "",
        "m.yaml": "operators: []", "j.yaml": "model: dlrm-16\nservers: 4\n", "t.npz": "",
    }.items():  # fmt: skip
        (desk / name).write_text(text)
    words, kind, taker = MIXED_UP[case]
    monkeypatch.setattr(sys, "argv", ["topoopt", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert f"is {kind}, which `topoopt {words[0]}` does not take here; " in sentence
    assert f"`topoopt {taker}`" in sentence.partition(";")[2]
    assert sentence.endswith(" after the network") == (case == "traffic first")


def test_a_word_before_the_file_is_named(desk, monkeypatch, capsys):
    (desk / "p.json").write_text('{"schema_version": 5}')
    monkeypatch.setattr(sys, "argv", ["topoopt", "export", "fbuf", "p.json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert "'p.json' is a plan, which `topoopt export` takes first, but 'fbuf'" in sentence


def test_every_command_that_takes_a_file_is_named_by_what_it_takes():
    group = typer.main.get_command(app)
    named = {name for commands in TAKEN_BY.values() for name in commands}
    about = {
        name for name, command in group.commands.items()
        if any(each.param_type_name == "argument" for each in command.params)
    }  # fmt: skip
    assert named == about - {"models", "topology", "validate", "bandwidth"}


@pytest.fixture
def desk(tmp_path, monkeypatch):
    for name in ("folder", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "folder" / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "routes.json").write_text('{"schema_version": 1, "hosts": 2, "pairs": []}')
    (tmp_path / "net.json").write_text('{"nodes": [], "edges": []}')
    (tmp_path / "empty.json").write_text("{}")
    (tmp_path / "other.json").write_text('{"hello": 1}')
    (tmp_path / "torn.json").write_text('{"name": ')
    (tmp_path / "job.yaml").write_text("model: dlrm-16\nserver: 4\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_answered_in_one_sentence(case, desk, monkeypatch, capsys):
    words, told = CASES[case]
    before = sorted(desk.rglob("*"))
    monkeypatch.setattr(sys, "argv", ["topoopt", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    for part in told:
        assert part in line
    assert sorted(desk.rglob("*")) == before
