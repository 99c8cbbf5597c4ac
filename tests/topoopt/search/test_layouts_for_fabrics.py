"""Layouts that are tried on a fabric to compare with because of estimates on its own ports."""

import networkx as nx
import numpy as np
import pytest
from small_plans import planned, small_layout_job

import topoopt as to
from parallelism.transformers.choices import Choices
from routing.network import Network
from topoopt.baselines.baselines import baseline_fabrics
from topoopt.evaluate.problem import Problem
from topoopt.problem.options import SearchOptions
from topoopt.problem.prices import default_prices
from topoopt.search import further_layouts
from topoopt.search.layouts import LayoutSearch

SERVERS = 8
CLUSTER = to.Cluster(SERVERS, 2, "50Gbps")
CHOICES = Choices(tensor=(1, 2, 8), context=(1,), zero=(1,), schedules=("1f1b", "eager-1f1b"))


@pytest.fixture(scope="module")
def search():
    job = to.Job(to.load_transformer("llama3-8b"), global_batch=128, choices=CHOICES)
    options = SearchOptions(simulated=4)
    return LayoutSearch(Problem(job.family(SERVERS), CLUSTER, options, 0))


@pytest.fixture(scope="module")
def result(search):
    return search.run()


@pytest.fixture(scope="module")
def candidates(result, search):
    return search._candidates


def bases(*names):
    return baseline_fabrics(names, CLUSTER, default_prices(), 0, 1e-5)


def test_slower_fabrics_have_layouts_of_their_own(search, result, monkeypatch):
    """Of a small search, whose four layouts suit fast ports, both were slower by 6 to 13 %."""
    several = bases("fat-tree", "expander")

    def found():
        search.compare_with(several)
        return [search.best_on(base, result).time for base in several]

    fitted = found()
    monkeypatch.setattr("topoopt.search.layouts.for_fabric", lambda *_: [])
    assert all(time < 0.95 * before for time, before in zip(fitted, found(), strict=True))


def test_they_have_the_least_estimates_and_differ(search, candidates):
    (base,) = bases("fat-tree")
    family = search.family
    found = further_layouts.for_fabric(search.problem, candidates, base.fabric)
    assert len(found) == further_layouts._FITTED

    def least(layout):
        return min(family.estimate(one, base.bandwidth) for one in family.placements(layout))

    for each in found:
        assert each.estimate_s == pytest.approx(max(least(each.layout), each.bound.seconds))
    assert [each.estimate_s for each in found] == sorted(each.estimate_s for each in found)
    first = min(candidates, key=lambda each: max(least(each.layout), each.bound.seconds))
    assert found[0].estimate_s == pytest.approx(least(first.layout))
    assert len({each.layout for each in found}) == len(found)


def test_none_are_chosen_for_ports_as_fast_as_the_ideal_switch(search, candidates):
    (base,) = bases("ideal-switch")
    assert further_layouts.for_fabric(search.problem, candidates, base.fabric) == []


def test_rates_are_those_of_all_links_where_some_stand_for_others():
    """Of two servers a 2:1 Fat-tree keeps the links above racks, rails keep one of all."""
    small = to.Cluster(2, 4, "50Gbps")
    for name, ports in (("oversubscribed-fat-tree", 1), ("rail", 4), ("rail-only", 4)):
        (base,) = baseline_fabrics((name,), small, default_prices(), 0)
        assert further_layouts._rate(base.fabric.wired) == pytest.approx(ports * base.bandwidth)
    plan = planned(small_layout_job(), small, simulated=4, baselines=("oversubscribed-fat-tree",))
    assert to.verify_plan(plan).ok


def network_of(graph, hosts):
    source, target = np.array(graph.edges).T
    return Network.from_links("some", hosts, len(graph) - hosts, source, target, 2.0, 1e-6)


def test_rates_count_the_hops_of_what_is_forwarded():
    """By networkx: a ring both ways, a Petersen graph, and a star of servers round a switch."""
    for graph in (nx.cycle_graph(7), nx.petersen_graph()):
        sent = 2.0 * len(graph[0])
        hops = nx.average_shortest_path_length(graph)
        rate = further_layouts._rate(network_of(graph.to_directed(), len(graph)))
        assert rate == pytest.approx(further_layouts._USED * sent / hops)
    star = nx.relabel_nodes(nx.star_graph(5), {0: 5, 5: 0}).to_directed()
    assert further_layouts._rate(network_of(star, 5)) == 2.0
