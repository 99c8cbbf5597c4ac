"""Job files, brief help, and what the command line says first."""

import json
import re

import pytest
import typer
import yaml
from cli_runs import inside, run

from codesign_base import InputError
from topoopt.cli.app import app
from topoopt.cli.brief_help import FIRST
from topoopt.cli.job_file import QUESTION

FAST = ("--servers", "4", "--degree", "2", "--bandwidth", "100Gbps", "--steps", "3")
MODEL = """
name: small
batch_per_gpu: 8
inputs:
  features: [64]
operators:
  - {name: table, kind: embedding, rows: 100_000, dim: 32, bag: 4}
  - {name: bottom, kind: dense, inputs: [features], out_features: 64}
  - {name: concat, kind: concat, inputs: [bottom, table]}
  - {name: top, kind: dense, inputs: [concat], out_features: 1}
"""
JOB = "model: small.yaml\nservers: 4\ndegree: 2\nbandwidth: 100Gbps\nsteps: 3\nconfirm: none\n"
GROUP = typer.main.get_command(app)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "small.yaml").write_text(MODEL)
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path


def plan_of(*arguments, directory):
    return json.loads(run("plan", *arguments, "--json", "--quiet", directory=directory))


def test_outputs_do_not_overwrite_a_job_file(folder):
    for option in ("-o", "--save-job", "--save-network"):
        result = inside("plan", "job.yaml", "--quiet", option, "./job.yaml", directory=folder)
        assert "output job.yaml is also read; give it another name" in str(result.exception)
        assert (folder / "job.yaml").read_text() == JOB


def test_a_folder_is_refused_before_options_that_it_might_hold(folder):
    result = inside("plan", str(folder), directory=folder)
    assert f"model {str(folder)!r} is a folder without config.json" in str(result.exception)


def test_a_comparison_does_not_overwrite_a_network_that_it_compares_with(folder):
    (folder / "net.json").write_text("a network")
    words = ("small.yaml", *FAST, "--fabrics", "fat-tree,net.json", "--save-plan", "net.json")
    result = inside("compare", *words, directory=folder)
    assert "output net.json is also read; give it another name" in str(result.exception)


def test_a_job_file_asks_what_the_options_ask_and_the_command_line_wins(folder):
    from_file = plan_of("job.yaml", directory=folder)
    assert from_file == plan_of("small.yaml", *FAST, "--confirm", "none", directory=folder)
    (folder / "job.json").write_text(json.dumps(yaml.safe_load(JOB)))
    assert plan_of("job.json", directory=folder) == from_file
    assert plan_of("job.yaml", "--degree", "1", directory=folder)["cluster"]["degree"] == 1
    # From elsewhere the model is still looked for beside the job file.
    (folder / "below").mkdir()
    assert plan_of("../job.yaml", directory=folder / "below") == from_file


def test_a_saved_job_is_the_question_that_was_asked(folder):
    (folder / "jobs").mkdir()
    given = ("small.yaml", *FAST, "--confirm", "none", "--no-parameter-splits")
    asked = plan_of(*given, "--save-job", "jobs/again.yaml", directory=folder)
    text = (folder / "jobs" / "again.yaml").read_text()
    assert text.splitlines() == [
        "model: ../small.yaml", "servers: 4", "degree: 2", "bandwidth: 100Gbps", "steps: 3",
        "no-parameter-splits: true", "confirm: none",
    ]  # fmt: skip
    assert plan_of("jobs/again.yaml", directory=folder) == asked
    more = plan_of("jobs/again.yaml", "--chains", "1", "--save-job", "more.yaml", directory=folder)
    assert more["search"]["options"]["chains"] == 1
    assert plan_of("more.yaml", directory=folder) == more


