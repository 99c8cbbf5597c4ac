"""Failed cables: survivors, detours, and what an iteration then takes."""

import json
from dataclasses import replace
from itertools import combinations_with_replacement

import networkx as nx
import numpy as np
import pytest
from fabric_oracle import circulant, shortest_routes
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from codesign_base import InfeasibleError, InputError
from parallelism.taskgraph import TaskGraph, TaskKind
from routing.network import Network
from routing.paths import ecmp_routes
from topoopt.base.progress import Progress
from topoopt.cli.app import app
from topoopt.fabric import Fabric, score
from topoopt.fabric.rings import ring_loads
from topoopt.plan.rebuild import rebuild
from topoopt.problem.options import SearchOptions
from topoopt.problem.units import format_time
from topoopt.studies.failures import fail_each, fail_randomly, random_cables
from topoopt.studies.repairs import REPAIRS, detoured, fail_cables, repaired
from topoopt.topology.network_json import network_graph

C, T, A = TaskKind.COMPUTE, TaskKind.TRANSFER, TaskKind.ALLREDUCE


def cables(*links: int) -> np.ndarray:
    return np.array(links, dtype=np.int64)


def test_a_cable_of_two_leaves_half_the_capacity() -> None:
    network = Network.from_links("n", 2, 0, [0, 0, 1], [1, 1, 0], 4.0, 0.1)
    left = fail_cables(network, cables(0))
    assert left.link.tolist() == [0, 1]
    assert left.network.capacity.tolist() == [4.0, 4.0]
    assert left.network.multiplicity.tolist() == [1, 1]
    gone = fail_cables(network, cables(0, 0))
    assert gone.link.tolist() == [-1, 0] and gone.network.links == 1
    with pytest.raises(InputError, match="3 cables of link 0->1 fail, it has 2"):
        fail_cables(network, cables(0, 0, 0))
    with pytest.raises(InputError, match="outside"):
        fail_cables(network, cables(7))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_detours_are_unit_flows_around_the_dead(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hosts = int(rng.integers(4, 10))
    ends = [(i, (i + p) % hosts) for i in range(hosts) for p in (1, 2, 3)]
    source, target = zip(*ends, strict=True)
    network = Network.from_links("c", hosts, 0, source, target, 1.0, 0.25)
    routes = ecmp_routes(network)
    survivors = fail_cables(network, random_cables(network, 2, rng, both_ways=False))
    after = survivors.network
    if not nx.is_strongly_connected(network_graph(after)):
        return
    moved = detoured(routes, network, survivors)
    for a in range(hosts):
        for b in range(hosts):
            links, weights = moved.row(a, b)
            balance = np.zeros(hosts)
            np.add.at(balance, after.source[links], weights)
            np.add.at(balance, after.target[links], -weights)
            expected = np.zeros(hosts)
            if a != b:
                expected[a], expected[b] = 1.0, -1.0
            np.testing.assert_allclose(balance, expected, atol=1e-12)
            pair = a * hosts + b
            assert moved.hops[pair] == pytest.approx(weights.sum())
            assert moved.hops[pair] >= routes.hops[pair] - 1e-12
            assert moved.latency[pair] >= routes.latency[pair] - 1e-12


def test_a_transfer_over_a_dead_link_takes_the_detour() -> None:
    """0 -> 1 dies; the detour 0 -> 2 -> 3 -> 4 -> ... is the way around the ring of steps 1, 2."""
    fabric = circulant(5, (1, 2), capacity=2.0, latency=0.5)
    dead = fabric.network.link(0, 1)
    survivors = fail_cables(fabric.network, cables(dead))
    tasks = TaskGraph.from_lists(5, [(T, 0, 1, 8.0, 0.0)], [])
    shortest = nx.shortest_path_length(network_graph(survivors.network), 0, 1)
    assert shortest == 3
    assert score(fabric, tasks) == pytest.approx(4.5)
    for how in REPAIRS:
        assert score(repaired(fabric, survivors, how), tasks) == pytest.approx(4.0 + 3 * 0.5)


def test_rings_without_the_dead_link_take_over() -> None:
    fabric = circulant(8, (1, 3), capacity=1.0)
    group = tuple(range(8))
    tasks = TaskGraph.from_lists(8, [(A, 0, -1, 8.0, 0.0)], [], (group,))
    survivors = fail_cables(fabric.network, cables(fabric.network.link(0, 1)))
    dropped = repaired(fabric, survivors, "drop-rings")
    assert dropped.rings[group] == (fabric.rings[group][1],)
    assert score(fabric, tasks) == pytest.approx(7.0)
    assert score(dropped, tasks) == pytest.approx(14.0)
    times = {how: score(repaired(fabric, survivors, how), tasks) for how in REPAIRS}
    assert times["new-rings"] <= times["drop-rings"]
    assert all(time > 7.0 for time in times.values())


def test_cables_that_a_rotation_maps_on_each_other_hurt_alike() -> None:
    """Two rings over two cables each: the other ring then carries two parts of three."""
    ends = [(i, (i + p) % 8) for i in range(8) for p in (1, 3) for _ in range(2)]
    source, target = zip(*ends, strict=True)
    network = Network.from_links("c", 8, 0, source, target, 1.0, 0.0)
    group = tuple(range(8))
    rings = {group: tuple(tuple(p * i % 8 for i in range(8)) for p in (1, 3))}
    fabric = Fabric("f", network, ecmp_routes(network), rings)
    tasks = TaskGraph.from_lists(8, [(A, 0, -1, 8e9, 0.0)], [], (group,))
    undamaged = score(fabric, tasks)
    # A server has three of its four cables left in one direction.
    assert [lost.time_s / undamaged for lost in fail_each(fabric, tasks)] == [
        pytest.approx(4 / 3, rel=1e-3)
    ] * 16


@pytest.mark.parametrize("seed", range(8))
def test_new_rings_end_no_later_than_those_that_are_left(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hosts = int(rng.integers(5, 14))
    steps = [p for p in range(1, hosts) if np.gcd(p, hosts) == 1][:3]
    fabric = circulant(hosts, tuple(steps), capacity=1.0)
    group = tuple(range(hosts))
    tasks = TaskGraph.from_lists(hosts, [(A, 0, -1, 8e6, 0.0)], [], (group,))
    network = fabric.network
    failed = random_cables(network, int(rng.integers(1, 3)), rng, both_ways=False)
    survivors = fail_cables(network, failed)
    if not nx.is_strongly_connected(network_graph(survivors.network)):
        return
    times = {how: score(repaired(fabric, survivors, how), tasks) for how in REPAIRS}
    assert times["new-rings"] <= min(times["reroute"], times["drop-rings"]) * (1 + 1e-6)


@pytest.mark.parametrize("case", [21, 73, 83, 97])
def test_parts_of_rings_from_before_are_as_good_whatever_their_order(case: int) -> None:
    """Against every division of a buffer into 16 parts at most, counted out."""
    rng = np.random.default_rng(case)
    hosts, count = int(rng.integers(8, 14)), int(rng.integers(3, 5))
    orders = [tuple(rng.permutation(hosts).tolist()) for _ in range(count)]
    copies = [order for order in orders for _ in range(int(rng.integers(1, 3)))]
    ends = [edge for order in copies for edge in zip(order, np.roll(order, -1), strict=True)]
    network = Network.from_links("n", hosts, 0, *zip(*ends, strict=True), 1.0, 0.0)
    group = tuple(range(hosts))
    survivors = fail_cables(network, random_cables(network, 2, rng, both_ways=False))
    routes = ecmp_routes(survivors.network)
    load = ring_loads(routes, survivors.network.links, np.array(orders))
    load = load / survivors.network.capacity
    least = min(
        np.sum(load[list(parts)], axis=0).max() / len(parts)
        for number in range(1, 17)
        for parts in combinations_with_replacement(range(count), number)
    )
    for given_in in (orders, orders[::-1], orders[1:] + orders[:1]):
        fabric = Fabric("f", network, ecmp_routes(network), {group: tuple(given_in)})
        found = repaired(fabric, survivors, "new-rings")
        kept = ring_loads(found.routes, found.network.links, np.array(found.rings[group]))
        seconds = (kept.sum(axis=0) / found.network.capacity).max() / len(kept)
        assert seconds <= 1.05 * least


def test_what_cannot_be_reached_is_cut_off() -> None:
    fabric = circulant(4, (1,))
    tasks = TaskGraph.from_lists(4, [(T, 0, 1, 1.0, 0.0)], [])
    survivors = fail_cables(fabric.network, cables(0))
    for how in REPAIRS:
        with pytest.raises(InfeasibleError):
            repaired(fabric, survivors, how)
    found = fail_randomly(fabric, tasks, 1, 3)
    assert np.isinf(found.best).all()


def test_both_directions_of_a_cable_fail() -> None:
    ends = [(0, 1), (1, 0), (1, 2), (2, 1), (0, 2), (2, 0)]
    source, target = zip(*ends, strict=True)
    network = Network.from_links("t", 3, 0, source, target, 1.0, 0.0)
    chosen = random_cables(network, 2, np.random.default_rng(0), both_ways=True)
    pairs = {frozenset((int(network.source[c]), int(network.target[c]))) for c in chosen}
    assert chosen.size == 4 and len(pairs) == 2
    for count in (0, 4):
        with pytest.raises(InputError, match="the network has 3"):
            random_cables(network, count, np.random.default_rng(0), both_ways=True)


def test_same_seed_same_trials_and_more_failures_cost_more() -> None:
    fabric = circulant(8, (1, 3), capacity=1.0)
    tasks = TaskGraph.from_lists(8, [(A, 0, -1, 8.0, 0.0)], [], (tuple(range(8)),))
    one, two = (fail_randomly(fabric, tasks, 1, 8, seed=5) for _ in range(2))
    for how in REPAIRS:
        assert one.times[how].tobytes() == two.times[how].tobytes()
    assert one.undamaged == pytest.approx(7.0)
    assert (one.best >= one.undamaged).all()
    three = fail_randomly(fabric, tasks, 3, 8, seed=5)
    assert three.best.mean() > one.best.mean()
    for trials in (0, 10**9):
        with pytest.raises(InputError, match=f"trials is {trials}; give 1 to 100000"):
            fail_randomly(fabric, tasks, 1, trials)
    with pytest.raises(InputError, match="repair is 'pray'"):
        repaired(fabric, fail_cables(fabric.network, cables(0)), "pray")


def test_an_interrupt_keeps_the_trials_so_far() -> None:
    fabric = circulant(8, (1, 3))
    tasks = TaskGraph.from_lists(8, [(T, 0, 4, 1.0, 0.0)], [])

    def stop(made: Progress) -> None:
        assert made.total == 50
        if made.done == 3:
            raise KeyboardInterrupt

    assert len(fail_randomly(fabric, tasks, 1, 50, progress=stop).cables) == 3


@pytest.mark.parametrize("both_ways", [False, True])
def test_each_cable_fails_once_as_when_it_is_drawn(both_ways) -> None:
    ends = {(i, (i + p) % 5) for i in range(5) for p in (1, 2)}
    if both_ways:
        ends |= {(b, a) for a, b in ends}
    # One place has two cables: without one of them half of its speed is left.
    source, target = zip(
        *sorted([*ends, (0, 1), (1, 0)] if both_ways else [*ends, (0, 1)]), strict=True
    )
    network = Network.from_links("c", 5, 0, source, target, 1.0, 0.0)
    fabric = Fabric("f", network, ecmp_routes(network), {})
    tasks = TaskGraph.from_lists(5, [(T, 0, 1, 8e7, 0.0), (T, 3, 4, 3e7, 0.0)], [])
    found = fail_each(fabric, tasks, both_ways=both_ways)
    assert len(found) == network.links // (2 if both_ways else 1)
    assert found[0].time_s == max(lost.time_s for lost in found) > score(fabric, tasks)
    assert (found[0].source, found[0].target, found[0].cables) == (0, 1, 2)
    drawn = fail_randomly(fabric, tasks, 1, 30, both_ways=both_ways)
    times = {(lost.source, lost.target): lost.time_s for lost in found}
    for cables, time in zip(drawn.cables, drawn.best, strict=True):
        assert times[int(network.source[cables[0]]), int(network.target[cables[0]])] == time

    def stop(made: Progress) -> None:
        assert made.total == len(found)
        if made.done == 3:
            raise KeyboardInterrupt

    assert len(fail_each(fabric, tasks, both_ways=both_ways, progress=stop)) == 3


def test_cables_that_hurt_alike_come_in_the_order_of_their_servers(monkeypatch) -> None:
    fabric = circulant(5, (1, 2))
    tasks = TaskGraph.from_lists(5, [(T, 0, 1, 8e7, 0.0)], [])
    rounding = iter(range(1000))
    monkeypatch.setattr(
        "topoopt.studies.failures._time", lambda *_: 0.1 * (1.0 + 1e-16 * (next(rounding) % 7))
    )
    ends = [(lost.source, lost.target) for lost in fail_each(fabric, tasks)]
    assert ends == sorted(ends)


def test_the_command(tmp_path) -> None:
    import topoopt as to

    plan = to.co_optimize(
        to.Job(to.models.get_model("bert-16")),
        to.Cluster(6, 3, "100Gbps"),
        SearchOptions(steps=5, effort="quick"),
        baselines=(),
    )
    plan.save(tmp_path / "plan.json")
    arguments = ["what-if", str(tmp_path / "plan.json"), "--fail-links", "2", "--trials", "5", "-q"]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0 and "fastest of them" in shown.output
    document = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert document["iteration_time_s"] == plan.iteration_time_s
    assert set(document["repairs"]) == set(REPAIRS) and document["trials"] == 5
    assert document["best"]["mean_s"] >= plan.iteration_time_s
    each = [*arguments[:2], "--each-link", "-q"]
    found = json.loads(CliRunner().invoke(app, [*each, "--json"]).stdout)
    assert found["iteration_time_s"] == plan.iteration_time_s
    assert sum(cable["cables"] for cable in found["each_link"]) == 18
    worst = found["each_link"][0]
    table = CliRunner().invoke(app, each).output.splitlines()
    assert table[3].split()[0] == f"{worst['source']}-{worst['target']}"
    # What `deploy --without` will do is told beside the fastest repair.
    built = rebuild(plan)
    dead = built.fabric.network.link(worst["source"], worst["target"])
    survivors = fail_cables(built.fabric.network, np.array([dead]))
    rerouted = score(repaired(built.fabric, survivors, "reroute"), built.tasks())
    assert worst["reroute_s"] == pytest.approx(rerouted) and rerouted >= worst["time_s"]
    assert table[2].endswith("by reroute") and table[3].endswith(format_time(rerouted))
    assert len(table) == 3 + min(10, len(found["each_link"]))
    slowdown = found["each_link"][-1]["time_s"] / plan.iteration_time_s
    assert f"none below {slowdown:.3f}x; the worst 10" in table[0]
    for more in (["--trials", "5"], ["--fail-links", "1"]):
        result = CliRunner().invoke(app, [*each, *more])
        assert "--each-link takes every cable once" in str(result.exception)
    result = CliRunner().invoke(app, [*arguments[:2], "--fail-links", "99", "-q"])
    assert isinstance(result.exception, InputError)


def test_switches_are_forwarded_through() -> None:
    network = Network.from_links(
        "two switches", 2, 2, [0, 0, 2, 3, 1, 2], [2, 3, 1, 1, 2, 0], 1.0, 0.0
    )
    fabric = Fabric("s", network, shortest_routes(network), {})
    row, _ = fabric.routes.row(0, 1)
    survivors = fail_cables(network, row[:1])
    moved = repaired(fabric, survivors, "reroute")
    assert moved.routes.row(0, 1)[0].size == 2


def test_groups_without_wired_rings_keep_those_they_had() -> None:
    """A group whose rings are chosen by load does not choose others where repairs keep rings."""
    fabric = replace(circulant(12, (1, 3, 5), capacity=1.0), rings={})
    group = (0, 2, 3, 5, 8, 11)
    tasks = TaskGraph.from_lists(12, [(A, 0, -1, 8.0, 0.0)], [], (group,))
    listed = replace(fabric, rings={group: fabric.rings_of(group)})
    assert score(listed, tasks) == score(fabric, tasks)
    found, asked = fail_each(fabric, tasks), fail_each(listed, tasks)
    assert found == asked
    times = fail_randomly(fabric, tasks, 1, 20)
    chosen_anew = [
        score(repaired(fabric, fail_cables(fabric.network, failed), "detour"), tasks)
        for failed in times.cables
    ]
    assert (times.times["detour"] >= score(fabric, tasks) * (1 - 1e-12)).all()
    assert not np.allclose(times.times["detour"], chosen_anew)


def test_detours_lead_through_no_server_where_there_are_switches() -> None:
    """Two servers on two switches: from server 0 to switch 2 no way is left but over server 1."""
    ends = [(0, 2), (0, 3), (1, 2), (1, 3)]
    source, target = zip(*(ends + [(b, a) for a, b in ends]), strict=True)
    network = Network.from_links("rails", 2, 2, source, target, 1.0, 0.0)
    survivors = fail_cables(network, cables(network.link(0, 2)))
    with pytest.raises(InfeasibleError, match="no path is left from 0 to 2"):
        detoured(ecmp_routes(network), network, survivors)
    # With a cable between the switches there is a way.
    ends.append((2, 3))
    source, target = zip(*(ends + [(b, a) for a, b in ends]), strict=True)
    joined = Network.from_links("rails", 2, 2, source, target, 1.0, 0.0)
    survivors = fail_cables(joined, cables(joined.link(0, 2)))
    after = survivors.network
    moved = detoured(ecmp_routes(joined), joined, survivors)
    links, weights = moved.row(0, 1)
    ends_of = zip(after.source[links].tolist(), after.target[links].tolist(), strict=True)
    taken = dict(zip(ends_of, weights.tolist(), strict=True))
    assert taken == {(0, 3): 1.0, (2, 1): 0.5, (3, 1): 0.5, (3, 2): 0.5}
