"""What collectives take at least: below every schedule that is simulated, and found by search."""

import heapq
import itertools

import networkx as nx
import numpy as np
import pytest
from fabric_cases import random_fabric
from hypothesis import given, settings
from hypothesis import strategies as st
from message_schedules import A, G, R, T, by_messages
from random_iterations import random_tasks
from small_cases import BATCH, FakeCompute, FakeServer, jobs

from parallelism.builder import TaskGraphBuilder
from parallelism.taskgraph import TaskGraph
from topoopt.bounds.bounds import space_bound, strategy_bound
from topoopt.bounds.collectives import farthest, least_member_bytes, link_bytes_each
from topoopt.bounds.port_uses import port_uses
from topoopt.bounds.relaxation import Wirings
from topoopt.bounds.wired import collective_bound, routes_bound, topology_bound
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.simulation import score
from topoopt.topology.fabrics import ideal_switch

LAG = 2e-6  # announced, and sent, over one hop of random_fabric


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    jobs(sizes=(2, 3, 4, 6, 8)),
    st.integers(1, 3),
    st.sampled_from([30.0, 1e3, 1e4, 1e6, 1e9]),
    st.integers(0, 2**32 - 1),
)
def test_no_schedule_of_messages_beats_the_bounds_of_a_job(job, degree, bandwidth, seed):
    graph, strategy, servers = job
    builder = TaskGraphBuilder(graph, FakeCompute(fixed=0.02), FakeServer(), servers, BATCH)
    rng = np.random.default_rng(seed)
    fabric = random_fabric(servers, degree, bandwidth, rng)
    tasks = builder.build(strategy)
    time = score(fabric, by_messages(tasks, rng))
    for bound in (
        space_bound(builder, Wirings(servers, degree, bandwidth, LAG)),
        strategy_bound(tasks, degree, bandwidth, LAG),
        topology_bound(fabric, tasks),
        routes_bound(fabric, tasks),
    ):
        assert bound.seconds <= time
    assert collective_bound(fabric, tasks).seconds <= score(fabric, tasks)


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from([A, R, G]),
    st.sampled_from([0.0, 1e2, 1e5, 1e8]),
    st.integers(1, 3),
    st.integers(0, 2**32 - 1),
)
def test_no_schedule_of_messages_beats_the_bounds_of_some_collectives(kind, size, degree, seed):
    rng = np.random.default_rng(seed)
    servers = int(rng.integers(2, 9))
    fabric = random_fabric(servers, degree, 1e9, rng)
    groups = tuple(
        tuple(sorted(rng.choice(servers, rng.integers(1, servers + 1), replace=False).tolist()))
        for _ in range(3)
    )
    rows = [(kind, int(g), -1, size * rng.random(), 0.0) for g in rng.integers(0, 3, 3)]
    ends = rng.permutation(servers)[:2].tolist()
    rows.append((T, ends[0], ends[1], size, 0.0))
    tasks = TaskGraph.from_lists(servers, rows, [(0, 1)], groups)
    time = score(fabric, by_messages(tasks, rng))
    for bound in (
        strategy_bound(tasks, degree, 1e9, LAG),
        topology_bound(fabric, tasks),
        routes_bound(fabric, tasks),
    ):
        assert bound.seconds <= time


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_each_level_of_fixed_choices_is_below_rings(seed):
    rng = np.random.default_rng(seed)
    tasks = random_tasks(rng)
    fabric = random_fabric(6, 2, 1e6, rng)
    time = score(fabric, tasks)
    for bound in (topology_bound, routes_bound, collective_bound):
        assert bound(fabric, tasks).seconds <= time


def least_cost(distance, kind):
    """Least sum of distances over all sequences of messages of one number a member (Dijkstra).

    A member knows sums of some members' numbers, and may send one that it can add up.
    """
    count = len(distance)
    everybody = frozenset(range(count))

    def sums(known):
        found = set(known)
        while True:
            more = {a | b for a in found for b in found if not a & b} - found
            if not more:
                return found
            found |= more

    def done(state):
        if kind == A:
            return all(everybody in known for known in state)
        if kind == R:  # of the part of member 0
            return everybody in state[0]
        return all(frozenset([0]) in known for known in state)

    start = tuple(frozenset([frozenset([member])]) for member in range(count))
    heap, best, number = [(0, 0, start)], {start: 0}, itertools.count(1)
    while heap:
        cost, _, state = heapq.heappop(heap)
        if done(state):
            return cost
        if cost > best[state]:
            continue
        for a, b in itertools.permutations(range(count), 2):
            for message in sums(state[a]) - state[b]:
                known = frozenset(sums({*state[b], message}))
                after = (*state[:b], known, *state[b + 1 :])
                paid = cost + int(distance[a, b])
                if paid < best.get(after, np.inf):
                    best[after] = paid
                    heapq.heappush(heap, (paid, next(number), after))
    raise AssertionError("nothing is reached")


