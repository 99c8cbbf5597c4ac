"""Trees of the best rate: cuts by enumeration, capacities, and collectives done on numbers."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from collective_oracle import check, gathered, least_flow, least_ratio, reduced
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import circulant_network, network_of

from codesign_base import InfeasibleError, InputError
from routing.collectives import member_links
from routing.collectives.choice import choose_schedules
from routing.collectives.cuts import Cuts
from routing.collectives.forest import gather_forest
from routing.collectives.rate import gather_rate, whole_capacities
from routing.collectives.reduce_broadcast import REDUCE_BROADCAST
from routing.collectives.rings import ring_forest, strided_rings
from routing.collectives.shortest import shortest_forest
from routing.collectives.trees import turned
from routing.collectives.waves import waves_of

GIGA = 1e9


@st.composite
def networks(draw):
    """Hosts on several random rings, so that all nodes receive as much as they send."""
    nodes = draw(st.integers(3, 7))
    orders = draw(st.lists(st.permutations(range(nodes)), min_size=1, max_size=3))
    arcs = [pair for order in orders for pair in pairwise([*order, order[0]])]
    hosts = draw(st.integers(2, nodes))
    members = draw(st.lists(st.integers(0, hosts - 1), min_size=2, max_size=hosts, unique=True))
    return network_of(arcs, hosts, nodes - hosts), sorted(members)


@given(networks())
@settings(deadline=None, max_examples=60)
def test_trees_reach_the_smallest_ratio_of_all_cuts(case) -> None:
    network, members = case
    rate = gather_rate(network, members)
    assert rate.bytes_per_s == pytest.approx(least_ratio(network, members))
    forest = gather_forest(network, members)
    assert forest.bytes_per_s == rate.bytes_per_s
    assert check(network, forest) <= 1.0 + 1e-12
    for other in (
        shortest_forest(network, members),
        ring_forest(network, strided_rings(network, members, 1)),
        ring_forest(network, strided_rings(network, members, 4)),
    ):
        assert check(network, other) == pytest.approx(1.0)
        assert other.bytes_per_s <= forest.bytes_per_s * (1 + 1e-12)
        # All links have the same latency, so fewest hops are fastest.
        least = shortest_forest(network, members).latency(network)
        assert other.latency(network) >= least * (1 - 1e-12)


@given(networks(), st.floats(1.0, 1e8), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=40)
def test_hop_by_hop_no_byte_leaves_before_it_is_there(case, size, seed) -> None:
    network, members = case
    draw = np.random.default_rng(seed)
    links = network.source.size
    network = replace(
        network, capacity=GIGA * draw.integers(1, 4, links), latency=draw.uniform(0, 1e-3, links)
    )
    ends = list(zip(network.source.tolist(), network.target.tolist(), strict=True))
    capacity = dict(zip(ends, network.capacity.tolist(), strict=True))
    latency = dict(zip(ends, network.latency.tolist(), strict=True))
    for forest in (
        shortest_forest(network, members),
        ring_forest(network, strided_rings(network, members, 4)),
    ):
        waves = waves_of(network, forest)
        spans = waves.spans(size)
        for (_, before), (begin, end) in pairwise(spans):
            assert before <= begin <= end
        part = size / len(members) / forest.units
        sent = Counter()
        for tree in forest.trees:
            came, hop = {tree.root: (-1.0, -1.0)}, {tree.root: 0}
            for path in tree.paths:
                first_and_last, at = came[path[0]], hop[path[0]]
                for pair in pairwise(path):
                    # Both grow in a line, so the first and the last byte tell of all others.
                    assert spans[at][0] >= first_and_last[0] - 1e-12
                    assert spans[at][1] >= first_and_last[1] - 1e-12
                    sent[at, pair] += part * tree.copies
                    first_and_last = tuple(when + latency[pair] for when in spans[at])
                    at += 1
                came[path[-1]], hop[path[-1]] = first_and_last, at
                assert first_and_last[1] <= waves.time(size) * (1 + 1e-12)
        for (at, pair), amount in sent.items():
            begin, end = spans[at]
            rounding = 4 * np.spacing(end)  # of the difference between two times
            assert amount <= capacity[pair] * ((end - begin) * (1 + 1e-9) + rounding)


def test_latency_and_sending_overlap_hop_by_hop() -> None:
    # Sending takes about as long as the latency of the longest way.
    network, size = circulant_network(256, (1, 7, 37, 101), GIGA), 2e4
    forest = shortest_forest(network, range(256))
    least = size * 255 / 256 / 4 / GIGA  # every server receives all other parts over four links
    assert forest.latency(network) > least
    assert waves_of(network, forest).time(size) <= 1.5 * max(least + 1e-6, forest.latency(network))
    assert waves_of(network, forest).time(size) < 0.9 * (least + forest.latency(network))


@given(networks(), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=40)
def test_an_allreduce_over_trees_adds_all_numbers_once(case, seed) -> None:
    network, members = case
    forests = gather_forest(turned(network), members), gather_forest(network, members)
    draw = np.random.default_rng(seed)
    units = forests[0].units
    buffers = {m: {root: draw.integers(0, 999, units) for root in members} for m in members}
    sums = reduced(forests[0], buffers)
    for root in members:
        assert np.array_equal(sums[root], sum(buffers[member][root] for member in members))
    assert forests[1].units > 0
    parts = {root: draw.integers(0, 999, forests[1].units) for root in members}
    for held in gathered(forests[1], parts).values():
        assert held == {(r, u): parts[r][u] for r in members for u in range(forests[1].units)}


@given(networks(), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60)
def test_a_broadcast_reaches_the_smallest_cut_behind_its_root(case, seed) -> None:
    network, members = case
    root = members[seed % len(members)]
    for collective, on in (("broadcast", network), ("reduce", turned(network))):
        # One cut alone limits each member; trees reach the least of them (Edmonds, 1973).
        least = least_flow(on, members, root)
        choice = choose_schedules(network, members, collective, root)
        assert choice.rate_bound == pytest.approx(least)
        forests = {s.name: s.gather or s.scatter for s in choice.schedules}
        assert forests["trees"].bytes_per_s == pytest.approx(least)
        for schedule in choice.schedules:
            forest = forests[schedule.name]
            assert schedule.bytes_per_s == pytest.approx(forest.bytes_per_s)
            check(on, forest, [root])
            assert schedule.latency_s >= choice.latency_bound * (1 - 1e-12)
        draw = np.random.default_rng(seed)
        forest = forests["trees"]
        if collective == "broadcast":
            part = draw.integers(0, 999, forest.units)
            for held in gathered(forest, {root: part}).values():
                assert held == {(root, unit): part[unit] for unit in range(forest.units)}
        else:
            buffers = {m: {root: draw.integers(0, 999, forest.units)} for m in members}
            total = sum(buffers[m][root] for m in members)
            assert np.array_equal(reduced(forest, buffers)[root], total)


@given(networks(), st.floats(1.0, 1e10))
@settings(deadline=None, max_examples=12)
def test_no_schedule_is_below_the_bound_and_the_best_is_the_least(case, size) -> None:
    network, members = case
    for collective in ("allreduce", "allgather", "reduce-scatter"):
        choice = choose_schedules(network, members, collective)
        times = {s.name: s.time(size) for s in choice.schedules}
        assert min(times.values()) >= choice.bound(size) * (1 - 1e-12)
        assert choice.best(size).time(size) == min(times.values())
        rates = {s.name: s.bytes_per_s for s in choice.schedules if s.name != "add-all"}
        assert max(rates.values()) <= rates["trees"] * (1 + 1e-12)
        steps = choice.crossings()
        fastest = [s for at, s in steps if at <= size][-1]
        assert fastest.time(size) == pytest.approx(min(times.values()), rel=1e-8)


@pytest.mark.parametrize(
    ("members", "most"),
    [
        pytest.param(range(16), 1.01, marks=pytest.mark.slow),
        pytest.param([8 * i for i in range(16)], 1.01, marks=pytest.mark.slow),
        ([3, 40, 77, 101], 1.02),
    ],
    ids=["contiguous", "strided", "scattered"],
)
def test_a_gigabyte_on_128_servers_takes_what_the_cuts_say(members, most) -> None:
    choice = choose_schedules(
        circulant_network(128, (1, 9, 27, 61), GIGA), list(members), "allreduce"
    )
    trees = next(s for s in choice.schedules if s.name == "trees")
    assert choice.best(1e9).name in ("trees", REDUCE_BROADCAST)
    assert choice.best(1e9).time(1e9) >= choice.bound(1e9)
    assert 1.0 <= trees.time(1e9) / choice.bound(1e9) <= most
    ring = next(s for s in choice.schedules if s.name == "ring")
    assert ring.time(1e9) > 3.9 * trees.time(1e9)


def test_rates_of_known_networks() -> None:
    # One ring: each member's part passes every link, so rates share it.
    assert gather_rate(circulant_network(8, (1,), GIGA), range(8)).bytes_per_s == pytest.approx(
        GIGA / 7
    )
    # A full mesh of four: three links a member, three other members.
    mesh = network_of([(a, b) for a in range(4) for b in range(4) if a != b], 4)
    assert gather_rate(mesh, range(4)).bytes_per_s == pytest.approx(GIGA)
    # Eight hosts on a switch: what enters a host limits it.
    star = network_of([(h, 8) for h in range(8)] + [(8, h) for h in range(8)], 8, 1)
    assert gather_rate(star, range(8)).bytes_per_s == pytest.approx(GIGA / 7)
    assert gather_forest(star, range(8)).bytes_per_s == pytest.approx(GIGA / 7)
    # Two pods of two hosts over a link of half the speed (ForestColl's kind of bottleneck).
    pods = network_of(
        [(0, 4), (1, 4), (4, 0), (4, 1), (2, 5), (3, 5), (5, 2), (5, 3), (4, 5), (5, 4)], 4, 2,
        [GIGA] * 8 + [0.5 * GIGA] * 2,
    )  # fmt: skip
    rate = gather_rate(pods, range(4))
    assert rate.bytes_per_s == pytest.approx(GIGA / 4)
    assert set(rate.cut) in ({0, 1, 4}, {2, 3, 5})
    check(pods, gather_forest(pods, range(4)))


def test_a_forwarder_that_sends_less_than_it_receives_is_left_out_where_it_can_be() -> None:
    # The ring of three does; host 3 only receives.
    network = network_of([(0, 1), (1, 2), (2, 0), (0, 3), (1, 3)], 4)
    forest = gather_forest(network, [0, 1, 2])
    assert forest.bytes_per_s == pytest.approx(GIGA / 2)
    check(network, forest)


def test_refusals() -> None:
    network = circulant_network(4, (1,), GIGA)
    for group in ([0], [0, 0], [0, 4], [-1, 2]):
        with pytest.raises(InputError, match="give"):
            gather_rate(network, group)
    with pytest.raises(InfeasibleError, match="cannot be reached"):
        gather_rate(network_of([(0, 1), (1, 2), (2, 1)], 3), [0, 1])
    with pytest.raises(InfeasibleError, match="cannot be reached"):
        shortest_forest(network_of([(0, 1), (1, 2), (2, 1)], 3), [0, 1])
    with pytest.raises(InfeasibleError, match="cannot be reached"):
        ring_forest(network_of([(0, 1), (1, 2), (2, 1)], 3), [(0, 1)])
    with pytest.raises(InputError, match="other hosts"):
        ring_forest(network, [(0, 1), (0, 2)])
    with pytest.raises(InputError, match="choose allreduce"):
        choose_schedules(network, [0, 1], "gather")
    odd = network_of([(0, 1), (1, 0)], 2, capacity=[1e9, 1e9 / 3])
    with pytest.raises(InputError, match="common unit"):
        gather_rate(odd, [0, 1])


def test_units_are_the_greatest_common_divisor() -> None:
    network = network_of([(0, 1), (1, 0)], 2, capacity=[12.5e9, 50e9])
    unit, capacity = whole_capacities(network)
    assert unit == 12.5e9
    assert capacity == {(0, 1): 1, (1, 0): 4}
    assert gather_rate(network, [0, 1]).per_root == Fraction(1)


@given(networks(), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=40)
def test_after_a_link_fails_there_are_trees_again(case, seed) -> None:
    network, members = case
    left = np.arange(network.links) != seed % network.links
    broken = replace(
        network, source=network.source[left], target=network.target[left],
        capacity=network.capacity[left], latency=network.latency[left],
        multiplicity=network.multiplicity[left],
    )  # fmt: skip
    for collective, root in (("allreduce", None), ("broadcast", members[seed % len(members)])):
        try:
            gather_rate(broken, members)
        except InfeasibleError:
            with pytest.raises(InfeasibleError, match="cannot be reached"):
                choose_schedules(broken, members, collective, root)
            continue
        choice = choose_schedules(broken, members, collective, root)
        schedule = next(s for s in choice.schedules if s.name in ("trees", "joint-trees"))
        assert schedule.time(1e9) >= choice.bound(1e9) * (1 - 1e-12)
        for forest, on in ((schedule.scatter, turned(broken)), (schedule.gather, broken)):
            if forest is not None:
                check(on, forest, [root] if root is not None else members)
                best = gather_rate(on, members, root).bytes_per_s
                assert forest.bytes_per_s <= best * (1 + 1e-12)
                # The linear program, which is solved to 5 %, has these trees, too.
                for other in (
                    shortest_forest(on, members, root),
                    ring_forest(on, strided_rings(on, members, 4), root),
                ):
                    assert other.bytes_per_s <= forest.bytes_per_s * 1.06


def test_one_network_is_cut_for_all_links_of_a_tree(monkeypatch) -> None:
    made: list[Cuts] = []

    class Counted(Cuts):
        def __init__(self, capacity) -> None:
            super().__init__(capacity)
            made.append(self)

    monkeypatch.setattr("routing.collectives.forest.Cuts", Counted)
    network = circulant_network(24, (1, 5))
    trees = gather_forest(network, range(24)).trees
    # Another one only where copies of a tree part.
    assert len(made) <= 2 * len(trees) < sum(len(tree.paths) for tree in trees) / 4


@pytest.mark.parametrize("collective", ["allreduce", "allgather", "reduce-scatter"])
def test_trees_over_too_many_others_are_left_out(collective, monkeypatch) -> None:
    network = circulant_network(24, (1, 5), GIGA)
    whole = choose_schedules(network, range(8), collective)
    monkeypatch.setattr(member_links, "MOST_WORK", 1000)
    with pytest.raises(member_links.TooMuchWorkError, match="choose a group of all hosts"):
        gather_forest(network, range(8))
    choice = choose_schedules(network, range(8), collective)
    left = [each for each in whole.schedules if each.name != "trees"]
    assert len(left) == len(whole.schedules) - 1
    assert [each.name for each in choice.schedules] == [each.name for each in left]
    assert [each.time(1e6) for each in choice.schedules] == [each.time(1e6) for each in left]
    assert choice.bound(1e6) == whole.bound(1e6)
    # Nobody is taken out where all are members.
    everybody = choose_schedules(network, range(24), collective)
    assert "trees" in [each.name for each in everybody.schedules]
