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
from parallelism.reading import read_bytes
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
_FIELDS = set(_SHAPES)
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
        If the file cannot be read, misses or adds a field, or holds impossible numbers.
    """
    data = read_bytes(path, "traffic file")
    try:
        return _traffic(_arrays(data))
    except InputError as error:
        raise InputError(f"traffic file {path}: {error}") from None


def _arrays(data: bytes) -> dict[str, npt.NDArray[Any]]:
    """Read the archive; whatever its bytes are, the only error is `InputError`."""
    try:
        # From memory, so that no broken archive leaves its file open.
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {name: np.asarray(archive[name]) for name in archive.files}
    except (OSError, ValueError, TypeError, AttributeError, LookupError, EOFError, MemoryError,
            RuntimeError, zipfile.BadZipFile, zlib.error) as error:  # fmt: skip
        # What numpy says of other files (no magic string) speaks of pickles, at length.
        whole = zipfile.is_zipfile(io.BytesIO(data))
        reason = " ".join(str(error).split())[:200] if whole else f"{len(data)} bytes, no zip file"
        raise InputError(f"not a whole .npz archive ({reason}); write it again") from None
    if set(arrays) != _FIELDS:
        odd = ", ".join(sorted(set(arrays) ^ _FIELDS))
        raise InputError(f"missing or unknown fields {odd}; write it again")
    for name, (kind, dimensions) in _SHAPES.items():
        array = arrays[name]
        if array.ndim != dimensions or array.dtype.kind not in kind:
            expected = "whole numbers" if kind == "iu" else "numbers"
            raise InputError(
                f"{name} is {array.dtype} of shape {array.shape}; expected {expected} in "
                f"{counted(dimensions, 'dimension')}"
            )
    return arrays


def _traffic(arrays: dict[str, npt.NDArray[Any]]) -> Traffic:
    version = int(arrays["schema_version"])
    if version != _SCHEMA:
        raise InputError(f"schema_version is {version}; this version reads {_SCHEMA}")
    servers = int(arrays["servers"])
    transfers = arrays["transfer_bytes"].astype(np.float64)
    group_bytes = arrays["group_bytes"].astype(np.float64)
    offsets = arrays["group_offsets"].astype(np.int64)
    members = arrays["group_members"].astype(np.int64)
    if servers < 1 or transfers.shape != (servers, servers):
        raise InputError(
            f"transfer_bytes has shape {transfers.shape} for {counted(servers, 'server')}"
        )
    if not np.all((transfers >= 0) & (transfers <= _MOST)) or np.any(np.diag(transfers)):
        raise InputError(f"transfer_bytes must be 0 to {_MOST:g}, zero on the diagonal")
    if (
        offsets.shape != (group_bytes.size + 1,)
        or offsets[0] != 0
        or offsets[-1] != members.size
        or np.any(np.diff(offsets) < 0)
    ):
        raise InputError("group_offsets do not fit group_bytes and group_members")
    if not np.all((group_bytes >= 0) & (group_bytes <= _MOST)):
        raise InputError(f"group_bytes must be 0 to {_MOST:g}")
    groups = tuple(tuple(members[a:b].tolist()) for a, b in pairwise(offsets))
    for group in groups:
        if len(group) < 2 or list(group) != sorted(set(group)):
            raise InputError(f"group {group} must list two or more sorted distinct servers")
        if group[0] < 0 or group[-1] >= servers:
            raise InputError(f"group {group} names servers outside 0..{servers - 1}")
    return Traffic(servers, transfers, groups, group_bytes)
