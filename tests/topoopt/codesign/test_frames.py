"""Tables and figures of results: one row a thing, and the numbers of the thing itself."""

import sys
from dataclasses import replace

import pytest
from small_plans import shared_plan, small_dlrm, small_mlp

import topoopt as to
from codesign_base import InputError
from topoopt.codesign.comparison import Comparison, FabricResult
from topoopt.codesign.designs import Design, Point
from topoopt.codesign.exploration import Exploration
from topoopt.report.comparison_page import comparison_answer

pandas = pytest.importorskip("pandas")
FAST = to.SearchOptions(steps=5, confirm="none")
BASELINES = ("ideal-switch",)
CLUSTERS = [to.Cluster(4, degree, "100Gbps") for degree in (1, 2)]


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    jobs = {"tables": to.Job(small_dlrm()), "towers": to.Job(small_mlp())}
    return jobs, folder, to.sweep(jobs, CLUSTERS, FAST, folder=folder, baselines=BASELINES)


@pytest.mark.slow
def test_a_sweep_has_one_row_a_plan_with_the_numbers_of_the_plan(swept):
    jobs, folder, table = swept
    assert table.job.tolist() == ["tables", "tables", "towers", "towers"]
    assert table.degree.tolist() == [1, 2, 1, 2]
    for row in table.itertuples():
        plan = to.load_plan(row.plan)
        assert (row.time_s, row.gap, row.cost_usd) == (plan.time_s, plan.gap, plan.cost_usd)
        assert plan.cluster.degree == row.degree and plan.job.model.name == jobs[row.job].model.name
    alone = to.co_optimize(jobs["towers"], CLUSTERS[1], FAST, baselines=BASELINES)
    assert table.time_s[3] == alone.time_s
    assert len(list(folder.iterdir())) == 4


def test_a_sweep_goes_on_where_it_was_stopped_and_workers_change_nothing(swept, monkeypatch):
    jobs, folder, table = swept
    removed = folder / table.plan[2].rsplit("/", 1)[-1]
    removed.unlink()
    seen, made = [], []
    real = to.co_optimize
    monkeypatch.setattr(
        "topoopt.codesign.sweep.co_optimize",
        lambda *given, **named: made.append(given) or real(*given, **named),
    )
    again = to.sweep(jobs, CLUSTERS, FAST, folder=folder, baselines=BASELINES, progress=seen.append)
    pandas.testing.assert_frame_equal(again, table)
    assert len(made) == 1 and removed.exists()
    assert [report.done for report in seen] == [1, 2, 3, 4]
    assert seen[-1].best == table.time_s.min()


def test_jobs_by_numbers_keep_them_and_have_files(tmp_path):
    # A mapping by batch size: 0 was taken for no name, and numbers were none of a file.
    keys = [0, 2.5, ("a", 1), "b/c" * 100]
    jobs = dict.fromkeys(keys, to.Job(small_dlrm()))
    table = to.sweep(jobs, CLUSTERS[0], FAST, folder=tmp_path, baselines=())
    assert table.job.tolist() == keys
    assert all(to.load_plan(name) for name in table.plan) and table.plan.nunique() == 4


def test_what_is_known_of_no_row_is_a_number(swept):
    *_, table = swept
    assert (table.tokens_per_s * 1e-6).isna().all()


def test_another_question_is_planned_again(swept):
    jobs, folder, _ = swept
    before = set(folder.iterdir())
    other = to.sweep(
        jobs["tables"], CLUSTERS[0], replace(FAST, steps=6), folder=folder, seeds=[1],
        baselines=BASELINES,
    )  # fmt: skip
    new = set(folder.iterdir()) - before
    assert [str(path) for path in new] == other.plan.tolist()
    new.pop().unlink()


def test_what_has_no_answer_is_a_row_that_says_why():
    huge = to.Job(to.models.dlrm(tables=2, rows=10**11))
    table = to.sweep([huge, to.Job(small_dlrm())], CLUSTERS[1], FAST, baselines=())
    assert "memory" in table.infeasible[0] and table.infeasible[1] == ""
    assert pandas.isna(table.time_s[0]) and table.time_s[1] > 0


