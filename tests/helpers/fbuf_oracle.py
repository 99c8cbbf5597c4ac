"""The task-graph file by the runtime of the flatbuffers package: a reader and a writer.

A file is a dict: header fields, and lists of tuples in the order of the schema's fields, with
floats as stored (milliseconds).
"""

import itertools

import flatbuffers
import numpy as np
from flatbuffers import encode
from flatbuffers import number_types as N
from flatbuffers.table import Table
from published_data import published_data

HEADER = (N.Uint32Flags, N.Uint32Flags, N.Uint32Flags) + 3 * (N.Float32Flags,)


def scalar(table, field, flags):
    place = table.Offset(4 + 2 * field)
    return table.Get(flags, place + table.Pos) if place else 0


def tables(table, field):
    place = table.Offset(4 + 2 * field)
    if not place:
        return []
    first = table.Vector(place)
    return [
        Table(table.Bytes, table.Indirect(first + 4 * k)) for k in range(table.VectorLen(place))
    ]


def numbers(table, field, flags):
    place = table.Offset(4 + 2 * field)
    if not place:
        return []
    first, width = table.Vector(place), flags.bytewidth
    return [table.Get(flags, first + width * k) for k in range(table.VectorLen(place))]


def text(table, field):
    place = table.Offset(4 + 2 * field)
    return table.String(place + table.Pos).decode() if place else ""


def oracle_read(data):
    """Return what a file holds."""
    root = Table(bytearray(data), encode.Get(N.UOffsetTFlags.packer_type, data, 0))
    u64, u32, i16, f32 = N.Uint64Flags, N.Uint32Flags, N.Int16Flags, N.Float32Flags
    return {
        "header": tuple(scalar(root, k, flags) for k, flags in enumerate(HEADER)),
        "conn": [tuple(scalar(t, k, u32) for k in range(3)) for t in tables(root, 6)],
        "ops": [(scalar(t, 0, u64), scalar(t, 1, u64), text(t, 2)) for t in tables(root, 7)],
        "tasks": [
            (scalar(t, 0, i16), scalar(t, 1, u64), scalar(t, 2, u64), scalar(t, 3, f32),
             scalar(t, 4, u64), numbers(t, 5, u64))
            for t in tables(root, 8)
        ],
        "devices": [
            (scalar(t, 0, i16), *(scalar(t, k, u64) for k in range(1, 5)))
            for t in tables(root, 9)
        ],
        "routes": [
            (scalar(t, 0, u32), scalar(t, 1, u32),
             [(numbers(p, 0, u32), scalar(p, 1, f32)) for p in tables(t, 2)])
            for t in tables(root, 10)
        ],
        "rings": [
            (scalar(t, 0, u64), [numbers(r, 0, N.Int32Flags) for r in tables(t, 1)])
            for t in tables(root, 11)
        ],
    }  # fmt: skip


def _vector(builder, width, values, prepend):
    builder.StartVector(width, len(values), width)
    for value in reversed(values):
        prepend(value)
    return builder.EndVector()


def _offsets(builder, values):
    return _vector(builder, 4, values, builder.PrependUOffsetTRelative)


def _table(builder, fields):
    """Build a table of (slot writer, value) pairs."""
    builder.StartObject(len(fields))
    for slot, (write, value) in enumerate(fields):
        write(slot, value, 0)
    return builder.EndObject()


