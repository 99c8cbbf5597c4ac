"""The time of one iteration of a placed layout whose messages share the ports of servers."""

import numpy as np

from codesign_base.arrays import Floats
from parallelism.transformers.loads import Loads
from parallelism.transformers.placed_tasks import PIECES
from parallelism.transformers.placement import Placement
from parallelism.transformers.port_kernels import PassSends, stage_ends
from parallelism.transformers.schedules import PipelineSchedule
from parallelism.transformers.sends import part_bytes


def estimated_seconds(
    placement: Placement, schedule: PipelineSchedule, loads: Loads, rate: float
) -> float:
    """Return about how long an iteration takes where every server reaches every other.

    Parameters
    ----------
    placement : Placement
    schedule : PipelineSchedule
        Of the placement's layout.
    loads : Loads
        Of the placement.
    rate : float
        Bytes/s of all ports of a server, each way.

    Returns
    -------
    float
        Seconds.

    Notes
    -----
    What a task graph of the placement on a switch takes (`placed_tasks.iteration_tasks`), by the
    ranks of one server a stage: passes in the order of the schedule, with what they send and wait
    for. The ports of a server carry its messages one after another. Weights that are gathered for
    the first passes and gradients that are reduced after the last ones get the ports when no
    message does, and of the time of a message a share. Stages whose ranks are on one server share
    its ports: half of what the others send goes before what one waits for, but all of their
    gradients, which are there at the same time; and everything must go. Left out is what comes
    into ports, that messages which are there at once share them and all end late, and latencies.
    """
    sent = part_bytes(placement, loads)
    sharing = placement.ranks_per_server / sent.ranks
    in_all = sent.in_all(placement.layout.zero, schedule.microbatches)
    least = sharing * float(in_all.sum()) / placement.layout.pipeline / rate
    at_the_end, rate = rate / sharing, rate / (0.5 * (1.0 + sharing))
    beside = sent.context.sum(axis=0) + loads.beside * sent.tokens
    after = sent.heads + (1.0 - loads.beside) * sent.tokens
    seconds, summed = loads.seconds, sent.tensor / rate
    if placement.servers_per_rank > 1:
        summed = np.maximum(summed, loads.inside_s(placement))
    held_up = after / rate + summed
    if sent.context.any():
        shared = PIECES * loads.beside * sent.tokens / rate
        others = placement.layout.expert_ranks - 1
        seconds = np.maximum(seconds, _around(loads, sent.context / rate, shared, others))
    ends = stage_ends(
        schedule.passes, schedule.parts, schedule.microbatches, placement.layout.zero, PIECES,
        PassSends(
            seconds,
            (beside + sent.inputs) / rate,
            held_up,
            sent.outputs / rate,
            np.maximum(sent.weights / rate, sent.near_weights / loads.gather_rate),
            np.maximum(sent.gradients / at_the_end, sent.near_gradients / loads.gather_rate),
            sent.copies / at_the_end,
        ),
        loads.exposed, 1.0 / sent.ranks,
    )  # fmt: skip
    if sent.tied:
        ends[[0, -1]] = max(ends[0], ends[-1]) + sent.tied / rate
    return max(float(ends.max()), least) + loads.update_s


def _around(loads: Loads, turns: Floats, shared: Floats, others: int) -> Floats:
    """Return the seconds of passes in which keys and values go round beside attention only.

    ``turns`` are what the ports take for these. Tokens to each of the ``others`` of an expert
    group, which take ``shared`` in all, get as much of the ports as what goes round first does.
    """
    goes = turns > 0.0
    begins = np.stack([goes[0], goes[1] & ~goes[0]])
    first = turns + begins * np.minimum(shared, others * turns)
    attention = np.where(goes, loads.attention_s, 0.0)
    rounds = np.maximum(attention, first) + (PIECES - 1) * np.maximum(attention, turns)
    seconds = loads.seconds + (rounds / PIECES - attention).sum(axis=0)
    return np.where(goes.any(axis=0), seconds, 0.0)
