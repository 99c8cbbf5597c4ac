"""What hosts are told: the spine of every flow, and the UDP source port that makes ECMP pick it.

*Hash model.* A ToR forwards a RoCE v2 packet to one of its live spines towards the destination
ToR, in ascending order, by CRC-32 (IEEE 802.3, as in zlib) of 13 bytes, modulo their number:
source address (4 bytes, big endian), destination address (4), protocol 17 (1), UDP source port
(2), UDP destination port 4791 (2). Address of NIC n: `NIC_ADDRESS` + n. Switches differ:
rewrite the addresses where yours are others, and check on a real switch.
"""

import csv
import io
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from codesign_base import InfeasibleError, InputError
from codesign_base.arrays import Ints
from routing.clos.assignment import Assignment, check_assignment
from routing.clos.fabric import Clos
from routing.clos.flows import ClosFlows

ROCE_PORT = 4791  # InfiniBand Architecture Specification, Annex A17
UDP = 17
NIC_ADDRESS = 0x0A000000  # 10.0.0.0
FIRST_PORT = 49152  # the first of the dynamic ports, from which RoCE v2 draws its entropy
_BLOCK = 512  # ports tried at a time

ShortWords = npt.NDArray[np.uint32]


TABLE_COLUMNS = (
    "flow", "job", "source_nic", "target_nic", "source_tor", "target_tor", "spine", "bytes",
    "udp_source_port",
)  # fmt: skip


def hash_packet(source_address: int, target_address: int, source_port: int) -> int:
    """Return the model's hash of a RoCE v2 packet.

    Parameters
    ----------
    source_address, target_address : int
        IPv4 addresses as numbers.
    source_port : int
        UDP source port.

    Returns
    -------
    int
        32 bits.
    """
    packet = (
        source_address.to_bytes(4, "big")
        + target_address.to_bytes(4, "big")
        + bytes((UDP,))
        + source_port.to_bytes(2, "big")
        + ROCE_PORT.to_bytes(2, "big")
    )
    return zlib.crc32(packet)


def udp_source_ports(clos: Clos, flows: ClosFlows, assignment: Assignment) -> Ints:
    """Return the first UDP source port of each flow that the hash model sends to its spine.

    Parameters
    ----------
    clos : Clos
        The fabric; failed links narrow the spines that the hash chooses among.
    flows : ClosFlows
        What is sent, with NIC numbers.
    assignment : Assignment
        A live spine for every flow that leaves its ToR.

    Returns
    -------
    int64 array, shape (flows,)
        Ports, -1 within a ToR.

    Raises
    ------
    InputError
        If flows have no NIC numbers, or a spine is not live.
    InfeasibleError
        If no port from `FIRST_PORT` on gives a flow its spine.
    """
    check_assignment(clos, flows, assignment.spine)
    if flows.source_nic is None or flows.target_nic is None:
        raise InputError("the flows have no NIC numbers, which the hash needs; give both NICs")
    live = clos.live(flows.source_tor, flows.target_tor)
    moving = np.flatnonzero(flows.crosses)
    spine = assignment.spine[moving]
    dead = ~live[moving, spine]
    if dead.any():
        flow = int(moving[dead][0])
        raise InputError(
            f"flow {flow} is assigned spine {assignment.spine[flow]}, whose links have failed; "
            "route again"
        )
    ways = live[moving].sum(axis=1)
    wanted = np.cumsum(live[moving], axis=1)[np.arange(moving.size), spine] - 1
    # CRC is affine over XOR: the port changes the hash by a value that depends on it alone.
    zero = hash_packet(0, 0, 0)
    fixed = _by_byte(flows.source_nic[moving] + NIC_ADDRESS, 0)
    fixed ^= _by_byte(flows.target_nic[moving] + NIC_ADDRESS, 4) ^ np.uint32(zero)
    ports = np.arange(FIRST_PORT, 65536)
    by_port = np.array([hash_packet(0, 0, int(p)) ^ zero for p in ports], dtype=np.uint32)
    found = np.full(flows.count, -1, dtype=np.int64)
    open_ = np.arange(moving.size)
    for begin in range(0, ports.size, _BLOCK):
        if open_.size == 0:
            break
        block = by_port[begin : begin + _BLOCK]
        hits = (fixed[open_, None] ^ block) % ways[open_, None] == wanted[open_, None]
        has = hits.any(axis=1)
        found[moving[open_[has]]] = ports[begin + np.argmax(hits[has], axis=1)]
        open_ = open_[~has]
    if open_.size:
        flow = int(moving[open_[0]])
        raise InfeasibleError(
            f"no UDP source port from {FIRST_PORT} on sends flow {flow} to spine "
            f"{assignment.spine[flow]}; write the table without ports"
        )
    return found


def _by_byte(address: Ints, place: int) -> ShortWords:
    """Return what 4-byte addresses at a place of the packet change in its hash."""
    zero = zlib.crc32(bytes(13))
    change = np.zeros(address.size, dtype=np.uint32)
    for k in range(4):
        table = np.empty(256, dtype=np.uint32)
        for value in range(256):
            packet = bytearray(13)
            packet[place + k] = value
            table[value] = zlib.crc32(packet) ^ zero
        change ^= table[(address >> (8 * (3 - k))) & 255]
    return change


def route_table(
    clos: Clos, flows: ClosFlows, assignment: Assignment, *, ports: bool = False
) -> list[dict[str, int | float | None]]:
    """Return the routes of all flows, sorted by source ToR, source NIC and flow.

    Parameters
    ----------
    clos, flows, assignment
        The fabric, what is sent and its spines.
    ports : bool, default False
        Whether to add the UDP source ports of `udp_source_ports`.

    Returns
    -------
    list of dict
        One per flow; the keys are `TABLE_COLUMNS`. NICs are -1 where the flows have none, the spine
        is -1 within a ToR, ``bytes`` are those of one step, and the port is None where there is
        none.
    """
    check_assignment(clos, flows, assignment.spine)
    unknown = np.full(flows.count, -1, dtype=np.int64)
    port = udp_source_ports(clos, flows, assignment) if ports else unknown
    source = unknown if flows.source_nic is None else flows.source_nic
    target = unknown if flows.target_nic is None else flows.target_nic
    order = np.lexsort((np.arange(flows.count), source, flows.source_tor))
    columns = (
        flows.job, source, target, flows.source_tor, flows.target_tor, assignment.spine,
        flows.bytes_,
    )  # fmt: skip
    listed = [order.tolist(), *(column[order].tolist() for column in columns)]
    listed.append([None if p < 0 else p for p in port[order].tolist()])
    return [dict(zip(TABLE_COLUMNS, row, strict=True)) for row in zip(*listed, strict=True)]


def table_csv(routes: Sequence[dict[str, int | float | None]]) -> str:
    """Return the routes as CSV text with a heading; an empty cell stands for no port."""
    text = io.StringIO()
    writer = csv.DictWriter(text, TABLE_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(routes)
    return text.getvalue()
