"""A strategy of few servers, repeated on many."""

from collections import Counter

from parallelism.search.space import StrategySpace
from parallelism.strategy import OperatorConfig, Strategy


def repeated(strategy: Strategy, space: StrategySpace, fewer: int) -> Strategy:
    """Return a strategy of fewer servers for those of a space, as many samples each.

    Parameters
    ----------
    strategy : Strategy
    space : StrategySpace
        Of the same model.
    fewer : int
        Servers of the strategy, a divisor of the space's.

    Returns
    -------
    Strategy
        Each so many servers have a copy of every dense operator, which is data-parallel over the
        copies. Embedding tables are there once, on one copy's servers or another's in turn.
    """
    copies = space.servers // fewer
    dealt: Counter[tuple[int, ...]] = Counter()
    configs = []
    for op, config in zip(space.graph.operators, strategy.configs, strict=True):
        if op.sparse:
            first = dealt[config.servers] % copies * fewer
            dealt[config.servers] += 1
            sample, servers = config.sample, tuple(v + first for v in config.servers)
        else:
            sample = config.sample * copies
            servers = tuple(v + fewer * copy for copy in range(copies) for v in config.servers)
        configs.append(OperatorConfig(sample, config.parameter, config.mode, servers))
    return Strategy(tuple(configs))
