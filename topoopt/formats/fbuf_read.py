"""Read TopoOpt task-graph files (.fbuf)."""

from pathlib import Path

import numpy as np

from codesign_base import InputError
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
        an unknown type, an id that stands twice or does not exist, a device, node or group out
        of range, a time or rate that is negative or not finite, dependencies in a cycle.

    Examples
    --------
    >>> file = read_fbuf("100dlrm_16.fbuf")  # doctest: +SKIP
    >>> file.nodes, file.tasks  # doctest: +SKIP
    (16, 1278)
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise InputError(f"task-graph file {str(path)!r} does not exist; check the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"task-graph file {str(path)!r} cannot be read ({reason}); check the path"
        ) from None
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
    graph = root(data, 12, "the root table")
    buffer = graph.buffer
    _, conn = graph.tables(6, 3, "connection")
    _, ops = graph.tables(7, 3, "operator")
    _, tasks = graph.tables(8, 6, "task")
    _, devices = graph.tables(9, 5, "device")
    _, routes = graph.tables(10, 3, "route")
    _, rings = graph.tables(11, 2, "ring set")
    route_offsets, paths = routes.tables(2, 2, "path")
    ring_offsets, descriptors = rings.tables(1, 1, "ring")
    nexts = tasks.lists(5, 8, "nexttasks")
    hops = paths.lists(0, 4, "hops")
    jumps = descriptors.lists(0, 4, "jumps")
    sizes = rings.u64(0)
    if np.any(sizes > np.uint64(2**62)):
        raise InputError(f"a ring set is for groups of {sizes.max()} nodes; give a group size")
    return FbufFile(
        gpus_per_node=int(graph.u32(0)[0]),
        nodes=int(graph.u32(1)[0]),
        switches=int(graph.u32(2)[0]),
        intergpu_bandwidth=float(graph.f32(3)[0]) * MILLISECONDS,
        dram_bandwidth=float(graph.f32(4)[0]) * MILLISECONDS,
        net_bandwidth=float(graph.f32(5)[0]) * MILLISECONDS,
        conn_source=conn.u32(0),
        conn_target=conn.u32(1),
        conn_cables=conn.u32(2),
        op_id=ops.u64(0),
        op_type=ops.u64(1),
        op_name=ops.strings(2, "name"),
        task_type=tasks.i16(0),
        task_id=tasks.u64(1),
        task_device=tasks.u64(2),
        task_runtime=tasks.f32(3) / MILLISECONDS,
        task_bytes=tasks.u64(4),
        next_offsets=nexts.offsets,
        next_ids=buffer.u64(nexts.places),
        device_type=devices.i16(0),
        device_id=devices.u64(1),
        device_node=devices.u64(2),
        device_property=devices.u64(3),
        device_bytes_per_ms=devices.u64(4),
        route_source=routes.u32(0),
        route_target=routes.u32(1),
        route_offsets=route_offsets,
        path_chance=paths.f32(1),
        hop_offsets=hops.offsets,
        hops=buffer.u32(hops.places),
        ring_size=sizes.astype(np.int64),
        ring_offsets=ring_offsets,
        jump_offsets=jumps.offsets,
        jumps=buffer.i32(jumps.places),
    )
