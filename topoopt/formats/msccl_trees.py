"""Collectives over broadcast trees as MSCCL algorithm files (XML).

The format is that of `topoopt.formats.msccl`. Sums go from leaves to roots (``s``, ``rrc``), whole
parts from roots to leaves (``s``, ``r``), in place. Every connection has a thread block at both
ends, and all thread blocks take their steps in one common order, so that none waits for ever.
"""

from collections.abc import Iterator, Sequence
from math import lcm
from typing import NamedTuple

from codesign_base import InputError
from routing.collectives.trees import Forest
from topoopt.formats.msccl_blocks import MOST_CHUNKS, At, Gpu, Step, algorithm

MSCCL_NAMES = {
    "allreduce": "allreduce", "allgather": "allgather", "reduce-scatter": "reduce_scatter",
    "broadcast": "broadcast", "reduce": "reduce",
}  # fmt: skip
"""What MSCCL calls collectives that trees do."""


class _Message(NamedTuple):
    """Some chunks from one rank to another."""

    sender: int
    receiver: int
    begin: int
    chunks: int


def tree_collective(
    name: str, collective: str, scatter: Forest | None, gather: Forest | None
) -> str:
    """Return a collective over trees, one rank a member.

    Parameters
    ----------
    name : str
    collective : str
        One of `MSCCL_NAMES`.
    scatter, gather : Forest or None
        Of the sums, on the network whose links point the other way, and of the whole parts, as in
        `routing.collectives.choice.CollectiveSchedule`. Ranks are members in ascending order.

    Returns
    -------
    str
        The file.

    Raises
    ------
    InputError
        If there are no trees, or the collective has another name.
    """
    forests = [forest for forest in (scatter, gather) if forest is not None]
    if collective not in MSCCL_NAMES or not forests:
        raise InputError(
            f"collective is {collective!r} with {len(forests)} sets of trees; give trees of one of "
            f"{', '.join(MSCCL_NAMES)}"
        )
    members = forests[0].members
    rank = {member: at for at, member in enumerate(members)}
    whole = lcm(*(forest.copies for forest in forests))
    begin, total = {}, 0
    for root in sorted({tree.root for tree in forests[0].trees}):
        begin[root] = total
        copies = sum(tree.copies for tree in forests[0].trees if tree.root == root)
        total += copies * whole // forests[0].copies
    buffer = "i" if gather is None or collective == "allreduce" else "o"
    gpus = [Gpu() for _ in members]
    last: list[dict[int, At]] = [{} for _ in members]  # by chunk, what a rank received last
    for forest, kind in ((scatter, "rrc"), (gather, "r")):
        if forest is None:
            continue
        for sent in _messages(forest, begin, whole // forest.copies, back=kind == "rrc"):
            a, b = rank[sent.sender], rank[sent.receiver]
            chunks = range(sent.begin, sent.begin + sent.chunks)
            place = buffer, sent.begin
            gpus[a].add((b, -1), Step("s", place, place, sent.chunks), _of(last[a], chunks))
            # What is added up waits for what is added to the same chunks before.
            before = _of(last[b], chunks) if kind == "rrc" else ()
            at = gpus[b].add((-1, a), Step(kind, place, place, sent.chunks), before)
            last[b].update(dict.fromkeys(chunks, at))
    held = (whole, 0) if buffer == "i" else (whole // len(begin), whole)
    return algorithm(name, MSCCL_NAMES[collective], gpus, whole, held, in_place=True)


def _of(last: dict[int, At], chunks: range) -> list[At]:
    return [last[chunk] for chunk in chunks if chunk in last]


def _messages(
    forest: Forest, begin: dict[int, int], size: int, *, back: bool
) -> Iterator[_Message]:
    """Yield what is sent, of so many chunks a copy, hop by hop from the roots, or back to them."""
    taken = dict(begin)
    hops: list[list[_Message]] = []
    for tree in forest.trees:
        first = taken[tree.root]
        taken[tree.root] += tree.copies * size
        spans = _spans(first, taken[tree.root])
        depth = {tree.root: 0}
        for path in tree.paths:
            a, b = path[0], path[-1]
            depth[b] = depth[a] + 1
            while len(hops) < depth[b]:
                hops.append([])
            ends = (b, a) if back else (a, b)
            hops[depth[a]] += [_Message(*ends, *span) for span in spans]
    for hop in reversed(hops) if back else hops:
        yield from hop


def _spans(first: int, end: int) -> Sequence[tuple[int, int]]:
    """Return first chunks and numbers of chunks of as many steps as it takes."""
    return [(at, min(MOST_CHUNKS, end - at)) for at in range(first, end, MOST_CHUNKS)]
