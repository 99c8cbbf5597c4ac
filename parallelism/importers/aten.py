"""Counts and splits of the operations that torch.export leaves in a graph.

The rules are those of `parallelism.operators.layers` and `elementwise`; a captured module and the
same network of the zoo come out alike.
"""

import math
from collections.abc import Callable, Sequence

from parallelism.graph import Mode, OperatorKind, Split
from parallelism.importers.traced import Operation, Recorder, Traced
from parallelism.operators.builder import INDEX_BYTES, legal_splits

Rule = Callable[[Recorder, Operation], Traced]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The same elements in another arrangement, or some of them; dropout keeps its input's place.
VIEWS = _names(
    """
    view reshape _unsafe_view view_as reshape_as permute transpose t numpy_T matrix_H mT
    swapaxes swapdims movedim moveaxis flatten unflatten ravel squeeze unsqueeze expand
    expand_as broadcast_to slice select narrow split split_with_sizes tensor_split chunk unbind
    diagonal as_strided contiguous clone alias detach detach_ to _to_copy type_as float half
    lift_fresh_copy repeat repeat_interleave tile flip roll pad constant_pad_nd unfold dropout
    dropout_ feature_dropout alpha_dropout native_dropout set_ _reshape_alias
    index_select_backward
    """
)

# New tensors whose content does not depend on any input.
CREATIONS = _names(
    """
    arange zeros ones full empty eye linspace logspace scalar_tensor zeros_like ones_like
    full_like empty_like new_zeros new_ones new_full new_empty new_tensor rand randn randint
    rand_like randn_like tril_indices triu_indices _assert_tensor_metadata _assert_scalar
    _assert_async sym_size sym_numel sym_constrain_range_for_size
    """
)

# Elements moved or compared by position; no matrix product, no split.
MOVES = _names(
    """
    copy copy_ fill fill_ zero_ select_scatter slice_scatter gather scatter scatter_ scatter_add
    scatter_add_ scatter_reduce index_add index_add_ index_copy index_put index_put_
    masked_scatter take take_along_dim topk sort argsort one_hot tril triu tril_ triu_ cumsum
    cumprod bincount bucketize searchsorted argmax argmin max min unique_dim upsample_nearest2d
    upsample_bilinear2d interpolate pixel_shuffle
    """
)

# Those of them that pick rows of their first tensor, which may be a table.
LOOKUPS = _names("gather index index_select take take_along_dim")

REDUCTIONS = _names(
    """
    mean sum prod amax amin var std var_mean std_mean norm linalg_vector_norm logsumexp any all
    nll_loss nll_loss_nd nll_loss2d mse_loss l1_loss smooth_l1_loss huber_loss kl_div
    binary_cross_entropy binary_cross_entropy_with_logits
    """
)

NORMS = _names(
    """
    layer_norm native_layer_norm rms_norm _fused_rms_norm group_norm native_group_norm
    batch_norm _batch_norm_with_update _native_batch_norm_legit native_batch_norm
    cudnn_batch_norm instance_norm
    """
)

# Element-wise operations that torch does not tag as such.
POINTWISE = _names(
    """
    absolute complex divide divide_ fake_quantize_per_tensor_affine floor_divide glu hardswish
    hardswish_ log_sigmoid masked_fill_ multiply multiply_ negative outer polar prelu subtract
    subtract_ __and__ __or__ __xor__
    """
)

POOLS = frozenset(
    f"{kind}_pool{axes}d{suffix}"
    for kind in ("max", "avg", "adaptive_avg", "adaptive_max")
    for axes in (1, 2, 3)
    for suffix in ("", "_with_indices")
) | {"_adaptive_avg_pool2d", "_adaptive_avg_pool3d"}


def channel_axis(shape: Sequence[int]) -> int:
    """Return the feature axis: the second of images (and of heads), else the last."""
    return 1 if len(shape) >= 4 else len(shape) - 1


def elementwise_splits(call: Operation) -> tuple[Split, ...]:
    """Return the split by features, if every input that is read has all of them."""
    axis = channel_axis(call.shape)
    extent = call.shape[axis] if call.shape else 1
    for value in call.batched:
        place = len(value.shape) - len(call.shape) + axis
        if place < 0 or value.shape[place] != extent:
            return ()
    return legal_splits((Mode.CHANNEL, extent))


