"""`topoopt validate`: the simulation models against references."""

import sys
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from codesign_base import InputError
from codesign_base.counted import counted
from topoopt.base.text import table_lines
from topoopt.cli import common

if TYPE_CHECKING:
    from topoopt.studies.validation.llm import LlmValidation
    from topoopt.studies.validation.results import Case, Validation

_MODELS = "fluid,packet"


def validate_command(
    subject: Annotated[
        str,
        typer.Argument(
            help="fabric: the simulation models against packet-level times and closed forms; "
            "llm: times and memory of language models against published clusters."
        ),
    ] = "fabric",
    data: Annotated[
        Path | None,
        typer.Option(
            help="Directory with the published task graphs, itself or in taskgraphs/.",
            show_default="environment variable TOPOOPT_DATA",
        ),
    ] = None,
    cases: Annotated[
        str, typer.Option(help="Pattern of case names: '*dlrm*', '*/fat-tree', 'ring-*'.")
    ] = "*",
    models: Annotated[str, typer.Option(help="Simulation models, separated by commas.")] = _MODELS,
    runs: Annotated[
        Path | None,
        typer.Option(help="llm: a file of published runs, or 'published' for the program's own."),
    ] = None,
    sweep: Annotated[
        Path | None,
        typer.Option(help="llm: the directory of the public sweep of layouts."),
    ] = None,
    as_json: common.AsJson = False,
    quiet: common.Quiet = False,
) -> None:
    """Compare the models with packet-level times, closed forms or published clusters.

    Example: topoopt validate --data shared/data --models fluid

    Example: topoopt validate llm --cases '175B*'

    Example: topoopt validate llm --runs runs.json
    """
    if subject not in ("fabric", "llm"):
        raise InputError(f"validate: {subject!r} is no subject; choose fabric or llm")
    if (runs or sweep) is not None and (subject != "llm" or cases != "*" or (runs and sweep)):
        raise InputError(
            "validate: --runs and --sweep go with llm, each alone and without --cases; leave the "
            "others out"
        )
    if subject == "llm":
        if data is not None or models != _MODELS:
            raise InputError("validate llm takes neither --data nor --models; leave them out")
        if runs is not None:
            _validate_runs(runs, as_json)
        elif sweep is not None:
            _validate_sweep(sweep, as_json)
        else:
            _validate_llm(cases, as_json, quiet)
        return
    from topoopt.studies.validation import validate

    names = tuple(name.strip() for name in models.split(",") if name.strip())

    kernels = "packet_kernels" if "packet" in names else "fluid_kernels"
    with common.first_run_notice(f"fabric_*/{kernels}*") as started:

        def report(case: "Case") -> None:
            started()
            if not quiet and case.results:
                print(f"{case.name}: done", file=sys.stderr, flush=True)

        found = validate(data, cases=cases, models=names, progress=report)
    if as_json:
        common.print_json(asdict(found))
    else:
        print("\n".join(_text(found, names)))


def _validate_runs(path: Path, as_json: bool) -> None:
    from topoopt.studies.validation.runs_file import validate_runs

    found = validate_runs(path)
    if as_json:
        common.print_json(asdict(found))
        return
    rows = [("run", "published s", "model s", "error", "stack", "accelerator", "role")]
    rows += [
        (run.name, f"{run.published_s:.4g}", f"{run.model_s:.4g}", _signed(run.error), run.stack,
         run.accelerator, "fitted" if run.fitted else "held out")
        for run in found.runs
    ]  # fmt: skip
    table = [("|error|", "runs", "mean", "median", "max")]
    table += [
        (s.group, str(s.runs), _percent(s.mean), _percent(s.median), _percent(s.max))
        for s in found.summaries
    ]
    print(
        "\n".join([*table_lines(rows, left=(0, 4, 5, 6)), "", *table_lines(table, left=(0,)), ""])
    )
    over = [run.name for run in found.runs if not run.fits]
    names = f": {'; '.join(over)}" if over else ""
    said = (
        f"Of {counted(len(found.runs), 'run')} {len(over)} do not fit into memory by the model"
        f"{names}."
    )
    floor = found.floor
    if floor.jobs:
        said += (
            f" {floor.runs} of them are of {counted(floor.jobs, 'job')} that were published with "
            f"other times, so that no model has a mean below {_percent(floor.mean)} or a max below "
            f"{_percent(floor.max)}."
        )
    print("\n".join(wrap(said, 98)))


def _validate_sweep(directory: Path, as_json: bool) -> None:
    from topoopt.studies.validation.sweep import validate_sweep

    found = validate_sweep(directory)
    if as_json:
        common.print_json({"files": [asdict(one) for one in found]})
        return
    rows = [("file", "ran", "failed", "rank", "regret", "|error|", "rejected", "accepted")]
    rows += [
        (one.name, str(one.ran), str(one.failed), f"{one.spearman:.3f}", _percent(one.regret),
         _percent(one.error), str(one.rejected), str(one.accepted))
        for one in found
    ]  # fmt: skip
    ran, failed = sum(one.ran for one in found), max(1, sum(one.failed for one in found))
    rejected, accepted = sum(one.rejected for one in found), sum(one.accepted for one in found)
    print("\n".join(table_lines(rows, left=(0,))))
    print(f"of those that ran {_percent(rejected / ran)} do not fit by the model; of those that "
          f"failed {_percent(accepted / failed)} do")  # fmt: skip


