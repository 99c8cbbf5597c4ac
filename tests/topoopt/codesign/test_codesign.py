"""The main job on small inputs: reproducible, never worse than its starts, always proven."""

import gc
import itertools
import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import small_plans
from hypothesis import given, settings
from hypothesis import strategies as st
from published_data import published_data
from small_plans import planned, small_dlrm, small_mlp, solve, with_less_work

import topoopt as to
from topoopt.bounds.everything import everything_bound
from topoopt.problem.options import SearchOptions
from topoopt.studies.setting import setting
from topoopt.topology.wiring import DegreeTooSmallError

MEASURED = published_data("measured")
needs_data = pytest.mark.skipif(not MEASURED.is_dir(), reason="no measured profiles")

MODELS = {"dlrm": small_dlrm(), "mlp": small_mlp(), "one-table": small_dlrm(1)}


SIZES = (1, 2, 3, 4, 5, 8)
PORTS = ((1, "directed"), (3, "directed"), (2, "bidirectional"), (5, "bidirectional"))


def slow_but_for(cases, kept):
    """Leave some cases of a test in the default suite."""
    return [
        case if place in kept else pytest.param(*case, marks=pytest.mark.slow)
        for place, case in enumerate(cases)
    ]


@pytest.mark.parametrize(
    ("name", "servers", "degree", "ports"),
    slow_but_for(
        [  # each with each, but not all three
            (list(MODELS)[(j + k) % len(MODELS)], servers, *ports)
            for (j, servers), (k, ports) in itertools.product(enumerate(SIZES), enumerate(PORTS))
        ],
        range(0, 24, 5),
    ),
)
def test_plans_are_proven_and_never_worse_than_the_named_starts(name, servers, degree, ports):
    model = MODELS[name]
    plan = solve(model, servers, degree, ports=ports, steps=20, confirm="none")
    assert plan.gap >= 0 and plan.gap == pytest.approx(
        plan.iteration_time_s / plan.lower_bound_s - 1, rel=1e-12, abs=1e-15
    )
    parts = plan.compute_time_s + plan.exposed_communication_s
    assert parts == pytest.approx(plan.iteration_time_s, rel=1e-12)
    given = setting(model, servers, degree, 100)
    given = replace(given, cluster=replace(given.cluster, ports=ports))
    for start in ("data-parallel", "hybrid"):
        if start == "hybrid" and name == "mlp":
            continue
        time = given.wired(given.strategy(start), start).time
        assert plan.iteration_time_s <= time
        assert plan.named_strategies_s[start] <= time
    if servers == 1:
        assert plan.links == [] and plan.rings == [] and plan.baselines == {}
        assert plan.cost_usd == 0
    else:
        assert set(plan.baselines) == {"ideal-switch"}


def packets_chose():
    asked = {"steps": 10, "seed": 2, "effort": "quick", "confirm": "packet"}
    return solve(small_dlrm(2), 4, **asked).to_json()


@pytest.fixture(scope="module")
def first():
    return packets_chose()


@pytest.mark.slow
def test_a_search_leaves_hardly_any_cycles():
    # The command line rarely looks for them.
    def search():
        planned(
            to.Job(small_dlrm()), to.Cluster(4, 2, "100Gbps"), steps=10, confirm="packet",
            baselines=("ideal-switch", "fat-tree", "expander", "ocs-reconfig"),
        )  # fmt: skip

    search()  # compiling makes many
    collected = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        search()
        assert gc.collect() < 200
    finally:
        if collected:
            gc.enable()


@pytest.mark.parametrize("confirm", ["packet", "none"])
def test_the_bound_over_everything_is_worked_out_once(confirm, monkeypatch):
    # The search asks for it to stop early, or it is worked out beside packet trains.
    found = []

    def noted(*arguments, **named):
        found.append(everything_bound(*arguments, **named))
        return found[-1]

    # A second process would work it out unseen.
    monkeypatch.setattr("topoopt.codesign.once._worth_two", lambda *_: False)
    monkeypatch.setattr("topoopt.search.steps.everything_bound", noted)
    monkeypatch.setattr("topoopt.bounds.gap.everything_bound", noted)
    model = small_dlrm(2, bottom_layers=1, top_layers=1)
    job, cluster = to.Job(model), to.Cluster(4, 2, "100Gbps")
    options = SearchOptions(confirm=confirm, effort="quick", steps=20)
    plan = to.co_optimize(job, cluster, options, baselines=("fat-tree",))
    assert [bound.seconds for bound in found] == [plan.lower_bound_s]


