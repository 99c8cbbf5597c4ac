"""What a traced module becomes: values that flow, and operators recorded one by one.

Knows nothing of torch: shapes are tuples, tensors are `Traced`. The batch of the trace is a prime
number that divides no other extent, so that a tensor's elements of one sample are a division
wherever the batch went (in front, flattened with positions, or behind a permutation).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from codesign_base import InputError
from parallelism.graph import ModelGraph, OperatorKind, Split
from parallelism.operators.builder import GraphBuilder
from parallelism.operators.shapes import Tensor

# Element-wise work goes into the operator that made its input, where these do.
_FUSING = {
    OperatorKind.DENSE, OperatorKind.CONV2D, OperatorKind.NORM, OperatorKind.ACTIVATION,
    OperatorKind.ADD, OperatorKind.MULTIPLY, OperatorKind.POOL, OperatorKind.SOFTMAX,
}  # fmt: skip
_UNCOUNTED = {OperatorKind.DENSE, OperatorKind.CONV2D}


@dataclass(frozen=True, slots=True)
class Traced:
    """A tensor of the trace.

    Parameters
    ----------
    shape : tuple of int
        With the batch.
    operator : int or None
        What made it; None for model inputs, and for what does not depend on them.
    batched : bool
        Whether it depends on a model input.
    parameters : frozenset of str
        Parameters that a value which depends on no input is made of.
    alone : bool
        Whether only one reader sees the operator's output, through this value.
    derived : bool
        Whether a value of parameters is not the parameter itself, but its transpose or the like.
    """

    shape: tuple[int, ...]
    operator: int | None = None
    batched: bool = False
    parameters: frozenset[str] = frozenset()
    alone: bool = False
    derived: bool = False

    @property
    def elements(self) -> int:
        """Number of elements, of the whole batch."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Operation:
    """One operation of the trace.

    Parameters
    ----------
    operation : str
        Its name, without namespace and overload.
    label : str
        Name for its operator, from the module that it is in.
    arguments : mapping
        By their names: `Traced`, lists of them, numbers, None.
    shape : tuple of int
        Of the (first) output.
    alone : bool
        Whether the output has one reader.
    """

    operation: str
    label: str
    arguments: Mapping[str, Any]
    shape: tuple[int, ...]
    alone: bool = False

    def values(self) -> Iterator[Traced]:
        """Yield all tensors among the arguments."""
        for argument in self.arguments.values():
            if isinstance(argument, Traced):
                yield argument
            elif isinstance(argument, list | tuple):
                yield from (entry for entry in argument if isinstance(entry, Traced))

    @property
    def parameters(self) -> frozenset[str]:
        """Parameters that the tensors among the arguments are made of."""
        return frozenset[str]().union(*(value.parameters for value in self.values()))

    @property
    def batched(self) -> list[Traced]:
        """Tensors among the arguments that depend on a model input."""
        return [value for value in self.values() if value.batched]

    def tensor(self, *names: str) -> Traced:
        """Return a tensor argument by the first of some names that it has."""
        for name in names:
            if isinstance(self.arguments.get(name), Traced):
                found: Traced = self.arguments[name]
                return found
        raise InputError(
            f"capture: operation {self.operation!r} of {self.label!r} lacks its tensor "
            f"{names[0]!r}; give it as a tensor"
        )

    @property
    def out_elements(self) -> int:
        """Elements of the (first) output."""
        return math.prod(self.shape)


@dataclass
class _Pending:
    name: str
    kind: OperatorKind
    inputs: list[int]
    shape: tuple[int, ...]
    flops: tuple[float, float]
    elements: tuple[float, float]
    byte_counts: float
    parameters: int
    splits: tuple[Split, ...]
    sparse: bool
    key: str
    # Parameters of all that it does, and of the weights of a product or convolution (else None).
    names: frozenset[str]
    weights: frozenset[str] | None
    # Backward passes over the one for everything: for inputs and weights.
    backward: float = 1.0