def test_a_sweep_refuses_a_folder_that_cannot_be_made(tmp_path):
    with pytest.raises(InputError, match="cannot be made"):
        to.sweep(to.Job(small_dlrm()), CLUSTERS, folder=tmp_path / "no" / "where")


def test_a_plan_has_a_row_a_fabric():
    plan = shared_plan()
    table = plan.to_frame()
    assert table.fabric.tolist() == ["topoopt", *plan.baselines]
    for row in table.iloc[1:].itertuples():
        base = plan.baselines[row.fabric]
        assert row.time_s == base.time_s and row.relative_time == plan.relative_time(base)
    assert table.relative_time[0] == 1.0 and table.time_s[0] == plan.time_s


COMPARED = Comparison(
    "job", 4, 2, 0.5,
    (
        FabricResult("topoopt", 1.0, 1.25, 1.0, 10.0, 1e9, "search"),
        FabricResult("fat-tree", 2.0, None, 2.0, None, 1e9, "plan"),
    ), 0, 5, "0",
)  # fmt: skip
EXPLORED = Exploration(
    "job", "time",
    tuple(
        Design(Point(4, d, 12.5e9, cost), state, "", 1e-6, time, None, time, 1)
        for d, cost, state, time in (
            (1, 10.0, "planned", 3.0), (2, 20.0, "planned", 4.0), (3, 30.0, "planned", 1.0),
            (4, 40.0, "infeasible", None),
        )
    ), 0.0, False, 0, "0",
)  # fmt: skip


def test_comparisons_and_grids_have_a_row_a_fabric_and_a_design():
    table = COMPARED.to_frame()
    assert table.time_s.tolist() == [1.25, 2.0] and table.fabric.tolist() == ["topoopt", "fat-tree"]
    table = EXPLORED.to_frame()
    assert table.frontier.tolist() == [True, False, True, False]
    assert table.degree.tolist() == [1, 2, 3, 4]


def test_a_comparison_names_the_fastest_fabric_by_times_of_one_model():
    ours, flows = COMPARED.fabrics
    # Its time of flows is below ours of packet trains, but not below ours of flows.
    for relative_time, words in (
        (1.0, "the fastest of 2 fabrics"),
        (0.999, "none of 2 fabrics takes 1% less"),
        (0.8, "the fastest is fat-tree with 1.1"),
    ):
        rival = replace(flows, iteration_time_s=1.1, relative_time=relative_time)
        assert words in comparison_answer(replace(COMPARED, fabrics=(ours, rival)))


@pytest.mark.parametrize("found", [COMPARED, EXPLORED])
def test_results_are_printed_as_their_summary(found):
    assert str(found) == found.summary()


def test_figures_show_the_numbers():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    bars = COMPARED.plot()
    assert [bar.get_width() for bar in bars.patches] == [1250.0, 2000.0]
    assert bars.lines[0].get_xdata()[0] == 500.0
    beaten, best = EXPLORED.plot().lines
    assert beaten.get_xydata().tolist() == [[20.0, 4e6]]
    assert best.get_xydata().tolist() == [[10.0, 3e6], [30.0, 1e6]]
    assert best.axes.get_xscale() == "log"
    # No two names of designs lie on each other, nor outside the figure.
    axes = best.axes
    axes.figure.canvas.draw()
    one, other = (text.get_window_extent() for text in axes.texts)
    assert not one.overlaps(other) and other.x1 < axes.get_window_extent().x1
    # What costs nothing is drawn, too.
    free = replace(EXPLORED.designs[0], point=replace(EXPLORED.designs[0].point, cost_usd=0.0))
    axes = replace(EXPLORED, designs=(free, *EXPLORED.designs[1:])).plot()
    assert axes.lines[1].get_xydata().tolist() == [[0.0, 3e6], [30.0, 1e6]]
    assert axes.get_xlim()[0] <= 0.0
    pyplot.close("all")


@pytest.mark.parametrize(
    ("module", "made"),
    [("pandas", COMPARED.to_frame), ("matplotlib.pyplot", EXPLORED.plot)],
)
def test_what_is_not_installed_is_said(module, made, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"{module.split('.')[0]} is not installed; .*topoopt\["):
        made()
