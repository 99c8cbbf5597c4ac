"""Fabrics whose routes are made on demand take the times of those with tables of all pairs."""

import gc
import pickle
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InputError
from parallelism.taskgraph import TaskGraph, TaskKind, traffic_of
from routing import routes as routes_module
from topoopt.evaluate.routed import direct_fabric
from topoopt.fabric import Fabric, loads, route_rows, score, simulate
from topoopt.fabric.jitter import jittered
from topoopt.fabric.loads import link_bytes
from topoopt.fabric.packets import expected_events
from topoopt.fabric.used_pairs import listing, pairs_in_use
from topoopt.problem.routing import Routing
from topoopt.topology.fabrics import ideal_switch, merged_fat_tree, random_regular
from topoopt.topology.finder import find_topology

SERVERS = 8
GROUPS = ((0, 1, 2, 3), (2, 4, 6), tuple(range(SERVERS)))


def tasks_of(pairs, groups):
    tasks = [(TaskKind.TRANSFER, a, b, 1e6 * (1 + a + b), 0.0) for a, b in pairs]
    tasks += [(TaskKind.ALLREDUCE, group, -1, 3e6, 0.0) for group in groups]
    return TaskGraph.from_lists(SERVERS, tasks, [], GROUPS)


def made(which, tasks):
    if which == "switch":
        return Fabric("switch", *ideal_switch(SERVERS, 1e9, 1e-6))
    if which == "tree":
        return Fabric("tree", *merged_fat_tree(SERVERS, 1e9, 1e-6))
    if which == "random":
        rng = np.random.default_rng(3)
        return Fabric("random", *random_regular(SERVERS, 3, 1e9, 1e-6, rng))
    topology = find_topology(traffic_of(tasks), 3, 1e9)
    return direct_fabric(topology, Routing(which), tasks=tasks)


KINDS = ("switch", "tree", "random", "ecmp", "k-shortest", "mcf")


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda p: p[0] != p[1]),
            min_size=1, max_size=8),
    st.sets(st.integers(0, 2)),
)  # fmt: skip
def test_routes_on_demand_change_nothing(which, pairs, groups):
    tasks = tasks_of(sorted(pairs), sorted(groups))
    whole = made(which, tasks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routes_module, "EVERY_PAIR_UP_TO", 0)
        patch.setattr(route_rows, "MADE_AT_ONCE", 3)
        some = made(which, tasks)
        assert some.routes.pairs is not None
        own = listing(some, tasks)
        for fabric in (some, own, pickle.loads(pickle.dumps(some))):
            assert simulate(fabric, tasks).makespan == simulate(whole, tasks).makespan
            assert np.allclose(link_bytes(fabric, tasks), link_bytes(whole, tasks), rtol=1e-12)
        assert jittered(some, tasks, 2).mean == jittered(whole, tasks, 2).mean
        assert expected_events(some, tasks) == pytest.approx(expected_events(whole, tasks), 1e-12)
        moves, edges = pairs_in_use(some, tasks)
        assert np.array_equal(moves, np.unique([a * SERVERS + b for a, b in pairs]))
        used = moves if own.ring_routes is not None else np.union1d(moves, edges)
        assert np.array_equal(own.routes.listed, used)


def test_bytes_of_links_add_up_part_by_part(monkeypatch):
    tasks = tasks_of([(a, b) for a in range(SERVERS) for b in range(SERVERS) if a != b], [1])
    fabric = made("random", tasks)
    whole = link_bytes(fabric, tasks)
    monkeypatch.setattr(loads, "MADE_AT_ONCE", 5)
    assert np.allclose(link_bytes(fabric, tasks), whole, rtol=1e-12)


def test_of_many_hosts_only_the_routes_of_chosen_rings_are_kept(monkeypatch):
    tasks = tasks_of([], [0, 1, 2])
    whole = made("random", tasks)
    monkeypatch.setattr(routes_module, "EVERY_PAIR_UP_TO", 0)
    some = made("random", tasks)
    some.prepare(GROUPS)
    edges = [some.ring_edges(group) for group in GROUPS]
    for group, pairs in zip(GROUPS, edges, strict=True):
        assert some.rings_of(group) == whole.rings_of(group)
        assert np.array_equal(pairs, whole.ring_edges(group))
    taken = np.unique(np.concatenate([pairs.ravel() for pairs in edges]))
    begin, end = whole.rows.entries(taken)
    assert taken.size < SERVERS * (SERVERS - 1)
    assert some.rows.used == (end - begin).sum()


def test_a_pair_that_is_not_listed_has_no_route():
    tasks = tasks_of([(0, 5)], [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routes_module, "EVERY_PAIR_UP_TO", 0)
        own = listing(made("random", tasks), tasks)
    every = [a * SERVERS + b for a in range(SERVERS) for b in range(SERVERS) if a != b]
    a, b = divmod(int(np.setdiff1d(every, own.routes.listed)[0]), SERVERS)
    with pytest.raises(InputError, match=f"no route {a}->{b}"):
        simulate(own, tasks_of([(a, b)], []))


def test_a_fabric_that_nothing_names_is_freed_at_once():
    # Its arrays are megabytes, and garbage is looked for by numbers of objects, not by bytes.
    network, routes = ideal_switch(4, 1e9, 1e-6)
    fabric = Fabric("switch", network, routes)
    assert np.all(fabric.rows.lags(np.arange(1, 4)) > 0.0)
    freed = weakref.ref(fabric)
    collected = gc.isenabled()
    gc.disable()
    try:
        del fabric
        assert freed() is None
    finally:
        if collected:
            gc.enable()


@pytest.mark.parametrize("model", ["fluid", "packet"])
def test_fewer_servers_than_hosts_find_their_routes(model, monkeypatch):
    tasks = TaskGraph.from_lists(
        5, [(TaskKind.TRANSFER, *pair, 1e6, 0.0) for pair in ((2, 4), (4, 1))], [(0, 1)]
    )
    whole = made("random", tasks)
    monkeypatch.setattr(routes_module, "EVERY_PAIR_UP_TO", 0)
    some = made("random", tasks)
    assert some.routes.pairs is not None
    for run in (score, lambda *given, model: jittered(*given, 2, model=model).mean):
        assert run(some, tasks, model=model) == run(whole, tasks, model=model)
