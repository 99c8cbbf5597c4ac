"""Grids of clusters: the frontier, pruning by bounds, limits, the store, the command."""

import json
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_plans import small_dlrm
from typer.testing import CliRunner

import topoopt as to
from codesign_base import InfeasibleError, InputError
from topoopt.cli.app import app
from topoopt.codesign import pareto
from topoopt.codesign.designs import (
    Design,
    DesignObjective,
    Limits,
    Point,
    frontier,
    none_planned,
    parse_counts,
)
from topoopt.codesign.exploration import Exploration
from topoopt.codesign.pareto import Grid, choose_degree, explore
from topoopt.problem.options import SearchOptions
from topoopt.problem.prices import default_prices, direct_connect_cost

JOB = to.Job(
    small_dlrm(
        2, rows=1000, batch_per_gpu=32, bottom_width=64, bottom_layers=1, top_width=128,
        top_layers=1,
    )
)  # fmt: skip
GRID = Grid((2, 4), (1, 2), ("40Gbps", "100Gbps"))
FEW = SearchOptions(steps=2, confirm="none")
NONE = SearchOptions(steps=0, confirm="none")


@pytest.fixture(scope="module")
def pruned():
    return explore(JOB, GRID, FEW)


def _design(cost: float, time: float) -> Design:
    return Design(Point(1, 1, 1.0, cost), "planned", time_per_sample_s=time)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=12))
def test_the_frontier_is_what_none_beats(pairs):
    designs = [_design(cost, time) for cost, time in pairs]
    kept = {(d.point.cost_usd, d.time_per_sample_s) for d in frontier(designs)}
    beaten = {
        (cost, time)
        for (cost, time), (c, t) in product(pairs, pairs)
        if c <= cost and t <= time and (c, t) != (cost, time)
    }
    assert kept == set(pairs) - beaten


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=12))
def test_the_best_of_an_objective_is_on_the_frontier(pairs):
    designs = [_design(cost, time) for cost, time in pairs]
    best = Exploration("m", DesignObjective.COST_TIME, tuple(designs), 0.0, False, 0, "v").best
    assert best is not None
    assert best.value(DesignObjective.COST_TIME) == min(c * t for c, t in pairs)
    assert min(d.value(DesignObjective.COST_TIME) for d in frontier(designs)) == min(
        c * t for c, t in pairs
    )


def test_a_least_gain_drops_small_steps():
    designs = [_design(1, 100), _design(2, 99.5), _design(3, 90)]
    assert [d.point.cost_usd for d in frontier(designs, 0.01)] == [1, 3]


@pytest.mark.slow
def test_pruning_changes_no_frontier_and_every_point_is_told(pruned):
    whole = explore(JOB, GRID, FEW, prune=False)
    assert {d.state for d in whole.designs} == {"planned"}
    assert pruned.frontier == whole.frontier
    assert [d.point for d in pruned.designs] == [d.point for d in whole.designs]
    for design in whole.designs:
        assert design.lower_bound_s_per_sample <= design.time_per_sample_s
        point = design.point
        assert point.cost_usd == direct_connect_cost(
            point.servers, point.degree, point.bandwidth_bytes_per_s, default_prices()
        )
        assert design.samples == point.servers * 4 * 32


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(80, 100)), min_size=9, max_size=9),
    st.integers(0, 15),
    st.sampled_from((0.0, 0.1)),
)
def test_pruning_changes_no_frontier_whatever_a_cluster_costs_and_takes(drawn, slack, gain):
    grid = Grid((2, 3, 4), (1, 2, 3), ("100Gbps",))
    points = dict(zip(product(grid.servers, grid.degrees), drawn, strict=True))

    def plan(job, cluster, *_, **__):
        seconds = job.family(cluster.servers).batch * points[cluster.servers, cluster.degree][1]
        return SimpleNamespace(
            iteration_time_s=seconds, time_s=seconds, lower_bound_s=seconds, packet_time_s=None,
            parallelization=None, origin="", search=SimpleNamespace(interrupted=False),
        )  # fmt: skip

    def bound(family, cluster, **_):
        time = points[cluster.servers, cluster.degree][1]
        return SimpleNamespace(seconds=family.batch * (time - slack))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pareto, "direct_connect_cost", lambda n, d, *_: float(points[n, d][0]))
        patched.setattr(pareto, "co_optimize", plan)
        patched.setattr(pareto, "everything_bound", bound)
        patched.setattr(pareto, "parallelization_text", lambda *_: "")
        pruned, whole = (
            explore(JOB, grid, NONE, least_gain=gain, prune=prune) for prune in (True, False)
        )
    assert pruned.frontier == whole.frontier


