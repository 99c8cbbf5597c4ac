"""The command line that a report gives makes the plan again, or what it cannot say is told."""

import dataclasses
import shlex

import pytest
from html_pages import Page
from small_layouts import shared_layout_plan
from small_plans import shared_plan

import topoopt as to
from parallelism.transformers.choices import Choices
from parallelism.transformers.implementation import Implementation
from parallelism.transformers.load import load_transformer
from topoopt.cli.app import app
from topoopt.problem.job import nvlink_server
from topoopt.problem.options import SearchOptions
from topoopt.report import render_report, reproduce
from topoopt.report.reproduce import plan_command_line
from topoopt.topology.network_file import load_network
from topoopt.topology.zoo.registry import build_fabric


def operator_question():
    return (
        to.Job(to.models.get_model("dlrm-16"), batch_per_gpu=128, optimizer="adam"),
        to.Cluster(4, 3, "25Gbps", "directed", "1.5us"),
        SearchOptions(
            steps=5, effort="quick", chains=2, parameter_splits=False, schedule="compute"
        ),
        5,
    )


def restarted_question():
    options = SearchOptions(steps=2, effort="quick", restarts=2, method="sequential")
    return to.Job(to.models.get_model("dlrm-16")), to.Cluster(3, 2, "100Gbps"), options, 1


def test_the_sequence_of_a_graph_of_operators_is_said() -> None:
    for sequence in (256, 1024):
        job = to.Job(to.models.get_model("gpt2", sequence=sequence))
        model, options, remarks = reproduce._operators(job.family(2).question())
        said = {name: value for name, value, usual in options if value != usual}
        assert (model, remarks) == ("gpt2", [])
        assert said == {"per-operator": True} | ({"sequence": 256} if sequence == 256 else {})


def layout_question():
    model = load_transformer("gpt2", sequence=512, mtp_layers=1)
    choices = Choices(tensor=(1, 2), microbatch=(2,), zero=(1,), schedules=("gpipe", "1f1b"))
    job = to.Job(model, server=nvlink_server("a100", 2), global_batch=16, choices=choices)
    cluster = to.Cluster(2, 2, "100Gbps", "bidirectional")
    return job, cluster, SearchOptions(simulated=3), 3


def expert_question():
    job = to.Job(
        load_transformer("mixtral-8x7b"), server=nvlink_server("h200", 8), global_batch=64,
        choices=Choices(
            expert=(8,), context=(1,), recompute=("full",), across_servers=True, pipeline=(4,),
            microbatch=(1,),
        ),
        implementation=Implementation(load_imbalance=1.5),
    )  # fmt: skip
    return job, to.Cluster(4, 3, "100Gbps"), SearchOptions(simulated=1), 0


@pytest.mark.parametrize(
    "question",
    [
        operator_question,
        pytest.param(restarted_question, marks=pytest.mark.slow),
        layout_question,
        pytest.param(expert_question, marks=pytest.mark.slow),
    ],
)
def test_the_command_line_makes_the_plan_again(tmp_path, monkeypatch, question):
    monkeypatch.chdir(tmp_path)
    *asked, seed = question()
    plan = to.co_optimize(*asked, seed=seed)
    command, remarks = plan_command_line(plan)
    assert remarks == ()
    words = shlex.split(command)
    app([*words[1:], "--quiet"], standalone_mode=False)
    assert to.load_plan("plan.json") == plan
    assert command in Page(render_report(plan)).text


def test_a_wiring_that_was_given_is_given_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ring = build_fabric("torus", None, None, 12.5e9, 1e-6, dims="4").network
    asked = to.Job(to.models.get_model("bert-16")), to.Cluster(4, 5, "100Gbps")
    plan = to.co_optimize(*asked, SearchOptions(steps=2), wiring=ring, baselines=())
    command, remarks = plan_command_line(plan)
    assert "--wiring network.json" in command and "export plan.json" in remarks[-1]
    plan.save("plan.json")
    export = ["export", "plan.json", "--format", "node-link", "-o", "network.json"]
    app(export, standalone_mode=False)
    network = load_network("network.json")
    again = to.co_optimize(*asked, SearchOptions(steps=2), wiring=network, baselines=())
    assert again == plan
    # Two of its five ports are in a ring, and nothing is in the others.
    assert "+ 0 for transfers + 3 without a cable; 8 one-way" in plan.summary(details=True)
    assert "0 transfers, 3 have no cable" in Page(render_report(plan)).text


def test_a_search_of_so_many_seconds_is_made_again_by_its_steps():
    plan = shared_plan()
    options = SearchOptions(seconds=3.0, restarts=2, method="alternating")
    search = dataclasses.replace(plan.search, options=options, restart=1, first_seed=8)
    command, _ = plan_command_line(dataclasses.replace(plan, search=search, seed=9))
    assert f"--seed 9 --steps {plan.search.steps} --method alternating" in command
    assert "--restarts" not in command


def test_what_the_command_line_cannot_say_is_said():
    plan = shared_plan()
    job = dataclasses.replace(
        plan.job, server=dataclasses.replace(plan.job.server, intra_bandwidth=1e9),
        compute={**plan.job.compute, "efficiency": 0.5},
    )  # fmt: skip
    command, remarks = plan_command_line(
        dataclasses.replace(plan, prices={**plan.prices, "source": "mine"}, job=job)
    )
    assert "--prices prices.json" in command
    for word in ("model.yaml", "prices.json", "roofline", "inside a server", "sip-ml"):
        assert any(word in remark for remark in remarks), word
    assert len(remarks) == 5


def test_what_the_command_line_cannot_say_of_layouts_is_said():
    plan = shared_layout_plan()
    job = dataclasses.replace(
        plan.job, memory_reserve=0.2, rates=dataclasses.replace(plan.job.rates, launch=1e-5),
        implementation=Implementation(flash=False, load_imbalance=2.0),
        choices=dataclasses.replace(plan.job.choices, virtual_stages=(2,)),
        server=dataclasses.replace(
            plan.job.server,
            accelerator=dataclasses.replace(plan.job.server.accelerator, memory_bytes=9e10),
        ),
    )  # fmt: skip
    command, remarks = plan_command_line(dataclasses.replace(plan, job=job))
    assert "--load-imbalance 2.0" in command
    assert "--device" not in command
    assert "--virtual-stages 2" in command
    for word in ("config.json", "training software", "rates", "left free",
                 "accelerator"):  # fmt: skip
        assert any(word in remark for remark in remarks), word
    assert len(remarks) == 5
