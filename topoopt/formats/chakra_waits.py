"""What nodes of Chakra traces wait for, and cycles among them."""

from collections.abc import Mapping, Sequence

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Ints
from codesign_base.rows import starts
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
        stuck = in_cycle(counts, starts(np.bincount(rows, minlength=len(nodes))), follow)
        if stuck is not None:
            rank, number = list(nodes)[stuck]
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


def in_cycle(counts: Sequence[int], offsets: Ints, after: Ints) -> int | None:
    """Return the first that never starts, in a cycle or after one; None if there is none.

    Parameters
    ----------
    counts : sequence of int
        How many each waits for.
    offsets, after : int64 arrays
        CSR lists of those that wait for each.
    """
    left = list(counts)
    begin, follow = offsets.tolist(), after.tolist()
    ready = [one for one, count in enumerate(left) if count == 0]
    while ready:
        one = ready.pop()
        for other in follow[begin[one] : begin[one + 1]]:
            left[other] -= 1
            if left[other] == 0:
                ready.append(other)
    return next((one for one, count in enumerate(left) if count > 0), None)