def test_designs_are_the_plans_of_their_clusters():
    options = SearchOptions(steps=2, effort="quick")
    found = explore(JOB, Grid((4,), (2,), ("100Gbps",)), options, seed=3)
    plan = to.co_optimize(JOB, to.Cluster(4, 2, "100Gbps"), options, seed=3, baselines=())
    assert found.designs[0].iteration_time_s == plan.iteration_time_s
    assert found.designs[0].packet_time_s == plan.packet_time_s
    assert found.designs[0].time_per_sample_s == plan.packet_time_s / plan.global_batch
    assert found.best is found.designs[0]
    assert str(found).splitlines()[2].split()[4:7] == ["packets", "flows", "time"]


def test_numbers_of_numpy_count_as_pythons(tmp_path):
    batch = 4 * 4 * 32
    grid = Grid((4,), (2,), ("100Gbps",))
    same = Grid(np.array([4]), (np.int64(2),), ("100Gbps",))
    assert grid == same and type(same.degrees[0]) is int
    assert Grid((4,), (2,), (np.int64(10**10), np.float64(1e9))).bandwidths == (1e10, 1e9)
    found = explore(JOB, grid, NONE, global_batch=batch, limits=Limits(ports=8), seed=3)
    store = tmp_path / "designs.json"
    again = explore(
        JOB, same, NONE, global_batch=np.int32(batch), limits=Limits(ports=np.int64(8)),
        seed=np.int64(3), store=store,
    )  # fmt: skip
    assert again == found
    assert explore(JOB, grid, NONE, global_batch=batch, seed=3, store=store) == found


def test_one_server_costs_in_a_grid_what_its_plan_says():
    found = explore(JOB, Grid((1, 2), (2,), ("100Gbps",)), SearchOptions(steps=0), server_usd=1e3)
    alone, both = found.designs
    plan = to.co_optimize(
        JOB, to.Cluster(1, 2, "100Gbps"), SearchOptions(steps=0), seed=0, baselines=()
    )
    assert alone.point.servers == 1
    assert alone.point.cost_usd - 1e3 == plan.cost_usd == 0.0
    assert both.point.cost_usd > 2e3


def test_dominated_designs_cannot_be_faster():
    # Compute decides: ports and bandwidth hardly matter, so the bounds rule designs out.
    job = to.Job(to.models.get_model("vgg16-16"))
    grid = Grid((2,), (1, 2), ("100Gbps",))
    pruned = explore(job, grid, NONE, least_gain=0.01)
    assert [d.state for d in pruned.designs].count("dominated") == 1
    whole = explore(job, grid, NONE, prune=False)
    best = pruned.frontier[0].time_per_sample_s
    for design in whole.designs:
        assert design.time_per_sample_s > best * 0.99


def test_limits_and_batches_that_do_not_divide_are_told_not_hidden():
    limits = Limits(ports=4)
    found = explore(JOB, replace(GRID, servers=(2, 3)), NONE, limits=limits, global_batch=64)
    by_state = {}
    for design in found.designs:
        by_state.setdefault(design.state, set()).add((design.point.servers, design.point.degree))
    assert by_state == {"planned": {(2, 1), (2, 2)}, "infeasible": {(3, 1)}, "over-limit": {(3, 2)}}
    assert all(d.samples == 64 for d in found.designs if d.planned)
    assert "global batch 64 does not divide over 12 GPUs" in found.summary()


@pytest.mark.slow
def test_the_store_goes_on_where_it_was_stopped(pruned, tmp_path):
    store = tmp_path / "designs.json"
    planned = []

    def stop_at_third(point, plan):
        if len(planned) == 2:
            raise KeyboardInterrupt
        planned.append(point)

    part = explore(JOB, GRID, FEW, store=store, save_plan=stop_at_third)
    assert part.interrupted
    assert len(part.designs) < len(pruned.designs)
    again = []
    rest = explore(
        JOB,
        GRID,
        FEW,
        store=store,
        save_plan=lambda point, plan: again.append(point),
    )
    assert rest == pruned
    assert not set(again) & set(planned)
    dearer = explore(JOB, GRID, FEW, store=store, server_usd=1000.0)
    assert all(
        d.point.cost_usd == w.point.cost_usd + 1000.0 * d.point.servers
        for w in pruned.designs
        for d in dearer.designs
        if (d.point.servers, d.point.degree, d.point.bandwidth_bytes_per_s)
        == (w.point.servers, w.point.degree, w.point.bandwidth_bytes_per_s)
    )
    with pytest.raises(InputError, match="another question"):
        explore(JOB, GRID, replace(FEW, steps=3), store=store)
    store.write_text("{}")
    with pytest.raises(InputError, match="not a store"):
        explore(JOB, GRID, FEW, store=store)


def test_ports_are_left_unused_where_they_do_not_pay():
    job = to.Job(to.models.get_model("vgg16-16"))
    cluster = to.Cluster(2, 2, "100Gbps")
    found = choose_degree(job, cluster, NONE, objective="cost-time", limits=Limits())
    assert found.best.point.degree == 1
    with pytest.raises(
        InfeasibleError, match=r"the cheapest costs 1,.* over the limit on costs of 1; raise"
    ):
        choose_degree(job, cluster, NONE, objective="time", limits=Limits(cost_usd=1.0))


