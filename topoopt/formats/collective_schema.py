"""What files of collective schedules hold."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from parallelism.record_fields import STRICT

_Count = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0.0)]
_Path = Annotated[list[_Count], Field(min_length=2)]


class TreeFile(BaseModel):
    """Copies of a broadcast, or of a sum that goes the other way."""

    model_config = STRICT
    root: _Count
    copies: Annotated[int, Field(gt=0)]
    paths: list[_Path]


class ForestFile(BaseModel):
    """Trees, and how many copies of each root's there are."""

    model_config = STRICT
    units: Annotated[int, Field(gt=0)]
    trees: list[TreeFile]


class WayFile(BaseModel):
    """A path, and the share of its ends' part that takes it."""

    model_config = STRICT
    path: _Path
    share: Positive


class PartFile(BaseModel):
    """Messages of a part of a meeting: wave and path, in an exchange whose sum between them."""

    model_config = STRICT
    gather: list[list[Any]]
    exchange: list[list[Any]]
    spread: list[list[Any]]


class ScheduleFile(BaseModel):
    """A schedule and what it claims."""

    model_config = STRICT
    collective: Literal[
        "allreduce", "allgather", "reduce-scatter", "broadcast", "reduce", "all-to-all"
    ]
    schedule: str
    members: list[_Count]
    root: _Count | None
    bytes: Positive
    seconds: Positive
    lower_bound_s: Positive
    bytes_per_s: Positive
    latency_s: Annotated[float, Field(ge=0.0)]
    scatter: ForestFile | None
    gather: ForestFile | None
    exchange: list[WayFile] | None
    meeting: list[PartFile] | None
    network: dict[str, Any]
