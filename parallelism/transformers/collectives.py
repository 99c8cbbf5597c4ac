"""Every communication that a layout causes, with exact volumes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from parallelism.transformers.experts import Experts
from parallelism.transformers.layout import Layout, Module
from parallelism.transformers.links import CollectiveKind
from parallelism.transformers.reach import copies_sent
from parallelism.transformers.shares import (
    done_again,
    ends_with_product,
    gathered_width,
    kv_heads_of,
    sums_once,
)
from parallelism.transformers.stages import Part, all_part_weights, parts_of
from parallelism.transformers.training import Training

GroupKind = Literal[
    "tensor", "context", "expert", "pipeline", "data", "expert-data", "copies", "embedding"
]  # fmt: skip
When = Literal["forward", "recompute", "backward", "weight", "gradients", "weights"]


@dataclass(frozen=True, slots=True)
class Communication:
    """One kind of message of one GPU, repeated.

    Parameters
    ----------
    kind : {"allreduce", "reducescatter", "allgather", "alltoall", "ring", "send"}
    group : GroupKind
        Ranks that take part. ``data``: the ``data * context`` ranks that share dense weights, or
        those of a copy (`Layout.sharing`); ``expert-data``: of these, those that share experts;
        ``copies``: those that hold the same share in each copy;
        ``embedding``: first and last stage.
    ranks : int
        Size of the group.
    size : float
        Bytes, as `links.sent_bytes` defines them for each kind.
    count : float
        Times in a microbatch, or in an iteration for ``gradients`` and ``weights``.
    forwarded : Experts, optional
        Of an all-to-all whose tokens go once to each server that holds experts of theirs.
    exposed : bool
        Nothing hides it, whatever the stack hides of its group: tensor ranks gather what came to
        an expert that they split, and scatter its outputs, by calls of their own; context ranks
        exchange heads of linear attention before and after its kernels.
    when : {"forward", "recompute", "backward", "weight", "gradients", "weights"}
        In which pass of a microbatch (``weight``: hidden behind gradients of weights);
        ``gradients``: when they are summed; ``weights``: before they are used.
    part : int
        Of these two: whose they are, counted over the parts of a stage.
    """

    kind: CollectiveKind
    group: GroupKind
    ranks: int
    size: float
    count: float
    when: When
    forwarded: Experts | None = None
    exposed: bool = False
    part: int = 0


def layer_communications(training: Training, layer: int) -> tuple[Communication, ...]:
    """Return what one layer sends for one microbatch.

    Parameters
    ----------
    training : Training
    layer : int

    Returns
    -------
    tuple of Communication

    Notes
    -----
    Tensor parallelism sums the outputs of attention and of the feed-forward part: an AllReduce
    each, forward and backward (Shoeybi et al., 2019); with sequence parallelism an AllGather
    before and a ReduceScatter after, and another AllGather of the input for gradients of weights
    (Korthikanti et al., 2022, section 4.2.2). Of parallel parts one of each serves both
    (`shares.sums_once`), be the feed-forward part dense or that of shared experts; what routed
    experts get and give back is no share of a sum over the tensor group. What attention gathers,
    and whose gradients it sums, are latent vectors where there are some (`shares.gathered_width`).
    An indexer needs its layer's whole input and the queries' latent vector, which it sends no
    gradients of: tensor ranks gather both for it, and sum the scores of chosen keys by their heads,
    in FP32, that it learns from (Megatron-Core, ``dsa.py``). Context parallelism
    passes keys and values around a ring, and in the backward pass their gradients as well; where
    an indexer chose keys, latent vectors and its own keys instead (which Megatron-Core gathers at
    once, and so keeps). Of linear attention each context rank does a share of the heads on the
    whole sequence: an all-to-all before the convolution brings it what these need
    (`LinearAttention.exchanged`), and one after the kernels takes their outputs back
    (Megatron-Core, ``mamba_context_parallel.py``, ``gated_delta_net.py``); or it has tokens of its
    own, and the states or tokens before these go round (`LinearAttention.passed_on`). Of Mamba-1
    tensor ranks sum steps, keys and queries, which are made of all channels, and their gradients
    (vLLM's ``mamba_mixer.py`` splits it so). Where attention is beside linear attention, each rank
    adds its shares of both outputs before they are summed. Experts get each
    token's copies by all-to-all and give them back; the busiest rank counts, with its
    ``load_imbalance``, and again both ways where experts are computed again: Megatron-Core's
    checkpoints do all of a part's forward pass. With both, the tensor ranks that split an expert
    gather what arrived.
    """
    return _layer_communications(training.of_layers, layer)


@lru_cache(maxsize=512)
def _layer_communications(training: Training, layer: int) -> tuple[Communication, ...]:
    found = list(_layer_pass(training, layer, "forward"))
    if training.layout.recompute == "full":
        found += _layer_pass(training, layer, "recompute")
    for part in done_again(training.model, layer, training.layout):
        found += _layer_pass(training, layer, "recompute", part)
    found += _layer_pass(training, layer, "backward")
    return tuple(found)


def _layer_pass(
    training: Training, layer: int, when: When, only: Module | None = None
) -> Iterator[Communication]:
    """Yield what a layer sends in a pass, or ``only`` one feed-forward part of it."""
    model, layout, implementation = training.model, training.layout, training.implementation
    tokens, element = training.tokens, training.element
    experts = model.experts if model.has_experts(layer) else None
    whole = element * tokens * model.hidden
    dense = model.has_feed_forward(layer) and (experts is None or experts.shared > 0)
    together = dense and sums_once(model) and only is None
    attends = only is None and model.has_attention(layer)
    meets = only is None and model.has_linear(layer)
    # PyTorch's checkpoints stop before a last product (see `shares.ends_with_product`) and its sum.
    stops = when == "recompute" and implementation.selective == "products"
    stops = stops and (only != "experts" if only else ends_with_product(model, layer))
    ends = 0.0 if stops else whole
    # Bytes of what a group of ranks reads and of what it returns.
    blocks: list[tuple[float, float, int, bool]] = []
    if attends:
        read = element * tokens * gathered_width(model, together=together or meets)
        blocks.append((read, ends if together else whole, layout.tensor, False))
    elif meets:
        blocks.append((whole, ends if together else whole, layout.tensor, False))
    if dense and not together:
        blocks.append((whole, ends, layout.tensor, False))
    if only == "shared-experts":
        experts = None
    if experts is not None:
        share = layout.expert_split / layout.tensor
        arriving = element * tokens * experts.reads(model.hidden) * share * experts.per_token
        arriving *= training.load_imbalance
        blocks.append((arriving, arriving, layout.expert_split, True))
    for read, made, ranks, exposed in blocks:
        if ranks > 1:
            # What comes to experts is gathered before it is cast, and summed as it is.
            low = training.fp8 and not exposed
            fewer = element if low and implementation.fp8_gather else 1.0
            forward = low and implementation.fp8_scatter and when != "backward"
            gathered, summed = (made, read) if when == "backward" else (read, made)
            sums = summed / element if forward else summed
            for message in _tensor_block(layout, ranks, sums, gathered / fewer, when):
                yield replace(message, exposed=exposed)
            kept = implementation.gathered_inputs or not layout.sequence_parallel
            if when == "backward" and not kept:
                again = Communication("allgather", "tensor", ranks, read / fewer, 1, "weight")
                yield replace(again, exposed=exposed)
    attention, latent = model.attention, model.attention.latent
    indexer = model.indexer if attends and model.has_indexer(layer) else None
    if latent and indexer and layout.tensor > 1 and when != "backward":
        if layout.sequence_parallel:
            read = element * tokens * (model.hidden + latent.query_rank)
            yield Communication("allgather", "tensor", layout.tensor, read, 1, when)
        scores = 4.0 * tokens * min(indexer.keys, training.sequence)
        yield Communication("allreduce", "tensor", layout.tensor, scores, 1, when)
    if layout.context > 1 and attends:
        if latent is None:
            width = 2.0 * kv_heads_of(attention, layout) * attention.head_width
        elif model.is_sparse(layer, training.sequence):
            width = float(latent.kv_rank + latent.rope_width)
        else:
            width = (attention.query_width + attention.value_width) / layout.tensor
        width += indexer.width if indexer else 0
        passed = 2 if when == "backward" else 1
        yield Communication(
            "ring", "context", layout.context, element * tokens * width, passed, when
        )
    if meets:
        yield from _linear_messages(training, when)
    if experts is not None and layout.expert > 1:
        copies = training.own_tokens * training.load_imbalance * copies_sent(training)
        if implementation.fp8_dispatch and training.fp8:
            element = (1.0 + 4.0 / 128.0 + element) / 2.0  # the mean of there and back
        # Outputs that come back are needed by no backward pass.
        times = 1 if when == "recompute" and implementation.selective == "products" else 2
        sent = element * copies * experts.reads(model.hidden)
        yield Communication(
            "alltoall", "expert", layout.expert, sent, times, when,
            experts if implementation.forwarded_tokens else None,
        )  # fmt: skip


def _linear_messages(training: Training, when: When) -> Iterator[Communication]:
    """Yield what linear attention sends in a pass between its projections."""
    layout, tokens, element = training.layout, training.tokens, training.element
    tensor, context, linear = layout.tensor, layout.context, training.model.linear
    assert linear is not None
    if tensor > 1 and linear.from_values:
        made = element * tokens * linear.from_values
        yield Communication("allreduce", "tensor", tensor, made, 1, when, exposed=True)
    if context == 1:
        return
    if linear.passed_on is not None:
        passed = element * layout.microbatch * linear.passed_on / tensor
        yield Communication("ring", "context", context, passed, 1, when)
        return
    linear = linear.shared_by(tensor * context)
    for wide in (linear.exchanged, linear.values):
        sent = element * tokens * wide / tensor
        yield Communication("alltoall", "context", context, sent, 1, when, exposed=True)


def _tensor_block(
    layout: Layout, ranks: int, summed: float, gathered: float, when: When
) -> Iterator[Communication]:
    if layout.sequence_parallel:
        yield Communication("allgather", "tensor", ranks, gathered, 1, when)
    if summed:
        kind: CollectiveKind = "reducescatter" if layout.sequence_parallel else "allreduce"
        yield Communication(kind, "tensor", ranks, summed, 1, when)


def end_communications(training: Training, part: Part) -> tuple[Communication, ...]:
    """Return what embedding, head and loss of a part send for one microbatch.

    The embedding is split over the vocabulary: rows are summed (or scattered). The head gathers
    its input, or sums the input's gradient. The loss sums three FP32 numbers a token. A module for
    multi-token prediction does all of that again, and gathers input and output of its projection
    (as Megatron-Core's does).
    """
    model, layout, tokens = training.model, training.layout, training.tokens
    whole, tensor = training.element * tokens * model.hidden, layout.tensor
    if tensor == 1 or not model.vocabulary:
        return ()
    split, more = layout.sequence_parallel, model.mtp_layers * part.head
    found: list[Communication] = []

    def add(kind: CollectiveKind, size: float, count: float, when: When) -> None:
        if count:
            found.append(Communication(kind, "tensor", tensor, size, count, when))

    looked_up = part.embedding + more
    add("reducescatter" if split else "allreduce", whole, looked_up, "forward")
    add("allgather", whole, looked_up * split, "weight")
    if part.head and not model.classes:
        # Inputs of the output projection, and of those of modules, which are twice as wide.
        for read, count in ((whole, 1 + more), (2.0 * whole, more)):
            add("allgather", read, count * split, "forward")
            add("reducescatter" if split else "allreduce", read, count, "backward")
            add("allgather", read, count * split, "weight")
        add("allgather", whole, more, "forward")
        add("allgather", whole, more * split, "backward")
        add("allreduce", 4.0 * tokens, 3 * (1 + more), "forward")
    return tuple(found)


def boundary_bytes(training: Training) -> float:
    """Return the bytes of the activations between two parts, of a whole tensor group."""
    return training.element * training.tokens * training.model.hidden


def pipeline_send(training: Training) -> tuple[Communication, ...]:
    """Return what one GPU sends to the next part (``forward``) and back (``backward``).

    The tensor ranks of a stage hold the same output unless it is split along the sequence. Each
    sends its own share of it, after which the receivers gather (Narayanan et al., 2021, section
    4.1), or, without ``scatter_gather``, all of it.
    """
    layout = training.layout
    if layout.pipeline == 1:
        return ()
    whole = boundary_bytes(training)
    shared = layout.sequence_parallel or training.implementation.scatter_gather
    size = whole / layout.tensor if shared else whole
    found: list[Communication] = []
    directions: tuple[When, When] = ("forward", "backward")
    for when in directions:
        found.append(Communication("send", "pipeline", 2, size, 1, when))
        if shared and not layout.sequence_parallel and layout.tensor > 1:
            found.append(Communication("allgather", "tensor", layout.tensor, whole, 1, when))
    return tuple(found)


def weight_bytes(training: Training) -> float:
    """Return the bytes of an element of the weights that data-parallel ranks gather."""
    return 1.0 if training.implementation.fp8_weights and training.fp8 else training.element


def tied_bytes(training: Training) -> float:
    """Return the bytes of a tensor group's gradient of an embedding that two stages share.

    That is what each of its ranks on the first and the last stage has to sum: all of it, or, where
    gradients are scattered after every microbatch (ZeRO 2, 3), the share that it keeps. 0 where no
    two stages have the embedding.
    """
    model, layout = training.model, training.layout
    if not layout.ties(model.reuses_embedding):
        return 0.0
    whole = float(training.implementation.gradient_bytes) * model.vocabulary * model.hidden
    return whole / (layout.sharing if layout.zero >= 2 else 1)


def step_communications(
    training: Training, microbatches: int
) -> tuple[tuple[Communication, ...], ...]:
    """Return what one GPU of each stage sends to sum gradients and to share weights.

    Parameters
    ----------
    training : Training
    microbatches : int
        Of an iteration.

    Returns
    -------
    tuple of tuple of Communication
        By stage; counts are per iteration.

    Notes
    -----
    ZeRO 0: an AllReduce of gradients. ZeRO 1: a ReduceScatter of gradients and an AllGather of
    updated weights. ZeRO 2: gradients are scattered after every microbatch, because no rank
    keeps all of them. ZeRO 3: as 2, and weights are gathered for the forward and again for the
    backward pass of every microbatch: with one microbatch and gradients as wide as weights, 1.5
    times the volume of the others (Rajbhandari et al., 2020, section 7). Copies of sharded states
    add up their shares of gradients once an iteration. Gradients of an embedding that is used again
    are summed over the first and the last stage (`tied_bytes`).
    """
    model, layout = training.model, training.layout
    stages: list[list[Communication]] = [[] for _ in range(layout.pipeline)]
    ranks = layout.sharing
    weight, gradient = weight_bytes(training), float(training.implementation.gradient_bytes)
    parts = parts_of(model, layout)
    for part, count in zip(parts, all_part_weights(model, layout), strict=True):
        shares: tuple[tuple[float, GroupKind, int], ...] = (
            (count.dense, "data", ranks),
            (count.expert, "expert-data", ranks // layout.expert_ranks),
        )
        for elements, group, members in shares:
            if members > 1 and elements:
                stages[part.stage] += (
                    replace(message, part=part.chunk)
                    for message in _shared(
                        layout, group, members, elements, weight, gradient, microbatches
                    )
                )
        share = gradient * (count.dense + count.expert * layout.expert_ranks) / ranks
        if layout.replicate > 1 and share:
            stages[part.stage].append(
                Communication(
                    "allreduce", "copies", layout.replicate, share, 1, "gradients", part=part.chunk
                )
            )
    if tied := tied_bytes(training):
        size = tied / layout.tensor
        for stage in (0, layout.pipeline - 1):
            stages[stage].append(Communication("allreduce", "embedding", 2, size, 1, "gradients"))
    return tuple(tuple(stage) for stage in stages)


def _shared(
    layout: Layout,
    group: GroupKind,
    ranks: int,
    elements: float,
    weight: float,
    gradient: float,
    microbatches: int,
) -> Iterator[Communication]:
    if layout.zero == 0:
        yield Communication("allreduce", group, ranks, gradient * elements, 1, "gradients")
        return
    scatters = microbatches if layout.zero >= 2 else 1
    gathers = 2 * microbatches if layout.zero == 3 else 1
    yield Communication("reducescatter", group, ranks, gradient * elements, scatters, "gradients")
    yield Communication("allgather", group, ranks, weight * elements, gathers, "weights")
