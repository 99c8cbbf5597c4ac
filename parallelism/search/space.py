"""The space of legal operator configurations: degrees, and the placements tried for them."""

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from codesign_base.whole_numbers import divisors
from parallelism.graph import Mode, ModelGraph, Operator
from parallelism.strategy import OperatorConfig, Strategy

Degrees = tuple[int, int, Mode]
"""Parts along the samples and along the parameters, and how the latter are split."""
Change = list[tuple[int, OperatorConfig]]
"""Operators and their new configurations."""
MOST_PARAMETER = 16
"""Largest parameter degree that a search proposes."""


def legal_degrees(
    op: Operator, servers: int, batch: int
) -> tuple[Degrees, ...]:  # fmt: skip
    """List every legal (sample, parameter, mode) of an operator, whatever its placement.

    Sample degrees divide the batch, parameter degrees divide a split's extent, and there are
    at most as many parts as servers.

    Parameters
    ----------
    op : Operator
    servers, batch : int

    Returns
    -------
    tuple of (int, int, Mode)
        Sorted; unsplit parameter dimensions are listed once, as ``Mode.OUTPUT``.
    """
    found: list[Degrees] = []
    for sample in divisors(batch, servers):
        found.append((sample, 1, Mode.OUTPUT))
        for split in op.splits:
            for parameter in divisors(split.extent, servers // sample):
                if parameter > 1:
                    found.append((sample, parameter, split.mode))
    return tuple(sorted(found))


class StrategySpace:
    """The configurations that the search proposes for each operator of a model.

    The bound of a plan holds for *all* legal strategies (`legal_degrees` and any placement).
    The search proposes those on consecutive or evenly strided servers, with parameter shards
    adjacent or strided, and at most `MOST_PARAMETER` parameter shards; single parts may go
    anywhere.

    Configurations are interned: equal ones are the same object, so that what they imply is
    worked out once.

    Parameters
    ----------
    graph : ModelGraph
    servers : int
    batch : int
        Global batch, samples.
    sample_only : bool
        Propose only sample splits at stride N / k and whole operators on one server, which is
        the space of the published code.
    any_parts : bool
        Propose part counts that do not divide the number of servers, too.
    parameter_splits : bool
        Propose parameter splits. Measured profiles hold none, so that their times are assumed.
    """

    def __init__(
        self,
        graph: ModelGraph,
        servers: int,
        batch: int,
        *,
        sample_only: bool = False,
        any_parts: bool = False,
        parameter_splits: bool = True,
    ) -> None:
        self.graph = graph
        self.servers = servers
        self.batch = batch
        self.sample_only = sample_only
        self.parameter_splits = parameter_splits
        self._placements: dict[Degrees, tuple[OperatorConfig, ...]] = {}
        self._interned: dict[tuple[int, int, Mode, tuple[int, ...]], OperatorConfig] = {}
        # Objects that stand for themselves, so that their servers are not looked at again.
        self._own: set[int] = set()
        self._degrees: list[tuple[Degrees, ...]] = []
        self._modes: list[dict[tuple[int, int], tuple[Mode, ...]]] = []
        remembered: dict[object, tuple[Degrees, ...]] = {}
        modes: dict[object, dict[tuple[int, int], tuple[Mode, ...]]] = {}
        for op in graph.operators:
            key = (op.splits, op.sparse)
            if key not in remembered:
                remembered[key] = tuple(
                    (s, p, mode)
                    for s, p, mode in legal_degrees(op, servers, batch)
                    if (any_parts or servers % (s * p) == 0)
                    and p <= (MOST_PARAMETER if parameter_splits else 1)
                    and not (sample_only and (p > 1 or (op.sparse and s > 1)))
                )
                by_degrees: dict[tuple[int, int], tuple[Mode, ...]] = {}
                for s, p, mode in remembered[key]:
                    by_degrees[s, p] = (*by_degrees.get((s, p), ()), mode)
                modes[key] = by_degrees
            self._degrees.append(remembered[key])
            self._modes.append(modes[key])

    def degrees(self, index: int) -> tuple[Degrees, ...]:
        """Return the (sample, parameter, mode) choices proposed for an operator."""
        return self._degrees[index]

    def modes(self, index: int, sample: int, parameter: int) -> tuple[Mode, ...]:
        """Return the modes in which an operator may have some degrees.

        Parameters
        ----------
        index : int
            Operator.
        sample, parameter : int

        Returns
        -------
        tuple of Mode
            Empty where the degrees are not among its choices.
        """
        return self._modes[index].get((sample, parameter), ())

    def regular_degrees(self, index: int) -> tuple[Degrees, ...]:
        """Return those of the choices whose part count divides the number of servers."""
        return tuple(d for d in self._degrees[index] if self.servers % (d[0] * d[1]) == 0)

    def placements(self, sample: int, parameter: int, mode: Mode) -> tuple[OperatorConfig, ...]:
        """Return the distinct regular placements of some degrees, in a fixed order.

        Parameters
        ----------
        sample, parameter, mode
            The degrees.

        Returns
        -------
        tuple of OperatorConfig
            On consecutive servers, block by block (the last block wraps around where blocks do
            not divide the servers), then on evenly strided ones; with the shards of a sample
            adjacent, then strided.
        """
        key = (sample, parameter, mode if parameter > 1 else Mode.OUTPUT)
        if key not in self._placements:
            parts = sample * parameter
            found: dict[OperatorConfig, None] = {}
            for contiguous in (True, False):
                sets = -(-self.servers // parts) if contiguous else self.servers // parts
                for offset in range(sets):
                    for adjacent in (True, False)[: 2 if min(sample, parameter) > 1 else 1]:
                        config = self.placed(
                            *key, offset=offset, contiguous=contiguous, adjacent=adjacent
                        )
                        found[config] = None
            self._placements[key] = tuple(found)
        return self._placements[key]

    def config(
        self, sample: int, parameter: int, mode: Mode, servers: Iterable[int]
    ) -> OperatorConfig:
        """Return the one object that stands for this configuration."""
        key = (sample, parameter, mode if parameter > 1 else Mode.OUTPUT, tuple(servers))
        found = self._interned.get(key)
        if found is None:
            # One object wins, also when chains in several threads meet it at once.
            found = self._interned.setdefault(key, OperatorConfig(*key))
            self._own.add(id(found))
        return found

    def intern(self, strategy: Strategy) -> Strategy:
        """Return an equal strategy made of interned configurations."""
        return Strategy(
            tuple(
                c if id(c) in self._own else self.config(c.sample, c.parameter, c.mode, c.servers)
                for c in strategy.configs
            )
        )

    def placed(
        self,
        sample: int,
        parameter: int,
        mode: Mode,
        *,
        offset: int = 0,
        contiguous: bool = False,
        adjacent: bool = True,
    ) -> OperatorConfig:
        """Return a configuration on a regular set of servers.

        Parameters
        ----------
        sample, parameter, mode
            The degrees; ``sample * parameter`` is at most the number of servers.
        offset : int
            Which of the possible sets (taken modulo their number).
        contiguous : bool
            Consecutive servers (past the last comes the first) rather than every
            (N / parts)-th, rounded down.
        adjacent : bool
            Shards of one sample are neighbours in the set rather than far apart.

        Returns
        -------
        OperatorConfig
        """
        parts = sample * parameter
        step = self.servers // parts
        each = np.arange(parts)
        if contiguous:
            chosen = (each + offset % -(-self.servers // parts) * parts) % self.servers
        else:
            chosen = each * step + offset % step
        if not adjacent:
            chosen = chosen.reshape(parameter, sample).T.ravel()
        return self.config(sample, parameter, mode, chosen.tolist())

    def widest(self) -> OperatorConfig:
        """Return data parallelism on all servers, or as many as divide them and the batch."""
        most = max(s for s in divisors(self.batch, self.servers) if self.servers % s == 0)
        return self.placed(most, 1, Mode.OUTPUT)

    def random_config(self, index: int, rng: np.random.Generator) -> OperatorConfig:
        """Return a random configuration of an operator."""
        choices = self._degrees[index]
        sample, parameter, mode = choices[rng.integers(len(choices))]
        offset = int(rng.integers(self.servers))
        if self.sample_only:
            return self.placed(sample, parameter, mode, offset=offset)
        contiguous, adjacent = (bool(b) for b in rng.integers(2, size=2))
        return self.placed(
            sample, parameter, mode, offset=offset, contiguous=contiguous, adjacent=adjacent
        )

    def allows(self, index: int, config: OperatorConfig) -> bool:
        """Whether the degrees of a configuration are among an operator's choices."""
        return (config.sample, config.parameter, config.mode) in self._degrees[index]

    def together(self, strategy: Strategy) -> Strategy:
        """Return a strategy with data parallelism where it divides the same weights differently.

        Parameters
        ----------
        strategy : Strategy

        Returns
        -------
        Strategy
        """
        apart = set[int]()
        for group in self.graph.shared:
            if len({strategy.configs[index] for index in group}) > 1:
                apart.update(group)
        if not apart:
            return strategy
        config = self.widest()
        return strategy.replace((index, config) for index in sorted(apart))

    def following(self, change: Change) -> Change:
        """Return a change that operators follow which use the weights of those it names.

        Parameters
        ----------
        change : list of (int, OperatorConfig)

        Returns
        -------
        list of (int, OperatorConfig)
            Of several of one group the last decides; where another does not allow it, none of
            the group changes.
        """
        if not self.graph.shared:
            return change
        changed = dict(change)
        for group in self.graph.shared:
            named = [index for index in changed if index in group]
            if not named:
                continue
            config = changed[named[-1]]
            if all(self.allows(index, config) for index in group):
                changed.update(dict.fromkeys(group, config))
            else:
                changed = {index: each for index, each in changed.items() if index not in group}
        return list(changed.items())

    @cached_property
    def neighbours(self) -> tuple[tuple[int, ...], ...]:
        """Operators that exchange tensors with each operator."""
        return tuple(
            tuple(sorted(set(op.inputs) | set(self.graph.consumers[i])))
            for i, op in enumerate(self.graph.operators)
        )

    @cached_property
    def alike(self) -> tuple[tuple[int, ...], ...]:
        """For each operator, all operators of the same shape (identical layers)."""
        groups: dict[object, list[int]] = {}
        keys = []
        for index, op in enumerate(self.graph.operators):
            key = (op.kind, op.sparse, op.output_shape, op.parameters, op.splits, op.profile_key)
            groups.setdefault(key, []).append(index)
            keys.append(key)
        return tuple(tuple(groups[key]) for key in keys)
