"""The time of one iteration of a placed layout whose messages share the ports of servers."""

import numpy as np

from parallelism.taskgraph import FloatArray
from parallelism.transformers.loads import Loads
from parallelism.transformers.placement import Placement
from parallelism.transformers.port_kernels import PassSends, stage_ends
from parallelism.transformers.schedules import PipelineSchedule
from parallelism.transformers.sends import sends_of
from parallelism.transformers.stages import WeightCount

# Pieces of a part's weights and gradients, as in `placed_tasks.iteration_tasks`.
_PIECES = 4


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
    message does, and of the time of a message a share. Left out is what comes into ports, that
    messages which are there at once share them and all end late, latencies, and that stages whose
    ranks are on one server share its ports.
    """
    layout, split = placement.layout, placement.servers_per_rank
    sent = sends_of(placement)
    stage = np.arange(loads.seconds.shape[1]) % layout.pipeline
    tokens = loads.expert_bytes / layout.expert_ranks * sent.tokens[stage]
    ring = (split - 1) / split
    beside = loads.context_bytes * sent.context[stage] + loads.beside * tokens
    after = (1.0 - loads.beside) * tokens
    outputs = loads.boundary_bytes * sent.outputs[:, stage]
    outputs[0, -1] = outputs[1, 0] = 0.0

    def shared(counts: tuple[WeightCount, ...]) -> FloatArray:
        dense, expert = np.array([(each.dense, each.expert) for each in counts]).T
        return np.asarray(dense * sent.dense[stage] + expert * sent.expert[stage])

    ends = stage_ends(
        schedule.passes, schedule.chunks, schedule.microbatches, layout.zero, _PIECES,
        PassSends(
            loads.seconds,
            (beside + ring * loads.input_bytes) / rate,
            (after + 2.0 * ring * loads.tensor_bytes) / rate,
            outputs / rate,
            shared(loads.weights) / rate,
            shared(loads.gradients) * (1.0 if layout.zero else 2.0) / rate,
        ),
        loads.exposed, 1.0 / sent.ranks,
    )  # fmt: skip
    if loads.tied_bytes and sent.tied:
        ends[[0, -1]] = max(ends[0], ends[-1]) + sent.tied * loads.tied_bytes / rate
    return float(ends.max()) + loads.update_s


__all__ = ["estimated_seconds"]
