"""What is scored: a family of parallelizations on a cluster, and how their times are taken."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic

from typing_extensions import TypeVar

from parallelism.builder_rows import PortLoad
from parallelism.family import Family
from parallelism.operator_family import OperatorFamily
from routing.routes import tabled
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.rounding import ROUNDED_DOWN
from topoopt.fabric.transport import PACKETS
from topoopt.problem.cluster import Cluster
from topoopt.problem.options import SearchOptions
from topoopt.problem.schedule import Schedule
from topoopt.topology.fabrics import ideal_switch
from topoopt.topology.finder import Topology

BASELINE_WORK = 5e7
IDEAL_SWITCH = "ideal-switch"

# What is not said to be of another family is of operators.
F_co = TypeVar("F_co", bound=Family[Any], covariant=True, default=OperatorFamily)


@dataclass(frozen=True, eq=False)
class Problem(Generic[F_co]):
    """A job on a cluster, and everything that the score of a pair depends on beside the pair.

    Parameters
    ----------
    family : Family
        Builds the task graphs, and says what fits in memory.
    cluster : Cluster
    options : SearchOptions
        Which topologies and routings are tried, and in which order devices work.
    seed : int
        Of random shortest paths, of proposals, and of what perturbs packet trains.
    yielding : float
        The score's weight of the time where transfers have only what AllReduces leave, 0 to 1;
        the rest is of that with max-min fair shares of every link. Packet trains lie between:
        every round of an AllReduce sends a whole window at once, and makes the windows of
        transfers small.
    wiring : Topology, optional
        How the servers are wired already; they are wired for each parallelization otherwise.
    """

    family: F_co
    cluster: Cluster
    options: SearchOptions = field(default_factory=SearchOptions)
    seed: int = 0
    yielding: float = 0.0
    wiring: Topology | None = None

    @cached_property
    def ideal(self) -> Fabric:
        """A switch at which every server has the rate of all its ports; see `switch`."""
        return self.switch()

    def switch(self, hops: float = 1.0) -> Fabric:
        """Return a switch of all ports, of whose rate a byte takes as much as on so many hops.

        Parallelizations are sought on it before they are wired; times on it are no plan's.
        """
        cluster = self.cluster
        rate = cluster.degree * cluster.port_rate / hops
        network, routes = ideal_switch(cluster.servers, rate, cluster.hop_latency)
        return Fabric(IDEAL_SWITCH, network, routes, {})

    @property
    def schedule(self) -> Schedule:
        """The order in which devices work while parallelizations are sought."""
        return Schedule(compute=self.options.compute_order)

    @property
    def plain(self) -> "Problem[F_co]":
        """The same, scored as fabrics are compared: fluid times, devices in order of arrival."""
        return replace(self, options=replace(self.options, schedule="plain"), yielding=0.0)

    @property
    def fused(self) -> "Problem[F_co]":
        """The same, with gradients in buckets where the options leave none below a packet."""
        if self.options.scheduling != "fused":
            return self
        return self._in_buckets(PACKETS.segment_bytes)

    @property
    def unfused(self) -> "Problem[F_co]":
        """The same, with every gradient reduced by itself."""
        return self._in_buckets(0.0)

    def _in_buckets(self, packet_bytes: float) -> "Problem[F_co]":
        family: Any = self.family.in_buckets(packet_bytes)
        return self if family is self.family else replace(self, family=family)

    def scored(self, yielding: float) -> "Problem[F_co]":
        """Return the same where scores weigh transfers that yield differently."""
        return replace(self, yielding=yielding)

    @property
    def spares(self) -> bool:
        """Whether what is slow for certain is not scored, and only the best is wired in all ways.

        On many servers every task graph of operators, and every set of routes, takes seconds.
        """
        return not self.family.enumerated and not tabled(self.family.servers)

    @property
    def baseline_work(self) -> float:
        """Work that simulations on a fabric to compare with may take, as of a `Scorer`."""
        whole = not self.family.enumerated and not self.spares
        return float("inf") if whole else BASELINE_WORK

    @property
    def candidate_work(self) -> float:
        """Work that the simulation of a layout on one wiring may take, as of a `Scorer`.

        On many servers the tasks of a wiring without symmetry fill memory.
        """
        cut = self.family.enumerated and not tabled(self.family.servers)
        return BASELINE_WORK if cut else float("inf")

    def least_seconds(self, parallelization: Any) -> float:
        """Return seconds that no iteration is shorter than, known before its tasks are made."""
        return self.family.least_seconds(parallelization) * ROUNDED_DOWN

    def port_load(self, parallelization: Any) -> PortLoad:
        """Return what each server sends, known before tasks are made, where `spares`."""
        family: Any = self.family
        load: PortLoad = family.port_load(parallelization)
        return load

    def fits(self, parallelization: Any) -> bool:
        """Whether every GPU can hold its part of a parallelization of the family."""
        return bool(self.family.memory(parallelization).max() <= self.family.memory_limit)
