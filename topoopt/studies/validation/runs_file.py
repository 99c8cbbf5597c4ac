"""Published training runs from a file, and how true the model is of them."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Literal, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from codesign_base import InputError
from parallelism.accelerators import scale_up_of
from parallelism.reading import parse_json, read_text, schema_fault
from parallelism.record_fields import STRICT
from parallelism.transformers.architecture import Attention, Experts, Transformer
from parallelism.transformers.implementation import Arithmetic, get_stack
from parallelism.transformers.layout import Layout, Module, Recompute
from parallelism.transformers.links import links_of
from parallelism.transformers.presets import TRANSFORMERS, get_transformer
from topoopt.studies.validation.llm import run_case
from topoopt.studies.validation.published_run import PublishedRun

_ALL_EXPERTS = 99
# Runs on which numbers of rates or stacks were fitted, by name.
_FITTED = frozenset(
    [f"Llama3.1-8B {gpus}" for gpus in (8, 16, 32, 64, 128)]
    + [f"Llama3.1-70B {gpus}" for gpus in (64, 128, 256, 512, 1024, 2048)]
    + ["MCore 1.7B 48", "MCore 7.1B 96", "MCore 16B 192", "MCore 32B 384", "MCore 70B 768",
       "MCore 119B 1536", "MCore 177B 2304", "MCore 314B 3072", "MCore 462B 6144",
       "AutoModel Llama3-70B 64", "TorchTitan 8B FSDP 8", "TorchTitan 8B FSDP 128",
       "TorchTitan 8B FSDP8xTP8 64", "mpt-30b 512 h100",
       "mpt-30b 128 h100", "mpt-13b 512 h100", "mpt-13b 64 h100", "mpt-30b 8 a100",
       "mpt-13b 8 a100"]
)  # fmt: skip
# Sources that print another GPU than their runs' ``accel``.
_HARDWARE = {"llama3_h100_202412": "h100-96gb", "asyncTP_llama3_h100": "h100-96gb"}


@checked(frozen=True, config=STRICT)
class LayoutEntry:
    """A layout that a run's source allows; the fields of `Layout`, with their short names."""

    tensor: int
    pipeline: int
    data: int
    context: int
    expert: int
    microbatch: int
    virtual: int
    recompute: Recompute
    zero: Literal[0, 1, 2, 3]
    expert_tensor: int | None = None


@checked(frozen=True, config=STRICT)
class ExpertsEntry:
    """Routed and shared experts of a run's model."""

    count: int
    per_token: int
    width: int
    shared: int = 0
    shared_width: int = 0
    first_dense: int = 0


@checked(frozen=True, config=STRICT)
class RunEntry:
    """One published run; `docs/llm.md` says what each field means."""

    name: str
    hidden: int
    ffn: int
    gated: bool
    layers: int
    heads: int
    qw: int
    kvw: int
    seq: int
    batch: int
    seconds: float
    accel: str
    vocab: int
    moe: bool
    layouts: list[LayoutEntry]
    source: str
    software: str
    gpus: int
    experts: ExpertsEntry | None = None
    fitted: bool | None = None
    precision: Arithmetic | None = None


@checked(frozen=True, config=STRICT)
class RunsFile:
    """A file of runs."""

    runs: list[RunEntry]
    about: str = ""


@dataclass(frozen=True, slots=True)
class RunError:
    """A run, the model's time of it, and the relative error (0.01 is 1 % too much)."""

    name: str
    stack: str
    accelerator: str
    published_s: float
    model_s: float
    error: float
    fitted: bool
    source: str
    setting: str


@dataclass(frozen=True, slots=True)
class ErrorSummary:
    """Errors without sign of some runs."""

    group: str
    runs: int
    mean: float
    median: float
    max: float


@dataclass(frozen=True)
class RunsValidation:
    """Errors by run, and summaries of all, of each stack, accelerator, fitted and other runs."""

    runs: tuple[RunError, ...]
    summaries: tuple[ErrorSummary, ...]


def read_runs(path: str | Path) -> tuple[RunEntry, ...]:
    """Return the runs of a file.

    Raises
    ------
    InputError
        If the file cannot be read, or a field is missing, unknown or of another type.
    """
    text = read_text(Path(path), "runs file")
    parse_json(text, f"runs file {path}")  # refuses keys that stand twice
    try:
        found = TypeAdapter(RunsFile).validate_json(text)
    except ValidationError as error:
        raise InputError(f"runs file {path}: {schema_fault(error)}") from None
    if not found.runs:
        raise InputError(f"runs file {path}: runs is empty; give at least one")
    return tuple(found.runs)