def pointwise(recorder: Recorder, call: Operation) -> Traced:
    """Element-wise operation of any number of tensors."""
    out = recorder.sample(call.out_elements)
    kind, flops = OperatorKind.ACTIVATION, (out, out)
    if len({value.operator for value in call.batched}) > 1:
        if call.operation.startswith(("add", "sub", "__iadd")):
            kind, flops = OperatorKind.ADD, (out, 0.0)
        elif call.operation.startswith("mul"):
            kind, flops = OperatorKind.MULTIPLY, (out, 2 * out)
    return recorder.pointwise(call, kind, elementwise_splits(call), flops)


def move(recorder: Recorder, call: Operation) -> Traced:
    """Gather, scatter, sort: memory traffic, and an operation an element."""
    table = call.arguments.get("self")
    picks = call.operation in LOOKUPS
    if picks and isinstance(table, Traced) and table.parameters and not table.batched:
        return embedding(recorder, call, table)
    out = recorder.sample(call.out_elements)
    moved = recorder.samples(*call.batched) + out
    return recorder.add(call, OperatorKind.ACTIVATION, flops=(out, out), elements=(moved, moved))


def reduction(recorder: Recorder, call: Operation) -> Traced:
    """Sum, mean or loss over some axes; channels stay apart where they are not summed."""
    read = recorder.samples(*call.batched)
    moved = read + recorder.sample(call.out_elements)
    x = call.batched[0]
    axes = call.arguments.get("dim")
    axis = channel_axis(x.shape)
    splits: tuple[Split, ...] = ()
    if isinstance(axes, list | tuple | int):
        listed = [axes] if isinstance(axes, int) else list(axes)
        if listed and axis not in {one % len(x.shape) for one in listed if isinstance(one, int)}:
            splits = legal_splits((Mode.CHANNEL, x.shape[axis]))
    return recorder.add(
        call, OperatorKind.POOL, flops=(read, read), elements=(moved, 2 * moved), splits=splits
    )


def pool(recorder: Recorder, call: Operation) -> Traced:
    """Pooling over images or sequences."""
    x = call.tensor("self", "input")
    kernel = call.arguments.get("kernel_size")
    window = 1
    if isinstance(kernel, int):
        window = kernel ** (len(x.shape) - 2)
    elif isinstance(kernel, list | tuple) and kernel:
        window = math.prod(kernel) if len(kernel) > 1 else kernel[0] ** (len(x.shape) - 2)
    out = recorder.sample(call.out_elements)
    flops = window * out if kernel else recorder.sample(x.elements)
    traffic = recorder.sample(x.elements) + out
    key = f"Pool2D_{math.isqrt(window)}_{math.isqrt(window)}" if kernel else "AdaptivePool"
    return recorder.add(
        call, OperatorKind.POOL, flops=(flops, flops), elements=(traffic, 2 * traffic),
        splits=legal_splits((Mode.CHANNEL, x.shape[1])), key=key,
    )  # fmt: skip


def norm(recorder: Recorder, call: Operation) -> Traced:
    """Normalisation; statistics of a channel (batch) or group belong to it alone."""
    x = call.tensor("input", "self")
    each = 4.0 if "rms" in call.operation else 8.0
    splits: tuple[Split, ...] = ()
    if "batch_norm" in call.operation or "instance" in call.operation:
        splits = legal_splits((Mode.CHANNEL, x.shape[1]))
    elif "group" in call.operation:
        groups = call.arguments.get("num_groups", call.arguments.get("group", 1))
        splits = legal_splits((Mode.CHANNEL, int(groups)))
    count = recorder.sample(x.elements)
    return recorder.add(
        call, OperatorKind.NORM, flops=(each * count, 2 * each * count),
        elements=(3 * count, 5 * count), splits=splits,
    )  # fmt: skip


def softmax(recorder: Recorder, call: Operation) -> Traced:
    """Softmax, its logarithm, or cross entropy."""
    count = recorder.sample(call.tensor("self", "input").elements)
    return recorder.add(
        call, OperatorKind.SOFTMAX, flops=(5.0 * count, 4.0 * count),
        elements=(2 * count, 3 * count), key="Softmax",
    )  # fmt: skip


