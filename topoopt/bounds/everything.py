"""The lower bound over everything that a family's parallelizations and any wiring leave open."""

from collections.abc import Mapping
from typing import Any

from codesign_base import InfeasibleError
from parallelism.operator_family import OperatorFamily
from parallelism.transformers.family import LayoutFamily
from topoopt.bounds.bounds import Bound, scheduled_bound, space_bound
from topoopt.bounds.layouts import fitting_bounds, layout_bound, least_bound, placement_bound
from topoopt.bounds.relaxation import Wirings
from topoopt.problem.cluster import Cluster
from topoopt.problem.schedule import Schedule

AnyFamily = OperatorFamily | LayoutFamily


def wirings_of(family: AnyFamily, cluster: Cluster, hops: float = 1.0) -> Wirings:
    """Return all wirings of a cluster's ports, for bounds.

    Parameters
    ----------
    family : OperatorFamily or LayoutFamily
        Of which the memory counts.
    cluster : Cluster
    hops : float
        Hops' time that any message takes beyond its bytes.

    Returns
    -------
    Wirings
    """
    return Wirings(
        cluster.servers, cluster.degree, cluster.port_rate, hops * cluster.hop_latency,
        family.memory_limit,
    )  # fmt: skip


def everything_bound(
    family: AnyFamily,
    cluster: Cluster,
    *,
    hops: float = 1.0,
    weights: Mapping[str, float] | None = None,
    schedule: Schedule | None = None,
    quick: bool = False,
) -> Bound:
    """Bound the iteration time over all parallelizations, topologies and routings.

    Parameters
    ----------
    family : OperatorFamily or LayoutFamily
    cluster : Cluster
    hops : float
        As in `wirings_of`; layouts' bounds count one hop.
    weights : mapping of str to float, optional
        Operators: as in `space_bound`.
    schedule : Schedule, optional
        Plain by default; with overlap or microbatches see `scheduled_bound`.
    quick : bool
        Layouts: the least of their own bounds, without the task graphs of placements. Lower, and
        enough to rule a cluster out.

    Returns
    -------
    Bound

    Raises
    ------
    InfeasibleError
        If no layout is legal, or none fits in memory.
    """
    if isinstance(family, LayoutFamily):
        wirings = wirings_of(family, cluster)
        bounded = fitting_bounds(family)
        if not bounded:
            raise InfeasibleError(
                f"model {family.model.name!r} does not fit: no layout needs at most "
                f"{family.memory_limit / 1e9:.4g} GB per GPU; give more servers, or GPUs with more "
                "memory"
            )
        return least_bound(family, wirings, bounded, quick=quick)
    wirings = wirings_of(family, cluster, hops)
    schedule = schedule or Schedule.plain()
    if schedule.streaming or schedule.microbatches > 1:
        return scheduled_bound(
            family.builder, wirings, schedule.microbatches,
            steady=schedule.streaming, weights=weights,
        )  # fmt: skip
    return space_bound(family.builder, wirings, weights)


def own_bound(family: AnyFamily, cluster: Cluster, parallelization: Any) -> Bound | None:
    """Return a bound of one parallelization that its task graph does not show; None without."""
    if isinstance(family, LayoutFamily):
        wirings = wirings_of(family, cluster)
        of_layout = layout_bound(family, wirings, parallelization.layout)
        placed = placement_bound(family, wirings, parallelization) or of_layout
        return max(of_layout, placed, key=lambda bound: bound.seconds)
    return None
