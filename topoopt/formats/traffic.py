"""Traffic files (.npz): what one iteration sends, as the topology and routing commands read it.

Arrays in the file (units in the names):

``servers``
    int64 scalar, number of servers N.
``transfer_bytes``
    float64 (N, N), bytes from row server to column server, zero diagonal.
``group_bytes``
    float64 (G,), bytes of gradient that each AllReduce group reduces.
``group_offsets``, ``group_members``
    int64 (G + 1,) and int64: the sorted servers of group g are
    ``group_members[group_offsets[g]:group_offsets[g + 1]]``.
``schema_version``
    int64 scalar, 1.
"""

import io
import zipfile
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from codesign_base.counted import counted
from codesign_base.rows import starts
from parallelism.reading import read_bytes, shown
from parallelism.taskgraph import Traffic
from topoopt.base.atomic import write_bytes_atomically

_SCHEMA = 1
# Kinds of numbers (numpy's letters) and dimensions.
_SHAPES = {
    "schema_version": ("iu", 0),
    "servers": ("iu", 0),
    "transfer_bytes": ("iuf", 2),
    "group_bytes": ("iuf", 1),
    "group_offsets": ("iu", 1),
    "group_members": ("iu", 1),
}
# Bytes: beyond all that was ever stored, and far from where sums of products overflow.
_MOST = 1e24


def save_traffic(traffic: Traffic, path: str | Path) -> None:
    """Write a traffic file.

    Parameters
    ----------
    traffic : Traffic
    path : str or Path
    """
    sizes = [len(group) for group in traffic.groups]
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        servers=np.int64(traffic.servers),
        transfer_bytes=traffic.transfers,
        group_bytes=traffic.group_bytes,
        group_offsets=starts(sizes),
        group_members=np.array([v for g in traffic.groups for v in g], dtype=np.int64),
        schema_version=np.int64(_SCHEMA),
    )
    write_bytes_atomically(Path(path), buffer.getvalue())


def load_traffic(path: str | Path) -> Traffic:
    """Read a traffic file.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Traffic

    Raises
    ------
    InputError
        If the file cannot be read, misses or adds an array, or holds impossible numbers.
    """
    data = read_bytes(path, "traffic file")
    try:
        return _traffic(_arrays(data))
    except InputError as error:
        raise InputError(f"traffic file {str(path)!r}: {error}") from None


def _arrays(data: bytes) -> dict[str, npt.NDArray[Any]]:
    """Read the archive; whatever its bytes are, the only error is `InputError`."""
    name = ""
    try:
        # From memory, so that no broken archive leaves its file open.
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {}
            for name in archive.files:
                arrays[name] = np.asarray(archive[name])
    except (OSError, ValueError, TypeError, AttributeError, LookupError, EOFError, MemoryError,
            RuntimeError, zipfile.BadZipFile, zlib.error) as error:  # fmt: skip
        # What numpy says of other files (no magic string) speaks of pickles, at length.
        whole = data.startswith(b"PK") and zipfile.is_zipfile(io.BytesIO(data))
        reason = " ".join(str(error).split())[:200]
        if not (whole and (name or "pickle" not in reason)):
            reason = f"{len(data)} bytes, no zip file"
        if name and "pickle" in reason:
            raise InputError(
                f"array {name} holds Python objects; write it again with numbers"
            ) from None
        raise InputError(f"not a whole .npz archive ({reason}); write it again") from None
    missing = [name for name in _SHAPES if name not in arrays]
    unknown = sorted(set(arrays) - set(_SHAPES))
    if missing or unknown:
        parts = (("missing", missing), ("unknown", unknown))
        odd = "; ".join(f"{what} arrays: {', '.join(names)}" for what, names in parts if names)
        raise InputError(f"{odd}; write exactly {', '.join(_SHAPES)}")
    for name, (kind, dimensions) in _SHAPES.items():
        array = arrays[name]
        if array.ndim != dimensions or array.dtype.kind not in kind:
            expected = "whole numbers" if kind == "iu" else "numbers"
            wanted = f"{expected} in {counted(dimensions, 'dimension')}"
            raise InputError(
                f"{name} has type {array.dtype} and shape {array.shape}; give "
                f"{wanted if dimensions else 'one whole number, of shape ()'}"
            )
    return arrays


def _traffic(arrays: dict[str, npt.NDArray[Any]]) -> Traffic:
    version = int(arrays["schema_version"])
    if version != _SCHEMA:
        raise InputError(f"schema_version is {version}; give {_SCHEMA}, which this version reads")
    servers = int(arrays["servers"])
    transfers = arrays["transfer_bytes"].astype(np.float64)
    group_bytes = arrays["group_bytes"].astype(np.float64)
    offsets = arrays["group_offsets"].astype(np.int64)
    members = arrays["group_members"].astype(np.int64)
    if servers < 1:
        raise InputError(f"servers is {servers}; give at least 1")
    if transfers.shape != (servers, servers):
        raise InputError(
            f"transfer_bytes has shape {transfers.shape}, but servers is {servers}; give one row "
            "and one column a server"
        )
    _check_bytes("transfer_bytes", transfers)
    own = np.flatnonzero(np.diag(transfers))
    if own.size:
        raise InputError(
            f"transfer_bytes[{own[0]}, {own[0]}] is {transfers[own[0], own[0]]:g}; give zero on "
            "the diagonal, a server sends itself nothing"
        )
    _check_offsets(offsets, group_bytes.size, members.size)
    _check_bytes("group_bytes", group_bytes)
    groups = tuple(tuple(members[a:b].tolist()) for a, b in pairwise(offsets))
    for number, group in enumerate(groups):
        if len(group) < 2 or list(group) != sorted(set(group)):
            raise InputError(
                f"group {number} has servers {shown(group)}; list two or more, each once, in "
                "ascending order"
            )
        for member in (group[0], group[-1]):
            if not 0 <= member < servers:
                raise InputError(
                    f"group {number} has server {member}, but servers is {servers}; give servers "
                    f"from 0 to {servers - 1}"
                )
    return Traffic(servers, transfers, groups, group_bytes)


def _check_bytes(name: str, values: npt.NDArray[np.float64]) -> None:
    """Refuse what is no number of bytes."""
    wrong = np.argwhere(~((values >= 0) & (values <= _MOST)))
    if wrong.size:
        at = tuple(wrong[0].tolist())
        raise InputError(
            f"{name}[{', '.join(map(str, at))}] is {values[at]:g}; give 0 to {_MOST:g} bytes"
        )


def _check_offsets(offsets: npt.NDArray[np.int64], groups: int, members: int) -> None:
    """Refuse offsets that do not divide the members into the groups."""
    if offsets.size != groups + 1:
        raise InputError(
            f"group_offsets has {counted(offsets.size, 'entry', 'entries')}, but group_bytes has "
            f"{groups}; give {groups + 1}"
        )
    if offsets[0] != 0:
        raise InputError(f"group_offsets[0] is {offsets[0]}; begin with 0")
    falls = np.flatnonzero(np.diff(offsets) < 0)
    if falls.size:
        last = int(falls[0])
        raise InputError(
            f"group_offsets[{last + 1}] is {offsets[last + 1]}, less than the entry before it, "
            f"{offsets[last]}; give them in ascending order"
        )
    if offsets[-1] != members:
        raise InputError(
            f"group_offsets[{groups}] is {offsets[-1]}, but group_members has "
            f"{counted(members, 'entry', 'entries')}; end with {members}"
        )
