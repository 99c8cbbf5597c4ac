"""Concatenations split by channels, so that what reads them gathers nothing."""

from collections.abc import Iterator

from parallelism.graph import Mode
from parallelism.search.space import Change, StrategySpace
from parallelism.strategy import OperatorConfig, Strategy


def sliced(
    space: StrategySpace, strategy: Strategy, concat: int, *, tables: bool = False
) -> Change:
    """Give a concatenation the slices of a layer that is split over features.

    The layer after it takes rows instead of columns, so that each of its parts needs only the
    slice that its own server joins; what lies between works slice by slice, too.

    Parameters
    ----------
    space : StrategySpace
    strategy : Strategy
    concat : int
        A concatenation.
    tables : bool
        Move every whole embedding table to a server of the one slice that it lies in, where
        there is one: biggest first, to the one that holds least.

    Returns
    -------
    list of (int, OperatorConfig)
        Operators that change; empty where no split layer follows.
    """
    graph = space.graph
    between, reader = [concat], concat
    while not graph.operators[reader].parameters:
        readers = graph.consumers[reader]
        if len(readers) != 1:
            return []
        reader = readers[0]
        between.append(reader)
    between.pop()
    config = strategy.configs[reader]
    degrees = (config.sample, config.parameter)
    if config.parameter == 1 or Mode.REDUCTION not in space.modes(reader, *degrees):
        return []
    if any(Mode.CHANNEL not in space.modes(index, *degrees) for index in between):
        return []
    slices = space.config(*degrees, Mode.CHANNEL, config.servers)
    change = [(index, slices) for index in between]
    change.append((reader, space.config(*degrees, Mode.REDUCTION, config.servers)))
    if tables:
        change += _tables_of(space, strategy, concat, slices)
    return [(index, new) for index, new in change if new is not strategy.configs[index]]


def _tables_of(
    space: StrategySpace, strategy: Strategy, concat: int, slices: OperatorConfig
) -> Change:
    graph, parts = space.graph, slices.parameter
    each = graph.operators[concat].features // parts
    beside = graph.inputs_side_by_side(concat)
    whole = [
        index for index in beside
        if graph.operators[index].sparse and strategy.configs[index].parts == 1
    ]  # fmt: skip
    load = [0.0] * space.servers
    for index, config in enumerate(strategy.configs):
        if graph.operators[index].sparse and index not in set(whole):
            for server in config.servers:
                load[server] += graph.parameter_bytes(index) / config.parameter
    change: Change = []
    for index in sorted(whole, key=lambda i: (-graph.parameter_bytes(i), i)):
        first, width = beside[index]
        if first // each != (first + width - 1) // each:
            continue
        server = min(slices.servers[first // each :: parts], key=lambda v: load[v])
        load[server] += graph.parameter_bytes(index)
        change.append((index, space.config(1, 1, Mode.OUTPUT, (server,))))
    return change


def all_sliced(space: StrategySpace, strategy: Strategy) -> Iterator[Change]:
    """Yield the changes of `sliced` for each concatenation, its tables staying and moving."""
    for index in range(len(space.graph.operators)):
        if space.graph.inputs_side_by_side(index):
            for tables in (False, True):
                yield sliced(space, strategy, index, tables=tables)


def all_together(space: StrategySpace, strategy: Strategy, *, tables: bool) -> Strategy:
    """Return a strategy with the changes of `sliced` for all concatenations, one after another."""
    for index in range(len(space.graph.operators)):
        if space.graph.inputs_side_by_side(index):
            strategy = strategy.replace(sliced(space, strategy, index, tables=tables))
    return strategy
