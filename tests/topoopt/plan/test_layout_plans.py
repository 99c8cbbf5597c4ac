"""Plans of transformers: bounds, searches, files, verification, the command."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_transformers import CHOSEN, DENSE_MODULES, LATENT, gpt
from trainings import training_of

import topoopt as to
from codesign_base import InfeasibleError, InputError
from parallelism.accelerators import get_accelerator
from parallelism.device import Server
from parallelism.taskgraph import TaskKind
from parallelism.transformers.choices import Choices, LayoutSpace
from parallelism.transformers.enumeration import enumerate_layouts
from parallelism.transformers.memory import memory_use
from parallelism.transformers.placement import Placement, axis_orders
from parallelism.transformers.presets import get_transformer
from parallelism.transformers.schedules import schedule_of
from routing import routes as routes_module
from topoopt.baselines.baselines import baseline_fabric
from topoopt.bounds.everything import everything_bound, wirings_of
from topoopt.bounds.layouts import layout_bound, passes_bound, tightened_bound
from topoopt.evaluate import problem as problem_module
from topoopt.evaluate.problem import Problem
from topoopt.fabric import Fabric
from topoopt.fabric.simulation import score
from topoopt.plan.summary import baseline_text, placed_text
from topoopt.problem.job import nvlink_server
from topoopt.problem.prices import default_prices
from topoopt.search.survey import diverse, survey
from topoopt.topology.fabrics import ideal_switch, random_regular

SMALL = gpt(8, 1024, 16, 5000)
SERVER = Server(get_accelerator("h100"), 4, 150e9)
CLUSTER = to.Cluster(4, 3, "100Gbps")
JOB = to.Job(
    SMALL, global_batch=16, server=SERVER,
    choices=Choices(
        context=(1, 2), microbatch=(1, 2), zero=(1, 3), pipeline=(1, 4), recompute=("none",),
        schedules=("1f1b", "zero-bubble"),
    ),
)  # fmt: skip
FEW = to.SearchOptions(simulated=4)
FAMILY = JOB.family(4)


@pytest.fixture(scope="module")
def plan() -> to.Plan:
    return to.co_optimize(JOB, CLUSTER, FEW)


ALL = Choices(
    zero=(0, 1, 2, 3), across_servers=True, context=(1, 2), recompute=("none", "full"),
    replicate=(1, 2),
)  # fmt: skip
FAMILIES = [
    replace(JOB, choices=ALL).family(4),
    *(
        to.Job(model, global_batch=16, server=SERVER, choices=ALL).family(4)
        for model in (LATENT, replace(SMALL, parallel=True, layer_norms=1), DENSE_MODULES, CHOSEN)
    ),
]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 4), st.integers(0, 10**6), st.integers(0, 5), st.booleans())
def test_no_placement_or_fabric_beats_the_bound(which, number, turn, switched) -> None:
    family = FAMILIES[which]
    layouts = family.layouts()
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
    time = score(Fabric("any", network, routes), family.build(placement))
    wirings = wirings_of(family, CLUSTER)
    loose = layout_bound(family, wirings, layout)
    tight, _ = tightened_bound(family, wirings, layout, loose)
    alone = passes_bound(family, layout, schedule_of(layout, family.batch))
    assert 0 < alone.seconds <= loose.seconds <= tight.seconds <= time


def uses_of(layout):
    return memory_use(training_of(SMALL, layout, sequence=2048), schedule_of(layout, 16))


def test_the_survey_bounds_and_orders_all_that_fits() -> None:
    found = survey(Problem(FAMILY, CLUSTER))
    wirings = wirings_of(FAMILY, CLUSTER)
    layouts = enumerate_layouts(LayoutSpace(SMALL, 16, 4, 16, 2048, JOB.choices))
    assert found.layouts == len(layouts)
    fit = [x for x in layouts if max(u.total for u in uses_of(x)) <= FAMILY.memory_limit]
    assert len(found.bounded) == len(fit)
    loose = [layout_bound(FAMILY, wirings, x) for x in fit]
    tight = [
        tightened_bound(FAMILY, wirings, x, b)[0].seconds for x, b in zip(fit, loose, strict=True)
    ]
    assert found.least.result().seconds == pytest.approx(min(tight), rel=1e-12)
    assert min(b.seconds for b in loose) < found.least.result().seconds
    assert everything_bound(FAMILY, CLUSTER) == found.least.result()
    estimates = [candidate.estimate_s for candidate in found.candidates]
    assert estimates == sorted(estimates)
    assert {candidate.layout for candidate in found.candidates} <= set(fit)


def test_the_plan_is_consistent(plan: to.Plan) -> None:
    assert plan.lower_bound_s <= plan.iteration_time_s
    parts = sum(part.seconds for part in plan.gap_parts)
    assert plan.lower_bound_s + parts == pytest.approx(plan.iteration_time_s)
    assert plan.parallelization.layout.gpus == 16
    assert plan.tokens_per_s == pytest.approx(16 * 2048 / plan.iteration_time_s)
    assert 0 < plan.model_flops_utilisation < 1
    for base in plan.baselines.values():
        assert base.parallelization.layout.gpus == 16
    assert plan.summary().splitlines()[0].startswith("gpt-8-1024")


@pytest.mark.slow
def test_the_same_seed_gives_the_same_plan(plan: to.Plan) -> None:
    assert to.co_optimize(JOB, CLUSTER, FEW) == plan


def test_copies_of_sharded_states_are_planned(tmp_path) -> None:
    """Hybrid sharding: gathered on each server, added up between servers."""
    choices = Choices(
        tensor=(1,), context=(1,), pipeline=(1,), microbatch=(1,), zero=(3,), recompute=("none",),
        replicate=(4,),
    )  # fmt: skip
    job = replace(JOB, choices=choices)
    plan = to.co_optimize(job, CLUSTER, FEW)
    layout = plan.parallelization.layout
    assert (layout.data, layout.replicate, layout.sharing) == (16, 4, 4)
    assert "ZeRO 3, replicate 4" in plan.summary()
    plan.save(tmp_path / "plan.json")
    assert to.verify_plan(tmp_path / "plan.json").ok
    # Copies fill servers: nothing but their sums goes between these.
    tasks = job.family(4).build(Placement(layout, 4))
    sent = {
        (TaskKind(kind), tasks.groups[first])
        for kind, first in zip(tasks.kind, tasks.first, strict=True)
        if kind >= TaskKind.ALLREDUCE and len(tasks.groups[first]) > 1
    }
    assert sent == {(TaskKind.ALLREDUCE, (0, 1, 2, 3))}


def test_the_file_holds_all_of_it(plan: to.Plan, tmp_path) -> None:
    path = tmp_path / "plan.json"
    plan.save(path)
    assert to.load_plan(path) == plan
    result = to.verify_plan(path)
    assert result.ok, result.failures


def test_the_file_holds_an_indexer(tmp_path) -> None:
    job = to.Job(CHOSEN, global_batch=16, server=SERVER, choices=Choices(tensor=(2,), zero=(1,)))
    plan = to.co_optimize(job, CLUSTER, to.SearchOptions(simulated=1), baselines=())
    path = tmp_path / "plan.json"
    plan.save(path)
    read = to.load_plan(path)
    assert read == plan
    assert read.job.model == CHOSEN
    result = to.verify_plan(path)
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
        (("memory_per_gpu_bytes",), lambda m: m / 2, "parallelization"),
        (("parallelization", "stages", 0, "weights"), lambda m: m / 2, "structure"),
        (("parallelization", "layout", "data"), lambda d: 2 * d, "structure"),
        (("links", 0, "cables"), 9, "ports"),
        (("links", 0, "capacity_bytes_per_s"), 1e12, "ports"),
        (("rings", 0, "order"), [0, 2, 1, 3], "rings"),
        (("cost_usd",), 1.0, "costs"),
        (("tokens_per_s",), lambda t: 2 * t, "times"),
        (("baselines", "fat-tree", "iteration_time_s"), lambda t: 2 * t, "baselines"),
        (("job", "memory_reserve"), 0.99999, "structure"),
        (("search", "options", "schedule"), "fused", "search"),
        (("search", "options", "schedule"), "auto", "search"),
        (("search", "options", "simulated"), None, "search"),
    ],
)
def test_tampering_is_found(plan: to.Plan, tmp_path, keys, value, check) -> None:
    data = json.loads(plan.to_json())
    _set(data, keys, value)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(data))
    result = to.verify_plan(path)
    assert not result.ok
    assert any(failure.startswith(check) for failure in result.failures), result.failures


def test_what_modules_for_multi_token_prediction_hold_is_checked(tmp_path) -> None:
    choices = Choices(
        tensor=(1,), pipeline=(2,), expert=(2,), microbatch=(1,), zero=(1,), recompute=("none",),
        schedules=("1f1b",),
    )  # fmt: skip
    job = to.Job(DENSE_MODULES, global_batch=8, server=nvlink_server("h100", 2), choices=choices)
    path = tmp_path / "plan.json"
    to.co_optimize(job, to.Cluster(2, 2, "100Gbps"), FEW).save(path)
    assert to.verify_plan(path).ok
    data = json.loads(path.read_text())
    data["job"]["model"]["mtp_dense"] = False
    path.write_text(json.dumps(data))
    result = to.verify_plan(path)
    assert any(failure.startswith("structure") for failure in result.failures)


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("schema_version",), 99),
        (("job", "kind"), "other"),
        (("parallelization", "layout", "extra"), 1),
        (("seed",), -1),
    ],
)
def test_files_that_are_no_plan(plan: to.Plan, tmp_path, keys, value) -> None:
    data = json.loads(plan.to_json())
    target = data
    for key in keys[:-1]:
        target = target[key]
    target[keys[-1]] = value
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(data))
    with pytest.raises(InputError):
        to.load_plan(path)


def test_what_does_not_fit_is_refused_with_the_least_need() -> None:
    job = replace(JOB, memory_reserve=0.99999)
    with pytest.raises(InfeasibleError, match="does not fit: the least of") as found:
        to.co_optimize(job, CLUSTER)
    # What is left of the memory is too little for weights: no shorter sequence helps.
    assert "weights, gradients and optimizer alone take" in str(found.value)
    assert "sequence" not in str(found.value)
    with pytest.raises(InfeasibleError, match="a shorter sequence, or context or"):
        to.co_optimize(replace(JOB, memory_reserve=0.97), CLUSTER)
    # 1021 is a prime: ranks cannot share such a sample, which is what to change first.
    odd = replace(JOB, memory_reserve=0.97, sequence=1021, choices=Choices())
    with pytest.raises(InfeasibleError, match=r"split 1021 tokens by no degree; .*such as 1008; "):
        to.co_optimize(odd, CLUSTER)
    # Whole servers share samples of 8 * 127 tokens, though not all 16 GPUs.
    for sequence in (1016, 1024):
        with pytest.raises(InfeasibleError, match="to use; give more servers"):
            to.co_optimize(replace(odd, sequence=sequence), CLUSTER)
    with pytest.raises(InfeasibleError, match="samples of an iteration are no multiple of micro"):
        to.co_optimize(replace(JOB, choices=Choices(microbatch=(3,))), CLUSTER)
    with pytest.raises(InfeasibleError, match="no layout fills 16 GPUs"):
        to.co_optimize(replace(JOB, choices=Choices(tensor=(3,))), CLUSTER)


def test_one_server_needs_no_network() -> None:
    found = to.co_optimize(JOB, to.Cluster(1, 1, "100Gbps"), to.SearchOptions(simulated=2))
    assert found.links == []
    assert found.cost_usd == 0.0
    assert to.verify_plan(found).ok


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
        "gpt2", "--servers", "2", "--gpus-per-server", "2", "--device", "h100", "--degree", "2",
        "--bandwidth", "100Gbps", "--global-batch", "4", "--simulated", "2", "-q",
    ]  # fmt: skip
    assert _run(monkeypatch, "plan", *options, "-o", str(path)) == 0
    assert "layout:" in capsys.readouterr().out
    assert _run(monkeypatch, "verify", str(path)) == 0
    assert "ok (structure, parallelization" in capsys.readouterr().out


def test_parts_of_stages_can_be_given(monkeypatch, capsys) -> None:
    options = [
        "gpt2", "--servers", "2", "--gpus-per-server", "4", "--device", "h100", "--degree", "2",
        "--bandwidth", "100Gbps", "--global-batch", "16", "-q", "--json", "--precision", "fp8",
        "--tensor", "2", "--pipeline", "2", "--virtual-stages", "5", "--zero", "1",
        "--pipeline-schedule", "interleaved", "--stage-layers", "0,1x8,4", "--microbatch", "1",
    ]  # fmt: skip
    assert _run(monkeypatch, "plan", *options) == 0
    found = json.loads(capsys.readouterr().out)
    layout = found["parallelization"]["layout"]
    assert (layout["virtual_stages"], layout["stage_layers"]) == (5, [0, *[1] * 8, 4])
    assert found["job"]["implementation"]["precision"] == "fp8"
    assert any("FP8" in note for note in found["notes"])


def test_degrees_can_be_fixed(monkeypatch, capsys) -> None:
    options = [
        "gpt2", "--servers", "2", "--gpus-per-server", "4", "--device", "h100", "--degree", "2",
        "--bandwidth", "100Gbps", "--global-batch", "16", "-q", "--json",
        "--tensor", "2", "--pipeline", "2", "--context", "1,2", "--microbatch", "2",
        "--pipeline-schedule", "gpipe", "--zero", "0", "--recompute", "full", "--expert", "1",
    ]  # fmt: skip
    assert _run(monkeypatch, "plan", *options) == 0
    found = json.loads(capsys.readouterr().out)
    layout = found["parallelization"]["layout"]
    assert (layout["tensor"], layout["pipeline"], layout["microbatch"]) == (2, 2, 2)
    assert (layout["schedule"], layout["zero"], layout["recompute"]) == ("gpipe", 0, "full")
    assert found["search"]["counts"]["layouts"] == 4  # two context degrees, two maps of layers


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["gpt2"], "give --global-batch"),
        (["gpt2", "--global-batch", "8", "--steps", "3"], "--steps is 3"),
        (
            ["dlrm-16", "--global-batch", "8"],
            "--global-batch is 8, but the model is planned operator by operator",
        ),
        (["gpt2", "--global-batch", "8", "--zero", "7"], "--zero is 7;"),
        (["gpt2", "--global-batch", "8", "--tensor", "4,x"], "--tensor is '4,x'"),
        (["gpt2", "--global-batch", "8", "--context", "0"], "--context is 0;"),
        (["gpt2", "--global-batch", "8", "--pipeline-schedule", "x"], "--pipeline-schedule is 'x'"),
        (["gpt2", "--global-batch", "8", "--tensor", "7"], "no layout fills 16 GPUs"),
        (["dlrm-16", "--microbatch", "2"], "--microbatch is 2, but the model is planned operator"),
        (
            ["gpt2", "--per-operator", "--zero", "1"],
            "--zero is 1, but the model is planned operator",
        ),
        (["gpt2", "--global-batch", "8", "--recompute", "some"], "--recompute is 'some'"),
        (["gpt2", "--global-batch", "8", "--recompute-modules", "some"], "--recompute-modules is"),
        (
            [
                "gpt2",
                "--global-batch",
                "8",
                "--recompute",
                "modules",
                "--recompute-modules",
                "norms,up-projections",
            ],
            "modules is norms, up-projections, but gpt2 has no latent attention",
        ),
        (["dlrm-16", "--sequence", "64"], "--sequence is 64, but the model is an operator graph"),
        (["gpt2", "--per-operator", "--sequence", "2048"], "longer than its 1024 learned"),
        (["gpt2", "--global-batch", "8", "--stage-layers", "3,4xa"], "--stage-layers is '3,4xa'"),
        (["gpt2", "--global-batch", "8", "--stage-layers", "1x99999"], "give at most 10000 parts"),
        (["gpt2", "--global-batch", "8", "--stage-layers", "6,7"], "adds up to 13 layers"),
        (
            ["gpt2", "--global-batch", "8", "--precision", "fp8", "--device", "a100"],
            "that of the stack, which a100-80gb does not have",
        ),
        (["gpt2", "--global-batch", "8", "--precision", "fp4"], "precision is 'fp4'"),
    ],
)
def test_options_that_do_not_go_together(monkeypatch, capsys, options, said) -> None:
    base = ["--servers", "2", "--degree", "2", "--bandwidth", "100Gbps", "-q"]
    assert _run(monkeypatch, "plan", *options, *base) == 2
    assert said in capsys.readouterr().err


def test_simulated_layouts_differ_before_they_repeat() -> None:
    candidates = survey(Problem(FAMILY, CLUSTER)).candidates
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


@pytest.mark.slow
def test_no_pipeline_schedule_is_left_out_for_the_estimates_of_another() -> None:
    # Estimates of some schedules are lower than of others by what they leave out.
    job = to.Job(get_transformer("mixtral-8x7b"), global_batch=128, server=nvlink_server("h100", 8))
    cluster = to.Cluster(16, 4, "25Gbps")
    choices = replace(
        job.family(16).choices, pipeline=(16,), microbatch=(1,), recompute=("none",), expert=(8,),
        schedules=("1f1b", "interleaved", "breadth-first", "zero-bubble", "zero-bubble-v"),
    )  # fmt: skip
    candidates = survey(Problem(replace(job.family(16), choices=choices), cluster)).candidates
    best = candidates[0].estimate_s
    rivals = {c.layout.schedule for c in candidates if c.estimate_s <= 1.5 * best}
    assert not {one.layout.schedule for one in candidates[:20]} >= rivals
    chosen = diverse(candidates, 22)
    assert {one.layout.schedule for one in chosen} >= rivals
    assert chosen[:8] == diverse(candidates, 8)


def test_a_cluster_is_ruled_out_by_a_bound_that_is_no_higher() -> None:
    quick = everything_bound(FAMILY, CLUSTER, quick=True)
    assert 0 < quick.seconds < everything_bound(FAMILY, CLUSTER).seconds
    with pytest.raises(InfeasibleError, match="does not fit"):
        everything_bound(replace(FAMILY, memory_reserve=0.99999), CLUSTER)


@pytest.mark.slow
def test_routes_of_many_servers_are_named_and_change_no_plan(plan, monkeypatch) -> None:
    monkeypatch.setattr(routes_module, "EVERY_PAIR_UP_TO", 3)
    made = to.co_optimize(JOB, CLUSTER, FEW)
    listed = made.routes.pairs
    # All shortest paths: the name of the routing says it all.
    assert made.routing == "ecmp" and listed == [] and made.routes.links == []
    assert replace(made, routes=plan.routes) == plan
    assert to.verify_plan(made).ok
    more = replace(made.routes, pairs=[1], offsets=[0, 0], latency_s=[0.0])
    assert "routes" in to.verify_plan(replace(made, routes=more)).failures[0]
    monkeypatch.undo()
    assert "give the routes of all" in to.verify_plan(made).failures[0]


@pytest.mark.slow
def test_a_baseline_that_takes_too_much_work_is_bounded_from_below(plan, monkeypatch) -> None:
    monkeypatch.setattr(problem_module, "BASELINE_WORK", 20.0)
    made = to.co_optimize(JOB, CLUSTER, FEW)
    cut = {name for name, base in made.baselines.items() if base.bounded}
    assert cut
    for name in cut:
        base = made.baselines[name]
        alone = FAMILY.read(base.parallelization)
        fabric = baseline_fabric(name, CLUSTER, default_prices(), 0).fabric
        assert 0.0 < base.iteration_time_s <= score(fabric, FAMILY.build(alone))
        assert f"{name} takes at least" in " ".join(made.notes)
        line = next(line for line in made.summary().splitlines() if line.startswith(name))
        assert line.count(">= ") == 2
    assert to.verify_plan(made).ok
    name = min(cut)
    told = dict(made.baselines) | {name: replace(made.baselines[name], bounded=False)}
    assert f"bounded of {name}" in to.verify_plan(replace(made, baselines=told)).failures[0]


def test_tensor_groups_share_out_the_tokens_of_a_rank() -> None:
    """Of 2,046 tokens two context ranks have 1,023, and one has as many as two tensor ranks can."""
    family = replace(JOB, choices=ALL, sequence=2046).family(4)
    found = {(layout.tensor, layout.context) for layout in family.layouts()}
    assert found == {(1, 1), (2, 1), (1, 2)}
    even = replace(JOB, choices=ALL).family(4)
    layout = next(x for x in even.layouts() if x.tensor == 4 and x.context == 1)
    record = even.record(Placement(layout, 4))
    assert even.read(record).layout == layout
    with pytest.raises(InputError, match=r"tensor 4 .* does not divide the 2046 tokens"):
        replace(family, choices=even.choices).read(record)
    with pytest.raises(InfeasibleError, match="16 samples of 2046 tokens with tensor 4"):
        replace(JOB, choices=Choices(tensor=(4,)), sequence=2046).family(4).layouts()


def test_a_fabric_that_only_places_the_plans_layout_otherwise_says_how(plan):
    own = plan.parallelization
    other = next(iter(plan.baselines.values()))
    turned = replace(other, parallelization=replace(own, order=tuple(reversed(own.order))))
    same = replace(other, parallelization=own)
    assert baseline_text(plan, same) == "the plan's"
    assert re.fullmatch(
        "the plan's, but servers are filled along .*", baseline_text(plan, turned)
    ), own
    assert placed_text(plan, turned) and not placed_text(plan, same)
