"""The result: everything that a plan file holds, with units in every name."""

import json
import math
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from codesign_base import InputError
from codesign_base.arguments import check_kind, check_path
from parallelism.reading import parse_json, read_text, schema_fault
from parallelism.record_fields import STRICT, Amount, Count, Seconds, Whole
from topoopt.base.atomic import write_text_atomically
from topoopt.base.display import displayed
from topoopt.base.frames import frame
from topoopt.plan.records import (
    Baseline,
    BoundRecord,
    ClusterRecord,
    GapRecord,
    JobRecord,
    Link,
    Parallelization,
    RingRecord,
    RouteTable,
    ScheduleRecord,
    SearchRecord,
    Timed,
)

if TYPE_CHECKING:
    from pandas import DataFrame

SCHEMA_VERSION = 5


@checked(frozen=True, config=STRICT)
class Plan(Timed):
    """A co-designed plan: parallelization, topology, routes, how good it is, how it was found.

    Parameters
    ----------
    iteration_time_s : float
        Of the plan, in the fluid model, under its schedule.
    packet_time_s, packet_spread_s : float or None
        Of the plan, in the packet model: the mean over copies with perturbed delays, and slowest
        minus fastest. None where packet trains do not know the schedule, or were not asked (see
        `topoopt.search.confirm.states_packets`), or the search was interrupted.
    lower_bound_s, parallelization_lower_bound_s : float
        Over everything, and over all topologies and routings for the plan's parallelization.
    gap : float
        ``iteration_time_s / lower_bound_s - 1``.
    degree_allreduce, degree_transfer : int
        Ports of the server that AllReduce rings take most ports of, and its others. A ring takes
        all cables of the links that it goes over.
    compute_time_s, exposed_communication_s : float
        Computing, and communicating or waiting, on the critical path; they sum to the
        iteration. Where iterations overlap, the busiest device's, and the rest.
    tokens_per_s, model_flops_utilisation : float or None
        Of a transformer planned by layouts: tokens that the whole cluster trains with, and the
        share of the GPUs' peak that the model's own operations take, without recomputation.
    parallelization : StrategyRecord or LayoutRecord
        Its ``kind`` names the family.
    origin : str
        Where the parallelization came from: a starting point's name, or "search".
    job : OperatorQuestion or LayoutQuestion
        What is trained, on what servers, of the same kind.

    Examples
    --------
    >>> import topoopt as to
    >>> job = to.Job(to.models.dlrm(tables=4, batch_per_gpu=32))
    >>> cluster = to.Cluster(servers=4, degree=2, bandwidth="100Gbps")
    >>> plan = to.co_optimize(job, cluster, to.SearchOptions(steps=5, confirm="none"))
    >>> plan.iteration_time_s / plan.lower_bound_s - 1 == plan.gap
    True
    >>> sum(link.cables for link in plan.links)
    8
    """

    iteration_time_s: Seconds
    packet_time_s: Seconds | None
    packet_spread_s: Seconds | None
    lower_bound_s: Seconds
    parallelization_lower_bound_s: Seconds
    gap: float
    compute_time_s: Seconds
    exposed_communication_s: Seconds
    cost_usd: Amount | None
    degree_allreduce: Count
    degree_transfer: Count
    routing: str
    bandwidth_tax: Amount
    allreduce_bytes: Amount
    transfer_bytes: Amount
    memory_per_gpu_bytes: Amount
    tokens_per_s: Amount | None
    model_flops_utilisation: Amount | None
    baselines: dict[str, Baseline]
    named_strategies_s: dict[str, Seconds | None]
    origin: str
    parallelization: Parallelization
    links: list[Link]
    rings: list[RingRecord]
    routes: RouteTable
    bound: BoundRecord
    parallelization_bound: BoundRecord
    topology_bound: BoundRecord
    routes_bound: BoundRecord
    collective_bound: BoundRecord
    gap_parts: list[GapRecord]
    notes: list[str]
    job: JobRecord
    global_batch: Whole
    cluster: ClusterRecord
    prices: dict[str, Any]
    search: SearchRecord
    fabric_model: str
    packet_model: str | None
    schedule: ScheduleRecord
    seed: Annotated[int, Field(ge=0)]
    version: str
    schema_version: int = SCHEMA_VERSION

    @property
    def scheduled_apart(self) -> bool:
        """Whether the plan has a schedule, chosen for it alone, that other fabrics have not."""
        return self.search.options.schedule in ("barrier", "auto")

    def relative_time(self, base: Baseline | str) -> float:
        """Return the time on another fabric over the plan's, both of packets or both fluid.

        Where only the plan has a schedule, both are plain.

        Parameters
        ----------
        base : Baseline or str
            One of ``baselines``, or its name there.

        Raises
        ------
        InputError
            If the plan was not compared with a fabric of that name.
        """
        if isinstance(base, str):
            if base not in self.baselines:
                known = ", ".join(self.baselines) or "nothing"
                raise InputError(f"fabric is {base!r}, but the plan is compared with {known}")
            base = self.baselines[base]
        check_kind("fabric", base, Baseline, "the name of one of the plan's baselines")
        if self.scheduled_apart:
            return base.iteration_time_s / self.schedule.plain_time_s
        if self.packet_time_s is None or base.packet_time_s is None:
            return base.iteration_time_s / self.iteration_time_s
        return base.packet_time_s / self.packet_time_s

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain dictionaries and lists."""
        # As `dataclasses.asdict`, in a thirtieth of its time for millions of hops.
        found: dict[str, Any] = TypeAdapter(Plan).dump_python(self)
        return found

    def to_json(self) -> str:
        """Return the plan as a JSON document."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def save(self, path: str | Path) -> None:
        """Write the plan file, under a temporary name first.

        Parameters
        ----------
        path : str or Path

        Raises
        ------
        InputError
            If the path is none, or the file cannot be written.
        """
        check_path("path", path)
        write_text_atomically(Path(path), self.to_json() + "\n")

    def to_frame(self) -> "DataFrame":
        """Return one row a fabric, the plan's own first, as a pandas DataFrame.

        Raises
        ------
        InputError
            If pandas is not installed.
        """
        own = {
            "fabric": "topoopt", "time_s": self.time_s, "iteration_time_s": self.iteration_time_s,
            "packet_time_s": self.packet_time_s, "relative_time": 1.0, "cost_usd": self.cost_usd,
            "bandwidth_bytes_per_s": self.cluster.bandwidth_bytes_per_s,
        }  # fmt: skip
        rows = [own]
        for name, base in self.baselines.items():
            asked = {"fabric": name, "relative_time": self.relative_time(base)}
            rows.append({key: asked.get(key, getattr(base, key, None)) for key in own})
        return frame(rows)

    def summary(self, details: bool = False) -> str:
        """Return the plan as text.

        Parameters
        ----------
        details : bool
            All of it: bounds and gap step by step, every assumption; otherwise at most 25 lines.

        Returns
        -------
        str

        Raises
        ------
        InputError
            If ``details`` is neither True nor False.
        """
        check_kind("details", details, bool, "True or False")
        return displayed("details" if details else "text", self)

    def __str__(self) -> str:
        """Return the answer in six lines."""
        return displayed("answer", self)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return displayed("html", self)


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

    Examples
    --------
    >>> import tempfile
    >>> import topoopt as to
    >>> job = to.Job(to.models.dlrm(tables=4, batch_per_gpu=32))
    >>> cluster = to.Cluster(servers=4, degree=2, bandwidth="100Gbps")
    >>> plan = to.co_optimize(job, cluster, to.SearchOptions(steps=5, confirm="none"))
    >>> path = tempfile.mkdtemp() + "/plan.json"
    >>> plan.save(path)
    >>> to.load_plan(path) == plan
    True
    """
    return parse_plan(read_text(path, "plan file"), f"plan file {str(path)!r}")


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
    document = parse_json(text, name)
    if not isinstance(document, dict):
        raise InputError(f"{name} holds no object of fields; give a plan file")
    if "schema_version" not in document:
        raise InputError(
            f"{name} is no plan: it has no schema_version; give a file that topoopt plan -o wrote"
        )
    if (schema := document["schema_version"]) != SCHEMA_VERSION:
        newer = isinstance(schema, int) and schema > SCHEMA_VERSION
        raise InputError(
            f"{name} has schema_version {schema!r}; this version reads {SCHEMA_VERSION}, so "
            + ("install a newer topoopt, or " if newer else "")
            + "plan again"
        )
    _check_finite(document.get("prices"), f"{name}: field 'prices'")
    _check_finite(document.get("job"), f"{name}: field 'job'")
    try:
        # From text, because strict checking turns JSON objects into records only there.
        plan = TypeAdapter(Plan).validate_json(text)
    except ValidationError as error:
        raise InputError(f"{name}: {schema_fault(error, 'plan again')}") from None
    except InputError as error:
        raise type(error)(f"{name}: {error}") from None
    _check_complete(plan, document, name)
    return plan


def _check_complete(record: Any, document: Any, name: str, path: tuple[str, ...] = ()) -> None:
    """Refuse a plan that leaves fields to their defaults: files are written with all of them."""
    if record is None or isinstance(record, str | int | float):
        return
    if is_dataclass(record):
        for field in fields(record):
            at = (*path, field.name)
            if field.name not in document:
                raise InputError(f"{name}: field {'.'.join(at)!r} is missing; plan again")
            _check_complete(getattr(record, field.name), document[field.name], name, at)
    elif isinstance(record, dict):
        for key, part in record.items():
            _check_complete(part, document[key], name, (*path, key))
    elif isinstance(record, list) and record and is_dataclass(record[0]):
        for number, (part, given) in enumerate(zip(record, document, strict=True)):
            _check_complete(part, given, name, (*path, str(number)))


def _check_finite(value: Any, name: str) -> None:
    """Refuse NaN and infinities in the records that the schema leaves open."""
    if isinstance(value, dict):
        for key, part in value.items():
            _check_finite(part, f"{name}.{key}")
    elif isinstance(value, list):
        for part in value:
            _check_finite(part, name)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{name} is {value}; give a finite number or plan again")
