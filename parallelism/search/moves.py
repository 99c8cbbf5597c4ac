"""Changes of a strategy: one configuration for a region, other servers, exchanged servers."""

import numpy as np

from parallelism.graph import Mode
from parallelism.search.mcmc import propose
from parallelism.search.regions import Region, Regions
from parallelism.search.space import Change, StrategySpace
from parallelism.strategy import OperatorConfig, Strategy


def fitted(
    space: StrategySpace, index: int, config: OperatorConfig, mode: Mode | None = None
) -> OperatorConfig | None:
    """Return what stands for a configuration at an operator that may not allow it.

    Parameters
    ----------
    space : StrategySpace
    index : int
        Operator.
    config : OperatorConfig
    mode : Mode, optional
        The split of the parameter dimension to prefer.

    Returns
    -------
    OperatorConfig or None
        The same degrees and servers, in another mode where this one does not exist; else samples
        split over all these servers; None where that is not allowed either.
    """
    if config.parameter > 1:
        modes = space.modes(index, config.sample, config.parameter)
        for wanted in (mode, config.mode):
            if wanted in modes and wanted is not None:
                return space.config(config.sample, config.parameter, wanted, config.servers)
        if modes:
            return space.config(config.sample, config.parameter, min(modes), config.servers)
        if space.modes(index, config.parts, 1):
            return space.config(config.parts, 1, Mode.OUTPUT, config.servers)
        return None
    return config if space.allows(index, config) else None


def assign(
    space: StrategySpace,
    strategy: Strategy,
    region: Region,
    config: OperatorConfig,
    *,
    alternate: bool = False,
) -> Change:
    """Give every operator of a region one configuration, as far as it allows it.

    Parameters
    ----------
    space : StrategySpace
    strategy : Strategy
    region : tuple of int
    config : OperatorConfig
    alternate : bool
        Split by columns and by rows in turn (Megatron-LM's pairing).

    Returns
    -------
    list of (int, OperatorConfig)
        Operators that change.
    """
    change: Change = []
    by_columns: set[int] = set()
    for index in region:
        mode = None
        if alternate and any(
            source in by_columns for source in space.graph.operators[index].inputs
        ):
            mode = Mode.REDUCTION
        new = fitted(space, index, config, mode)
        if new is None:
            continue
        if new.parameter > 1 and new.mode is Mode.OUTPUT:
            by_columns.add(index)
        if new is not strategy.configs[index]:
            change.append((index, new))
    return change


def moved(
    space: StrategySpace, strategy: Strategy, region: Region, places: dict[int, int]
) -> Change:
    """Return the change that sends the parts of a region to other servers.

    Parameters
    ----------
    space : StrategySpace
    strategy : Strategy
    region : tuple of int
    places : dict of int to int
        A permutation of servers; those not named stay.
    """
    change: Change = []
    for index in region:
        old = strategy.configs[index]
        servers = tuple(places.get(v, v) for v in old.servers)
        if servers != old.servers:
            change.append((index, space.config(old.sample, old.parameter, old.mode, servers)))
    return change


def transpose(space: StrategySpace, strategy: Strategy, rng: np.random.Generator) -> Change:
    """Exchange two servers of one set, for all operators that have the same configuration.

    No server has more or less to do; other servers exchange activations, and at other times.

    Parameters
    ----------
    space : StrategySpace
    strategy : Strategy
    rng : numpy.random.Generator

    Returns
    -------
    list of (int, OperatorConfig)
        Empty where no operator has two parts.
    """
    several = list(dict.fromkeys(c for c in strategy.configs if c.parts > 1))
    if not several:
        return []
    chosen = several[int(rng.integers(len(several)))]
    a, b = rng.choice(chosen.parts, 2, replace=False).tolist()
    mine, other = chosen.servers[a], chosen.servers[b]
    region = tuple(i for i, c in enumerate(strategy.configs) if c == chosen)
    return moved(space, strategy, region, {mine: other, other: mine})


