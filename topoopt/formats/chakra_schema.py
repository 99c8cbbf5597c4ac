"""Messages of Chakra execution traces, made at run time from the schema's names and numbers.

The schema is that of mlcommons/chakra, schema/protobuf/et_def.proto (package ChakraProtoMsg): a
``GlobalMetadata`` and one ``Node`` an operation. Names and field numbers are facts of the format;
lists of values, inputs and outputs are there so that traces that hold them are read as well.
"""

from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

VERSION = "1.0.0"
"""Of traces, as Chakra's own generator (src/generator/generator.py) writes it."""


class NodeType(IntEnum):
    """What a node does."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


class CollectiveCommType(IntEnum):
    """What a collective node does: attribute ``comm_type``."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


class MessageClasses(NamedTuple):
    """Classes of messages."""

    metadata: Any
    node: Any


_VALUES = (
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32",
    "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes",
)  # fmt: skip
_NODE = (
    ("id", "uint64", 1), ("name", "string", 2), ("type", "int32", 3), ("*ctrl_deps", "uint64", 4),
    ("*data_deps", "uint64", 5), ("start_time_micros", "uint64", 6),
    ("duration_micros", "uint64", 7), ("inputs", "IOInfo", 8), ("outputs", "IOInfo", 9),
    ("*attr", "AttributeProto", 10),
)  # fmt: skip
_PACKAGE = "ChakraProtoMsg"


@cache
def messages() -> MessageClasses:
    """Return the classes, in a pool of their own.

    An enumeration is on the wire what ``int32`` is, and is read as that.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name="topoopt/chakra.proto", package=_PACKAGE, syntax="proto3"
    )
    for kind in _VALUES:
        _add(file, f"{kind.title()}List", (("*values", kind, 1),))
    _add(file, "IOInfo", (("values", "string", 1), ("shapes", "string", 2), ("types", "string", 3)))
    attribute = [("name", "string", 1), ("doc_string", "string", 2)]
    for place, kind in enumerate(_VALUES):
        attribute.append((f"{kind}_val", kind, 3 + 2 * place))
        attribute.append((f"{kind}_list", f"{kind.title()}List", 4 + 2 * place))
    message = _add(file, "AttributeProto", attribute)
    message.oneof_decl.add(name="value")
    for field in message.field[2:]:
        field.oneof_index = 0
    _add(file, "GlobalMetadata", (("version", "string", 1), ("*attr", "AttributeProto", 2)))
    _add(file, "Node", _NODE)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return MessageClasses(*(
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in ("GlobalMetadata", "Node")
    ))  # fmt: skip


def _add(file: Any, name: str, fields: Any) -> Any:
    """Add a message whose fields are (name, type, number), repeated ones with a star."""
    message = file.message_type.add(name=name)
    kinds = descriptor_pb2.FieldDescriptorProto
    for called, kind, number in fields:
        label = kinds.LABEL_REPEATED if called.startswith("*") else kinds.LABEL_OPTIONAL
        field = message.field.add(name=called.lstrip("*"), number=number, label=label)
        if kind in _VALUES:
            field.type = getattr(kinds, f"TYPE_{kind.upper()}")
        else:
            field.type, field.type_name = kinds.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    return message
