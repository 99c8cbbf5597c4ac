"""Wirings in rows and columns, and what they are worth to strategies that are split over rows."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import topoopt as to
from parallelism.graph import Mode
from parallelism.search.named import data_parallel
from parallelism.search.space import StrategySpace
from parallelism.strategy import OperatorConfig
from parallelism.taskgraph import traffic_of
from topoopt.evaluate.grids import grid_topologies, is_grid
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.evaluate.wirings import wirings
from topoopt.topology.ring_links import ring_links


def cables_of(network):
    cables = np.zeros((network.hosts, network.hosts), dtype=np.int64)
    cables[network.source, network.target] = network.multiplicity
    return cables


@given(
    servers=st.integers(2, 48),
    degree=st.integers(1, 6),
    ports=st.sampled_from(["directed", "bidirectional"]),
)
def test_all_ports_are_wired_and_all_servers_reached(servers, degree, ports):
    cluster = to.Cluster(servers, degree, "100Gbps", ports=ports)
    for grid in grid_topologies(cluster):
        cables = cables_of(grid.network)
        assert (cables.sum(axis=0) == degree).all()
        assert (cables.sum(axis=1) == degree).all()
        if ports == "bidirectional":
            assert (cables == cables.T).all()
        assert nx.is_strongly_connected(nx.from_numpy_array(cables, create_using=nx.DiGraph))
        assert grid.network.capacity.tolist() == (grid.network.multiplicity * 12.5e9).tolist()
        used = np.zeros_like(cables)
        for ring in grid.rings:
            assert sorted(ring.members) == list(range(servers))
            np.add.at(used, tuple(np.array(ring_links(ring.members)).T), 1)
        assert (used <= cables).all()


@pytest.mark.parametrize(("servers", "dims"), [(12, (3, 4)), (16, (4, 4)), (30, (5, 6))])
def test_with_half_of_four_ports_for_rows_they_are_tori(servers, dims):
    cluster = to.Cluster(servers, 4, "100Gbps", ports="bidirectional")
    torus = nx.grid_graph(dims, periodic=True)
    found = [nx.from_numpy_array(cables_of(grid.network)) for grid in grid_topologies(cluster)]
    assert any(nx.is_isomorphic(torus, one) for one in found)


def test_there_are_none_where_a_row_or_a_column_would_be_one_cable():
    assert grid_topologies(to.Cluster(8, 4, "100Gbps")) == ()
    assert grid_topologies(to.Cluster(17, 4, "100Gbps")) == ()
    assert grid_topologies(to.Cluster(16, 3, "100Gbps", ports="bidirectional")) == ()
    assert grid_topologies(to.Cluster(256, 4, "100Gbps")) == ()
    many = grid_topologies(to.Cluster(64, 4, "100Gbps"))
    assert len(many) == 2  # rows of 4 and of 8


def test_a_grid_is_one_whoever_made_it():
    cluster = to.Cluster(16, 4, "100Gbps")
    grids = grid_topologies(cluster)
    grid_topologies.cache_clear()  # as for a second thread that asked at once
    assert all(is_grid(grid, cluster) for grid in grids)
    assert not is_grid(None, cluster)


def test_towers_on_columns_that_send_along_rows_are_faster_on_a_grid():
    job = to.Job(to.models.get_model("candle-16"))
    cluster = to.Cluster(16, 4, "100Gbps")
    problem = Problem(job.family(16), cluster)
    graph = problem.family.builder.graph
    space = StrategySpace(graph, 16, problem.family.batch)
    change = []
    for i, op in enumerate(graph.operators):
        if op.name.startswith("tower_"):
            column = int(op.name.split("_")[1]) % 4
            on = tuple(range(column, 16, 4))
            change.append((i, OperatorConfig(4, 1, Mode.OUTPUT, on)))
    strategy = space.intern(data_parallel(space).replace(change))
    traffic = traffic_of(problem.family.build(strategy))
    before = Rewirer(problem, grids=False).wire(strategy, "test")
    after = Rewirer(problem).wire(strategy, "test")
    assert is_grid(after.topology, cluster)
    assert not is_grid(before.topology, cluster)
    assert after.time < before.time
    assert any(is_grid(one, cluster) for one in wirings(problem, traffic, False))
    assert not any(is_grid(one, cluster) for one in wirings(problem, traffic, False, grids=False))
