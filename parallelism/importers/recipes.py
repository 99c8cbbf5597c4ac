"""PyTorch work with the shapes of an operator, to be timed in its place.

An operator's kind, shapes and name say what to run. Where they do not say enough (operators of a
model file given by counts, convolutions that are not square) a matrix product of the same FLOPs
and a copy of the same bytes stand for it.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from codesign_base import InputError
from codesign_base.counted import counted
from parallelism.graph import Mode, ModelGraph, Operator, OperatorKind

# Tables are cut to this many bytes: large enough that rows come from memory, not from a cache.
MOST_TABLE_BYTES = 2**30
# What takes more is no element-wise operator, whatever it is shown as.
_MOST_FLOPS_AN_ELEMENT = 32


@dataclass(frozen=True)
class OperatorPart:
    """What one GPU runs of an operator.

    Parameters
    ----------
    op : Operator
    inputs : tuple of tuple of int
        Output shapes of the operators that it reads.
    samples : int
    mode : Mode
    parts : int
        Parameter parts that the operator is split into; this is one of them.
    element_bytes : int
    """

    op: Operator
    inputs: tuple[tuple[int, ...], ...]
    samples: int
    mode: Mode = Mode.OUTPUT
    parts: int = 1
    element_bytes: int = 4

    def cut(self, extent: int, *modes: Mode) -> int:
        """Return an extent, divided if the operator is split in one of these modes."""
        return max(1, extent // self.parts) if self.mode in modes else extent


@dataclass(frozen=True)
class Runnable:
    """A forward pass that can be run again and again.

    Parameters
    ----------
    forward : callable
        Returns a tensor to differentiate.
    tensors : list of tensor
        Inputs and weights.
    exact : bool
        False where counts stand for shapes.
    """

    forward: Callable[[], Any]
    tensors: list[Any]
    exact: bool = True


def part_of(
    graph: ModelGraph, index: int, samples: int, mode: Mode = Mode.OUTPUT, parts: int = 1
) -> OperatorPart:
    """Return the part of an operator of a graph."""
    op = graph.operators[index]
    inputs = tuple(graph.operators[source].output_shape for source in op.inputs)
    return OperatorPart(op, inputs, samples, mode, parts, graph.element_bytes)


class Workshop:
    """Makes tensors of one device and number format, and work of them.

    Parameters
    ----------
    torch : module
    device : str
    element_bytes : int
        2: BF16, 4: FP32, 8: FP64.

    Raises
    ------
    InputError
        For any other width.
    """

    def __init__(self, torch: Any, device: str, element_bytes: int) -> None:
        formats = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}
        if element_bytes not in formats:
            raise InputError(
                f"profile: elements of {counted(element_bytes, 'byte')} cannot be timed; give 2, 4 "
                "or 8"
            )
        self.torch = torch
        self.device = device
        self.element_bytes = element_bytes
        self.dtype = formats[element_bytes]

    def tensor(self, *shape: int) -> Any:
        """Return random numbers that take gradients."""
        made = self.torch.randn(shape, dtype=self.dtype, device=self.device) * 0.02
        return made.requires_grad_()

    def work(self, part: OperatorPart) -> Runnable:
        """Return the work of one part of an operator."""
        recipe = _RECIPES.get(part.op.kind, Workshop.by_counts)
        return recipe(self, part) or self.by_counts(part)

    def without_memory(self) -> "Workshop":
        """Return a workshop whose tensors have shapes only."""
        return Workshop(self.torch, "meta", self.element_bytes)

    def held_bytes(self, part: OperatorPart) -> float:
        """Return the bytes of a part's tensors and their gradients."""
        tensors = self.work(part).tensors
        return 2.0 * float(sum(tensor.numel() * tensor.element_size() for tensor in tensors))

    def by_counts(self, part: OperatorPart) -> Runnable:
        """Return a product of the part's FLOPs and a copy of its bytes."""
        share = part.samples / part.parts
        side = max(1, round((part.op.forward_flops * share / 2) ** (1 / 3)))
        moved = max(1, round(part.op.forward_bytes * share / part.element_bytes / 2))
        a, b, x = self.tensor(side, side), self.tensor(side, side), self.tensor(moved)
        return Runnable(lambda: (a @ b).sum() + (x * 2.0).sum(), [a, b, x], exact=False)

    def dense(self, part: OperatorPart) -> Runnable | None:
        """Return a dense layer, a gated one, or experts."""
        op = part.op
        key = op.profile_key
        if numbers := _numbers("Experts", key, 5):
            return self._experts(part, *numbers)
        outs = op.output_shape[-1]
        rows = part.samples * op.output_elements // outs
        if numbers := _numbers("GatedDense", key, 2):
            width = numbers[0]
        elif numbers := _numbers("Dense", key, 2):
            # Of a product over several axes only the counts are known.
            width, named = numbers
            if named != outs:
                return None
        else:
            width = round(op.forward_flops * part.samples / (2 * rows * outs))
        width, outs = part.cut(width, Mode.REDUCTION), part.cut(outs, Mode.OUTPUT, Mode.CHANNEL)
        if width < 1:
            return None
        x, weight = self.tensor(rows, width), self.tensor(outs, width)
        linear = self.torch.nn.functional.linear
        if not key.startswith("GatedDense"):
            return Runnable(lambda: linear(x, weight), [x, weight])
        gate = self.tensor(outs, width)
        silu = self.torch.nn.functional.silu
        return Runnable(lambda: silu(linear(x, gate)) * linear(x, weight), [x, weight, gate])

    def _experts(
        self, part: OperatorPart, hidden: int, width: int, matrices: int, chosen: int, count: int
    ) -> Runnable:
        """Return all experts of a part, each with an equal share of the tokens."""
        tokens = part.samples * part.op.output_elements // hidden
        each = max(1, tokens * chosen // count)
        here = part.cut(count, Mode.HEADS)
        x, up = self.tensor(tokens, hidden), self.tensor(here, hidden, width)
        down = self.tensor(here, width, hidden)
        gates = [self.tensor(here, hidden, width)] if matrices == 3 else []
        picked = self.torch.arange(here * each, device=self.device) % tokens
        silu, bmm = self.torch.nn.functional.silu, self.torch.bmm

        def forward() -> Any:
            taken = x[picked].view(here, each, hidden)
            inner = bmm(taken, up)
            inner = silu(bmm(taken, gates[0])) * inner if gates else silu(inner)
            made = bmm(inner, down).view(here * each, hidden)
            return self.torch.zeros_like(x).index_add(0, picked, made)

        return Runnable(forward, [x, up, down, *gates])

    def convolution(self, part: OperatorPart) -> Runnable | None:
        """Return a square convolution whose input has just the size that the output needs."""
        op = part.op
        found = re.fullmatch(r"Conv2D_(\d{1,15})_(\d{1,15})_(\d{1,15})", op.profile_key)
        if found is None or found[1] != found[2] or len(op.output_shape) != 3:
            return None
        kernel = int(found[1])
        outs, rows, columns = op.output_shape
        inner = round(op.forward_flops / (2 * kernel * kernel * op.output_elements))
        channels = part.inputs[0][0] if part.inputs and len(part.inputs[0]) == 3 else inner
        groups = max(1, channels // max(1, inner))
        read = op.forward_bytes / part.element_bytes - op.output_elements
        stride = max(1, round(math.sqrt(max(1.0, read / channels) / (rows * columns))))
        outs = part.cut(outs, Mode.OUTPUT, Mode.CHANNEL)
        if part.mode is Mode.CHANNEL:
            groups, channels = part.cut(groups, Mode.CHANNEL), part.cut(channels, Mode.CHANNEL)
        if channels % groups or outs % groups:
            return None
        sides = [(extent - 1) * stride + kernel for extent in (rows, columns)]
        x = self.tensor(part.samples, channels, *sides)
        weight = self.tensor(outs, channels // groups, kernel, kernel)
        conv2d = self.torch.nn.functional.conv2d
        return Runnable(lambda: conv2d(x, weight, stride=stride, groups=groups), [x, weight])

    def embedding(self, part: OperatorPart) -> Runnable | None:
        """Return lookups of random rows, summed in bags."""
        found = re.fullmatch(r"(Embed|Lookup)_(\d{1,15})x(\d{1,15})", part.op.profile_key)
        if found is None:
            return None
        rows, dim = int(found[2]), int(found[3])
        vectors = part.samples * part.op.output_elements // dim
        # The backward pass adds every row that was read.
        bag = max(1, round(part.op.forward_flops * part.samples / (vectors * dim)) + 1)
        rows, dim = part.cut(rows, Mode.REDUCTION), part.cut(dim, Mode.OUTPUT)
        bag = part.cut(bag, Mode.REDUCTION)
        held = min(rows, max(1, MOST_TABLE_BYTES // (dim * part.element_bytes)))
        # What the rows hold does not matter, and random numbers take long for large tables.
        table = self.torch.full(
            (held, dim), 0.01, dtype=self.dtype, device=self.device, requires_grad=True
        )
        picked = self.torch.randint(held, (vectors, bag), device=self.device)
        look_up = self.torch.nn.functional.embedding_bag
        return Runnable(
            lambda: look_up(picked, table, mode="sum", sparse=True), [table], exact=held == rows
        )

    def attention(self, part: OperatorPart) -> Runnable | None:
        """Return attention with its projections, or its core alone."""
        op, key = part.op, part.op.profile_key
        mask = key.endswith("_causal")
        bare = key.removesuffix("_causal").removesuffix("_full")
        if numbers := _numbers("CoreAttention", bare, 4):
            heads, kv, width, value = numbers
            tokens = op.output_elements // (heads * value)
            heads, kv = part.cut(heads, Mode.CHANNEL), part.cut(kv, Mode.CHANNEL)
            q = self.tensor(part.samples, heads, tokens, width)
            k = self.tensor(part.samples, kv, tokens, width)
            v = self.tensor(part.samples, kv, tokens, value)
            return Runnable(lambda: self._core(q, k, v, mask), [q, k, v])
        tokens, hidden = op.output_shape
        if numbers := _numbers("GroupedAttention", bare, 7):
            query_in, kv_in, heads, kv, width, rope, value = numbers
            context = tokens
        elif key.startswith("MultiHeadAttention"):
            split = op.split(Mode.HEADS)
            heads = kv = split.extent if split else 1
            query_in, kv_in, rope = hidden, hidden, 0
            width = value = hidden // heads
            context = part.inputs[-1][0] if part.inputs else tokens
        else:
            return None
        heads, kv = part.cut(heads, Mode.HEADS), part.cut(kv, Mode.HEADS)
        n = part.samples
        x, y = self.tensor(n, tokens, query_in), self.tensor(n, context, kv_in)
        wq = self.tensor(heads * (width + rope), query_in)
        wk, wv = self.tensor(kv * width, kv_in), self.tensor(kv * value, kv_in)
        wo = self.tensor(hidden, heads * value)
        linear = self.torch.nn.functional.linear

        def forward() -> Any:
            q = linear(x, wq).view(n, tokens, heads, width + rope).transpose(1, 2)
            k = linear(y, wk).view(n, context, kv, width).transpose(1, 2)
            v = linear(y, wv).view(n, context, kv, value).transpose(1, 2)
            if rope:
                k = self.torch.nn.functional.pad(k, (0, rope))
            z = self._core(q, k, v, mask)
            return linear(z.transpose(1, 2).reshape(n, tokens, heads * value), wo)

        return Runnable(forward, [x, y, wq, wk, wv, wo])

    def _core(self, q: Any, k: Any, v: Any, causal: bool) -> Any:
        return self.torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
        )

    def norm(self, part: OperatorPart) -> Runnable:
        """Return the norm of images over the batch, else over the last axis."""
        shape = _sliced(part, part.op.output_shape)
        x = self.tensor(part.samples, *shape)
        functional = self.torch.nn.functional
        if len(shape) == 3:
            scale, shift = self.tensor(shape[0]), self.tensor(shape[0])
            if part.samples * shape[1] * shape[2] == 1:
                return Runnable(
                    lambda: x * scale[:, None, None] + shift[:, None, None], [x, scale, shift]
                )
            return Runnable(
                lambda: functional.batch_norm(x, None, None, scale, shift, training=True),
                [x, scale, shift],
            )
        scale, shift = self.tensor(shape[-1]), self.tensor(shape[-1])
        if part.op.forward_flops < 6 * part.op.output_elements:
            return Runnable(lambda: functional.rms_norm(x, shape[-1:], scale), [x, scale])
        return Runnable(
            lambda: functional.layer_norm(x, shape[-1:], scale, shift), [x, scale, shift]
        )

    def elementwise(self, part: OperatorPart) -> Runnable | None:
        """Return a sum, a product or a rectifier."""
        if part.op.forward_flops > _MOST_FLOPS_AN_ELEMENT * part.op.output_elements:
            return None
        shape = _sliced(part, part.op.output_shape)
        count = max(2, len(part.inputs))
        if part.op.kind in (OperatorKind.ACTIVATION, OperatorKind.FLATTEN):
            count = 1
        tensors = [self.tensor(part.samples, *shape) for _ in range(count)]
        if part.op.kind is OperatorKind.FLATTEN:
            return Runnable(lambda: tensors[0].flatten(1).clone(), tensors)
        if part.op.kind is OperatorKind.ACTIVATION:
            return Runnable(lambda: self.torch.relu(tensors[0]), tensors)

        def forward() -> Any:
            total = tensors[0]
            for other in tensors[1:]:
                total = total + other if part.op.kind is OperatorKind.ADD else total * other
            return total

        return Runnable(forward, tensors)

    def concat(self, part: OperatorPart) -> Runnable:
        """Return a concatenation, or its first slice; inputs of the model are last."""
        missing = part.op.output_elements - sum(math.prod(shape) for shape in part.inputs)
        extents = [math.prod(shape) for shape in part.inputs]
        extents += [missing] if missing > 0 else []
        left = part.cut(part.op.output_elements, Mode.CHANNEL)
        joined = []
        for extent in extents:
            if left > 0:
                joined.append(min(extent, left))
            left -= extent
        tensors = [self.tensor(part.samples, extent) for extent in joined]
        return Runnable(lambda: self.torch.cat(tensors, dim=1), tensors)

    def softmax(self, part: OperatorPart) -> Runnable:
        """Return a softmax over the last axis."""
        x = self.tensor(part.samples, *_sliced(part, part.op.output_shape))
        return Runnable(lambda: self.torch.softmax(x, dim=-1), [x])

    def pool(self, part: OperatorPart) -> Runnable | None:
        """Return maximum pooling by a square window."""
        found = re.fullmatch(r"Pool2D_(\d{1,15})_\1", part.op.profile_key)
        if found is None or len(part.op.output_shape) != 3:
            return None
        kernel = int(found[1])
        channels, rows, columns = part.op.output_shape
        read = part.op.forward_bytes / part.element_bytes - part.op.output_elements
        stride = max(1, round(math.sqrt(max(1.0, read / part.op.output_elements))))
        sides = [(extent - 1) * stride + kernel for extent in (rows, columns)]
        x = self.tensor(part.samples, part.cut(channels, Mode.CHANNEL), *sides)
        max_pool2d = self.torch.nn.functional.max_pool2d
        return Runnable(lambda: max_pool2d(x, kernel, stride), [x])


def _numbers(prefix: str, key: str, count: int) -> tuple[int, ...] | None:
    """Return the numbers of a name like ``Dense_64_128``, if it has so many."""
    found = re.fullmatch(prefix + r"_(\d{1,15})" * count, key)
    return None if found is None else tuple(int(number) for number in found.groups())


def _sliced(part: OperatorPart, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape with its features divided where the operator is split by channels."""
    axis = 0 if len(shape) == 3 else len(shape) - 1
    return tuple(
        part.cut(extent, Mode.CHANNEL) if place == axis else extent
        for place, extent in enumerate(shape)
    )


_RECIPES: dict[OperatorKind, Callable[[Workshop, OperatorPart], Runnable | None]] = {
    OperatorKind.DENSE: Workshop.dense,
    OperatorKind.CONV2D: Workshop.convolution,
    OperatorKind.EMBEDDING: Workshop.embedding,
    OperatorKind.ATTENTION: Workshop.attention,
    OperatorKind.CONCAT: Workshop.concat,
    OperatorKind.ADD: Workshop.elementwise,
    OperatorKind.MULTIPLY: Workshop.elementwise,
    OperatorKind.ACTIVATION: Workshop.elementwise,
    OperatorKind.FLATTEN: Workshop.elementwise,
    OperatorKind.POOL: Workshop.pool,
    OperatorKind.NORM: Workshop.norm,
    OperatorKind.SOFTMAX: Workshop.softmax,
}