@pytest.mark.parametrize("seed", range(12))
def test_link_bytes_are_below_the_least_by_search_and_equal_it_where_all_are_as_far(seed):
    rng = np.random.default_rng(seed)
    for count in (2, 3):
        distance = rng.integers(1, 5, (count, count))
        if seed < 3:
            distance[:] = seed + 1
        np.fill_diagonal(distance, 0)
        for column, kind in enumerate((A, R, G)):
            bound = link_bytes_each((tuple(range(count)),), distance)[0, column]
            if kind == A:
                least = least_cost(distance, A)
            else:  # each member in turn is the one whose part it is
                turns = [np.roll(np.arange(count), -v) for v in range(count)]
                least = sum(least_cost(distance[np.ix_(t, t)], kind) for t in turns) / count
            assert bound <= least + 1e-12
            if seed < 3:
                assert bound == pytest.approx(least)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_the_farthest_is_no_nearer_than_said(degree):
    assert farthest(1, degree) == 0
    assert farthest(np.array([2, 3]), degree).tolist() == [1, 1 if degree > 1 else 2]
    for servers in (4, 9, 15):
        network = random_fabric(servers, degree, 1.0, np.random.default_rng(servers)).network
        graph = nx.DiGraph(zip(network.source.tolist(), network.target.tolist(), strict=True))
        lengths = dict(nx.all_pairs_shortest_path_length(graph))
        for members in range(2, servers + 1):
            for start in range(servers):
                reached = sorted(lengths[start].values())[members - 1]
                assert farthest(members, degree) <= reached
    # A full tree is that shallow.
    tree = nx.balanced_tree(degree, 3, create_using=nx.DiGraph)
    assert farthest(tree.number_of_nodes(), degree) == 3


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_ports_of_servers_and_groups_by_plain_loops(seed):
    rng = np.random.default_rng(seed)
    tasks = random_tasks(rng)
    sent, received = least_member_bytes(tasks, np.arange(tasks.tasks))
    rate = rng.integers(1, 5, tasks.servers).astype(float)
    for into, use in enumerate(port_uses(tasks)):
        found = {}
        for task, at, size in zip(use.task, use.ports, use.size, strict=True):
            found[int(task), int(at)] = found.get((int(task), int(at)), 0.0) + size
        sets = [use.members[a:b].tolist() for a, b in itertools.pairwise(use.offsets.tolist())]
        assert sets[: tasks.servers] == [[v] for v in range(tasks.servers)]
        assert use.rates(rate).tolist() == [rate[each].sum() for each in sets]
        expected = {}
        for task in range(tasks.tasks):
            for at, servers in enumerate(sets):
                amount, size = 0.0, tasks.size[task]
                if tasks.kind[task] == T:
                    end = tasks.second[task] if into else tasks.first[task]
                    amount = size * (end in servers)
                elif tasks.kind[task] == A:
                    group = tasks.groups[tasks.first[task]]
                    inside = len(set(group) & set(servers))
                    amount = inside * (received if into else sent)[task]
                    if inside == len(group) > 1:
                        amount = 2 * (inside - 1) * size
                if amount > 0:
                    expected[task, at] = amount
        assert found == pytest.approx(expected)


def test_members_send_and_receive_what_they_must():
    rows = [(kind, group, -1, 12.0, 0.0) for kind in (A, R, G) for group in (0, 1)]
    tasks = TaskGraph.from_lists(3, rows, [], ((0, 1, 2), (2,)))
    sent, received = least_member_bytes(tasks, np.arange(6))
    assert sent.tolist() == [12, 0, 8, 0, 4, 0]
    assert received.tolist() == [12, 0, 4, 0, 8, 0]


def test_a_member_of_several_groups_may_be_a_leaf_of_all_their_trees():
    """Then it sends three buffers, where by rings it would send four."""
    groups = ((0, 1, 2), (0, 3, 4), (0, 5, 6))
    size, chunks = 1e6, 16
    tasks = TaskGraph.from_lists(7, [(A, g, -1, size, 0.0) for g in range(3)], [], groups)
    rows, edges = [], []
    for _, root, other in groups * chunks:
        at, part = len(rows), size / chunks
        rows += [(T, a, b, part, 0.0) for a, b in ((0, root), (other, root))]
        rows += [(T, a, b, part, 0.0) for a, b in ((root, 0), (root, other))]
        edges += [(at + a, at + b) for a in (0, 1) for b in (2, 3)]
        if at >= 12:  # part by part
            edges += [(at - 12 + a, at + a) for a in (0, 1)]
    fabric = Fabric("switch", *ideal_switch(7, 1e9, 1e-9), {})
    time = score(fabric, TaskGraph.from_lists(7, rows, sorted(edges), ()))
    by_rings = collective_bound(fabric, tasks).terms["link"]
    for bound in (strategy_bound(tasks, 1, 1e9, 2e-9), topology_bound(fabric, tasks)):
        assert 0.75 * time < bound.seconds <= time
        assert bound.seconds == pytest.approx(0.75 * by_rings, rel=0.02)
