"""How a transformer is spread over GPUs: degrees, schedule, recomputation, sharded states."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from reprlib import repr as brief
from typing import Any, Literal, get_args

from codesign_base import InputError
from codesign_base.arguments import check_kind, told
from codesign_base.counted import counted
from codesign_base.hashed_once import hashed_once

PipelineScheduleName = Literal[
    "gpipe", "1f1b", "eager-1f1b", "interleaved", "breadth-first", "zero-bubble", "zero-bubble-v"
]  # fmt: skip
LOOPED: tuple[PipelineScheduleName, ...] = ("interleaved", "breadth-first")
"""Schedules in which the parts of the model go round the stages, several of each."""
FOLDED: tuple[PipelineScheduleName, ...] = ("zero-bubble-v",)
"""Schedules of two parts a stage: the model goes to the last stage, and back."""
SPLIT: tuple[PipelineScheduleName, ...] = ("zero-bubble", "zero-bubble-v")
"""Schedules in which gradients of weights are passes of their own."""
Recompute = Literal["none", "selective", "full", "modules"]
Module = Literal[
    "norms", "up-projections", "activations", "shared-experts", "experts", "feed-forward"
]
USUAL_MODULES: tuple[Module, ...] = ("norms", "up-projections", "activations")
"""What takes little work to compute again: all but whole parts of layers."""
MOST_DEGREE = 2**20
"""Ranks, samples or stages of any one kind."""
MOST_STAGE_PARTS = 10_000
"""Parts of a model in a map of stages, and layers of each."""


def part_steps(schedule: PipelineScheduleName, stages: int, chunks: int) -> tuple[int, ...]:
    """Return the steps from the stage of each part of a model to that of the next.

    Parameters
    ----------
    schedule : PipelineScheduleName
    stages, chunks : int
        Stages, and parts of each.

    Returns
    -------
    tuple of int
        One for each part but the last. Parts go round the stages, 1 each time, modulo the stages;
        or, where the schedule folds the model, to the last stage, stay there (0), and back (-1).
    """
    if schedule in FOLDED:
        return (1,) * (stages - 1) + (0,) + (-1,) * (stages - 1)
    return (1,) * (stages * chunks - 1)


def part_stages(schedule: PipelineScheduleName, stages: int, chunks: int) -> tuple[int, ...]:
    """Return the stage of each part of a model; see `part_steps`."""
    steps = part_steps(schedule, stages, chunks)
    return tuple(place % stages for place in accumulate(steps, initial=0))


@hashed_once
@dataclass(frozen=True)
class Layout:
    """Degrees of parallelism and everything that goes with them.

    GPUs are ``tensor * context * data * pipeline``. Experts are spread over ``expert`` of the
    ``data * context`` ranks of a stage, and each is split over the tensor ranks; or, with
    ``expert_tensor``, over fewer of these, and expert groups extend over the rest of them.

    Parameters
    ----------
    tensor, context, data, pipeline : int
        Degrees tp, cp, dp, pp. Ranks are numbered with tensor innermost, then context, data,
        and pipeline outermost (Megatron's order).
    expert : int
        Degree ep: ranks that share a layer's experts; divides ``data * context``, or, with
        ``expert_tensor``, ``tensor / expert_tensor`` times that.
    sequence_parallel : bool
        Norms and dropouts split along the sequence within a tensor group: AllReduces become
        ReduceScatter and AllGather (Korthikanti et al., 2022).
    microbatch : int
        Samples of a microbatch on one data-parallel rank.
    schedule : PipelineScheduleName
        See `parallelism.transformers.schedules.build_schedule`.
    virtual_stages : int
        Model chunks a GPU: any number of an interleaved or breadth-first schedule, 2 of
        ``zero-bubble-v``, 1 of the others.
    recompute : {"none", "selective", "full", "modules"}
        Activations computed again in the backward pass: none, attention cores, whole layers, or
        the outputs of ``modules``.
    zero : {0, 1, 2, 3}
        What is sharded over data-parallel ranks: nothing, optimizer states, also gradients,
        also weights (ZeRO stages).
    expert_tensor : int, optional
        Degree etp, below tp: tensor ranks that split each expert; all by default. Attention and
        experts then divide the same GPUs of a stage in two ways, as Megatron-Core folds them:
        ``tensor * context * data``, and ``expert_tensor * expert`` times the ranks that have the
        same experts. Needs sequence parallelism, so that tensor ranks have tokens of their own.
    stage_layers : tuple of int
        Layers of each part along the model, the first of them with the embedding, the last with
        the head. Empty: as even as they go (`stages.parts_of`).
    modules : tuple of Module
        What recomputation by modules does again in every layer: ``norms``; ``up-projections`` from
        latent vectors to queries, keys and values; ``activations``, the nonlinearity of
        feed-forward parts and experts; or whole parts, with their messages: ``shared-experts``;
        ``experts``, the router, all experts and the exchange of tokens, there and back; and the
        dense ``feed-forward``. (Megatron-Core's ``layernorm``, ``mla_up_proj``, ``moe_act``,
        ``shared_experts``, ``moe`` and ``mlp``.)
    replicate : int
        Copies of sharded states: ``zero`` shards over the ``data / replicate`` next data ranks,
        with all their context ranks, and ranks of the other copies add up what is scattered to
        them (hybrid sharding: PyTorch FSDP's HSDP, Megatron-Core's instances of the distributed
        optimizer). The ranks of a copy hold all experts.
    """

    tensor: int = 1
    context: int = 1
    data: int = 1
    pipeline: int = 1
    expert: int = 1
    sequence_parallel: bool = True
    microbatch: int = 1
    schedule: PipelineScheduleName = "1f1b"
    virtual_stages: int = 1
    recompute: Recompute = "none"
    zero: int = 1
    expert_tensor: int | None = None
    stage_layers: tuple[int, ...] = ()
    modules: tuple[Module, ...] = ()
    replicate: int = 1

    def __post_init__(self) -> None:
        for name in (
            "tensor", "context", "data", "pipeline", "expert", "microbatch", "virtual_stages",
            "replicate",
        ):  # fmt: skip
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"layout: {name} is {value!r}; give a whole number of at least 1")
            if value > MOST_DEGREE:
                raise InputError(f"layout: {name} is {value}; give at most {MOST_DEGREE}")
        check_kind("layout: sequence_parallel", self.sequence_parallel, bool, "True or False")
        if isinstance(self.zero, bool) or self.zero not in (0, 1, 2, 3):
            raise InputError(f"layout: zero is {self.zero!r}; choose 0, 1, 2 or 3")
        for name, known in (("schedule", PipelineScheduleName), ("recompute", Recompute)):
            value, choices = getattr(self, name), get_args(known)
            if value not in choices:
                raise InputError(f"layout: {name} is {value!r}; choose {', '.join(choices)}")
        for name, example in (("stage_layers", (8, 8)), ("modules", ("norms",))):
            value = getattr(self, name)
            if isinstance(value, list):
                object.__setattr__(self, name, tuple(value))
            elif not isinstance(value, tuple):
                raise InputError(
                    f"layout: {name} is {told(value)}; give a tuple, such as {example}"
                )
        modules: tuple[str, ...] = get_args(Module)
        listed = [name for name in modules if name in self.modules]
        if list(self.modules) != listed or bool(listed) != (self.recompute == "modules"):
            raise InputError(
                f"layout: modules is {brief(self.modules)} with recompute {self.recompute!r}; give "
                f"some of {', '.join(modules)}, in this order, with recompute 'modules', else none"
            )
        self._check_experts()
        self._check_copies()
        if self.stage_layers:
            self._check_parts()
        folded = self.schedule in FOLDED
        if self.virtual_stages != 1 + folded and self.schedule not in LOOPED:
            raise InputError(
                f"layout: virtual_stages is {self.virtual_stages} with schedule "
                f"{self.schedule!r}; give {1 + folded}, or schedule {' or '.join(LOOPED)}"
            )
        if folded and self.pipeline < 2:
            raise InputError(f"layout: schedule {self.schedule!r} needs pipeline of at least 2")
        if self.schedule in LOOPED and (self.pipeline < 2 or self.virtual_stages < 2):
            raise InputError(
                f"layout: schedule {self.schedule!r} needs pipeline and virtual_stages of at "
                "least 2"
            )

    def _check_experts(self) -> None:
        split, ranks = self.expert_tensor, self.data * self.context
        if split is None:
            if ranks % self.expert:
                raise InputError(
                    f"layout: expert is {self.expert}, which does not divide data * context = "
                    f"{ranks}; give a divisor"
                )
            return
        if isinstance(split, bool) or not isinstance(split, int) or not 1 <= split < self.tensor:
            raise InputError(
                f"layout: expert_tensor is {split!r} with tensor {self.tensor}; give a whole "
                "number below it, or leave it out"
            )
        fold = self.tensor // split
        if self.tensor % split or self.expert % fold or ranks % (self.expert // fold):
            raise InputError(
                f"layout: expert is {self.expert} and expert_tensor {split}; with tensor "
                f"{self.tensor} and data * context = {ranks} give an expert_tensor that divides "
                "tensor, and an expert of tensor / expert_tensor times a divisor of the rest"
            )
        if not self.sequence_parallel:
            raise InputError(
                f"layout: expert_tensor is {split} without sequence_parallel; give both, or leave "
                "it out"
            )

    def _check_copies(self) -> None:
        if not self.may_replicate(self.replicate):
            alone = "" if self.expert_ranks == 1 else f", in groups of {self.expert_ranks}"
            raise InputError(
                f"layout: replicate is {self.replicate} with zero {self.zero}, data {self.data} "
                f"and context {self.context}; give a divisor of data that leaves each copy several "
                f"data and context ranks{alone}, and zero 1, 2 or 3"
            )

    def _check_parts(self) -> None:
        count = self.pipeline * self.virtual_stages
        if len(self.stage_layers) != count:
            raise InputError(
                f"layout: stage_layers lists {counted(len(self.stage_layers), 'part')}; give one "
                f"number for each of pipeline * virtual_stages = {count}"
            )
        for layers in self.stage_layers:
            whole = isinstance(layers, int) and not isinstance(layers, bool)
            if not whole or not 0 <= layers <= MOST_STAGE_PARTS:
                raise InputError(
                    f"layout: stage_layers holds {layers!r}; give whole numbers from 0 to "
                    f"{MOST_STAGE_PARTS}"
                )

    @cached_property
    def of_layers(self) -> "Layout":
        """The layout that differs in nothing that a layer of one microbatch shows.

        So that what was worked out for one layout is found again for those like it.
        """
        ranks = self.expert if self.expert_tensor is None else self.expert_ranks
        return _shared_layout(
            self.tensor, self.context, ranks, 1, self.expert, self.sequence_parallel,
            self.microbatch, "1f1b", 1, self.recompute, 0, self.expert_tensor, (), self.modules,
        )  # fmt: skip

    @cached_property
    def of_weights(self) -> "Layout":
        """The layout that differs in nothing that the weights of its GPUs show."""
        ranks = self.expert if self.expert_tensor is None else self.expert_ranks
        return _shared_layout(
            self.tensor, 1, ranks, self.pipeline, self.expert, True, 1, self._like,
            self.virtual_stages, "none", 0, self.expert_tensor, self.stage_layers, (),
        )  # fmt: skip

    @property
    def _like(self) -> PipelineScheduleName:
        """The schedule that stands for all with the same parts on the same stages."""
        if self.schedule in FOLDED:
            return self.schedule
        return "interleaved" if self.virtual_stages > 1 else "1f1b"

    @cached_property
    def part_steps(self) -> tuple[int, ...]:
        """Steps from the stage of each part to that of the next; see `part_steps`."""
        return part_steps(self.schedule, self.pipeline, self.virtual_stages)

    @cached_property
    def part_stages(self) -> tuple[int, ...]:
        """Stage of each part along the model."""
        return part_stages(self.schedule, self.pipeline, self.virtual_stages)

    def ties(self, reused: bool) -> bool:
        """Whether an embedding that is used again lies on different stages."""
        return reused and self.part_stages[-1] != 0

    @property
    def expert_split(self) -> int:
        """Tensor ranks that split each expert."""
        return self.tensor if self.expert_tensor is None else self.expert_tensor

    @property
    def expert_ranks(self) -> int:
        """Tensor groups that an expert group touches, of ``data * context`` of a stage."""
        return self.expert * self.expert_split // self.tensor

    def may_replicate(self, copies: int) -> bool:
        """Whether there may be so many copies of sharded states."""
        if copies == 1:
            return True
        sharing = self.data // copies * self.context
        held = max(2, self.expert_ranks)
        return self.zero > 0 and not self.data % copies and sharing > 0 and not sharing % held

    @property
    def sharing(self) -> int:
        """Tensor groups of a stage that share the states of one copy."""
        return self.data * self.context // self.replicate

    @property
    def gpus(self) -> int:
        """GPUs that the job takes."""
        return self.tensor * self.context * self.data * self.pipeline

    def microbatches(self, global_batch: int) -> int:
        """Return the microbatches of one iteration on each data-parallel rank.

        Raises
        ------
        InputError
            If the batch does not divide.
        """
        each = self.data * self.microbatch
        if global_batch % each:
            raise InputError(
                f"global batch is {global_batch}, no multiple of data * microbatch = {each}; "
                "choose another batch or degree"
            )
        return global_batch // each


@lru_cache(maxsize=4096)
def _shared_layout(*fields: Any) -> Layout:
    """Return one layout for all that ask for the same, whose hash is then known."""
    return Layout(*fields)
