"""Strategies that place the branches of a model on servers of their own."""

from collections.abc import Callable
from itertools import product

from parallelism.graph import Mode
from parallelism.search.moves import fitted
from parallelism.search.named import data_parallel
from parallelism.search.regions import Region, Regions
from parallelism.search.space import StrategySpace
from parallelism.strategy import OperatorConfig, Strategy

# (operator, sample degree) to the seconds of one part.
PartSeconds = Callable[[int, int], float]


def partitions(space: StrategySpace, regions: Regions, seconds: PartSeconds) -> dict[str, Strategy]:
    """Return strategies that divide the servers among the branches of a model.

    Each branch of `Regions.packing` is replicated on a block of k servers, longest first on the
    block that is free first (Graham's rule for parallel machines); for all k that are legal.
    What is in no branch is replicated on all servers, or follows the longest branch. Where there
    are more branches than blocks, those left over double up, or are spread over all servers.

    Parameters
    ----------
    space : StrategySpace
    regions : Regions
        Of the same model.
    seconds : callable
        Operator and sample degree to seconds of one part.

    Returns
    -------
    dict of str to Strategy
        Distinct, by a name that says how; empty where nothing can be divided.
    """
    wide = data_parallel(space)
    family = regions.packing
    found: dict[str, Strategy] = {}
    if len(family) < 2:
        return found
    sizes = [
        s for s, p, _ in space.degrees(family[0][0])
        if p == 1 and s < space.servers and space.servers // s >= 2
    ]  # fmt: skip
    either = (False, True)
    for size, spread, follow, contiguous in product(sizes, either, either, either):
        strategy = _divided(space, family, seconds, wide, size, spread, follow, contiguous)
        if strategy not in found.values():
            name = f"blocks-of-{size}" + "-spread" * spread + "-following" * follow
            found[name + "-contiguous" * contiguous] = strategy
    return found


def _divided(
    space: StrategySpace,
    family: tuple[Region, ...],
    seconds: PartSeconds,
    wide: Strategy,
    size: int,
    spread: bool,
    follow: bool,
    contiguous: bool,
) -> Strategy:
    blocks = space.servers // size
    length = {region: sum(seconds(i, size) for i in region) for region in family}
    order = sorted(family, key=lambda region: (-length[region], region))
    load = [0.0] * blocks
    configs = list(wide.configs)
    if follow:
        first = space.placed(size, 1, Mode.OUTPUT, offset=0, contiguous=contiguous)
        place_region(space, configs, tuple(range(len(configs))), first)
    whole = len(order) - len(order) % blocks if spread else len(order)
    for region in order[:whole]:
        block = min(range(blocks), key=lambda b: (load[b], b))
        load[block] += length[region]
        place_region(
            space, configs, region,
            space.placed(size, 1, Mode.OUTPUT, offset=block, contiguous=contiguous),
        )  # fmt: skip
    for region in order[whole:]:
        for index in region:
            configs[index] = wide.configs[index]
    return Strategy(tuple(configs))


def place_region(
    space: StrategySpace, configs: list[OperatorConfig], region: Region, config: OperatorConfig
) -> None:
    """Give a region one configuration, in place, where its operators allow it."""
    for index in region:
        new = fitted(space, index, config)
        if new is not None:
            configs[index] = new
