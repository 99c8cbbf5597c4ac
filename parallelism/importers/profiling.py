"""Times the operators of a model on the local device, for a profile file.

Every distinct operator shape is timed once at each number of sample parts, fewest samples
first, then the parameter parts that a strategy may choose. What does not fit in the time or
memory left is not measured; a reader of the profile interpolates (`parallelism.profile.time_at`).
"""

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codesign_base import InputError
from codesign_base.arguments import check_called, check_kind, is_number, of_python_numbers, told
from codesign_base.counted import counted
from codesign_base.whole_numbers import divisors
from parallelism.graph import Mode, ModelGraph
from parallelism.importers.recipes import OperatorPart, Runnable, Workshop, part_of
from parallelism.importers.torch_capture import import_torch
from parallelism.operators.shapes import check_counts
from parallelism.profile_file import PROFILE_GPUS, measured_name

# A measurement is the median of at least three passes, and of as many as fit in this time.
_REPEAT_SECONDS = 0.2
_REPEATS = (3, 20)
# On a CPU the pass that warms up is the measurement where it takes this long.
_LONG_SECONDS = 2.0
# Share of the free memory that a measurement may take; gradients and workspace need the rest.
_MEMORY_SHARE = 0.5
_MOST_PARAMETER_PARTS = 16
# What is written before each pass on a GPU: more than any last-level cache holds.
_WRITTEN_BYTES = 2**28
_MOST_WRITES = 200


@dataclass(frozen=True)
class Measured:
    """What was timed.

    Parameters
    ----------
    document : dict
        The profile file (`docs/profile-file.md`).
    operators : int
        Distinct operator shapes.
    measurements : int
    left_out : int
        Parts that time or memory did not suffice for.
    by_counts : tuple of str
        Operators of which a product and a copy of the same FLOPs and bytes were timed, or a
        smaller table.
    device : str
        What it ran on.
    """

    document: dict[str, Any]
    operators: int
    measurements: int
    left_out: int
    by_counts: tuple[str, ...]
    device: str


@dataclass(frozen=True)
class _Task:
    index: int
    parts: int
    mode: Mode
    parameter: int


