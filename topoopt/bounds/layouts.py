"""Lower bounds over the layouts of a transformer, wherever their ranks sit."""

import heapq
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from parallelism.transformers.family import LayoutFamily
from parallelism.transformers.layout import Layout
from parallelism.transformers.links import near_links
from parallelism.transformers.loads import Loads
from parallelism.transformers.pass_seconds import layer_seconds
from parallelism.transformers.placement import Placement
from parallelism.transformers.schedules import PipelineSchedule, schedule_of
from parallelism.transformers.sends import network_bytes
from parallelism.transformers.shares import layer_kinds
from parallelism.transformers.timeline import PassTimes, last_starts, timeline
from topoopt.base.interrupts import hear_interrupt
from topoopt.bounds.bounds import Bound, strategy_bound
from topoopt.bounds.exchanges import exchange_terms, placed_pipeline
from topoopt.bounds.relaxation import Wirings
from topoopt.fabric.rounding import ROUNDED_DOWN

# Work spent on tightening bounds: tasks of all graphs, what each graph takes besides, what it takes
# to find who is alike beside the exchanges looked at, and to count what is sent under a placement,
# in tasks that would take as long.
_WORK = 4e7
_EACH = 2e4
_ALIKE = 8e4
_COUNTED = 1e3
# Bytes of a task graph, as predicted, beyond which a bound is not tightened by it.
_MOST_BYTES = 3e9


@dataclass(frozen=True)
class Bounded:
    """A layout with a bound of its iteration time.

    Parameters
    ----------
    layout : Layout
    bound : Bound
        Wherever its ranks sit.
    passes_only : bool
        Whether it is the `passes_bound`, or another that is below the `layout_bound` and quicker.
    """

    layout: Layout
    bound: Bound
    passes_only: bool


def fitting_bounds(family: LayoutFamily) -> list[Bounded]:
    """Return the layouts that fit in memory, each with its `passes_bound`.

    Raises
    ------
    InfeasibleError
        If no layout is legal.
    """
    found = []
    for layout in family.layouts():
        hear_interrupt()
        schedule = schedule_of(layout, family.batch)
        if max(use.total for use in family.uses(layout, schedule)) <= family.memory_limit:
            found.append(Bounded(layout, passes_bound(family, layout, schedule), passes_only=True))
    return found


def needless(layout: Layout, fitting: Set[Layout]) -> bool:
    """Say whether a layout computes again what the same layout has room to keep.

    Its passes take longer, and it sends as much and later: no bound of it is below the other's.

    Parameters
    ----------
    layout : Layout
    fitting : set of Layout
        Layouts that fit in memory.
    """
    return layout.recompute != "none" and replace(layout, recompute="none", modules=()) in fitting


def least_bound(
    family: LayoutFamily, wirings: Wirings, bounded: Sequence[Bounded], *, quick: bool = False
) -> Bound:
    """Return the least bound over layouts and all placements of theirs.

    Parameters
    ----------
    family : LayoutFamily
    wirings : Wirings
        Ports of the servers.
    bounded : sequence of Bounded
        Of all layouts that fit in memory.
    quick : bool
        The least `layout_bound` will do.

    Returns
    -------
    Bound

    Notes
    -----
    Best first: the layout with the least bound so far gets its `layout_bound`, then the least of
    the `sending_bound` of its placements, and is then tightened (`tightened_bound`), until the
    least is a tightened one, which then holds for all; or until so many task graphs have been
    looked at that the least is taken as it is. What is `needless` is not looked at.
    """
    fitting = {each.layout for each in bounded}
    known = [each for each in bounded if not needless(each.layout, fitting)]
    heap = [(each.bound.seconds, number) for number, each in enumerate(known)]
    heapq.heapify(heap)
    sent: dict[int, list[Bound]] = {}
    tight: dict[int, Bound] = {}
    work = 0.0
    while True:
        hear_interrupt()
        _, number = heap[0]
        layout, bound = known[number].layout, known[number].bound
        if known[number].passes_only:
            bound = layout_bound(family, wirings, layout)
            known[number] = Bounded(layout, bound, passes_only=False)
            heapq.heapreplace(heap, (bound.seconds, number))
            continue
        if number in tight or work > _WORK or quick:
            return tight.get(number, bound)
        placements = family.placements(layout)
        if number not in sent:
            sent[number] = []
            for each in placements:
                sent[number].append(sending_bound(family, wirings, each))
                if sent[number][-1].seconds <= bound.seconds:
                    break  # the least of all is no more
            work += _COUNTED * len(placements)
            bound = max(bound, min(sent[number], key=_seconds), key=_seconds)
            known[number] = Bounded(layout, bound, passes_only=False)
            heapq.heapreplace(heap, (bound.seconds, number))
            continue
        if max(map(family.expected_bytes, placements)) > _MOST_BYTES:
            tight[number] = bound
            continue
        tight[number], done = tightened_bound(family, wirings, layout, bound, sent[number])
        work += done
        heapq.heapreplace(heap, (tight[number].seconds, number))