def published_run(entry: RunEntry) -> PublishedRun:
    """Return a run of a file as the validation of language models takes it.

    Raises
    ------
    InputError
        If model, layout, stack or accelerator are not possible or known.
    """
    head = entry.qw // entry.heads
    if entry.qw % entry.heads or entry.kvw % head:
        raise InputError(
            f"run {entry.name!r}: qw is {entry.qw} and kvw {entry.kvw}, not multiples of "
            f"qw / heads = {entry.qw / entry.heads:g}; give widths of whole heads"
        )
    if not 0 < entry.seconds < float("inf"):
        raise InputError(f"run {entry.name!r}: seconds is {entry.seconds}; give a positive number")
    if entry.moe and entry.experts is None:
        model = _known_mixture(entry)
    else:
        model = Transformer(
            entry.name, entry.layers, entry.hidden, Attention(entry.heads, entry.kvw // head, head),
            entry.ffn, entry.vocab, entry.seq, gated=entry.gated,
            experts=Experts(**asdict(entry.experts)) if entry.experts else None,
        )  # fmt: skip
    layouts = tuple(_layout(entry, one, model) for one in entry.layouts)
    if not layouts:
        raise InputError(f"run {entry.name!r}: layouts is empty; give those that the source allows")
    accelerator, software = entry.accel, entry.software
    for source, printed in _HARDWARE.items():
        accelerator = printed if source in entry.source else accelerator
    if software == "fsdp2" and entry.moe:
        software = "fsdp2-moe"
    domain = scale_up_of(accelerator)
    fitted = entry.name in _FITTED if entry.fitted is None else entry.fitted
    return PublishedRun(
        entry.name, entry.source, "fitted" if fitted else "held-out", model, layouts, entry.batch,
        entry.seq, entry.seconds, accelerator, links_of(accelerator, domain.gpus, domain.nic),
        get_stack(software, precision=entry.precision),
    )  # fmt: skip


def _known_mixture(entry: RunEntry) -> Transformer:
    """Return the preset of a run that does not print its experts, by layers and hidden width."""
    for name in TRANSFORMERS:
        preset = get_transformer(name)
        if preset.experts and (preset.layers, preset.hidden) == (entry.layers, entry.hidden):
            return replace(preset, sequence=entry.seq)
    raise InputError(
        f"run {entry.name!r}: moe is true, but no preset has {entry.layers} layers of width "
        f"{entry.hidden} with experts; give experts"
    )


def _layout(entry: RunEntry, one: LayoutEntry, model: Transformer) -> Layout:
    ranks = one.data * one.context
    expert = one.expert
    if expert == _ALL_EXPERTS and model.experts is not None:
        # The largest degree that there is.
        fold, count = one.tensor // (one.expert_tensor or one.tensor), model.experts.count
        expert = fold * max(e for e in range(1, ranks + 1)
                            if ranks % e == 0 and count % (fold * e) == 0)  # fmt: skip
    layout = Layout(
        tensor=one.tensor, context=one.context, data=one.data, pipeline=one.pipeline,
        expert=expert, sequence_parallel=one.tensor > 1, microbatch=one.microbatch,
        schedule="interleaved" if one.virtual > 1 else "1f1b", virtual_stages=one.virtual,
        recompute=one.recompute, zero=one.zero, expert_tensor=one.expert_tensor,
        modules=get_args(Module) if one.recompute == "modules" else (),
    )  # fmt: skip
    if layout.gpus != entry.gpus:
        raise InputError(
            f"run {entry.name!r}: a layout is for {layout.gpus} GPUs, but gpus is {entry.gpus}; "
            "correct one of them"
        )
    return layout


def validate_runs(path: str | Path) -> RunsValidation:
    """Compare the model's time of every run of a file with the published one.

    Parameters
    ----------
    path : path
        Of a file in the schema of `docs/llm.md`.

    Returns
    -------
    RunsValidation

    Raises
    ------
    InputError
        If the file or one of its runs is not what it should be.
    """
    found = []
    for entry in read_runs(path):
        run = published_run(entry)
        case = run_case(run)
        found.append(
            RunError(
                run.name, run.implementation.stack, run.accelerator, run.seconds, case.model,
                case.error, run.role == "fitted", run.source, case.setting,
            )
        )  # fmt: skip
    groups: dict[str, list[float]] = {"all": [abs(one.error) for one in found]}
    for one in found:
        for group in (
            f"stack {one.stack}", f"accelerator {one.accelerator}",
            "fitted" if one.fitted else "held out",
        ):  # fmt: skip
            groups.setdefault(group, []).append(abs(one.error))
    summaries = tuple(
        ErrorSummary(group, len(errors), fmean(errors), median(errors), max(errors))
        for group, errors in groups.items()
    )
    return RunsValidation(tuple(found), summaries)
