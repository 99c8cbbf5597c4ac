"""The result for a transformer: everything that its plan file holds, with units in the names."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from codesign_base import InputError
from parallelism.device import Server
from parallelism.reading import parse_json, read_text
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.enumeration import Choices
from parallelism.transformers.gpu import GpuRates
from parallelism.transformers.implementation import Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.memory import MemoryUse
from topoopt.base.atomic import write_text_atomically
from topoopt.plan.plan import (
    Amount,
    BoundRecord,
    ClusterRecord,
    Count,
    GapRecord,
    Link,
    RingRecord,
    Seconds,
    Whole,
    schema_fault,
)

SCHEMA_VERSION = 1
KIND = "transformer plan"

_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
Order = tuple[str, str, str]


@checked(frozen=True, config=_STRICT)
class TransformerBaseline:
    """The same job on another fabric, with the layout and placement that are best there."""

    iteration_time_s: Seconds
    cost_usd: Amount | None
    bandwidth_bytes_per_s: Amount
    layout: Layout
    order: Order
    note: str


@checked(frozen=True, config=_STRICT)
class TransformerSearch:
    """What the search looked at.

    Legal layouts, those that fit, placed layouts that were simulated, and those that topologies
    were built for.
    """

    layouts: Count
    fitting: Count
    simulated: Count
    wired: Count
    most_simulated: Whole
    interrupted: bool


@checked(frozen=True, config=_STRICT)
class TransformerPlan:
    """A co-designed plan of a transformer: layout, placement, topology, and how good it is.

    Parameters
    ----------
    iteration_time_s : float
        In the fabric model.
    tokens_per_s : float
        Of the whole cluster.
    model_flops_utilisation : float
        Share of the GPUs' peak that the model's own operations take, by the convention of
        `parallelism.transformers.costs.model_flops` without recomputation.
    lower_bound_s : float
        Over all layouts of ``choices``, placements, topologies of this degree and routings.
    layout, order
        Degrees and schedule, and the order of axes in which ranks fill servers.
    stages : list of MemoryUse
        Bytes of one GPU of each pipeline stage.
    """

    iteration_time_s: Seconds
    tokens_per_s: Amount
    model_flops_utilisation: Amount
    lower_bound_s: Seconds
    gap: float
    compute_time_s: Seconds
    exposed_communication_s: Seconds
    cost_usd: Amount | None
    memory_per_gpu_bytes: Amount
    layout: Layout
    order: Order
    stages: list[MemoryUse]
    degree_allreduce: Count
    degree_transfer: Count
    routing: Literal["ecmp", "k-shortest"]
    allreduce_bytes: Amount
    transfer_bytes: Amount
    bandwidth_tax: Amount
    baselines: dict[str, TransformerBaseline]
    links: list[Link]
    rings: list[RingRecord]
    bound: BoundRecord
    layout_bound: BoundRecord
    topology_bound: BoundRecord
    routes_bound: BoundRecord
    gap_parts: list[GapRecord]
    notes: list[str]
    model: Transformer
    sequence: Whole
    global_batch: Whole
    server: Server
    rates: GpuRates
    implementation: Implementation
    choices: Choices
    memory_reserve: Amount
    cluster: ClusterRecord
    prices: dict[str, Any]
    search: TransformerSearch
    fabric_model: str
    seed: Annotated[int, Field(ge=0)]
    version: str
    kind: Literal["transformer plan"] = "transformer plan"
    schema_version: int = SCHEMA_VERSION

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain dictionaries and lists."""
        return asdict(self)

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the plan as a JSON document."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def save(self, path: str | Path) -> None:
        """Write the plan file, under a temporary name first.

        Raises
        ------
        InputError
            If the file cannot be written.
        """
        write_text_atomically(Path(path), self.to_json() + "\n")

    def summary(self) -> str:
        """Return the plan as a page of text."""
        from topoopt.transformers.summary import transformer_summary

        return transformer_summary(self)


def is_transformer_plan(path: str | Path) -> bool:
    """Say whether a file is a transformer's plan rather than one of operators.

    Raises
    ------
    InputError
        If the file cannot be read or holds no JSON.
    """
    document = parse_json(read_text(path, "plan file"), f"plan file {str(path)!r}")
    return isinstance(document, dict) and document.get("kind") == KIND


def load_transformer_plan(path: str | Path) -> TransformerPlan:
    """Read a transformer's plan file.

    Raises
    ------
    InputError
        If the file cannot be read, is truncated or is no such plan of this schema version.
    """
    name = f"plan file {str(path)!r}"
    text = read_text(path, "plan file")
    document = parse_json(text, name)
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise InputError(f"{name} holds no transformer plan; give one that `topoopt plan` wrote")
    if document.get("schema_version") != SCHEMA_VERSION:
        raise InputError(
            f"{name} has schema_version {document.get('schema_version')!r}; this version reads "
            f"{SCHEMA_VERSION}, so plan again"
        )
    try:
        return TypeAdapter(TransformerPlan).validate_json(text)
    except ValidationError as error:
        raise InputError(f"{name}: {schema_fault(error)}") from None


__all__ = [
    "KIND", "SCHEMA_VERSION", "TransformerBaseline", "TransformerPlan", "TransformerSearch",
    "is_transformer_plan", "load_transformer_plan",
]  # fmt: skip