@pytest.mark.parametrize(
    ("text", "doubling", "expected"),
    [("16..100", True, (16, 32, 64)), ("2..4,8", False, (2, 3, 4, 8)), ("5", True, (5,))],
)
def test_ranges(text, doubling, expected):
    assert parse_counts(text, "servers", doubling=doubling) == expected


@pytest.mark.parametrize("text", ["", "a", "4..2", "0", "1..2..3", "-1", "1.5"])
def test_ranges_that_are_none(text):
    with pytest.raises(InputError, match="servers is"):
        parse_counts(text, "servers", doubling=True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"objective": "cost"},
        {"server_usd": -1.0},
        {"global_batch": 0},
        {"least_gain": 1.0},
    ],
)
def test_wrong_arguments(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        explore(JOB, GRID, SearchOptions(steps=0), **wrong)


def test_the_command(capsys, tmp_path, monkeypatch):
    from topoopt.cli import main

    folder = tmp_path / "plans"  # made by the command
    model = ["dlrm-16", "--servers", "2", "--degree", "1..2", "--bandwidth", "40Gbps"]
    monkeypatch.setattr(
        "sys.argv",
        [
            "topoopt",
            "pareto",
            *model,
            "--steps",
            "0",
            "--effort",
            "quick",
            "--json",
            "-q",
            "--save-plans",
            str(folder),
        ],
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    told = json.loads(capsys.readouterr().out)
    assert len(told["designs"]) == 2
    planned = [d for d in told["designs"] if d["state"] == "planned"]
    assert len(list(folder.glob("*.json"))) == len(planned)
    plan = to.load_plan(folder / "2-servers-1x40Gbps.json")
    assert plan.iteration_time_s == planned[0]["iteration_time_s"]


def test_plans_that_a_store_lacks_are_said_to_be_missing(tmp_path):
    words = ["pareto", "dlrm-16", "--servers", "2", "--degree", "1", "--bandwidth", "40Gbps"]
    words += ["--steps", "0", "-q", "--store", str(tmp_path / "designs.json")]
    assert CliRunner().invoke(app, words).exit_code == 0
    folder = tmp_path / "plans"
    done = CliRunner().invoke(app, [*words, "--save-plans", str(folder)])
    assert done.exit_code == 0 and not list(folder.iterdir())
    assert f"note: {folder} lacks 1 of 1 plan: {tmp_path / 'designs.json'} holds" in done.stderr
    (tmp_path / "designs.json").unlink()
    done = CliRunner().invoke(app, [*words, "--save-plans", str(folder)])
    assert len(list(folder.iterdir())) == 1 and "lacks" not in done.stderr
    done = CliRunner().invoke(app, [*words, "--save-plans", str(folder)])
    assert "lacks" not in done.stderr  # all are there from before


def test_two_rates_are_two_plans(tmp_path):
    words = ["pareto", "dlrm-16", "--servers", "2", "--degree", "1", "--steps", "0", "-q"]
    rates = "100.00001Gbps,100.00002Gbps"
    words += ["--bandwidth", rates, "--no-prune", "--save-plans", str(tmp_path), "--json"]
    done = CliRunner().invoke(app, words)
    told = {d["bandwidth_bytes_per_s"] for d in json.loads(done.stdout)["designs"]}
    kept = {to.load_plan(path).cluster.bandwidth_bytes_per_s for path in tmp_path.iterdir()}
    assert len(kept) == 2 and kept == told


def test_a_grid_without_a_plan_ends_with_the_reason():
    words = ("pareto", "dlrm-16", "--servers", "2", "--degree", "2,3", "--bandwidth", "40Gbps")
    done = CliRunner().invoke(app, [*words, "--max-cost", "1", "--json"])
    told = json.loads(done.stdout)
    assert told["frontier"] == [] and {d["state"] for d in told["designs"]} == {"over-limit"}
    assert isinstance(done.exception, InfeasibleError)
    cost = min(design["cost_usd"] for design in told["designs"])
    assert str(done.exception) == (
        f"no design is planned: the cheapest costs {cost:,.0f} USD, over the limit on costs of 1; "
        "raise that limit"
    )
    fits_none = Design(Point(4, 2, 1e9, 10.0), "infeasible", "it does not fit")
    costly = Design(Point(8, 2, 1e9, 99.0), "over-limit", "has 16 ports, over the limit of 8")
    assert none_planned([costly, fits_none]) == (
        "no design is planned: it does not fit; the cheapest of the others has 16 ports, over the "
        "limit of 8; raise that limit"
    )
    assert none_planned([costly, replace(fits_none, state="planned")]) == none_planned([]) == ""
