"""A bounds-checked FlatBuffers reader that takes all tables of a kind at once.

FlatBuffers: a table starts with the signed distance back to its vtable; a vtable holds its own
size, the table's size, and for each field its place in the table (0: absent, so the default);
vectors and tables are referred to by the unsigned distance from the referring word. Every place
is checked before it is read, and lists may not overlap, so memory stays a small multiple of the
file's size whatever its bytes are.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from codesign_base.rows import spread, starts
from topoopt.formats.fbuf_file import IntArray, WordArray

_BROKEN = "the file is truncated or is not a task graph; fetch or write it again"


class Lists(NamedTuple):
    """Vectors of several tables: list i is entries ``offsets[i] .. offsets[i + 1]``."""

    offsets: IntArray
    places: IntArray


class Buffer:
    """The bytes of a file, in every width that fields have.

    Parameters
    ----------
    data : bytes
    """

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        padded = data + bytes(-len(data) % 8)
        self.bytes = data
        self._u2 = np.frombuffer(padded, dtype="<u2")
        self._i2 = np.frombuffer(padded, dtype="<i2")
        self._u4 = np.frombuffer(padded, dtype="<u4")
        self._i4 = np.frombuffer(padded, dtype="<i4")
        self._u8 = np.frombuffer(padded, dtype="<u8")
        self._f4 = np.frombuffer(padded, dtype="<f4")
        self._marks: IntArray | None = None

    def u32(self, places: IntArray) -> IntArray:
        """Return the unsigned 32-bit words at places that are known to lie in the file."""
        found: IntArray = self._u4[places >> 2].astype(np.int64)
        return found

    def i32(self, places: IntArray) -> IntArray:
        """Return signed 32-bit words."""
        found: IntArray = self._i4[places >> 2].astype(np.int64)
        return found

    def u64(self, places: IntArray) -> WordArray:
        """Return unsigned 64-bit words."""
        found: WordArray = self._u8[places >> 3].astype(np.uint64)
        return found

    def f32(self, places: IntArray) -> npt.NDArray[np.float64]:
        """Return 32-bit floats, widened."""
        with np.errstate(invalid="ignore"):  # a NaN is found, and named, later
            found: npt.NDArray[np.float64] = self._f4[places >> 2].astype(np.float64)
        return found

    def i16(self, places: IntArray) -> IntArray:
        """Return signed 16-bit words."""
        found: IntArray = self._i2[places >> 1].astype(np.int64)
        return found

    def u16(self, places: IntArray) -> IntArray:
        """Return unsigned 16-bit words."""
        found: IntArray = self._u2[places >> 1].astype(np.int64)
        return found

    def require(self, good: npt.NDArray[np.bool_], what: str, index: bool = True) -> None:
        """Raise `InputError` naming the first entry that is not good."""
        if not good.all():
            which = f" {int(np.argmin(good))}" if index else ""
            raise InputError(f"{what}{which} lies outside the file; {_BROKEN}")

    def inside(self, places: IntArray, width: int, what: str) -> None:
        """Check that values of this width lie in the file, aligned."""
        good = (places >= 0) & (places + width <= self.size) & (places % width == 0)
        self.require(good, what)

    def nonzero_before(self, words: IntArray) -> IntArray:
        """Return how many 16-bit words before each of these are not zero."""
        if self._marks is None:
            self._marks = starts(self._u2 != 0)
        return self._marks[words]


class Tables:
    """All tables of one kind.

    Parameters
    ----------
    buffer : Buffer
    places : int64 array
        Where the tables start.
    fields : int
        Number of fields that the schema gives them.
    what : str
        What errors call them.
    """

    def __init__(self, buffer: Buffer, places: IntArray, fields: int, what: str) -> None:
        self.buffer, self.places, self.what = buffer, places, what
        buffer.inside(places, 4, what)
        vtable = places - buffer.i32(places)
        buffer.inside(vtable, 2, f"the vtable of {what}")
        buffer.require(vtable + 4 <= buffer.size, f"the vtable of {what}")
        length = buffer.u16(vtable)
        self.extent = buffer.u16(vtable + 2)
        buffer.require(
            (length >= 4) & (length % 2 == 0) & (vtable + length <= buffer.size),
            f"the vtable of {what}",
        )
        buffer.require((self.extent >= 4) & (places + self.extent <= buffer.size), what)
        self._vtable, self._length = vtable, length
        longer = np.flatnonzero(length > 4 + 2 * fields)
        if longer.size:
            begin = vtable[longer] + 4 + 2 * fields
            end = vtable[longer] + length[longer]
            extra = buffer.nonzero_before(end >> 1) > buffer.nonzero_before(begin >> 1)
            if extra.any():
                raise InputError(
                    f"{what} {longer[np.argmax(extra)]} has a field that the format does not "
                    f"know; it has {fields}"
                )

    def _field(self, index: int, width: int) -> tuple[npt.NDArray[np.bool_], IntArray]:
        """Return which tables hold a field, and where."""
        slot = 4 + 2 * index
        held = slot + 2 <= self._length
        offset = np.zeros(self.places.size, dtype=np.int64)
        offset[held] = self.buffer.u16(self._vtable[held] + slot)
        present = offset > 0
        at = self.places[present] + offset[present]
        good = (offset[present] >= 4) & (offset[present] + width <= self.extent[present])
        self.buffer.require(good & (at % width == 0), f"a field of {self.what}", index=False)
        return present, at

    def u32(self, index: int) -> IntArray:
        """Return an unsigned 32-bit field of all tables (absent: 0)."""
        present, at = self._field(index, 4)
        values = np.zeros(present.size, dtype=np.int64)
        values[present] = self.buffer.u32(at)
        return values

    def u64(self, index: int) -> WordArray:
        """Return an unsigned 64-bit field of all tables (absent: 0)."""
        present, at = self._field(index, 8)
        values = np.zeros(present.size, dtype=np.uint64)
        values[present] = self.buffer.u64(at)
        return values

    def i16(self, index: int) -> IntArray:
        """Return a signed 16-bit field of all tables (absent: 0)."""
        present, at = self._field(index, 2)
        values = np.zeros(present.size, dtype=np.int64)
        values[present] = self.buffer.i16(at)
        return values

    def f32(self, index: int) -> npt.NDArray[np.float64]:
        """Return a 32-bit float field of all tables (absent: 0)."""
        present, at = self._field(index, 4)
        values = np.zeros(present.size)
        values[present] = self.buffer.f32(at)
        return values

    def lists(self, index: int, width: int, name: str) -> Lists:
        """Return where the entries of a vector field lie, for all tables (absent: empty).

        Parameters
        ----------
        index : int
            Of the field.
        width : int
            Bytes an entry.
        name : str
            What errors call the field.
        """
        present, at = self._field(index, 4)
        what = f"the {name} of {self.what}"
        begin = at + self.buffer.u32(at)
        self.buffer.inside(begin, 4, what)
        count = self.buffer.u32(begin)
        # Entries that overlap could be many times the file; no writer makes them.
        total = int(count.sum())
        if total * width > self.buffer.size:
            raise InputError(f"{what} list {total} entries, more than the file holds; {_BROKEN}")
        begin = begin + 4
        good = (begin + count * width <= self.buffer.size) & ((begin % width == 0) | (count == 0))
        self.buffer.require(good, what)
        counts = np.zeros(present.size, dtype=np.int64)
        counts[present] = count
        first = np.zeros(present.size, dtype=np.int64)
        first[present] = begin
        rank = spread(np.zeros_like(counts), counts)
        return Lists(starts(counts), np.repeat(first, counts) + rank * width)

    def tables(self, index: int, fields: int, name: str) -> tuple[IntArray, "Tables"]:
        """Return a vector-of-tables field: offsets of each table's list, and all its tables."""
        found = self.lists(index, 4, f"list of {name}s")
        places = found.places + self.buffer.u32(found.places)
        return found.offsets, Tables(self.buffer, places, fields, name)

    def strings(self, index: int, name: str) -> tuple[str, ...]:
        """Return a string field of all tables (absent: empty)."""
        found = self.lists(index, 1, name)
        data = self.buffer.bytes
        present, at = self._field(index, 4)
        begin = at + self.buffer.u32(at) + 4
        end = begin + np.diff(found.offsets)[present]
        self.buffer.require(end < self.buffer.size, f"the {name} of {self.what}")
        texts = [""] * present.size
        for table, a, b in zip(
            np.flatnonzero(present).tolist(), begin.tolist(), end.tolist(), strict=True
        ):
            try:
                texts[table] = data[a:b].decode()
            except UnicodeDecodeError:
                raise InputError(f"the {name} of {self.what} {table} is not UTF-8") from None
            if data[b] != 0:
                raise InputError(f"the {name} of {self.what} {table} has no end; {_BROKEN}")
        return tuple(texts)


def root(data: bytes, fields: int, what: str) -> Tables:
    """Return the root table of a file, as a list of one.

    Parameters
    ----------
    data : bytes
    fields : int
    what : str

    Raises
    ------
    InputError
        If it does not lie in the file.
    """
    if len(data) < 8:
        raise InputError(f"{len(data)} bytes are no task graph; {_BROKEN}")
    buffer = Buffer(data)
    return Tables(buffer, buffer.u32(np.zeros(1, dtype=np.int64)), fields, what)
