"""Plans of transformers: bounds, searches, files, verification, the command."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_transformers import LATENT, gpt
from topoopt.transformers.candidates import layout_bound, survey, tightened_bound
from topoopt.transformers.job import TransformerJob, nvlink_server
from topoopt.transformers.plan import (
    TransformerBaseline,
    TransformerPlan,
    TransformerSearch,
    load_transformer_plan,
)
from topoopt.transformers.play import played, tasks_of
from topoopt.transformers.search import diverse
from topoopt.transformers.solve import plan_transformer
from topoopt.transformers.verify import verify_transformer_plan

import topoopt as to
from codesign_base import InfeasibleError, InputError
from parallelism.accelerators import get_accelerator
from parallelism.device import Server
from parallelism.transformers.enumeration import Choices, enumerate_layouts
from parallelism.transformers.memory import memory_use
from parallelism.transformers.placement import Placement, axis_orders
from topoopt.fabric import Fabric
from topoopt.report.transformer_page import played_again
from topoopt.topology.fabrics import ideal_switch, random_regular

SMALL = gpt(8, 1024, 16, 5000)
SERVER = Server(get_accelerator("h100"), 4, 150e9)
CLUSTER = to.Cluster(4, 3, "100Gbps")
JOB = TransformerJob(
    SMALL, 16, SERVER, choices=Choices(context=(1, 2), microbatch=(1, 2), zero=(1, 3))
)


@pytest.fixture(scope="module")
def plan() -> TransformerPlan:
    return plan_transformer(JOB, CLUSTER, simulated=4)


ALL = Choices(
    zero=(0, 1, 2, 3), across_servers=True, context=(1, 2), recompute=("none", "full"),
)  # fmt: skip
JOBS = [replace(JOB, choices=ALL), TransformerJob(LATENT, 16, SERVER, choices=ALL)]
LAYOUTS = [enumerate_layouts(job.model, 16, 4, 16, job.tokens, job.choices) for job in JOBS]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1), st.integers(0, 10**6), st.integers(0, 5), st.booleans())
def test_no_placement_or_fabric_beats_the_bound(which, number, turn, switched) -> None:
    job, layouts = JOBS[which], LAYOUTS[which]
    layout = layouts[number % len(layouts)]
    orders = axis_orders(layout)
    placement = Placement(layout, 4, orders[turn % len(orders)])
    if switched:
        network, routes = ideal_switch(4, 3 * CLUSTER.port_rate, 1e-6)
    else:
        import numpy as np

        network, routes = random_regular(
            4, 3, CLUSTER.port_rate, 1e-6, np.random.default_rng(number), CLUSTER.port_model
        )
    time = played(Fabric("any", network, routes), tasks_of(job, placement))
    loose = layout_bound(job, CLUSTER, layout)
    tight, _ = tightened_bound(job, CLUSTER, layout, loose)
    assert loose.seconds <= tight.seconds <= time


def uses_of(layout):
    return memory_use(JOB.model, layout, JOB.global_batch, sequence=JOB.tokens)


def test_the_survey_bounds_and_orders_all_that_fits() -> None:
    found = survey(JOB, CLUSTER)
    layouts = enumerate_layouts(SMALL, 16, 4, 16, 2048, JOB.choices)
    assert found.layouts == len(layouts)
    fit = [x for x in layouts if max(u.total for u in uses_of(x)) <= JOB.memory_limit]
    assert found.fitting == len(fit)
    loose = [layout_bound(JOB, CLUSTER, x) for x in fit]
    tight = [
        tightened_bound(JOB, CLUSTER, x, b)[0].seconds for x, b in zip(fit, loose, strict=True)
    ]
    assert found.bound.seconds == pytest.approx(min(tight), rel=1e-12)
    assert min(b.seconds for b in loose) < found.bound.seconds
    estimates = [candidate.estimate_s for candidate in found.candidates]
    assert estimates == sorted(estimates)
    assert all(candidate.memory_bytes <= JOB.memory_limit for candidate in found.candidates)


def test_the_plan_is_consistent(plan: TransformerPlan) -> None:
    assert plan.lower_bound_s <= plan.iteration_time_s
    parts = sum(part.seconds for part in plan.gap_parts)
    assert plan.lower_bound_s + parts == pytest.approx(plan.iteration_time_s)
    assert plan.layout.gpus == 16
    assert plan.tokens_per_s == pytest.approx(16 * 2048 / plan.iteration_time_s)
    assert 0 < plan.model_flops_utilisation < 1
    for base in plan.baselines.values():
        assert base.layout.gpus == 16
    assert plan.summary().splitlines()[0].startswith("gpt-8-1024")


def test_the_same_seed_gives_the_same_plan(plan: TransformerPlan) -> None:
    assert plan_transformer(JOB, CLUSTER, simulated=4) == plan


def test_the_file_holds_all_of_it(plan: TransformerPlan, tmp_path) -> None:
    path = tmp_path / "plan.json"
    plan.save(path)
    assert load_transformer_plan(path) == plan
    result = verify_transformer_plan(path)
    assert result.ok, result.failures


def _set(data, keys, value):
    for key in keys[:-1]:
        data = data[key]
    data[keys[-1]] = value(data[keys[-1]]) if callable(value) else value


@pytest.mark.parametrize(
    ("keys", "value", "check"),
    [
        (("iteration_time_s",), lambda t: t * 0.9, "times"),
        (("lower_bound_s",), lambda t: t * 1.01, "bounds"),
        (("bound", "terms_s", "injection"), lambda t: t * 1.01, "bounds"),
        (("memory_per_gpu_bytes",), lambda m: m / 2, "layout"),
        (("stages", 0, "weights"), lambda m: m / 2, "layout"),
        (("layout", "data"), lambda d: 2 * d, "layout"),
        (("links", 0, "cables"), 9, "ports"),
        (("links", 0, "capacity_bytes_per_s"), 1e12, "ports"),
        (("rings", 0, "order"), [0, 0, 1, 2], "rings"),
        (("cost_usd",), 1.0, "costs"),
        (("tokens_per_s",), lambda t: 2 * t, "times"),
        (("baselines", "fat-tree", "iteration_time_s"), lambda t: 2 * t, "baselines"),
        (("memory_reserve",), 0.99999, "layout"),
    ],
)
def test_tampering_is_found(plan: TransformerPlan, tmp_path, keys, value, check) -> None:
    data = json.loads(plan.to_json())
    _set(data, keys, value)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(data))
    result = verify_transformer_plan(path)
    assert not result.ok
    assert any(failure.startswith(check) for failure in result.failures), result.failures


@pytest.mark.parametrize(
    ("keys", "value"),
    [(("schema_version",), 99), (("kind",), "other"), (("layout", "extra"), 1), (("seed",), -1)],
)
def test_files_that_are_no_plan(plan: TransformerPlan, tmp_path, keys, value) -> None:
    data = json.loads(plan.to_json())
    target = data
    for key in keys[:-1]:
        target = target[key]
    target[keys[-1]] = value
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(data))
    with pytest.raises(InputError):
        load_transformer_plan(path)


def test_every_field_is_documented() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "layout-plans.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    named = {key for row in rows for key in re.findall(r"`(\w+)`", row[1])}
    assert named == {field.name for field in fields(TransformerPlan)}
    about = {key: row[2] for row in rows for key in re.findall(r"`(\w+)`", row[1])}
    for name, record in (("baselines", TransformerBaseline), ("search", TransformerSearch)):
        assert {field.name for field in fields(record)} <= set(re.findall(r"`(\w+)`", about[name]))


def test_what_does_not_fit_is_refused_with_the_least_need() -> None:
    job = replace(JOB, memory_reserve=0.99999)
    with pytest.raises(InfeasibleError, match="does not fit: the least of"):
        plan_transformer(job, CLUSTER)
    with pytest.raises(InfeasibleError, match="no layout fills 16 GPUs"):
        plan_transformer(replace(JOB, choices=Choices(tensor=(3,))), CLUSTER)


def test_one_server_needs_no_network() -> None:
    found = plan_transformer(JOB, to.Cluster(1, 1, "100Gbps"), simulated=2)
    assert found.links == []
    assert found.cost_usd == 0.0
    assert verify_transformer_plan(found).ok


def test_a_server_joins_its_gpus_at_nvlink_speed() -> None:
    server = nvlink_server("h100", 8)
    assert server.intra_bandwidth * 7 == pytest.approx(450e9)


@pytest.mark.parametrize(
    "wrong",
    [{"global_batch": 0}, {"memory_reserve": 1.0}, {"sequence": 10**9}],
)
def test_wrong_jobs(wrong) -> None:
    with pytest.raises(InputError):
        replace(JOB, **wrong)


def _run(monkeypatch, *arguments: str) -> int:
    from topoopt.cli import main

    monkeypatch.setattr("sys.argv", ["topoopt", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_the_command_plans_and_verifies(monkeypatch, capsys, tmp_path) -> None:
    path = tmp_path / "plan.json"
    options = [
        "gpt2", "--servers", "2", "--gpus-per-server", "4", "--device", "h100", "--degree", "2",
        "--bandwidth", "100Gbps", "--global-batch", "16", "--simulated", "2", "-q",
    ]  # fmt: skip
    assert _run(monkeypatch, "plan", *options, "-o", str(path)) == 0
    assert "layout:" in capsys.readouterr().out
    assert _run(monkeypatch, "verify", str(path)) == 0
    assert "ok (layout" in capsys.readouterr().out


def test_degrees_can_be_fixed(monkeypatch, capsys) -> None:
    options = [
        "gpt2", "--servers", "2", "--gpus-per-server", "4", "--device", "h100", "--degree", "2",
        "--bandwidth", "100Gbps", "--global-batch", "16", "-q", "--json",
        "--tensor", "2", "--pipeline", "2", "--context", "1,2", "--microbatch", "2",
        "--pipeline-schedule", "gpipe", "--zero", "0", "--recompute", "full", "--expert", "1",
    ]  # fmt: skip
    assert _run(monkeypatch, "plan", *options) == 0
    found = json.loads(capsys.readouterr().out)
    layout = found["layout"]
    assert (layout["tensor"], layout["pipeline"], layout["microbatch"]) == (2, 2, 2)
    assert (layout["schedule"], layout["zero"], layout["recompute"]) == ("gpipe", 0, "full")
    assert found["search"]["layouts"] == 2


def test_a_report_shows_layout_memory_and_fabrics(plan: TransformerPlan, tmp_path) -> None:
    from topoopt.report import render_report, write_report

    plan.save(tmp_path / "plan.json")
    page = render_report(tmp_path / "plan.json")
    assert page == render_report(plan)
    for anchor in ("layout", "baselines", "gap", "memory", "topology", "traffic-matrix"):
        assert f'id="{anchor}"' in page
    for name in plan.baselines:
        assert f">{name}<" in page
    for use in plan.stages:
        assert f'value="{use.activations!r}"' in page
    # The maps show all that is sent.
    found = played_again(plan)
    sent = plan.allreduce_bytes + plan.transfer_bytes
    assert (found.allreduce + found.transfers).sum() == pytest.approx(sent)
    with pytest.raises(InputError, match="iteration_time_s"):
        render_report(replace(plan, iteration_time_s=1.0))
    write_report(plan_transformer(JOB, to.Cluster(1, 1, "1Gbps"), simulated=2), tmp_path / "x.html")


@pytest.mark.parametrize(
    "command",
    [["export", "--format", "graphml", "-o", "out"], ["what-if"], ["simulate"]],
)
def test_commands_for_operators_refuse_layouts(
    plan: TransformerPlan, monkeypatch, capsys, tmp_path, command
) -> None:
    path = tmp_path / "plan.json"
    plan.save(path)
    monkeypatch.chdir(tmp_path)
    arguments = [command[0], str(path), *command[1:]]
    assert _run(monkeypatch, *arguments) == 2
    said = capsys.readouterr().err
    assert "planned by layouts" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["gpt2"], "give --global-batch"),
        (["gpt2", "--global-batch", "8", "--steps", "3"], "--steps is 3"),
        (["dlrm-16", "--global-batch", "8"], "planned by operators"),
        (["gpt2", "--global-batch", "8", "--zero", "7"], "layouts: zero is (7,)"),
        (["gpt2", "--global-batch", "8", "--tensor", "4,x"], "--tensor is '4,x'"),
        (["gpt2", "--global-batch", "8", "--context", "0"], "layouts: context is (0,)"),
        (["gpt2", "--global-batch", "8", "--pipeline-schedule", "x"], "layouts: schedules"),
        (["gpt2", "--global-batch", "8", "--tensor", "7"], "no layout fills 8 GPUs"),
        (["dlrm-16", "--microbatch", "2"], "--microbatch is 2, but 'dlrm-16' is planned by op"),
        (["gpt2", "--per-operator", "--zero", "1"], "--zero is 1, but 'gpt2' is planned by op"),
        (["gpt2", "--global-batch", "8", "--recompute", "some"], "layouts: recompute"),
    ],
)
def test_options_that_do_not_go_together(monkeypatch, capsys, options, said) -> None:
    base = ["--servers", "2", "--degree", "2", "--bandwidth", "100Gbps", "-q"]
    assert _run(monkeypatch, "plan", *options, *base) == 2
    assert said in capsys.readouterr().err


def test_simulated_layouts_differ_before_they_repeat() -> None:
    candidates = survey(JOB, CLUSTER).candidates
    whole = diverse(candidates, 10**6)
    assert {id(one) for one in whole} == {id(one) for one in candidates}
    first = diverse(candidates, 6)
    assert first[0] == candidates[0]
    assert min(candidates, key=lambda c: c.bound.seconds).bound in [c.bound for c in first]
    kinds = {
        (c.layout.tensor, c.layout.pipeline, c.layout.schedule, c.layout.virtual_stages,
         c.layout.recompute, c.layout.zero, c.layout.microbatch / c.layout.context)
        for c in first
    }  # fmt: skip
    assert len(kinds) == 6
