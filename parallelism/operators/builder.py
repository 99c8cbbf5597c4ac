"""Collects the operators of a model; `layers` and `elementwise` append them with their counts.

Counting rules, the same for every model:

- A multiply-add is two FLOPs. Bias additions and activations fused into a dense layer or
  convolution are not counted (published counts leave them out, too).
- Backward of an operator with weights takes twice its forward FLOPs: gradients of inputs and
  of weights. Layers fed by the model input alone are charged both, too (they are few).
- Bytes are accelerator memory traffic of one sample, each tensor read or written once a kernel:
  forward reads the inputs and writes the output; backward of a matrix operator makes two
  products, each reading the output gradient, one reading the saved input, one writing the input
  gradient. Dense weights are not counted here, since one pass reads them for the whole batch.
- An embedding bag reads ``bag`` rows and 8-byte indices and writes one vector; its backward
  reads the vector's gradient and reads and writes the rows, which is the update as well.
"""

from collections.abc import Sequence
from dataclasses import replace

from codesign_base import InputError
from codesign_base.arguments import of_python_numbers
from parallelism.graph import Mode, ModelGraph, Operator, OperatorKind, Split, mixed_later
from parallelism.operators.shapes import MOST_OPERATORS, Tensor, check_counts, check_shape

INDEX_BYTES = 8


def legal_splits(*pairs: tuple[Mode, int]) -> tuple[Split, ...]:
    """Return the splits whose extent leaves something to split."""
    return tuple(Split(mode, extent) for mode, extent in pairs if extent > 1)


def _whole(splits: tuple[Split, ...]) -> tuple[Split, ...]:
    summed = (Mode.REDUCTION, Mode.HEADS)
    return tuple(split for split in splits if split.mode not in summed)


class GraphBuilder:
    """Collects operators in topological order.

    Parameters
    ----------
    name : str
        Name of the model.
    batch_per_gpu : int
        Default batch of one GPU.
    element_bytes : int, optional
        Bytes of a parameter or activation.

    Attributes
    ----------
    reused : bool
        While true, the weights of what is appended are those of other operators, which have the
        parameters.

    Examples
    --------
    >>> from parallelism.operators.layers import dense
    >>> build = GraphBuilder("two-layers", batch_per_gpu=32)
    >>> hidden = dense(build, "hidden", build.input(64), 128)
    >>> _ = dense(build, "output", hidden, 10)
    >>> build.build().parameters
    9610
    """

    @of_python_numbers
    def __init__(self, name: str, batch_per_gpu: int, element_bytes: int = 4) -> None:
        check_counts(f"model {name!r}", batch_per_gpu=batch_per_gpu, element_bytes=element_bytes)
        self._name = name
        self._batch_per_gpu = batch_per_gpu
        self._element_bytes = element_bytes
        self._operators: list[Operator] = []
        self._shared: dict[str, list[int]] = {}
        self.reused = False

    def build(self) -> ModelGraph:
        """Return the finished graph.

        Concatenations may be split by channels where `mixed_later` holds. Nothing sends the
        partial sums of an operator that none reads, so it may be split into such only where they
        are of one feature: a number a sample or position, which adds nothing to speak of.
        """
        read = {source for op in self._operators for source in op.inputs}
        operators = [
            op if index in read or op.features == 1 else replace(op, splits=_whole(op.splits))
            for index, op in enumerate(self._operators)
        ]
        operators = [
            op if mixed or op.kind is not OperatorKind.CONCAT else replace(op, splits=())
            for op, mixed in zip(operators, mixed_later(operators), strict=True)
        ]
        return ModelGraph(
            self._name, tuple(operators), self._batch_per_gpu, self._element_bytes, self._groups()
        )

    def share(self, weights: str, *operators: int | None) -> None:
        """Note that operators use some weights, beside those that were said to before.

        Parameters
        ----------
        weights : str
            Any name for them.
        *operators : int or None
            Indices, of which one has the parameters; None is of no operator.
        """
        known = self._shared.setdefault(weights, [])
        known.extend(index for index in operators if index is not None)

    def _groups(self) -> tuple[tuple[int, ...], ...]:
        """Return the operators that weights join, directly or through each other."""
        groups: list[set[int]] = []
        for operators in self._shared.values():
            joined = set(operators).union(*(g for g in groups if g & set(operators)))
            groups = [*(g for g in groups if not g & joined), joined]
        return tuple(sorted(tuple(sorted(group)) for group in groups if len(group) > 1))

    @property
    def operators(self) -> int:
        """Operators so far."""
        return len(self._operators)

    @of_python_numbers
    def input(self, *shape: int) -> Tensor:
        """Return a model input of one sample's shape; it is not an operator."""
        return Tensor(check_shape(f"model {self._name!r}: input", shape), None)

    @of_python_numbers
    def append(
        self,
        name: str,
        kind: OperatorKind,
        inputs: Sequence[Tensor],
        shape: Sequence[int],
        *,
        flops: tuple[float, float] = (0.0, 0.0),
        elements: tuple[float, float] = (0.0, 0.0),
        byte_counts: tuple[float, float] = (0.0, 0.0),
        parameters: int = 0,
        splits: tuple[Split, ...] = (),
        sparse: bool = False,
        profile_key: str = "",
    ) -> Tensor:
        """Append an operator from its counts.

        Parameters
        ----------
        name, kind, parameters, splits, sparse, profile_key
            As in `Operator`.
        inputs : sequence of Tensor
        shape : sequence of int
            Output shape of one sample.
        flops : (float, float)
            Forward and backward FLOPs of one sample.
        elements : (float, float)
            Elements of memory traffic of one sample, forward and backward.
        byte_counts : (float, float)
            Bytes added to that traffic, forward and backward (indices).
        """
        if len(self._operators) == MOST_OPERATORS:
            raise InputError(
                f"model {self._name!r} has more than {MOST_OPERATORS} operators; give fewer"
            )
        sources = dict.fromkeys(x.operator for x in inputs if x.operator is not None)
        self._operators.append(
            Operator(
                name=name,
                kind=kind,
                inputs=tuple(sources),
                output_shape=check_shape(f"operator {name!r}", shape),
                forward_flops=float(flops[0]),
                backward_flops=float(flops[1]),
                parameters=0 if self.reused else parameters,
                forward_bytes=float(elements[0]) * self._element_bytes + byte_counts[0],
                backward_bytes=float(elements[1]) * self._element_bytes + byte_counts[1],
                splits=splits,
                sparse=sparse,
                profile_key=profile_key,
            )
        )
        return Tensor(tuple(shape), len(self._operators) - 1)