def test_the_same_seed_and_steps_give_the_same_plan(first):
    assert packets_chose() == first


@pytest.mark.slow
def test_the_plan_does_not_depend_on_the_hash_seed(first):
    # This process has a seed of its own, which is another one each time.
    code = (
        "from small_plans import *\n"
        "job, cluster = to.Job(small_dlrm(2)), to.Cluster(4, 2, '100Gbps')\n"
        "asked = {'steps': 10, 'seed': 2, 'effort': 'quick', 'confirm': 'packet'}\n"
        "print(planned(job, cluster, **asked, baselines=('ideal-switch',)).to_json())"
    )
    helpers = Path(small_plans.__file__).parent
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(helpers)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == first


@pytest.mark.slow
def test_seeds_differ_and_more_steps_are_never_worse():
    model = small_mlp(features=(512, 768, 640))
    # Packet trains may choose a plan that is slower with max-min fair shares.
    plans = [solve(model, 4, steps=steps, seed=0, confirm="none") for steps in (0, 20, 60, 120)]
    times = [plan.iteration_time_s for plan in plans]
    assert times == sorted(times, reverse=True)
    assert times[-1] < times[0]
    others = [solve(model, 4, steps=60, seed=seed, confirm="none") for seed in (1, 2)]
    assert len({json.dumps(p.to_dict()["parallelization"]) for p in (plans[2], *others)}) > 1


@pytest.mark.parametrize("seconds", [1e-9, 0.05])
def test_the_steps_of_a_timed_run_reproduce_its_plan(seconds):
    model = small_dlrm(3)
    timed = solve(model, 5, 3, steps=None, seconds=seconds)
    assert solve(model, 5, 3, steps=timed.search.steps).to_json() == timed.to_json()


