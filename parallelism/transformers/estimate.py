"""The time of one iteration of a placed layout whose messages share the ports of servers."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from parallelism.taskgraph import FloatArray, IntArray
from parallelism.transformers.loads import Loads
from parallelism.transformers.placement import Placement
from parallelism.transformers.port_kernels import PassSends, stage_ends
from parallelism.transformers.schedules import PipelineSchedule
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
    sent = _sent_of(placement.of_degrees)
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


@dataclass(frozen=True, eq=False)
class _Sent:
    """What the busiest server of each stage sends, in bytes of one rank.

    Parameters
    ----------
    ranks : float
        Of a stage on a server.
    outputs : float64 array, shape (2, stages)
        Of its ranks' outputs for the next stage, and gradients for the one before.
    context, dense, expert : float64 arrays, shape (stages,)
        Of the buffers of a context group, and of what ranks that share weights, and experts,
        have of these, each once round its ring.
    tokens : float64 array, shape (stages,)
        Of the tokens of an expert rank for one other.
    tied : float
        Of the gradient of an embedding that the first and the last stage share.
    """

    ranks: float
    outputs: FloatArray
    context: FloatArray
    dense: FloatArray
    expert: FloatArray
    tokens: FloatArray
    tied: float


@lru_cache(maxsize=64)
def _sent_of(placement: Placement) -> _Sent:
    """Work it out once for all layouts of some degrees."""
    layout, split, servers = placement.layout, placement.servers_per_rank, placement.servers
    # Ranks of a stage by data and, within, context.
    home = placement.home.transpose(2, 1, 0).reshape(layout.pipeline, -1)
    stages, ranks = home.shape
    on = home + servers * np.arange(stages)[:, None]

    def busiest(each: FloatArray) -> FloatArray:
        sums = np.bincount(on.ravel(), weights=each.ravel(), minlength=servers * stages)
        return np.asarray(sums.reshape(stages, servers).max(axis=1))

    def group(size: int, across: bool = False) -> tuple[FloatArray, FloatArray]:
        """Return each rank's share of what its server sends round, and the ranks elsewhere."""
        grid = np.arange(stages * ranks).reshape(stages, -1, size)
        if across:
            grid = grid.transpose(0, 2, 1)
        rows = grid.reshape(-1, grid.shape[2])
        inside, distinct = _counted(home.ravel()[rows], servers)
        ring, away = np.empty(stages * ranks), np.empty(stages * ranks)
        ring[rows] = (1.0 - 1.0 / distinct) / inside
        away[rows] = rows.shape[1] - inside
        return ring, away

    none = np.zeros(stages)
    dense = context = busiest(group(ranks)[0]) / split
    expert, tokens = dense, none
    if layout.context < ranks:
        context = none if layout.context == 1 else busiest(group(layout.context)[0]) / split
    if layout.expert_ranks > 1:
        tokens = busiest(group(layout.expert_ranks)[1]) / split
        expert = busiest(group(layout.expert_ranks, across=True)[0]) / split
    outputs = [busiest((home != np.roll(home, step, axis=0)) * 1.0) / split for step in (-1, 1)]
    tied = busiest((home[[0] * stages] != home[[-1] * stages]) * 1.0)[0] / split
    each = float(busiest(np.ones(home.shape)).mean())
    return _Sent(each, np.stack(outputs), context, dense, expert, tokens, tied)


def _counted(homes: IntArray, servers: int) -> tuple[IntArray, IntArray]:
    """Return how many of its group are on each member's server, and how many servers it is on."""
    keys = homes + servers * np.arange(len(homes))[:, None]
    counts = np.bincount(keys.ravel(), minlength=servers * len(homes))
    distinct = (counts.reshape(-1, servers) > 0).sum(axis=1)
    return counts[keys], distinct[:, None]


__all__ = ["estimated_seconds"]
