"""All layouts of a transformer on some GPUs that are legal, in an order that means nothing."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from math import gcd
from typing import get_args

from codesign_base import InfeasibleError, InputError
from codesign_base.counted import counted
from codesign_base.whole_numbers import divisors
from parallelism.transformers.choices import Choices, LayoutSpace
from parallelism.transformers.layout import (
    FOLDED,
    LOOPED,
    Layout,
    Module,
    PipelineScheduleName,
    part_stages,
)
from parallelism.transformers.shares import check_layout, shares_out
from parallelism.transformers.stage_maps import LayerLoads, usual_maps

_MOST_MICROBATCH = 8
_LEAST_TOKENS = 1024
"""Tokens of a sample on one rank, below which a sequence is not split further."""
_MOST_VIRTUAL = 12
_MOST_LARGE = 8
"""Parts a stage of more than a layer each."""
_MOST_TOGETHER = 4
"""Microbatches over stages of a breadth-first schedule, which keeps the activations of all."""
_MISSING_LAYERS = 3
"""Layers that may be missing to even parts of one or two layers: embedding, head and a further
prediction stand for one each."""
_USUAL_ZERO = (1, 3)
MOST_SAMPLES = 1024
"""Samples of an iteration for each GPU."""


def check_batch(global_batch: int, gpus: int) -> None:
    """Refuse batches whose pipelines would have more microbatches than can be looked at.

    Raises
    ------
    InputError
        If there are more samples than `MOST_SAMPLES` a GPU.
    """
    if global_batch > MOST_SAMPLES * gpus:
        raise InputError(
            f"global_batch is {global_batch}; give at most {MOST_SAMPLES} samples for each of the "
            f"{counted(gpus, 'GPU')}"
        )


def enumerate_layouts(
    space: LayoutSpace, loads: Callable[[Layout], LayerLoads] | None = None
) -> list[Layout]:
    """List the legal layouts of a model on all GPUs.

    Parameters
    ----------
    space : LayoutSpace
        What its choices leave open: tensor degrees within a server that divide a rank's tokens;
        context degrees that divide the sequence and leave 1024 tokens a rank; pipelines of at most
        as many stages as layers; every expert degree, each expert split over the tensor group or
        not at all; microbatches of 1 to 8 samples; up to 8 equal virtual stages, or 12 of one
        layer, or uneven ones where at most 3 layers are missing to parts of two; breadth-first
        schedules of more microbatches than stages, at most four times as many; states sharded by
        ZeRO 1, or 3 without pipelines; no or full recomputation. Layers as even as they go, and
        balanced with the ends of the model; of the better of these a folded model also has a layer
        more in each part on the way there (`usual_maps`).
    loads : callable, optional
        Returns what layers, embedding and head of a layout have to do; by default layers alike.

    Returns
    -------
    list of Layout

    Raises
    ------
    InputError
        If the batch is too large for so many GPUs.
    InfeasibleError
        If there is none.
    """
    check_batch(space.batch, space.gpus)
    weigh = loads or (lambda _: LayerLoads())
    refused: list[str] = []
    found = list(_layouts(space, weigh, refused))
    if not found:
        model, choices = space.model, space.choices
        remedy, limits = _remedy(space, weigh, refused), ""
        if choices.asked:
            limits = " with " + ", ".join(
                f"{name} {value}" for name, value in choices.asked.items()
            )
        raise InfeasibleError(
            f"model {model.name!r}: no layout fills {counted(space.gpus, 'GPU')} with a global "
            f"batch of {counted(space.batch, 'sample')} of {counted(space.sequence, 'token')}"
            f"{limits}; {remedy}",
            fields=tuple(choices.asked),
        )
    return found


def _remedy(space: LayoutSpace, loads: Callable[[Layout], LayerLoads], refused: list[str]) -> str:
    """Return what to change where no layout is legal."""
    choices, asked = space.choices, space.choices.asked
    experts = 1 if space.model.experts is None else space.model.experts.count
    for name, whole, of in (
        ("tensor", space.gpus, "GPUs"), ("context", space.gpus, "GPUs"),
        ("pipeline", space.gpus, "GPUs"), ("context", space.sequence, "tokens of a sample"),
        ("expert", experts, "experts of a layer"),
        ("microbatch", space.batch, "samples of an iteration"),
    ):  # fmt: skip
        degrees = getattr(choices, name)
        if degrees and all(whole % degree for degree in degrees):
            given = " or ".join(map(str, degrees))
            fault = f"{whole} {of} are no multiple of {name} {given}"
            return f"{fault}; give a divisor, or leave it out"
    if min(choices.tensor, default=0) > space.gpus_per_server and not choices.across_servers:
        return (
            "tensor-parallel groups stay within a server of "
            f"{counted(space.gpus_per_server, 'GPU')}; give a divisor of that, or allow them "
            "across servers (--tensor-across-servers, Choices(across_servers=True))"
        )
    if asked and refused and all(refused):  # no degrees that fill the GPUs divide the model
        return refused[0].removeprefix("layout: ")
    alone = [name for name in asked if _any_without(space, name, loads)]
    if alone:
        out = "it" if len(alone) == 1 else "one of them"
        return f"give {' or '.join(alone)} other values, or leave {out} out"
    remedy = "choose a batch or sequence that more degrees divide, or other GPUs"
    return f"leave out some of that, {remedy}" if asked else remedy


def _any_without(space: LayoutSpace, name: str, loads: Callable[[Layout], LayerLoads]) -> bool:
    """Whether any layout is legal if one of the choices is left open."""
    usual = getattr(Choices(), name)
    less = replace(space, choices=replace(space.choices, **{name: usual}))
    return any(True for _ in _layouts(less, loads, []))


def _layouts(
    space: LayoutSpace, loads: Callable[[Layout], LayerLoads], refused: list[str]
) -> Iterator[Layout]:
    """Yield layouts; of all degrees why they cannot split the model is added to ``refused``.

    That is empty where they can.
    """
    model, choices, gpus = space.model, space.choices, space.gpus
    tensors = list(divisors(space.gpus_per_server))
    if choices.across_servers:
        servers = gpus // space.gpus_per_server
        tensors += [space.gpus_per_server * k for k in divisors(servers) if k > 1]
    for tensor in tensors:
        if gpus % tensor or (choices.tensor and tensor not in choices.tensor):
            continue
        for context in _contexts(space, gpus // tensor):
            if not shares_out(model, tensor, space.sequence // context):
                continue
            for pipeline in divisors(gpus // tensor // context):
                if choices.pipeline and pipeline not in choices.pipeline:
                    continue
                data = gpus // tensor // context // pipeline
                if space.batch % data or not _may_split(space, pipeline):
                    continue
                for expert, split in _experts(space, tensor, data * context):
                    base = Layout(tensor, context, data, pipeline, expert, expert_tensor=split)
                    try:
                        check_layout(model, base)
                    except InputError as error:
                        refused.append(str(error))
                        continue
                    refused.append("")
                    yield from _timings(space, base, loads)


def _contexts(space: LayoutSpace, ranks: int) -> list[int]:
    chosen, sequence = space.choices.context, space.sequence
    if chosen:
        return [c for c in chosen if ranks % c == 0 and sequence % c == 0]
    return [
        c
        for c in divisors(ranks)
        if c == 1 or (sequence % c == 0 and sequence // c >= _LEAST_TOKENS)
    ]


def _may_split(space: LayoutSpace, pipeline: int) -> bool:
    parts, layers = space.choices.stage_layers, space.model.layers
    if parts:
        return len(parts) % pipeline == 0 and sum(parts) == layers
    return pipeline <= layers


def _experts(space: LayoutSpace, tensor: int, ranks: int) -> Iterator[tuple[int, int | None]]:
    """Expert degrees, with the tensor ranks that split an expert where these are not all."""
    model, choices, folds = space.model, space.choices, tensor <= space.gpus_per_server
    count = model.experts.count if model.experts else 1
    splits = {tensor, 1} if model.experts and folds else {tensor}
    if choices.expert_tensor:
        splits = {split for split in choices.expert_tensor if tensor % split == 0}
        splits = splits if folds else splits & {tensor}
    for split in sorted(splits, reverse=True):
        fold = tensor // split
        # Of both, so that a nonsensical number of experts takes no time either.
        for expert in divisors(gcd(count, ranks * fold)):
            whole = expert % fold == 0 and ranks % (expert // fold) == 0
            if whole and (not choices.expert or expert in choices.expert):
                yield expert, None if fold == 1 else split


def _timings(
    space: LayoutSpace, base: Layout, loads: Callable[[Layout], LayerLoads]
) -> Iterator[Layout]:
    """Microbatches, schedules, maps of layers, recomputation and sharding of some degrees."""
    model, choices, samples = space.model, space.choices, space.batch // base.data
    usual = range(1, _MOST_MICROBATCH + 1)
    modules = tuple(name for name in get_args(Module) if name in choices.modules)
    if model.attention.latent is None and len(modules) > 1:  # there is nothing to project up
        modules = tuple(name for name in modules if name != "up-projections")
    balanced = base.pipeline > 1 and not choices.stage_layers
    for microbatch in choices.microbatch or usual:
        if samples % microbatch:
            continue
        kinds = [
            replace(
                base, sequence_parallel=base.tensor > 1, microbatch=microbatch, recompute=recompute,
                modules=modules if recompute == "modules" else (),
            )
            for recompute in choices.recompute
        ]  # fmt: skip
        owns = [loads(kind) if balanced else LayerLoads() for kind in kinds]
        for schedule, virtual in _schedules(space, base.pipeline, samples // microbatch):
            for kind, own in zip(kinds, owns, strict=True):
                maps = _maps(space, base.pipeline, schedule, virtual, own)
                for stage_layers, zero, copies in product(
                    maps, choices.zero or _USUAL_ZERO, choices.replicate or (1,)
                ):
                    # Sharded weights are gathered for every microbatch: not with pipelines.
                    plain = replace(kind, zero=zero)
                    if (zero < 3 or base.pipeline == 1) and plain.may_replicate(copies):
                        yield replace(
                            plain, schedule=schedule, virtual_stages=virtual,
                            stage_layers=stage_layers, replicate=copies,
                        )  # fmt: skip


def _maps(
    space: LayoutSpace,
    pipeline: int,
    schedule: PipelineScheduleName,
    virtual: int,
    loads: LayerLoads,
) -> Iterator[tuple[int, ...]]:
    """Layers of each part: what is asked for, or `usual_maps`."""
    if space.choices.stage_layers or pipeline == 1:
        yield space.choices.stage_layers
        return
    stages = part_stages(schedule, pipeline, virtual)
    yield from usual_maps(space.model.layers, stages, loads, folded=schedule in FOLDED)


def _schedules(
    space: LayoutSpace, pipeline: int, microbatches: int
) -> Iterator[tuple[PipelineScheduleName, int]]:
    choices, layers = space.choices, space.model.layers
    parts = len(choices.stage_layers)
    if pipeline == 1:
        if parts > 1:
            return
        # Without stages no schedule has anything to hide or to keep, whatever is asked for.
        yield "1f1b", 1
        return
    for schedule in choices.schedules:
        if schedule in FOLDED:
            count = 2 * pipeline
            if parts == count or (not parts and count <= layers + 1):
                yield schedule, 2
            continue
        if schedule not in LOOPED:
            if parts in (0, pipeline):
                yield schedule, 1
            continue
        if not _loops(schedule, pipeline, microbatches, choices):
            continue
        for virtual in choices.virtual_stages or range(2, _MOST_VIRTUAL + 1):
            count = virtual * pipeline
            if virtual == 1 or (parts and count != parts):
                continue
            if (
                parts
                or (choices.virtual_stages and count <= layers)
                or (not choices.virtual_stages and _usual_parts(layers, count, virtual))
            ):
                yield schedule, virtual


def _loops(
    schedule: PipelineScheduleName, stages: int, microbatches: int, choices: Choices
) -> bool:
    """Whether an interleaved or breadth-first schedule of so many microbatches is looked at."""
    if schedule == "interleaved":
        return microbatches % stages == 0
    if microbatches == stages:  # the two are the same
        return "interleaved" not in choices.schedules
    usual = len(choices.schedules) == 1 or microbatches <= _MOST_TOGETHER * stages
    return microbatches > stages and usual


def _usual_parts(layers: int, parts: int, virtual: int) -> bool:
    """Whether a schedule of so many parts is looked at without being asked for."""
    missing = -layers % parts
    if missing:
        return parts <= layers <= 2 * parts and missing <= _MISSING_LAYERS
    return virtual <= _MOST_LARGE or parts == layers
