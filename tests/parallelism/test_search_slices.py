"""Changes that split concatenations by channels."""

from parallelism.graph import Mode
from parallelism.models.dlrm import dlrm
from parallelism.models.ncf import ncf
from parallelism.search.named import hybrid
from parallelism.search.slices import all_sliced, all_together, sliced
from parallelism.search.space import StrategySpace
from parallelism.strategy import check_legal

BATCH = 64


def split_top(graph, layer, degrees):
    """Return a space and the hybrid strategy with one layer split by columns."""
    space = StrategySpace(graph, 4, BATCH)
    config = space.placed(*degrees, Mode.OUTPUT)
    return space, hybrid(space).replace([(graph.index(layer), config)]), config


def test_the_next_layer_takes_rows_where_the_concatenation_lies():
    graph = dlrm(tables=3, rows=100, dim=8, bottom_width=8, bottom_layers=1, top_width=16,
                 top_layers=1)  # fmt: skip
    space, strategy, config = split_top(graph, "top_0", (2, 2))
    concat, top = graph.index("concat"), graph.index("top_0")
    found = dict(sliced(space, strategy, concat))
    assert set(found) == {concat, top}
    assert (found[concat].mode, found[top].mode) == (Mode.CHANNEL, Mode.REDUCTION)
    assert found[concat].servers == found[top].servers == config.servers
    check_legal(graph, strategy.replace(found.items()), 4, BATCH)


def test_whole_tables_go_where_their_slice_is():
    graph = dlrm(tables=3, rows=100, dim=8, bottom_width=8, bottom_layers=1, top_width=16,
                 top_layers=1)  # fmt: skip
    space, strategy, config = split_top(graph, "top_0", (2, 2))
    new = strategy.replace(sliced(space, strategy, graph.index("concat"), tables=True))
    # Of 32 features the bottom and the first table are one half, the other tables the other.
    first, second = config.servers[::2], config.servers[1::2]
    places = [new.configs[graph.index(f"table_{t}")].servers for t in range(3)]
    assert places[0][0] in first
    assert sorted(v for place in places[1:] for v in place) == sorted(second)


def test_what_lies_between_works_slice_by_slice():
    graph = ncf(user_tables=2, item_tables=2, rows=100, factor_dim=4, mlp_dim=8, mlp_width=16)
    space = StrategySpace(graph, 4, BATCH)
    at = graph.index("factor_output")
    # The last layer of the factors makes one number: it can be split by rows only.
    rows = space.placed(2, 2, Mode.REDUCTION)
    strategy = hybrid(space).replace([(at, rows)])
    new = strategy.replace(sliced(space, strategy, graph.index("factor_users")))
    assert new.configs[graph.index("factor_product")].mode is Mode.CHANNEL
    assert new.configs[at] is rows
    check_legal(graph, new, 4, BATCH)


def test_all_concatenations_are_split_together():
    graph = ncf(user_tables=2, item_tables=2, rows=100, factor_dim=4, mlp_dim=8, mlp_width=16)
    space = StrategySpace(graph, 4, BATCH)
    halves = space.placed(2, 2, Mode.OUTPUT)
    last = space.placed(2, 2, Mode.REDUCTION)
    strategy = hybrid(space).replace(
        [(graph.index("mlp_0"), halves), (graph.index("factor_output"), last)]
    )
    for tables in (False, True):
        new = all_together(space, strategy, tables=tables)
        check_legal(graph, new, 4, BATCH)
        joins = ("factor_users", "factor_items", "mlp_concat")
        assert {new.configs[graph.index(name)].mode for name in joins} == {Mode.CHANNEL}
        # Nothing is left that one more change would do.
        assert all_together(space, new, tables=tables) == new
    nothing = hybrid(space)
    assert all_together(space, nothing, tables=True) == nothing


def test_nothing_changes_without_a_split_layer():
    graph = dlrm(tables=2, rows=100, dim=8, bottom_width=8, bottom_layers=1, top_width=16)
    space = StrategySpace(graph, 4, BATCH)
    changes = list(all_sliced(space, hybrid(space)))
    assert changes == [[], []]