def _validate_llm(cases: str, as_json: bool, quiet: bool) -> None:
    from topoopt.studies.validation.llm import validate_llm

    def report(name: str) -> None:
        if not quiet:
            print(f"{name}: done", file=sys.stderr, flush=True)

    found = validate_llm(cases=cases, progress=report)
    if as_json:
        common.print_json(asdict(found))
    else:
        print("\n".join(_llm_text(found)))


def _llm_text(found: "LlmValidation") -> list[str]:
    lines: list[str] = []
    for quantity in dict.fromkeys(case.quantity for case in found.cases):
        some = [case for case in found.cases if case.quantity == quantity]
        unit, scale = ("s", 1.0) if some[0].unit == "s" else ("GB", 1e-9)
        rows = [(quantity, f"published {unit}", f"model {unit}", "error", "role")]
        rows += [
            (
                case.name,
                f"{scale * case.published:.4g}",
                f"{scale * case.model:.4g}",
                _signed(case.error),
                case.role,
            )
            for case in some
        ]
        lines += [*table_lines(rows, left=(0, 4)), ""]
        for source in dict.fromkeys(case.source for case in some):
            names = "; ".join(case.name for case in some if case.source == source)
            lines += wrap(f"{names}: {source}.", 98)
        lines.append("")
    table = [("|error|", "role", "cases", "median", "mean", "max")]
    table += [
        (s.quantity, s.role, str(s.cases), _percent(s.median), _percent(s.mean), _percent(s.max))
        for s in found.summaries
    ]
    lines += [*table_lines(table, left=(0, 1)), ""]
    for name, fitted in found.fitted.items():
        lines += wrap(f"Rates of {name} were fitted on {fitted}.", 98)
    lines += wrap(
        "all: without runs of other software. Where a source leaves microbatch or interleaving "
        "open, the fastest that fits counts; --json says which, and how each published number "
        "is derived.",
        98,
    )
    return lines


def _text(found: "Validation", models: tuple[str, ...]) -> list[str]:
    models = tuple(dict.fromkeys(models))
    lines: list[str] = []
    kinds = {"packet-level": "packet simulator", "closed-form": "closed form"}
    for kind, title in kinds.items():
        ran = [case for case in found.cases if case.kind == kind and case.results]
        if not ran:
            continue
        if kind == "packet-level":
            for sentence in (found.source, found.setting, f"noise: {found.noise}"):
                lines += wrap(f"{sentence[0].upper()}{sentence[1:]}.", 98)
            lines.append("")
        head = [title, "reference ms"]
        for model in models:
            head += [f"{model} ms", "error"]
            head += ["default ms", "wall ms"] if kind == "packet-level" else []
        if kind == "packet-level":
            head.append("packet simulator s")
        lines += [*table_lines([tuple(head), *(_row(case, models) for case in ran)]), ""]
    if found.summaries:
        rows = [("|error|", "model", "cases", "median", "mean", "max")]
        rows += [
            (
                f"{s.kind}, {s.family}",
                s.model,
                str(s.cases),
                _percent(s.median),
                _percent(s.mean),
                _percent(s.max),
            )
            for s in found.summaries
            if s.kind == "packet-level" or s.family == "all"
        ]
        lines += table_lines(rows, left=(0, 1))
    for summary in found.summaries:
        if summary.family == "all" and summary.beyond_tolerance:
            missed = ", ".join(summary.beyond_tolerance)
            lines.append(f"{summary.model} beyond the tolerance of the closed form: {missed}")
    noisy = {r.copies for case in found.cases for r in case.results.values() if r.copies > 1}
    for copies in sorted(noisy):
        lines.append(f"* mean of {copies} copies with delays moved by up to 2 %; wall of one run")
    skipped = [case for case in found.cases if case.skipped is not None]
    if skipped:
        reasons: dict[str, list[str]] = {}
        for case in skipped:
            reasons.setdefault(str(case.skipped), []).append(case.name)
        lines.append(f"skipped {counted(len(skipped), 'case')}:")
        for reason, names in reasons.items():
            listed = ", ".join(names)
            lines.append(f"  {reason}:")
            lines += wrap(listed, 98, initial_indent="    ", subsequent_indent="    ")
    return lines


def _row(case: "Case", models: tuple[str, ...]) -> tuple[str, ...]:
    cells = [case.name, _ms(case.reference_s)]
    for model in models:
        result = case.results[model]
        star = "*" if result.copies > 1 else ""
        cells += [_ms(result.time_s) + star, _signed(result.error)]
        if case.kind == "packet-level":
            cells += [_ms(result.default_time_s), f"{1e3 * result.wall_time_s:.2f}"]
    if case.reference_wall_time_s is not None:
        cells.append(f"{case.reference_wall_time_s:g}")
    return tuple(cells)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.4f}"


def _signed(error: float) -> str:
    # Rounding apart, closed forms are met exactly.
    return "0 %" if abs(error) < 1e-9 else f"{round(100 * error, 2) + 0.0:+.2f} %"


def _percent(error: float) -> str:
    return "0 %" if error < 1e-9 else f"{100 * error:.2f} %"
