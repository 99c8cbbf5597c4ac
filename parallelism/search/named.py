"""Named strategies: where searches start, and what results are compared with."""

from collections.abc import Callable

from codesign_base.whole_numbers import divisors
from parallelism.graph import Mode, OperatorKind
from parallelism.search.space import MOST_PARAMETER, StrategySpace, legal_degrees
from parallelism.strategy import OperatorConfig, Strategy

_MOST_SHARDS = 256
# Servers up to which the tasks of all are simulated, whatever a rotation maps on each other.
_MOST_ALONE = 1024


def data_parallel(space: StrategySpace) -> Strategy:
    """Return pure data parallelism: every operator replicated on every server.

    Where the batch cannot be divided over all servers, the largest legal sample degree that
    divides the number of servers is used.
    """
    config = space.widest()
    return Strategy((config,) * len(space.graph.operators))


def _place_tables(space: StrategySpace, configs: list[OperatorConfig]) -> None:
    """Place each embedding table whole on one server, biggest first on the least loaded.

    What loads a server is a table's share of all bytes; where some have more lookups for their
    size than others, its share of all lookups if that is larger. On a great many servers each has
    one table at most, and kinds of tables take turns.
    """
    graph = space.graph
    tables = [i for i, op in enumerate(graph.operators) if op.sparse]
    if len(tables) <= space.servers > _MOST_ALONE:
        stride = space.servers // max(1, len(tables))
        for turn, index in enumerate(_in_turns(space)):
            configs[index] = space.placed(1, 1, Mode.OUTPUT, offset=turn * stride)
        return
    # Spread few tables evenly over many servers; more tables than servers wrap around.
    stride = max(1, space.servers // max(1, len(tables)))
    order = [(i * stride) % space.servers for i in range(space.servers // stride)]
    first = set(order)
    order += [v for v in range(space.servers) if v not in first]
    load = [0.0] * space.servers
    rank = {server: position for position, server in enumerate(order)}
    size = {i: max(graph.parameter_bytes(i), 1.0) for i in tables}  # some have none
    looked_up = {i: graph.operators[i].backward_flops for i in tables}
    if len({looked_up[i] / size[i] for i in tables}) > 1:
        every = sum(size.values()), max(sum(looked_up.values()), 1.0)
        size = {i: max(size[i] / every[0], looked_up[i] / every[1]) for i in tables}
    for index in sorted(tables, key=lambda i: (-size[i], i)):
        server = min(range(space.servers), key=lambda v: (load[v], rank[v]))
        load[server] += size[index]
        configs[index] = space.placed(1, 1, Mode.OUTPUT, offset=server)


def _in_turns(space: StrategySpace) -> list[int]:
    """Return the tables, those of each kind as evenly among the others as their numbers allow.

    Every stretch of servers that take them so does the same, so that one task can stand for all
    that a rotation maps on each other (`parallelism.rotation`).
    """
    graph = space.graph
    kinds: dict[object, list[int]] = {}
    for index, op in enumerate(graph.operators):
        if op.sparse:
            kinds.setdefault((space.alike[index], graph.consumers[index]), []).append(index)
    places = [
        ((2 * rank + 1) / len(alike), kind, index)
        for kind, alike in enumerate(kinds.values())
        for rank, index in enumerate(alike)
    ]
    return [index for _, _, index in sorted(places)]


def hybrid(space: StrategySpace) -> Strategy:
    """Return the usual hybrid: tables whole on single servers, all else data-parallel.

    This is the starting strategy of the TopoOpt artifact (table i on server i where there are
    as many tables as servers).
    """
    configs = [space.widest()] * len(space.graph.operators)
    _place_tables(space, configs)
    return Strategy(tuple(configs))


def tensor_parallel(
    space: StrategySpace, degree: int, *, alternate: bool = False
) -> Strategy | None:
    """Return data parallelism over groups of servers that split dense parameters.

    Embedding tables are placed whole on single servers.

    Parameters
    ----------
    space : StrategySpace
    degree : int
        Parameter degree of each dense, convolution or attention operator that allows it.
    alternate : bool
        Split dense layers by columns and rows in turn, so that a column-split layer hands its
        slice to a row-split one (Megatron-LM's pairing).

    Returns
    -------
    Strategy or None
        None if no operator can be split so.
    """
    configs = [space.widest()] * len(space.graph.operators)
    _place_tables(space, configs)
    changed = False
    by_rows: dict[int, bool] = {}
    samples = space.servers // degree
    for index, op in enumerate(space.graph.operators):
        if op.sparse or not op.parameters:
            continue
        legal = space.regular_degrees(index)
        choices = [c for c in legal if c[1] == degree and c[2] != Mode.CHANNEL]
        if not choices:
            last = not space.graph.consumers[index]
            if op.splits and op.features > 1 and last and (samples, 1, Mode.OUTPUT) in legal:
                # With the shards, lest its gradients need rings that nothing else does. Gradients
                # of one feature are next to nothing beside the inputs that would be sent there.
                configs[index] = space.placed(samples, 1, Mode.OUTPUT)
            continue
        widest = max(c[0] for c in choices)
        modes = {c[2] for c in choices if c[0] == widest}
        mode = min(modes)
        if alternate:
            after_columns = any(by_rows.get(source) is False for source in op.inputs)
            if after_columns and Mode.REDUCTION in modes:
                mode = Mode.REDUCTION
            by_rows[index] = mode == Mode.REDUCTION
        configs[index] = space.placed(widest, degree, mode)
        changed = True
    return Strategy(tuple(configs)) if changed else None


def dense_split(space: StrategySpace, degree: int) -> Strategy | None:
    """Return data parallelism but for the dense layers of a convolutional network.

    These have most of its parameters and least of its activations.

    Parameters
    ----------
    space : StrategySpace
    degree : int
        Parts of each dense layer that allows them, by its inputs: what partial sums of the outputs
        are exchanged is less than the inputs.

    Returns
    -------
    Strategy or None
        None without convolutions, or where no dense layer can be split so.

    References
    ----------
    A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks" (2014),
    section 4; there dense layers are split by their outputs.
    """
    operators = space.graph.operators
    configs = [space.widest()] * len(operators)
    if not any(op.kind is OperatorKind.CONV2D for op in operators):
        return None
    changed = False
    for index, op in enumerate(operators):
        if op.kind is OperatorKind.DENSE:
            choices = space.regular_degrees(index)
            by_inputs = [c for c in choices if c[1] == degree and c[2] == Mode.REDUCTION]
            if by_inputs:
                configs[index] = space.placed(*max(by_inputs))
                changed = True
    return Strategy(tuple(configs)) if changed else None


def sharded_tables(space: StrategySpace, degree: int) -> Strategy | None:
    """Return data parallelism with each embedding table split over several servers.

    By columns where the degree divides them, else by rows; sets of servers take turns, and of many
    shards so do kinds of tables. Where there are more servers than shards, these are spread evenly
    over all.

    Parameters
    ----------
    space : StrategySpace
    degree : int
        Shards of each table that allows them.

    Returns
    -------
    Strategy or None
        None if no table can be split so.
    """
    configs = [space.widest()] * len(space.graph.operators)
    _place_tables(space, configs)
    tables = [index for index, op in enumerate(space.graph.operators) if op.sparse]
    shards = len(tables) * degree
    stride = max(1, space.servers // max(1, shards))
    turn = 0
    few = shards <= _MOST_SHARDS and space.servers <= _MOST_ALONE
    for index in tables if few else _in_turns(space):
        modes = [c[2] for c in space.regular_degrees(index) if c[:2] == (1, degree)]
        if modes:
            configs[index] = space.placed(1, degree, min(modes), offset=turn)
            turn += stride
    return Strategy(tuple(configs)) if turn else None


def least_memory(space: StrategySpace, memory: Callable[[int, int, int, Mode], float]) -> Strategy:
    """Return a strategy that keeps the fullest server as empty as a greedy choice can.

    Every operator takes the legal degrees with the smallest parts, on the servers that hold
    least so far, biggest operators first.

    Parameters
    ----------
    space : StrategySpace
    memory : callable
        (operator index, sample, parameter, mode) to bytes of one part on each GPU.

    Returns
    -------
    Strategy
    """
    choices = []
    for index, op in enumerate(space.graph.operators):
        degrees = [
            c for c in legal_degrees(op, space.servers, space.batch)
            if space.servers % (c[0] * c[1]) == 0 and (c[1] == 1 or space.parameter_splits)
        ]  # fmt: skip
        sizes = {degree: memory(index, *degree) for degree in degrees}
        best = min(degrees, key=lambda degree: (sizes[degree], degree))
        choices.append((sizes[best], index, best))
    load = [0.0] * space.servers
    configs = [space.widest()] * len(space.graph.operators)
    for size, index, (sample, parameter, mode) in sorted(choices, key=lambda c: (-c[0], c[1])):
        parts = sample * parameter
        sets = [
            space.placed(sample, parameter, mode, offset=offset)
            for offset in range(space.servers // parts)
        ]
        chosen = min(sets, key=lambda config: max(load[v] for v in config.servers))
        configs[index] = chosen
        for server in chosen.servers:
            load[server] += size
    return Strategy(tuple(configs))


def named_strategies(space: StrategySpace) -> dict[str, Strategy]:
    """Return all starting strategies by name, data parallelism first.

    Parameters
    ----------
    space : StrategySpace

    Returns
    -------
    dict
        Some may not fit in memory; the caller checks. Operators of the same weights are
        data-parallel where they would be divided differently.
    """
    return {name: space.together(strategy) for name, strategy in _named(space).items()}


def _named(space: StrategySpace) -> dict[str, Strategy]:
    found = {"data-parallel": data_parallel(space)}
    tables = sum(op.sparse for op in space.graph.operators)
    has_tables = tables > 0
    if has_tables:
        found["hybrid"] = hybrid(space)
    if space.sample_only or not space.parameter_splits:
        return found
    for degree in divisors(space.servers, MOST_PARAMETER)[1:]:
        # Every shard of every table sends to all replicas: more are too slow to score, and
        # where they are needed for memory the least-memory strategy stands in.
        if has_tables and tables * degree <= max(space.servers, _MOST_SHARDS):
            sharded = sharded_tables(space, degree)
            if sharded is not None:
                found[f"sharded-tables-{degree}"] = sharded
        if degree & (degree - 1):
            continue  # tensor-parallel groups are powers of two, as in practice
        for alternate in (False, True):
            strategy = tensor_parallel(space, degree, alternate=alternate)
            if strategy is not None:
                name = f"tensor-{degree}" + ("-alternating" if alternate else "")
                found[name] = strategy
        strategy = dense_split(space, degree)
        if strategy is not None:
            found[f"dense-{degree}"] = strategy
    return found
