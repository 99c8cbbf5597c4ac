"""Strategies to start from that lie between the named ones."""

from collections.abc import Iterator, Sequence
from itertools import combinations, combinations_with_replacement

from parallelism.graph import Mode
from parallelism.search.moves import fitted
from parallelism.search.named import data_parallel
from parallelism.search.partition import PartSeconds, place_region
from parallelism.search.regions import Region, Regions
from parallelism.search.space import Degrees, StrategySpace
from parallelism.strategy import OperatorConfig, Strategy


def placed_degrees(
    space: StrategySpace, degrees: Sequence[Degrees], seconds: PartSeconds
) -> Strategy:
    """Place given degrees: beside a producer of as many parts, else where least is to do.

    Parameters
    ----------
    space : StrategySpace
    degrees : sequence of (sample, parameter, mode)
        Legal ones, one an operator.
    seconds : callable
        Operator and number of parts to seconds of one part.

    Returns
    -------
    Strategy
    """
    load = [0.0] * space.servers
    configs: list[OperatorConfig] = []
    for index, (sample, parameter, mode) in enumerate(degrees):
        parts = sample * parameter
        inputs = space.graph.operators[index].inputs
        beside = [configs[i] for i in inputs if configs[i].parts == parts]
        if beside:
            config = space.config(sample, parameter, mode, beside[0].servers)
        else:
            blocks = space.placements(sample, parameter, mode)
            config = min(blocks, key=lambda c: max(load[v] for v in c.servers))
        for server in config.servers:
            load[server] += seconds(index, parts)
        configs.append(config)
    return Strategy(tuple(configs))


def on_tables_of(space: StrategySpace, tables: Strategy, others: Strategy) -> Strategy:
    """Return a strategy that has its embedding tables as one does, and all else as another.

    Parameters
    ----------
    space : StrategySpace
    tables, others : Strategy

    Returns
    -------
    Strategy
    """
    operators = enumerate(space.graph.operators)
    return others.replace([(index, tables.configs[index]) for index, op in operators if op.sparse])


def narrow_first(space: StrategySpace, tables: Strategy, cuts: int) -> Iterator[Strategy]:
    """Yield data parallelism on some servers up to an operator, and on all from there on.

    Where gradients take longer than the passes, few servers, or one, have the first operators:
    the last ones' gradients, which come first, are summed while the backward pass goes on.

    Parameters
    ----------
    space : StrategySpace
    tables : Strategy
        Where its embedding tables are.
    cuts : int
        Operators at which all servers may begin, evenly spread; the end of the model is one.

    Returns
    -------
    iterator of Strategy
    """
    wide = data_parallel(space)
    whole: Region = tuple(range(len(wide.configs)))
    for few in _few(space):
        narrow = list(wide.configs)
        place_region(space, narrow, whole, few)
        for cut in _cut(whole, cuts)[1:]:
            configs = (*narrow[:cut], *wide.configs[cut:])
            yield on_tables_of(space, tables, Strategy(configs))


def narrow_last(space: StrategySpace, strategy: Strategy, cuts: int) -> Iterator[Strategy]:
    """Yield a strategy with its last dense operators data-parallel on some servers only.

    After a stretch on all servers they need no sum over all of them, and leave its sums the time
    that their own backward passes take.

    Parameters
    ----------
    space : StrategySpace
    strategy : Strategy
    cuts : int
        Operators at which fewer servers may begin, evenly spread; the first one is none.

    Returns
    -------
    iterator of Strategy
    """
    whole: Region = tuple(range(len(strategy.configs)))
    for few in _few(space):
        narrow = list(strategy.configs)
        place_region(space, narrow, whole, few)
        for cut in _cut(whole, cuts)[1:-1]:
            configs = (*strategy.configs[:cut], *narrow[cut:])
            yield on_tables_of(space, strategy, Strategy(configs))


def _few(space: StrategySpace) -> Iterator[OperatorConfig]:
    """Yield data parallelism on some servers, in blocks and spread."""
    dense = [i for i, op in enumerate(space.graph.operators) if not op.sparse]
    fewer = {s for i in dense for s, p, _ in space.degrees(i) if p == 1 and s < space.servers}
    for size in sorted(fewer):
        for contiguous in (False, True) if size > 1 else (False,):
            yield space.placed(size, 1, Mode.OUTPUT, contiguous=contiguous)


def streams(regions: Regions) -> tuple[Region, Region] | None:
    """Return the two biggest parts of a model that only one of two first operators leads to.

    Parameters
    ----------
    regions : Regions

    Returns
    -------
    tuple of two tuples of int, or None
        What only the first leads to, and all that the second does; None without a second.
    """
    graph = regions.graph
    first = [i for i, op in enumerate(graph.operators) if not op.inputs][:32]
    best: tuple[int, Region, Region] | None = None
    for a in first:
        for b in first:
            below = set(regions.after(b))
            alone = tuple(i for i in regions.after(a) if i not in below)
            if a != b and (best is None or len(alone) > best[0]):
                best = len(alone), alone, tuple(sorted(below))
    return None if best is None or best[0] < 2 else best[1:]


