"""Copies of a run with perturbed delays."""

import numpy as np
import pytest
from fabric_oracle import circulant, star

from codesign_base import InputError
from parallelism.taskgraph import TaskGraph, TaskKind
from topoopt.baselines.baselines import baseline_fabric
from topoopt.fabric import IDEAL, PACKETS, Fabric, Transport, jittered, score
from topoopt.fabric.jitter import AMPLITUDE
from topoopt.problem.cluster import Cluster
from topoopt.problem.prices import default_prices
from topoopt.topology.fabrics import fat_tree

C, T, A = TaskKind.COMPUTE, TaskKind.TRANSFER, TaskKind.ALLREDUCE


def busy(hosts: int = 8) -> TaskGraph:
    rng = np.random.default_rng(3)
    tasks = [
        (T, *rng.choice(hosts, 2, replace=False).tolist(), float(rng.uniform(1e5, 4e6)), 0.0)
        for _ in range(40)
    ]
    tasks.append((A, 0, -1, 2e7, 1e-5))
    return TaskGraph.from_lists(hosts, tasks, [(0, 40)], (tuple(range(hosts)),))


@pytest.mark.parametrize("model", ["fluid", "packet"])
def test_the_same_seed_gives_the_same_bits(model: str) -> None:
    fabric = circulant(8, (1, 3), 12.5e9, 1e-6, transport=PACKETS)
    one, again, other = (jittered(fabric, busy(), 4, model=model, seed=s) for s in (1, 1, 2))
    assert one.times.tobytes() == again.times.tobytes()
    assert one.times.tobytes() != other.times.tobytes()
    assert one.times.shape == (4,)
    assert one.mean == pytest.approx(sum(one.times) / 4)
    assert one.spread == max(one.times) - min(one.times) > 0


@pytest.mark.parametrize("model", ["fluid", "packet"])
def test_only_delays_are_moved(model: str) -> None:
    """A lone message: each copy's delay lies within two percent; compute never moves."""
    fabric = star(4, 12.5e9, 1e-3, PACKETS)
    tasks = TaskGraph.from_lists(4, [(T, 0, 1, 1e5, 0.0)], [])
    alone = score(fabric, tasks, model=model)
    times = jittered(fabric, tasks, 20, model=model).times
    assert np.all(np.abs(times - alone) <= AMPLITUDE * 4e-3 * (1 + 1e-9))
    assert np.ptp(times) > AMPLITUDE * 4e-3
    nothing = TaskGraph.from_lists(4, [(C, 0, -1, 0.5, 0.0)], [])
    assert jittered(fabric, nothing, 3, model=model).times.tolist() == [0.5] * 3
    assert jittered(fabric, nothing, 3, model=model).spread == 0.0


@pytest.mark.parametrize("model", ["fluid", "packet"])
def test_servers_that_forward_between_switches_do_so_in_copies(model: str) -> None:
    """Their AllReduces go over the rings that end soonest, not over one ring by number."""
    cluster = Cluster(servers=16, degree=4, bandwidth="100Gbps")
    base = baseline_fabric("hamming-mesh", cluster, default_prices(), 0)
    assert base.real is not None
    tasks = TaskGraph.from_lists(16, [(A, 0, -1, 1e7, 0.0)], [], (tuple(range(16)),))
    alone = score(base.real(), tasks, model=model)
    assert jittered(base.real(), tasks, 1, model=model).mean == pytest.approx(alone, rel=0.05)


def test_ring_routes_are_slowed_too() -> None:
    slow = circulant(4, (1,), 12.5e9, 1e-3, transport=PACKETS)
    fabric = Fabric("rings", slow.network, slow.routes, slow.rings, slow.routes, PACKETS)
    tasks = TaskGraph.from_lists(4, [(A, 0, -1, 1e5, 0.0)], [], ((0, 1, 2, 3),))
    for model in ("fluid", "packet"):
        both = [jittered(f, tasks, 3, model=model).times for f in (slow, fabric)]
        np.testing.assert_array_equal(*both)
        assert np.ptp(both[0]) > 1e-5


def test_copies_draw_paths_of_their_own() -> None:
    """Without any delay, only the paths of a fat-tree tell the copies apart."""
    fabric = Fabric("fat-tree", *fat_tree(16, 12.5e9, 0.0), transport=Transport())
    times = jittered(fabric, busy(16), 4).times
    assert np.unique(times).size > 2
    assert jittered(fabric, busy(16), 4, model="fluid").spread == 0.0


def test_the_fabric_itself_is_left_alone() -> None:
    fabric = circulant(8, (1, 3), 12.5e9, 1e-6, transport=PACKETS)
    before = fabric.network.latency.copy(), fabric.routes.latency.copy()
    jittered(fabric, busy(), 2)
    np.testing.assert_array_equal(before[0], fabric.network.latency)
    np.testing.assert_array_equal(before[1], fabric.routes.latency)


def test_bad_input() -> None:
    fabric, tasks = star(4, 1e9, transport=PACKETS), TaskGraph.from_lists(4, [], [])
    with pytest.raises(InputError, match="jitter is 0 copies"):
        jittered(fabric, tasks, 0)
    with pytest.raises(InputError, match="choose fluid, packet"):
        jittered(fabric, tasks, 1, model="packets")
    with pytest.raises(InputError, match="without packets"):
        jittered(star(4, 1e9, transport=IDEAL), tasks, 1)
    assert jittered(fabric, tasks, 2).times.tolist() == [0.0, 0.0]


def test_copies_of_the_last_seed_go_on_with_the_first_one() -> None:
    fabric = circulant(8, (1, 3), 12.5e9, 1e-6, transport=PACKETS)
    assert np.all(jittered(fabric, busy(), 2, seed=2**31 - 1).times > 0)
