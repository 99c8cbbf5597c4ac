"""The passes of linear attention and state-space layers on one GPU."""

from parallelism.transformers.linear_attention import LinearAttention
from parallelism.transformers.operands import cast_shares, operands
from parallelism.transformers.training import Training
from parallelism.transformers.work import PassCosts, Work, elementwise, product_costs

_SUM = 4.0
"""Bytes of an element of states and of sums in FP32."""
_REACHED = 0.5, 0.38
"""Shares of the memory's rate that kernels reach, forward and backward.

Fitted on seven times of Gated DeltaNet on GB200 (flash-linear-attention's README). Of H20, and of
KDA, they make times 21 to 27 % too short; of retention, whose kernels are those of lightning
attention, 2 to 25 % too long (``docs/llm.md``). No table of Mamba's kernels was found.
"""


def linear_core(training: Training) -> PassCosts:
    """Return the kernels through which the tokens of a layer meet, on one GPU.

    Parameters
    ----------
    training : Training
        Of a model with linear attention.

    Returns
    -------
    PassCosts
        Kernels multiply whole squares of a chunk, masked or not. Each reads what it needs from
        memory and writes what it makes, so that they are limited by bytes, which are counted as
        many as take the time at the full rate. A context rank has as many times fewer heads as
        more tokens, or its own tokens of all heads, which is as much. A short convolution needs
        none beside the products by keys and queries, which `linear_projections` counts.

    Notes
    -----
    Of Gated DeltaNet (and KDA) forward: keys by keys of a chunk; the inverse of a triangular
    matrix; by it keys and values; states of chunks; outputs. Backward: keys, values and states
    again, then the gradients of each step in reverse (flash-linear-attention,
    ``fla/ops/gated_delta_rule/chunk.py``). Of Mamba-2 forward: states of chunks, their recurrence,
    queries by keys of a chunk (once for all heads of a group), outputs; backward these again, and
    gradients in reverse (``mamba_ssm/ops/triton/ssd_combined.py``). Of lightning attention the same
    without a matrix to invert: states of chunks and outputs, backward states in FP32, both again,
    and gradients (flash-linear-attention, ``fla/ops/simple_gla/chunk.py``). Of Mamba-1 one scan
    from token to token, which reads values, steps and gate and writes the output with and without
    its gate; backward all of these, gradients of keys and queries summed in FP32 over channels
    (``mamba_ssm/ops/selective_scan_interface.py``).
    """
    layout, element, linear = training.layout, training.element, training.model.linear
    assert linear is not None
    if linear.kind == "short-convolution":
        return PassCosts()
    linear = linear.within(training.sequence).shared_by(layout.tensor * layout.context)
    flops, back = core_flops_of_token(linear)
    chunk, key, value = float(linear.chunk), float(linear.key_width), float(linear.value_width)
    state = key * value
    group = linear.key_heads / linear.heads  # keys that each head has for itself
    if linear.kind == "mamba-2":
        states, scores = _SUM * state / chunk, _SUM * chunk * group
        moved = element * (3.0 * value + 3.0 * key * group) + 3.0 * states + 2.0 * scores
        moved_back = element * (11.0 * value + 15.0 * key * group) + 6.5 * states + 6.0 * scores
        kernels = (5, 10)
    elif linear.kind == "mamba-1":
        group *= layout.tensor  # each rank needs all of them
        moved = element * (5.0 * value + 2.0 * key * group)
        moved_back = element * (8.0 * value + 2.0 * key * group) + 2.0 * _SUM * key * group
        kernels = (1, 1)
    elif linear.kind == "lightning":
        states = state / chunk
        moved = element * (3.0 * key + 3.0 * value + 2.0 * states)
        moved_back = element * (8.0 * key + 6.0 * value) + 5.0 * _SUM * states
        kernels = (2, 4)
    else:
        states = element * state / chunk
        moved = element * (7.0 * key + 6.0 * value + 6.0 * chunk) + 2.0 * states
        moved_back = element * (21.0 * key + 15.0 * value + 2.0 * chunk) + 4.0 * states
        if linear.kind == "kda":
            # Each step reads how much each element of a key forgets, in FP32.
            moved += _SUM * 5.0 * key
            moved_back += _SUM * 10.0 * key
        kernels = (6, 10)
    head_tokens = training.tokens * linear.heads / layout.tensor
    return PassCosts(
        forward=Work(
            linear_flops=head_tokens * flops,
            linear_traffic=head_tokens * moved / _REACHED[0],
            kernels=kernels[0],
        ),
        backward_input=Work(
            linear_flops=head_tokens * back,
            linear_traffic=head_tokens * moved_back / _REACHED[1],
            kernels=kernels[1],
        ),
    )


