"""A PyTorch module as a graph of operators, without weights and without a GPU.

The module is copied to the meta device, which knows shapes but holds no data, and traced by
``torch.export`` with a prime number of samples.
"""

import copy
import io
import logging
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from codesign_base import InputError
from codesign_base.arguments import check_kind, of_python_numbers
from parallelism.graph import ModelGraph
from parallelism.importers import aten
from parallelism.importers.traced import Operation, Recorder, Traced

TORCH_HINT = "install it with: pip install torch==2.13.0"
# Batches to trace with; one of them divides no extent of the model.
_PRIMES = (1009, 1013, 1019, 1021, 1031, 1033, 1039, 1049, 10007, 100003)


def import_torch(what: str) -> Any:
    """Return torch.

    Raises
    ------
    InputError
        If it is not installed, naming what needs it.
    """
    try:
        import torch
    except ImportError:
        raise InputError(f"{what} needs PyTorch, which is not installed; {TORCH_HINT}") from None
    return torch


@of_python_numbers
def capture(
    module: Any,
    example_inputs: Any,
    *,
    name: str | None = None,
    batch_per_gpu: int | None = None,
    element_bytes: int | None = None,
) -> ModelGraph:
    """Return the operators of a PyTorch module's training step.

    Parameters
    ----------
    module : torch.nn.Module
        On any device, the meta device included; it is not changed.
    example_inputs : tensor, or tuple, list or dict of them
        Arguments of the module (a dict: keyword arguments), on any device. The first axis of
        every tensor is the batch; all others must be as in training. Other values than tensors
        are passed on.
    name : str, optional
        Name of the graph; the module's class otherwise.
    batch_per_gpu : int, optional
        The examples' batch otherwise.
    element_bytes : int, optional
        Bytes of most of the module's parameters otherwise.

    Returns
    -------
    ModelGraph
        One operator for each matrix product, convolution, lookup, normalisation, attention,
        pool, reduction or element-wise step that is not fused; views are not operators.

    Raises
    ------
    InputError
        If torch is missing, the examples disagree about the batch, all parameters are frozen, the
        module cannot be exported, or it holds an operation that is not known.

    Notes
    -----
    The module is traced in training mode. Element-wise work on one tensor that nothing else
    reads is fused into the operator that made the tensor. A parameter is counted once, at the
    operator that multiplies with it if a lookup shares it. Parameters that are frozen or that
    the forward pass does not use are not counted, nor are gradients of frozen weights, and those
    that no trained parameter before them needs. Of a tensor that is sliced, a reader counts as
    reading the whole.

    Examples
    --------
    >>> import torch
    >>> import topoopt as to
    >>> module = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU())
    >>> graph = to.capture(module, torch.zeros(8, 16))
    >>> graph.parameters
    544
    """
    torch = import_torch("capture")
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"capture: module is {type(module).__name__}; give a torch.nn.Module")
    check_kind("capture: name", name, str | None, "a text")
    if name == "":
        raise InputError("capture: name is ''; give one, or leave it out")
    if element_bytes not in (None, 1, 2, 4, 8):
        raise InputError(f"capture: element_bytes is {element_bytes!r}; give 1, 2, 4 or 8")
    title = type(module).__name__ if name is None else name
    positional, named, batch = _examples(torch, example_inputs, title)
    if any(map(torch.nn.parameter.is_lazy, (*module.parameters(), *module.buffers()))):
        raise InputError(
            f"capture of {title!r}: its lazy layers have no shapes yet; call the module on its "
            "examples once before"
        )
    trained = [parameter.requires_grad for parameter in module.parameters()]
    if trained and not any(trained):
        raise InputError(
            f"capture of {title!r}: requires_grad of every parameter is False, so that there is "
            "nothing to train; call module.requires_grad_(), or set it of those that are trained"
        )
    prime = _prime(torch, module, (*positional, *named.values()))
    program = _export(torch, module, positional, named, prime, title)
    bytes_each = _element_bytes(module) if element_bytes is None else element_bytes
    recorder = _walk(torch, program, prime, title)
    return recorder.graph(title, batch if batch_per_gpu is None else batch_per_gpu, bytes_each)