@pytest.mark.parametrize(
    ("looks",),
    slow_but_for([(n,) for n in (*range(1, 6), *range(61, 69), *range(122, 132))], (0, 2, 8, 15)),
)
def test_steps_reproduce_a_timed_run_wherever_the_clock_runs_out(looks, monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr("topoopt.search.driver.clock.monotonic", lambda: float(next(clock)))
    model = small_mlp(tower_layers=1)
    asked = {"baselines": ("ideal-switch",), "confirm": "none"}
    timed = solve(model, 4, 2, steps=None, seconds=float(looks), **asked)
    again = solve(model, 4, 2, steps=timed.search.steps, **asked)
    assert again.to_json() == timed.to_json()


@pytest.mark.slow
def test_the_steps_of_a_run_with_the_default_budget_reproduce_its_plan(monkeypatch):
    # By default work ends a search; a two-hundredth of it here.
    with_less_work(monkeypatch, 1 / 200)
    model = small_dlrm(2, bottom_layers=1, top_layers=1)
    asked = {"effort": "thorough", "confirm": "none"}
    usual = solve(model, 3, 3, steps=None, **asked)
    assert usual.search.steps > 0
    assert solve(model, 3, 3, steps=usual.search.steps, **asked).to_json() == usual.to_json()


def interrupt_after(calls, stage):
    left = [calls]

    def progress(report):
        if report.stage == stage:
            left[0] -= 1
            if left[0] <= 0:
                raise KeyboardInterrupt

    return progress


@pytest.fixture(scope="module")
def whole():
    return solve(small_mlp(), 4, steps=60, confirm="none")


@given(step=st.integers(1, 60))
@settings(max_examples=3, deadline=None)
def test_an_interrupted_search_returns_its_best_so_far(whole, step):
    stop = interrupt_after(step, "search")
    plan = solve(small_mlp(), 4, steps=60, confirm="none", progress=stop)
    assert plan.search.interrupted and plan.search.steps == step
    assert not plan.search.converged
    assert plan.baselines and all(b.packet_time_s is None for b in plan.baselines.values())
    assert whole.iteration_time_s <= plan.iteration_time_s
    assert plan.iteration_time_s <= min(t for t in plan.named_strategies_s.values() if t)
    assert "interrupted" in plan.summary()


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_an_interruption_while_the_starts_are_scored_keeps_what_was_scored(calls):
    plan = solve(small_dlrm(), 4, steps=60, progress=interrupt_after(calls, "start"))
    assert plan.search.interrupted and plan.search.steps == 0


def test_an_interruption_of_a_baseline_keeps_the_plan():
    plan = solve(
        small_dlrm(), 4, steps=40, baselines=("ideal-switch", "fat-tree"),
        progress=interrupt_after(1, "fat-tree"),
    )  # fmt: skip
    # The other fabric is searched beside it, and may have come to its end.
    assert plan.search.interrupted and set(plan.baselines) <= {"ideal-switch"}
    assert plan.search.steps == 40


def test_progress_counts_up_and_never_gets_worse():
    reports = []
    plan = solve(small_mlp(), 4, steps=50, progress=reports.append)
    search = [r for r in reports if r.stage == "search"]
    assert [r.done for r in search] == list(range(1, plan.search.steps + 1))
    assert all(r.total == 50 for r in search)
    best = [r.best for r in reports if r.stage in ("start", "search")]
    assert best == sorted(best, reverse=True)
    assert {r.stage for r in reports} >= {"start", "search", "packet trains", "ideal-switch"}


def test_packets_choose_plans_of_operators_unless_told_otherwise():
    def confirm(servers=4, kind="operators", **options):
        return SearchOptions(**options).settled(kind, servers).confirm

    assert confirm() == "packet"
    assert confirm(schedule="compute") == "packet"
    assert confirm(servers=129) == "none"
    assert confirm(schedule="barrier") == "none"
    assert confirm(method="alternating") == "none"
    assert confirm(faithful="paper") == "none"
    assert confirm(confirm="none") == "none"
    assert confirm(kind="layouts") == "none"
    # That is what is done.
    cluster, layouts = to.Cluster(4, 2, "100Gbps"), small_plans.small_layout_job(pipeline=(2,))
    for job, asked, found in (
        (to.Job(small_mlp()), {"steps": 0}, "packet"), (layouts, {"simulated": 1}, "none"),
    ):  # fmt: skip
        plan = to.co_optimize(job, cluster, SearchOptions(**asked), baselines=())
        assert plan.search.options.confirm == found


def test_plans_state_what_packets_take_on_every_fabric_that_packets_know():
    plan = solve(small_dlrm(), 4, confirm="none", baselines=("ideal-switch", "fat-tree", "sip-ml"))
    assert plan.packet_time_s > 0 and "candidates" not in plan.search.counts
    assert plan.time_s == plan.packet_time_s
    fat_tree, rewired = plan.baselines["fat-tree"], plan.baselines["sip-ml"]
    assert plan.relative_time(fat_tree) == fat_tree.packet_time_s / plan.packet_time_s
    assert rewired.packet_time_s is None
    assert plan.relative_time(rewired) == rewired.iteration_time_s / plan.iteration_time_s


def test_a_plan_far_from_what_packets_say_says_so_first():
    plan = small_plans.shared_plan()
    apart = replace(plan, packet_time_s=1.06 * plan.iteration_time_s)
    assert (
        apart.summary(details=True)
        .splitlines()[2]
        .startswith("packet trains and the fluid model differ")
    )
    near = replace(plan, packet_time_s=1.04 * plan.iteration_time_s)
    assert near.summary(details=True).splitlines()[2].startswith("packet time")


@pytest.mark.parametrize("faithful", ["paper", "artifact"])
@pytest.mark.parametrize(
    "servers", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 4)), 8]
)
def test_faithful_modes_run_and_say_so(faithful, servers):
    plan = solve(small_dlrm(), servers, 4, ports="bidirectional", faithful=faithful)
    assert plan.search.options.faithful == faithful
    if servers > 1:
        routing = {"paper": "k-shortest", "artifact": "single"}[faithful]
        assert plan.routing == routing
    if faithful == "artifact":
        assert plan.degree_transfer == 0
        assert all(op.parameter == 1 for op in plan.parallelization.operators)


