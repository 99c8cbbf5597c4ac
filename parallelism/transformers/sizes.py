"""How large the task graph of a placed layout is, worked out before it is built."""

import numpy as np

from codesign_base.arrays import Ints
from parallelism.transformers.groups import state_groups
from parallelism.transformers.placed_tasks import PIECES
from parallelism.transformers.placement import Placement
from parallelism.transformers.schedules import PipelineSchedule
from parallelism.transformers.training import Training

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
    homes = np.unique(groups[0, :, 0] // placement.ranks_per_server).size
    pairs = homes * (homes - 1) * placement.servers_per_rank
    return int(groups.shape[0] * groups.shape[2] * pairs)


def expected_tasks(training: Training, placement: Placement, schedule: PipelineSchedule) -> float:
    """Return how many tasks the graph of all ranks has, about.

    Parameters
    ----------
    training : Training
    placement : Placement
        Of its layout.
    schedule : PipelineSchedule
        Of its layout.

    Returns
    -------
    float
        Passes, in `PIECES` where weights are gathered or gradients summed beside them; what they
        send to the next stage; their attention by itself where keys and values go round servers
        beside it, once for each kind of attention (`Transformer.kinds_of_attention`); what experts,
        and heads, exchange there and back; sums of tensor groups over servers, across and inside
        them; gathered weights and summed gradients.
    """
    layout, model, shares = training.layout, training.model, placement.servers_per_rank
    ranks, microbatches, chunks = placement.rank.size, schedule.microbatches, schedule.chunks
    passes = float(schedule.passes.shape[1] * ranks)
    whole = {0: 1, 1: 2, 2: 2}.get(layout.zero, schedule.passes.shape[1] // chunks)
    pieces = passes + float((PIECES - 1) * whole * chunks * ranks)
    home = placement.home[..., list(layout.part_stages)]
    sends = 2.0 * microbatches * shares * int((home[..., 1:] != home[..., :-1]).sum())
    both = 2.0 * microbatches * chunks / schedule.passes.shape[1]  # forward and backward ones
    sums = (2.0 * both + layout.sequence_parallel / 2.0) * passes if shares > 1 else 0.0
    around = 0.0
    if placement.context_spans_servers:
        around = both * model.kinds_of_attention * pieces * (1.0 + shares / layout.context)
    pairs = exchange_pairs(placement, heads=model.exchanges_heads)
    if 0.0 < training.implementation.hidden("expert") < 1.0:  # in two halves
        pairs += exchange_pairs(placement)
    tokens = 2.0 * microbatches * chunks * pairs
    return pieces + sends + around + sums + tokens + _shared(training, placement, microbatches)


def _shared(training: Training, placement: Placement, microbatches: int) -> float:
    """Return the tasks that gather weights and sum gradients, of all parts."""
    layout, exposed = training.layout, 1.0 - training.implementation.hidden("data")
    # Where every pass gathers or scatters, what no pass hides is apart in each piece; else it is
    # gathered and summed once.
    halves = 1 + (0.0 < exposed < 1.0)
    once = PIECES * (exposed < 1.0) + (exposed > 0.0)
    gathered, scattered = {
        0: (0, once),
        1: (once, once),
        2: (once, halves * (microbatches - 1 + PIECES)),
        3: (2 * halves * PIECES * microbatches, halves * PIECES * microbatches),
    }[layout.zero]
    groups = state_groups(layout)
    every = [groups.dense, groups.expert] if training.model.experts else [groups.dense]
    calls = (gathered + scattered) * sum(_collectives(placement, each) for each in every)
    added = halves * PIECES * _collectives(placement, groups.copies)
    return float(layout.virtual_stages * (calls + added))


def _collectives(placement: Placement, groups: Ints) -> int:
    """Return the collectives of groups of every stage: over servers, and inside them if there."""
    count, size = groups.shape
    if size == 1:
        return 0
    stage = placement.home.transpose(2, 1, 0)[0].ravel()
    inside = np.unique(stage[groups[0]]).size < size
    return int(placement.layout.pipeline * count * placement.servers_per_rank * (1 + inside))


def expected_bytes(training: Training, placement: Placement, schedule: PipelineSchedule) -> float:
    """Return what the arrays of a placed layout's task graph and simulation take, about.

    Where one rank of each kind stands for all, what counts is who exchanges with whom, and over
    which links; else every task does. A prediction that is the same on every machine, not what a
    process takes: bytes a task and an exchange are rounded up from the arrays that hold them.

    Parameters are those of `expected_tasks`.
    """
    tasks = expected_tasks(training, placement, schedule)
    if tasks < REDUCED_FROM or placement.servers_per_rank > 1:
        return _BYTES_A_TASK * tasks
    heads = training.model.exchanges_heads
    exchanges = exchange_pairs(placement, heads=heads) + 2 * placement.rank.size
    own = tasks * schedule.stages / placement.rank.size
    return _BYTES_AN_EXCHANGE * exchanges + _BYTES_A_TASK * own
