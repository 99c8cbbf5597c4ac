"""Times the operators of a model on the local device, for a profile file.

Every distinct operator shape is timed once at each number of sample parts, fewest samples
first, then the parameter parts that a strategy may choose. What does not fit in the time or
memory left is not measured; a reader of the profile interpolates (`parallelism.profile.time_at`).
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codesign_base import InputError
from codesign_base.whole_numbers import divisors
from parallelism.graph import Mode, ModelGraph
from parallelism.importers.recipes import OperatorPart, Runnable, Workshop, part_of
from parallelism.importers.torch_capture import import_torch
from parallelism.profile_file import PROFILE_GPUS, measured_name

# A measurement is the median of at least three passes, and of as many as fit in this time.
_REPEAT_SECONDS = 0.2
_REPEATS = (3, 20)
# Share of the free memory that a measurement may take; gradients and workspace need the rest.
_MEMORY_SHARE = 0.5
_MOST_PARAMETER_PARTS = 16


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


def profile_operators(
    graph: ModelGraph,
    servers: int,
    *,
    batch_per_gpu: int | None = None,
    device: str = "cpu",
    max_seconds: float = 60.0,
    progress: Callable[[int, int], None] | None = None,
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
    max_seconds : float, optional
        No measurement starts after this time, but each operator is measured once.
    progress : callable, optional
        Called with measurements done and all that could be.

    Returns
    -------
    Measured

    Raises
    ------
    InputError
        If torch or the device is missing, a number out of range, or the smallest part of an
        operator does not fit in memory.

    Notes
    -----
    Tables are timed with the samples of a whole server, everything else with those of a GPU,
    as the published profiles were.
    """
    torch = import_torch("profile")
    for name, value in (("servers", servers), ("max_seconds", max_seconds)):
        if not 1 <= value < float("inf"):
            raise InputError(f"profile: {name} is {value}; give at least 1")
    each = graph.batch_per_gpu if batch_per_gpu is None else batch_per_gpu
    if each < 1:
        raise InputError(f"profile: batch_per_gpu is {each}; give at least 1")
    if device not in ("cpu", "cuda"):
        raise InputError(f"profile: device is {device!r}; choose cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("profile: device is 'cuda', but torch finds no GPU; choose cpu")
    shop = Workshop(torch, device, graph.element_bytes)
    clock = _Clock(torch, device)
    tasks = list(_tasks(graph, servers))
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
        if clock.free_bytes() * _MEMORY_SHARE < needed_bytes(part):
            if first:
                raise InputError(
                    f"profile: {samples} samples of operator {op.name!r} do not fit in the memory "
                    f"of {device}; give a smaller batch_per_gpu"
                )
            continue
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

    def name(self) -> str:
        """Return what the device is called."""
        if self.cuda:
            return str(self.torch.cuda.get_device_name())
        return f"cpu, {self.torch.get_num_threads()} threads"

    def free_bytes(self) -> float:
        """Return the memory that is free now."""
        if self.cuda:
            return float(self.torch.cuda.mem_get_info()[0])
        return _available_bytes()

    def measure(self, work: Runnable) -> tuple[float, float]:
        """Return the median seconds of a forward and of a backward pass, after one to warm up."""
        gradient = self.torch.ones_like(work.forward())
        self._passes(work, gradient)
        forward: list[float] = []
        backward: list[float] = []
        begun = time.perf_counter()
        while len(forward) < _REPEATS[0] or (
            len(forward) < _REPEATS[1] and time.perf_counter() - begun < _REPEAT_SECONDS
        ):
            times = self._passes(work, gradient)
            forward.append(times[0])
            backward.append(times[1])
        # A clock that does not tick within a pass still gives a positive time.
        return max(statistics.median(forward), 1e-9), max(statistics.median(backward), 1e-9)

    def _passes(self, work: Runnable, gradient: Any) -> tuple[float, float]:
        for tensor in work.tensors:
            tensor.grad = None
        if not self.cuda:
            marks = [time.perf_counter()]
            out = work.forward()
            marks.append(time.perf_counter())
            out.backward(gradient)
            marks.append(time.perf_counter())
            return marks[1] - marks[0], marks[2] - marks[1]
        events = [self.torch.cuda.Event(enable_timing=True) for _ in range(3)]
        events[0].record()
        out = work.forward()
        events[1].record()
        out.backward(gradient)
        events[2].record()
        self.torch.cuda.synchronize()
        return (
            events[0].elapsed_time(events[1]) * 1e-3,
            events[1].elapsed_time(events[2]) * 1e-3,
        )
