"""What was found for other fabrics becomes the plan where it is faster."""

import pytest

import topoopt as to
from topoopt.codesign import once
from topoopt.search import operators


@pytest.mark.parametrize(
    ("servers", "bandwidth", "confirm"),
    [
        pytest.param(6, "10Gbps", "packet", marks=pytest.mark.slow),
        (5, "25Gbps", "packet"),
        (4, "100Gbps", "none"),
    ],
)
def test_what_is_faster_on_the_expander_is_taken_over(
    servers, bandwidth, confirm, monkeypatch
) -> None:
    # One port a server: both are rings of all servers, so the plan can do what the expander can.
    job, cluster = to.Job(to.models.get_model("dlrm-16")), to.Cluster(servers, 1, bandwidth)
    options = to.SearchOptions(steps=10, confirm=confirm)
    plan = to.co_optimize(job, cluster, options)
    assert plan.packet_time_s <= plan.baselines["expander"].packet_time_s
    assert to.verify_plan(plan).ok
    monkeypatch.setattr(once, "faster_of_others", lambda *_: None)
    before = to.co_optimize(job, cluster, options)
    assert plan.packet_time_s <= before.packet_time_s
    if confirm == "packet":
        assert plan.packet_time_s < before.packet_time_s
        assert plan.search.counts["candidates"] == before.search.counts["candidates"] + 2

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(once, "faster_of_others", stop)
    stopped = to.co_optimize(job, cluster, options)
    assert stopped.search.interrupted
    assert stopped.packet_time_s == before.packet_time_s
    assert to.verify_plan(stopped).ok


def test_what_was_found_for_a_slower_fabric_is_wired_too(monkeypatch) -> None:
    """On a Fat-tree of the same cost tables lie where a plan of few steps had not put them."""
    job, cluster = to.Job(to.models.get_model("dlrm-16")), to.Cluster(6, 2, "10Gbps")
    options, compared = to.SearchOptions(steps=10), ["ideal-switch", "fat-tree"]
    plan = to.co_optimize(job, cluster, options, baselines=compared)
    assert to.verify_plan(plan).ok
    monkeypatch.setattr(once, "faster_of_others", lambda *_: None)
    before = to.co_optimize(job, cluster, options, baselines=compared)
    assert plan.packet_time_s < 0.75 * before.packet_time_s
    # What is found for one fabric is tried on all.
    switch, tree = (plan.baselines[name] for name in compared)
    assert switch.packet_time_s <= tree.packet_time_s


def test_the_order_in_which_fabrics_are_named_changes_nothing() -> None:
    job, cluster = to.Job(to.models.get_model("dlrm-16")), to.Cluster(6, 3, "10Gbps")
    options, compared = to.SearchOptions(steps=10), ["leaf-spine", "fat-tree", "kautz"]
    plan = to.co_optimize(job, cluster, options, baselines=compared)
    other = to.co_optimize(job, cluster, options, baselines=compared[::-1])
    assert (plan.parallelization, plan.links) == (other.parallelization, other.links)
    assert plan.baselines == other.baselines


def test_after_an_interruption_nothing_is_tried_on_other_fabrics(monkeypatch) -> None:
    job, cluster = to.Job(to.models.get_model("dlrm-16")), to.Cluster(4, 1, "100Gbps")
    tried = []
    monkeypatch.setattr(operators, "better_on_baseline", lambda *asked: tried.append(asked))

    def stop(made):
        if made.stage == "packet trains":
            raise KeyboardInterrupt

    plan = to.co_optimize(job, cluster, to.SearchOptions(steps=10), progress=stop)
    assert plan.search.interrupted and plan.baselines and not tried
    assert to.verify_plan(plan).ok


def test_published_searches_and_schedules_keep_their_own() -> None:
    job, cluster = to.Job(to.models.get_model("dlrm-16")), to.Cluster(4, 1, "100Gbps")
    options = to.SearchOptions(steps=10, faithful="paper")
    plan = to.co_optimize(job, cluster, options)
    assert plan.packet_time_s > plan.baselines["expander"].packet_time_s
