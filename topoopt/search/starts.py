"""The strategies that a search starts from, and their topologies; verification repeats them."""

from collections.abc import Sequence

from parallelism.operator_family import OperatorFamily
from parallelism.search.named import least_memory, named_strategies
from parallelism.search.space import StrategySpace
from parallelism.strategy import Strategy
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.rewire import Rewirer

# Always simulated, because plans are compared with them.
USUAL = ("data-parallel", "hybrid")
LEAST_MEMORY = "least-memory"
SLOW_START = 1.2
"""Starting strategies that take so many times as long as the best are of no interest."""


def starting_strategies(
    space: StrategySpace, family: OperatorFamily, names: Sequence[str] | None = None
) -> dict[str, Strategy]:
    """Return the starting strategies by name, those that do not fit included.

    Parameters
    ----------
    space : StrategySpace
    family : OperatorFamily
    names : sequence of str, optional
        Only these of the named ones.

    Returns
    -------
    dict
        Interned; with a strategy of least memory where no other fits.
    """
    named = named_strategies(space)
    if names is not None:
        named = {name: strategy for name, strategy in named.items() if name in names}
    if all(family.memory(strategy).max() > family.memory_limit for strategy in named.values()):
        named[LEAST_MEMORY] = space.together(least_memory(space, family.builder.part_memory))
    return {name: space.intern(strategy) for name, strategy in named.items()}


def start_pair(
    rewirer: Rewirer, strategy: Strategy, name: str, limit: float = float("inf")
) -> Pair | None:
    """Return the best pair of a starting strategy with a topology of its own.

    Parameters
    ----------
    rewirer : Rewirer
    strategy : Strategy
        One that fits in memory.
    name : str
    limit : float
        Slower pairs, in seconds, are of no interest; the usual strategies ignore it.

    Returns
    -------
    Pair or None
        Exact for the usual strategies, and then no slower than the wiring of the paper's
        formula; beyond the size of exact searches the others' times are near. On many servers
        all have that wiring, and near times.
    """
    once = rewirer.spares
    if name not in USUAL:
        return rewirer.wire(strategy, name, formula_only=once, limit=limit, exact=False)
    pair = rewirer.wire(strategy, name, formula_only=once)
    if pair is None or not rewirer.tolerance or once:
        return pair
    # Candidates were ranked with batched completions, which are off by far less than this.
    near = pair.time * (1.0 + rewirer.tolerance)
    plain = rewirer.wire(strategy, name, formula_only=True, limit=near, exact=False)
    if plain is None or plain.wired_like(pair):
        return pair
    return min(pair, rewirer.exactly(plain), key=lambda p: p.time)
