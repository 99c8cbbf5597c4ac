"""Dead ports and dead servers: what fails with them, and how the job goes on."""

import json
from collections import Counter
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_plans import shared_bidirectional_plan, small_dlrm, small_mlp, solve
from typer.testing import CliRunner

from codesign_base import InfeasibleError, InputError
from parallelism.builder import TaskGraphBuilder
from parallelism.graph import Mode
from parallelism.strategy import OperatorConfig, Strategy, check_legal
from routing.network import Network
from topoopt.base.progress import Progress
from topoopt.cli.app import app
from topoopt.fabric import score
from topoopt.plan.rebuild import rebuild
from topoopt.studies.failures import fail_randomly, random_ports
from topoopt.studies.repairs import fail_cables
from topoopt.studies.replanning import alternatives_on, surviving_strategy
from topoopt.studies.server_failures import WAYS, after_servers, fail_servers, without_servers
from topoopt.topology.fabrics import ideal_switch
from topoopt.topology.network_json import network_graph


def doubled_ring(hosts: int, both_ways: bool) -> Network:
    """Two cables to the next host, one to the one after; both directions if asked."""
    ends = [(i, (i + p) % hosts) for i in range(hosts) for p in (1, 1, 2)]
    if both_ways:
        ends += [(b, a) for a, b in ends]
    source, target = zip(*ends, strict=True)
    return Network.from_links("n", hosts, 0, source, target, 1.0, 1e-6)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(5, 9), st.booleans(), st.integers(1, 6))
def test_a_port_takes_its_cables(seed: int, hosts: int, both_ways: bool, count: int) -> None:
    network = doubled_ring(hosts, both_ways)
    failed = random_ports(network, count, np.random.default_rng(seed), both_ways=both_ways)
    fail_cables(network, failed)  # no link loses more cables than it has
    lost = Counter((int(network.source[x]), int(network.target[x])) for x in failed)
    if both_ways:
        assert lost == Counter({(b, a): many for (a, b), many in lost.items()})
        # A cable has two ends: as many cables as ports, or fewer.
        assert (count + 1) // 2 <= lost.total() // 2 <= count
    else:
        assert count < lost.total() <= 2 * count or (count == 1 and lost.total() == 2)


def test_every_port_may_fail_alone() -> None:
    network = doubled_ring(5, both_ways=False)
    seen: Counter[tuple[int, ...]] = Counter()
    rng = np.random.default_rng(0)
    for _ in range(400):
        failed = random_ports(network, 1, rng, both_ways=False)
        sender = [int(network.source[x]) for x in failed]
        receiver = [int(network.target[x]) for x in failed]
        server = set(sender) & set(receiver)
        # It sends on one of the two, and receives on the other.
        assert any(sender[a] == receiver[1 - a] for a in range(2)), (sender, receiver)
        seen.update([tuple(sorted(server))])
    assert len([key for key in seen if len(key) == 1]) == 5
    everything = random_ports(network, 15, rng, both_ways=False)
    assert np.bincount(everything).tolist() == network.multiplicity.tolist()
    with pytest.raises(InputError, match="servers use 15"):
        random_ports(network, 16, rng, both_ways=False)
    with pytest.raises(InputError, match="switches"):
        random_ports(ideal_switch(4, 1.0, 1e-6)[0], 1, rng, both_ways=True)


def config(sample: int, parameter: int, *servers: int) -> OperatorConfig:
    return OperatorConfig(sample, parameter, Mode.OUTPUT, servers)


def test_strategies_move_off_the_dead() -> None:
    strategy = Strategy((
        config(4, 1, 0, 1, 2, 3),  # on everyone: one replica less
        config(1, 1, 2),  # on the dead: to the least busy, which is 1
        config(2, 1, 0, 2),  # half of it dead: 1 and 3 are idle, 1 is less busy
        config(1, 2, 3, 2),  # a shard is dead: 0 has become the least busy
        config(2, 2, 0, 1, 2, 3),  # a replica is broken, and nobody idle
        config(1, 4, 0, 1, 2, 3),  # more shards than are left
        config(1, 1, 3),
    ))  # fmt: skip
    moved = surviving_strategy(strategy, 4, (2,), 12)
    # Survivors 0, 1, 3 are now 0, 1, 2.
    assert [c.servers for c in moved.configs[:5]] == [(0, 1, 2), (1,), (0, 1), (2, 0), (0, 1)]
    assert [(c.sample, c.parameter) for c in moved.configs] == [
        (3, 1), (1, 1), (2, 1), (1, 2), (1, 2), (3, 1), (1, 1)
    ]  # fmt: skip
    assert moved.configs[5].servers == (0, 1, 2)
    assert moved.configs[6].servers == (2,)


