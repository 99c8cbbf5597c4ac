"""What the control loop tells hosts."""

from dataclasses import dataclass

from codesign_base.arrays import Ints
from routing.clos.flows import ClosFlows


@dataclass(frozen=True, eq=False)
class RouteChanges:
    """What hosts have to be told after one look at the network.

    Parameters
    ----------
    flows : ClosFlows
        All flows that hold a route now: in flight, or expected to come back.
    spine : int64 array, shape (flows,)
        Their spines; -1 within a ToR.
    changed : int64 array
        Positions in ``flows`` of those whose spine is new or another than before.
    moved : int
        How many of them had a spine before.
    decided : bool
        Whether the router was asked; False if traffic and fabric are as before.
    seconds : float
        Time that the call took (of the clock, not simulated).
    """

    flows: ClosFlows
    spine: Ints
    changed: Ints
    moved: int
    decided: bool
    seconds: float

    @property
    def any(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.changed.size)
