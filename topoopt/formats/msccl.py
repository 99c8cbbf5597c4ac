"""Collectives over rings as MSCCL algorithm files (XML), one channel a ring.

The format is that of microsoft/msccl-tools (``ir_to_xml`` in msccl/language/ir.py): each GPU has
thread blocks of one channel with a peer to send to and one to receive from, and each of these
steps of one chunk. Steps are ``s`` (send), ``r`` (receive), ``rcs`` (receive, copy, send), ``rrs``
(receive, reduce, send), ``rrc`` (receive, reduce, copy) and ``rrcs`` (all of it). All work in
place, in the one buffer that msccl-tools has for that.
"""

from collections.abc import Callable, Sequence

from codesign_base import InputError
from topoopt.formats.msccl_blocks import Gpu, Step, algorithm

_Rings = Sequence[Sequence[int]]
Steps = list[tuple[str, int]]
"""Kinds of steps, each with the place on the ring whose part of the buffer it is about."""


def ring_allreduce(name: str, rings: _Rings) -> str:
    """Return an AllReduce whose buffer is divided over rings, and within each over its ranks.

    Every ring reduces its part in n - 1 rounds and hands it on in n - 1 more.

    Parameters
    ----------
    name : str
    rings : sequence of sequence of int
        Orders of all ranks 0 to n - 1.

    Returns
    -------
    str
        The file.

    Raises
    ------
    InputError
        If there is no ring, or one does not visit every rank once, or has fewer than two.
    """

    def steps(place: int, size: int) -> Steps:
        # The part of place p starts there and is whole at the place before.
        kinds = ["s", *["rrs"] * (size - 2), "rrcs", *["rcs"] * (size - 2), "r"]
        return [(kind, place - number) for number, kind in enumerate(kinds)]

    return _file(name, "allreduce", rings, "i", steps)


def ring_reduce_scatter(name: str, rings: _Rings) -> str:
    """Return a ReduceScatter, in which each rank keeps its part of the sum.

    Parameters, result and errors are those of `ring_allreduce`.
    """

    def steps(place: int, size: int) -> Steps:
        # The part of place p starts behind it, so that it is whole there.
        kinds = ["s", *["rrs"] * (size - 2), "rrc"]
        return [(kind, place - 1 - number) for number, kind in enumerate(kinds)]

    return _file(name, "reduce_scatter", rings, "i", steps)


def ring_allgather(name: str, rings: _Rings) -> str:
    """Return an AllGather, in which each rank begins with its part.

    Parameters, result and errors are those of `ring_allreduce`.
    """

    def steps(place: int, size: int) -> Steps:
        kinds = ["s", *["rcs"] * (size - 2), "r"]
        return [(kind, place - number) for number, kind in enumerate(kinds)]

    return _file(name, "allgather", rings, "o", steps)


def _file(
    name: str, collective: str, rings: _Rings, buffer: str, steps: Callable[[int, int], Steps]
) -> str:
    """Return a file in which each rank's part of the buffer has a chunk for each ring."""
    if not rings:
        raise InputError("a collective over no ring; give at least one")
    size = len(rings[0])
    for ring in rings:
        if size < 2 or sorted(ring) != list(range(size)):
            raise InputError(f"ring {list(ring)} does not visit ranks 0 to {size - 1} once each")
    chunks = size * len(rings)
    gpus = [Gpu() for _ in range(size)]
    for channel, ring in enumerate(rings):
        for place, rank in enumerate(ring):
            parts = [
                (kind, (buffer, ring[part % size] * len(rings) + channel))
                for kind, part in steps(place, size)
            ]
            ends = ring[(place + 1) % size], ring[place - 1], channel
            gpus[rank].blocks[ends] = [Step(kind, at, at) for kind, at in parts]
    held = (chunks, 0) if buffer == "i" else (len(rings), chunks)
    return algorithm(name, collective, gpus, chunks, held, in_place=True, channels=len(rings))
