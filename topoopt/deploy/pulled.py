"""A deployment whose cables were pulled: routes go around them, addresses and labels stay."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from codesign_base import InfeasibleError, InputError
from topoopt.deploy.cabling import Cable, Cabling
from topoopt.deploy.deployment import Deployment
from topoopt.deploy.technician import label
from topoopt.plan.rebuild import rebuild_fabric
from topoopt.studies.repairs import fail_cables, repaired
from topoopt.topology.wiring import is_strongly_connected

_SHOWN = 8  # labels in an error, and the last one


def cable_named(made: Deployment, name: str) -> Cable:
    """Return the cable of a label.

    Parameters
    ----------
    made : Deployment
    name : str
        As in cables.csv.

    Raises
    ------
    InputError
        If there is none.
    """
    cables = {label(made, cable): cable for cable in made.cabling.cables}
    if name not in cables:
        labels = list(cables)
        some = labels if len(labels) <= _SHOWN else [*labels[:_SHOWN], "...", labels[-1]]
        raise InputError(f"no cable is labelled {name!r}; give one of {', '.join(some)}")
    return cables[name]


def without_cables(made: Deployment, cables: Sequence[Cable]) -> Deployment:
    """Return the same deployment after cables were pulled, repaired by ``reroute``.

    Routes are made anew as `topoopt.studies.repairs.repaired` does, shortest paths that divide
    equally. What differs in the files of hosts are routes.sh and rdma.sh alone.

    Parameters
    ----------
    made : Deployment
    cables : sequence of Cable
        Of its cables.

    Raises
    ------
    InfeasibleError
        If some server could not reach another any more.
    """
    left = tuple(each for each in made.cabling.cables if each not in cables)
    if not _joined(made, left):
        names = [label(made, cable) for cable in cables]
        pulled = f"cable {names[0]}" if len(names) == 1 else f"cables {', '.join(names)}"
        raise InfeasibleError(
            f"without {pulled} some servers do not reach each other; repair "
            f"{'it' if len(names) == 1 else 'one'}, or plan with more ports"
        )
    ways = Cabling(tuple(cables)).leads_to.items()
    dead = np.array(sorted(made.network.link(a, b) for (a, _), (b, _) in ways), dtype=np.int64)
    fabric = replace(
        rebuild_fabric(made.plan), network=made.network, routes=made.routes, ring_routes=None
    )
    after = repaired(fabric, fail_cables(made.network, dead), "reroute")
    return replace(
        made, network=after.network, routes=after.routes, cabling=Cabling(left), built=made.laid
    )


def busiest_cable(made: Deployment) -> Cable | None:
    """Return the cable that most pairs' packets cross, of those that can be spared.

    The first of equals; None if the servers need every cable to reach each other.

    Parameters
    ----------
    made : Deployment
    """
    pairs: Counter[tuple[int, int]] = Counter()
    for source in made.servers:
        for target in made.servers:
            links, _ = made.routes.row(source, target)
            pairs.update(
                zip(
                    made.network.source[links].tolist(), made.network.target[links].tolist(),
                    strict=True,
                )
            )  # fmt: skip

    def crossing(cable: Cable) -> int:
        one, other = cable.source[0], cable.target[0]
        return pairs[one, other] + (pairs[other, one] if cable.both_ways else 0)

    for cable in sorted(made.cabling.cables, key=crossing, reverse=True):
        if _joined(made, tuple(each for each in made.cabling.cables if each != cable)):
            return cable
    return None


def _joined(made: Deployment, cables: tuple[Cable, ...]) -> bool:
    """Whether all servers reach each other over some cables."""
    table = np.zeros((len(made.servers), len(made.servers)), dtype=np.int64)
    for end, other in Cabling(cables).leads_to.items():
        table[end[0], other[0]] += 1
    return is_strongly_connected(table)