@pytest.mark.slow
def test_faithful_modes_differ_from_each_other_and_from_the_default():
    found = {
        mode: solve(small_mlp(), 8, 4, ports="bidirectional", faithful=mode, steps=60)
        for mode in (None, "paper", "artifact")
    }
    parts = ("parallelization", "links", "routes")
    documents = [json.dumps([p.to_dict()[k] for k in parts]) for p in found.values()]
    assert len(set(documents)) == 3
    # The artifact's generators for eight servers and four bidirectional ports.
    assert {ring.generator for ring in found["artifact"].rings} == {1, 3, 5, 7}
    assert found[None].iteration_time_s <= found["artifact"].iteration_time_s


def test_what_does_not_fit_is_infeasible_and_the_message_says_what_helps():
    model = small_dlrm(4, rows=2_000_000_000)
    with pytest.raises(to.InfeasibleError) as caught:
        to.co_optimize(to.Job(model), to.Cluster(2, 2, "100Gbps"), SearchOptions(steps=5))
    message = str(caught.value)
    assert "does not fit" in message and "80 GB" in message and "\n" not in message


def test_a_strategy_that_does_not_fit_is_listed_and_not_used():
    # Two replicas of every table need 2 x 102.4 GB + gradients over 4 GPUs; one table does fit.
    model = small_dlrm(4, rows=400_000_000)
    plan = solve(model, 4, steps=60)
    assert plan.named_strategies_s["data-parallel"] is None
    assert plan.memory_per_gpu_bytes <= 80e9
    assert "data-parallel does not fit" in plan.summary(details=True)


def test_optimizer_state_counts_towards_memory():
    plain = solve(small_mlp(), 2, steps=0)
    adam = solve(small_mlp(), 2, steps=0, job={"optimizer": "adam"})
    assert adam.memory_per_gpu_bytes > plain.memory_per_gpu_bytes
    assert adam.job.optimizer == "adam"


@pytest.mark.slow
def test_batch_and_server_change_the_job():
    small = solve(small_mlp(), 2, steps=10, job={"batch_per_gpu": 8})
    large = solve(small_mlp(), 2, steps=10, job={"batch_per_gpu": 64})
    assert (small.global_batch, large.global_batch) == (2 * 4 * 8, 2 * 4 * 64)
    assert small.compute_time_s < large.compute_time_s
    single = solve(small_mlp(), 2, steps=10, job={"server": to.Server(gpus=1)})
    assert single.global_batch == 2 * 32


@pytest.mark.parametrize("tables", [1, 2, 3, 4])
def test_one_server_needs_no_network(tables):
    plan = solve(small_dlrm(tables), 1)
    assert plan.exposed_communication_s + plan.compute_time_s == pytest.approx(
        plan.iteration_time_s
    )
    assert plan.routes.links == [] and plan.allreduce_bytes == plan.transfer_bytes == 0


@pytest.mark.parametrize(
    ("servers", "degree"), [(3, 1), (8, 1), (4, 1)], ids=lambda value: str(value)
)
def test_bidirectional_ports_need_two_ports_to_join_three_servers(servers, degree):
    with pytest.raises(DegreeTooSmallError, match="give at least 2"):
        to.co_optimize(
            to.Job(small_mlp()),
            to.Cluster(servers, degree, "100Gbps", "bidirectional"),
            SearchOptions(steps=1),
        )


def test_two_servers_with_one_bidirectional_port():
    plan = solve(small_mlp(), 2, 1, ports="bidirectional")
    assert [(link.source, link.target) for link in plan.links] == [(0, 1), (1, 0)]


