"""The file of published training runs: its fields, and what reading it refuses."""

from importlib.resources import files
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from codesign_base import InputError
from parallelism.reading import parse_json, read_text, schema_fault
from parallelism.record_fields import STRICT
from parallelism.transformers.implementation import Arithmetic, AttentionKernel
from parallelism.transformers.layout import Module, PipelineScheduleName, Recompute

_PUBLISHED = "published"
"""The name that stands for the runs that come with the program."""
Scores = Literal["all", "causal", "none"]


@checked(frozen=True, config=STRICT)
class LayoutEntry:
    """A layout that a run's source allows; the fields of `Layout`, with their short names."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    context: int = 1
    expert: int = 1
    microbatch: int = 1
    virtual: int = 1
    recompute: Recompute = "none"
    zero: Literal[0, 1, 2, 3] = 1
    expert_tensor: int | None = None
    modules: list[Module] | None = None
    schedule: PipelineScheduleName | None = None
    stage_layers: list[int] | None = None
    sequence_parallel: bool | None = None


@checked(frozen=True, config=STRICT)
class ExpertsEntry:
    """Routed and shared experts of a run's model."""

    count: int
    per_token: int
    width: int
    shared: int = 0
    shared_width: int = 0
    first_dense: int = 0
    every: int = 1
    groups: int = 1
    groups_per_token: int = 1


@checked(frozen=True, config=STRICT)
class LatentEntry:
    """Ranks of a run's latent attention."""

    kv_rank: int
    query_rank: int
    rope_width: int
    value_width: int


@checked(frozen=True, config=STRICT)
class ShapeEntry:
    """A model by its widths; `docs/llm.md` says what each field means."""

    hidden: int
    ffn: int
    layers: int
    heads: int
    vocab: int
    gated: bool
    qw: int | None = None
    kvw: int | None = None
    experts: ExpertsEntry | None = None
    latent: LatentEntry | None = None
    tied: bool = False


@checked(frozen=True, config=STRICT)
class AcceleratorEntry:
    """An accelerator that is not in the table, by its data sheet; rates are H100's shares."""

    name: str
    bf16_tflops: float
    memory_gb: float
    memory_gb_s: float
    link_gb_s: float
    fp8_tflops: float = 0.0
    gpus: int = 8
    nic_gbps: float = 400.0


@checked(frozen=True, config=STRICT)
class RunEntry:
    """One published run; `docs/llm.md` says what each field means."""

    name: str
    seq: int
    batch: int
    accel: str | AcceleratorEntry
    layouts: list[LayoutEntry]
    source: str
    software: str
    gpus: int
    model: str | None = None
    hidden: int | None = None
    ffn: int | None = None
    gated: bool | None = None
    layers: int | None = None
    heads: int | None = None
    qw: int | None = None
    kvw: int | None = None
    vocab: int | None = None
    moe: bool | None = None
    experts: ExpertsEntry | None = None
    latent: LatentEntry | None = None
    tied: bool = False
    seconds: float | None = None
    tokens_per_second: float | None = None
    tokens_per_second_gpu: float | None = None
    tflops_gpu: float | None = None
    mfu: float | None = None
    scores: Scores = "all"
    fitted: bool | None = None
    precision: Arithmetic | None = None
    attention: AttentionKernel | None = None
    gradient_bytes: Literal[2, 4] | None = None
    overlap_tensor: float | None = None
    fp8_scatter: bool | None = None
    load_imbalance: float = 1.0
    mtp_layers: int | None = None
    nic_gbps: float | None = None


@checked(frozen=True, config=STRICT)
class RunsFile:
    """A file of runs, and of the models that they name."""

    runs: list[RunEntry]
    about: str = ""
    models: dict[str, ShapeEntry] | None = None


def read_runs_file(path: str | Path) -> RunsFile:
    """Return what a file of runs holds; ``published`` is the one that comes with the program.

    Raises
    ------
    InputError
        If the file cannot be read, or a field is missing, unknown or of another type.
    """
    if str(path) == _PUBLISHED and not Path(path).exists():
        text = files("topoopt.studies.validation").joinpath("published_runs.json").read_text()
    else:
        text = read_text(Path(path), "runs file")
    parse_json(text, f"runs file {path}")  # refuses keys that occur twice
    try:
        found = TypeAdapter(RunsFile).validate_json(text)
    except ValidationError as error:
        raise InputError(f"runs file {path}: {schema_fault(error)}") from None
    if not found.runs:
        raise InputError(f"runs file {path}: runs is empty; give at least one")
    return found