def _examples(torch: Any, given: Any, title: str) -> tuple[list[Any], dict[str, Any], int]:
    """Return positional and named examples and their batch."""
    if isinstance(given, Mapping):
        positional, named = [], dict(given)
    else:
        positional = list(given) if isinstance(given, Sequence) else [given]
        named = {}
    tensors = [x for x in (*positional, *named.values()) if isinstance(x, torch.Tensor)]
    if not tensors or any(x.dim() == 0 for x in tensors):
        raise InputError(
            f"capture of {title!r}: example inputs hold no tensor, or one without a batch axis; "
            "give tensors whose first axis is the batch"
        )
    batches = {int(x.shape[0]) for x in tensors}
    if len(batches) > 1 or 0 in batches:
        raise InputError(
            f"capture of {title!r}: example inputs have batches {sorted(batches)} on their first "
            "axes; give all of them the same batch of at least 1"
        )
    return positional, named, batches.pop()


def _prime(torch: Any, module: Any, examples: Sequence[Any]) -> int:
    """Return a batch that divides no extent of parameters, buffers or examples."""
    extents: set[int] = set()
    for tensor in (*module.parameters(), *module.buffers()):
        extents.update(tensor.shape)
    for example in examples:
        if isinstance(example, torch.Tensor):
            extents.update(example.shape[1:])
    for prime in _PRIMES:
        if not any(extent and extent % prime == 0 for extent in extents):
            return prime
    raise InputError(
        "capture: the module has extents that are multiples of all batches to trace with; "
        "change one of them"
    )


def _on_meta(torch: Any, module: Any) -> Any:
    """Return a copy of a module on the meta device, in training mode, without copying data."""
    memo: dict[int, Any] = {}
    for parameter in module.parameters():
        memo[id(parameter)] = torch.nn.Parameter(
            torch.empty_like(parameter, device="meta"), requires_grad=parameter.requires_grad
        )
    plain = [
        value
        for part in module.modules()
        for value in vars(part).values()
        if isinstance(value, torch.Tensor)
    ]
    for tensor in (*module.buffers(), *plain):
        memo.setdefault(id(tensor), torch.empty_like(tensor, device="meta"))
    return copy.deepcopy(module, memo).train()


def _export(
    torch: Any, module: Any, positional: list[Any], named: dict[str, Any], prime: int, title: str
) -> Any:
    """Return the exported program of a module at a batch."""

    def enlarge(example: Any) -> Any:
        if not isinstance(example, torch.Tensor):
            return example
        return torch.empty((prime, *example.shape[1:]), dtype=example.dtype, device="meta")

    try:
        # What torch warns of here, logs and prints, concerns its own tracing, not the counts.
        with torch.device("meta"), warnings.catch_warnings(), _without_logs(), _without_prints():
            warnings.simplefilter("ignore")
            return torch.export.export(
                _on_meta(torch, module),
                tuple(enlarge(example) for example in positional),
                {key: enlarge(example) for key, example in named.items()},
                strict=False,
            )
    except Exception as error:  # whatever the module raises is the user's to know
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = (lines[0] if lines else type(error).__name__)[:200].rstrip(".")
        raise InputError(
            f"capture of {title!r}: torch.export cannot trace the module at a batch of "
            f"{prime}, tried in place of the examples' ({type(error).__name__}: {reason}); the "
            "examples must be what its forward pass takes, and shapes and control flow depend "
            "neither on values nor on the batch"
        ) from None


