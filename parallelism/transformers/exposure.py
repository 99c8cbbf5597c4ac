"""What an iteration waits for of the messages inside its stages."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from parallelism.transformers.collectives import Communication
from parallelism.transformers.layout import Layout
from parallelism.transformers.links import (
    GroupPlacement,
    Links,
    collective_seconds,
    group_placement_of,
)
from parallelism.transformers.reach import servers_reached
from parallelism.transformers.schedules import PipelineSchedule
from parallelism.transformers.training import Training


def group_placement(communication: Communication, layout: Layout, links: Links) -> GroupPlacement:
    """Return how a group lies on servers that are filled in rank order (tensor innermost).

    Ranks of a group are apart: tensor 1; context ``tensor``; data and context together
    ``tensor``; expert as many as split an expert (neighbours among these); ranks with the same
    experts ``expert`` times that; those of several copies as many as a copy has. Stages are inside
    a server only if all of them are.
    """
    stage = layout.tensor * layout.context * layout.data
    if communication.group in ("pipeline", "embedding"):
        # Where stages are on several servers, the slowest boundary counts.
        return GroupPlacement(2, 2 if stage * layout.pipeline <= links.gpus else 1)
    strides = {
        "tensor": 1,
        "context": layout.tensor,
        "data": layout.tensor,
        "expert": layout.expert_split,
        "expert-data": layout.expert_split * layout.expert,
        "copies": layout.tensor * layout.sharing,
    }
    return group_placement_of(communication.ranks, strides[communication.group], links.gpus)


def communication_seconds(communication: Communication, layout: Layout, links: Links) -> float:
    """Return the seconds of one such message, alone on its links."""
    span = group_placement(communication, layout, links)
    crossing = None
    if communication.forwarded is not None:
        experts = communication.forwarded
        crossing = servers_reached(experts, span.servers)
        crossing /= servers_reached(experts, communication.ranks)
    return collective_seconds(communication.kind, communication.size, span, links, crossing)


def exposed_seconds(sent: float, fraction: float, room: float) -> float:
    """Return what of some seconds of communication is not hidden behind ``room`` of computing.

    At most ``fraction`` of it hides: what of a message overlaps with no product, and what
    products that run beside messages lose to them.
    """
    return max(sent - room * (fraction > 0.0), sent * (1.0 - fraction))


def exposed_sums(
    training: Training,
    messages: Iterable[Communication],
    order: PipelineSchedule,
    links: Links,
    passes: Mapping[Literal["gradients", "weights"], Sequence[float]],
) -> float:
    """Return the seconds in which a stage sums gradients and gathers weights, and nothing else.

    Parameters
    ----------
    training : Training
    messages : iterable of Communication
        Of the stage, see `collectives.step_communications`.
    order : PipelineSchedule
    links : Links
    passes : mapping of sequence of float
        Seconds of a microbatch in each part of the stage: of the backward pass, which hides sums
        of ``gradients``, and of the forward pass, which hides gathering ``weights``.

    Returns
    -------
    float

    Notes
    -----
    Sums of gradients hide behind the last microbatch's backward passes, gathering weights behind
    the first one's forward passes; under ZeRO 2 and 3, behind those of all microbatches, but for
    what copies of sharded states add up. Breadth first a part's are summed while all microbatches
    go through the parts before it, and only the outermost part's have to hide behind a single pass
    of its own (`breadth_first_seconds`). The gradient of a tied embedding hides behind nothing.
    """
    layout, implementation = training.layout, training.implementation
    share = implementation.hidden("data")
    exposed = 0.0
    backward, forward = passes["gradients"], passes["weights"]
    # Of gradients once an iteration, of them for every microbatch, and of weights.
    of = {
        "sums": (backward, False), "gradients": (backward, layout.zero >= 2),
        "weights": (forward, layout.zero == 3),
    }  # fmt: skip
    sent = {when: np.zeros(len(own)) for when, (own, _) in of.items()}
    for message in messages:
        seconds = communication_seconds(message, layout, links) * message.count
        seconds /= implementation.bucketing
        if message.group == "embedding":
            exposed += seconds
            continue
        when = "gradients" if message.when == "gradients" else "weights"
        if when == "gradients" and (layout.zero < 2 or message.group == "copies"):
            when = "sums"
        sent[when][message.part] += seconds
    for when, (own, every) in of.items():
        whole = float(sent[when].sum())
        if order.name == "breadth-first" and not every and share > 0.0:
            late = breadth_first_seconds(sent[when].tolist(), own, order.microbatches)
            exposed += max(late, whole * (1.0 - share))
        else:
            room = sum(own) * (order.microbatches if every else 1)
            exposed += exposed_seconds(whole, share, room)
    return exposed


def breadth_first_seconds(sent: Sequence[float], passes: Sequence[float], rounds: int) -> float:
    """Return how much later than its passes a stage is done with what each part sends.

    Parameters
    ----------
    sent : sequence of float
        Seconds of each part's messages, the outermost part first. They go one after another,
        of gradients the outermost part's last; of weights, which is the same backwards, first.
    passes : sequence of float
        Seconds of a microbatch in each part.
    rounds : int
        Microbatches, which all go through a part before the next.

    Returns
    -------
    float
        A part's messages begin with its last pass, after which all microbatches go through the
        parts outside of it.
    """
    own = np.asarray(passes, dtype=np.float64)
    after = rounds * (np.cumsum(own) - own) + own
    return max(0.0, float((np.cumsum(sent) - after).max()))
