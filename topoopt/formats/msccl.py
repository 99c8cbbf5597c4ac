"""AllReduces over rings as MSCCL algorithm files (XML), one channel a ring.

The format is that of microsoft/msccl-tools (``ir_to_xml`` in msccl/language/ir.py): each GPU has
thread blocks of one channel with a peer to send to and one to receive from, and each of these
steps of one chunk. Steps are ``s`` (send), ``r`` (receive), ``rcs`` (receive, copy, send), ``rrs``
(receive, reduce, send) and ``rrcs`` (receive, reduce, copy, send).
"""

from collections.abc import Sequence
from xml.etree import ElementTree

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
    top = ElementTree.Element(
        "algo", name=name, proto=protocol, nchannels=str(len(rings)), nchunksperloop=str(chunks),
        ngpus=str(size), coll="allreduce", inplace="1",
    )  # fmt: skip
    for rank in range(size):
        gpu = ElementTree.SubElement(
            top, "gpu", id=str(rank), i_chunks=str(chunks), o_chunks="0", s_chunks="0"
        )
        for channel, ring in enumerate(rings):
            place = list(ring).index(rank)
            block = ElementTree.SubElement(
                gpu, "tb", id=str(channel), send=str(ring[(place + 1) % size]),
                recv=str(ring[place - 1]), chan=str(channel),
            )  # fmt: skip
            for number, (kind, part) in enumerate(_steps(place, size)):
                offset = str(channel * size + part)
                ElementTree.SubElement(
                    block, "step", s=str(number), type=kind, srcbuf="i", srcoff=offset,
                    dstbuf="i", dstoff=offset, cnt="1", depid="-1", deps="-1", hasdep="0",
                )  # fmt: skip
    ElementTree.indent(top)
    return ElementTree.tostring(top, encoding="unicode") + "\n"


def _steps(place: int, size: int) -> list[tuple[str, int]]:
    """Return the steps of the rank at a place of the ring, each with its part of the buffer.

    Part p starts at place p and is whole at the place before it.
    """
    kinds = ["s", *["rrs"] * (size - 2), "rrcs", *["rcs"] * (size - 2), "r"]
    return [(kind, (place - number) % size) for number, kind in enumerate(kinds)]
