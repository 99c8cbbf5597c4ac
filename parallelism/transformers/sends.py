"""What the servers of a placed layout send to each other."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from codesign_base.arrays import Floats, Ints
from parallelism.transformers.groups import state_groups
from parallelism.transformers.loads import Loads
from parallelism.transformers.placement import Placement
from parallelism.transformers.schedules import PipelineSchedule
from parallelism.transformers.stages import WeightCount


@dataclass(frozen=True, eq=False)
class _Sends:
    """What servers send for each stage, in bytes of one rank: the busiest, or all together.

    Parameters
    ----------
    ranks : float
        Of a stage on a server.
    outputs : float64 array, shape (3, stages)
        Of what its ranks send to the stage before (0), to themselves, and to the next stage (2).
    context, dense, expert, copies : float64 arrays, shape (stages,)
        Of the buffers of a context group, and of what the ranks of each of `StateGroups` have of
        weights, or of their share of these, each once round its ring.
    heads, tokens : float64 arrays, shape (stages,)
        Of what a context rank has for one other, and of the tokens of an expert rank.
    tied : float
        Of the gradient of an embedding that the first and the last stage share.
    near_dense, near_expert : float64 arrays, shape (stages,)
        Of the same buffers as ``dense`` and ``expert``, what the ranks of a group on one server
        exchange, each its share.
    """

    ranks: float
    outputs: Floats
    context: Floats
    dense: Floats
    expert: Floats
    copies: Floats
    heads: Floats
    tokens: Floats
    tied: float
    near_dense: Floats
    near_expert: Floats


@lru_cache(maxsize=256)
def _sends(placement: Placement, replicate: int, every: bool) -> _Sends:
    """Work it out once for all layouts of some degrees."""
    layout, split, servers = placement.layout, placement.servers_per_rank, placement.servers
    # Ranks of a stage by data and, within, context.
    home = placement.home.transpose(2, 1, 0).reshape(layout.pipeline, -1)
    stages, ranks = home.shape
    on = home + servers * np.arange(stages)[:, None]

    def sent(each: Floats) -> Floats:
        if every:
            return np.asarray(each.reshape(stages, -1).sum(axis=1) * split)
        sums = np.bincount(on.ravel(), weights=each.ravel(), minlength=servers * stages)
        return np.asarray(sums.reshape(stages, servers).max(axis=1))

    def group(places: Ints) -> tuple[Floats, Floats, Floats]:
        """Return each rank's share of what its server sends round, and the ranks elsewhere.

        And of each stage the largest share that ranks have for others of their server.
        """
        rows = (ranks * np.arange(stages)[:, None, None] + places).reshape(-1, places.shape[1])
        inside, distinct = _counted(home.ravel()[rows], servers)
        ring, away = np.empty(stages * ranks), np.empty(stages * ranks)
        once = 1.0 - 1.0 / rows.shape[1]
        ring[rows] = np.where(distinct > 1, once / inside, 0.0)
        away[rows] = rows.shape[1] - inside
        near = np.where((inside > 1).reshape(stages, -1).any(axis=1), once, 0.0)
        return ring, away, near

    places, none = np.arange(ranks), np.zeros(stages)
    sharing = state_groups(replace(layout, zero=1, replicate=replicate))
    ring, _, near_dense = group(sharing.dense)
    dense, near_expert = sent(ring) / split, near_dense
    expert, context, heads, tokens, copies = dense, none, none, none, none
    if layout.context > 1:
        around = group(places.reshape(-1, layout.context))
        context, heads = (sent(each) / split for each in around[:2])
    if layout.expert_ranks > 1:
        tokens = sent(group(places.reshape(-1, layout.expert_ranks))[1]) / split
        ring, _, near_expert = group(sharing.expert)
        expert = sent(ring) / split
    if replicate > 1:
        copies = sent(group(sharing.copies)[0]) / split
    outputs = [sent((home != np.roll(home, -step, axis=0)) * 1.0) / split for step in (-1, 0, 1)]
    tied = sent((home[[0] * stages] != home[[-1] * stages]) * 1.0)[0] / split
    each = float(sent(np.ones(home.shape)).mean())
    return _Sends(
        each, np.stack(outputs), context, dense, expert, copies, heads, tokens, tied, near_dense,
        near_expert,
    )  # fmt: skip


def _counted(homes: Ints, servers: int) -> tuple[Ints, Ints]:
    """Return how many of its group are on each member's server, and how many servers it is on."""
    keys = homes + servers * np.arange(len(homes))[:, None]
    counts = np.bincount(keys.ravel(), minlength=servers * len(homes))
    distinct = (counts.reshape(-1, servers) > 0).sum(axis=1)
    return counts[keys], distinct[:, None]


