"""Operators without weights: element-wise, pooling, concatenation, flattening, softmax."""

from collections.abc import Sequence

from codesign_base import InputError
from codesign_base.arguments import of_python_numbers
from codesign_base.counted import counted
from parallelism.graph import Mode, OperatorKind, Split
from parallelism.operators.builder import GraphBuilder, legal_splits
from parallelism.operators.shapes import Tensor, windows


@of_python_numbers
def pool(
    build: GraphBuilder, name: str, x: Tensor, kernel: int, *, stride: int = 1, padding: int = 0
) -> Tensor:
    """Maximum or average pooling with a square window.

    Parameters
    ----------
    build : GraphBuilder
    name : str
    x : Tensor
        ``(channels, height, width)``.
    kernel, stride, padding : int
        As in `windows`.
    """
    where = f"pool {name!r}"
    channels, shape = x.channels, (x.channels, *windows(where, x, kernel, stride, padding))
    outputs = channels * shape[1] * shape[2]
    flops = float(kernel * kernel * outputs)
    traffic = x.elements + outputs
    return build.append(
        name,
        OperatorKind.POOL,
        [x],
        shape,
        flops=(flops, flops),
        elements=(traffic, 2 * traffic),
        splits=legal_splits((Mode.CHANNEL, channels)),
        profile_key=f"Pool2D_{kernel}_{kernel}",
    )


def concat(build: GraphBuilder, name: str, tensors: Sequence[Tensor]) -> Tensor:
    """Concatenation along the feature axis; model inputs count as standing last.

    The features of the operators' outputs lie side by side from the first feature on, in the
    order given, so that an operator graph alone says which input owns which features. A slice of
    them needs slices of some of the inputs only (`ModelGraph.inputs_side_by_side`).
    """
    _check_distinct(f"concat {name!r}", tensors)
    axis = 0 if len(tensors[0].shape) == 3 else len(tensors[0].shape) - 1
    rest = {(*t.shape[:axis], *t.shape[axis + 1 :]) for t in tensors}
    if len(rest) > 1 or any(len(t.shape) != len(tensors[0].shape) for t in tensors):
        raise InputError(
            f"concat {name!r}: inputs of shapes {[list(t.shape) for t in tensors]} differ "
            "outside the feature axis; make them equal there"
        )
    shape = list(tensors[0].shape)
    shape[axis] = sum(t.shape[axis] for t in tensors)
    moved = 2 * sum(t.elements for t in tensors)
    return build.append(
        name,
        OperatorKind.CONCAT,
        tensors,
        shape,
        elements=(moved, moved),
        splits=legal_splits((Mode.CHANNEL, shape[axis])),
        profile_key="Concat_1",
    )


def add(build: GraphBuilder, name: str, tensors: Sequence[Tensor]) -> Tensor:
    """Element-wise sum; backward copies the gradient to every input."""
    x = _equal_shapes(f"add {name!r}", tensors)
    moved = (len(tensors) + 1) * x.elements
    return build.append(
        name,
        OperatorKind.ADD,
        tensors,
        x.shape,
        flops=(float((len(tensors) - 1) * x.elements), 0.0),
        elements=(moved, moved),
        splits=legal_splits((Mode.CHANNEL, x.channels)),
        profile_key="ElementBinary_31",
    )


def multiply(build: GraphBuilder, name: str, tensors: Sequence[Tensor]) -> Tensor:
    """Element-wise product of two tensors."""
    x = _equal_shapes(f"multiply {name!r}", tensors)
    if len(tensors) != 2:
        raise InputError(f"multiply {name!r}: {counted(len(tensors), 'input')}; give 2")
    return build.append(
        name,
        OperatorKind.MULTIPLY,
        tensors,
        x.shape,
        flops=(float(x.elements), 2.0 * x.elements),
        elements=(3 * x.elements, 5 * x.elements),
        splits=legal_splits((Mode.CHANNEL, x.channels)),
        profile_key="ElementBinary_32",
    )


def activation(build: GraphBuilder, name: str, x: Tensor) -> Tensor:
    """Element-wise non-linearity as an operator of its own."""
    return build.append(
        name,
        OperatorKind.ACTIVATION,
        [x],
        x.shape,
        flops=(float(x.elements), float(x.elements)),
        elements=(2 * x.elements, 3 * x.elements),
        splits=legal_splits((Mode.CHANNEL, x.channels)),
        profile_key="ElementUnary_13",
    )


def flatten(build: GraphBuilder, name: str, x: Tensor) -> Tensor:
    """Flatten to a vector, channel by channel; counted as the copy that it was measured as."""
    image = len(x.shape) == 3
    return build.append(
        name,
        OperatorKind.FLATTEN,
        [x],
        (x.elements,),
        elements=(2 * x.elements, 2 * x.elements),
        splits=legal_splits((Mode.CHANNEL, x.channels)) if image else (),
        profile_key="Flat",
    )


def softmax(build: GraphBuilder, name: str, x: Tensor) -> Tensor:
    """Softmax over the last axis."""
    return _softmax(build, name, x, ())


def softmax_split(build: GraphBuilder, name: str, x: Tensor) -> Tensor:
    """Softmax and cross entropy, which may be split over classes.

    Parts exchange a maximum and a sum a position, too little to count.
    """
    return _softmax(build, name, x, legal_splits((Mode.CHANNEL, x.channels)))


def _softmax(build: GraphBuilder, name: str, x: Tensor, splits: tuple[Split, ...]) -> Tensor:
    return build.append(
        name,
        OperatorKind.SOFTMAX,
        [x],
        x.shape,
        flops=(5.0 * x.elements, 4.0 * x.elements),
        elements=(2 * x.elements, 3 * x.elements),
        splits=splits,
        profile_key="Softmax",
    )


def _check_distinct(where: str, tensors: Sequence[Tensor]) -> None:
    if len(tensors) < 2:
        raise InputError(f"{where}: {counted(len(tensors), 'input')}; give at least 2")
    made = [t.operator for t in tensors if t.operator is not None]
    if len(set(made)) < len(made):
        raise InputError(f"{where}: an input occurs twice; give distinct inputs")


def _equal_shapes(where: str, tensors: Sequence[Tensor]) -> Tensor:
    _check_distinct(where, tensors)
    if any(t.shape != tensors[0].shape for t in tensors):
        raise InputError(
            f"{where}: inputs have different shapes {[list(t.shape) for t in tensors]}; "
            "make them equal"
        )
    return tensors[0]
