"""The schema of a user's model file: one pydantic class an operator kind.

Imported by `parallelism.model_file` alone, when a file is read: pydantic is slow to import.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from codesign_base import InputError
from codesign_base.counted import counted
from parallelism.graph import Mode, OperatorKind, Split
from parallelism.operators import elementwise, layers
from parallelism.operators.builder import GraphBuilder
from parallelism.operators.shapes import LARGEST, Tensor

_Count = Annotated[int, Field(strict=True, ge=1, le=LARGEST)]
CountOrZero = Annotated[int, Field(strict=True, ge=0, le=LARGEST)]
_Amount = Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False)]
_Name = Annotated[str, Field(strict=True, min_length=1, max_length=200)]
Flag = Annotated[bool, Field(strict=True)]
_Shape = Annotated[tuple[_Count, ...], Field(min_length=1, max_length=3)]


def _width(value: object) -> object:
    # Of equal values Literal takes all: True and 1.0 for 1. Long numbers it cannot read.
    if type(value) is not int or value not in (1, 2, 4, 8):
        raise PydanticCustomError("not_a_width", "input should be 1, 2, 4 or 8")
    return value


class Strict(BaseModel):
    """A part of the file in which an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class OperatorSpec(Strict):
    """What every operator has: a unique name, its inputs, and where profiles list it."""

    name: _Name
    inputs: tuple[_Name, ...] = ()
    profile_key: Annotated[str, Field(strict=True)] | None = None


class DenseSpec(OperatorSpec):
    """Fully connected layer; ``in_features`` is optional and checked against the input."""

    kind: Literal["dense"]
    out_features: _Count
    in_features: _Count | None = None
    bias: Flag = True


class WindowSpec(OperatorSpec):
    """A square window sliding over an image."""

    kernel: _Count
    stride: _Count = 1
    padding: CountOrZero = 0


class Conv2dSpec(WindowSpec):
    """Convolution; ``in_channels`` is optional and checked against the input."""

    kind: Literal["conv2d"]
    out_channels: _Count
    in_channels: _Count | None = None
    bias: Flag = True


class PoolSpec(WindowSpec):
    """Maximum or average pooling."""

    kind: Literal["pool"]


class EmbeddingSpec(OperatorSpec):
    """Embedding table; its indices are a model input that is not listed."""

    kind: Literal["embedding"]
    rows: _Count
    dim: _Count
    bag: _Count = 1
    positions: _Count = 1


class AttentionSpec(OperatorSpec):
    """Attention; inputs are the query and, where it differs, the context."""

    kind: Literal["attention"]
    heads: _Count
    bias: Flag = False


class PlainSpec(OperatorSpec):
    """Operators that need no number of their own."""

    kind: Literal[
        "concat", "add", "multiply", "activation", "flatten", "softmax", "batch_norm", "layer_norm"
    ]


class SplitSpec(Strict):
    """A legal split and the extent that its degree must divide."""

    mode: Literal["output", "reduction", "heads", "channel"]
    extent: _Count


class CustomSpec(OperatorSpec):
    """An operator given by its counts, all per sample except ``parameters``."""

    kind: Literal["custom"]
    behaves_as: OperatorKind = OperatorKind.ACTIVATION
    output_shape: _Shape
    forward_flops: _Amount
    backward_flops: _Amount
    forward_bytes: _Amount
    backward_bytes: _Amount
    parameters: CountOrZero = 0
    splits: tuple[SplitSpec, ...] = ()
    sparse: Flag = False


AnySpec = Annotated[
    DenseSpec | Conv2dSpec | PoolSpec | EmbeddingSpec | AttentionSpec | PlainSpec | CustomSpec,
    Field(discriminator="kind"),
]


class ModelSpec(Strict):
    """The whole file."""

    name: _Name
    batch_per_gpu: _Count
    element_bytes: Annotated[Literal[1, 2, 4, 8], BeforeValidator(_width)] = 4
    inputs: dict[_Name, _Shape] = Field(default_factory=dict)
    operators: Annotated[tuple[AnySpec, ...], Field(min_length=1)]


