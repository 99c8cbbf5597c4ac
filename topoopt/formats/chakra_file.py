"""Chakra execution traces as files: messages one after another, each after its length.

A file ``PREFIX.RANK.et`` holds a ``GlobalMetadata`` and then one ``Node`` an operation, each
preceded by its size as a varint (mlcommons/chakra, src/third_party/utils/protolib.py).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from codesign_base import InputError
from parallelism.reading import parse_json, shown
from topoopt.formats.chakra_schema import VERSION, NodeType, messages

_Value = bool | int | float | str
GROUPS = "comm_groups.json"
"""The file beside the traces that says which ranks are in which group."""


@dataclass(frozen=True)
class Attribute:
    """A value and its type in the schema, such as ``int64``."""

    kind: str
    value: _Value


@dataclass(frozen=True)
class TraceNode:
    """One operation of one rank.

    Parameters
    ----------
    id : int
    name : str
    type : NodeType
    after : tuple of int
        Nodes that it waits for.
    micros : int
        Its duration in microseconds, 0 if it is not said.
    attributes : mapping of str to Attribute
    inputs : str
        Values of its inputs; metadata of process groups are in there.
    """

    id: int
    name: str
    type: NodeType
    after: tuple[int, ...] = ()
    micros: int = 0
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    inputs: str = ""

    def number(self, name: str, default: float | None = None) -> float:
        """Return a number of the node.

        Raises
        ------
        InputError
            If the node has none, and there is no default; or it is not finite.
        """
        found = self.attributes.get(name)
        if found is None and default is not None:
            return default
        if found is None or isinstance(found.value, str):
            raise InputError(f"node {self.id} has no number {name!r}; give the attribute")
        if not isfinite(found.value):
            raise InputError(f"node {self.id} has {name} {found.value}; give a finite number")
        return found.value

    def text(self, name: str) -> str:
        """Return a text of the node, empty if it has none."""
        found = self.attributes.get(name)
        return "" if found is None else str(found.value)


def attributes(**values: tuple[str, _Value]) -> dict[str, Attribute]:
    """Return attributes of a node from types and values."""
    return {name: Attribute(*value) for name, value in values.items()}


def trace_bytes(nodes: Iterable[TraceNode]) -> bytes:
    """Return the file of one rank.

    Parameters
    ----------
    nodes : iterable of TraceNode
    """
    kinds = messages()
    parts = [_delimited(kinds.metadata(version=VERSION).SerializeToString(deterministic=True))]
    for node in nodes:
        message = kinds.node(
            id=node.id, name=node.name, type=node.type, data_deps=node.after,
            duration_micros=node.micros,
        )  # fmt: skip
        for name, attribute in node.attributes.items():
            message.attr.add(name=name, **{f"{attribute.kind}_val": attribute.value})
        parts.append(_delimited(message.SerializeToString(deterministic=True)))
    return b"".join(parts)


def _delimited(data: bytes) -> bytes:
    size, head = len(data), bytearray()
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    head.append(size)
    return bytes(head) + data


def read_trace(data: bytes, where: str) -> list[TraceNode]:
    """Return the nodes of one rank.

    Parameters
    ----------
    data : bytes
        Of a file.
    where : str
        What to call it in errors.

    Returns
    -------
    list of TraceNode
        In the order of the file.

    Raises
    ------
    InputError
        If the file is cut off, is no trace, or a node is of an unknown type, is there twice, or
        waits for one that is not there.
    """
    kinds = messages()
    parts = _parts(data, where)
    if not parts:
        raise InputError(f"{where} is empty; give a Chakra execution trace")
    try:
        kinds.metadata.FromString(parts[0])
        found = [_node(kinds.node.FromString(part), where) for part in parts[1:]]
    except DecodeError:
        raise InputError(f"{where} is no Chakra execution trace; export it again") from None
    known = {node.id for node in found}
    if len(known) < len(found):
        ordered = sorted(node.id for node in found)
        twice = next(one for one, other in pairwise(ordered) if one == other)
        raise InputError(f"{where}: node {twice} is there twice; number nodes differently")
    for node in found:
        for before in node.after:
            if before not in known:
                raise InputError(
                    f"{where}: node {node.id} waits for node {before}, which is not there; export "
                    "the whole trace"
                )
    return found


def _parts(data: bytes, where: str) -> list[bytes]:
    parts, at = [], 0
    while at < len(data):
        size = shift = 0
        while True:
            if at >= len(data) or shift > 35:
                raise InputError(f"{where} is cut off at byte {at}; copy the whole file")
            byte = data[at]
            at, size, shift = at + 1, size | (byte & 127) << shift, shift + 7
            if byte < 128:
                break
        if at + size > len(data):
            raise InputError(f"{where} is cut off at byte {len(data)}; copy the whole file")
        parts.append(data[at : at + size])
        at += size
    return parts


def _node(node: Any, where: str) -> TraceNode:
    number, kind = node.id, node.type
    if kind not in set(NodeType):
        raise InputError(
            f"{where}: node {number} is of the unknown type {kind}; types are 0 to {max(NodeType)}"
        )
    found: dict[str, Attribute] = {}
    for attribute in node.attr:
        which = attribute.WhichOneof("value")
        if which is not None and which.endswith("_val") and which != "bytes_val":
            found[attribute.name] = Attribute(which[:-4], getattr(attribute, which))
    return TraceNode(
        number,
        node.name,
        NodeType(kind),
        tuple(dict.fromkeys((*node.ctrl_deps, *node.data_deps))),
        node.duration_micros,
        found,
        node.inputs.values,
    )


@dataclass(frozen=True)
class Trace:
    """The traces of all ranks, and their groups.

    Parameters
    ----------
    ranks : tuple of list of TraceNode
        By rank.
    groups : mapping of str to tuple of int
        Ranks of each group, as the file beside the traces says.
    """

    ranks: tuple[list[TraceNode], ...]
    groups: Mapping[str, tuple[int, ...]]


def load_traces(directory: str | Path) -> Trace:
    """Read the traces ``PREFIX.RANK.et`` in a directory, and the groups beside them.

    Parameters
    ----------
    directory : str or Path

    Returns
    -------
    Trace

    Raises
    ------
    InputError
        If there are none, ranks are missing, there are several prefixes, or a file is malformed.
    """
    top = Path(directory)
    if not top.is_dir():
        raise InputError(f"{directory} is not a directory; give one with traces PREFIX.RANK.et")
    names = [(re.fullmatch(r"(.*?)\.?(\d+)\.et", path.name), path) for path in top.iterdir()]
    found: dict[tuple[int, str], Path] = {}
    for name, path in names:
        if name and found.setdefault((int(name[2]), name[1]), path) != path:
            both = sorted((path.name, found[int(name[2]), name[1]].name))
            raise InputError(
                f"{directory} holds two traces of rank {int(name[2])} ({', '.join(both)}); keep one"
            )
    if not found:
        raise InputError(f"{directory} holds no traces; they are called PREFIX.RANK.et")
    prefixes = sorted({prefix for _, prefix in found})
    if len(prefixes) > 1:
        raise InputError(
            f"{directory} holds traces of several prefixes ({', '.join(prefixes)}); keep one"
        )
    missing = sorted(set(range(len(found))) - {rank for rank, _ in found})
    if missing:
        raise InputError(f"{directory} has no trace of rank {missing[0]}; give the whole set")
    try:
        ranks = tuple(
            read_trace(path.read_bytes(), f"trace {path.name}") for _, path in sorted(found.items())
        )
        groups = top / GROUPS
        text = groups.read_text(encoding="utf-8") if groups.is_file() else "{}"
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{directory} cannot be read ({error}); give readable files") from None
    return Trace(ranks, _read_groups(text, len(ranks)))


def _read_groups(text: str, ranks: int) -> dict[str, tuple[int, ...]]:
    document = parse_json(text, GROUPS)
    if not isinstance(document, dict):
        raise InputError(f'{GROUPS} is no object; write groups as {{"1": [0, 1]}}')
    for name, members in document.items():
        if not isinstance(members, list) or not all(
            type(rank) is int and 0 <= rank < ranks for rank in members
        ):
            raise InputError(
                f"{GROUPS}: group {name!r} is {shown(members)}; list ranks from 0 to {ranks - 1}"
            )
    return {name: tuple(sorted(set(members))) for name, members in document.items()}