def propose_region(
    space: StrategySpace, regions: Regions, strategy: Strategy, rng: np.random.Generator
) -> Change:
    """Propose a change of a whole region, or one of the moves of `parallelism.search.mcmc`.

    Parameters
    ----------
    space : StrategySpace
    regions : Regions
        Of the same model.
    strategy : Strategy
    rng : numpy.random.Generator

    Returns
    -------
    list of (int, OperatorConfig)
        Operators that change, and those that use their weights; empty if the move has no effect.
    """
    return space.following(_proposed(space, regions, strategy, rng))


def _proposed(
    space: StrategySpace, regions: Regions, strategy: Strategy, rng: np.random.Generator
) -> Change:
    kind = rng.random()
    if kind < 0.25:
        return propose(space, strategy, rng)
    if kind < 0.37:
        return _divide(space, regions, strategy, rng)
    region = regions.random(rng)
    leader = region[int(rng.integers(len(region)))]
    if kind < 0.65:
        config = _random_placement(space, leader, rng)
        return assign(space, strategy, region, config, alternate=bool(rng.integers(2)))
    if kind < 0.75:
        # Grow: the region follows an operator that is beside it.
        neighbours = space.neighbours[leader]
        if not neighbours:
            return []
        config = strategy.configs[neighbours[int(rng.integers(len(neighbours)))]]
        return assign(space, strategy, region, config)
    if kind < 0.85:
        # Keep the degrees, take other servers: all that is where the leader is.
        old = strategy.configs[leader]
        choices = space.placements(old.sample, old.parameter, old.mode)
        new = choices[int(rng.integers(len(choices)))]
        same = tuple(i for i in region if strategy.configs[i].servers == old.servers)
        places = dict(zip(old.servers, new.servers, strict=True))
        return [
            (i, space.config(c.sample, c.parameter, c.mode, [places[v] for v in c.servers]))
            for i, c in ((i, strategy.configs[i]) for i in same)
            if new.servers != old.servers
        ]
    if kind < 0.93:
        # Exchange two sets of servers of one size, in the whole strategy or the region only.
        mine = strategy.configs[leader].servers
        other = strategy.configs[int(rng.integers(len(strategy.configs)))].servers
        if len(mine) != len(other) or set(mine) & set(other):
            return []
        places = dict(zip((*mine, *other), (*other, *mine), strict=True))
        whole = bool(rng.integers(2))
        chosen = tuple(range(len(strategy.configs))) if whole else region
        return moved(space, strategy, chosen, places)
    a, b = (int(v) for v in rng.integers(space.servers, size=2))
    return moved(space, strategy, region, {a: b, b: a}) if a != b else []


def _random_placement(space: StrategySpace, index: int, rng: np.random.Generator) -> OperatorConfig:
    degrees = space.degrees(index)
    choices = space.placements(*degrees[int(rng.integers(len(degrees)))])
    return choices[int(rng.integers(len(choices)))]


def _divide(
    space: StrategySpace, regions: Regions, strategy: Strategy, rng: np.random.Generator
) -> Change:
    """Give branches, or stretches that run side by side, blocks of servers of their own."""
    family = regions.packing if rng.random() < 0.3 else regions.beside(rng)
    if len(family) < 2 or space.servers < 2:
        return []
    sizes = [s for s, p, _ in space.degrees(family[0][0]) if p == 1 and 2 * s <= space.servers]
    # Large blocks leave least to move and to wait for.
    size = sizes[-1 - min(int(rng.geometric(0.5)) - 1, len(sizes) - 1)]
    blocks = space.servers // size
    count = int(rng.integers(2, min(len(family), blocks) + 1))
    chosen = rng.permutation(len(family))[:count].tolist()
    contiguous = bool(rng.integers(2))
    offsets = rng.permutation(blocks)[:count].tolist()
    change: dict[int, OperatorConfig] = {}
    for place, offset in zip(chosen, offsets, strict=True):
        config = space.placed(size, 1, Mode.OUTPUT, offset=offset, contiguous=contiguous)
        change.update(assign(space, strategy, family[place], config))
    return list(change.items())