def streams_on_halves(space: StrategySpace, regions: Regions, cuts: int) -> Iterator[Strategy]:
    """Yield data parallelism but for a stretch of each of two streams, on a half of its own.

    Two streams that run side by side can each use half of the servers for a while, which pays
    where operators lose efficiency when split finely. Yields nothing for models of one stream,
    or an odd number of servers.

    Parameters
    ----------
    space : StrategySpace
    regions : Regions
    cuts : int
        Places at which a stretch may begin or end, evenly spread over each stream.

    Returns
    -------
    iterator of Strategy
    """
    found = streams(regions)
    half = space.servers // 2
    if found is None or space.servers % 2 or space.batch % half:
        return
    wide = data_parallel(space)
    mine, theirs = (_cut(stream, cuts) for stream in found)
    for contiguous in (False, True):
        a, b = (
            space.placed(half, 1, Mode.OUTPUT, offset=offset, contiguous=contiguous)
            for offset in (0, 1)
        )
        for first in combinations(range(len(mine)), 2):
            for second in combinations(range(len(theirs)), 2):
                configs = list(wide.configs)
                for (start, stop), stream, at, config in (
                    (first, found[0], mine, a), (second, found[1], theirs, b),
                ):  # fmt: skip
                    for index in stream[at[start] : at[stop]]:
                        new = fitted(space, index, config)
                        configs[index] = configs[index] if new is None else new
                yield Strategy(tuple(configs))


def widening_branches(
    space: StrategySpace, regions: Regions, seconds: PartSeconds, cuts: int, others: Strategy
) -> Iterator[Strategy]:
    """Yield branches on blocks of servers, of which those left over begin narrow and go on wide.

    Where there are a few more branches than blocks (`Regions.packing`), each that is left over
    lies on one block at first, beside the branch there; then on some of the others, whose
    branches are over sooner; and at last as in another strategy, as is what is in no branch.

    Parameters
    ----------
    space : StrategySpace
    regions : Regions
        Of the same model.
    seconds : callable
        Operator and sample degree to seconds of one part.
    cuts : int
        Places at which a branch may go on elsewhere, its ends included, evenly spread.
    others : Strategy
        Where what is in no branch lies, and branches at last.

    Returns
    -------
    iterator of Strategy
    """
    family = regions.packing
    if len(family) < 2:
        return
    for size in (s for s, p, _ in space.degrees(family[0][0]) if p == 1):
        blocks = space.servers // size
        if size * blocks != space.servers or not blocks < len(family) < 2 * blocks:
            continue
        order = sorted(family, key=lambda region: (-sum(seconds(i, size) for i in region), region))
        for contiguous in (False, True):
            at = [
                space.placed(size, 1, Mode.OUTPUT, offset=block, contiguous=contiguous)
                for block in range(blocks)
            ]
            configs = list(others.configs)
            for region, config in zip(order, at, strict=False):
                place_region(space, configs, region, config)
            yield from _widened(space, configs, order[blocks:], at, cuts)


def _widened(
    space: StrategySpace,
    configs: list[OperatorConfig],
    branches: list[Region],
    at: list[OperatorConfig],
    cuts: int,
) -> Iterator[Strategy]:
    """Yield all ways for the branches that are left over, the others staying where they are."""
    blocks, size = len(at), len(at[0].servers)
    widths = [n for n in range(1, blocks) if space.batch % (size * n) == 0]
    ways = [(n, turn) for n in widths for turn in range(1 if n == blocks - 1 else blocks - 1)]
    for place, (others, turn) in enumerate(ways):
        for begin, end in combinations_with_replacement(range(cuts), 2):
            if begin == end and place:
                continue  # the second leg is empty: said before
            left = list(configs)
            for number, region in enumerate(branches):
                home = blocks - 1 - number
                beside = [(home + 1 + (turn + k) % (blocks - 1)) % blocks for k in range(others)]
                servers = sorted(v for block in beside for v in at[block].servers)
                first, last = (round(len(region) * cut / (cuts - 1)) for cut in (begin, end))
                place_region(space, left, region[:first], at[home])
                leg = space.config(len(servers), 1, Mode.OUTPUT, servers)
                place_region(space, left, region[first:last], leg)
            yield Strategy(tuple(left))


def _cut(stream: Region, cuts: int) -> list[int]:
    return sorted({round(len(stream) * c / (cuts - 1)) for c in range(cuts)})