def _seconds(bound: Bound) -> float:
    return bound.seconds


def sending_bound(family: LayoutFamily, wirings: Wirings, placement: Placement) -> Bound:
    """Bound the iteration time of a placed layout by what its servers send to each other.

    Parameters
    ----------
    family : LayoutFamily
    wirings : Wirings
        Ports of the servers.
    placement : Placement

    Returns
    -------
    Bound
        ``network``: all bytes over all ports (`network_bytes`), or from a moment on those of the
        gradients that no pass before it completes; and the optimizer's step, which follows on
        every message.
    """
    loads = family.loads(placement)
    schedule = schedule_of(placement.layout, family.batch)
    sent, gradients = network_bytes(placement, schedule, loads)
    begin = last_starts(schedule, _instant(loads))
    late = np.argsort(-begin)
    after = begin[late] + np.cumsum(gradients[late]) / wirings.network_rate
    seconds = max(sent / wirings.network_rate, float(after.max())) + loads.update_s
    return Bound(seconds * ROUNDED_DOWN, {"network": seconds})


def _instant(loads: Loads) -> PassTimes:
    """Return the seconds of passes whose messages take none."""
    forward, backward, weight = loads.seconds
    none = np.zeros(forward.size)
    return PassTimes(forward, backward, weight, none, none)


def tightened_bound(
    family: LayoutFamily,
    wirings: Wirings,
    layout: Layout,
    bound: Bound,
    sent: Sequence[Bound] = (),
) -> tuple[Bound, float]:
    """Bound a layout's time by what each of its placements takes.

    Parameters
    ----------
    family : LayoutFamily
    wirings : Wirings
        Ports of the servers.
    layout : Layout
    bound : Bound
        Its `layout_bound`, or a larger one of it wherever its ranks sit.
    sent : sequence of Bound, optional
        The `sending_bound` of the first of its placements, as far as they are at hand.

    Returns
    -------
    Bound
        The least over every order of the axes of the largest of the placement's
        `topoopt.bounds.bounds.strategy_bound`, `placement_bound` and `sending_bound`, where that
        is tighter.
    float
        Work that this took: tasks of all these graphs, or what takes as long.
    """
    least, work = Bound(float("inf"), {}), 0.0
    placements = family.placements(layout)
    others = placements[len(sent) :]
    sent = [*sent, *(sending_bound(family, wirings, each) for each in others)]
    alone = [
        max(placement_bound(family, wirings, each) or bound, sends, key=_seconds)
        for each, sends in zip(placements, sent, strict=True)
    ]
    for number in sorted(range(len(alone)), key=lambda i: alone[i].seconds):
        # No other placement changes the least, or what is below the given bound already.
        if alone[number].seconds >= least.seconds or least.seconds <= bound.seconds:
            break
        hear_interrupt()
        tasks = family.represented(placements[number])
        work += tasks.tasks + _EACH
        if tasks.alike is not None:
            work += _ALIKE + tasks.alike.pattern.elements
        one = strategy_bound(tasks, wirings.degree, wirings.bandwidth, wirings.lag)
        one = max(one, alone[number], key=_seconds)
        least = min(least, one, key=_seconds)
    return max(bound, least, key=_seconds), work


def placement_bound(family: LayoutFamily, wirings: Wirings, placement: Placement) -> Bound | None:
    """Return what the task graph of a placement does not show of all-to-alls; None without these.

    Parameters
    ----------
    family : LayoutFamily
    wirings : Wirings
        Ports of the servers.
    placement : Placement

    Returns
    -------
    Bound or None
        ``pipeline``: see `topoopt.bounds.exchanges.placed_pipeline`.
    """
    layout = placement.layout
    exchanges = layout.expert_ranks > 1 or (layout.context > 1 and family.model.exchanges_heads)
    if not exchanges or spans(placement):
        return None
    seconds = placed_pipeline(family, wirings, placement)
    return Bound(seconds * ROUNDED_DOWN, {"pipeline": seconds})