@of_python_numbers
def profile_operators(
    graph: ModelGraph,
    servers: int,
    *,
    batch_per_gpu: int | None = None,
    device: str = "cpu",
    precision: str | None = None,
    max_seconds: float = 60.0,
    progress: Callable[[int, int], None] | None = None,
    timing: Callable[[str], None] | None = None,
) -> Measured:
    """Time the operators of a model on the local device.

    Parameters
    ----------
    graph : ModelGraph
    servers : int
        Servers of the job; strategies divide samples over divisors of them.
    batch_per_gpu : int, optional
        The graph's own otherwise.
    device : {"cpu", "cuda"}, optional
    precision : {"fp32", "tf32"}, optional
        Of products and convolutions of elements of 4 bytes on a GPU. By default what PyTorch does
        where nothing is set: products in FP32, convolutions in TF32.
    max_seconds : float, optional
        No measurement starts after this time, but each operator is measured once.
    progress : callable, optional
        Called with measurements done and all that could be.
    timing : callable, optional
        Called with the name of each operator before it is measured.

    Returns
    -------
    Measured

    Raises
    ------
    InputError
        If torch or the device is missing, a number out of range, the precision unknown or not for
        this device or model, or the smallest part of an operator does not fit in memory.

    Notes
    -----
    Tables are timed with the samples of a whole server, everything else with those of a GPU,
    as the published profiles were. On a GPU each pass waits behind writes that last longer than
    the host takes to launch it, so that no launch is timed, and that leave nothing in caches.
    """
    check_kind("graph", graph, ModelGraph, "a model, such as topoopt.models.get_model('vgg16')")
    check_called("progress", progress)
    check_called("timing", timing)
    torch = import_torch("profile")
    each = graph.batch_per_gpu if batch_per_gpu is None else batch_per_gpu
    check_counts("profile", servers=servers, batch_per_gpu=each)
    if not (is_number(max_seconds) and 1 <= max_seconds < float("inf")):
        raise InputError(f"profile: max_seconds is {told(max_seconds)}; give at least 1")
    if device not in ("cpu", "cuda"):
        raise InputError(f"profile: device is {device!r}; choose cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("profile: device is 'cuda', but torch finds no GPU; choose cpu")
    _check_precision(precision, device, graph)
    shop = Workshop(torch, device, graph.element_bytes)
    with _products_in(torch, precision):
        return _measured(
            graph, servers, each, shop, _Clock(torch, device), max_seconds, progress, timing
        )


def _check_precision(precision: str | None, device: str, graph: ModelGraph) -> None:
    """Refuse a precision that cannot be had."""
    if precision is None:
        return
    if precision not in ("fp32", "tf32"):
        raise InputError(f"profile: precision is {precision!r}; choose fp32 or tf32")
    if device != "cuda":
        raise InputError(
            f"profile: precision is {precision!r}, which a GPU has; give device='cuda' or leave "
            "precision out"
        )
    if graph.element_bytes != 4:
        raise InputError(
            f"profile: precision is {precision!r}, but elements of {graph.name!r} have "
            f"{counted(graph.element_bytes, 'byte')}; leave precision out"
        )


@contextmanager
def _products_in(torch: Any, precision: str | None) -> Iterator[None]:
    """Let products and convolutions use TF32, or not, and set back what was."""
    if precision is None:
        yield
        return
    backends = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [backend.allow_tf32 for backend in backends]
    try:
        for backend in backends:
            backend.allow_tf32 = precision == "tf32"
        yield
    finally:
        for backend, was in zip(backends, before, strict=True):
            backend.allow_tf32 = was


def _measured(
    graph: ModelGraph,
    servers: int,
    each: int,
    shop: Workshop,
    clock: "_Clock",
    max_seconds: float,
    progress: Callable[[int, int], None] | None,
    timing: Callable[[str], None] | None,
) -> Measured:
    """Measure one task after another while there is time."""
    tasks = list(_tasks(graph, servers))
    planned = shop.without_memory()
    rows: list[dict[str, Any]] = []
    by_counts: dict[str, None] = {}
    met: set[int] = set()
    last: dict[tuple[int, Mode, int], tuple[int, float]] = {}
    start = time.perf_counter()
    for done, task in enumerate(tasks):
        op = graph.operators[task.index]
        # The file's batch is that of servers of four GPUs, the published ones.
        samples = servers * each * (PROFILE_GPUS if op.sparse else 1) // task.parts
        part = part_of(graph, task.index, samples, task.mode, task.parameter)
        first = task.index not in met
        left = max_seconds - (time.perf_counter() - start)
        key = (task.index, task.mode, task.parameter)
        before = last.get(key)
        guess = before[1] * before[0] / task.parts if before else 0.0
        if not first and (left <= 0 or guess > left):
            continue
        if clock.free_bytes() * _MEMORY_SHARE < max(needed_bytes(part), planned.held_bytes(part)):
            if first:
                raise InputError(
                    f"profile: operator {op.name!r} of {counted(samples, 'sample')}: its arrays "
                    f"do not fit in the memory of {shop.device}; give a smaller batch_per_gpu"
                )
            continue
        if timing is not None:
            timing(op.name)
        begun = time.perf_counter()
        work = shop.work(part)
        forward, backward = clock.measure(work)
        last[key] = (task.parts, time.perf_counter() - begun)
        met.add(task.index)
        if not work.exact:
            by_counts[op.name] = None
        held = sum(tensor.numel() * tensor.element_size() for tensor in work.tensors)
        rows.append(
            {
                "name": measured_name(op, task.mode, task.parameter),
                "pc_str": f"1-{task.parts}",
                "fw_time": forward * 1e3,
                "bw_time": backward * 1e3,
                "mem_req": held,
            }
        )
        if progress is not None:
            progress(done + 1, len(tasks))
    document = {
        "batch_size": PROFILE_GPUS * servers * each,
        "ngpus": servers,
        "measurements": rows,
    }
    return Measured(
        document, len(met), len(rows), len(tasks) - len(rows), tuple(by_counts), clock.name()
    )


def needed_bytes(part: OperatorPart) -> float:
    """Return a rough count of the bytes that a part's tensors and their gradients take."""
    op = part.op
    activations = (op.forward_bytes + op.backward_bytes) * part.samples
    weights = 2.0 * op.parameters * part.element_bytes / part.parts
    return activations + (min(weights, 2.0**32) if op.sparse else weights)


def _tasks(graph: ModelGraph, servers: int) -> Iterator[_Task]:
    """Yield what to measure: all operators at the most parts, at fewer, then parameter parts."""
    distinct: dict[str, int] = {}
    for index, op in enumerate(graph.operators):
        distinct.setdefault(measured_name(op), index)
    degrees = divisors(servers)[::-1]
    for parts in degrees:
        for index in distinct.values():
            yield _Task(index, parts, Mode.OUTPUT, 1)
    for parameter in sorted(degrees):
        if not 1 < parameter <= _MOST_PARAMETER_PARTS:
            continue
        for parts in degrees:
            if servers % (parts * parameter):
                continue
            for index in distinct.values():
                for split in graph.operators[index].splits:
                    if split.extent % parameter == 0:
                        yield _Task(index, parts, split.mode, parameter)


def _available_bytes() -> float:
    """Return the main memory that is free or could be freed; all of it where unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        entries = dict(line.split(":", 1) for line in lines)
        return float(entries["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")


class _Clock:
    """Times passes on one device."""

    def __init__(self, torch: Any, device: str) -> None:
        self.torch = torch
        self.cuda = device == "cuda"
        if self.cuda:
            self.written = torch.empty(_WRITTEN_BYTES, dtype=torch.uint8, device=device)
            self._write(2)
            marks = self._marks(2)
            marks[0].record()
            self._write(4)
            marks[1].record()
            torch.cuda.synchronize()
            self.write_seconds: float = marks[0].elapsed_time(marks[1]) * 1e-3 / 4

    def name(self) -> str:
        """Return what the device is called."""
        if self.cuda:
            return str(self.torch.cuda.get_device_name())
        return f"cpu, {counted(self.torch.get_num_threads(), 'thread')}"

    def free_bytes(self) -> float:
        """Return the memory that is free now."""
        if self.cuda:
            return float(self.torch.cuda.mem_get_info()[0])
        return _available_bytes()

    def measure(self, work: Runnable) -> tuple[float, float]:
        """Return the median seconds of a forward and of a backward pass, after one to warm up.

        Of passes that take seconds on a CPU one is enough: what a first one adds is little there.
        """
        gradient = self.torch.ones_like(work.forward())
        warm = self._pass_seconds(work, gradient, 0)
        if not self.cuda and sum(warm) > _LONG_SECONDS:
            return warm
        writes = self._writes(work, gradient) if self.cuda else 0
        forward: list[float] = []
        backward: list[float] = []
        begun = time.perf_counter()
        while len(forward) < _REPEATS[0] or (
            len(forward) < _REPEATS[1] and time.perf_counter() - begun < _REPEAT_SECONDS
        ):
            times = self._pass_seconds(work, gradient, writes)
            forward.append(times[0])
            backward.append(times[1])
        # A clock that does not tick within a pass still gives a positive time.
        return max(statistics.median(forward), 1e-9), max(statistics.median(backward), 1e-9)

    def _pass_seconds(self, work: Runnable, gradient: Any, writes: int) -> tuple[float, float]:
        for tensor in work.tensors:
            tensor.grad = None
        if not self.cuda:
            times = [time.perf_counter()]
            out = work.forward()
            times.append(time.perf_counter())
            out.backward(gradient)
            times.append(time.perf_counter())
            return times[1] - times[0], times[2] - times[1]
        self._write(writes)
        marks = self._marks(3)
        marks[0].record()
        out = work.forward()
        marks[1].record()
        out.backward(gradient)
        marks[2].record()
        self.torch.cuda.synchronize()
        return (
            marks[0].elapsed_time(marks[1]) * 1e-3,
            marks[1].elapsed_time(marks[2]) * 1e-3,
        )

    def _marks(self, number: int) -> list[Any]:
        return [self.torch.cuda.Event(enable_timing=True) for _ in range(number)]

    def _write(self, times: int) -> None:
        for _ in range(times):
            self.written.zero_()

    def _writes(self, work: Runnable, gradient: Any) -> int:
        """Return how many writes last twice as long as the host takes to launch a pass."""
        self.torch.cuda.synchronize()
        begun = time.perf_counter()
        work.forward().backward(gradient)
        launched = time.perf_counter() - begun
        self.torch.cuda.synchronize()
        return min(_MOST_WRITES, 1 + math.ceil(2.0 * launched / self.write_seconds))
