"""How traffic between servers is routed."""

from enum import StrEnum


class Routing(StrEnum):
    """How transfers between servers that are not neighbours are routed.

    ``ecmp``: split equally at every hop over all shortest paths. ``k-shortest``: split equally
    over up to eight shortest loopless paths of at most one hop more than the shortest (paper).
    ``single``: one random shortest path (artifact). ``mcf``: weighted paths of least congestion
    for the transfers of one strategy, beside its AllReduces (`topoopt.evaluate.mcf_routes`).
    ``balanced``: one shortest path a pair, chosen so that the traffic of one strategy loads the
    links evenly.
    """

    ECMP = "ecmp"
    K_SHORTEST = "k-shortest"
    SINGLE = "single"
    MCF = "mcf"
    BALANCED = "balanced"
