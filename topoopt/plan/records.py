"""The records that a plan file holds beside single values, with units in every name."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass as checked

from parallelism.operator_records import OperatorQuestion, StrategyRecord
from parallelism.record_fields import STRICT, Amount, Count, Seconds, Whole
from parallelism.transformers.records import LayoutQuestion, LayoutRecord
from topoopt.problem.cluster import MAX_DEGREE
from topoopt.problem.options import SearchOptions
from topoopt.topology.wiring import Ring

Parallelization = Annotated[StrategyRecord | LayoutRecord, Field(discriminator="kind")]
JobRecord = Annotated[OperatorQuestion | LayoutQuestion, Field(discriminator="kind")]


@checked(frozen=True, config=STRICT)
class ClusterRecord:
    """The cluster that the plan is for."""

    servers: Whole
    degree: Whole
    bandwidth_bytes_per_s: Amount
    ports: str
    latency_s: Seconds


@checked(frozen=True, config=STRICT)
class SearchRecord:
    """How the plan was searched.

    ``options`` and ``baselines`` (fabrics to compare with) are what was asked; the budget of a
    single search is the steps that it made, which reproduce it. ``steps`` is what was proposed, or
    simulated of layouts, and ``counts`` what else was looked at (``candidates``: plans of which
    packet trains chose this one); ``restart`` is the place of this
    search among several, and ``first_seed`` the seed of the first of them; ``wiring`` says whether
    the servers could be wired anew or were wired already.
    """

    options: SearchOptions
    baselines: list[str]
    steps: Count
    counts: dict[str, Count]
    interrupted: bool
    converged: bool
    restart: Count = 0
    first_seed: Count | None = None
    wiring: Literal["free", "given"] = "free"


@checked(frozen=True, config=STRICT)
class Link:
    """Parallel cables from one server to another, and the rings that go over them."""

    source: Count
    target: Count
    cables: Annotated[int, Field(ge=1, le=MAX_DEGREE)]
    rings: Count
    capacity_bytes_per_s: Amount
    latency_s: Seconds


@checked(frozen=True, config=STRICT)
class RingRecord:
    """One AllReduce ring: the servers from the lowest on, and the generator, or 0."""

    generator: Count
    order: list[Count]

    @property
    def group(self) -> tuple[int, ...]:
        """The servers, sorted."""
        return tuple(sorted(self.order))

    @property
    def wired(self) -> Ring:
        """The ring that this is the record of."""
        return Ring(tuple(self.order), self.generator)


@checked(frozen=True, config=STRICT)
class RouteTable:
    """Routes of ordered server pairs as one sparse table.

    Row ``source * servers + target`` is ``offsets[row] .. offsets[row + 1]`` of ``links``
    (indices into the plan's links) and ``weights`` (indices into ``weight_values``, the shares
    of the pair's bytes; few distinct ones occur). On many servers ``pairs`` lists those that the
    iteration sends between, and a row is a place in it; else it is None.
    """

    offsets: list[Count]
    links: list[Count]
    weights: list[Count]
    weight_values: list[Amount]
    latency_s: list[Seconds]
    pairs: list[Count] | None = None


@checked(frozen=True, config=STRICT)
class BoundRecord:
    """A lower bound with all its terms, in seconds, and the weights of its trade-off."""

    seconds: Seconds
    binding: str
    terms_s: dict[str, Seconds]
    weights: dict[str, Amount]


@checked(frozen=True, config=STRICT)
class GapRecord:
    """One part of the gap between the plan and the bound over everything."""

    name: str
    seconds: Seconds
    binding: str
    how: str


@checked(frozen=True, config=STRICT)
class ReconfigurationRecord:
    """How a fabric that is rewired during the iteration works."""

    delay_s: Seconds
    window_s: Seconds | None
    forwarding: bool


class Timed:
    """What has a time in the fluid model and, where stated, one of packet trains."""

    iteration_time_s: float
    packet_time_s: float | None

    @property
    def time_s(self) -> float:
        """Seconds to go by: of packet trains where stated, else of the fluid model."""
        return self.iteration_time_s if self.packet_time_s is None else self.packet_time_s


@checked(frozen=True, config=STRICT)
class Baseline(Timed):
    """The same job on another fabric, with the best parallelization found for that fabric."""

    iteration_time_s: Seconds
    packet_time_s: Seconds | None
    cost_usd: Amount | None
    bandwidth_bytes_per_s: Amount
    origin: str
    parallelization: Parallelization
    note: str
    reconfiguration: ReconfigurationRecord | None = None
    bounded: bool = False
    """Whether its simulation passed the budget of work: the time is one that it is not below."""


@checked(frozen=True, config=STRICT)
class ScheduleRecord:
    """The schedule inside the iteration that the plan's time holds for.

    ``plain_time_s`` is the time of the same strategy and network under the plain schedule.
    """

    overlap: Literal["barrier", "next-forward"]
    compute: Literal["ready", "critical-path"]
    network: Literal["fair", "transfers-first", "critical-path"]
    bucket_bytes: Amount | None
    microbatches: Whole
    plain_time_s: Seconds
