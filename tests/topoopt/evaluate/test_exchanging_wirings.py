"""Groups of servers that exchange slices or sums get rings, and plans on them are faster."""

import numpy as np

import topoopt as to
from parallelism import models
from parallelism.accelerators import get_accelerator
from parallelism.device import Server
from parallelism.graph import Mode
from parallelism.search.named import data_parallel
from parallelism.search.space import StrategySpace
from parallelism.taskgraph import Traffic
from topoopt.evaluate import wirings
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer

ROWS = tuple(tuple(range(i, i + 4)) for i in range(0, 16, 4))
COLUMNS = tuple(tuple(range(i, 16, 4)) for i in range(4))


def around(order):
    """Return the pairs next to each other on a ring."""
    return {frozenset(hop) for hop in zip(order, (*order[1:], order[0]), strict=True)}


def test_exchanging_groups_have_rings_beside_one_that_keeps_reducing_groups_together(monkeypatch):
    # Servers of a column reduce, those of a row exchange.
    transfers = np.zeros((16, 16))
    for row in ROWS:
        transfers[np.ix_(row, row)] = 1e6
    np.fill_diagonal(transfers, 0.0)
    everyone = tuple(range(16))
    traffic = Traffic(16, transfers, (everyone, *COLUMNS), np.array([1e6] + 4 * [1e9]))
    job = to.Job(models.vgg16())
    problem = Problem(job.family(16), to.Cluster(16, 4, "40Gbps", ports="bidirectional"))
    asked = []
    built = wirings.built

    def noting(*arguments, joined=(), **options):
        asked.append(joined)
        return built(*arguments, joined=joined, **options)

    monkeypatch.setattr(wirings, "built", noting)
    found = [
        set(map(frozenset, zip(t.network.source.tolist(), t.network.target.tolist(), strict=True)))
        for t in wirings.wirings(problem, traffic, False)
    ]
    by_columns = sum(COLUMNS, ())
    assert {ROWS, (everyone, *ROWS), (by_columns, *ROWS)} <= set(asked)
    rows = set().union(*map(around, ROWS))
    assert any(rows | around(everyone) <= links for links in found)
    assert any(rows | around(by_columns) <= links for links in found)
    assert any(rows | set().union(*map(around, COLUMNS)) <= links for links in found)


def test_a_dense_layer_in_a_grid_is_faster_on_them(monkeypatch):
    server = Server(get_accelerator("h100"), 8, 450e9)
    job = to.Job(models.get_model("vgg16-16"), batch_per_gpu=32, server=server)
    problem = Problem(job.family(16), to.Cluster(16, 4, "40Gbps", ports="bidirectional"))
    graph = problem.family.builder.graph
    space = StrategySpace(graph, 16, problem.family.batch)
    first = [op.name for op in graph.operators].index("dense_0")
    grid = space.placed(4, 4, Mode.REDUCTION)
    strategy = data_parallel(space).replace([(first, grid)])
    pair = Rewirer(problem, grids=False).wire(strategy, "test")
    monkeypatch.setattr(wirings, "exchange_groups", lambda _: iter(()))
    before = Rewirer(problem, grids=False).wire(strategy, "test")
    assert pair is not None
    assert before is not None
    assert pair.time < 0.95 * before.time
