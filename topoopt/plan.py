"""The result: everything that a plan file holds, with units in every name."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from topoopt.atomic import write_text_atomically
from topoopt_base import InputError

SCHEMA_VERSION = 1

_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
Seconds = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]


@checked(frozen=True, config=_STRICT)
class ModelOperator:
    """One operator of the model; quantities are per sample (see `parallelism.graph.Operator`)."""

    name: str
    kind: str
    inputs: list[int]
    output_shape: list[int]
    forward_flops: float
    backward_flops: float
    parameters: int
    forward_bytes: float
    backward_bytes: float
    splits: dict[str, int]
    sparse: bool
    profile_key: str


@checked(frozen=True, config=_STRICT)
class ModelRecord:
    """The whole model graph, so that a plan can be verified without anything else."""

    name: str
    batch_per_gpu: int
    element_bytes: int
    operators: list[ModelOperator]


@checked(frozen=True, config=_STRICT)
class ClusterRecord:
    """The cluster that the plan is for."""

    servers: int
    degree: int
    bandwidth_bytes_per_s: float
    ports: str
    latency_s: float


@checked(frozen=True, config=_STRICT)
class SearchRecord:
    """How the plan was searched."""

    steps: int
    chains: int
    faithful: str | None
    interrupted: bool
    converged: bool


@checked(frozen=True, config=_STRICT)
class OperatorPlan:
    """How one operator is split and placed, and how long one of its parts takes."""

    operator: str
    sample: int
    parameter: int
    mode: str
    servers: list[int]
    forward_s: Seconds
    backward_s: Seconds
    update_s: Seconds


@checked(frozen=True, config=_STRICT)
class Link:
    """Parallel cables from one server to another."""

    source: Count
    target: Count
    cables: int
    capacity_bytes_per_s: float
    latency_s: Seconds


@checked(frozen=True, config=_STRICT)
class RingRecord:
    """One AllReduce ring: the servers in ring order, and the generator that made it."""

    generator: int
    order: list[int]


@checked(frozen=True, config=_STRICT)
class RouteTable:
    """Routes of all ordered server pairs as one sparse table.

    Row ``source * servers + target`` is ``offsets[row] .. offsets[row + 1]`` of ``links``
    (indices into the plan's links) and ``weights`` (indices into ``weight_values``, the shares
    of the pair's bytes; few distinct ones occur).
    """

    offsets: list[int]
    links: list[int]
    weights: list[int]
    weight_values: list[float]
    latency_s: list[float]


@checked(frozen=True, config=_STRICT)
class BoundRecord:
    """A lower bound with all its terms, in seconds."""

    seconds: Seconds
    binding: str
    terms_s: dict[str, float]


@checked(frozen=True, config=_STRICT)
class Baseline:
    """The same job on another fabric, with the best strategy found for that fabric."""

    iteration_time_s: Seconds
    cost_usd: float | None
    bandwidth_bytes_per_s: float
    strategy_origin: str
    strategy: list[OperatorPlan]
    note: str


@checked(frozen=True, config=_STRICT)
class Plan:
    """A co-designed plan: strategy, topology and routes, how good it is, and how it was found.

    Parameters
    ----------
    iteration_time_s : float
        Of the plan, in the fabric model.
    lower_bound_s, strategy_lower_bound_s : float
        Over everything, and over all topologies and routings for the plan's strategy.
    gap : float
        ``iteration_time_s / lower_bound_s - 1``.
    compute_time_s, exposed_communication_s : float
        Computing, and communicating or waiting, on the critical path; they sum to the
        iteration.
    """

    iteration_time_s: Seconds
    lower_bound_s: Seconds
    strategy_lower_bound_s: Seconds
    gap: float
    compute_time_s: Seconds
    exposed_communication_s: Seconds
    cost_usd: float | None
    degree_allreduce: int
    degree_transfer: int
    routing: str
    bandwidth_tax: float
    allreduce_bytes: float
    transfer_bytes: float
    memory_per_gpu_bytes: float
    baselines: dict[str, Baseline]
    named_strategies_s: dict[str, float | None]
    strategy_origin: str
    strategy: list[OperatorPlan]
    links: list[Link]
    rings: list[RingRecord]
    routes: RouteTable
    bound: BoundRecord
    strategy_bound: BoundRecord
    notes: list[str]
    model: ModelRecord
    server: dict[str, Any]
    compute: dict[str, Any]
    optimizer: str
    batch_per_gpu: int
    global_batch: int
    cluster: ClusterRecord
    prices: dict[str, Any]
    search: SearchRecord
    fabric_model: str
    seed: int
    version: str
    schema_version: int = SCHEMA_VERSION

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain dictionaries and lists."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the plan as a JSON document."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def save(self, path: str | Path) -> None:
        """Write the plan file, under a temporary name first.

        Parameters
        ----------
        path : str or Path

        Raises
        ------
        InputError
            If the file cannot be written.
        """
        write_text_atomically(Path(path), self.to_json() + "\n")

    def summary(self) -> str:
        """Return the plan as a page of text."""
        from topoopt.summary import plan_summary

        return plan_summary(self)


def load_plan(path: str | Path) -> Plan:
    """Read a plan file.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        If the file cannot be read, is truncated or is not a plan of this schema version.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"plan file {path}: {error.strerror}; give an existing file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"plan file {path} is not UTF-8 text ({error}); write it again") from None
    return parse_plan(text, f"plan file {path}")


def parse_plan(text: str, name: str = "plan") -> Plan:
    """Check a plan document against the schema.

    Parameters
    ----------
    text : str
        JSON.
    name : str
        What errors call it.

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        If it is not JSON, or not a plan of this schema version.
    """
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{name} is not valid JSON ({error}); it may be truncated, so write it again"
        ) from None
    if not isinstance(document, dict):
        raise InputError(f"{name} holds a {type(document).__name__}, not a plan; write it again")
    if document.get("schema_version") != SCHEMA_VERSION:
        raise InputError(
            f"{name} has schema_version {document.get('schema_version')!r}; this version reads "
            f"{SCHEMA_VERSION}, so plan again"
        )
    try:
        # From text, because strict checking turns JSON objects into records only there.
        return TypeAdapter(Plan).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        shown = repr(first.get("input"))[:60]
        raise InputError(
            f"{name}: field {where!r} is {shown}: {first['msg'].lower()}; mend it or plan again"
        ) from None


__all__ = [
    "SCHEMA_VERSION",
    "Baseline",
    "BoundRecord",
    "ClusterRecord",
    "Link",
    "ModelOperator",
    "ModelRecord",
    "OperatorPlan",
    "Plan",
    "RingRecord",
    "RouteTable",
    "SearchRecord",
    "load_plan",
    "parse_plan",
]
