"""AllReduces over rings as MSCCL algorithm files (XML), one channel a ring.

The format is that of microsoft/msccl-tools (``ir_to_xml`` in msccl/language/ir.py): each GPU has
thread blocks of one channel with a peer to send to and one to receive from, and each of these
steps of one chunk. Steps are ``s`` (send), ``r`` (receive), ``rcs`` (receive, copy, send), ``rrs``
(receive, reduce, send) and ``rrcs`` (receive, reduce, copy, send).
"""

from collections.abc import Sequence
from xml.sax.saxutils import quoteattr

from codesign_base import InputError

_PROTOCOLS = ("Simple", "LL", "LL128")


def ring_allreduce(name: str, rings: Sequence[Sequence[int]], protocol: str = "Simple") -> str:
    """Return an AllReduce whose buffer is divided over rings, and within each over its ranks.

    Every ring reduces its part in n - 1 rounds and hands it on in n - 1 more.

    Parameters
    ----------
    name : str
    rings : sequence of sequence of int
        Orders of all ranks 0 to n - 1.
    protocol : {"Simple", "LL", "LL128"}

    Returns
    -------
    str
        The file.

    Raises
    ------
    InputError
        If there is no ring, or one does not visit every rank once, or has fewer than two.
    """
    if protocol not in _PROTOCOLS:
        raise InputError(f"protocol is {protocol!r}; choose {', '.join(_PROTOCOLS)}")
    if not rings:
        raise InputError("an AllReduce over no ring; give at least one")
    size = len(rings[0])
    for ring in rings:
        if size < 2 or sorted(ring) != list(range(size)):
            raise InputError(f"ring {list(ring)} does not visit ranks 0 to {size - 1} once each")
    chunks = size * len(rings)
    lines = [
        f'<algo name={quoteattr(name)} proto="{protocol}" nchannels="{len(rings)}" '
        f'nchunksperloop="{chunks}" ngpus="{size}" coll="allreduce" inplace="1">'
    ]
    places = [{rank: place for place, rank in enumerate(ring)} for ring in rings]
    for rank in range(size):
        lines.append(f'  <gpu id="{rank}" i_chunks="{chunks}" o_chunks="0" s_chunks="0">')
        for channel, ring in enumerate(rings):
            place = places[channel][rank]
            lines.append(
                f'    <tb id="{channel}" send="{ring[(place + 1) % size]}" '
                f'recv="{ring[place - 1]}" chan="{channel}">'
            )
            for number, (kind, part) in enumerate(_steps(place, size)):
                at = channel * size + part
                lines.append(
                    f'      <step s="{number}" type="{kind}" srcbuf="i" srcoff="{at}" dstbuf="i" '
                    f'dstoff="{at}" cnt="1" depid="-1" deps="-1" hasdep="0"/>'
                )
            lines.append("    </tb>")
        lines.append("  </gpu>")
    return "\n".join([*lines, "</algo>", ""])


def _steps(place: int, size: int) -> list[tuple[str, int]]:
    """Return the steps of the rank at a place of the ring, each with its part of the buffer.

    Part p starts at place p and is whole at the place before it.
    """
    kinds = ["s", *["rrs"] * (size - 2), "rrcs", *["rcs"] * (size - 2), "r"]
    return [(kind, (place - number) % size) for number, kind in enumerate(kinds)]
