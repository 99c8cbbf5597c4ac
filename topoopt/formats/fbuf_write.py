"""Write TopoOpt task-graph files (.fbuf): FlatBuffers laid out from front to back.

All tables of a kind have one vtable and one layout, in which every field is present, so a kind is
one structured array; what a table refers to lies behind it, as the format asks.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from codesign_base.arrays import Ints
from codesign_base.rows import spread
from topoopt.base.atomic import write_bytes_atomically
from topoopt.formats.fbuf_check import check_fbuf
from topoopt.formats.fbuf_file import MILLISECONDS, FbufFile
from topoopt.formats.fbuf_schema import REF, TABLE_KINDS

_LIMIT = 2**31 - 1


class _Layout:
    """The file as it grows: sections, each aligned to 8 bytes, and where each begins."""

    def __init__(self) -> None:
        self.sections: list[tuple[int, bytes]] = []
        self.end = 0
        self.vtables: dict[str, int] = {}
        self.reserve(8)
        for name, kind in TABLE_KINDS.items():
            places = [field.place for field in kind.fields]
            words = np.array([4 + 2 * len(places), kind.size, *places], dtype="<u2")
            self.vtables[name] = self.reserve(words.nbytes)
            self.put(self.vtables[name], words.tobytes())
        self.root_at, self.root = self.tables("root", 1)

    def reserve(self, size: int) -> int:
        """Return where a section of this size goes."""
        begin = self.end
        self.end += size + -size % 8
        if self.end > _LIMIT:
            raise InputError("the task graph needs more than 2 GiB; a .fbuf file cannot hold it")
        return begin

    def put(self, begin: int, data: bytes) -> None:
        self.sections.append((begin, data))

    def tables(self, name: str, count: int) -> tuple[Ints, npt.NDArray[Any]]:
        """Reserve tables of a kind; return where they lie, and their fields to fill in."""
        kind = TABLE_KINDS[name]
        record = np.zeros(
            count,
            dtype=np.dtype(
                {
                    "names": ["vtable", *(field.name for field in kind.fields)],
                    "formats": [
                        "<i4", *("<u4" if f.form == REF else f.form for f in kind.fields)
                    ],
                    "offsets": [0, *(field.place for field in kind.fields)],
                    "itemsize": kind.size,
                }
            ),
        )  # fmt: skip
        places = self.reserve(count * kind.size) + kind.size * np.arange(count, dtype=np.int64)
        record["vtable"] = places - self.vtables[name]
        return places, record

    def listed(self, name: str, count: int) -> tuple[Ints, npt.NDArray[Any]]:
        """Reserve a vector of the root table, with its tables."""
        vector = self.reserve(4 + 4 * count)
        places, record = self.tables(name, count)
        words, _, entries = _prefixed(np.array([0, count]), "<u4")
        words[entries] = places - (vector + 4 * entries)
        self.put(vector, words.tobytes())
        self.refer(self.root_at, self.root, name, vector)
        return places, record

    def refer(self, places: Ints, record: npt.NDArray[Any], field: str, target: Ints | int) -> None:
        """Fill in a field that refers to vectors or strings."""
        layout: Any = record.dtype.fields
        record[field] = target - (places + layout[field][1])

    def lists(
        self, places: Ints, record: npt.NDArray[Any], field: str, offsets: Ints,
        values: npt.NDArray[Any], form: str = "<u4",
    ) -> None:  # fmt: skip
        """Lay out lists of words, each behind its length, that a field of tables refers to."""
        words, heads, entries = _prefixed(offsets, form)
        words[entries] = values
        begin = self.reserve(words.nbytes)
        self.put(begin, words.tobytes())
        # Lengths are 32-bit words right before the lists.
        self.refer(places, record, field, begin + words.itemsize * (heads + 1) - 4)

    def nested(
        self, places: Ints, record: npt.NDArray[Any], name: str, offsets: Ints
    ) -> tuple[Ints, npt.NDArray[Any]]:
        """Lay out lists of tables that tables refer to, and finish these; return the listed ones.

        Lists of tables are lists of distances, so their room is needed before their content.
        """
        words, heads, entries = _prefixed(offsets, "<u4")
        begin = self.reserve(words.nbytes)
        self.refer(places, record, name, begin + 4 * heads)
        self.finish(places, record)
        inner_at, inner = self.tables(name, entries.size)
        words[entries] = inner_at - (begin + 4 * entries)
        self.put(begin, words.tobytes())
        return inner_at, inner

    def finish(self, places: Ints, record: npt.NDArray[Any]) -> None:
        """Write tables whose fields are filled in."""
        if places.size:
            self.put(int(places[0]), record.tobytes())

    def bytes(self) -> bytes:
        # The last section ends the file: bytes that mean nothing at the end could be lost unseen.
        last = max(self.sections, key=lambda section: section[0] + len(section[1]))
        data = bytearray(last[0] + len(last[1]))
        for begin, section in self.sections:
            data[begin : begin + len(section)] = section
        return bytes(data)


def _prefixed(offsets: Ints, form: str) -> tuple[npt.NDArray[Any], Ints, Ints]:
    """Return words for lists behind their lengths, and the indices of the lengths and entries.

    A length is a 32-bit word, in 64-bit words the upper half.
    """
    counts = np.diff(offsets)
    words = np.zeros(int(counts.sum()) + counts.size, dtype=form)
    heads = offsets[:-1] + np.arange(counts.size)
    words[heads] = counts.astype(form) << np.array(8 * words.itemsize - 32, dtype=form)
    return words, heads, spread(heads + 1, counts)


def _strings(layout: _Layout, texts: tuple[str, ...]) -> Ints:
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
    layout.put(0, int(layout.root_at[0]).to_bytes(4, "little"))
    for field in TABLE_KINDS["root"].fields:
        if field.form != REF:
            value = getattr(file, field.name)
            layout.root[field.name] = value / MILLISECONDS if field.form == "<f4" else value
    for name in ("conn", "op", "device"):
        places, record = _filled(layout, file, name)
        if name == "op":
            layout.refer(places, record, "name", _strings(layout, file.op_name))
        layout.finish(places, record)
    places, record = layout.nested(*_filled(layout, file, "route"), "path", file.route_offsets)
    record["chance"] = file.path_chance
    layout.lists(places, record, "hops", file.hop_offsets, file.hops)
    layout.finish(places, record)
    # Not without any, as in the published files, whose readers ask whether there are any.
    if file.ring_size.size:
        places, record = layout.nested(*_filled(layout, file, "ring"), "jump", file.ring_offsets)
        jumps = file.jumps.astype("<i4").view("<u4")
        layout.lists(places, record, "jumps", file.jump_offsets, jumps)
        layout.finish(places, record)
    places, record = _filled(layout, file, "task")
    record["runtime"] = file.task_runtime * MILLISECONDS
    layout.lists(places, record, "nexttasks", file.next_offsets, file.next_ids, "<u8")
    layout.finish(places, record)
    layout.finish(layout.root_at, layout.root)
    return layout.bytes()


def _filled(layout: _Layout, file: FbufFile, name: str) -> tuple[Ints, npt.NDArray[Any]]:
    """Lay out a vector of the root table, with the numbers of its tables."""
    fields = [field.name for field in TABLE_KINDS[name].fields if field.form != REF]
    places, record = layout.listed(name, getattr(file, f"{name}_{fields[0]}").size)
    for field in fields:
        record[field] = getattr(file, f"{name}_{field}")
    return places, record


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