@contextmanager
def _without_logs() -> Iterator[None]:
    """Keep PyTorch from logging what is told by an error."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _without_prints() -> Iterator[None]:
    """Keep PyTorch from printing, as it prints the graph that it could not finish.

    What is printed without an error is the module's own, and appears afterwards.
    """
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        yield
    for stream, printed in ((sys.stdout, out), (sys.stderr, err)):
        print(printed.getvalue(), end="", file=stream)


def _element_bytes(module: Any) -> int:
    """Return the bytes of an element that most parameters have; 4 if there are none."""
    weight: dict[int, int] = {}
    for parameter in module.parameters():
        size = parameter.element_size()
        weight[size] = weight.get(size, 0) + parameter.numel()
    return max(sorted(weight), key=lambda size: weight[size]) if weight else 4


def _walk(torch: Any, program: Any, prime: int, title: str) -> Recorder:
    """Record the operators of an exported program."""
    signature = program.graph_signature
    names = signature.inputs_to_parameters
    sizes = {
        name: parameter.numel()
        for name, parameter in program.named_parameters()
        if parameter.requires_grad
    }
    inputs = set(signature.user_inputs)
    environment: dict[Any, Any] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor):
                own = frozenset([names[node.name]]) if node.name in names else frozenset()
                environment[node] = Traced(tuple(value.shape), None, node.name in inputs, own)
    recorder = Recorder(prime, sizes, _shared_tables(program.graph, names))
    _Walker(torch, recorder, title).run(program.graph_module, environment)
    return recorder


def _shared_tables(graph: Any, names: Mapping[str, str]) -> frozenset[str]:
    """Return the parameters that a lookup shares with another operation."""
    tables = set()
    for node in graph.nodes:
        if node.op == "placeholder" and node.name in names:
            lookups = [_operation(user.target).startswith("embedding") for user in node.users]
            if any(lookups) and not all(lookups):
                tables.add(names[node.name])
    return frozenset(tables)


def _operation(target: Any) -> str:
    """Return the name of an operation without namespace and overload."""
    schema = getattr(target, "_schema", None)
    text = schema.name if schema is not None else getattr(target, "__name__", str(target))
    return str(text).rpartition("::")[2]


class _Walker:
    """Reads a traced graph from its first node to its last."""

    def __init__(self, torch: Any, recorder: Recorder, title: str) -> None:
        self.torch = torch
        self.recorder = recorder
        self.title = title
        # Of tensors that share memory: the one that was there first, and all that are known.
        self._first: dict[Any, Any] = {}
        self._sharing: dict[Any, list[Any]] = {}

    def run(self, module: Any, environment: dict[Any, Any]) -> Any:
        """Record every node, and return what the graph returns."""
        for node in module.graph.nodes:
            if node.op == "placeholder":
                environment.setdefault(node, None)
            elif node.op == "get_attr":
                environment[node] = self._attribute(module, node)
            elif node.op == "output":
                return self._resolve(node.args[0], environment)
            elif node.op == "call_function":
                environment[node] = self._call(node, environment)
        return None

    def _attribute(self, module: Any, node: Any) -> Any:
        found = module
        for step in str(node.target).split("."):
            found = getattr(found, step)
        if isinstance(found, self.torch.Tensor):
            return Traced(tuple(found.shape))
        return found

    def _resolve(self, argument: Any, environment: dict[Any, Any]) -> Any:
        if isinstance(argument, self.torch.fx.Node):
            return environment[argument]
        if isinstance(argument, list | tuple):
            return [self._resolve(entry, environment) for entry in argument]
        return argument

    def _call(self, node: Any, environment: dict[Any, Any]) -> Any:
        given = [self._resolve(argument, environment) for argument in node.args]
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            return self._plain(node, given, environment)
        if _operation(node.target) == "broadcast_tensors":
            views = zip(given[0], self._shapes(node), strict=True)
            return [self.recorder.alias(value, shape, False) for value, shape in views]
        arguments = dict(zip((one.name for one in schema.arguments), given, strict=False))
        for key, argument in node.kwargs.items():
            arguments[key] = self._resolve(argument, environment)
        shapes = self._shapes(node)
        if any(not isinstance(extent, int) for shape in shapes for extent in shape):
            raise InputError(
                f"capture of {self.title!r}: operation {node.target} in {self._label(node)!r} has "
                "an output whose shape depends on values; pad it to a fixed shape"
            )
        call = Operation(
            _operation(node.target), self._label(node), arguments, shapes[0] if shapes else (),
            len(node.users) == 1,
        )  # fmt: skip
        result = self._record(node, call)
        for one, argument in zip(schema.arguments, node.args, strict=False):
            if one.alias_info is not None and one.alias_info.is_write:
                self._write(argument, result, environment)
        if schema.returns and schema.returns[0].alias_info is not None:
            self._share(node, node.args[0])
        if len(shapes) > 1 and isinstance(result, Traced):
            return [self.recorder.alias(result, shape, False) for shape in shapes]
        return result

    def _share(self, node: Any, source: Any) -> None:
        """Note that a tensor is the memory, or some of the memory, of another."""
        if isinstance(source, self.torch.fx.Node):
            first = self._first[node] = self._first.get(source, source)
            self._sharing.setdefault(first, [first]).append(node)

    def _write(self, node: Any, result: Traced, environment: dict[Any, Any]) -> None:
        """Let later readers of a tensor that was changed in place see the result.

        So do readers of what it is a part of, and of other parts.
        """
        if not isinstance(node, self.torch.fx.Node):
            return
        first = self._first.get(node, node)
        if isinstance(whole := environment.get(first), Traced):
            self.recorder.widen(result, whole.shape)
        for each in self._sharing.get(first, [first]):
            held = environment.get(each)
            if isinstance(held, Traced):
                environment[each] = self.recorder.alias(result, held.shape, False)
            elif isinstance(held, list):
                environment[each] = [self.recorder.alias(result, x.shape, False) for x in held]

    def _record(self, node: Any, call: Operation) -> Traced:
        operation = call.operation
        self.recorder.at = f"operation {operation!r} of {call.label!r}"
        if operation in aten.CREATIONS or not call.batched:
            return self.recorder.fixed(call)
        if operation in aten.VIEWS or getattr(node.target, "is_view", False):
            return self._view(call)
        rule = aten.RULES.get(operation)
        if rule is not None:
            return rule(self.recorder, call)
        if operation == "einsum":
            found = aten.einsum(self.recorder, call)
            if found is not None:
                return found
        elif self.torch.Tag.pointwise in getattr(node.target, "tags", ()):
            return aten.pointwise(self.recorder, call)
        raise InputError(
            f"capture of {self.title!r}: operation {node.target} in {call.label!r} is not known; "
            "write that part of the module with other operations, or describe the model in a "
            "model file"
        )

    def _view(self, call: Operation) -> Traced:
        source = call.arguments.get("self", call.arguments.get("input"))
        value = source if isinstance(source, Traced) else call.batched[0]
        return self.recorder.alias(value, call.shape, call.alone)

    def _plain(self, node: Any, given: list[Any], environment: dict[Any, Any]) -> Any:
        """Take an entry of a result, or walk the graph that a context manager wraps."""
        name = _operation(node.target)
        if name == "getitem":
            self._share(node, node.args[0])
            entries = given[0]
            if isinstance(entries, list):
                return entries[given[1]]
            shapes = self._shapes(node)
            return self.recorder.alias(entries, shapes[0], False)
        inner = next((place for place, one in enumerate(given) if hasattr(one, "graph")), None)
        if inner is not None and name.startswith("wrap_with"):
            holders = [one for one in given[inner].graph.nodes if one.op == "placeholder"]
            inside = dict(zip(holders, given[inner + 1 :], strict=False))
            before = dict(inside)
            result = self.run(given[inner], inside)
            for holder, outer in zip(holders, node.args[inner + 1 :], strict=False):
                if inside[holder] is not before[holder]:
                    self._write(outer, inside[holder], environment)
            return result
        if not any(isinstance(one, Traced) and one.batched for one in given):
            return None  # arithmetic on shapes
        raise InputError(
            f"capture of {self.title!r}: operation {node.target} is not known; write that part of "
            "the module without it"
        )

    def _shapes(self, node: Any) -> list[tuple[int, ...]]:
        value = node.meta.get("val")
        entries = value if isinstance(value, list | tuple) else [value]
        return [tuple(one.shape) for one in entries if isinstance(one, self.torch.Tensor)]

    def _label(self, node: Any) -> str:
        """Name an operation after the module that it is in."""
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        path, kind = stack[-1] if stack else ("", "")
        path = str(path).removeprefix("L['self'].").removeprefix("L['self']")
        kind = str(getattr(kind, "__name__", kind)).rpartition(".")[2]
        operation = _operation(node.target).strip("_")
        if kind.lower().startswith((operation.replace("_", ""), "conv", "layernorm", "rmsnorm",
                                    "batchnorm", "embedding", "linear")):  # fmt: skip
            return path or operation
        return f"{path}.{operation}" if path else operation
