"""A bounds-checked FlatBuffers reader that takes all tables of a kind at once.

FlatBuffers: a table starts with the signed distance back to its vtable; a vtable holds its own
size, the table's size, and for each field its place in the table (0: absent, so the default);
vectors and tables are referred to by the unsigned distance from the referring word. Every place
is checked before it is read, and lists may not overlap, so memory stays a small multiple of the
file's size whatever its bytes are.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from codesign_base.arrays import Ints
from codesign_base.rows import spread, starts
from topoopt.formats.fbuf_schema import REF, TABLE_KINDS

_BROKEN = "the file is truncated or is not a task graph; fetch or write it again"
_WIDENED: dict[str, type[np.generic]] = {
    **dict.fromkeys(("<u2", "<i2", "<u4", "<i4"), np.int64), "<u8": np.uint64, "<f4": np.float64,
}  # fmt: skip


class Lists(NamedTuple):
    """Vectors of several tables: list i is entries ``offsets[i] .. offsets[i + 1]``."""

    offsets: Ints
    places: Ints


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
        self._words = {form: np.frombuffer(padded, dtype=form) for form in _WIDENED}
        self._marks: Ints | None = None

    def words(self, form: str, places: Ints) -> npt.NDArray[Any]:
        """Return words of a numpy type at places that are known to lie in the file, widened."""
        words = self._words[form]
        with np.errstate(invalid="ignore"):  # a NaN is found, and named, later
            return words[places // words.itemsize].astype(_WIDENED[form])

    def require(self, good: npt.NDArray[np.bool_], what: str, index: bool = True) -> None:
        """Raise `InputError` naming the first entry that is not good."""
        if not good.all():
            which = f" {int(np.argmin(good))}" if index else ""
            raise InputError(f"{what}{which} lies outside the file; {_BROKEN}")

    def inside(self, places: Ints, width: int, what: str) -> None:
        """Check that values of this width lie in the file, aligned."""
        good = (places >= 0) & (places + width <= self.size) & (places % width == 0)
        self.require(good, what)

    def nonzero_before(self, words: Ints) -> Ints:
        """Return how many 16-bit words before each of these are not zero."""
        if self._marks is None:
            self._marks = starts(self._words["<u2"] != 0)
        return self._marks[words]


class Tables:
    """All tables of one kind.

    Parameters
    ----------
    buffer : Buffer
    places : int64 array
        Where the tables start.
    name : str
        Of the kind, in `topoopt.formats.fbuf_schema.TABLE_KINDS`.
    """

    def __init__(self, buffer: Buffer, places: Ints, name: str) -> None:
        self.buffer, self.places, self.name, self.kind = buffer, places, name, TABLE_KINDS[name]
        self.what = what = self.kind.what
        fields = len(self.kind.fields)
        buffer.inside(places, 4, what)
        vtable = places - buffer.words("<i4", places)
        buffer.inside(vtable, 2, f"the vtable of {what}")
        buffer.require(vtable + 4 <= buffer.size, f"the vtable of {what}")
        length = buffer.words("<u2", vtable)
        self.extent = buffer.words("<u2", vtable + 2)
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

    def _field(self, name: str, width: int) -> tuple[npt.NDArray[np.bool_], Ints]:
        """Return which tables hold a field, and where."""
        slot = 4 + 2 * self.kind.place_of(name)
        held = slot + 2 <= self._length
        offset = np.zeros(self.places.size, dtype=np.int64)
        offset[held] = self.buffer.words("<u2", self._vtable[held] + slot)
        present = offset > 0
        at = self.places[present] + offset[present]
        good = (offset[present] >= 4) & (offset[present] + width <= self.extent[present])
        self.buffer.require(good & (at % width == 0), f"a field of {self.what}", index=False)
        return present, at

    def numbers(self) -> dict[str, npt.NDArray[Any]]:
        """Return all fields that are numbers (absent: 0), by the names of `FbufFile`."""
        found = {}
        for field in self.kind.fields:
            if field.form != REF:
                present, at = self._field(field.name, int(field.form[-1]))
                words = self.buffer.words(field.form, at)
                values = np.zeros(present.size, dtype=words.dtype)
                values[present] = words
                found[f"{self.name}_{field.name}"] = values
        return found

    def lists(self, name: str, width: int, called: str = "") -> Lists:
        """Return where the entries of a vector field lie, for all tables (absent: empty).

        Parameters
        ----------
        name : str
            Of the field.
        width : int
            Bytes an entry.
        called : str
            What errors call the field, if not by its name.
        """
        present, at = self._field(name, 4)
        what = f"the {called or name} of {self.what}"
        begin = at + self.buffer.words("<u4", at)
        self.buffer.inside(begin, 4, what)
        count = self.buffer.words("<u4", begin)
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

    def tables(self, name: str) -> tuple[Ints, "Tables"]:
        """Return a vector-of-tables field: offsets of each table's list, and all its tables."""
        found = self.lists(name, 4, f"list of {TABLE_KINDS[name].what}s")
        places = found.places + self.buffer.words("<u4", found.places)
        return found.offsets, Tables(self.buffer, places, name)

    def strings(self, name: str) -> tuple[str, ...]:
        """Return a string field of all tables (absent: empty)."""
        found = self.lists(name, 1)
        data = self.buffer.bytes
        present, at = self._field(name, 4)
        begin = at + self.buffer.words("<u4", at) + 4
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


def root(data: bytes) -> Tables:
    """Return the root table of a file, as a list of one.

    Parameters
    ----------
    data : bytes

    Raises
    ------
    InputError
        If it does not lie in the file.
    """
    if len(data) < 8:
        raise InputError(f"{len(data)} bytes are no task graph; {_BROKEN}")
    buffer = Buffer(data)
    return Tables(buffer, buffer.words("<u4", np.zeros(1, dtype=np.int64)), "root")
