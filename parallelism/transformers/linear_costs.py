"""The passes of linear attention and state-space layers on one GPU."""

from parallelism.transformers.architecture import Transformer
from parallelism.transformers.implementation import Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.linear_attention import LinearAttention
from parallelism.transformers.operands import cast_shares, operands
from parallelism.transformers.shares import split_tokens
from parallelism.transformers.work import PassCosts, Work, elementwise, product_costs

_SUM = 4.0
"""Bytes of an element of states and of sums in FP32."""
_REACHED = 0.5, 0.38
"""Shares of the memory's rate that kernels reach, forward and backward.

Fitted on seven times of Gated DeltaNet on GB200 (flash-linear-attention's README). Of H20, and of
KDA, they are 21 to 27 % too short (``docs/llm.md``). No table of Mamba-2's kernels was found.
"""


def linear_core(
    model: Transformer, linear: LinearAttention, layout: Layout, tokens: float
) -> PassCosts:
    """Return the chunked kernels through which the tokens of a layer meet, on one GPU.

    Parameters
    ----------
    model : Transformer
    linear : LinearAttention
    layout : Layout
    tokens : float
        Of a microbatch on one rank.

    Returns
    -------
    PassCosts
        Kernels multiply whole squares of a chunk, masked or not. Each reads what it needs from
        memory and writes what it makes, so that they are limited by bytes, which are counted as
        many as take the time at the full rate. A context rank has as many times fewer heads as
        more tokens.

    Notes
    -----
    Of Gated DeltaNet (and KDA) forward: keys by keys of a chunk; the inverse of a triangular
    matrix; by it keys and values; states of chunks; outputs. Backward: keys, values and states
    again, then the gradients of each step in reverse (flash-linear-attention,
    ``fla/ops/gated_delta_rule/chunk.py``). Of Mamba-2 forward: states of chunks, their recurrence,
    queries by keys of a chunk (once for all heads of a group), outputs; backward these again, and
    gradients in reverse (``mamba_ssm/ops/triton/ssd_combined.py``).
    """
    element, linear = float(model.dense_bytes), linear.shared_by(layout.tensor * layout.context)
    flops, back = core_flops_of_token(linear)
    chunk, key, value = float(linear.chunk), float(linear.key_width), float(linear.value_width)
    state = key * value
    if linear.kind == "mamba-2":
        group = linear.key_heads / linear.heads  # keys that each head has for itself
        states, scores = _SUM * state / chunk, _SUM * chunk * group
        moved = element * (3.0 * value + 3.0 * key * group) + 3.0 * states + 2.0 * scores
        moved_back = element * (11.0 * value + 15.0 * key * group) + 6.5 * states + 6.0 * scores
        kernels = (5, 10)
    else:
        states = element * state / chunk
        moved = element * (7.0 * key + 6.0 * value + 6.0 * chunk) + 2.0 * states
        moved_back = element * (21.0 * key + 15.0 * value + 2.0 * chunk) + 4.0 * states
        if linear.kind == "kda":
            # Each step reads how much each element of a key forgets, in FP32.
            moved += _SUM * 5.0 * key
            moved_back += _SUM * 10.0 * key
        kernels = (6, 10)
    head_tokens = tokens * linear.heads / layout.tensor
    return PassCosts(
        forward=Work(
            attention_flops=head_tokens * flops,
            attention_traffic=head_tokens * moved / _REACHED[0],
            kernels=kernels[0],
        ),
        backward_input=Work(
            attention_flops=head_tokens * back,
            attention_traffic=head_tokens * moved_back / _REACHED[1],
            kernels=kernels[1],
        ),
    )


def core_flops_of_token(linear: LinearAttention) -> tuple[float, float]:
    """Return the operations of one head's kernels for one token, forward and backward."""
    chunk, key, value = float(linear.chunk), float(linear.key_width), float(linear.value_width)
    state = key * value
    if linear.kind == "mamba-2":
        square = 2.0 * chunk * key * linear.key_heads / linear.heads
        forward = square + 2.0 * chunk * value + 4.0 * state
        return forward, 3.0 * square + 6.0 * chunk * value + 10.0 * state
    forward = 6.0 * chunk * key + 4.0 * chunk * value + 6.0 * state + chunk**2 / 3.0
    return forward, 16.0 * chunk * key + 10.0 * chunk * value + 16.0 * state + 4.0 * chunk**2


def stated_flops_of_token(linear: LinearAttention) -> float:
    """Return one head's forward operations for one token by the convention of published figures.

    As Megatron-LM counts (``num_floating_point_operations``): seven for each element of Mamba-2's
    state, eight of the others', whatever the chunk.
    """
    return (7.0 if linear.kind == "mamba-2" else 8.0) * linear.key_width * linear.value_width


def linear_projections(
    model: Transformer,
    linear: LinearAttention,
    layout: Layout,
    implementation: Implementation,
    tokens: float,
) -> PassCosts:
    """Return the passes of a layer's projections, convolution, norms of heads, and gate.

    KDA's narrow projections are done by each tensor rank, as those to latent vectors are. What
    context ranks exchange is put in order before it is sent and after it came.
    """
    hidden, tensor, element = model.hidden, layout.tensor, float(model.dense_bytes)
    sums = operands(model, implementation, layer=True)
    cast, gathered = cast_shares(implementation, layout)
    costs = product_costs(tokens, linear.projected / tensor, hidden, 1, *sums[:4], (gathered, cast))
    costs += product_costs(tokens, hidden, linear.values / tensor, 1, *sums[:4], (cast, gathered))
    if linear.low_ranks:
        own = split_tokens(tokens, layout)
        costs += product_costs(own, linear.low_ranks, hidden, 1, *sums)
        for width in (linear.keys, linear.values):
            costs += product_costs(tokens, width / tensor, linear.low_ranks / 2, 1, *sums)
    moved = element * tokens / tensor
    linear = linear.shared_by(tensor * layout.context)
    # Convolution with its nonlinearity: backward reads its input, too. Norm of the output and
    # gate: output and gate read, their product written, and so their gradients.
    forward = 2.0 * linear.mixed + 3.0 * linear.values
    backward = 3.0 * linear.mixed + 5.0 * linear.values
    kernels = 2
    if linear.kind != "mamba-2":  # norms of queries and keys
        forward += 4.0 * linear.keys
        backward += 6.0 * linear.keys
        kernels = 4
    if layout.context > 1:
        ordered = 4.0 * (linear.exchanged + linear.values)
        forward += ordered
        backward += ordered
        kernels += 4
    return costs + elementwise(forward * moved, backward * moved, kernels)


__all__ = ["core_flops_of_token", "linear_core", "linear_projections", "stated_flops_of_token"]
