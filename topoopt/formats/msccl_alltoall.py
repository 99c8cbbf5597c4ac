"""An all-to-all over given paths as an MSCCL algorithm file (XML).

The format is that of `topoopt.formats.msccl`. Ranks on a path take chunks into scratch and send
them on. Each pair of ranks that send to each other has one thread block at both ends, and all
thread blocks take their steps in one common order, so that none waits for ever.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from xml.sax.saxutils import quoteattr

from codesign_base import InputError

Path = tuple[int, ...]

BLOCKS_OF_CHANNEL = 32
"""Thread blocks of a channel on a GPU (MSCCL_MAX_NUM_THREAD_BLOCKS_PER_CHANNEL)."""


@dataclass(frozen=True)
class _Step:
    """A step of a thread block; ``after`` is the thread block and step that it waits for."""

    kind: str
    source: tuple[str, int]
    target: tuple[str, int]
    count: int = 1
    after: tuple[int, int] | None = None
    awaited: bool = False


@dataclass
class _Gpu:
    """Thread blocks of a GPU by peer, in the order in which they are first used."""

    blocks: dict[int, list[_Step]] = field(default_factory=dict)
    scratch: int = 0
    sends: set[int] = field(default_factory=set)
    hears: set[int] = field(default_factory=set)

    def add(self, peer: int, step: _Step) -> tuple[int, int]:
        """Append a step to the block of a peer; return the numbers of both."""
        steps = self.blocks.setdefault(peer, [])
        steps.append(step)
        return list(self.blocks).index(peer), len(steps) - 1


def routed_alltoall(name: str, size: int, paths: Mapping[tuple[int, int], Sequence[Path]]) -> str:
    """Return an all-to-all whose chunks take given paths.

    Parameters
    ----------
    name : str
    size : int
        Number of ranks.
    paths : dict of (int, int) to sequence of tuple of int
        Of each ordered pair of different ranks the path of each of its chunks, of which every
        pair has as many; with both ends, and no rank twice.

    Returns
    -------
    str
        The file.

    Raises
    ------
    InputError
        If a pair is missing, has another number of chunks, or a path is none of the pair's.
    """
    parts = len(next(iter(paths.values()), ()))
    pairs = [(a, (a + turn) % size) for turn in range(1, size) for a in range(size)]
    for pair in pairs:
        if len(paths.get(pair, ())) != parts or not parts:
            raise InputError(f"ranks {pair} have no {parts} paths; give every pair as many")
        for path in paths[pair]:
            if (path[0], path[-1]) != pair or len(set(path)) < len(path):
                raise InputError(f"path {path} does not lead from {pair[0]} to {pair[1]}")
    gpus = [_Gpu() for _ in range(size)]
    chunks = {(pair, part): paths[pair][part] for pair in pairs for part in range(parts)}
    # Where each chunk lies now, and the receive that brought it there.
    lies = {chunk: (("i", chunk[0][1] * parts + chunk[1]), (-1, -1)) for chunk in chunks}
    for hop in range(max(map(len, chunks.values()), default=1) - 1):
        for chunk, path in chunks.items():
            if hop < len(path) - 1:
                _hop(gpus, chunk, path, hop, lies, parts)
    for rank, gpu in enumerate(gpus):
        own = rank * parts
        gpu.blocks[-1] = [_Step("cpy", ("i", own), ("o", own), parts)]
    return _written(name, gpus, parts)


def _hop(
    gpus: list[_Gpu],
    chunk: tuple[tuple[int, int], int],
    path: Path,
    hop: int,
    lies: dict[tuple[tuple[int, int], int], tuple[tuple[str, int], tuple[int, int]]],
    parts: int,
) -> None:
    """Write the send and the receive of one hop of a chunk."""
    a, b = list(pairwise(path))[hop]
    at, brought = lies[chunk]
    if hop == len(path) - 2:
        to = "o", chunk[0][0] * parts + chunk[1]
    else:
        to = "s", gpus[b].scratch
        gpus[b].scratch += 1
    after = None
    if hop:
        after = brought
        steps = list(gpus[a].blocks.values())[brought[0]]
        steps[brought[1]] = replace(steps[brought[1]], awaited=True)
    gpus[a].add(b, _Step("s", at, to, after=after))
    lies[chunk] = to, gpus[b].add(a, _Step("r", at, to))
    gpus[a].sends.add(b)
    gpus[b].hears.add(a)


def _written(name: str, gpus: list[_Gpu], parts: int) -> str:
    size = len(gpus)
    channels = -(-size // BLOCKS_OF_CHANNEL)
    lines = [
        f'<algo name={quoteattr(name)} proto="Simple" nchannels="{channels}" '
        f'nchunksperloop="{size * parts}" ngpus="{size}" coll="alltoall" inplace="0">'
    ]
    for rank, gpu in enumerate(gpus):
        lines.append(
            f'  <gpu id="{rank}" i_chunks="{size * parts}" o_chunks="{size * parts}" '
            f's_chunks="{gpu.scratch}">'
        )
        for number, (peer, steps) in enumerate(gpu.blocks.items()):
            # Both ends of a connection find the same channel, and no channel too many blocks.
            channel = (rank + peer) % channels if peer >= 0 else 0
            send = peer if peer in gpu.sends else -1
            hear = peer if peer in gpu.hears else -1
            lines.append(f'    <tb id="{number}" send="{send}" recv="{hear}" chan="{channel}">')
            for at, step in enumerate(steps):
                block, before = step.after or (-1, -1)
                lines.append(
                    f'      <step s="{at}" type="{step.kind}" srcbuf="{step.source[0]}" '
                    f'srcoff="{step.source[1]}" dstbuf="{step.target[0]}" '
                    f'dstoff="{step.target[1]}" cnt="{step.count}" depid="{block}" '
                    f'deps="{before}" hasdep="{int(step.awaited)}"/>'
                )
            lines.append("    </tb>")
        lines.append("  </gpu>")
    return "\n".join([*lines, "</algo>", ""])
