"""Operators and the model graph: what one training sample costs, and what may be split."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cached_property

from codesign_base import InputError
from codesign_base.arguments import check_kind

MOST_BATCH = 2**31
"""Samples per GPU and iteration."""


class OperatorKind(StrEnum):
    """What an operator computes; devices and legality rules look at it."""

    DENSE = "dense"
    CONV2D = "conv2d"
    EMBEDDING = "embedding"
    ATTENTION = "attention"
    CONCAT = "concat"
    ADD = "add"
    MULTIPLY = "multiply"
    ACTIVATION = "activation"
    POOL = "pool"
    FLATTEN = "flatten"
    NORM = "norm"
    SOFTMAX = "softmax"


class Mode(IntEnum):
    """How an operator's parameter dimension is split over p parts.

    ``OUTPUT``: each part needs the whole input and makes a slice of the output (dense columns,
    convolution channels, embedding columns). ``REDUCTION``: each part needs a slice of the
    input and makes a partial sum of the whole output (dense rows, embedding rows).
    ``HEADS``: whole input, partial sum (attention heads with their share of the output
    projection). ``CHANNEL``: slice in, slice out (element-wise, pooling, concatenation).
    """

    OUTPUT = 0
    REDUCTION = 1
    HEADS = 2
    CHANNEL = 3

    @property
    def slices_input(self) -> bool:
        """Whether a part reads only its share of the input features."""
        return self in (Mode.REDUCTION, Mode.CHANNEL)

    @property
    def slices_output(self) -> bool:
        """Whether a part writes only its share of the output features."""
        return self in (Mode.OUTPUT, Mode.CHANNEL)


@dataclass(frozen=True, slots=True)
class Split:
    """A way to split the parameter dimension: the mode, and the extent that p must divide."""

    mode: Mode
    extent: int


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator; every quantity is per training sample unless it says otherwise.

    Parameters
    ----------
    name : str
        Unique within the graph.
    kind : OperatorKind
    inputs : tuple of int
        Indices of the operators whose whole outputs it reads, all smaller than its own.
        Model inputs (images, indices) are not operators: reading them is not network traffic.
    output_shape : tuple of int
        Shape of the output of one sample.
    forward_flops, backward_flops : float
        Floating-point operations (a multiply-add counts two).
    parameters : int
        Number of trainable parameters (of the whole operator, not per sample).
    forward_bytes, backward_bytes : float
        Accelerator memory traffic of one sample, dense parameters not counted.
    splits : tuple of Split
        Legal splits of the parameter dimension beside the sample dimension.
    sparse : bool
        True for embedding tables: only touched rows are read, and a table that is not
        replicated needs no gradient buffer.
    profile_key : str
        Name under which measured profiles list the operator; empty if they do not.
    """

    name: str
    kind: OperatorKind
    inputs: tuple[int, ...]
    output_shape: tuple[int, ...]
    forward_flops: float
    backward_flops: float
    parameters: int
    forward_bytes: float
    backward_bytes: float
    splits: tuple[Split, ...] = ()
    sparse: bool = False
    profile_key: str = ""

    @property
    def output_elements(self) -> int:
        """Number of output elements of one sample."""
        count = 1
        for extent in self.output_shape:
            count *= extent
        return count

    @property
    def features(self) -> int:
        """Extent of the output's feature axis: the first of an image, else the last."""
        return self.output_shape[0 if len(self.output_shape) == 3 else -1]

    def split(self, mode: Mode) -> Split | None:
        """Return the operator's split of this mode, or None if it is not legal."""
        for split in self.splits:
            if split.mode == mode:
                return split
        return None


def mixed_later(operators: Sequence[Operator]) -> list[bool]:
    """Return of which operators every feature reaches every later result.

    Parameters
    ----------
    operators : sequence of Operator
        In topological order.

    Returns
    -------
    list of bool
        Whether on every way from an operator's output, after operators that may work slice by
        slice (``Mode.CHANNEL``), one follows that needs all slices, or sums over them and is
        read. Only then may slices of a concatenation be made apart: whatever comes later waits
        for all of them.
    """
    read = [False] * len(operators)
    mixed = [True] * len(operators)
    for index in reversed(range(len(operators))):
        op = operators[index]
        mixed[index] = mixed[index] and read[index]
        apart = op.split(Mode.CHANNEL) is not None and not mixed[index]
        summed = op.split(Mode.REDUCTION) is not None and not read[index]
        for source in op.inputs:
            read[source] = True
            mixed[source] = mixed[source] and not apart and not summed
    return mixed