def passes_bound(family: LayoutFamily, layout: Layout, schedule: PipelineSchedule) -> Bound:
    """Bound the iteration time of a layout by its passes alone.

    Parameters
    ----------
    family : LayoutFamily
    layout : Layout
    schedule : PipelineSchedule
        That of the layout.

    Returns
    -------
    Bound
        ``passes``: the layers of all microbatches, divided evenly over the stages, with no
        message to another server, and what the software does once an iteration. Never above
        `layout_bound`, and worked out once for all layouts whose layers are alike.
    """
    far = {"context", "expert"} | ({"tensor"} if layout.tensor > family.server.gpus else set())
    near = near_links(family.server)
    training, model = family.training(layout), family.model
    whole = 0.0
    for layer, count in layer_kinds(model, 0, model.layers, model.mtp_layers):
        one = layer_seconds(training, layer, family.rates, near, frozenset(far))
        whole += count * (one.forward + one.backward + one.weight)
    seconds = whole * schedule.microbatches / schedule.stages + family.implementation.iteration_s
    # Sums in another order differ in the last bits.
    return Bound(seconds * ROUNDED_DOWN * ROUNDED_DOWN, {"passes": seconds})


def layout_bound(
    family: LayoutFamily, wirings: Wirings, layout: Layout, enough: float = float("inf")
) -> Bound:
    """Bound the iteration time of a layout from below, wherever its ranks sit.

    Parameters
    ----------
    family : LayoutFamily
    wirings : Wirings
        Ports of the servers.
    layout : Layout
    enough : float
        Seconds: a bound that is above them may be lower, and quicker, than without.

    Returns
    -------
    Bound
        ``pipeline``: the schedule's passes with tensor groups at their server's bandwidth and
        all other messages instant, and the optimizer's step. ``injection``: what the ranks of
        the stage with most weights must send to other servers at least, over all ports. With
        experts, ``pipeline`` and ``exchange`` are those of `exchange_terms`.
    """
    placement = Placement(layout, family.server.gpus)
    far = {"context", "expert"} | ({"tensor"} if spans(placement) else set())
    loads = family.loads(placement, far)
    schedule = schedule_of(layout, family.batch)
    injection = {"injection": least_injection(placement, schedule, loads) / wirings.port_rate}
    if layout.expert_ranks > 1 and not spans(placement):
        # Beyond ``enough`` after rounding, too.
        enough /= ROUNDED_DOWN * ROUNDED_DOWN
        terms = exchange_terms(family, wirings, layout, schedule, loads, enough) | injection
    else:
        passes = timeline(schedule, _instant(loads)).makespan
        terms = {"pipeline": passes + loads.update_s} | injection
    return Bound(max(terms.values()) * ROUNDED_DOWN, terms)


def spans(placement: Placement) -> bool:
    """Whether tensor groups span servers."""
    return placement.servers_per_rank > 1


def least_injection(placement: Placement, schedule: PipelineSchedule, loads: Loads) -> float:
    """Return the bytes that some server must send to share weights, wherever ranks sit.

    Parameters
    ----------
    placement : Placement
        Its order of axes is not looked at.
    schedule : PipelineSchedule
    loads : Loads

    Returns
    -------
    float
        Each server of a group that no single one has room for sends (n - 1) / n of the buffer on
        a ring of its n ranks, and of what copies of a share add up twice that.
    """
    layout = placement.layout
    ranks, copies = layout.sharing, layout.replicate
    scatters = schedule.microbatches if layout.zero >= 2 else 1
    gathers = {0: 0, 3: 2 * schedule.microbatches}.get(layout.zero, 1)
    reduces = scatters if layout.zero else 2
    most = 0.0
    for parts in schedule.parts.tolist():
        total = 0.0
        for part in parts:
            gradient, weight = loads.gradients[part], loads.weights[part]
            held = ranks // layout.expert_ranks
            for size, group in (
                (reduces * gradient.dense + gathers * weight.dense, ranks),
                (reduces * gradient.expert + gathers * weight.expert, held),
                (2.0 * (gradient.dense / ranks + gradient.expert / held), copies),
            ):
                if group > placement.ranks_per_server:
                    total += (group - 1) / group * size / placement.servers_per_rank
        most = max(most, total)
    return most
