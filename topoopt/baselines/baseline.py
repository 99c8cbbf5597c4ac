"""A fabric that a plan is compared with."""

from collections.abc import Callable
from dataclasses import dataclass

from topoopt.fabric.fabric import Fabric
from topoopt.fabric.reconfigurable import AnyFabric


@dataclass(frozen=True)
class BaselineFabric:
    """A fabric to compare with.

    Parameters
    ----------
    fabric : Fabric, GpuPorts, DirectCircuits or WindowedCircuits
        Anything that can run a task graph.
    cost : float or None
        US dollars; None if unknown.
    bandwidth : float
        Bytes/s of a server's link (switched) or port (direct).
    note : str
        How bandwidth and cost were set.
    real : callable, optional
        Returns the fabric with each link of its own, where `fabric` has merged ones: packets
        queue on links, not on sums of them.
    """

    fabric: AnyFabric
    cost: float | None
    bandwidth: float
    note: str
    real: Callable[[], Fabric] | None = None

    @property
    def unmerged(self) -> AnyFabric:
        """The fabric with each link of its own, made anew where `fabric` has merged ones."""
        return self.fabric if self.real is None else self.real()
