"""How large the task graph of a placed layout is, worked out before it is built."""

import numpy as np

from codesign_base.arrays import Ints
from parallelism.transformers.placement import Placement
from parallelism.transformers.schedules import PipelineSchedule

REDUCED_FROM = 20_000
"""Tasks of all ranks from which on one rank of each kind stands for all."""
_BYTES_A_TASK = 400.0
# A pair of servers that exchange tokens or heads, and its entries on the links of its paths.
_BYTES_AN_EXCHANGE = 1000.0


def exchange_pairs(placement: Placement, *, heads: bool = False) -> int:
    """Return the ordered pairs of servers of all expert groups of all stages, group by group.

    And of all context groups, where these exchange heads of linear attention.
    """
    found = 0
    if placement.layout.expert_ranks > 1:
        found += _pairs(placement, placement.expert_groups())
    if heads and placement.layout.context > 1:
        found += _pairs(placement, placement.context_groups())
    return found


def _pairs(placement: Placement, groups: Ints) -> int:
    servers = np.unique(groups[0, :, 0] // placement.ranks_per_server).size
    return int(groups.shape[0] * groups.shape[2] * servers * (servers - 1))


def expected_tasks(
    placement: Placement, schedule: PipelineSchedule, *, heads: bool = False, kinds: int = 1
) -> float:
    """Return how many tasks the graph of all ranks has, about.

    Parameters
    ----------
    placement : Placement
    schedule : PipelineSchedule
        Of the placement's layout.
    heads : bool
        Context groups exchange heads of linear attention.
    kinds : int
        Of attention (`Transformer.kinds_of_attention`), beside each of which keys and values go
        round by themselves.

    Returns
    -------
    float
        Passes, what they send to the next stage, their attention by itself where keys and values
        go round servers beside it, what experts, and heads, exchange there and back in a forward
        and a backward pass of each part, and the sums of tensor groups over servers, across and
        inside them.
    """
    passes = float(schedule.passes.shape[1] * placement.rank.size)
    shares = placement.servers_per_rank
    sends = passes * shares if schedule.stages > 1 else 0.0
    sums = 2.0 * passes if shares > 1 else 0.0
    around = 0.0
    if placement.context_spans_servers:
        around = kinds * passes * (1.0 + 1.0 / placement.layout.context)
    each = 2.0 * schedule.microbatches * schedule.chunks
    return passes + sends + around + sums + each * exchange_pairs(placement, heads=heads)


def expected_bytes(
    placement: Placement, schedule: PipelineSchedule, *, heads: bool = False, kinds: int = 1
) -> float:
    """Return what the arrays of a placed layout's task graph and simulation take, about.

    Where one rank of each kind stands for all, what counts is who exchanges with whom, and over
    which links; else every task does. A prediction that is the same on every machine, not what a
    process takes: bytes a task and an exchange are rounded up from the arrays that hold them.
    """
    tasks = expected_tasks(placement, schedule, heads=heads, kinds=kinds)
    if tasks < REDUCED_FROM or placement.servers_per_rank > 1:
        return _BYTES_A_TASK * tasks
    exchanges = exchange_pairs(placement, heads=heads) + 2 * placement.rank.size
    own = tasks * schedule.stages / placement.rank.size
    return _BYTES_AN_EXCHANGE * exchanges + _BYTES_A_TASK * own
