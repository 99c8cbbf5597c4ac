"""Measured operator times, published or our own: the file and what it holds."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from codesign_base import InputError
from codesign_base.arguments import is_number
from parallelism.graph import Mode, Operator
from parallelism.operators.shapes import LARGEST
from parallelism.reading import check_fields, parse_json, read_text, shown

# Every published profile was measured for servers of four GPUs.
PROFILE_GPUS = 4

# What is less is no time or memory, and its reciprocal may be no number.
_LEAST = 1e-15
_TOP = ("batch_size", "ngpus", "measurements")
_ROW = ("name", "pc_str", "fw_time", "bw_time", "mem_req")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One operator shape at one number of sample parts.

    Parameters
    ----------
    parts : int
        Servers that share the global batch.
    forward, backward : float
        Seconds, positive.
    memory_bytes : float
        Memory that the measurement took.
    """

    parts: int
    forward: float
    backward: float
    memory_bytes: float


@dataclass(frozen=True)
class Profile:
    """All measurements of one model.

    Parameters
    ----------
    path : str
        Where it was read from.
    batch : int
        Global batch, samples an iteration.
    servers : int
        Servers of four GPUs that it was made for.
    measurements : mapping of str to tuple of Measurement
        By operator name, ascending in parts.
    """

    path: str
    batch: int
    servers: int
    measurements: Mapping[str, tuple[Measurement, ...]]

    def to_dict(self) -> dict[str, Any]:
        """Return the measurements as plain data, so that a plan can carry them.

        Each measurement is a list of parts, forward seconds, backward seconds and bytes. Of
        the path only the file's name is kept.
        """
        return {
            "file": Path(self.path).name,
            "batch": self.batch,
            "servers": self.servers,
            "measurements_parts_s_s_bytes": {
                name: [[m.parts, m.forward, m.backward, m.memory_bytes] for m in points]
                for name, points in self.measurements.items()
            },
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Profile":
        """Return the profile that `to_dict` described.

        Raises
        ------
        InputError
            If a field is missing or malformed.
        """
        try:
            points = {
                str(name): tuple(
                    Measurement(int(parts), float(forward), float(backward), float(memory))
                    for parts, forward, backward, memory in rows
                )
                for name, rows in data["measurements_parts_s_s_bytes"].items()
            }
            file, batch, servers = str(data["file"]), int(data["batch"]), int(data["servers"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"profile record is malformed ({error}); plan again") from None
        return cls(file, batch, servers, MappingProxyType(points))


def measured_name(op: Operator, mode: Mode | None = None, parts: int = 1) -> str:
    """Return the name under which `topoopt profile` lists an operator, or a part of it.

    Unlike published names it tells all shapes apart.

    Parameters
    ----------
    op : Operator
    mode : Mode, optional
    parts : int, optional
        Parameter parts, if more than one.
    """
    shape = "x".join(str(extent) for extent in op.output_shape)
    name = f"{op.profile_key or op.kind.value} {shape} {op.forward_flops:.9g} FLOP"
    name = f"{name} {op.forward_bytes:.9g} B"
    return name if mode is None or parts == 1 else f"{name} {mode.name.lower()}/{parts}"


def load_profile(path: str | Path) -> Profile:
    """Read a measured profile.

    The file is ``{"batch_size": int, "ngpus": int, "measurements": [{"name": str, "pc_str":
    str, "fw_time": ms, "bw_time": ms, "mem_req": bytes}, ...]}``. ``ngpus`` counts servers of
    four GPUs; ``pc_str`` is the number of axes and the parts along each, as in ``2-1-16``;
    dense operators were measured on one GPU with ``batch_size / (4 * parts)`` samples,
    embeddings with the full batch. Where a name and part count repeat, the first counts.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Profile

    Raises
    ------
    InputError
        If the file is missing, truncated, or holds an unknown field or an impossible value.
    """
    where = f"profile {str(path)!r}"
    data = parse_json(read_text(path, "profile"), where)
    check_fields(data, where, _TOP)
    batch = _count(data["batch_size"], where, "batch_size")
    servers = _count(data["ngpus"], where, "ngpus")
    rows = data["measurements"]
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{where}: measurements must be a list with at least one entry")
    found: dict[str, dict[int, Measurement]] = {}
    for number, row in enumerate(rows):
        at = f"{where}, measurement {number}"
        check_fields(row, at, _ROW)
        name = row["name"]
        if not isinstance(name, str) or not name:
            raise InputError(f"{at}: name is {shown(name)}; give an operator name")
        parts = _parts(row["pc_str"], at)
        measurement = Measurement(
            parts=parts,
            forward=_positive(row["fw_time"], at, "fw_time", "milliseconds") * 1e-3,
            backward=_positive(row["bw_time"], at, "bw_time", "milliseconds") * 1e-3,
            memory_bytes=_positive(row["mem_req"], at, "mem_req", "bytes"),
        )
        found.setdefault(name, {}).setdefault(parts, measurement)
    ordered = {
        name: tuple(points[parts] for parts in sorted(points)) for name, points in found.items()
    }
    return Profile(str(path), batch, servers, MappingProxyType(ordered))


def _count(value: Any, where: str, field: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST:
        raise InputError(
            f"{where}: {field} is {shown(value)}; give a whole number from 1 to {LARGEST:.0e}"
        )
    return value


def _positive(value: Any, where: str, field: str, unit: str) -> float:
    if not is_number(value) or not _LEAST <= value <= LARGEST:
        raise InputError(
            f"{where}: {field} is {shown(value)}; give a positive number of {unit}, from "
            f"{_LEAST:.0e} to {LARGEST:.0e}"
        )
    return float(value)


def _parts(value: Any, where: str) -> int:
    fields = value.split("-") if isinstance(value, str) else []
    if all(f.isascii() and f.isdigit() and len(f) < 10 for f in fields) and len(fields) > 1:
        axes, *degrees = (int(f) for f in fields)
        parts = math.prod(degrees)
        if axes == len(degrees) and parts >= 1:
            return parts
    raise InputError(
        f"{where}: pc_str is {shown(value)}; give the number of axes and the parts along each, "
        "as in '2-1-16'"
    )