@dataclass
class Recorder:
    """Collects the operators of a trace.

    Parameters
    ----------
    batch : int
        The prime that stands for the batch.
    sizes : mapping of str to int
        Elements of every trainable parameter.
    elsewhere : frozenset of str
        Parameters of lookups that another operator uses as well, which holds them.
    at : str
        The operation that is being recorded, for errors.
    """

    batch: int
    sizes: Mapping[str, int]
    elsewhere: frozenset[str] = frozenset()
    at: str = ""
    _operators: list[_Pending] = field(default_factory=list)
    _claimed: set[str] = field(default_factory=set)
    # Operators that use each parameter, and whether as it is, in which operation.
    _users: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    _names: dict[str, int] = field(default_factory=dict)

    def sample(self, elements: int) -> float:
        """Return the share of one sample of a product; what holds no batch belongs to each.

        Raises
        ------
        InputError
            If there is one for every pair of samples.
        """
        if elements and elements % self.batch**2 == 0:
            raise InputError(
                f"capture: {self.at} counts every pair of samples, more a sample the larger the "
                "batch is; leave it out, as by capturing the module without such a loss"
            )
        if elements % self.batch:
            return elements
        return elements / self.batch

    def samples(self, *values: Traced) -> float:
        """Return the elements of one sample of some tensors, which need not all hold the batch."""
        return sum(self.sample(value.elements) for value in values)

    def _sample_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of one sample of an output, of one to three axes."""
        extents = list(shape)
        axes = [axis for axis, extent in enumerate(extents) if extent % self.batch == 0 < extent]
        self.sample(math.prod(shape))  # At most one axis holds the batch, and once.
        for axis in axes:
            extents[axis] //= self.batch
            if extents[axis] == 1:
                del extents[axis]
        while len(extents) > 3:
            extents[:2] = [extents[0] * extents[1]]
        return tuple(extents) or (1,)

    def alias(self, value: Traced, shape: Sequence[int], alone: bool) -> Traced:
        """Return another view of a value."""
        return replace(value, shape=tuple(shape), alone=value.alone and alone)

    def widen(self, value: Traced, shape: Sequence[int]) -> None:
        """Let the operator that wrote a part of a tensor hand on the whole of it."""
        if value.operator is None:
            return
        made, whole = self._operators[value.operator], self._sample_shape(shape)
        if math.prod(whole) > math.prod(made.shape):
            made.shape, made.splits = whole, ()  # slices of the part are none of the whole

    def fixed(self, call: Operation) -> Traced:
        """Return a value that depends on no model input."""
        return Traced(call.shape, None, False, call.parameters, derived=True)

    def add(
        self,
        call: Operation,
        kind: OperatorKind,
        *,
        flops: tuple[float, float],
        elements: tuple[float, float],
        index_bytes: float = 0.0,
        splits: tuple[Split, ...] = (),
        sparse: bool = False,
        key: str = "",
        weights: Traced | None = None,
    ) -> Traced:
        """Record an operator from counts of one sample, and return its output.

        Half of the backward pass of one with ``weights`` is for their gradient.
        """
        inputs = list(dict.fromkeys(v.operator for v in call.batched if v.operator is not None))
        names = call.parameters
        self._used(names, len(self._operators), call)
        if kind is OperatorKind.EMBEDDING:
            names -= self.elsewhere
            if not names:
                # Whoever holds the table decides how it is split.
                sparse, splits = False, ()
        self._operators.append(
            _Pending(
                self._unique(call.label), kind, inputs, self._sample_shape(call.shape), flops,
                elements, index_bytes, self._claim(names), splits, sparse, key, call.parameters,
                None if weights is None else weights.parameters,
            )
        )  # fmt: skip
        return Traced(call.shape, len(self._operators) - 1, True, alone=call.alone)

    def pointwise(
        self,
        call: Operation,
        kind: OperatorKind,
        splits: tuple[Split, ...],
        flops: tuple[float, float],
    ) -> Traced:
        """Record element-wise work, in the operator that made its one input if it may be."""
        batched = call.batched
        if len(batched) == 1 and batched[0].operator is not None and batched[0].alone:
            made = self._operators[batched[0].operator]
            if made.kind in _FUSING and batched[0].elements == call.out_elements:
                names = call.parameters
                self._used(names, batched[0].operator, call)
                made.parameters += self._claim(names)
                made.names |= names
                if made.kind not in _UNCOUNTED:
                    more = self.sample(call.out_elements)
                    made.flops = (made.flops[0] + more, made.flops[1] + more)
                return Traced(call.shape, batched[0].operator, True, alone=call.alone)
        read, out = self.samples(*batched), self.sample(call.out_elements)
        return self.add(
            call, kind, flops=flops, elements=(read + out, 2 * read + out), splits=splits
        )

    def graph(self, name: str, batch_per_gpu: int, element_bytes: int) -> ModelGraph:
        """Return the recorded operators as a graph.

        Raises
        ------
        InputError
            If there are none.
        """
        if not self._operators:
            raise InputError(
                f"capture of {name!r}: nothing that it computes depends on its inputs; give a "
                "module whose forward pass reads the example inputs"
            )
        build = GraphBuilder(name, batch_per_gpu, element_bytes)
        self._share(build)
        self._leave_out_frozen()
        for op in self._operators:
            build.append(
                op.name, op.kind, [Tensor((1,), source) for source in op.inputs], op.shape,
                flops=(op.flops[0], op.backward * op.flops[1]),
                elements=(op.elements[0], op.backward * op.elements[1]),
                byte_counts=(op.byte_counts, op.backward * op.byte_counts),
                parameters=op.parameters, splits=op.splits, sparse=op.sparse, profile_key=op.key,
            )  # fmt: skip
        return build.build()

    def _trained(self, names: frozenset[str]) -> bool:
        return any(self.sizes.get(name, 0) for name in names)

    def _leave_out_frozen(self) -> None:
        """Leave out gradients of frozen weights, and those that nothing before would read.

        Where nothing is frozen, all operators have whole backward passes, as those of the zoo.
        Where no trained parameter is used, as in a loss, they have, too.
        """
        used = frozenset[str]().union(*(op.names for op in self._operators))
        if not self._trained(used) or all(self._trained(frozenset([name])) for name in used):
            return
        wanted: list[bool] = []
        for op in self._operators:
            before = any(wanted[source] for source in op.inputs)
            wanted.append(before or self._trained(op.names))
            if op.weights is not None:
                op.backward = (before + self._trained(op.weights)) / 2
            elif not wanted[-1]:
                op.backward = 0.0

    def _used(self, names: frozenset[str], operator: int, call: Operation) -> None:
        derived = any(value.parameters and value.derived for value in call.values())
        how = "" if derived else call.operation
        for name in sorted(names):
            if self.sizes.get(name, 0):
                self._users.setdefault(name, []).append((operator, how))

    def _share(self, build: GraphBuilder) -> None:
        """Note which operators use the same parameters.

        A slice of what one makes is a slice of them only where all use them alike: a transpose,
        or another operation, has others, so that none of them is split then.
        """
        for name, uses in self._users.items():
            operators = dict.fromkeys(operator for operator, _ in uses)
            if len(operators) > 1:
                build.share(name, *operators)
                ways = {how for _, how in uses}
                if len(ways) > 1 or ways <= {"", "matmul", "mm", "bmm", "addmm", "einsum"}:
                    for operator in operators:
                        self._operators[operator].splits = ()

    def _claim(self, names: frozenset[str]) -> int:
        """Return the parameters among these that no operator before holds."""
        new = sorted(names - self._claimed)
        self._claimed.update(new)
        return sum(self.sizes.get(name, 0) for name in new)

    def _unique(self, label: str) -> str:
        seen = self._names.get(label, 0)
        self._names[label] = seen + 1
        if not seen:
            return label
        return self._unique(f"{label}_{seen + 1}")