def test_operators_of_the_same_weights_move_together() -> None:
    # Each by itself would take the least busy of those that are left, the next one every time.
    graph = replace(small_mlp(), shared=((3, 1, 6),))
    alone = {1, 3, 6}
    strategy = Strategy(tuple(
        config(1, 1, 2) if index in alone else config(4, 1, 0, 1, 2, 3) for index in range(9)
    ))  # fmt: skip
    check_legal(graph, strategy, 4, 12)
    moved = surviving_strategy(strategy, 4, (2,), 9, graph.shared)
    check_legal(graph, moved, 3, 9)
    assert {moved.configs[index].servers for index in alone} == {(0,)}
    # So the search on the survivors still begins with the plan's strategy.
    built = replace(rebuild(solve(graph, 4, steps=0, baselines=())), strategy=strategy)
    assert alternatives_on(built, 3, 0, 0)((2,)).first[1] == "plan"


@settings(max_examples=30, deadline=None)
@given(st.data(), st.integers(3, 9))
def test_moved_strategies_are_legal(data: st.DataObject, servers: int) -> None:
    graph = small_mlp()
    configs = []
    for op in graph.operators:
        everyone = data.draw(st.permutations(range(servers)))
        p = data.draw(st.sampled_from([1, 2])) if op.split(Mode.OUTPUT) else 1
        if p > 1 and (op.split(Mode.OUTPUT).extent % p or servers < p):
            p = 1
        s = data.draw(st.integers(1, servers // p))
        configs.append(OperatorConfig(s, p, Mode.OUTPUT, tuple(everyone[: s * p])))
    dead = tuple(sorted(data.draw(st.sets(st.integers(0, servers - 1), min_size=1,
                                          max_size=servers - 1))))  # fmt: skip
    alive = servers - len(dead)
    batch = 2 * alive
    moved = surviving_strategy(Strategy(tuple(configs)), servers, dead, batch)
    check_legal(graph, moved, alive, batch)
    number = {v: i for i, v in enumerate(v for v in range(servers) if v not in dead)}
    for old, new in zip(configs, moved.configs, strict=True):
        untouched = not set(old.servers) & set(dead) and batch % old.sample == 0
        if untouched:
            assert new.servers == tuple(number[v] for v in old.servers)


@pytest.mark.slow
def test_the_fabric_of_the_survivors() -> None:
    built = rebuild(solve(small_dlrm(), 8, 3, steps=20, baselines=()))
    before, dead = built.fabric.network, (3,)
    after = without_servers(built.fabric, dead)
    number = {v: i for i, v in enumerate(v for v in range(8) if v != 3)}
    expected = nx.DiGraph(
        (number[a], number[b])
        for a, b in zip(before.source.tolist(), before.target.tolist(), strict=True)
        if 3 not in (a, b)
    )
    assert nx.utils.graphs_equal(nx.DiGraph(list(network_graph(after.network).edges())), expected)
    everyone = tuple(range(7))
    whole = built.fabric.rings[tuple(range(8))]
    assert after.rings[everyone] == tuple(
        tuple(number[v] for v in order if v != 3) for order in whole
    )
    assert without_servers(built.fabric, dead, "new-rings").rings == {}
    alone = without_servers(built.fabric, tuple(range(1, 8)))
    assert alone.network.hosts == 1
    for bad in ((8,), (1, 1)):
        with pytest.raises(InputError, match="dead"):
            without_servers(built.fabric, bad)
    with pytest.raises(InputError, match="all of 8 servers died"):
        without_servers(built.fabric, tuple(range(8)))
    # A one-way ring without one of its servers is cut.
    line = rebuild(solve(small_dlrm(), 4, 1, steps=5, baselines=()))
    with pytest.raises(InfeasibleError):
        without_servers(line.fabric, (0,))


def test_the_job_goes_on() -> None:
    built = rebuild(shared_bidirectional_plan())
    found = after_servers(built, (1,), steps=10, seed=4)
    assert found.fits
    assert set(found.times) == set(WAYS)
    assert all(np.isfinite(time) for time in found.times.values())
    # No slower than the plan's own strategy moved off, with the same rings.
    old = built.family.builder
    batch = old.batch // 5 * 4
    moved = surviving_strategy(built.strategy, 5, (1,), batch)
    builder = TaskGraphBuilder(old.graph, old.compute, old.server, 4, batch, old.optimizer_states)
    plain = score(without_servers(built.fabric, (1,)), builder.build(moved))
    assert found.times["skip"] <= plain * (1 + 1e-9)
    assert after_servers(built, (1,), steps=10, seed=4) == found


def test_what_does_not_fit_is_said() -> None:
    built = rebuild(shared_bidirectional_plan())
    server = built.family.server
    tight = replace(server, accelerator=replace(server.accelerator, memory_bytes=1.0))
    starved = replace(built, family=replace(built.family, server=tight))
    found = after_servers(starved, (0,))
    assert not found.fits and "does not fit on 4 servers" in found.why
    assert all(np.isinf(time) for time in found.times.values())


def test_random_servers() -> None:
    built = rebuild(shared_bidirectional_plan())
    reports: list[Progress] = []
    found = fail_servers(built, 1, 8, steps=3, seed=2, progress=reports.append)
    assert [(made.done, made.total) for made in reports] == [(k, 8) for k in range(1, 9)]
    assert len(found.trials) == 8
    for trial in found.trials:
        assert trial == after_servers(built, trial.dead, steps=3, seed=2)
    again = fail_servers(built, 1, 8, steps=3, seed=2)
    assert again.trials == found.trials
    for bad in ((0, 1, 1), (5, 1, 1), (1, 0, 1), (1, 10**9, 1), (1, 1, -1)):
        with pytest.raises(InputError):
            fail_servers(built, bad[0], bad[1], steps=bad[2])

    def stop(made: Progress) -> None:
        if made.done == 2:
            raise KeyboardInterrupt

    assert len(fail_servers(built, 1, 8, steps=3, progress=stop).trials) == 2


def test_ports_in_trials() -> None:
    built = rebuild(shared_bidirectional_plan())
    tasks = built.tasks()
    found = fail_randomly(built.fabric, tasks, 2, 3, both_ways=True, ports=True)
    assert all(2 <= cables.size <= 4 for cables in found.cables)
    assert min(found.best) >= found.undamaged * (1 - 1e-9)


def test_the_commands(tmp_path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(shared_bidirectional_plan().to_json())
    run = CliRunner().invoke
    common = [str(path), "--trials", "3", "-q"]
    shown = run(app, ["what-if", *common, "--fail-ports", "1", "--json"])
    assert shown.exit_code == 0
    ports = json.loads(shown.stdout)
    assert ports["fail_ports"] == 1
    assert set(ports["repairs"]) == {"detour", "reroute", "drop-rings", "new-rings"}
    servers = run(app, ["what-if", *common, "--fail-servers", "1", "--steps", "3", "--json"])
    assert servers.exit_code == 0
    document = json.loads(servers.stdout)
    assert document["batch_share"] == pytest.approx(0.8)
    assert document["does_not_fit"] == 0
    assert set(document["repairs"]) == set(WAYS)
    best = min(document["repairs"][how]["mean_s"] for how in ("skip", "new-rings"))
    assert document["best"]["mean_s"] <= best
    text = run(app, ["what-if", *common, "--fail-servers", "1", "--steps", "3"])
    assert "80.0% of the batch" in text.stdout
    both = run(app, ["what-if", *common, "--fail-servers", "1", "--fail-links", "1"])
    assert isinstance(both.exception, InputError)
