"""Regions of a model that one change of the strategy may take together.

A split of one operator often pays only if its neighbours follow: otherwise its inputs and
outputs cross the network. What belongs together is a matter of the model graph alone.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from parallelism.graph import ModelGraph

Region = tuple[int, ...]


class Regions:
    """The regions of one model.

    Parameters
    ----------
    graph : ModelGraph
    alike : sequence of tuple of int
        For each operator, all operators of the same shape.
    """

    def __init__(self, graph: ModelGraph, alike: Sequence[tuple[int, ...]]) -> None:
        self.graph = graph
        self.alike = tuple(alike)
        self.count = len(graph.operators)
        # Sets of operators as bits of whole numbers.
        self._above = [1 << i for i in range(self.count)]
        self._below = [1 << i for i in range(self.count)]
        for index, op in enumerate(graph.operators):
            for source in op.inputs:
                self._above[index] |= self._above[source]
        for index in reversed(range(self.count)):
            for reader in graph.consumers[index]:
                self._below[index] |= self._below[reader]

    def _members(self, bits: int) -> Region:
        return tuple(i for i in range(self.count) if bits >> i & 1)

    def between(self, first: int, last: int) -> Region:
        """Return all operators on paths from one operator to another, both included."""
        return self._members(self._below[first] & self._above[last])

    def up_to(self, last: int) -> Region:
        """Return an operator and all that it rests on."""
        return self._members(self._above[last])

    def after(self, first: int) -> Region:
        """Return an operator and all that rests on it."""
        return self._members(self._below[first])

    @cached_property
    def branches(self) -> tuple[Region, ...]:
        """Towers and streams, single operators left out.

        What each input of a join rests on and no other input of it does; and what lies between a
        first operator and an input of a join.

        Returns
        -------
        tuple of tuple of int
            Distinct, in the order of the joins, their inputs and the first operators.
        """
        found: dict[Region, None] = {}
        first = [i for i, op in enumerate(self.graph.operators) if not op.inputs]
        for op in self.graph.operators:
            inputs = sorted(set(op.inputs))
            if len(inputs) < 2:
                continue
            for mine in inputs:
                others = 0
                for other in inputs:
                    others |= self._above[other] if other != mine else 0
                found[self._members(self._above[mine] & ~others)] = None
                for start in first:
                    found[self._members(self._below[start] & self._above[mine])] = None
        return tuple(region for region in found if len(region) > 1)

    @cached_property
    def packing(self) -> tuple[Region, ...]:
        """Branches that share no operator, and single first operators: what may be apart.

        Returns
        -------
        tuple of tuple of int
            Of the greedy packings that begin with each branch and go on with the biggest, the
            one with most operators beside its biggest branch; the first operators (embedding
            tables) that are in no branch last.
        """
        order = sorted(self.branches, key=lambda r: (-len(r), r))
        best: list[Region] = []
        beside = -1
        for first in order:
            chosen, taken = [first], set(first)
            for region in order:
                if not taken & set(region):
                    chosen.append(region)
                    taken |= set(region)
            # What can run beside the biggest is what is gained by keeping them apart.
            gained = sum(map(len, chosen)) - max(map(len, chosen))
            if gained > beside:
                best, beside = chosen, gained
        chosen = best
        taken = {i for region in chosen for i in region}
        for index, op in enumerate(self.graph.operators):
            if not op.inputs and index not in taken:
                chosen.append((index,))
        return tuple(chosen)

    @cached_property
    def trunk(self) -> Region:
        """What rests on the join with most inputs, the join included; empty without a join."""
        joins = [i for i, op in enumerate(self.graph.operators) if len(set(op.inputs)) > 1]
        if not joins:
            return ()
        return self.after(max(joins, key=lambda i: (len(set(self.graph.operators[i].inputs)), -i)))

    @cached_property
    def fixed(self) -> tuple[Region, ...]:
        """Regions of more than one operator that a sweep goes through, biggest first.

        Identical layers (of the whole model, and those of one branch), branches, the trunk, what
        is in no branch, pairs of neighbours, and the whole model.
        """
        everything = tuple(range(self.count))
        inside = {i for region in self.branches for i in region}
        found: dict[Region, None] = {everything: None, self.trunk: None}
        found[tuple(i for i in everything if i not in inside)] = None
        for region in self.branches:
            found[region] = None
            for index in region:
                found[tuple(i for i in self.alike[index] if i in set(region))] = None
        for index in everything:
            found[self.alike[index]] = None
            for source in self.graph.operators[index].inputs:
                found[source, index] = None
        return tuple(sorted((r for r in found if len(r) > 1), key=lambda r: (-len(r), r)))

    def random(self, rng: np.random.Generator) -> Region:
        """Return a random region: a branch, identical layers, an interval, or what is left.

        Parameters
        ----------
        rng : numpy.random.Generator
        """
        kind, drawn = rng.random(), int(rng.integers(2**31))
        index = drawn % self.count
        if kind < 0.3 and self.branches:
            return self.branches[drawn % len(self.branches)]
        if kind < 0.45:
            return self.alike[index]
        if kind < 0.55:
            return self.after(index)
        if kind < 0.65:
            return self.up_to(index)
        below = self._members(self._below[index])
        return self.between(index, below[int(rng.integers(len(below)))])

    def beside(self, rng: np.random.Generator) -> tuple[Region, ...]:
        """Return two random stretches of the model of which neither waits for the other's start.

        Parameters
        ----------
        rng : numpy.random.Generator

        Returns
        -------
        tuple of tuple of int
            Disjoint; fewer than two where everything follows the operator that was drawn.
        """
        first = int(rng.integers(self.count))
        near = self._below[first] | self._above[first]
        others = [i for i in range(self.count) if not near >> i & 1]
        if not others:
            return ()
        # Mostly operators of about the same depth, which run at about the same time.
        others.sort(key=lambda i: (abs(i - first), i))
        second = others[min(int(rng.geometric(0.25)) - 1, len(others) - 1)]
        found: list[Region] = []
        taken: set[int] = set()
        for start, other in ((first, second), (second, first)):
            alone = self._below[start] & ~self._below[other]
            ends = self._members(alone if rng.random() < 0.5 else self._below[start])
            end = ends[int(rng.integers(len(ends)))]
            found.append(tuple(i for i in self.between(start, end) if i not in taken))
            taken |= set(found[-1])
        return tuple(r for r in found if r)