@dataclass(frozen=True)
class ModelGraph:
    """A model: operators in topological order.

    Parameters
    ----------
    name : str
    operators : tuple of Operator
        Each reads only operators before it.
    batch_per_gpu : int
        The setting's batch size per GPU, the default of a job.
    element_bytes : int
        Bytes of a parameter, activation or gradient element (4 = fp32).
    shared : tuple of tuple of int
        Operators that use the same weights, which one of them has as its parameters. They are
        divided alike, on the same servers, where all copies have one gradient.

    Raises
    ------
    InputError
        If there is no operator, names repeat, an input does not come earlier, a count is
        negative, slices of a concatenation are never brought together, or operators that share
        weights are not several different ones.
    """

    name: str
    operators: tuple[Operator, ...]
    batch_per_gpu: int
    element_bytes: int = 4
    shared: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        check_kind("model name", self.name, str, "a text")
        if not self.operators:
            raise InputError(f"model {self.name!r} has no operators; give at least one")
        for name, most in (("batch_per_gpu", MOST_BATCH), ("element_bytes", 64)):
            count = getattr(self, name)
            if not 1 <= count <= most:
                raise InputError(f"model {self.name!r}: {name} is {count}; give 1 to {most}")
        seen: set[str] = set()
        for index, op in enumerate(self.operators):
            if op.name in seen:
                raise InputError(f"model {self.name!r}: two operators are called {op.name!r}")
            seen.add(op.name)
            for source in op.inputs:
                if not 0 <= source < index:
                    raise InputError(
                        f"model {self.name!r}: operator {op.name!r} reads operator {source}, "
                        "which does not come before it"
                    )
            for field in (
                "forward_flops", "backward_flops", "parameters", "forward_bytes", "backward_bytes",
            ):  # fmt: skip
                if not 0 <= getattr(op, field) < float("inf"):
                    raise InputError(
                        f"model {self.name!r}: operator {op.name!r} has {field} = "
                        f"{getattr(op, field)}; give zero or a positive number"
                    )
            if not op.output_shape or any(extent < 1 for extent in op.output_shape):
                raise InputError(
                    f"model {self.name!r}: operator {op.name!r} has output shape "
                    f"{op.output_shape}; give at least one extent, and each at least 1"
                )
        for op, mixed in zip(self.operators, mixed_later(self.operators), strict=True):
            sliced = op.kind is OperatorKind.CONCAT and op.split(Mode.CHANNEL) is not None
            if sliced and not mixed:
                raise InputError(
                    f"model {self.name!r}: concatenation {op.name!r} may be split by channels, "
                    "but no operator that is read needs all of them; leave that split out"
                )
        sharing = [index for group in self.shared for index in group]
        known = all(0 <= index < len(self.operators) for index in sharing)
        if not known or len(set(sharing)) < len(sharing) or any(len(g) < 2 for g in self.shared):
            raise InputError(
                f"model {self.name!r}: operators that share weights are {list(self.shared)}; give "
                "two or more of its operators in each group, and none twice"
            )

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the operators that read each operator."""
        readers: list[list[int]] = [[] for _ in self.operators]
        for index, op in enumerate(self.operators):
            for source in op.inputs:
                readers[source].append(index)
        return tuple(tuple(r) for r in readers)

    @property
    def parameters(self) -> int:
        """Trainable parameters of the whole model."""
        return sum(op.parameters for op in self.operators)

    def inputs_side_by_side(self, index: int) -> dict[int, tuple[int, int]]:
        """Return where the inputs of an operator lie among its own features.

        Parameters
        ----------
        index : int
            Operator.

        Returns
        -------
        dict of int to (int, int)
            Input to its first feature and its number of features; empty for all but
            concatenations, of which a slice needs slices of some inputs only.
        """
        op = self.operators[index]
        if op.kind is not OperatorKind.CONCAT or op.split(Mode.CHANNEL) is None:
            return {}
        found: dict[int, tuple[int, int]] = {}
        first = 0
        for source in op.inputs:
            width = self.operators[source].features
            found[source] = first, width
            first += width
        return found

    def parameter_bytes(self, index: int) -> float:
        """Bytes of one operator's parameters."""
        return float(self.operators[index].parameters) * self.element_bytes

    def output_bytes(self, index: int) -> float:
        """Bytes of one operator's output for one sample."""
        return float(self.operators[index].output_elements) * self.element_bytes

    def index(self, name: str) -> int:
        """Return the index of an operator by name.

        Raises
        ------
        InputError
            If there is none.
        """
        for index, op in enumerate(self.operators):
            if op.name == name:
                return index
        raise InputError(f"model {self.name!r} has no operator {name!r}")
