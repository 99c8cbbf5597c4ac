"""The model of large language models against published measurements."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from statistics import fmean, median

from codesign_base import InputError
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.collectives import layer_communications
from parallelism.transformers.costs import layer_costs
from parallelism.transformers.gpu import GpuRates, rates_of
from parallelism.transformers.implementation import MEGATRON_2022, Implementation
from parallelism.transformers.iteration import iteration_time
from parallelism.transformers.layout import Layout, Recompute
from parallelism.transformers.memory import memory_use, state_bytes
from parallelism.transformers.pass_seconds import part_seconds
from parallelism.transformers.schedules import schedule_of
from parallelism.transformers.stages import WeightCount
from parallelism.transformers.training import Training
from topoopt.studies.validation.llm_runs import (
    A100_LINKS,
    GPT3_175B,
    GPT_1T,
    GPT_22B,
    GPT_530B,
    KORTHIKANTI,
    published_runs,
    selective_layouts,
)
from topoopt.studies.validation.published_run import PublishedRun

_FIGURE = f"{KORTHIKANTI}, figure 1, by its equations 1 to 5"
_RAJBHANDARI = "Rajbhandari et al., ZeRO, SC 2020, table 1 (64 data-parallel ranks)"


@dataclass(frozen=True, slots=True)
class LlmCase:
    """One published number and the model's.

    Parameters
    ----------
    name, source : str
    quantity : {"iteration time", "iteration time, FP8", "layer time", "activations", "states"}
    role : {"fitted", "held-out", "other-software"}
        Memory has no fitted parameter: ``held-out``.
    unit : str
        Of the next two: ``s`` or ``bytes``.
    published, model : float
    error : float
        Relative: 0.01 is 1 % too much.
    setting : str
        What the source leaves open and what was taken; how the published number is derived.
    fits : bool
        Whether a layout of the run fits into memory by the model; true of everything else.
    """

    name: str
    source: str
    quantity: str
    role: str
    unit: str
    published: float
    model: float
    error: float
    setting: str = ""
    fits: bool = True


@dataclass(frozen=True, slots=True)
class LlmSummary:
    """Absolute relative errors over some of the cases."""

    quantity: str
    role: str
    cases: int
    median: float
    mean: float
    max: float


@dataclass(frozen=True)
class LlmValidation:
    """All cases that ran, their summaries, and what the rates were fitted on.

    Parameters
    ----------
    cases : tuple of LlmCase
    summaries : tuple of LlmSummary
        By quantity and role; ``all`` leaves out runs of other software.
    fitted : dict of str to str
        By accelerator.
    """

    cases: tuple[LlmCase, ...]
    summaries: tuple[LlmSummary, ...]
    fitted: dict[str, str]


def validate_llm(
    *, cases: str = "*", progress: Callable[[str], None] | None = None
) -> LlmValidation:
    """Compare the model's times and memory with published ones.

    Parameters
    ----------
    cases : str
        A pattern of case names (``175B*``, ``SC21*``).
    progress : callable, optional
        Called with the name of each case when it is done.

    Returns
    -------
    LlmValidation

    Raises
    ------
    InputError
        If no case has a name of this pattern.
    """
    makers = [*_memory_cases(), *_layer_cases(), *_run_cases()]
    found = []
    for name, make in makers:
        if fnmatchcase(name, cases):
            found.append(make())
            if progress is not None:
                progress(name)
    if not found:
        raise InputError(
            f"no case is called {cases!r}; names are for example {makers[0][0]} and {makers[-1][0]}"
        )
    return LlmValidation(
        cases=tuple(found),
        summaries=_summaries(found),
        fitted={name: rates_of(name).fitted for name in ("a100", "h100")},
    )


_Maker = tuple[str, Callable[[], LlmCase]]


def _case(
    name: str, source: str, quantity: str, role: str, unit: str, published: float, model: float,
    setting: str = "", fits: bool = True,
) -> LlmCase:  # fmt: skip
    error = model / published - 1.0
    return LlmCase(name, source, quantity, role, unit, published, model, error, setting, fits)


def _run_cases() -> Iterator[_Maker]:
    for run in published_runs():
        yield run.name, partial(run_case, run)


def run_case(run: PublishedRun, rates: GpuRates | None = None) -> LlmCase:
    """Return a published run and the model's time of it, by other rates if some are given.

    Of several layouts the fastest counts, among those that fit into memory if any does.
    """
    rates = rates or run.rates or rates_of(run.accelerator)
    best: tuple[bool, float, Layout] | None = None
    for layout in run.layouts:
        order = schedule_of(layout, run.batch)
        training = Training(run.model, layout, run.implementation, run.sequence)
        use = memory_use(training, order)
        over = max(stage.total for stage in use) > rates.accelerator.usable_bytes
        time = iteration_time(training, order, rates, run.links)
        if best is None or (over, time) < best[:2]:
            best = (over, time, layout)
    assert best is not None
    over, seconds, layout = best
    setting = run.derived
    if len(run.layouts) > 1:
        taken = f"taken: microbatch {layout.microbatch}, {layout.virtual_stages} parts a stage"
        setting = f"{setting}; {taken}"
    low = run.implementation.precision == "fp8"
    quantity = "iteration time, FP8" if low else "iteration time"
    return _case(
        run.name, run.source, quantity, run.role, "s", run.seconds, seconds, setting, not over
    )


# Sequence parallelism, recomputation, milliseconds of forward and backward pass.
_LAYER_TIMES: tuple[tuple[bool, Recompute, float, float], ...] = (
    (False, "none", 7.7, 11.9),
    (True, "none", 7.2, 11.8),
    (False, "full", 7.7, 19.5),
    (False, "selective", 7.7, 13.2),
    (True, "selective", 7.2, 13.1),
)


def _layer_cases() -> Iterator[_Maker]:
    for sequence, recompute, forward, backward in _LAYER_TIMES:
        layout = Layout(tensor=8, microbatch=4, sequence_parallel=sequence, recompute=recompute)
        label = f"22B layer, {recompute}" + (", sequence" if sequence else "")
        for which, milliseconds in (("forward", forward), ("backward", backward)):
            name = f"{label}, {which}"
            yield name, partial(_layer_case, name, layout, which, 1e-3 * milliseconds)


def _trained_2022(model: Transformer, layout: Layout) -> Training:
    """Return a model as Korthikanti et al. (2022) trained it."""
    return Training(model, layout, MEGATRON_2022, model.sequence)


def _layer_case(name: str, layout: Layout, which: str, published: float) -> LlmCase:
    training = _trained_2022(GPT_22B, layout)
    costs, messages = layer_costs(training, 0), layer_communications(training, 0)
    one = part_seconds(training, costs, messages, rates_of("a100"), A100_LINKS)
    seconds = one.forward if which == "forward" else one.backward + one.weight
    source = f"{KORTHIKANTI}, table 4"
    return _case(name, source, "layer time", "fitted", "s", published, seconds)


# Model, pipeline, interleaving, microbatch, batch; GiB of a first-stage GPU's activations without
# recomputation, and with sequence parallelism and selective recomputation; of states.
_FIGURE_1 = (
    ("22B", GPT_22B, 1, 1, 4, 4, 59.25, 9.5625, 45.5625),
    ("175B", GPT3_175B, 8, 3, 1, 64, 66.84375, 12.3515625, 45.5625),
    ("530B", GPT_530B, 35, 3, 1, 280, 114.0234375, 23.076171875, 31.640625),
    ("1T", GPT_1T, 64, 1, 1, 512, 131.25, 26.5625, 32.958984375),
)
_ZERO = ((7.5, (31.4, 16.6, 1.88)), (128, (536, 284, 32)), (1000, (4187, 2218, 250)))


def _memory_cases() -> Iterator[_Maker]:
    for size, model, pipeline, chunks, microbatch, batch, none, saved, states in _FIGURE_1:
        full, selective = selective_layouts(pipeline, chunks, microbatch)
        kept = replace(full, recompute="none")
        for name, layout, gib in (
            (f"{size} activations, all", kept, none),
            (f"{size} activations, selective", selective, saved),
        ):
            yield name, partial(_activations_case, name, model, layout, batch, gib)
        name = f"{size} states"
        yield name, partial(_states_case, name, model, full, batch, states)
    for billions, published in _ZERO:
        for stage, gigabytes in enumerate(published, start=1):
            name = f"ZeRO-{stage} {billions:g}B"
            yield name, partial(_zero_case, name, billions, stage, gigabytes)


def _activations_case(
    name: str, model: Transformer, layout: Layout, batch: int, gib: float
) -> LlmCase:
    used = memory_use(_trained_2022(model, layout), schedule_of(layout, batch))[0].activations
    return _case(name, _FIGURE, "activations", "held-out", "bytes", gib * 2**30, used)


def _states_case(name: str, model: Transformer, layout: Layout, batch: int, gib: float) -> LlmCase:
    uses = memory_use(_trained_2022(model, layout), schedule_of(layout, batch))
    used = uses[layout.pipeline // 2].states
    setting = "a stage in the middle: the figure counts matrices of layers"
    return _case(name, _FIGURE, "states", "held-out", "bytes", gib * 2**30, used, setting)


def _zero_case(name: str, billions: float, stage: int, gigabytes: float) -> LlmCase:
    kept = Implementation(gradient_bytes=2, optimizer_bytes=12)
    weights = WeightCount(1e9 * billions)
    layout = Layout(data=64, zero=stage)
    used = sum(state_bytes(Training(GPT_22B, layout, kept, GPT_22B.sequence), weights))
    return _case(name, _RAJBHANDARI, "states", "held-out", "bytes", 1e9 * gigabytes, used)


def _summaries(cases: list[LlmCase]) -> tuple[LlmSummary, ...]:
    found = []
    for quantity in dict.fromkeys(case.quantity for case in cases):
        for role in ("all", "fitted", "held-out", "other-software"):
            errors = [
                abs(case.error)
                for case in cases
                if case.quantity == quantity
                and (case.role == role or (role == "all" and case.role != "other-software"))
            ]
            if errors:
                found.append(
                    LlmSummary(
                        quantity, role, len(errors), median(errors), fmean(errors), max(errors)
                    )
                )
    return tuple(found)
