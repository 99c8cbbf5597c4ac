"""Mistakes that newcomers make on the command line: one sentence says what to change."""

import sys

import pytest

from topoopt.cli import main

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
    "folder": (["plan", "folder", *CLUSTER], ["'folder'", "folder/config.json"]),
    "empty folder": (["plan", "./empty", *CLUSTER], ["'./empty'", "config.json"]),
    "download": (["plan", "meta/Llama-3-8B", *CLUSTER], ["'meta/Llama-3-8B'", "config.json"]),
    "no batch": (LLM[:-2], ["'llama3-8b'", "--global-batch"]),
    "degree of tensor": ([*LLM, "--tensor", "3"], ["tensor 3", "leave out"]),
    "near fabric": (
        ["compare", "dlrm-16", *CLUSTER, "--fabrics", "fattree"], ["'fattree'", "'fat-tree'"]
    ),
    "near network": (["topology", "fattree", "--servers", "4"], ["'fattree'", "'fat-tree'"]),
    "near command": (["pln", "dlrm-16"], ["'pln'", "'plan'"]),
    "near option": (["plan", "dlrm-16", "--server", "16"], ["--server ", "--servers"]),
    "no plan": (["verify", "other.json"], ["'other.json'", "plan -o"]),
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


@pytest.fixture
def desk(tmp_path, monkeypatch):
    for name in ("folder", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "folder" / "config.json").write_text('{"model_type": "llama"}')
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
