"""Lower bounds on the iteration time: of everything, and of one strategy.

All of them are sound for any wiring of degree d, any routing, and any schedule of AllReduces and
other collectives in which only their members add and copy; they hold for the model that the
fabric simulates (serial devices, ports of one bandwidth, and collectives that begin when all
members are ready).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats, Ints
from parallelism.builder import TaskGraphBuilder
from parallelism.search.forest import SplitCosts
from parallelism.taskgraph import TaskGraph, TaskKind
from routing.throughput_bounds import least_link_bytes, within_hops
from topoopt.bounds.collectives import GroupRates, farthest, group_sizes
from topoopt.bounds.critical import (
    Span,
    device_end,
    least_end,
    least_of,
)
from topoopt.bounds.port_uses import port_uses
from topoopt.bounds.relaxation import OwnCost, Wirings
from topoopt.bounds.scheduled_terms import microbatch_terms, steady_terms
from topoopt.bounds.space_terms import all_choices, trade_off
from topoopt.bounds.tradeoff import Terms, best_weights, weighted
from topoopt.bounds.turns import span_and_chain
from topoopt.fabric.rounding import ROUNDED_DOWN, ROUNDED_UP

# A weight that adds less than this share says nothing.
_SMALLEST_WEIGHT = 1e-5
# Moments from which on the remaining demand is counted in hops.
_MOMENTS = 12


@dataclass(frozen=True)
class Bound:
    """A lower bound on the iteration time.

    Parameters
    ----------
    seconds : float
        The largest of the terms, less what rounding may have added.
    terms : dict of str to float
        Every term in seconds.
    weights : dict of str to float
        Shares of the bounds that the term ``trade-off`` adds up, largest first; empty where
        there is none.
    """

    seconds: float
    terms: dict[str, float]
    weights: dict[str, float] = field(default_factory=dict)

    @property
    def binding(self) -> str:
        """Name of the largest term; the first of those that rounding alone tells apart."""
        least = max(self.terms.values()) * ROUNDED_DOWN
        return next(name for name, value in self.terms.items() if value >= least)


def space_bound(
    builder: TaskGraphBuilder, wirings: Wirings, weights: Mapping[str, float] | None = None
) -> Bound:
    """Bound the iteration time over all legal strategies, topologies and routings.

    Parameters
    ----------
    builder : TaskGraphBuilder
        Model, devices, number of servers and batch.
    wirings : Wirings
        Ports of the servers, and the memory that a plan must fit in.
    weights : mapping of str to float, optional
        Weights of the trade-off, from an earlier bound of the same job; any give a bound. By
        default the best are sought.

    Returns
    -------
    Bound
        ``compute``: every operator needs at least min over its legal splits of k t(k) seconds
        of device time (k parts of t(k) seconds each; measured times are not linear in k), and
        N devices give N seconds a second. ``chain``: along any path of the model graph the
        forward and then the backward passes follow each other, each at least as long as its
        fastest part. ``trade-off``: the least, over all strategies, of a weighted sum of bounds
        of a strategy (see `topoopt.bounds.space_terms`): operators split so that all is fast reduce
        more gradients or send more activations.

    Raises
    ------
    InputError
        If a weight is negative, of no term, or all are zero.
    """
    choices, terms = trade_off(builder, wirings)
    traded, used = _traded(choices, terms, weights)
    longest = [0.0] * len(choices.own)
    for index, op in enumerate(builder.graph.operators):
        both = choices.own[index][OwnCost.FORWARD] + choices.own[index][OwnCost.BACKWARD]
        longest[index] = float(both.min()) + max((longest[i] for i in op.inputs), default=0.0)
    result = {
        "compute": float(sum(own[OwnCost.WORK].min() for own in choices.own)),
        "chain": max(longest),
        "trade-off": traded,
    }
    return Bound(max(result.values()) * ROUNDED_DOWN, result, used)


def scheduled_bound(
    builder: TaskGraphBuilder,
    wirings: Wirings,
    microbatches: int = 1,
    *,
    steady: bool = False,
    weights: Mapping[str, float] | None = None,
) -> Bound:
    """Bound iterations of microbatches, or that overlap, as `space_bound` does plain ones.

    Parameters
    ----------
    builder : TaskGraphBuilder
        Of the whole batch.
    wirings : Wirings
    microbatches : int
        Parts of the batch that run one after another.
    steady : bool
        Bound the period of iterations that overlap.
    weights : mapping of str to float, optional
        As in `space_bound`.

    Returns
    -------
    Bound
        ``compute``: as in `space_bound`, all microbatches' work. ``chain``: the longest chain
        that no strategy makes shorter; of overlapping iterations the longest turn of an operator.
        ``trade-off``: the least weighted sum of the terms of
        `topoopt.bounds.scheduled_terms`.

    Raises
    ------
    InputError
        As `space_bound`.
    """
    small = builder.of_microbatch(microbatches) if microbatches > 1 else builder
    choices, path = all_choices(small, wirings)
    if steady:
        terms = steady_terms(builder.graph, path, microbatches)
    else:
        terms = microbatch_terms(builder.graph, choices, path, microbatches)
    traded, used = _traded(choices, terms, weights)
    alone = {
        name: weighted(choices, terms, only)[0]
        for name, only in zip(terms.names, np.eye(len(terms.names)), strict=True)
    }
    chains = [value for name, value in alone.items() if name.startswith(("turn", "chain"))]
    result = {"compute": alone["compute"], "chain": max(chains), "trade-off": traded}
    return Bound(max(result.values()) * ROUNDED_DOWN, result, used)


def _traded(
    choices: SplitCosts, terms: Terms, weights: Mapping[str, float] | None
) -> tuple[float, dict[str, float]]:
    """Return the least weighted sum of terms over all strategies, and the weights used.

    Raises
    ------
    InputError
        If a given weight is negative, of no term, or all are zero.
    """
    if weights is None:
        _, found = best_weights(choices, terms)
        found = np.where(found < _SMALLEST_WEIGHT, 0.0, found)
    else:
        for name, value in weights.items():
            if name not in terms.names or not value >= 0.0:
                raise InputError(
                    f"bound: weight {value} of {name!r}; give a number of at least 0 for one of "
                    f"{', '.join(terms.names)}"
                )
        found = np.array([float(weights.get(name, 0.0)) for name in terms.names])
    if not found.sum() > 0.0:
        raise InputError(f"bound: weights {dict(weights or {})} are all zero; give a positive one")
    found = found / found.sum()
    traded, _ = weighted(choices, terms, found)
    used = sorted(np.flatnonzero(found).tolist(), key=lambda term: (-found[term], term))
    return traded, {terms.names[term]: float(found[term]) for term in used}


def strategy_bound(
    tasks: TaskGraph, degree: int, bandwidth: float, lag: float = 0.0, *, steady: bool = False
) -> Bound:
    """Bound the iteration time of one strategy over all topologies and routings.

    Parameters
    ----------
    tasks : TaskGraph
        The strategy's iteration.
    degree : int
        Ports a server.
    bandwidth : float
        Bytes/s of a port, each way.
    lag : float
        Seconds that any message takes beyond its bytes.
    steady : bool
        Bound the period of iterations that overlap instead: ``chain`` is the longest turn of an
        operator (`topoopt.bounds.turns`), and all uses of a resource count from zero.

    Returns
    -------
    Bound
        ``chain``: the longest path of dependencies, with every transfer alone on all ports of
        its source, and all that one task waits for or sends through the ports of its server.
        The others bound a resource from the earliest start of any set of its uses: ``compute``:
        the busiest device. ``injection``: the bytes that must leave or enter a server, or the
        servers of a group together, over their ports. ``hop``: link-bytes that the demand takes
        in the best digraph of degree d, over all N d links.
    """
    if degree < 1 or not bandwidth > 0:
        raise InputError(f"degree {degree} and bandwidth {bandwidth} must be positive")
    rate = degree * bandwidth
    rates, lags = np.full(tasks.tasks, rate), np.full(tasks.tasks, lag)
    members = group_sizes(tasks)
    each = np.full(members.size, rate)
    far = lag * farthest(members, degree).astype(np.float64)
    groups = GroupRates(each, each, each, far)
    least = least_of(tasks, rates, rates, lags, groups, lag)
    span, chain = span_and_chain(tasks, least, steady=steady)
    terms = {"compute": device_end(tasks, span)}
    servers = np.full(tasks.servers, rate)
    terms["injection"] = max(
        least_end(use.task, use.ports, use.size / use.rates(servers)[use.ports], span, use.sets)
        for use in port_uses(tasks)
    )
    terms["hop"] = _hop_end(tasks, span, degree, bandwidth)
    terms["chain"] = chain
    return Bound(max(terms.values()) * ROUNDED_DOWN, terms)


def _hop_end(tasks: TaskGraph, span: Span, degree: int, bandwidth: float) -> float:
    """Bound by link-bytes: from several moments on, all that can only begin then."""
    network = tasks.servers * degree * bandwidth
    sent = np.flatnonzero(tasks.kind != TaskKind.COMPUTE)
    if sent.size == 0:
        return 0.0
    early, late = span.early[sent], span.late[sent]
    most = _most_hops(tasks, degree)[sent]
    tried: list[tuple[float, float, bool]] = []
    ways = {False: (early, late), True: (late, early)}
    for way, (begin, follow) in ways.items():
        moments = np.unique(begin)
        picked = np.unique(np.linspace(0, moments.size - 1, _MOMENTS).round().astype(np.int64))
        for moment in moments[picked].tolist():
            chosen = begin >= moment
            bound = float(most[chosen].sum()) / network + float(follow[chosen].min())
            tried.append((moment + bound, moment, way))
    best, of_all = 0.0, None
    # What could be most comes first, so that most others need not be counted.
    for bound, moment, way in sorted(tried, reverse=True):
        if bound * ROUNDED_UP < best:
            break
        begin, follow = ways[way]
        chosen = begin >= moment
        if of_all is None or not chosen.all():
            link_bytes = _task_hops(tasks, sent[chosen], degree)
            of_all = link_bytes if chosen.all() else of_all
        else:
            link_bytes = of_all
        best = max(best, moment + link_bytes / network + float(follow[chosen].min()))
    return best


def _most_hops(tasks: TaskGraph, degree: int) -> Floats:
    """Link-bytes of each task, at most as `_task_hops` counts them."""
    collective = tasks.collective
    passed = tasks.passes * (group_sizes(tasks)[np.where(collective, tasks.first, 0)] - 1.0)
    levels = len(within_hops(tasks.servers, degree)) + 1
    each = np.where(collective, passed, float(levels))
    return np.where(tasks.kind == TaskKind.COMPUTE, 0.0, each * tasks.size * tasks.copies)


def _task_hops(tasks: TaskGraph, chosen: Ints, degree: int) -> float:
    """Link-bytes of some of the network tasks, at least."""
    demand = tasks.pair_bytes(chosen[tasks.kind[chosen] == TaskKind.TRANSFER])
    reduces = chosen[tasks.collective[chosen]]
    sent = tasks.passes[reduces] * tasks.size[reduces] * tasks.copies[reduces]
    collective = (group_sizes(tasks)[tasks.first[reduces]] - 1.0) * sent
    return least_link_bytes(demand, degree) + float(collective.sum())
