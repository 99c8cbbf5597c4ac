"""Several searches of one job: derived seeds, the best kept, checkpoints."""

import json
from dataclasses import replace

import pytest
from small_plans import planned, small_dlrm

import topoopt.codesign.once
import topoopt.codesign.restarts
from codesign_base import InputError
from parallelism.models.presets import get_model
from topoopt import Cluster, Job, co_optimize, verify_plan
from topoopt.problem.options import SearchOptions
from topoopt.problem.seeds import restart_seed

JOB = Job(small_dlrm(2, bottom_layers=1, top_layers=1))
CLUSTER = Cluster(servers=4, degree=2, bandwidth="10Gbps")
BASELINES = ("fat-tree", "expander")
ALONE = SearchOptions(steps=12, confirm="none")
ASKED = {"seed": 3, "steps": 12, "confirm": "none", "restarts": 3, "baselines": BASELINES}


@pytest.fixture(scope="module")
def plan():
    return planned(JOB, CLUSTER, **ASKED)


def test_seeds_are_derived_and_differ():
    seeds = [restart_seed(seed, k) for seed in range(20) for k in range(20)]
    assert len(set(seeds)) == len(seeds)
    assert [restart_seed(seed, 0) for seed in range(3)] == [0, 1, 2]
    assert max(seeds) < 2**31


def test_the_best_of_the_searches_is_kept(plan):
    alone = [
        co_optimize(JOB, CLUSTER, ALONE, seed=restart_seed(3, k), baselines=BASELINES)
        for k in range(3)
    ]
    times = [each.time_s for each in alone]
    best = times.index(min(times))
    assert (plan.search.options.restarts, plan.search.restart, plan.search.first_seed) == (
        3,
        best,
        3,
    )
    assert plan.seed == restart_seed(3, best)
    for name in ("iteration_time_s", "links", "routes", "parallelization", "gap_parts"):
        assert getattr(plan, name) == getattr(alone[best], name)
    for name, baseline in plan.baselines.items():
        found = [each.baselines[name].packet_time_s for each in alone]
        expected = found[best] if name == "expander" else min(found)
        assert baseline.packet_time_s == expected
    assert verify_plan(plan).ok
    for changed in ({"seed": plan.seed + 1}, {"search": replace(plan.search, first_seed=4)}):
        (failure,) = verify_plan(replace(plan, **changed)).failures
        assert failure.startswith("search: seed is ")
    assert "best of 3 searches from seed 3" in plan.summary(details=True)


def test_the_order_in_which_searches_end_changes_no_fabric_compared_with():
    """Of finds that take equally long the first search's counts, not that of the first to end."""
    asked = {"steps": 12, "confirm": "none", "baselines": BASELINES}
    plans = {k: planned(JOB, CLUSTER, seed=restart_seed(3, k), **asked) for k in range(3)}
    fastest = topoopt.codesign.restarts._baselines
    backwards = dict(reversed(plans.items()))
    for best in plans:
        assert fastest(backwards, best) == fastest(plans, best)


def test_what_other_searches_find_on_a_wiring_that_their_seeds_draw_is_not_taken_over():
    job, cluster = Job(get_model("vgg16-16")), Cluster(8, 3, "10Gbps")
    asked = {"steps": 3, "confirm": "none", "restarts": 3, "baselines": ["xpander"]}
    plan = planned(job, cluster, seed=1, **asked)
    assert verify_plan(plan).ok


def test_finds_are_compared_by_packets_where_all_state_them(plan):
    own = plan.baselines["fat-tree"]
    flows = replace(own, iteration_time_s=0.9 * own.iteration_time_s)
    slower = replace(flows, packet_time_s=1.1 * own.packet_time_s)
    untold = replace(flows, packet_time_s=None)
    for other, kept in ((slower, own), (untold, untold)):
        plans = {0: plan, 1: replace(plan, baselines={"fat-tree": other})}
        found = topoopt.codesign.restarts._baselines(plans, 0)["fat-tree"]
        assert found.packet_time_s == kept.packet_time_s
        assert found.iteration_time_s == kept.iteration_time_s


@pytest.mark.slow
def test_workers_do_not_change_the_plan(plan):
    assert planned(JOB, CLUSTER, workers=2, **ASKED) == plan


@pytest.mark.slow
def test_a_checkpoint_skips_finished_searches(plan, tmp_path, monkeypatch):
    path = tmp_path / "search.json"
    once = topoopt.codesign.once.optimize_once
    made = []

    def counted(asked, **options):
        made.append(asked.seed)
        if len(made) == 3:
            raise KeyboardInterrupt
        return once(asked, **options)

    monkeypatch.setattr(topoopt.codesign.restarts, "optimize_once", counted)
    partial = planned(JOB, CLUSTER, **ASKED, checkpoint=path)
    assert partial.search.interrupted
    assert verify_plan(partial).ok
    assert sorted(json.loads(path.read_text())["answers"]) == ["0", "1"]
    assert planned(JOB, CLUSTER, **ASKED, checkpoint=path) == plan
    assert made[3:] == [restart_seed(3, 2)]
    assert planned(JOB, CLUSTER, **ASKED, checkpoint=path) == plan
    more = planned(JOB, CLUSTER, **{**ASKED, "restarts": 4}, checkpoint=path)
    assert len(made) == 5
    assert more.iteration_time_s <= plan.iteration_time_s


def test_a_search_that_is_cut_short_is_not_kept(tmp_path):
    path = tmp_path / "search.json"
    count = 0

    def progress(report):
        nonlocal count
        count += report.stage == "search"
        if count == 15:
            raise KeyboardInterrupt

    plan = planned(JOB, CLUSTER, **ASKED, checkpoint=path, progress=progress)
    assert plan.search.interrupted
    assert sorted(json.loads(path.read_text())["answers"]) == ["0"]
    assert not (tmp_path / "search.json.search-0").exists()  # it is over


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"restarts": 0}, "restarts is 0"),
        ({"restarts": True}, "restarts is True"),
        ({"workers": 0}, "workers is 0"),
        ({"engine": "cloud"}, "engine is 'cloud'"),
    ],
)
def test_bad_numbers_are_refused(changes, reason):
    with pytest.raises(InputError, match=reason):
        planned(JOB, CLUSTER, **{**ASKED, **changes})


def test_checkpoints_of_other_questions_are_refused(plan, tmp_path):
    path = tmp_path / "search.json"
    question = {"seed": 3, "steps": 2, "checkpoint": path}
    first = planned(JOB, CLUSTER, **question)
    assert planned(JOB, CLUSTER, **question) == first
    for changes in ({"steps": 3}, {"seed": 4}, {"chains": 2}, {"baselines": ()}):
        with pytest.raises(InputError, match="of another question"):
            planned(JOB, CLUSTER, **{**question, **changes})
    other = Cluster(servers=4, degree=2, bandwidth="25Gbps")
    with pytest.raises(InputError, match="of another question"):
        planned(JOB, other, **question)
    plan.save(path)
    with pytest.raises(InputError, match="not a checkpoint"):
        planned(JOB, CLUSTER, **question)
    path.write_text(path.read_text()[:100])
    with pytest.raises(InputError):
        planned(JOB, CLUSTER, **question)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ray_finds_the_same_plan(plan):
    pytest.importorskip("ray")
    assert planned(JOB, CLUSTER, workers=2, engine="ray", **ASKED) == plan
