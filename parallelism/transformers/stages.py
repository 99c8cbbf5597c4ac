"""Which layers the parts of a pipeline hold, and how many weights of them each GPU has."""

from dataclasses import dataclass
from functools import lru_cache

from parallelism.transformers.architecture import Transformer
from parallelism.transformers.layout import Layout
from parallelism.transformers.shares import check_layout, kv_heads_of, layer_kinds
from parallelism.transformers.stage_maps import even_layers


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive layers of a model, on one stage.

    Parameters
    ----------
    stage, chunk : int
    first, layers : int
        Index of the first layer, number of layers.
    embedding, head : bool
        Whether the part begins with the embedding, ends with last norm, projection and loss, and
        with the modules for multi-token prediction.
    """

    stage: int
    chunk: int
    first: int
    layers: int
    embedding: bool
    head: bool

    def kinds(self, model: Transformer) -> tuple[tuple[int, int], ...]:
        """Return (an example's index, count) of the kinds of its layers."""
        return layer_kinds(model, self.first, self.layers, model.mtp_layers * self.head)


def parts_of(model: Transformer, layout: Layout) -> tuple[Part, ...]:
    """Split the layers of a model as evenly as they go.

    Parameters
    ----------
    model : Transformer
    layout : Layout

    Returns
    -------
    tuple of Part
        In the order of the model, their stages those of `Layout.part_stages`. Layers left over go
        to parts in the middle, because the ends also have embedding and loss: where two layers are
        missing to even parts, this is Megatron-Core's accounting of both in the split.

    Raises
    ------
    InputError
        If the layout cannot split the model.
    """
    return _parts_of(model, layout.of_weights)


@lru_cache(maxsize=512)
def _parts_of(model: Transformer, layout: Layout) -> tuple[Part, ...]:
    check_layout(model, layout)
    count = layout.pipeline * layout.virtual_stages
    each = layout.stage_layers or even_layers(model.layers, count)
    parts, first = [], 0
    chunks = [0] * layout.pipeline
    for index, (stage, layers) in enumerate(zip(layout.part_stages, each, strict=True)):
        parts.append(Part(stage, chunks[stage], first, layers, index == 0, index == count - 1))
        chunks[stage] += 1
        first += layers
    return tuple(parts)


def mixing_stages(model: Transformer, layout: Layout, *, heads: bool) -> frozenset[int]:
    """Return the stages whose context groups exchange heads, or pass keys or states around."""

    def has(layer: int) -> bool:
        linear = model.has_linear(layer)
        if heads:
            return linear and model.exchanges_heads
        return model.has_attention(layer) or (linear and not model.exchanges_heads)

    return frozenset(
        part.stage
        for part in parts_of(model, layout)
        if any(has(layer) for layer, _ in part.kinds(model))
    )


def alike_parts(model: Transformer, layout: Layout) -> tuple[int, ...]:
    """Return for each part the first that holds as much of the same, so that it costs the same."""
    return _alike_parts(model, layout.of_weights)


@lru_cache(maxsize=512)
def _alike_parts(model: Transformer, layout: Layout) -> tuple[int, ...]:
    firsts: dict[object, int] = {}
    return tuple(
        firsts.setdefault((part.kinds(model), part.embedding, part.head), index)
        for index, part in enumerate(parts_of(model, layout))
    )


@dataclass(frozen=True, slots=True)
class WeightCount:
    """Weights on one GPU.

    Parameters
    ----------
    dense : float
        Elements that all data- and context-parallel ranks of a stage share.
    expert : float
        Elements of routed experts, which `Layout.expert_ranks` times fewer ranks share.
    """

    dense: float = 0.0
    expert: float = 0.0

    def __add__(self, other: "WeightCount") -> "WeightCount":
        """Hold both."""
        return WeightCount(self.dense + other.dense, self.expert + other.expert)

    def times(self, count: float) -> "WeightCount":
        """Hold several."""
        return WeightCount(self.dense * count, self.expert * count)


def layer_weights(model: Transformer, layer: int, layout: Layout) -> WeightCount:
    """Return the weights of one layer on one GPU.

    Norms, biases of outputs, routers, indexers, projections to latent vectors (and, of experts,
    from them: Megatron-Core, ``moe_layer.py``) and key / value heads beyond the tensor degree are
    on every tensor rank; all else is split.
    """
    hidden, tensor, linear = model.hidden, layout.tensor, model.linear
    dense = float(model.norms(layer) * model.norm_parameters())
    if model.has_attention(layer):
        dense += _attention_weights(model, layout)
        if model.attention.latent and model.has_indexer(layer):
            dense += model.attention.latent.indexer_parameters(hidden)
    if linear is not None and model.has_linear(layer):
        dense += linear.shared_parameters(hidden) + linear.split_parameters(hidden) / tensor
    if not model.has_feed_forward(layer):
        return WeightCount(dense)
    if not model.has_experts(layer):
        return WeightCount(dense + _split(model, model.feed_forward, tensor))
    experts = model.experts
    assert experts is not None
    dense += model.router_parameters() + model.latent_parameters()
    dense += experts.shared * _split(model, experts.shared_width, tensor)
    own = (
        experts.count
        / layout.expert
        * _split(model, experts.width, layout.expert_split, experts.latent_width)
    )
    return WeightCount(dense, own)


def _attention_weights(model: Transformer, layout: Layout) -> float:
    """Return the weights of attention on one GPU."""
    attention, hidden, tensor = model.attention, model.hidden, layout.tensor
    found = attention.value_width / tensor * hidden + (hidden if attention.output_bias else 0)
    if attention.latent is not None:
        latent = attention.latent
        up = latent.kv_rank * attention.heads * (attention.head_width + latent.value_width)
        found += hidden * (latent.kv_rank + latent.rope_width) + latent.kv_rank + up / tensor
        if not latent.query_rank:
            return found + hidden * attention.query_width / tensor
        found += (hidden + 1) * latent.query_rank
        return found + latent.query_rank * attention.query_width / tensor
    width = attention.query_width / tensor
    width += 2 * kv_heads_of(attention, layout) * attention.head_width
    width += attention.value_width / tensor if attention.output_gate else 0
    found += hidden * width + (width if attention.query_bias else 0)
    found += 2 * attention.head_width if attention.head_norm else 0
    if attention.wide_norm:
        found += attention.query_width / tensor
        found += kv_heads_of(attention, layout) * attention.head_width
    return found + (attention.heads / tensor if attention.sinks else 0)


def _split(model: Transformer, width: int, tensor: int, read: int = 0) -> float:
    whole = (read or model.hidden) if model.bias else 0
    return (model.dense_parameters(width, read) - whole) / tensor + whole


def part_weights(model: Transformer, part: Part, layout: Layout) -> WeightCount:
    """Return the weights of one part on one GPU.

    An embedding that is used again is held by the first and, if it is another one, the stage of
    the last part; a module for multi-token prediction that is used again is held once.
    """
    found = WeightCount()
    modules = model.mtp_modules * part.head
    for layer, count in layer_kinds(model, part.first, part.layers, modules):
        found += layer_weights(model, layer, layout).times(count)
    if part.embedding:
        whole = model.embedding_parameters - model.vocabulary * model.hidden
        found += WeightCount(whole + model.vocabulary * model.hidden / layout.tensor)
    if part.head:
        norm = model.norm_parameters()
        split = 0 if model.tied else model.vocabulary * model.hidden
        classes = model.head_parameters - norm - split
        found += WeightCount(norm + classes + split / layout.tensor)
        joining = 3 * norm + 2 * model.hidden**2 / layout.tensor
        found += WeightCount(joining).times(modules)
        if layout.ties(model.reuses_embedding):
            found += WeightCount(model.vocabulary * model.hidden / layout.tensor)
    return found


def sharded(weights: WeightCount, layout: Layout) -> WeightCount:
    """Return which of some weights several ranks of a copy share, so that there is what to shard.

    Experts that are spread over all of these ranks are each on one only.
    """
    return WeightCount(
        weights.dense if layout.sharing > 1 else 0.0,
        weights.expert if layout.sharing > layout.expert_ranks else 0.0,
    )


def all_part_weights(model: Transformer, layout: Layout) -> tuple[WeightCount, ...]:
    """Return the weights of one GPU of each part, along the model."""
    return _all_part_weights(model, layout.of_weights)


@lru_cache(maxsize=512)
def _all_part_weights(model: Transformer, layout: Layout) -> tuple[WeightCount, ...]:
    parts, alike = parts_of(model, layout), alike_parts(model, layout)
    known = {first: part_weights(model, parts[first], layout) for first in set(alike)}
    return tuple(known[first] for first in alike)


def stage_weights(model: Transformer, layout: Layout) -> tuple[WeightCount, ...]:
    """Return the weights of one GPU of each pipeline stage."""
    return _stage_weights(model, layout.of_weights)


@lru_cache(maxsize=512)
def _stage_weights(model: Transformer, layout: Layout) -> tuple[WeightCount, ...]:
    found = [WeightCount() for _ in range(layout.pipeline)]
    for part, weights in zip(parts_of(model, layout), all_part_weights(model, layout), strict=True):
        found[part.stage] += weights
    return tuple(found)