def core_flops_of_token(linear: LinearAttention) -> tuple[float, float]:
    """Return the operations of one head's kernels for one token, forward and backward.

    Of Mamba-1 nine for each element of the state, as its authors count (state-spaces/mamba, issue
    110), and twice as many backward after these are done again. None of a short convolution.
    """
    chunk, key, value = float(linear.chunk), float(linear.key_width), float(linear.value_width)
    state = key * value
    if linear.kind == "short-convolution":
        return 0.0, 0.0
    if linear.kind == "mamba-1":
        return 9.0 * state, 27.0 * state
    if linear.kind in ("mamba-2", "lightning"):
        square = 2.0 * chunk * key * linear.key_heads / linear.heads
        forward = square + 2.0 * chunk * value + 4.0 * state
        # Lightning attention's products within chunks are done once again, Mamba-2's outputs, too.
        again = 4.0 if linear.kind == "lightning" else 6.0
        return forward, 3.0 * square + again * chunk * value + 10.0 * state
    forward = 6.0 * chunk * key + 4.0 * chunk * value + 6.0 * state + chunk**2 / 3.0
    return forward, 16.0 * chunk * key + 10.0 * chunk * value + 16.0 * state + 4.0 * chunk**2


def stated_flops_of_token(linear: LinearAttention) -> float:
    """Return one head's forward operations for one token by the convention of published figures.

    As Megatron-LM counts (``num_floating_point_operations``): seven for each element of Mamba-2's
    state, eight of Gated DeltaNet's and KDA's, whatever the chunk. It has no others: four of
    lightning attention, for keys by values and queries by states; Mamba-1's as in
    `core_flops_of_token`.
    """
    each = {"mamba-2": 7.0, "lightning": 4.0, "mamba-1": 9.0, "short-convolution": 0.0}
    return each.get(linear.kind, 8.0) * linear.key_width * linear.value_width


def linear_projections(training: Training) -> PassCosts:
    """Return the passes of a layer's projections, convolution, norms of heads, and gate.

    KDA's narrow projections are done by each tensor rank, as those to latent vectors are. Mamba-1's
    step, key and query are sums over all channels: each tensor rank has all of them, of all tokens.
    What context ranks exchange is put in order before it is sent and after it came.
    """
    layout, tokens, linear = training.layout, training.tokens, training.model.linear
    assert linear is not None
    hidden, tensor, element = training.model.hidden, layout.tensor, training.element
    sums = operands(training, layer=True)
    cast, gathered = cast_shares(training)
    costs = product_costs(tokens, linear.projected / tensor, hidden, 1, *sums[:4], (gathered, cast))
    costs += product_costs(tokens, hidden, linear.values / tensor, 1, *sums[:4], (cast, gathered))
    if linear.low_ranks:
        costs += product_costs(training.own_tokens, linear.low_ranks, hidden, 1, *sums)
        for width in (linear.keys, linear.values):
            costs += product_costs(tokens, width / tensor, linear.low_ranks / 2, 1, *sums)
    if linear.from_values:
        channels = linear.values / tensor
        costs += product_costs(tokens, linear.from_values, channels, 1, *sums)
        costs += product_costs(tokens, channels, linear.step_rank, 1, *sums)
        narrow = element * tokens * linear.from_values  # their norms
        costs += elementwise(2.0 * narrow, 3.0 * narrow, 3)
    moved = element * tokens / tensor
    linear = linear.shared_by(tensor * layout.context)
    # Convolution or nonlinearity: backward reads its input, too. Products of two: the output's
    # norm and gate, a short convolution's by key and by query, none of Mamba-1, whose scan has it.
    passed, gates = linear.convolved or linear.mixed, 1
    if linear.kind in ("mamba-1", "short-convolution"):
        gates = 0 if linear.kind == "mamba-1" else 2
    forward = 2.0 * passed + 3.0 * gates * linear.values
    backward = 3.0 * passed + 5.0 * gates * linear.values
    kernels = 1 + gates
    if linear.normed_keys:
        forward += 4.0 * linear.keys
        backward += 6.0 * linear.keys
        kernels += 2
    if layout.context > 1 and linear.exchanges_heads:
        ordered = 4.0 * (linear.exchanged + linear.values)
        forward += ordered
        backward += ordered
        kernels += 4
    return costs + elementwise(forward * moved, backward * moved, kernels)