_UNARY = {
    "activation": elementwise.activation,
    "flatten": elementwise.flatten,
    "softmax": elementwise.softmax,
    "batch_norm": layers.batch_norm,
    "layer_norm": layers.layer_norm,
}
_JOINING = {
    "concat": elementwise.concat,
    "add": elementwise.add,
    "multiply": elementwise.multiply,
}


def append_operator(build: GraphBuilder, spec: AnySpec, inputs: list[Tensor]) -> Tensor:
    """Append one operator of a model file to a graph under construction.

    Raises
    ------
    InputError
        If the number or shapes of the inputs do not fit the operator.
    """
    if isinstance(spec, CustomSpec):
        return _custom(build, spec, inputs)
    if isinstance(spec, EmbeddingSpec):
        _expect(spec, inputs, 0, 0)
        return layers.embedding(
            build, spec.name, spec.rows, spec.dim, bag=spec.bag, positions=spec.positions
        )
    if isinstance(spec, AttentionSpec):
        _expect(spec, inputs, 1, 2)
        return layers.attention(build, spec.name, *inputs, heads=spec.heads, bias=spec.bias)
    if isinstance(spec, PlainSpec) and spec.kind in _JOINING:
        return _JOINING[spec.kind](build, spec.name, inputs)
    _expect(spec, inputs, 1, 1)
    x = inputs[0]
    if isinstance(spec, DenseSpec):
        _agree(spec, "in_features", spec.in_features, x.shape[-1])
        return layers.dense(build, spec.name, x, spec.out_features, bias=spec.bias)
    if isinstance(spec, Conv2dSpec):
        _agree(spec, "in_channels", spec.in_channels, x.shape[0])
        return layers.conv2d(
            build, spec.name, x, spec.out_channels, spec.kernel,
            stride=spec.stride, padding=spec.padding, bias=spec.bias,
        )  # fmt: skip
    if isinstance(spec, PoolSpec):
        return elementwise.pool(
            build, spec.name, x, spec.kernel, stride=spec.stride, padding=spec.padding
        )
    return _UNARY[spec.kind](build, spec.name, x)


def _custom(build: GraphBuilder, spec: CustomSpec, inputs: list[Tensor]) -> Tensor:
    modes = [Mode[split.mode.upper()] for split in spec.splits]
    if len(set(modes)) < len(modes):
        raise InputError(f"operator {spec.name!r}: a split mode occurs twice; keep one")
    made = build.append(
        spec.name,
        spec.behaves_as,
        inputs,
        spec.output_shape,
        flops=(spec.forward_flops, spec.backward_flops),
        byte_counts=(spec.forward_bytes, spec.backward_bytes),
        parameters=spec.parameters,
        splits=tuple(
            Split(mode, split.extent) for mode, split in zip(modes, spec.splits, strict=True)
        ),
        sparse=spec.sparse,
    )
    for mode, split in zip(modes, spec.splits, strict=True):
        if mode.slices_output and made.channels % split.extent:
            raise InputError(
                f"operator {spec.name!r}: the extent {split.extent} of split {split.mode!r} does "
                f"not divide the {counted(made.channels, 'feature')} of the output, "
                f"{list(spec.output_shape)}; give their number or a divisor of it"
            )
    return made


def _expect(spec: OperatorSpec, inputs: list[Tensor], least: int, most: int) -> None:
    if not least <= len(inputs) <= most:
        takes = f"{least}" if least == most else f"{least} or {most}"
        raise InputError(
            f"operator {spec.name!r} has {counted(len(inputs), 'input')}; its kind takes {takes}"
        )


def _agree(spec: OperatorSpec, field: str, given: int | None, found: int) -> None:
    if given is not None and given != found:
        raise InputError(
            f"operator {spec.name!r}: {field} is {given}, but its input has {found}; "
            "leave the field out or correct the input"
        )