def test_a_job_saved_behind_a_link_to_a_folder_names_its_model_from_where_it_lies(folder):
    (folder / "far" / "away").mkdir(parents=True)
    (folder / "near").symlink_to(folder / "far" / "away")
    given = ("small.yaml", *FAST, "--confirm", "none")
    asked = plan_of(*given, "--save-job", "near/again.yaml", directory=folder)
    assert (folder / "far/away/again.yaml").read_text().startswith("model: ../../small.yaml\n")
    assert plan_of("near/again.yaml", directory=folder) == asked
    # What a name itself leads to, with another ending perhaps, is not named instead.
    (folder / "small.yaml").rename(folder / "far" / "content")
    (folder / "small.yaml").symlink_to(folder / "far" / "content")
    plan_of(*given, "--save-job", "here.yaml", directory=folder)
    assert (folder / "here.yaml").read_text().startswith("model: small.yaml\n")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("degree: 2", "degre: 2"), "unknown field 'degre'; did you mean 'degree'"),
        (("steps: 3", "output: x.json"), "unknown field 'output'; leave it out"),
        (("steps: 3", "steps: many"), "steps is 'many'; write a whole number"),
        (("steps: 3", "steps: '3'"), "steps is '3'; write 3, without quotes"),
        (("steps: 3", "steps: 3.5"), "steps is 3.5; write a whole number"),
        (("steps: 3", "max-cost: 1e6"), "max-cost is '1e6'; write 1000000.0"),
        (("steps: 3", "max-cost: '1e6'"), "max-cost is '1e6'; write 1000000.0"),
        (("steps: 3", "max-cost: '1.5e+6'"), "write 1500000.0, without quotes"),
        (("steps: 3", "steps: '1e999'"), "steps is '1e999'; write a whole number"),
        (("steps: 3", "max-cost: [1]"), "max-cost is [1]; write a number"),
        (("steps: 3", "per-operator: 1"), "per-operator is 1; write true or false"),
        (("model: small.yaml", "model: 3"), "model is 3; write text; a number or"),
        (
            ("bandwidth: 100Gbps", "bandwidth: 400"),
            "bandwidth is 400; write a speed with its unit, such as 400Gbps",
        ),
        (("bandwidth: 100Gbps", "bandwidth: 12.5e+9"), "with its unit, such as 100Gbps"),
        (("steps: 3", "latency: 2"), "latency is 2; write a time with its unit, such as 2us"),
        (("steps: 3", "latency:"), "latency is null; write a time with its unit, such as 1us"),
        (("steps: 3", "zero: 1.5"), "zero is 1.5; write a whole number, a word, or a list"),
        (("model: small.yaml", "model: dlrm-61"), "unknown model 'dlrm-61'; did you mean"),
        (("steps: 3", "tensor: 1,2"), "--tensor is 1,2, but"),
    ],
)
def test_what_a_job_file_may_not_say(folder, change, sentence):
    (folder / "job.yaml").write_text(JOB.replace(*change))
    result = inside("plan", "job.yaml", directory=folder)
    assert isinstance(result.exception, InputError) and sentence in str(result.exception)
    assert ("quotes" in sentence) or "without quotes" not in str(result.exception)


@pytest.mark.parametrize(
    ("field", "option", "refused"),
    [
        ("zero: 9", ("--zero", "9"), "zero is 9"),
        ("tensor: [3, 9]", ("--tensor", "3,9"), "with tensor 3, 9"),
        ("recompute: [none, all]", ("--recompute", "none,all"), "recompute is 'none', 'all'"),
        ("stage-layers: [1, 2x2]", ("--stage-layers", "1,2x2"), "adds up to 5"),
        ("tensor: 1.5", ("--tensor", "1.5"), "tensor is 1.5; "),
        ("tensor: true", ("--tensor", "true"), "tensor is true; "),
        ("tensor: [[1]]", ("--tensor", "[1]"), "tensor is [[1]]; "),
    ],
)
def test_lists_are_written_as_numbers_or_lists_too(tmp_path, field, option, refused):
    """The same sentence refuses the file and, where it is no mistake of YAML, the option."""
    cluster = {"servers": 4, "degree": 2, "bandwidth": "100Gbps", "global-batch": 16}
    lines = [f"{name}: {value}" for name, value in cluster.items()]
    (tmp_path / "job.yaml").write_text("\n".join(["model: gpt2", *lines, field]))
    told = str(inside("plan", "job.yaml", directory=tmp_path).exception)
    assert refused in told
    given = [word for name, value in cluster.items() for word in (f"--{name}", str(value))]
    same = str(inside("plan", "gpt2", *given, *option, directory=tmp_path).exception)
    assert told == same or told.startswith("job file")


def test_every_field_of_a_job_file_is_an_option_of_plan():
    names = {parameter.name for parameter in GROUP.commands["plan"].params}
    assert set(QUESTION) <= names
    assert not {"output", "details", "as_json", "model"} & set(QUESTION)


def options_in(page):
    return set(re.findall(r"^ {2}(?:-[a-zA-Z], )?(--[a-z-]+)", page, re.M))


def every_command(group=GROUP, path=()):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from every_command(command, (*path, name))
        else:
            yield (*path, name), command


@pytest.mark.parametrize(("path", "command"), list(every_command()), ids=lambda at: str(at))
def test_help_shows_at_most_fifteen_options_and_help_all_every_one(path, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    brief = inside(*path, "--help").stdout
    shown = options_in(brief)
    named = {max(p.opts, key=len) for p in command.params if p.opts[0].startswith("-")}
    required = {max(p.opts, key=len) for p in command.params if p.required}
    assert len(shown) <= 15
    assert {name for name in required if name.startswith("-")} <= shown
    name = " ".join(path)
    if name not in FIRST:
        assert shown == named | {"--help"}
        return
    # Every name is of a parameter, so that none that was renamed is missed.
    assert set(FIRST[name]) <= {p.name for p in command.params} and "--help-all" in shown
    assert f"More options: topoopt {name} --help-all" in brief
    assert options_in(inside(*path, "--help-all").stdout) == named | {"--help"}


def test_alone_it_says_what_to_try_first():
    result = inside()
    assert result.exit_code == 0
    tried = re.findall(r"^  topoopt (\w+)", result.stdout, re.M)
    assert tried == ["plan", "report", "plan"] and len(result.stdout.splitlines()) <= 12
    for name in re.findall(r"topoopt (\w+)", result.stdout):
        assert name in GROUP.commands or name == "finds"
