"""What a validation found: each case with its errors, and summaries."""

from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal


@dataclass(frozen=True, slots=True)
class ModelResult:
    """A model's time of one case.

    Parameters
    ----------
    time_s : float
        With the artefacts of the reference simulator; a mean where there are several copies.
    error : float
        Relative to the reference: 0.01 is 1 % too slow.
    default_time_s : float
        Without these artefacts, as `simulate` does by default.
    wall_time_s : float
        Of one run of the model.
    copies : int
        Runs with perturbed delays; 1 is a single run with the delays as they are.
    spread_s : float
        Slowest minus fastest copy.
    tolerance : float or None
        Relative error that a closed form allows.
    """

    time_s: float
    error: float
    default_time_s: float
    wall_time_s: float
    copies: int = 1
    spread_s: float = 0.0
    tolerance: float | None = None


@dataclass(frozen=True)
class Case:
    """One reference case.

    Parameters
    ----------
    name : str
        ``graph/fabric``, or of a closed form.
    kind : {"packet-level", "closed-form"}
    family : str
        See `Summary`.
    reference_s : float
    reference_wall_time_s : float or None
        What the packet simulator took.
    results : dict of str to ModelResult
        By simulation model; empty if the case was skipped.
    skipped : str or None
        Why.
    """

    name: str
    kind: Literal["packet-level", "closed-form"]
    family: str
    reference_s: float
    reference_wall_time_s: float | None
    results: dict[str, ModelResult]
    skipped: str | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """Absolute relative errors of one model over the cases of one kind that ran.

    Parameters
    ----------
    model, kind : str
    family : str
        The model that is trained (dlrm, candle, transformer, vgg) or the network of closed
        forms (ring-allreduce, ...); ``all`` for all of the kind.
    cases : int
    median, mean, max : float
    beyond_tolerance : tuple of str
        Closed forms that the model misses.
    """

    model: str
    kind: str
    family: str
    cases: int
    median: float
    mean: float
    max: float
    beyond_tolerance: tuple[str, ...] = ()


@dataclass(frozen=True)
class Validation:
    """All cases, and the summaries of those that ran.

    Parameters
    ----------
    source, setting, noise : str
        Of the packet-level table.
    data : str or None
        Directory of the task graphs.
    cases : tuple of Case
    summaries : tuple of Summary
    """

    source: str
    setting: str
    noise: str
    data: str | None
    cases: tuple[Case, ...]
    summaries: tuple[Summary, ...]


def summaries(cases: tuple[Case, ...], models: tuple[str, ...]) -> tuple[Summary, ...]:
    """Summarise the errors of each model over each kind of case, whole and by family.

    Parameters
    ----------
    cases : tuple of Case
    models : tuple of str

    Returns
    -------
    tuple of Summary
        None for kinds of which no case ran.
    """
    found = []
    for kind in ("packet-level", "closed-form"):
        ran = [case for case in cases if case.kind == kind and case.results]
        families = ["all", *dict.fromkeys(case.family for case in ran)] if ran else []
        for model in models:
            for family in families:
                some = [case for case in ran if family in ("all", case.family)]
                found.append(_summary(model, kind, family, some))
    return tuple(found)


def _summary(model: str, kind: str, family: str, cases: list[Case]) -> Summary:
    errors = [abs(case.results[model].error) for case in cases]
    missed = [
        case.name
        for case, error in zip(cases, errors, strict=True)
        if (allowed := case.results[model].tolerance) is not None and not error <= allowed
    ]
    return Summary(
        model=model,
        kind=kind,
        family=family,
        cases=len(cases),
        median=median(errors),
        mean=fmean(errors),
        max=max(errors),
        beyond_tolerance=tuple(missed),
    )
