"""Transformers and configurations on the command line; `topoopt profile` with and without torch."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from codesign_base import InputError
from parallelism.profile_file import load_profile
from parallelism.transformers.load import load_transformer
from parallelism.transformers.operators import model_graph
from topoopt.cli.app import app

CONFIG = {
    "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 256, "num_local_experts": 4,
    "num_experts_per_tok": 2, "max_position_embeddings": 128,
}  # fmt: skip


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "tiny-moe" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(CONFIG))
    return path


def run(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_configuration_is_listed_and_planned(config: Path, tmp_path: Path) -> None:
    done = run("models", config, "--json")
    (summary,) = json.loads(done.stdout)
    h, f, e = 64, 128, 4
    attention = 2 * h * h + 2 * h * 32
    assert summary["parameters"] == 2 * 256 * h + attention + e * 3 * h * f + e * h + 3 * h
    assert summary["name"] == "tiny-moe"
    plan = tmp_path / "plan.json"
    done = run("plan", config.parent, "--servers", 4, "--degree", 2, "--bandwidth", "100Gbps",
               "--per-operator", "--steps", 5, "--effort", "quick", "-q", "-o", plan)  # fmt: skip
    assert done.exit_code == 0, done.output
    document = json.loads(plan.read_text())
    assert document["job"]["model"]["name"] == "tiny-moe"
    assert (
        sum(op["parameters"] for op in document["job"]["model"]["operators"])
        == summary["parameters"]
    )
    assert run("verify", plan).exit_code == 0


def test_a_graph_of_operators_has_the_sequence_that_is_asked_for(
    config: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    done = run("plan", config, "--servers", 2, "--degree", 2, "--bandwidth", "100Gbps",
               "--sequence", 96, "--mtp-layers", 1, "--per-operator", "--steps", 2,
               "--effort", "quick", "-q", "-o", plan)  # fmt: skip
    assert done.exit_code == 0, done.output
    graph = model_graph(load_transformer(config, sequence=96, mtp_layers=1))
    planned = json.loads(plan.read_text())["job"]["model"]
    assert planned["batch_per_gpu"] == graph.batch_per_gpu
    assert [op["output_shape"] for op in planned["operators"]] == [
        list(op.output_shape) for op in graph.operators
    ]


def test_one_model_is_shown_in_the_columns_of_all() -> None:
    everything, one = run("models").stdout.splitlines(), run("models", "gpt2").stdout.splitlines()
    assert len(one) == 2
    assert one[0].split() == everything[0].split()
    assert one[1].split() in [line.split() for line in everything]


def test_a_configuration_that_is_not_known_is_refused(config: Path) -> None:
    config.write_text(json.dumps(CONFIG | {"model_type": "mamba"}))
    failed = run("models", config)
    assert isinstance(failed.exception, InputError)
    assert "'model_type' is 'mamba'" in str(failed.exception)


def test_profile_without_torch_writes_nothing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    path = tmp_path / "profile.json"
    failed = run("profile", "gpt2", "--servers", 2, "-o", path)
    assert isinstance(failed.exception, InputError)
    assert "pip install torch" in str(failed.exception)
    assert not path.exists()


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is optional")
def test_profile_is_written_and_planned_with(config: Path, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    done = run("profile", config, "--servers", 2, "--batch-per-gpu", 2, "-o", path)
    assert done.exit_code == 0, done.output
    assert "operator shapes on cpu" in done.stdout
    assert load_profile(path).batch == 4 * 2 * 2
    done = run("plan", config, "--servers", 2, "--degree", 1, "--bandwidth", "100Gbps", "--steps",
               2, "--effort", "quick", "--batch-per-gpu", 2, "-q", "--per-operator", "--details",
               "--profile", path)  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "updates take no time" in done.stdout
