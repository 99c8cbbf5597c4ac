"""Operators with weights: dense, convolution, embedding, attention, normalisation."""

from codesign_base import InputError
from codesign_base.arguments import of_python_numbers
from codesign_base.counted import counted
from parallelism.graph import Mode, OperatorKind, Split
from parallelism.operators.builder import INDEX_BYTES, GraphBuilder, legal_splits
from parallelism.operators.shapes import Tensor, check_counts, windows


@of_python_numbers
def dense(
    build: GraphBuilder,
    name: str,
    x: Tensor,
    out: int,
    *,
    bias: bool = True,
    first_only: bool = False,
) -> Tensor:
    """Fully connected layer over the last axis, activation fused.

    Parameters
    ----------
    build : GraphBuilder
    name : str
    x : Tensor
        ``(features,)`` or ``(positions, features)``.
    out : int
        Output features.
    bias : bool, optional
    first_only : bool, optional
        Use the first position alone (the pooler of BERT); the output has no positions.
    """
    where = f"dense {name!r}"
    check_counts(where, out_features=out)
    if len(x.shape) == 3:
        raise InputError(f"{where}: input {list(x.shape)} is an image; flatten it first")
    width = x.shape[-1]
    positions = 1 if first_only else x.positions
    shape = (out,) if first_only else (*x.shape[:-1], out)
    flops = 2.0 * positions * width * out
    traffic = positions * (width + out)
    return build.append(
        name,
        OperatorKind.DENSE,
        [x],
        shape,
        flops=(flops, 2 * flops),
        elements=(traffic, 2 * traffic),
        parameters=width * out + (out if bias else 0),
        splits=legal_splits((Mode.OUTPUT, out), (Mode.REDUCTION, width)),
        profile_key=f"Dense_{width}_{out}",
    )


@of_python_numbers
def conv2d(
    build: GraphBuilder,
    name: str,
    x: Tensor,
    out: int,
    kernel: int,
    *,
    stride: int = 1,
    padding: int = 0,
    bias: bool = True,
) -> Tensor:
    """Two-dimensional convolution with a square kernel, activation fused.

    Parameters
    ----------
    build : GraphBuilder
    name : str
    x : Tensor
        ``(channels, height, width)``.
    out : int
        Output channels.
    kernel, stride, padding : int
        As in `windows`.
    bias : bool, optional
    """
    where = f"conv2d {name!r}"
    check_counts(where, out_channels=out)
    channels, shape = x.channels, (out, *windows(where, x, kernel, stride, padding))
    pixels = shape[1] * shape[2]
    flops = 2.0 * kernel * kernel * channels * out * pixels
    traffic = x.elements + out * pixels
    return build.append(
        name,
        OperatorKind.CONV2D,
        [x],
        shape,
        flops=(flops, 2 * flops),
        elements=(traffic, 2 * traffic),
        parameters=kernel * kernel * channels * out + (out if bias else 0),
        splits=legal_splits((Mode.OUTPUT, out)),
        profile_key=f"Conv2D_{kernel}_{kernel}_{out}",
    )


@of_python_numbers
def embedding(
    build: GraphBuilder,
    name: str,
    rows: int,
    dim: int,
    *,
    bag: int = 1,
    positions: int = 1,
    profile_key: str | None = None,
) -> Tensor:
    """Embedding table whose indices are a model input.

    Parameters
    ----------
    build : GraphBuilder
    name : str
    rows, dim : int
        Extents of the table.
    bag : int, optional
        Rows summed into one output vector.
    positions : int, optional
        Output vectors of one sample; more than one makes the output
        ``(positions, dim)``.
    profile_key : str, optional
        Name in published profiles, by default that of its rows and columns.
    """
    check_counts(f"embedding {name!r}", rows=rows, dim=dim, bag=bag, positions=positions)
    vectors = positions * dim
    adds = float(vectors * (bag - 1))
    indices = float(INDEX_BYTES * bag * positions)
    return build.append(
        name,
        OperatorKind.EMBEDDING,
        [],
        (dim,) if positions == 1 else (positions, dim),
        flops=(adds, float(vectors * bag)),
        elements=(vectors * (bag + 1), vectors * (2 * bag + 1)),
        parameters=rows * dim,
        byte_counts=(indices, indices),
        splits=legal_splits((Mode.OUTPUT, dim), (Mode.REDUCTION, rows)),
        sparse=True,
        profile_key=profile_key or f"Embed_{rows}x{dim}",
    )


@of_python_numbers
def attention(
    build: GraphBuilder,
    name: str,
    query: Tensor,
    context: Tensor | None = None,
    *,
    heads: int,
    bias: bool = False,
) -> Tensor:
    """Multi-head attention with its four square projections.

    Parameters
    ----------
    build : GraphBuilder
    name : str
    query : Tensor
        ``(positions, features)``.
    context : Tensor, optional
        Keys and values, ``(positions, features)``; the query itself by default.
    heads : int
    bias : bool, optional
        Whether the projections have biases.

    Notes
    -----
    The score matrices are counted as written to memory, as unfused kernels do.
    """
    where = f"attention {name!r}"
    keys = query if context is None else context
    check_counts(where, heads=heads)
    if len(query.shape) != 2 or len(keys.shape) != 2 or query.shape[1] != keys.shape[1]:
        raise InputError(
            f"{where}: inputs {list(query.shape)} and {list(keys.shape)}; "
            "give [positions, features] twice with the same features"
        )
    s, width = query.shape
    t = keys.shape[0]
    if width % heads:
        raise InputError(
            f"{where}: {heads} heads do not divide {counted(width, 'feature')}; choose a divisor"
        )
    scores = heads * s * t
    flops = 2.0 * width * width * (2 * s + 2 * t) + 4.0 * s * t * width + 5.0 * scores
    # Projections, then the two batched products and the softmax between them.
    traffic = 2 * width * (2 * s + 2 * t) + 2 * width * (s + t) + 4 * scores
    return build.append(
        name,
        OperatorKind.ATTENTION,
        [query, keys],
        (s, width),
        flops=(flops, 2 * flops),
        elements=(traffic, 2 * traffic),
        parameters=4 * width * width + (4 * width if bias else 0),
        splits=legal_splits((Mode.HEADS, heads)),
        profile_key=f"MultiHeadAttention_{width}{heads}",
    )


def batch_norm(build: GraphBuilder, name: str, x: Tensor) -> Tensor:
    """Batch normalisation with scale and shift a channel, statistics per replica.

    Statistics belong to one channel each, so a split by channels changes nothing.
    """
    return _norm(build, name, x, legal_splits((Mode.CHANNEL, x.channels)))


def layer_norm(build: GraphBuilder, name: str, x: Tensor) -> Tensor:
    """Layer normalisation with scale and shift a feature."""
    return _norm(build, name, x, ())


def rms_norm(build: GraphBuilder, name: str, x: Tensor) -> Tensor:
    """Root-mean-square normalisation with a scale a feature: no mean is taken, none added."""
    return _norm(build, name, x, (), vectors=1)


def _norm(
    build: GraphBuilder, name: str, x: Tensor, splits: tuple[Split, ...], vectors: int = 2
) -> Tensor:
    # One read for the statistics and one for the result; the gradient needs both again.
    flops = 4.0 * vectors * x.elements
    return build.append(
        name,
        OperatorKind.NORM,
        [x],
        x.shape,
        flops=(flops, 2 * flops),
        elements=(3 * x.elements, 5 * x.elements),
        parameters=vectors * x.channels,
        splits=splits,
    )
