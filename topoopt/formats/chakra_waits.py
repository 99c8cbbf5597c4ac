"""What nodes of Chakra traces wait for."""

from collections.abc import Mapping

import numpy as np

from codesign_base import InputError
from codesign_base.rows import dependency_order, starts
from topoopt.formats.chakra_file import TraceNode

RankNode = tuple[int, int]
"""Rank and node."""


class Waits:
    """The tasks that a node waits for, through nodes that are no tasks of their own."""

    def __init__(
        self,
        nodes: Mapping[RankNode, TraceNode],
        begin: Mapping[RankNode, list[int]],
        end: Mapping[RankNode, list[int]],
        folded: Mapping[RankNode, RankNode],
    ) -> None:
        self.nodes, self.begin, self.end, self.folded = nodes, begin, end, folded
        self.known: dict[RankNode, tuple[int, ...]] = {}
        place_of = {place: number for number, place in enumerate(nodes)}
        before = [(r, number) for (r, _), node in nodes.items() for number in node.after]
        counts = [len(node.after) for node in nodes.values()]
        after = [place for place, count in zip(nodes, counts, strict=True) for _ in range(count)]
        order = np.argsort([place_of[each] for each in before], kind="stable")
        rows = np.array([place_of[each] for each in before], dtype=np.int64)
        follow = np.array([place_of[each] for each in after], dtype=np.int64)[order]
        offsets = starts(np.bincount(rows, minlength=len(nodes)))
        _, stuck = dependency_order(counts, offsets, follow)
        if stuck:
            rank, number = list(nodes)[stuck[0]]
            raise InputError(f"rank {rank}: node {number} waits in a cycle; remove a dependency")

    def __call__(self, place: RankNode) -> tuple[int, ...]:
        """Return the tasks that a node waits for."""
        stack = [place]
        while stack:
            at = stack[-1]
            if at in self.known:
                stack.pop()
                continue
            origin = self.folded.get(at, at)
            before = [(at[0], number) for number in self.nodes[origin].after]
            # What a receive waits for, those wait for that wait for it.
            open_ = [each for each in before if each not in self.begin and each not in self.known]
            if open_:
                stack += open_
                continue
            tasks: dict[int, None] = {}
            for each in before:
                tasks |= dict.fromkeys(self.end.get(each, ()))
                if each not in self.begin:
                    tasks |= dict.fromkeys(self.known[each])
            self.known[at] = tuple(tasks)
            stack.pop()
        return self.known[place]
