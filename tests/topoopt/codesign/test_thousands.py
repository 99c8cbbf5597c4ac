"""A whole plan on thousands of servers."""

import pytest

import topoopt as to
from topoopt.evaluate.scoring import SEARCH_TOLERANCE


@pytest.mark.slow
def test_a_plan_on_4096_servers_holds() -> None:
    job = to.Job(to.models.get_model("resnet50"))
    cluster = to.Cluster(4096, 4, "100Gbps")
    plan = to.co_optimize(job, cluster, to.SearchOptions(effort="quick"))
    assert len(plan.links) == 4096 * 4
    assert plan.routes.pairs == []
    assert set(plan.baselines) == {"ideal-switch", "fat-tree"}
    assert plan.gap < 0.01
    ideal = plan.baselines["ideal-switch"].iteration_time_s
    assert plan.lower_bound_s <= ideal * (1 + SEARCH_TOLERANCE)
    report = to.verify_plan(plan)
    assert report.ok, report
