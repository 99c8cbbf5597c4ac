"""What of a model falls to one rank of a layout: layers of a kind, tokens, heads."""

from collections import Counter
from functools import lru_cache
from math import ceil

from codesign_base import InputError
from codesign_base.counted import counted
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.attention import Attention
from parallelism.transformers.layout import Layout, Module
from parallelism.transformers.linear_attention import LinearAttention


@lru_cache(maxsize=512)
def layer_kinds(
    model: Transformer, first: int, count: int, more: int = 0
) -> tuple[tuple[int, int], ...]:
    """Return (an example's index, count) of the kinds of layers in a range.

    Dense layers come before those with experts, and of each those that meet all keys before those
    with a sliding window or linear attention, or that take keys chosen before. The example is the
    model's first layer of the kind, be it outside the range. ``more`` layers of modules for
    multi-token prediction are added.
    """
    parts = model.without_feed_forward or model.without_attention
    same = model.indexer is None or not model.indexer.shared
    same = same and model.window is None and model.linear is None and not parts
    if model.experts is None and same:
        return ((0, count + more),) if count + more else ()
    kinds = _kinds_of(model)
    met = Counter(kinds[first : first + count] + kinds[model.layers :] * more)
    return tuple((kinds.index(kind), met[kind]) for kind in sorted(met))


@lru_cache(maxsize=64)
def _kinds_of(model: Transformer) -> tuple[tuple[bool, ...], ...]:
    """Return what tells the kinds of layers apart, for each layer.

    The last entry is that of modules for multi-token prediction.
    """
    return tuple(
        (
            model.has_experts(i), model.slides(i), model.has_linear(i),
            not model.has_feed_forward(i), not (model.has_attention(i) or model.has_linear(i)),
            not model.has_indexer(i),
        )
        for i in range(model.layers + 1)
    )  # fmt: skip


def check_sequence(model: Transformer, sequence: int) -> None:
    """Raise an error where a sample cannot have so many tokens.

    Raises
    ------
    InputError
        If they are below 1, or beyond the learned positions.
    """
    if sequence < 1:
        raise InputError(f"sequence is {sequence}; give at least 1")
    if model.positions and sequence > model.positions:
        raise InputError(
            f"sequence is {sequence}, but {model.name} has {model.positions} learned positions; "
            "give at most these"
        )


def rank_tokens(model: Transformer, layout: Layout, sequence: int) -> int:
    """Return the tokens of a sample on one rank.

    Raises
    ------
    InputError
        As `check_sequence`, or if the context degree does not divide the sequence.
    """
    check_sequence(model, sequence)
    if sequence % layout.context:
        raise InputError(
            f"layout: context is {layout.context}, which does not divide sequence = {sequence}; "
            "give a divisor"
        )
    return sequence // layout.context


def shares_out(model: Transformer, tensor: int, tokens: int) -> bool:
    """Whether a tensor group can share out a rank's tokens of a sample.

    Sequence parallelism needs as many on each rank; the class token beside patches is padded.
    """
    return not model.vocabulary or tokens % tensor == 0


def done_again(model: Transformer, layer: int, layout: Layout) -> tuple[Module, ...]:
    """Return which whole feed-forward parts of a layer recomputation by modules does again."""
    if not model.has_feed_forward(layer):
        return ()
    dense: tuple[Module, ...] = ("feed-forward",)
    experts = model.experts if model.has_experts(layer) else None
    if experts is not None:
        dense = ("shared-experts", "experts") if experts.shared else ("experts",)
    return tuple(part for part in dense if part in layout.modules)


def ends_with_product(model: Transformer, layer: int) -> bool:
    """Whether a layer adds what a dense product returns to its input, and then is done.

    Of such a layer no backward pass needs that product's output.
    """
    dense = model.has_feed_forward(layer) and not model.has_experts(layer)
    return dense and model.layer_norms < 4


def kv_heads_of(attention: Attention, layout: Layout) -> int:
    """Return the key and value heads of one tensor rank: at least one, then replicated."""
    return max(1, ceil(attention.kv_heads / layout.tensor))


def sums_once(model: Transformer) -> bool:
    """Whether the outputs of attention and feed-forward part are summed over ranks together.

    Parallel parts need no sum of their own (Wang and Komatsuzaki, Mesh-Transformer-JAX, 2021,
    ``layers.py``): each rank adds its share of both outputs, and the gradients of the one input.
    Norms after the parts each need their whole output first.
    """
    return model.parallel and model.layer_norms < 4


