"""AllReduces by members that meet, on numbers wave by wave; bounds of distance and bytes."""

from collections import Counter
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from collective_oracle import met
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import circulant_network, network_of

from codesign_base import InfeasibleError
from routing.collectives.bounds import allreduce_rate, distances, rooted_lines, shared_lines
from routing.collectives.choice import choose_schedules
from routing.collectives.meeting import Meetings
from routing.collectives.meeting_kernels import cover
from routing.collectives.shortest import shortest_forest
from routing.collectives.waves import waves_of

GIGA = 1e9


@st.composite
def networks(draw, *, alike=False):
    """Hosts and switches on random rings; links of different latency and, unless alike, rate."""
    nodes = draw(st.integers(3, 9))
    orders = draw(st.lists(st.permutations(range(nodes)), min_size=1, max_size=3))
    arcs = [pair for order in orders for pair in pairwise([*order, order[0]])]
    hosts = draw(st.integers(2, nodes))
    members = draw(st.lists(st.integers(0, hosts - 1), min_size=2, max_size=hosts, unique=True))
    some = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    away = some.uniform(0, 1e-3, (nodes, nodes))
    capacity = GIGA * some.integers(1, 2 if alike else 4, len(arcs))
    latency = [float(away[pair]) for pair in arcs]
    return network_of(arcs, hosts, nodes - hosts, capacity.tolist(), latency), sorted(members)


@given(networks(), st.integers(1, 6), st.integers(0, 6), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60)
def test_every_member_ends_with_the_sum_of_all(case, near, far, seed) -> None:
    network, members = case
    meeting = Meetings(network, members).meeting(near, far)
    draw = np.random.default_rng(seed)
    parts = [{m: int(draw.integers(1 << 40)) for m in members} for _ in range(meeting.parts)]
    for numbers, total in zip(parts, met(network, meeting, parts), strict=True):
        assert total == dict.fromkeys(members, sum(numbers.values()))


@given(networks(), st.integers(1, 6), st.integers(0, 6), st.floats(1.0, 1e8))
@settings(deadline=None, max_examples=40)
def test_links_carry_in_each_wave_what_it_has_time_for(case, near, far, size) -> None:
    network, members = case
    meeting = Meetings(network, members).meeting(near, far)
    spans = meeting.waves.spans(size)
    latency, total = network.latency.tolist(), Counter()
    carried: list[Counter[int]] = [Counter() for _ in spans]
    for (*_, wave), begin, end in zip(
        meeting.messages.tolist(), meeting.offsets[:-1], meeting.offsets[1:], strict=True
    ):
        for now, link in enumerate(meeting.links[begin:end].tolist(), start=wave):
            carried[now][link] += 1
            total[link] += 1
            if now + 1 < len(spans):
                assert spans[now + 1][0] >= spans[now][0] + latency[link] - 1e-12
                assert spans[now + 1][1] >= spans[now][1] + latency[link] - 1e-12
            assert spans[now][1] + latency[link] <= meeting.waves.time(size) + 1e-12
    part = size / meeting.parts
    for (begin, end), amounts in zip(spans, carried, strict=True):
        for link, count in amounts.items():
            assert count * part <= network.capacity[link] * (end - begin) * (1 + 1e-9) + 1e-3
    busiest = max(count * part / network.capacity[link] for link, count in total.items())
    assert meeting.bytes_per_s == pytest.approx(size / busiest)


@given(st.integers(1, 12), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60)
def test_few_columns_are_near_all_rows(n, seed) -> None:
    draw = np.random.default_rng(seed)
    near = draw.random((n, n)) < 0.4
    np.fill_diagonal(near, True)
    cost = draw.permutation(n)
    chosen, left = [], set(range(n))
    while left:
        best = max(range(n), key=lambda c: (sum(near[r, c] for r in left), -cost[c]))
        chosen.append(best)
        left -= {r for r in left if near[r, best]}
    assert cover(near, cost).tolist() == sorted(chosen)


@pytest.mark.parametrize(
    "strides", [(1, 9, 27, 61), pytest.param((1, 39, 47, 67), marks=pytest.mark.slow)]
)
def test_small_buffers_take_at_most_half_more_than_the_bound(strides) -> None:
    network = circulant_network(128, strides, 12.5 * GIGA)
    lines = shared_lines(distances(network, range(128)), "allreduce")
    rate = allreduce_rate(network, range(128))
    forest = shortest_forest(network, range(128))
    waves = waves_of(network, forest)
    met = [meeting.waves for meeting in Meetings(network, range(128)).chosen()]
    for size in np.geomspace(10.0, 1e6, 26).tolist():
        bound = max(size / rate + 1e-6, *(away + each * size for away, each in lines))
        assert min(each.time(size) for each in [*met, waves.times(128)]) <= 1.5 * bound
    # Everybody's buffer to all, and a root for each part, take longer.
    others = min(waves.times(128).time(1e4), 2 * waves.time(1e4))
    assert min(each.time(1e4) for each in met) < 0.7 * others


@pytest.mark.slow
@given(networks(alike=True), st.floats(1.0, 1e8))
@settings(deadline=None, max_examples=40)
def test_no_schedule_is_below_distance_and_bytes_together(case, size) -> None:
    network, members = case
    some = ["allreduce", "allgather", "reduce-scatter", "all-to-all"]
    # Beside switches hosts do not forward what they exchange.
    for collective in some[: 3 if network.switches else 4]:
        choice = choose_schedules(network, members, collective)
        assert choice.best(size).time(size) >= choice.bound(size) * (1 - 1e-9)
    for collective in ("broadcast", "reduce"):
        choice = choose_schedules(network, members, collective, members[-1])
        assert choice.best(size).time(size) >= choice.bound(size) * (1 - 1e-9)


def test_bounds_that_schedules_reach() -> None:
    pair = network_of([(0, 1), (1, 0)], 2)
    away = 1e-6
    for collective, part in (("allreduce", 1.0), ("allgather", 0.5), ("all-to-all", 0.5)):
        choice = choose_schedules(pair, [0, 1], collective)
        for size in (1.0, 1e3, 1e9):
            assert choice.bound(size) == pytest.approx(away + part * size / GIGA)
            assert choice.best(size).time(size) == pytest.approx(choice.bound(size))
    # Along a line the root's bytes go on as they come.
    line = network_of([(0, 1), (1, 2), (2, 3)], 4)
    graph = nx.DiGraph([(0, 1), (1, 2), (2, 3)])
    hops = nx.shortest_path_length(graph, 0, 3)
    assert rooted_lines(distances(line, [0, 1, 2, 3]), 0) == ((hops * away, 1 / GIGA),)


def test_parts_from_afar_come_late() -> None:
    # A directed ring of four: of three parts a quarter each, k come over at least 4 - k links.
    far = distances(circulant_network(4, (1,), GIGA), range(4))
    lines = shared_lines(far, "allgather")
    expected = {(hops * 1e-6, (4 - hops) / 4 / GIGA) for hops in (1, 2, 3)}
    assert {(round(a, 12), b) for a, b in lines} == {(round(a, 12), b) for a, b in expected}


def test_members_that_cannot_meet() -> None:
    with pytest.raises(InfeasibleError, match="host 0 cannot be reached from host 1"):
        Meetings(network_of([(0, 1), (1, 2), (2, 1)], 3), [0, 1])
