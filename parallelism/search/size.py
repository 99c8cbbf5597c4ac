"""The search space written down: the choices of each group of identical operators, counted."""

import math
from dataclasses import dataclass

from parallelism.graph import Mode
from parallelism.search.space import StrategySpace


@dataclass(frozen=True)
class CountedSplit:
    """One way to split an operator.

    Parameters
    ----------
    sample, parameter : int
    mode : str or None
        How the parameter dimension is split; None where it is whole.
    placements : int
        Regular sets of servers that are tried for it.
    any_placements_log10 : float
        Of all ways to place the parts on distinct servers.
    """

    sample: int
    parameter: int
    mode: str | None
    placements: int
    any_placements_log10: float


@dataclass(frozen=True)
class TiedGroup:
    """Operators of one shape, which share their choice unless a move unties them.

    Parameters
    ----------
    operators : tuple of str
        Their names.
    kind : str
    choices : tuple of CountedSplit
    """

    operators: tuple[str, ...]
    kind: str
    choices: tuple[CountedSplit, ...]

    @property
    def configurations(self) -> int:
        """Configurations of one of its operators: all degrees on all regular placements."""
        return sum(choice.placements for choice in self.choices)


@dataclass(frozen=True)
class SpaceSize:
    """The space of one model on so many servers.

    Parameters
    ----------
    servers, batch : int
    groups : tuple of TiedGroup
        In the order of their first operators.
    """

    servers: int
    batch: int
    groups: tuple[TiedGroup, ...]

    @property
    def tied_log10(self) -> float:
        """log10 of the strategies in which identical operators share their choice."""
        return sum(math.log10(group.configurations) for group in self.groups)

    @property
    def untied_log10(self) -> float:
        """log10 of the strategies in which every operator chooses for itself."""
        return sum(len(group.operators) * math.log10(group.configurations) for group in self.groups)

    @property
    def any_log10(self) -> float:
        """log10 of the same with the parts on any distinct servers."""
        return sum(
            len(group.operators) * _sum_log10([c.any_placements_log10 for c in group.choices])
            for group in self.groups
        )


def space_size(space: StrategySpace) -> SpaceSize:
    """Count a strategy space.

    Parameters
    ----------
    space : StrategySpace

    Returns
    -------
    SpaceSize

    Examples
    --------
    >>> from parallelism.models import dlrm
    >>> from parallelism.search.space import StrategySpace
    >>> space = StrategySpace(dlrm(tables=2, batch_per_gpu=32), 4, 512)
    >>> space_size(space).tied_log10 <= space_size(space).untied_log10
    True
    """
    groups: dict[tuple[int, ...], TiedGroup] = {}
    for index, alike in enumerate(space.alike):
        if alike in groups:
            continue
        operators = space.graph.operators
        choices = tuple(
            CountedSplit(
                sample,
                parameter,
                mode.name.lower() if parameter > 1 else None,
                len(space.placements(sample, parameter, Mode(mode))),
                _arrangements(space.servers, sample * parameter),
            )
            for sample, parameter, mode in space.degrees(index)
        )
        names = tuple(operators[i].name for i in alike)
        groups[alike] = TiedGroup(names, operators[index].kind.value, choices)
    return SpaceSize(space.servers, space.batch, tuple(groups.values()))


def _arrangements(servers: int, parts: int) -> float:
    """log10 of servers! / (servers - parts)!."""
    return (math.lgamma(servers + 1) - math.lgamma(servers - parts + 1)) / math.log(10.0)


def _sum_log10(values: list[float]) -> float:
    top = max(values)
    return top + math.log10(sum(10.0 ** (value - top) for value in values))