def oracle_write(document, force_defaults=False):
    """Return the file of a document."""
    b = flatbuffers.Builder(64)
    b.ForceDefaults(force_defaults)
    u64, u32, i16, f32, ref = (
        b.PrependUint64Slot, b.PrependUint32Slot, b.PrependInt16Slot, b.PrependFloat32Slot,
        b.PrependUOffsetTRelativeSlot,
    )  # fmt: skip
    conn = [_table(b, [(u32, v) for v in row]) for row in document["conn"]]
    ops = []
    for ident, kind, name in document["ops"]:
        at = b.CreateString(name)
        ops.append(_table(b, [(u64, ident), (u64, kind), (ref, at)]))
    tasks = []
    for kind, ident, device, runtime, size, nexts in document["tasks"]:
        at = _vector(b, 8, nexts, b.PrependUint64)
        tasks.append(
            _table(b, [(i16, kind), (u64, ident), (u64, device), (f32, runtime), (u64, size),
                       (ref, at)])
        )  # fmt: skip
    devices = [
        _table(b, [(i16, row[0]), *((u64, v) for v in row[1:])]) for row in document["devices"]
    ]
    routes = []
    for source, target, paths in document["routes"]:
        made = []
        for nodes, chance in paths:
            at = _vector(b, 4, nodes, b.PrependUint32)
            made.append(_table(b, [(ref, at), (f32, chance)]))
        at = _offsets(b, made)
        routes.append(_table(b, [(u32, source), (u32, target), (ref, at)]))
    rings = []
    for size, descriptors in document["rings"]:
        made = []
        for jumps in descriptors:
            at = _vector(b, 4, jumps, b.PrependInt32)
            made.append(_table(b, [(ref, at)]))
        at = _offsets(b, made)
        rings.append(_table(b, [(u64, size), (ref, at)]))
    vectors = [_offsets(b, made) for made in (conn, ops, tasks, devices, routes)]
    vectors.append(_offsets(b, rings) if rings or force_defaults else 0)
    header = list(zip((u32, u32, u32, f32, f32, f32), document["header"], strict=True))
    b.Finish(_table(b, header + [(ref, at) for at in vectors]))
    return bytes(b.Output())


def document_of(file):
    """Return the oracle's form of an `FbufFile`."""

    def split(values, offsets):
        values = values.tolist() if isinstance(values, np.ndarray) else values
        return [values[a:b] for a, b in itertools.pairwise(offsets)]

    paths = list(zip(split(file.hops, file.hop_offsets), file.path_chance.tolist(), strict=True))
    jumps = split(file.jumps, file.jump_offsets)
    rates = (file.intergpu_bandwidth, file.dram_bandwidth, file.net_bandwidth)
    header = (file.gpus_per_node, file.nodes, file.switches, *(rate / 1e3 for rate in rates))
    runtimes = np.float32(file.task_runtime * 1e3).tolist()

    def rows(*columns):
        return list(zip(*(c.tolist() if hasattr(c, "tolist") else c for c in columns), strict=True))

    return {
        "header": header,
        "conn": rows(file.conn_source, file.conn_target, file.conn_cables),
        "ops": rows(file.op_id, file.op_type, file.op_name),
        "tasks": rows(file.task_type, file.task_id, file.task_device, runtimes, file.task_bytes,
                      split(file.next_ids, file.next_offsets)),
        "devices": rows(file.device_type, file.device_id, file.device_node, file.device_property,
                        file.device_bytes_per_ms),
        "routes": rows(file.route_source, file.route_target, split(paths, file.route_offsets)),
        "rings": rows(file.ring_size, split(jumps, file.ring_offsets)),
    }  # fmt: skip


def small_document():
    """Return two servers with a cable, a task of every type, a ring set: a file of 1 KiB."""
    return {
        "header": (4, 2, 0, 25e6, 33554432.0, 12.5e6),
        "conn": [(1, 0, 1)],
        "ops": [(7, 5, "Dense_100"), (8, 0, "")],
        "tasks": [
            (0, 1, 101, 0.5, 0, [2, 3]),
            (5, 2, 103, 0.25, 4096, [4]),
            (2, 3, 104, 0.125, 512, [4]),
            (1, 4, 102, 1.5, 0, [5, 6, 7]),
            (4, 5, 0, 0.0, 0, []),
            (6, 6, 0, 0.75, 1_000_000, [0, 1]),
            (3, 7, 102, 0.0625, 0, []),
        ],
        "devices": [
            (0, 101, 0, 0, 0),
            (0, 102, 1, 1, 0),
            (14, 103, 2**64 - 1, 1, 0),
            (12, 104, 1, 0, 25_000_000),
        ],
        "routes": [(0, 0, []), (0, 1, [([0, 1], 1.0)]), (1, 0, [([1, 0], 1.0)]), (1, 1, [])],
        "rings": [(2, [[1], [1]])],
    }


def data_directory():
    """Return where the published task graphs lie, or None."""
    found = published_data("taskgraphs")
    return found if found.is_dir() else None


def differences(one, other):
    """Return the names of the fields in which two files differ."""
    return [name for name, mine in vars(one).items() if not _same(mine, vars(other)[name])]


def _same(one, other):
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return one == other
