"""Read TopoOpt task-graph files (.fbuf)."""

from pathlib import Path
from typing import Any

import numpy as np

from codesign_base import InputError
from codesign_base.counted import counted
from parallelism.reading import read_bytes
from topoopt.formats.fbuf_check import check_fbuf
from topoopt.formats.fbuf_file import MILLISECONDS, FbufFile
from topoopt.formats.fbuf_tables import root


def read_fbuf(path: str | Path) -> FbufFile:
    """Read a task-graph file.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    FbufFile

    Raises
    ------
    InputError
        If the file cannot be read, is truncated or malformed, or what it says is impossible:
        an unknown type, an id that occurs twice or does not exist, a device, node or group out
        of range, a time or rate that is negative or not finite, dependencies in a cycle.

    Examples
    --------
    >>> file = read_fbuf("100dlrm_16.fbuf")  # doctest: +SKIP
    >>> file.nodes, file.tasks  # doctest: +SKIP
    (16, 1278)
    """
    data = read_bytes(path, "task-graph file")
    return parse_fbuf(data, f"task-graph file {str(path)!r}")


def parse_fbuf(data: bytes, name: str = "task-graph file") -> FbufFile:
    """Read a task graph from the bytes of a file.

    Parameters
    ----------
    data : bytes
    name : str
        What errors call it.

    Returns
    -------
    FbufFile

    Raises
    ------
    InputError
        As `read_fbuf`.
    """
    try:
        file = _decoded(data)
        check_fbuf(file)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    return file


def _decoded(data: bytes) -> FbufFile:
    graph = root(data)
    words = graph.buffer.words
    conn, op, task, device, route, ring = (
        graph.tables(name)[1] for name in ("conn", "op", "task", "device", "route", "ring")
    )
    route_offsets, path = route.tables("path")
    ring_offsets, jump = ring.tables("jump")
    nexts, hops, jumps = task.lists("nexttasks", 8), path.lists("hops", 4), jump.lists("jumps", 4)
    numbers: dict[str, Any] = {
        name.removeprefix("root_"): values[0].item() * (MILLISECONDS if "bandwidth" in name else 1)
        for name, values in graph.numbers().items()
    }
    for tables in (conn, op, task, device, route, path, ring):
        numbers |= tables.numbers()
    numbers["task_runtime"] = numbers["task_runtime"] / MILLISECONDS
    sizes = numbers["ring_size"]
    if np.any(sizes > np.uint64(2**62)):
        raise InputError(
            f"a ring set is for groups of {counted(sizes.max(), 'node')}; give a group size"
        )
    numbers["ring_size"] = sizes.astype(np.int64)
    return FbufFile(
        op_name=op.strings("name"),
        next_offsets=nexts.offsets,
        next_ids=words("<u8", nexts.places),
        route_offsets=route_offsets,
        hop_offsets=hops.offsets,
        hops=words("<u4", hops.places),
        ring_offsets=ring_offsets,
        jump_offsets=jumps.offsets,
        jumps=words("<i4", jumps.places),
        **numbers,
    )