def concat(recorder: Recorder, call: Operation) -> Traced:
    """Concatenation or stacking."""
    moved = 2 * recorder.sample(call.out_elements)
    return recorder.add(
        call, OperatorKind.CONCAT, flops=(0.0, 0.0), elements=(moved, moved), key="Concat_1"
    )


def embedding(recorder: Recorder, call: Operation, table: Traced | None = None) -> Traced:
    """Rows of a table by index, one a vector or a bag of them."""
    weight = call.tensor("weight") if table is None else table
    dim = weight.elements // weight.shape[0]
    picked = call.arguments.get("indices")
    listed = picked if isinstance(picked, list | tuple) else [picked]
    rows = sum(value.elements for value in listed if isinstance(value, Traced) and value.batched)
    vectors = call.out_elements // dim
    bag = max(1, rows // vectors)
    each = recorder.sample(vectors * dim)
    return recorder.add(
        call, OperatorKind.EMBEDDING,
        flops=(each * (bag - 1), each * bag), elements=(each * (bag + 1), each * (2 * bag + 1)),
        index_bytes=INDEX_BYTES * bag * each / dim,
        splits=legal_splits((Mode.OUTPUT, dim), (Mode.REDUCTION, weight.shape[0])),
        sparse=True, key=f"Embed_{weight.shape[0]}x{dim}",
    )  # fmt: skip


def convolution(recorder: Recorder, call: Operation) -> Traced:
    """Convolution of any number of axes, ordinary or transposed."""
    x, weight = call.tensor("input"), call.tensor("weight")
    groups = int(call.arguments.get("groups") or 1)
    transposed = "transpose" in call.operation or call.arguments.get("transposed") is True
    outputs = x.elements if transposed else call.out_elements
    flops = 2.0 * recorder.sample(outputs) * math.prod(weight.shape[1:])
    traffic = recorder.samples(x) + recorder.sample(call.out_elements)
    out = call.shape[1]
    mode = (Mode.OUTPUT, out) if groups == 1 else (Mode.CHANNEL, groups)
    window = "_".join(str(extent) for extent in weight.shape[2:])
    return recorder.add(
        call, OperatorKind.CONV2D, flops=(flops, 2 * flops), elements=(traffic, 2 * traffic),
        splits=legal_splits(mode), key=f"Conv{len(weight.shape) - 2}D_{window}_{out}",
        weights=None if weight.batched else weight,
    )  # fmt: skip


def contraction(
    recorder: Recorder,
    call: Operation,
    first: tuple[Traced, str],
    second: tuple[Traced, str],
    out: str,
) -> Traced:
    """Product of two tensors over the letters of their axes that the output lacks.

    A letter that only the weights and the output have may be split as output, one that is
    summed as reduction, one that all three have (experts, heads) as channels.
    """
    extents: dict[str, int] = {}
    for value, letters in (first, second):
        for letter, extent in zip(letters, value.shape, strict=True):
            extents[letter] = max(extent, extents.get(letter, 1))
    flops = 2.0 * recorder.sample(math.prod(extents.values()))
    weight = next((one for one in (first, second) if not one[0].batched), None)
    data = [one for one in (first, second) if one is not weight]
    traffic = recorder.samples(*(value for value, _ in data)) + recorder.sample(call.out_elements)
    splits: list[tuple[Mode, int]] = []
    key = ""
    # The batch is no feature.
    free = [letter for letter in extents if extents[letter] % recorder.batch]
    shared = [one for one in free if one in first[1] and one in second[1]]
    channels = [extents[one] for one in shared if one in out]
    if weight is not None:
        outs = [extents[one] for one in free if one in weight[1] and one not in data[0][1]]
        summed = [extents[one] for one in shared if one not in out]
        if channels:
            splits.append((Mode.CHANNEL, max(channels)))
        else:
            splits += [
                (Mode.OUTPUT, max(outs, default=1)),
                (Mode.REDUCTION, max(summed, default=1)),
            ]
            key = f"Dense_{math.prod(summed)}_{math.prod(outs)}"
    elif channels:
        splits.append((Mode.CHANNEL, channels[0]))
    return recorder.add(
        call, OperatorKind.DENSE, flops=(flops, 2 * flops), elements=(traffic, 2 * traffic),
        splits=legal_splits(*splits), key=key, weights=None if weight is None else weight[0],
    )  # fmt: skip


def linear(recorder: Recorder, call: Operation) -> Traced:
    """Dense layer: ``input @ weight.T + bias``."""
    x, weight = call.tensor("input"), call.tensor("weight")
    axes = _letters(len(x.shape) - 1)
    return contraction(recorder, call, (x, f"{axes}k"), (weight, "nk"), f"{axes}n")


def matmul(recorder: Recorder, call: Operation) -> Traced:
    """Matrix products of all spellings, with broadcasting of leading axes."""
    if call.operation in ("addmm", "baddbmm", "addmv"):
        a, b = call.tensor("mat1", "batch1", "mat"), call.tensor("mat2", "batch2", "vec")
    else:
        a, b = call.tensor("self", "input"), call.tensor("other", "mat2", "vec", "tensor")
    wide = max(len(a.shape), len(b.shape)) - 2
    axes = _letters(max(wide, 0))

    def letters(value: Traced, last: str) -> str:
        lead = len(value.shape) - len(last)
        return axes[len(axes) - lead :] + last if lead > 0 else last[-len(value.shape) :]

    left = letters(a, "mk" if len(a.shape) > 1 else "k")
    right = letters(b, "kn" if len(b.shape) > 1 else "k")
    out = axes + ("m" if "m" in left else "") + ("n" if "n" in right else "")
    return contraction(recorder, call, (a, left), (b, right), out)


def einsum(recorder: Recorder, call: Operation) -> Traced | None:
    """Einstein summation of two tensors; of one it is a reduction; of more it is not known."""
    equation = call.arguments.get("equation")
    operands = list(call.values())
    if not isinstance(equation, str) or "." in equation or len(operands) > 2:
        return None
    spelled = equation.replace(" ", "").split("->")
    terms = spelled[0].split(",")
    if len(operands) == 1:
        return reduction(recorder, call)
    if len(spelled) > 1:
        out = spelled[1]
    else:
        joined = "".join(terms)
        out = "".join(sorted(one for one in set(joined) if joined.count(one) == 1))
    return contraction(recorder, call, (operands[0], terms[0]), (operands[1], terms[1]), out)


def attention(recorder: Recorder, call: Operation) -> Traced:
    """Scores, softmax and weighted sum, fused; a causal mask leaves half of the scores.

    Heads are slices of queries, keys and values as well as of the output.
    """
    query, key, value = (call.tensor(name) for name in ("query", "key", "value"))
    scores = recorder.sample(query.elements // query.shape[-1] * key.shape[-2])
    half = 0.5 if call.arguments.get("is_causal") is True else 1.0
    flops = half * scores * (2.0 * query.shape[-1] + 2.0 * value.shape[-1] + 5.0)
    traffic = recorder.samples(query, key, value) + recorder.sample(call.out_elements)
    heads = key.shape[1] if len(key.shape) == 4 else 1
    mask = "causal" if half < 1 else "full"
    return recorder.add(
        call, OperatorKind.ATTENTION, flops=(flops, 2 * flops), elements=(traffic, 2 * traffic),
        splits=legal_splits((Mode.CHANNEL, heads)),
        key=f"CoreAttention_{query.shape[1]}_{heads}_{query.shape[-1]}_{value.shape[-1]}_{mask}",
    )  # fmt: skip


def _letters(count: int) -> str:
    return "abcdefghij"[:count]


RULES: dict[str, Rule] = {
    "linear": linear,
    "scaled_dot_product_attention": attention,
    "embedding": embedding,
    "embedding_bag": embedding,
    "_embedding_bag": embedding,
    **dict.fromkeys(("cat", "concat", "stack", "hstack", "vstack"), concat),
    **dict.fromkeys(
        ("softmax", "_softmax", "log_softmax", "_log_softmax", "cross_entropy_loss"), softmax
    ),
    **dict.fromkeys(
        ("matmul", "mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addmv", "linalg_matmul"), matmul
    ),
    **dict.fromkeys(
        (
            "conv1d", "conv2d", "conv3d", "convolution", "conv_transpose1d", "conv_transpose2d",
            "conv_transpose3d",
        ),
        convolution,
    ),
    **dict.fromkeys(NORMS, norm),
    **dict.fromkeys(POOLS, pool),
    **dict.fromkeys(REDUCTIONS, reduction),
    **dict.fromkeys(POINTWISE, pointwise),
    **dict.fromkeys(MOVES, move),
    "index": move,
    "index_select": move,
}  # fmt: skip
