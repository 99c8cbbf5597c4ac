"""What exchanging tokens among experts, or heads, costs at least, under each placement of a layout.

A rank waits for the tokens that every server of its expert group sends to its own, and none of
them leaves before some rank of the group has computed. So ports and passes take turns, and the
passes of the pipeline are longer by what the ports take. Heads of linear attention go between the
ranks of a context group in the same way.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from codesign_base.arrays import Floats, Ints
from codesign_base.rows import spread, starts
from parallelism.transformers.family import LayoutFamily
from parallelism.transformers.layout import Layout
from parallelism.transformers.loads import Loads
from parallelism.transformers.placement import Placement
from parallelism.transformers.schedules import PipelineSchedule, schedule_of
from parallelism.transformers.timeline import PassTimes, timeline
from routing.throughput_bounds import least_link_bytes
from topoopt.bounds.relaxation import Wirings

# Servers up to which what is exchanged is also counted in hops.
_MOST_HOPS = 1024


@dataclass(frozen=True, eq=False)
class Crossings:
    """How the ranks of groups lie on servers: an entry a group of a stage and server.

    Parameters
    ----------
    groups : int
        Of all stages.
    size : int
        Ranks of a group.
    group, server : int64 arrays, shape (entries,)
        Groups of the first stage come first.
    inside : int64 array, shape (entries,)
        Ranks of the group on the server.
    awaited : float64 array, shape (stages,)
        Times that the bytes of one rank for one other come into the server of the rank of the
        stage that waits for least.
    """

    groups: int
    size: int
    group: Ints
    server: Ints
    inside: Ints
    awaited: Floats

    @property
    def meeting(self) -> tuple[Ints, Ints]:
        """Pairs of different entries of one group: the first, and the second."""
        counts = np.bincount(self.group, minlength=self.groups)
        first = np.repeat(np.arange(self.group.size), counts[self.group])
        second = spread((starts(counts)[:-1])[self.group], counts[self.group])
        other = first != second
        return first[other], second[other]


def crossings_of(placement: Placement, *, context: bool = False) -> Crossings:
    """Return how expert groups, or context groups, lie on servers.

    Parameters
    ----------
    placement : Placement
        Of ranks within servers.
    context : bool
        Context groups.
    """
    return _crossings(placement.of_degrees, context)


@lru_cache(maxsize=32)
def _crossings(placement: Placement, context: bool) -> Crossings:
    """Work it out once for all layouts of some degrees."""
    groups = placement.context_groups() if context else placement.expert_groups()
    homes = groups // placement.ranks_per_server
    count, size, stages = homes.shape
    rows = np.sort(homes.transpose(2, 0, 1).reshape(-1, size), axis=1)
    first = np.ones(rows.shape, dtype=np.bool_)
    first[:, 1:] = rows[:, 1:] != rows[:, :-1]
    begin = np.flatnonzero(first)
    inside = np.diff(begin, append=rows.size)
    group = begin // size
    into = (inside * (size - inside)).astype(np.float64)
    stage = np.searchsorted(group, np.arange(stages) * count)
    return Crossings(
        count * stages, size, group, rows.ravel()[begin], inside,
        np.minimum.reduceat(into, stage),
    )  # fmt: skip


def exchange_terms(
    family: LayoutFamily,
    wirings: Wirings,
    layout: Layout,
    schedule: PipelineSchedule,
    far: Loads,
    enough: float = float("inf"),
) -> dict[str, float]:
    """Bound the iteration time of a layout of experts over every placement of it.

    Parameters
    ----------
    family : LayoutFamily
    wirings : Wirings
        Ports of the servers.
    layout : Layout
        Of ranks within servers, with expert groups of several.
    schedule : PipelineSchedule
        That of the layout.
    far : Loads
        Of the layout in Megatron's order of axes, where context and expert groups span servers.
    enough : float
        Seconds beyond which any bound will do.

    Returns
    -------
    dict of str to float
        Of the placement with the least: ``pipeline``, the schedule's passes, each with what its
        ranks wait for to come through the ports of their server, and the optimizer's step; and
        ``exchange``, all tokens that cross between servers, over the ports of the busiest
        server, or in link-bytes over all ports. If the pipelines alone take longer than
        ``enough``, the least of these.

    Notes
    -----
    Let no rank of an expert group begin a pass before time t. Then none of its tokens leaves
    before t + c, the c seconds of the pass, and whatever a rank waits for still has to come
    through the ports of its server, in b seconds: no rank begins the next before t + c + b.
    """
    rate = wirings.port_rate
    waiting: list[tuple[float, int, Floats, Loads | None, Crossings]] = []
    near: Loads | None = None
    for number, placement in enumerate(family.placements(layout)):
        across = crossings_of(placement)
        if across.inside.min() == across.size:
            if near is None:
                near = family.loads(placement, {"context"})
                waiting.append((float(near.seconds.sum()), number, near.seconds, None, across))
            continue
        if family.implementation.forwarded_tokens:
            loads = family.loads(placement, {"context", "expert"})
        else:
            loads = far
        longer = passes_with_exchange(loads, across, layout, rate)
        waiting.append((float(longer.sum()), number, longer, loads, across))
    best: dict[str, float] = {}
    tried: list[Floats] = []
    least = float("inf")
    for _, _, longer, crosses, across in sorted(waiting, key=lambda each: each[:2]):
        # Passes that take longer make no pipeline end sooner.
        if any((longer >= other).all() for other in tried):
            continue
        none = np.zeros(longer.shape[1])
        forward, backward, weight = longer
        times = PassTimes(forward, backward, weight, none, none)
        pipeline = timeline(schedule, times).makespan + far.update_s
        if pipeline >= least or pipeline > enough:
            tried.append(longer)
            if pipeline < least:
                least, best = pipeline, {"pipeline": pipeline}
            continue
        ports = (
            0.0 if crosses is None else ports_seconds(crosses, across, layout, schedule, wirings)
        )
        if pipeline >= ports:
            tried.append(longer)
        if max(pipeline, ports) < least:
            least = max(pipeline, ports)
            best = {"pipeline": pipeline, "exchange": ports}
    return best


def placed_pipeline(family: LayoutFamily, wirings: Wirings, placement: Placement) -> float:
    """Bound the iteration time of a placement by its passes, sends and exchanges in series.

    Parameters
    ----------
    family : LayoutFamily
    wirings : Wirings
        Ports of the servers.
    placement : Placement
        Of ranks within servers.

    Returns
    -------
    float
        Seconds of the schedule with passes as in `exchange_terms` and with what they wait for of
        other heads, and outputs that all cross to other servers alone on all ports; and of the
        optimizer's step.

    Notes
    -----
    What `exchange_terms` says of the ranks of a group holds of all ranks of a stage, whose least
    times to compute, and least bytes of tokens and of heads, are taken.
    """
    layout, home = placement.layout, placement.home
    loads = family.loads(placement)
    ports = wirings.port_rate
    passes = passes_with_exchange(loads, crossings_of(placement), layout, ports)
    if loads.heads_bytes.any():
        awaited = crossings_of(placement, context=True).awaited[list(layout.part_stages)]
        passes = passes + loads.heads_bytes / layout.context * awaited / ports
    stage, step = np.array(layout.part_stages), np.array([*layout.part_steps, 0])
    # To the stage before, to itself, to the next one; the last part sends nothing.
    away = [(home != np.roll(home, -by, axis=2)).all(axis=(0, 1)) for by in (-1, 0, 1)]
    send = np.stack(away)[1 + step, stage] * (loads.boundary_bytes / ports + wirings.lag)
    forward, backward, weight = passes
    times = PassTimes(forward, backward, weight, send, send)
    return timeline(schedule_of(layout, family.batch), times).makespan + loads.update_s


def passes_with_exchange(loads: Loads, across: Crossings, layout: Layout, rate: float) -> Floats:
    """Return the seconds of each pass of each part at least, its exchange included.

    Parameters
    ----------
    loads : Loads
        Of a placement.
    across : Crossings
        Of the same.
    layout : Layout
    rate : float
        Bytes/s of all ports of a server, each way.

    Returns
    -------
    float64 array, shape (3, parts)
        Rows as in `Loads.seconds`. What the stack sends beside a pass counts where it takes
        longer than the pass.
    """
    stage = np.array(layout.part_stages)
    moving = loads.expert_bytes / layout.expert_ranks * across.awaited[stage] / rate
    longer: Floats = (
        np.maximum(loads.seconds, loads.beside * moving) + (1.0 - loads.beside) * moving
    )
    return longer


def ports_seconds(
    loads: Loads,
    across: Crossings,
    layout: Layout,
    schedule: PipelineSchedule,
    wirings: Wirings,
) -> float:
    """Return the seconds that all exchanged tokens of an iteration occupy ports at least.

    Parameters
    ----------
    loads : Loads
        Of the placement.
    across : Crossings
        Of the same.
    layout : Layout
    schedule : PipelineSchedule
    wirings : Wirings

    Returns
    -------
    float
        The busiest server's tokens over its ports; or, on up to 1,024 servers, link-bytes in
        the best network of the degree (`routing.throughput_bounds.least_link_bytes`) over all
        ports.
    """
    each = loads.expert_bytes.sum(axis=0) * schedule.microbatches / layout.expert_ranks
    stage = np.array(layout.part_stages)
    bytes_of = np.bincount(stage, weights=each, minlength=layout.pipeline)
    most = float(bytes_of.max())
    if most == 0.0:
        return 0.0
    shares = tuple((bytes_of / most).tolist())
    ports = _port_bytes(across, shares, wirings.servers, wirings.degree)
    return most * ports / wirings.port_rate


@lru_cache(maxsize=32)
def _port_bytes(across: Crossings, shares: tuple[float, ...], servers: int, degree: int) -> float:
    """Return the bytes over all ports of a server, where ranks send others a stage's share.

    Layouts of some degrees have few divisions of their layers, so it is worked out once for each.
    """
    weight = np.array(shares)[across.group // (across.groups // len(shares))]
    into = weight * across.inside * (across.size - across.inside)
    busiest = float(np.bincount(across.server, weights=into, minlength=servers).max())
    if servers > _MOST_HOPS or busiest == 0.0:
        return busiest
    met = np.bincount(across.group, minlength=across.groups)[across.group] - 1
    if np.bincount(across.server, weights=met, minlength=servers).max() <= degree:
        return busiest  # Each may be next to all that it sends to.
    from scipy.sparse import csr_array

    # Not by a product of matrices: threads of linear algebra wait for each other on busy cores.
    one, other = across.meeting
    sent = weight[one] * (across.inside[one] * across.inside[other])
    ends = (across.server[one], across.server[other])
    hops = least_link_bytes(csr_array((sent, ends), shape=(servers, servers)), degree)
    return max(busiest, hops / servers)
