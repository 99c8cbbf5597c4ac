"""Write TopoOpt task-graph files (.fbuf): FlatBuffers laid out from front to back.

All tables of a kind have one vtable and one layout, in which every field is present, so a kind is
one structured array; what a table refers to lies behind it, as the format asks.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from codesign_base.rows import spread
from topoopt.base.atomic import write_bytes_atomically
from topoopt.formats.fbuf_check import check_fbuf
from topoopt.formats.fbuf_file import MILLISECONDS, FbufFile, IntArray, WordArray

_LIMIT = 2**31 - 1
# Layout of each kind of table: (name, numpy type) in the order of the schema's fields, and places
# such that every value is aligned and the size a multiple of 8.
_LAYOUTS: dict[str, tuple[tuple[tuple[str, str, int], ...], int]] = {
    "root": (
        (("gpus", "<u4", 4), ("nodes", "<u4", 8), ("switches", "<u4", 12), ("intergpu", "<f4", 16),
         ("dram", "<f4", 20), ("net", "<f4", 24), ("conn", "<u4", 28), ("ops", "<u4", 32),
         ("tasks", "<u4", 36), ("devices", "<u4", 40), ("routes", "<u4", 44), ("rings", "<u4", 48)),
        56,
    ),
    "connection": ((("source", "<u4", 4), ("target", "<u4", 8), ("cables", "<u4", 12)), 16),
    "operator": ((("id", "<u8", 8), ("type", "<u8", 16), ("name", "<u4", 4)), 24),
    "task": (
        (("type", "<i2", 36), ("id", "<u8", 8), ("device", "<u8", 16), ("runtime", "<f4", 32),
         ("bytes", "<u8", 24), ("next", "<u4", 4)),
        40,
    ),
    "device": (
        (("type", "<i2", 4), ("id", "<u8", 8), ("node", "<u8", 16), ("property", "<u8", 24),
         ("bandwidth", "<u8", 32)),
        40,
    ),
    "route": ((("source", "<u4", 4), ("target", "<u4", 8), ("paths", "<u4", 12)), 16),
    "path": ((("hops", "<u4", 4), ("chance", "<f4", 8)), 16),
    "rings": ((("size", "<u8", 8), ("rings", "<u4", 4)), 16),
    "ring": ((("jumps", "<u4", 4),), 8),
}  # fmt: skip


class _Layout:
    """The file as it grows: sections, each aligned to 8 bytes, and where each begins."""

    def __init__(self) -> None:
        self.sections: list[tuple[int, bytes]] = []
        self.end = 0
        self.vtables: dict[str, int] = {}

    def reserve(self, size: int) -> int:
        """Return where a section of this size goes."""
        begin = self.end
        self.end += size + -size % 8
        if self.end > _LIMIT:
            raise InputError("the task graph needs more than 2 GiB; a .fbuf file cannot hold it")
        return begin

    def put(self, begin: int, data: bytes) -> None:
        self.sections.append((begin, data))

    def tables(self, kind: str, count: int) -> tuple[IntArray, npt.NDArray[Any]]:
        """Reserve tables of a kind; return where they lie, and their fields to fill in."""
        fields, size = _LAYOUTS[kind]
        record = np.zeros(
            count,
            dtype=np.dtype(
                {
                    "names": ["vtable", *(name for name, _, _ in fields)],
                    "formats": ["<i4", *(form for _, form, _ in fields)],
                    "offsets": [0, *(place for _, _, place in fields)],
                    "itemsize": size,
                }
            ),
        )
        places = self.reserve(count * size) + size * np.arange(count, dtype=np.int64)
        record["vtable"] = places - self.vtables[kind]
        return places, record

    def bytes(self) -> bytes:
        # The last section ends the file: bytes that mean nothing at the end could be lost unseen.
        last = max(self.sections, key=lambda section: section[0] + len(section[1]))
        data = bytearray(last[0] + len(last[1]))
        for begin, section in self.sections:
            data[begin : begin + len(section)] = section
        return bytes(data)


def _lists32(layout: _Layout, offsets: IntArray, values: npt.NDArray[Any]) -> IntArray:
    """Lay out lists of 32-bit words, each behind its length; return where the lengths lie."""
    counts = np.diff(offsets)
    words = np.zeros(values.size + counts.size, dtype="<u4")
    heads = offsets[:-1] + np.arange(counts.size)
    words[heads] = counts
    words[spread(heads + 1, counts)] = values
    begin = layout.reserve(words.nbytes)
    layout.put(begin, words.tobytes())
    return begin + 4 * heads


def _lists64(layout: _Layout, offsets: IntArray, values: WordArray) -> IntArray:
    """Lay out lists of 64-bit words; a length is the upper half of the word before its list."""
    counts = np.diff(offsets)
    words = np.zeros(values.size + counts.size, dtype="<u8")
    heads = offsets[:-1] + np.arange(counts.size)
    words[heads] = counts.astype(np.uint64) << np.uint64(32)
    words[spread(heads + 1, counts)] = values
    begin = layout.reserve(words.nbytes)
    layout.put(begin, words.tobytes())
    return begin + 8 * heads + 4


def _strings(layout: _Layout, texts: tuple[str, ...]) -> IntArray:
    """Lay out strings: length, bytes, zero; return where the lengths lie."""
    data = bytearray()
    heads = []
    for text in texts:
        data += bytes(-len(data) % 4)
        heads.append(len(data))
        encoded = text.encode()
        data += len(encoded).to_bytes(4, "little") + encoded + b"\0"
    begin = layout.reserve(len(data))
    layout.put(begin, bytes(data))
    return begin + np.array(heads, dtype=np.int64)


def _vector(layout: _Layout, count: int) -> int:
    """Reserve a vector of tables."""
    return layout.reserve(4 + 4 * count)


def _fill(layout: _Layout, begin: int, targets: IntArray) -> None:
    """Write a vector of tables."""
    words = np.zeros(targets.size + 1, dtype="<u4")
    words[0] = targets.size
    words[1:] = targets - (begin + 4 + 4 * np.arange(targets.size))
    layout.put(begin, words.tobytes())


def write_fbuf(file: FbufFile) -> bytes:
    """Return the bytes of a task-graph file.

    Parameters
    ----------
    file : FbufFile

    Returns
    -------
    bytes
        ``parse_fbuf(write_fbuf(file))`` equals ``file`` where its times, rates and chances are
        32-bit floats (in milliseconds), as those of a file that was read or made by `fbuf_of`.

    Raises
    ------
    InputError
        If the task graph is not possible (see `check_fbuf`), or needs more than 2 GiB.
    """
    check_fbuf(file)
    _check_widths(file)
    layout = _Layout()
    layout.reserve(8)
    for kind, (fields, size) in _LAYOUTS.items():
        words = np.array([4 + 2 * len(fields), size, *(f[2] for f in fields)], dtype="<u2")
        layout.vtables[kind] = layout.reserve(words.nbytes)
        layout.put(layout.vtables[kind], words.tobytes())
    root_at, root = layout.tables("root", 1)
    layout.put(0, int(root_at[0]).to_bytes(4, "little"))
    root["gpus"], root["nodes"], root["switches"] = file.gpus_per_node, file.nodes, file.switches
    root["intergpu"] = file.intergpu_bandwidth / MILLISECONDS
    root["dram"] = file.dram_bandwidth / MILLISECONDS
    root["net"] = file.net_bandwidth / MILLISECONDS

    _put_small(layout, file, root_at, root)
    _put_routes(layout, file, root_at, root)
    _put_rings(layout, file, root_at, root)
    _put_tasks(layout, file, root_at, root)
    layout.put(int(root_at[0]), root.tobytes())
    return layout.bytes()


def _check_widths(file: FbufFile) -> None:
    """Check the numbers that the file holds in fewer bits than `FbufFile`."""
    slowest = file.task_runtime.max(initial=0.0) * MILLISECONDS
    fastest = max(file.intergpu_bandwidth, file.dram_bandwidth, file.net_bandwidth)
    for what, value, limit in (
        ("a runtime in ms", slowest, float(np.finfo(np.float32).max)),
        ("a bandwidth in bytes/ms", fastest / MILLISECONDS, float(np.finfo(np.float32).max)),
        ("gpus_per_node", file.gpus_per_node, 2**32 - 1),
        ("a number of cables", file.conn_cables.max(initial=0), 2**32 - 1),
        ("a jump", np.maximum(file.jumps, ~file.jumps).max(initial=0), 2**31 - 1),
    ):
        if value > limit:
            raise InputError(f"{what} is {value}; a .fbuf file holds at most {limit}")


def save_fbuf(file: FbufFile, path: str | Path) -> None:
    """Write a task-graph file, under a temporary name first.

    Parameters
    ----------
    file : FbufFile
    path : str or Path

    Raises
    ------
    InputError
        As `write_fbuf`, or if the file cannot be written.
    """
    write_bytes_atomically(Path(path), write_fbuf(file))


def _listed(
    layout: _Layout, root_at: IntArray, root: npt.NDArray[Any], field: str, kind: str, count: int
) -> tuple[IntArray, npt.NDArray[Any]]:
    """Lay out a vector of the root table, with its tables."""
    vector = _vector(layout, count)
    places, table = layout.tables(kind, count)
    _fill(layout, vector, places)
    place = next(at for name, _, at in _LAYOUTS["root"][0] if name == field)
    root[field] = vector - (root_at + place)
    return places, table


def _finish(layout: _Layout, places: IntArray, table: npt.NDArray[Any]) -> None:
    if places.size:
        layout.put(int(places[0]), table.tobytes())


def _put_small(layout: _Layout, file: FbufFile, root_at: IntArray, root: npt.NDArray[Any]) -> None:
    """Lay out connections, operators and devices."""
    places, conn = _listed(layout, root_at, root, "conn", "connection", file.conn_source.size)
    conn["source"], conn["target"] = file.conn_source, file.conn_target
    conn["cables"] = file.conn_cables
    _finish(layout, places, conn)
    places, ops = _listed(layout, root_at, root, "ops", "operator", len(file.op_name))
    ops["id"], ops["type"] = file.op_id, file.op_type
    ops["name"] = _strings(layout, file.op_name) - (places + 4)
    _finish(layout, places, ops)
    places, devices = _listed(layout, root_at, root, "devices", "device", file.device_id.size)
    devices["type"], devices["id"] = file.device_type, file.device_id
    devices["node"], devices["property"] = file.device_node, file.device_property
    devices["bandwidth"] = file.device_bytes_per_ms
    _finish(layout, places, devices)


def _put_routes(layout: _Layout, file: FbufFile, root_at: IntArray, root: npt.NDArray[Any]) -> None:
    places, routes = _listed(layout, root_at, root, "routes", "route", file.route_source.size)
    routes["source"], routes["target"] = file.route_source, file.route_target
    # Lists of tables are lists of distances, so their room is needed before their content.
    counts = np.diff(file.route_offsets)
    lists = layout.reserve(4 * int(counts.sum() + counts.size))
    heads = lists + 4 * (file.route_offsets[:-1] + np.arange(counts.size))
    routes["paths"] = heads - (places + 12)
    _finish(layout, places, routes)
    path_at, paths = layout.tables("path", file.path_chance.size)
    _put_nested(layout, lists, file.route_offsets, path_at)
    paths["chance"] = file.path_chance
    paths["hops"] = _lists32(layout, file.hop_offsets, file.hops) - (path_at + 4)
    _finish(layout, path_at, paths)


def _put_rings(layout: _Layout, file: FbufFile, root_at: IntArray, root: npt.NDArray[Any]) -> None:
    if not file.ring_size.size:
        return  # as in the published files, whose readers ask whether there are any
    places, sets = _listed(layout, root_at, root, "rings", "rings", file.ring_size.size)
    sets["size"] = file.ring_size
    counts = np.diff(file.ring_offsets)
    lists = layout.reserve(4 * int(counts.sum() + counts.size))
    heads = lists + 4 * (file.ring_offsets[:-1] + np.arange(counts.size))
    sets["rings"] = heads - (places + 4)
    _finish(layout, places, sets)
    ring_at, rings = layout.tables("ring", int(counts.sum()))
    _put_nested(layout, lists, file.ring_offsets, ring_at)
    jumps = file.jumps.astype("<i4").view("<u4")
    rings["jumps"] = _lists32(layout, file.jump_offsets, jumps) - (ring_at + 4)
    _finish(layout, ring_at, rings)


def _put_nested(layout: _Layout, begin: int, offsets: IntArray, targets: IntArray) -> None:
    """Write the lists of tables that several tables hold."""
    counts = np.diff(offsets)
    words = np.zeros(targets.size + counts.size, dtype="<u4")
    heads = offsets[:-1] + np.arange(counts.size)
    words[heads] = counts
    entries = spread(heads + 1, counts)
    words[entries] = targets - (begin + 4 * entries)
    layout.put(begin, words.tobytes())


def _put_tasks(layout: _Layout, file: FbufFile, root_at: IntArray, root: npt.NDArray[Any]) -> None:
    places, tasks = _listed(layout, root_at, root, "tasks", "task", file.tasks)
    tasks["type"], tasks["id"], tasks["device"] = file.task_type, file.task_id, file.task_device
    tasks["runtime"] = file.task_runtime * MILLISECONDS
    tasks["bytes"] = file.task_bytes
    tasks["next"] = _lists64(layout, file.next_offsets, file.next_ids) - (places + 4)
    _finish(layout, places, tasks)


__all__ = ["save_fbuf", "write_fbuf"]