def gathered_width(model: Transformer, *, together: bool = False) -> int:
    """Return the elements of a token that a tensor group gathers for the heads of a layer.

    That is its input; of latent attention the latent vectors and the rotary part of the key, which
    each rank makes of its own tokens (Megatron-Core, ``multi_latent_attention.py``), and beside
    them the input only where queries are projected from it in one step, or where it is gathered
    for heads and feed-forward part ``together``.
    """
    latent = model.attention.latent
    if latent is None:
        return model.hidden
    inputs = model.hidden if together or not latent.query_rank else 0
    return latent.kv_rank + latent.rope_width + latent.query_rank + inputs


def _check_context(model: Transformer, linear: LinearAttention, layout: Layout) -> None:
    """Raise an error where the ranks of a context group cannot share out heads of linear attention.

    Each has some heads of the whole sequence, all of one kind, but where it passes on what the next
    one needs. Groups of Mamba-2 may be fewer, if as many ranks share each.
    """
    if layout.context == 1 or linear.passed_on is not None:
        return
    if not linear.exchanges_heads:
        raise InputError(
            f"layout: context is {layout.context}, but no public software shares out a sequence of "
            f"{linear.title}, which {model.name} has; give 1"
        )
    ranks = layout.tensor * layout.context
    told = f"layout: tensor * context is {ranks}"
    repeats = linear.kind == "mamba-2"
    name, heads = ("heads", linear.heads) if repeats else ("key_heads", linear.key_heads)
    if heads % ranks:
        raise InputError(
            f"{told}, which does not divide linear attention's {name} = {heads} of {model.name}; "
            "give degrees whose product does"
        )
    if repeats and max(linear.key_heads, ranks) % min(linear.key_heads, ranks):
        raise InputError(
            f"{told}, but linear attention's key_heads = {linear.key_heads} of {model.name} can be "
            "neither split nor repeated evenly; give a divisor or multiple"
        )


def check_layout(model: Transformer, layout: Layout) -> None:
    """Raise an error where a layout cannot split a model.

    Raises
    ------
    InputError
        If the tensor degree does not divide the heads or the widths, tensor and context degree
        together the heads of linear attention, the expert degree the experts, the stages exceed
        the layers, or experts are spread but there are none.
    """
    attention = model.attention
    tensor = layout.tensor
    widths = [("heads", attention.heads, tensor), ("feed_forward", model.feed_forward, tensor)]
    if model.linear is not None:
        # Of its heads those of keys are fewer, where they are shared out.
        what, count = model.linear.split_heads
        widths.append((f"linear attention's {what}", count, tensor))
    if model.experts is not None:
        widths.append(("experts' width", model.experts.width, layout.expert_split))
    elif layout.expert_tensor is not None:
        raise InputError(
            f"layout: expert_tensor is {layout.expert_tensor}, but {model.name} has no experts; "
            "leave it out"
        )
    for what, size, degree in widths:
        if size % degree:
            raise InputError(
                f"layout: tensor is {degree}, which does not divide {what} = {size} of "
                f"{model.name}; give a divisor"
            )
    if model.linear is not None:
        _check_context(model, model.linear, layout)
    if attention.latent is None and max(attention.kv_heads, layout.tensor) % min(
        attention.kv_heads, layout.tensor
    ):
        raise InputError(
            f"layout: tensor is {layout.tensor}, but kv_heads = {attention.kv_heads} of "
            f"{model.name} can be neither split nor replicated evenly; give a divisor or multiple"
        )
    chunks = layout.pipeline * layout.virtual_stages
    if layout.stage_layers:
        if sum(layout.stage_layers) != model.layers:
            raise InputError(
                f"layout: stage_layers adds up to {counted(sum(layout.stage_layers), 'layer')}; "
                f"give the {model.layers} of {model.name}"
            )
    elif chunks > model.layers:
        raise InputError(
            f"layout: pipeline * virtual_stages is {chunks}, more than the "
            f"{counted(model.layers, 'layer')} of {model.name}; give fewer stages"
        )
    count = model.experts.count if model.experts else 1
    if count % layout.expert:
        raise InputError(
            f"layout: expert is {layout.expert}, which does not divide the experts of {model.name}"
            f" ({count}); give a divisor"
        )
