"""Thread blocks of MSCCL algorithm files (XML) whose steps wait for steps of other blocks.

The format is that of `topoopt.formats.msccl`. A step waits for one other at most; ``nop`` steps
before it wait for more.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from xml.sax.saxutils import quoteattr

BLOCKS_OF_CHANNEL = 32
"""Thread blocks of a channel on a GPU (MSCCL_MAX_NUM_THREAD_BLOCKS_PER_CHANNEL)."""

MOST_STEPS = 256
"""Steps of a thread block that microsoft/msccl reads (MSCCL_MAX_NUM_STEPS)."""

MOST_BYTES = 2**40
"""Size from which on a file is not used; without one microsoft/msccl takes 128 MiB."""

MOST_CHUNKS = 71
"""Chunks of a step (less than MSCCL_MAX_COUNT)."""

ChunkPlace = tuple[str, int]
"""A buffer (``i``, ``o`` or ``s``) and a chunk of it."""

At = tuple[int, int]
"""A thread block and a step of it."""

Peers = tuple[int, int] | tuple[int, int, int]
"""The ranks that a thread block sends to and hears from, -1 if none; and its channel, if given."""


@dataclass(frozen=True)
class Step:
    """A step of a thread block; ``after`` is the one that it waits for."""

    kind: str
    source: ChunkPlace
    target: ChunkPlace
    count: int = 1
    after: At | None = None
    awaited: bool = False


@dataclass
class Gpu:
    """Thread blocks of a GPU by their ends, in the order in which they are first used."""

    blocks: dict[Peers, list[Step]] = field(default_factory=dict)
    scratch: int = 0

    def add(self, ends: Peers, step: Step, after: Sequence[At] = ()) -> At:
        """Append a step that waits for others to a block; return where it is."""
        steps = self.blocks.setdefault(ends, [])
        block = list(self.blocks).index(ends)
        # Steps of the same block are done in order.
        others = sorted({at for at in after if at[0] != block})
        for other in others:
            waited = list(self.blocks.values())[other[0]]
            waited[other[1]] = replace(waited[other[1]], awaited=True)
        for other in others[:-1]:
            steps.append(Step("nop", step.source, step.target, 0, other))
        steps.append(replace(step, after=others[-1]) if others else step)
        return block, len(steps) - 1


def algorithm(
    name: str, collective: str, gpus: Sequence[Gpu], chunks: int, held: tuple[int, int],
    *, in_place: bool, channels: int = 0,
) -> str:  # fmt: skip
    """Return an algorithm file.

    Parameters
    ----------
    name : str
    collective : str
        By MSCCL's name.
    gpus : sequence of Gpu
        Of ranks 0, 1, ...
    chunks : int
        Of the whole buffer.
    held : (int, int)
        Chunks of the input and of the output of a rank.
    in_place : bool
        Whether both are one buffer.
    channels : int
        Of blocks that name theirs; by default the fewest that leave none with too many blocks.
    """
    channels = channels or _channels(gpus)
    lines = [
        f'<algo name={quoteattr(name)} proto="Simple" nchannels="{channels}" '
        f'nchunksperloop="{chunks}" ngpus="{len(gpus)}" coll="{collective}" '
        f'inplace="{int(in_place)}" outofplace="{int(not in_place)}" minBytes="0" '
        f'maxBytes="{MOST_BYTES}">'
    ]
    for rank, gpu in enumerate(gpus):
        lines.append(
            f'  <gpu id="{rank}" i_chunks="{held[0]}" o_chunks="{held[1]}" '
            f's_chunks="{gpu.scratch}">'
        )
        for number, (ends, steps) in enumerate(gpu.blocks.items()):
            channel = _channel(rank, ends, channels)
            lines.append(
                f'    <tb id="{number}" send="{ends[0]}" recv="{ends[1]}" chan="{channel}">'
            )
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


def _channel(rank: int, ends: Peers, channels: int) -> int:
    """Return the channel of a block: both ends of a connection find the same."""
    if len(ends) == 3:
        return ends[2]
    return (rank + max(ends)) % channels if max(ends) >= 0 else 0


def _channels(gpus: Sequence[Gpu]) -> int:
    """Return how many channels leave none with too many blocks."""
    channels = max(1, *(-(-len(gpu.blocks) // BLOCKS_OF_CHANNEL) for gpu in gpus))
    while True:
        used = Counter(
            (rank, _channel(rank, ends, channels))
            for rank, gpu in enumerate(gpus)
            for ends in gpu.blocks
        )
        if max(used.values(), default=0) <= BLOCKS_OF_CHANNEL:
            return channels
        channels += 1
