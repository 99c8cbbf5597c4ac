"""What plans are compared with unasked, and what they say of fabrics left out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import topoopt as to
from codesign_base import InfeasibleError, InputError
from parallelism.taskgraph import TaskGraph, TaskKind
from topoopt.baselines import baselines
from topoopt.baselines.baselines import EXPANDER_UP_TO, PLAN_BASELINES, usual_baselines
from topoopt.fabric import IDEAL, Fabric, score
from topoopt.plan.notes import left_out_notes
from topoopt.problem.prices import PriceTable, default_prices
from topoopt.topology.fabrics import even_fat_tree, fat_tree


def random_iteration(rng, hosts):
    """Return passes, transfers and AllReduces of random sizes that wait for each other."""
    order = rng.permutation(hosts)
    cuts = np.sort(rng.choice(np.arange(1, hosts), 2, replace=False))
    groups = tuple(tuple(sorted(part.tolist())) for part in np.split(order, cuts))
    tasks = []
    for kind in rng.integers(3, size=60).tolist():
        size = float(rng.uniform(1e6, 4e6))
        if kind == 0:
            tasks.append((TaskKind.COMPUTE, int(rng.integers(hosts)), -1, 1e-3, 0.0))
        elif kind == 1:
            a, b = rng.choice(hosts, 2, replace=False).tolist()
            tasks.append((TaskKind.TRANSFER, a, b, size, 0.0))
        else:
            tasks.append((TaskKind.ALLREDUCE, int(rng.integers(3)), -1, size, 0.0))
    edges = [(a, b) for b in range(60) for a in range(b) if rng.random() < 0.02]
    return TaskGraph.from_lists(hosts, tasks, edges, groups)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([5, 9, 14, 20, 23]))
def test_links_above_hosts_of_a_full_fat_tree_never_bind(seed, hosts):
    tasks = random_iteration(np.random.default_rng(seed), hosts)
    whole = Fabric("whole", *fat_tree(hosts, 1e9, 0.0), {}, transport=IDEAL)
    quick = Fabric("quick", *even_fat_tree(hosts, 1e9, 0.0), {}, transport=IDEAL)
    assert score(quick, tasks) == pytest.approx(score(whole, tasks), rel=1e-9)


def test_hosts_of_an_even_fat_tree_are_as_far_apart_as_in_different_pods():
    routes = [make(20, 1e9, 1e-6)[1] for make in (fat_tree, even_fat_tree)]
    apart = np.array([host * 20 + 19 - host for host in range(9)])
    whole, even = (each.of(apart) for each in routes)
    np.testing.assert_allclose(even.latency, whole.latency, rtol=1e-12)
    np.testing.assert_allclose(even.hops, whole.hops, rtol=1e-12)
    assert routes[0].latency.max() == pytest.approx(even.latency.min())


def test_fat_trees_of_many_servers_say_where_distances_are_alike(monkeypatch):
    monkeypatch.setattr(baselines, "MERGED_UP_TO", 8)
    cluster = to.Cluster(servers=20, degree=4, bandwidth="100Gbps", latency="1us")
    tree, taper = (
        baselines.baseline_fabric(name, cluster, default_prices(), 0)
        for name in ("fat-tree", "oversubscribed-fat-tree")
    )
    assert "as far apart" in tree.note and "as far apart" not in taper.note
    assert tree.fabric.rotation.hosts == 1 and taper.fabric.rotation is None
    full = to.Cluster(servers=16, degree=4, bandwidth="100Gbps")
    exact = baselines.baseline_fabric("fat-tree", full, default_prices(), 0)
    assert "as far apart" not in exact.note and exact.fabric.network.switches > 1


def test_a_network_that_costs_nothing_has_no_fat_tree_of_its_cost():
    free = dict.fromkeys(default_prices().usd, ((10000000000.0, 0.0), (50000000000.0, 0.0)))
    free["switch-port"] = ((1e10, 200.0), (5e10, 400.0))
    cluster = to.Cluster(servers=4, degree=2, bandwidth="100Gbps")
    with pytest.raises(InputError, match=r"'own'.* no fat-tree costs the same; give"):
        baselines.baseline_fabric("fat-tree", cluster, PriceTable("own", free), 0)


def test_an_expander_of_thousands_of_servers_is_left_out_and_named():
    assert usual_baselines(EXPANDER_UP_TO) == PLAN_BASELINES
    usual = usual_baselines(EXPANDER_UP_TO + 1)
    assert usual == ("ideal-switch", "fat-tree")
    (note,) = left_out_notes(4096, usual)
    assert "expander" in note and "4,096" in note


def test_nothing_is_said_of_fabrics_that_were_asked_for_or_left_out_by_name():
    assert left_out_notes(EXPANDER_UP_TO, PLAN_BASELINES) == []
    assert left_out_notes(4096, PLAN_BASELINES) == []
    assert left_out_notes(4096, ()) == []
    assert left_out_notes(4096, ("fat-tree",)) == []


@pytest.mark.parametrize("given, asked", [(None, PLAN_BASELINES), ((), ()), (["fat-tree"],) * 2])
def test_a_sweep_compares_with_what_is_asked_and_unasked_with_the_usual(monkeypatch, given, asked):
    seen = []

    def stop(*arguments, **options):
        seen.append(tuple(options["baselines"]))
        raise InfeasibleError("enough is known")

    monkeypatch.setattr("topoopt.codesign.sweep.co_optimize", stop)
    job = to.Job(to.models.dlrm(tables=4, batch_per_gpu=32))
    options = {} if given is None else {"baselines": given}
    to.sweep(job, to.Cluster(servers=4, degree=2, bandwidth="100Gbps"), **options)
    assert seen == [tuple(asked)]
