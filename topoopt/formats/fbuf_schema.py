"""The tables of a task-graph file, for its reader and its writer: which fields, and where."""

from typing import NamedTuple

REF = "ref"
"""The form of a field that refers to a vector or string: an unsigned 32-bit distance."""


class Field(NamedTuple):
    """A field of a table: its name, numpy type (or `REF`), and place in the tables we write."""

    name: str
    form: str
    place: int


class TableKind(NamedTuple):
    """A kind of table.

    Its fields are in the order of the schema. A field that is no reference holds the number
    ``KIND_FIELD`` of `topoopt.formats.fbuf_file.FbufFile`. Places are such that every value is
    aligned and the size a multiple of 8.
    """

    what: str
    size: int
    fields: tuple[Field, ...]

    def place_of(self, name: str) -> int:
        """Return where a field is in the schema."""
        return next(at for at, field in enumerate(self.fields) if field.name == name)


def _kind(what: str, size: int, *fields: tuple[str, str, int]) -> TableKind:
    return TableKind(what, size, tuple(Field(*field) for field in fields))


TABLE_KINDS = {
    "root": _kind(
        "the root table", 56,
        ("gpus_per_node", "<u4", 4), ("nodes", "<u4", 8), ("switches", "<u4", 12),
        ("intergpu_bandwidth", "<f4", 16), ("dram_bandwidth", "<f4", 20),
        ("net_bandwidth", "<f4", 24), ("conn", REF, 28), ("op", REF, 32), ("task", REF, 36),
        ("device", REF, 40), ("route", REF, 44), ("ring", REF, 48),
    ),
    "conn": _kind(
        "connection", 16, ("source", "<u4", 4), ("target", "<u4", 8), ("cables", "<u4", 12)
    ),
    "op": _kind("operator", 24, ("id", "<u8", 8), ("type", "<u8", 16), ("name", REF, 4)),
    "task": _kind(
        "task", 40,
        ("type", "<i2", 36), ("id", "<u8", 8), ("device", "<u8", 16), ("runtime", "<f4", 32),
        ("bytes", "<u8", 24), ("nexttasks", REF, 4),
    ),
    "device": _kind(
        "device", 40,
        ("type", "<i2", 4), ("id", "<u8", 8), ("node", "<u8", 16), ("property", "<u8", 24),
        ("bytes_per_ms", "<u8", 32),
    ),
    "route": _kind("route", 16, ("source", "<u4", 4), ("target", "<u4", 8), ("path", REF, 12)),
    "path": _kind("path", 16, ("hops", REF, 4), ("chance", "<f4", 8)),
    "ring": _kind("ring set", 16, ("size", "<u8", 8), ("jump", REF, 4)),
    "jump": _kind("ring", 8, ("jumps", REF, 4)),
}  # fmt: skip
"""By name; a field that refers to tables has the name of their kind."""