class PartBytes(NamedTuple):
    """Bytes that servers send for each part of the model: the busiest, or all together.

    Parameters
    ----------
    ranks : float
        Of a stage on a server.
    outputs : float64 array, shape (2, parts)
        Of a microbatch to the next part, and gradients to the part before.
    context : float64 array, shape (2, 3, parts)
        What goes round context groups in a pass of each kind, see `Loads`.
    heads, tokens, inputs, tensor : float64 arrays, shape (3, parts)
        Of a pass of each kind: heads that context groups exchange, tokens to experts and back,
        inputs that are gathered again, and what is reduced, over the servers of a rank.
    weights, gradients : float64 arrays, shape (parts,)
        Of the ranks that share them: gathered once, and scattered (without ZeRO reduced) once.
    copies : float64 array, shape (parts,)
        Of gradients that copies of sharded states add up.
    tied : float
        Of the gradient of an embedding that the first and the last stage share, passed on once.
    near_weights, near_gradients : float64 arrays, shape (parts,)
        Of the ranks that share them, what each exchanges with those of its server at the same time.
    """

    ranks: float
    outputs: Floats
    context: Floats
    heads: Floats
    tokens: Floats
    inputs: Floats
    tensor: Floats
    weights: Floats
    gradients: Floats
    copies: Floats
    tied: float
    near_weights: Floats
    near_gradients: Floats

    def in_all(self, zero: int, microbatches: int) -> Floats:
        """Return the bytes of each part in an iteration, without those of a tied embedding.

        Parameters
        ----------
        zero : int
            What is sharded.
        microbatches : int

        Returns
        -------
        float64 array, shape (parts,)
        """
        passes = self.context.sum(axis=0) + self.heads + self.tokens + self.inputs + self.tensor
        microbatch = self.outputs.sum(axis=0) + passes.sum(axis=0)
        gathers = {0: 0, 3: 2 * microbatches}.get(zero, 1)
        scatters = microbatches if zero >= 2 else 1
        shared = gathers * self.weights + scatters * self.gradients + self.copies
        return np.asarray(microbatches * microbatch + shared)


def part_bytes(placement: Placement, loads: Loads, *, every: bool = False) -> PartBytes:
    """Return what the servers of a placed layout send for each part.

    Parameters
    ----------
    placement : Placement
    loads : Loads
        Of the placement.
    every : bool
        What all servers send together, rather than what the busiest one of a stage does.
    """
    layout, split = placement.layout, placement.servers_per_rank
    sent = _sends(placement.of_degrees, layout.replicate, every)
    stage, step = np.array(layout.part_stages), np.array(layout.part_steps, dtype=np.int64)
    outputs = np.zeros((2, stage.size))
    outputs[0, :-1] = loads.boundary_bytes * sent.outputs[1 + step, stage[:-1]]
    outputs[1, 1:] = loads.boundary_bytes * sent.outputs[1 - step, stage[1:]]
    ring = (1.0 - 1.0 / layout.tensor) * (split > 1)
    ring *= layout.data * layout.context * split if every else 1

    def shared(
        counts: tuple[WeightCount, ...], of_dense: Floats, of_expert: Floats, passes: float
    ) -> Floats:
        dense, expert = np.array([(each.dense, each.expert) for each in counts]).T
        return np.asarray(passes * (dense * of_dense[stage] + expert * of_expert[stage]))

    passes = 1.0 if layout.zero else 2.0
    held = [each.dense + each.expert * layout.expert_ranks for each in loads.gradients]
    return PartBytes(
        sent.ranks,
        outputs,
        loads.context_bytes * sent.context[stage],
        loads.heads_bytes / layout.context * sent.heads[stage],
        loads.expert_bytes / layout.expert_ranks * sent.tokens[stage],
        ring * loads.input_bytes,
        2.0 * ring * loads.tensor_bytes,
        shared(loads.weights, sent.dense, sent.expert, 1.0),
        shared(loads.gradients, sent.dense, sent.expert, passes),
        2.0 * np.array(held) / layout.sharing * sent.copies[stage],
        sent.tied * loads.tied_bytes,
        shared(loads.weights, sent.near_dense, sent.near_expert, 1.0 / layout.tensor),
        shared(loads.gradients, sent.near_dense, sent.near_expert, passes / layout.tensor),
    )


def network_bytes(
    placement: Placement, schedule: PipelineSchedule, loads: Loads
) -> tuple[float, Floats]:
    """Return the bytes that all servers together send to others in an iteration, at least.

    Parameters
    ----------
    placement : Placement
    schedule : PipelineSchedule
        Of the placement's layout.
    loads : Loads
        Of the placement.

    Returns
    -------
    float
        What transfers carry, and what rings through all ranks of the servers do: of a buffer of n
        ranks on more than one server (n - 1) / n of its size leaves each server for a ReduceScatter
        or an AllGather, twice that for an AllReduce (Patarasuk and Yuan, 2009).
    float64 array, shape (parts,)
        Of these, the gradients of each part after its last pass.
    """
    sent = part_bytes(placement, loads, every=True)
    whole = float(sent.in_all(placement.layout.zero, schedule.microbatches).sum())
    return whole + 2.0 * sent.tied, sent.gradients + sent.copies
