"""What routers answer, a spine for every flow, and what must hold before and after."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from codesign_base import InfeasibleError, InputError
from codesign_base.arrays import Ints
from codesign_base.counted import counted
from routing.clos.fabric import Clos
from routing.clos.flows import ClosFlows


@dataclass(frozen=True, eq=False)
class Assignment:
    """A spine for every flow.

    Parameters
    ----------
    spine : int64 array, shape (flows,)
        -1 for flows within a ToR.
    optimal : bool
        Whether the router proved it optimal in its own objective.
    """

    spine: Ints
    optimal: bool = False

    def __post_init__(self) -> None:
        spine = np.ascontiguousarray(self.spine, dtype=np.int64)
        if spine is self.spine and spine.flags.writeable:
            spine = spine.copy()  # the caller's array stays writeable
        spine.setflags(write=False)
        object.__setattr__(self, "spine", spine)


def check_connected(clos: Clos, flows: ClosFlows) -> None:
    """Raise InfeasibleError if a flow has no live path."""
    if clos.core_failures_only and clos.live_spines.size:
        return
    up = np.packbits(clos.up > 0, axis=1)
    down = np.packbits(clos.down.T > 0, axis=1)
    shared = (up[flows.source_tor] & down[flows.target_tor]).any(axis=1)
    cut = flows.crosses & ~shared
    if cut.any():
        flow = int(np.flatnonzero(cut)[0])
        raise InfeasibleError(
            f"flow {flow} from ToR {flows.source_tor[flow]} to ToR {flows.target_tor[flow]} has "
            "no spine with live links to both; repair one or take the flow out"
        )


def check_assignment(clos: Clos, flows: ClosFlows, spine: Ints) -> None:
    """Raise InputError unless exactly the flows that leave their ToR have an existing spine."""
    flows.check_fits(clos)
    if spine.shape != (flows.count,):
        raise InputError(
            f"the assignment has {counted(spine.size, 'spine')} for {counted(flows.count, 'flow')}"
        )
    bad = np.where(flows.crosses, (spine < 0) | (spine >= clos.spines), spine != -1)
    if bad.any():
        flow = int(np.flatnonzero(bad)[0])
        need = f"0..{clos.spines - 1}" if flows.crosses[flow] else "-1 (it stays in its ToR)"
        raise InputError(f"flow {flow} is assigned spine {spine[flow]}; it needs {need}")


def live_spines(clos: Clos, flows: ClosFlows, spine: Ints) -> npt.NDArray[np.int32]:
    """Return the spines that flows hold, -1 where there is none or one of its links has failed."""
    way = np.clip(spine, -1, clos.spines - 1)
    up = clos.up[flows.source_tor, way] > 0
    down = clos.down[way, flows.target_tor] > 0
    return np.where((way >= 0) & flows.crosses & up & down, way, -1).astype(np.int32)
