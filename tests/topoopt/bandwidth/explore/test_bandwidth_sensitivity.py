"""Sensitivity: against questions asked afresh, and against the shadow prices."""

import pytest

from codesign_base import InputError
from topoopt.bandwidth.allocate import allocate_bandwidth
from topoopt.bandwidth.explore.sensitivity import relative_change, sensitivity
from topoopt.bandwidth.model.builtin import builtin_workload
from topoopt.bandwidth.model.cost import GBYTE, CostModel, LevelPrice
from topoopt.bandwidth.model.network import parse_network
from topoopt.bandwidth.solve.problem import AllocationObjective
from topoopt.bandwidth.solve.question import Question

NETWORK = parse_network("RI(4)_FC(8)_SW(32)")
JOB = builtin_workload("gpt-3", 32)


def ask(budget="500GB/s", rates=(), **options):
    return allocate_bandwidth(NETWORK, JOB, Question(budget=budget, **options), rates=rates)


def test_rows_equal_questions_asked_afresh():
    answer = ask(constraints=("b0 <= 300", "b0 >= 2 b1"))
    rows = sensitivity(answer, (-0.2, 0.1))
    named = {(row.what, row.change): row for row in rows}
    assert ("b0 >= 2 b1", 0.1) not in named
    for change, budget, cap in ((-0.2, "400GB/s", 300), (0.1, "550GB/s", 300)):
        row = named["sum(b) == 500GB/s", change]
        again = ask(budget, constraints=(f"b0 <= {cap}", "b0 >= 2 b1"))
        assert row.solution.time == pytest.approx(again.solution.time, rel=1e-6)
        assert row.solution.cost == pytest.approx(again.solution.cost, rel=1e-3)
        assert row.solution.gap <= 1e-7
    again = ask(constraints=("b0 <= 330", "b0 >= 2 b1"))
    assert named["b0 <= 300", 0.1].solution.time == pytest.approx(again.solution.time, rel=1e-6)


def test_prices_change_the_optimum_of_time_and_cost():
    answer = ask(objective=AllocationObjective.TIME_COST, npu_cost=1000.0)
    rows = {(row.what, row.change): row for row in sensitivity(answer, (0.5,))}
    base = answer.question.prices
    level = base.levels["InterPod"]
    dear = CostModel("dear", {**base.levels, "InterPod": LevelPrice(
        level.link, level.switch * 1.5, level.nic)}, 1000.0)  # fmt: skip
    again = ask(objective=AllocationObjective.TIME_COST, cost=dear)
    assert rows["price of InterPod switch", 0.5].solution.primal == pytest.approx(
        again.solution.primal
    )
    again = ask(objective=AllocationObjective.TIME_COST, npu_cost=1500.0)
    assert rows["price of an NPU", 0.5].solution.primal == pytest.approx(again.solution.primal)
    assert {what for what, _ in rows} == {
        "sum(b) == 500GB/s", "price of InterPackage link", "price of InterNode link",
        "price of InterPod link", "price of InterPod switch", "price of InterPod NIC",
        "price of an NPU",
    }  # fmt: skip


def test_small_changes_follow_the_shadow_price():
    answer = ask()
    (row,) = [r for r in sensitivity(answer, (1e-3,)) if r.what.startswith("sum")]
    price = answer.shadow_prices[0]
    saved = (answer.solution.time - row.solution.time) * 1e3
    assert saved == pytest.approx(price.value * 0.5, rel=1e-2)


def test_limits_of_cost_and_time_are_scaled_as_written():
    answer = ask("<= 500GB/s", constraints=("cost <= 5e7",), npu_cost=5000.0)
    (row,) = [r for r in sensitivity(answer, (0.2,)) if r.what.startswith("cost")]
    again = ask("<= 500GB/s", constraints=("cost <= 6e7",), npu_cost=5000.0)
    assert row.solution.time == pytest.approx(again.solution.time, rel=1e-6)
    late = ask("<= 900GB/s", objective=AllocationObjective.COST, deadline=2 * answer.solution.time)
    rows = [r for r in sensitivity(late, (-0.9, 0.1)) if r.what == "deadline"]
    assert rows[0].solution is None
    assert "deadline" in rows[0].message
    assert rows[1].solution.cost < late.solution.cost


def test_rates_are_kept():
    answer = ask("<= 500GB/s", rates=("25,50,100,200,400GB/s",))
    rows = [r for r in sensitivity(answer, (-0.5, 1.0)) if r.what.startswith("sum")]
    for row in rows:
        assert all(round(b / GBYTE, 6) in (25, 50, 100, 200, 400) for b in row.solution.bandwidth)
    assert rows[0].solution.time > answer.solution.time > rows[1].solution.time


def test_changes_out_of_range_are_refused():
    with pytest.raises(InputError, match="change of -1"):
        sensitivity(ask(), (-1.0,))
    assert relative_change(1.0, 0.0) is None
    assert relative_change(1.5, 1.0) == 0.5