@pytest.mark.parametrize("kind", ["prime batch", pytest.param("odd batch", marks=pytest.mark.slow)])
def test_batches_that_servers_do_not_divide(kind):
    # One GPU a server and a batch that only some degrees divide.
    batch = {"prime batch": 7, "odd batch": 9}[kind]
    plan = solve(
        small_dlrm(batch_per_gpu=batch), 4, steps=40, job={"server": to.Server(gpus=1)}
    )  # fmt: skip
    assert plan.global_batch == 4 * batch
    assert all(plan.global_batch % op.sample == 0 for op in plan.parallelization.operators)


@needs_data
@pytest.mark.parametrize("servers", [pytest.param(4, marks=pytest.mark.slow), 7])
def test_a_measured_profile_travels_with_the_plan(servers, tmp_path):
    job = {"profile": MEASURED / "dlrm16.json"}
    plan = solve(to.models.get_model("dlrm-16"), servers, 4, steps=10, job=job)
    assert plan.job.compute["kind"] == "profile"
    assert plan.job.compute["profile"]["file"] == "dlrm16.json"
    assert any("times are looked up" in note for note in plan.notes)


BAD = [
    ({"steps": 1, "seconds": 1.0}, "both"),
    ({"steps": -1}, "steps is -1"),
    ({"seconds": 0.0}, "seconds is 0"),
    ({"seconds": -1.0}, "seconds is -1"),
    ({"seconds": math.nan}, "seconds is nan"),
    ({"seed": -1}, "seed is -1"),
    ({"seed": 2**31}, "seed is 2147483648; give a whole number of 0 to 2147483647"),
    ({"chains": 0}, "chains is 0"),
    ({"faithful": "papre"}, "faithful is 'papre'"),
    ({"faithful": "artifact"}, "bidirectional"),
    ({"baselines": ("switch",)}, "fabric is 'switch'"),
    ({"baselines": ("fat-tree", "fat-tree")}, "'fat-tree' is given twice"),
]


@pytest.mark.parametrize(("options", "said"), BAD, ids=[str(b[0]) for b in BAD])
def test_wrong_options_are_refused_in_one_sentence_before_any_search(options, said):
    searched = []
    options = {"progress": searched.append, "steps": None, **options}
    if options["steps"] is None and "seconds" not in options:
        options["steps"] = 5
    with pytest.raises(to.InputError, match=said) as caught:
        planned(to.Job(small_mlp()), to.Cluster(2, 2, "100Gbps"), **options)
    assert "\n" not in str(caught.value)
    assert searched == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0, 2, "100Gbps"), "servers is 0"),
        ((-3, 2, "100Gbps"), "servers is -3"),
        ((4, 0, "100Gbps"), "degree is 0"),
        ((4, 2, "100"), "names no unit"),
        ((4, 2, 100), "bandwidth is 100, which without a unit is bytes/s; .* '100Gbps', or '100B"),
        ((4, 2, "0Gbps"), "greater than zero"),
        ((4, 2, "-5Gbps"), "greater than zero"),
        ((4, 2, "nanGbps"), "finite number"),
        ((4, 2, math.nan), "finite number"),
        ((4, 2, "100Gbps", "both"), "ports is 'both'"),
        ((4, 2, "100Gbps", "directed", "-1us"), "latency"),
        (
            (4, 2, "100Gbps", "directed", 1),
            "latency is 1, which without a unit is seconds; .* '1us",
        ),
        ((2.5, 2, "100Gbps"), "servers is 2.5"),
        ((4, True, "100Gbps"), "degree is True"),
    ],
)
def test_wrong_clusters_are_refused(arguments, said):
    with pytest.raises(to.InputError, match=said):
        to.Cluster(*arguments)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_per_gpu": 0}, "batch_per_gpu is 0"),
        ({"batch_per_gpu": -4}, "batch_per_gpu is -4"),
        ({"batch_per_gpu": 1.5}, "batch_per_gpu is 1.5"),
        ({"optimizer": "lion"}, "optimizer is 'lion'"),
    ],
)
def test_wrong_jobs_are_refused(options, said):
    with pytest.raises(to.InputError, match=said):
        to.Job(small_mlp(), **options)
