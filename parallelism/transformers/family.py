"""Transformers and their layouts as a family of parallelizations."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats
from codesign_base.counted import counted
from parallelism.device import Server
from parallelism.family import Shorter
from parallelism.taskgraph import Phase, TaskGraph, TaskKind
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.assumptions import assumptions_of
from parallelism.transformers.balance import layer_loads
from parallelism.transformers.choices import Choices, LayoutSpace
from parallelism.transformers.costs import model_flops
from parallelism.transformers.enumeration import check_batch, enumerate_layouts
from parallelism.transformers.estimate import estimated_seconds
from parallelism.transformers.gpu import GpuRates
from parallelism.transformers.implementation import Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.limits import MOST_WIDTH
from parallelism.transformers.loads import Loads, loads_of
from parallelism.transformers.memory import MemoryUse, memory_use
from parallelism.transformers.placed_tasks import iteration_tasks
from parallelism.transformers.placement import (
    AxisOrder,
    Placement,
    axis_orders,
    different_orders,
)
from parallelism.transformers.published import published_layouts
from parallelism.transformers.reduced import reduced_tasks
from parallelism.transformers.schedules import PipelineSchedule, schedule_of
from parallelism.transformers.shares import check_layout, rank_tokens, shares_out
from parallelism.transformers.sizes import REDUCED_FROM, expected_bytes, expected_tasks
from parallelism.transformers.stage_maps import LayerLoads
from parallelism.transformers.training import Training

if TYPE_CHECKING:
    from parallelism.transformers.records import LayoutQuestion, LayoutRecord

_ENUMERATED = "layouts of a transformer are all looked at, none is proposed at random; leave it out"
_OPERATORS_ONLY = (
    "a transformer is planned by layouts, where it says nothing; leave it out, or plan its "
    "operator graph"
)
_COLLECTIVES = {
    TaskKind.ALLREDUCE: "AllReduce",
    TaskKind.REDUCE_SCATTER: "ReduceScatter",
    TaskKind.ALL_GATHER: "AllGather",
}
# Tasks of the graphs that are kept for later, and exchanges that these stand for: some 150 bytes
# each.
_MOST_KEPT = 500_000
# A pipeline with so many passes of all stages, and so many times as many microbatches as its
# shorter iterations differ by, is not simulated whole while layouts are ranked. These differ by the
# stages, or by so many microbatches at least, and have these multiples of that.
_LONG_PASSES, _LONG_STEPS, _LEAST_STEP = 50_000, 40, 8
_SHORTER = (4, 6, 8)
# Stated bytes of memory may differ from these by rounding.
_ROUNDING = 1e-9


def _size(tasks: TaskGraph) -> int:
    """Return how many tasks would take as much memory as a task graph."""
    return tasks.tasks + (0 if tasks.alike is None else 2 * tasks.alike.pattern.elements)


@dataclass(frozen=True, eq=False)
class LayoutFamily:
    """All placed layouts of a transformer on some servers.

    Parameters
    ----------
    model : Transformer
    batch : int
        Samples of an iteration.
    servers : int
    server : Server
    sequence : int
        Tokens of a sample.
    implementation : Implementation
    choices : Choices
        Which layouts are considered.
    rates : GpuRates
        What a GPU reaches.
    memory_reserve : float
        Share of each GPU's memory that is left free, beside what the stack keeps.
    """

    model: Transformer
    batch: int
    servers: int
    server: Server
    sequence: int
    implementation: Implementation
    choices: Choices
    rates: GpuRates
    memory_reserve: float
    # The last task graphs, of all tasks or not: bounds, wiring and scoring ask for the same ones.
    # Of its own: a family with other software builds others of the same placements.
    _built: dict[tuple[Placement, bool], TaskGraph] = field(
        default_factory=dict, init=False, repr=False
    )

    kind: ClassVar[str] = "layouts"
    noun: ClassVar[str] = "layout"
    overlaps: ClassVar[bool] = False
    enumerated: ClassVar[bool] = True
    refused: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("batch_per_gpu", "profile", "compute", "optimizer"), _OPERATORS_ONLY),
        **dict.fromkeys(("parameter_splits", "method", "faithful"), _OPERATORS_ONLY),
        **dict.fromkeys(
            ("steps", "seconds", "chains", "restarts", "workers", "engine", "checkpoint"),
            _ENUMERATED,
        ),
    }

    def __post_init__(self) -> None:
        if isinstance(self.batch, bool) or self.batch < 1:
            raise InputError(f"global_batch is {self.batch!r}; give at least 1")
        if not 1 <= self.sequence <= MOST_WIDTH:
            raise InputError(f"sequence is {self.sequence!r}; give 1 to {MOST_WIDTH}")
        if not 0 <= self.memory_reserve < 1:
            raise InputError(
                f"memory_reserve is {self.memory_reserve}; give a share of at least 0 and below 1"
            )
        if self.implementation.precision == "fp8":
            self.server.accelerator.peak_flops("fp8")  # refuses those without
        if self.rates.accelerator != self.server.accelerator:
            raise InputError(
                f"rates are of accelerator {self.rates.accelerator.name!r}, but the server's is "
                f"{self.server.accelerator.name!r}, or differs in a number; give rates of the same"
            )

    def __getstate__(self) -> dict[str, Any]:
        """Return what is sent to another process: nothing that can be worked out there."""
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"_built": {}}

    @property
    def gpus(self) -> int:
        """GPUs of all servers."""
        return self.servers * self.server.gpus

    @property
    def memory_limit(self) -> float:
        """Bytes of each GPU that a layout may use."""
        return self.server.accelerator.usable_bytes * (1.0 - self.memory_reserve)

    @property
    def space(self) -> LayoutSpace:
        """What the layouts have to fill and to divide."""
        return LayoutSpace(
            self.model, self.gpus, self.server.gpus, self.batch, self.sequence, self.choices
        )

    def training(self, layout: Layout) -> Training:
        """Return the model as it is trained in a layout.

        Raises
        ------
        InputError
            If a sample cannot have so many tokens, or the context degree does not divide them.
        """
        return Training(self.model, layout, self.implementation, self.sequence)

    def layouts(self) -> tuple[Layout, ...]:
        """Return every legal layout of the choices; see `enumerate_layouts`, `published_layouts`.

        Where choices leave ZeRO open, those without pipelines that do not fit in memory under
        ZeRO 1 are there under ZeRO 2, too: it scatters gradients for every microbatch, but
        gathers weights once.

        Raises
        ------
        InfeasibleError
            If there is none.
        """
        return self._layouts

    @cached_property
    def _layouts(self) -> tuple[Layout, ...]:
        found = enumerate_layouts(self.space, self._loads)
        if not self.choices.zero:
            found += [replace(layout, zero=2) for layout in found if self._lacks_memory(layout)]
        known = set(found)
        return (*found, *(layout for layout in self.published if layout not in known))

    def _lacks_memory(self, layout: Layout) -> bool:
        """Whether a layout has no pipeline, and too little memory under ZeRO 1."""
        flat = layout.pipeline == 1 and layout.zero == 1
        return flat and max(use.total for use in self.uses(layout)) > self.memory_limit

    def _loads(self, layout: Layout) -> LayerLoads:
        """Return what layers, embedding and head have to do; see `layer_loads`."""
        return layer_loads(self.training(layout), self.rates, self.server)

    @cached_property
    def published(self) -> tuple[Layout, ...]:
        """Layouts in which the model was run by others and that fill these GPUs."""
        return published_layouts(self.space)

    def placements(self, layout: Layout) -> list[Placement]:
        """Return every placement of a layout that puts ranks on other servers, Megatron's first.

        Of a stack that forwards tokens inside servers those whose experts fill servers, if any do.
        """
        return self._placed(layout, axis_orders(layout))

    def unlike_placements(self, layout: Layout) -> list[Placement]:
        """Return placements that put other ranks together on servers, Megatron's first.

        On a switch any other one of `placements` takes as long as one of these.
        """
        return self._placed(layout, different_orders(layout, self.server.gpus))

    def _placed(self, layout: Layout, orders: Sequence[AxisOrder]) -> list[Placement]:
        places = [Placement(layout, self.server.gpus, order) for order in orders]
        if layout.expert == 1 or not self.implementation.forwarded_tokens:
            return places
        return [each for each in places if each.of_degrees.experts_fill_servers] or places

    def least_seconds(self, placement: Placement) -> float:
        """Return 0: bounds of layouts are known before these are placed."""
        return 0.0

    def in_buckets(self, packet_bytes: float) -> "LayoutFamily":
        """Return the family: gradients of a part are fused in any case."""
        return self

    def loads(self, placement: Placement, far: Set[str] | None = None) -> Loads:
        """Return what a placed layout asks of devices and network; see `loads_of`."""
        training = self.training(placement.layout)
        return loads_of(training, placement, self.rates, self.server, far)

    def build(self, placement: Placement) -> TaskGraph:
        """Return the task graph of one iteration; see `iteration_tasks`."""
        tasks = self._built.get((placement, True))
        if tasks is None:
            schedule = schedule_of(placement.layout, self.batch)
            tasks = iteration_tasks(placement, schedule, self.loads(placement))
            self._keep(placement, True, tasks)
        return tasks

    def represented(self, placement: Placement) -> TaskGraph:
        """Return one iteration with one task of each kind, or, if it is small, all tasks."""
        tasks = self._built.get((placement, False))
        if tasks is None:
            schedule = schedule_of(placement.layout, self.batch)
            training = self.training(placement.layout)
            if expected_tasks(training, placement, schedule) >= REDUCED_FROM:
                tasks = reduced_tasks(placement, schedule, self.loads(placement))
            if tasks is None:
                tasks = self.build(placement)
            self._keep(placement, False, tasks)
        return tasks

    def shorter(self, placement: Placement) -> Shorter | None:
        """Return iterations of fewer microbatches where the pipeline is long; None where not.

        They have as many warm-ups and ends as the whole one, and each a multiple of the stages more
        microbatches than the one before, as every schedule allows.
        """
        layout = placement.layout
        microbatches = layout.microbatches(self.batch)
        step = layout.pipeline * -(-_LEAST_STEP // layout.pipeline)
        passes = 2 * microbatches * layout.pipeline * layout.virtual_stages
        if passes < _LONG_PASSES or microbatches < _LONG_STEPS * step:
            return None
        samples = self.batch // microbatches
        one, two, three = (
            replace(self, batch=samples * step * times).represented(placement) for times in _SHORTER
        )
        apart = (_SHORTER[-1] - _SHORTER[-2]) * step
        return Shorter((one, two, three), (microbatches - _SHORTER[-1] * step) / apart)

    def _keep(self, placement: Placement, whole: bool, tasks: TaskGraph) -> None:
        """Keep a task graph, and of the others the last ones, as far as memory allows."""
        # What is not reduced is one graph under both names.
        left, known = _MOST_KEPT - _size(tasks), {id(tasks)}
        kept = {(placement, whole): tasks}
        for key, other in reversed(list(self._built.items())):
            left -= 0 if id(other) in known else _size(other)
            known.add(id(other))
            if left < 0:
                break
            kept.setdefault(key, other)
        self._built.clear()
        self._built.update(reversed(kept.items()))

    def expected_bytes(self, placement: Placement) -> float:
        """Return what the arrays of its task graph take, about; see `sizes.expected_bytes`."""
        schedule = schedule_of(placement.layout, self.batch)
        return expected_bytes(self.training(placement.layout), placement, schedule)

    def microbatched(self, placement: Placement, microbatches: int) -> TaskGraph | None:
        """Return one iteration; None for more than one part: microbatches are the layout's own."""
        return self.represented(placement) if microbatches == 1 else None

    def uses(
        self, layout: Layout, schedule: PipelineSchedule | None = None
    ) -> tuple[MemoryUse, ...]:
        """Return the memory of a GPU of each pipeline stage; see `memory_use`."""
        order = schedule_of(layout, self.batch) if schedule is None else schedule
        return memory_use(self.training(layout), order)

    def memory(self, placement: Placement) -> Floats:
        """Return the bytes that a GPU of each pipeline stage needs, shape (stages,)."""
        return np.array([use.total for use in self.uses(placement.layout)])

    def estimate(
        self, placement: Placement, bandwidth: float, schedule: PipelineSchedule | None = None
    ) -> float:
        """Return about the seconds of an iteration on a switch; see `estimated_seconds`.

        Parameters
        ----------
        placement : Placement
        bandwidth : float
            Bytes/s of all ports of a server.
        schedule : PipelineSchedule, optional
            That of the layout, if it is at hand.
        """
        order = schedule_of(placement.layout, self.batch) if schedule is None else schedule
        return estimated_seconds(placement, order, self.loads(placement), bandwidth)

    def utilisation(self, seconds: float) -> float:
        """Return the share of the GPUs' peak that the model's own operations take.

        By the convention of `model_flops`, without recomputation.
        """
        peak = self.gpus * self.server.accelerator.bf16_flops
        return model_flops(self.model, self.batch, self.sequence) / (seconds * peak)

    def tokens_per_s(self, seconds: float) -> float:
        """Return the tokens that all servers together train with in a second."""
        return self.batch * self.sequence / seconds

    def question(self) -> "LayoutQuestion":
        """Return the record from which the family is made again, beside servers and batch."""
        from parallelism.transformers.records import LayoutQuestion

        return LayoutQuestion(
            model=self.model,
            server=self.server,
            sequence=self.sequence,
            rates=self.rates,
            implementation=self.implementation,
            choices=self.choices,
            memory_reserve=float(self.memory_reserve),
        )

    @classmethod
    def asked(cls, question: "LayoutQuestion", servers: int, batch: int) -> "LayoutFamily":
        """Return the family of a record on so many servers, for so many samples an iteration."""
        return cls(
            question.model, batch, servers, question.server, question.sequence,
            question.implementation, question.choices, question.rates, question.memory_reserve,
        )  # fmt: skip

    def on(self, servers: int, batch: int) -> "LayoutFamily":
        """Return the same job on other servers."""
        return replace(self, servers=servers, batch=batch)

    def record(self, placement: Placement) -> "LayoutRecord":
        """Return a placed layout as a plan file holds it."""
        from parallelism.transformers.records import LayoutRecord

        uses = list(self.uses(placement.layout))
        return LayoutRecord(placement.layout, placement.order, uses)

    def read(self, record: "LayoutRecord") -> Placement:
        """Return the placed layout of a record.

        Raises
        ------
        InputError
            If it is not legal, does not fill the GPUs, has another memory than stated, or does
            not fit; or if its order of axes is not the one that such placements are named by.
        """
        layout = record.layout
        check_batch(self.batch, self.gpus)
        check_layout(self.model, layout)
        if layout.gpus != self.gpus:
            raise InputError(
                f"layout is for {counted(layout.gpus, 'GPU')}; the cluster has {self.gpus}"
            )
        layout.microbatches(self.batch)
        tokens = rank_tokens(self.model, layout, self.sequence)
        if layout.sequence_parallel and not shares_out(self.model, layout.tensor, tokens):
            raise InputError(
                f"layout has tensor {layout.tensor} with sequence parallelism, which does not "
                f"divide the {counted(tokens, 'token')} of a rank; give a divisor"
            )
        if record.order not in axis_orders(layout):
            raise InputError(
                f"order of axes is {', '.join(record.order)}; expected one of "
                f"{'; '.join(', '.join(order) for order in axis_orders(layout))}"
            )
        self._check_stages(record)
        return Placement(layout, self.server.gpus, record.order)

    def _check_stages(self, record: "LayoutRecord") -> None:
        uses = self.uses(record.layout)
        if len(uses) != len(record.stages):
            raise InputError(
                f"stages lists {counted(len(record.stages), 'stage')}; the layout has {len(uses)}"
            )
        for stage, (stated, use) in enumerate(zip(record.stages, uses, strict=True)):
            for name, value in asdict(use).items():
                given = getattr(stated, name)
                if abs(given - value) > _ROUNDING * abs(value):
                    raise InputError(
                        f"stages[{stage}].{name} is {given!r} in the plan, recomputed {value!r}"
                    )
        most = max(use.total for use in uses)
        if most > self.memory_limit:
            raise InputError(
                f"layout needs {most / 1e9:.4g} GB per GPU; "
                f"{self.memory_limit / 1e9:.4g} GB may be used"
            )

    def task_label(self, tasks: TaskGraph, task: int) -> str:
        """Return what a trace calls a task: its phase, part of the model and microbatch."""
        kind, phase = TaskKind(tasks.kind[task]), Phase(tasks.phase[task]).name.lower()
        if tasks.phase[task] == Phase.UPDATE:  # once an iteration, of all parts of a stage
            return f"{phase} of stage {tasks.operator[task]}"
        of = f" of part {tasks.operator[task]}, microbatch {tasks.part[task]}"
        if kind is TaskKind.COMPUTE:
            return f"{phase}{of}"
        if kind is TaskKind.TRANSFER:
            return f"{phase}{of} {tasks.first[task]}->{tasks.second[task]}"
        return f"{_COLLECTIVES[kind]}{of} over {len(tasks.groups[tasks.first[task]])} servers"

    def assumptions(self, placement: Placement, microbatches: int = 1) -> list[str]:
        """Return what the times of any placed layout rest on, one sentence each."""
        return assumptions_of(self.question(), placement)
