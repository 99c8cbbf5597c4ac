"""Which page a subject gets, and writing it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias, TypeGuard
from urllib.parse import quote

from codesign_base import InputError
from codesign_base.arguments import check_path, told
from codesign_base.paths import exists, is_directory, make_directory
from parallelism.reading import parse_json, read_text
from topoopt.base.atomic import write_text_atomically
from topoopt.codesign.comparison import Comparison, parse_comparison
from topoopt.experiment.run import ExperimentRun
from topoopt.plan.document import Document, kind_of
from topoopt.plan.plan import Plan, load_plan, parse_plan
from topoopt.report.comparison_page import render_comparison
from topoopt.report.experiment_page import load_results, render_results
from topoopt.report.picture import plan_picture
from topoopt.report.plan_page import render_plan
from topoopt.report.study_page import plans_of, render_study

Subject: TypeAlias = Plan | Comparison | ExperimentRun | str | Path


def write_report(subject: Subject, path: str | Path) -> None:
    """Write a report as one HTML page that opens offline, or a plan's wiring as a picture.

    Parameters
    ----------
    subject : Plan, Comparison, ExperimentRun, str or Path
        What it is about, or the name of a plan file, of the JSON that ``topoopt compare --json``
        prints, of an experiment's results folder, or of a folder of plans.
    path : str or Path
        The page, written whole or not at all. If its name ends in ``.svg``, a drawing of the plan's
        wiring and nothing else. The pages of a folder of plans, and that of a comparison's plan,
        go into a folder beside it, whose name is that of the page and ``-plans``.

    Raises
    ------
    InputError
        If the subject cannot be read or its numbers do not hold, or the page cannot be written
        or has another ending than ``.html``, ``.htm`` and ``.svg``.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import topoopt as to
    >>> job = to.Job(to.models.dlrm(tables=4, batch_per_gpu=32))
    >>> cluster = to.Cluster(servers=4, degree=2, bandwidth="100Gbps")
    >>> plan = to.co_optimize(job, cluster, to.SearchOptions(steps=5, confirm="none"))
    >>> picture = Path(tempfile.mkdtemp()) / "wiring.svg"
    >>> to.write_report(plan, picture)
    >>> picture.read_text()[:4]
    '<svg'
    """
    check_path("report", path)
    kind = Path(path).suffix.lower()
    if kind not in (".html", ".htm", ".svg"):
        raise InputError(
            f"report {str(path)!r} is neither a page nor a picture; give a name that ends in .html "
            "or .svg"
        )
    if kind == ".svg":
        if isinstance(subject, str | Path) and _holds_plans(Path(subject)):
            raise InputError(
                f"folder {str(subject)!r} holds plans, which have a wiring each; give one of them, "
                "or a name that ends in .html"
            )
        write_text_atomically(path, render_picture(subject))
        return
    if isinstance(subject, str | Path) and _holds_plans(Path(subject)):
        plans = plans_of(Path(subject))
        _write_with_plans(Path(path), plans, lambda pages: render_study(plans, pages))
        return
    found = _comparison(subject)
    if found is not None and found[0].plan is not None:
        comparison, where = found
        plan = _plan_of(comparison, where)
        name = Path(comparison.plan or "").stem
        _write_with_plans(
            Path(path), {name: plan}, lambda pages: render_comparison(comparison, pages[name])
        )
        return
    write_text_atomically(path, render_report(subject))


def _holds_plans(path: Path) -> bool:
    return is_directory(path) and not exists(path / "manifest.json")


def _comparison(subject: Subject) -> tuple[Comparison, Path] | None:
    """Return a comparison and the folder that its plan's file may lie in, or None."""
    if isinstance(subject, Comparison):
        return subject, Path()
    if not _is_comparison(subject):
        return None
    path = Path(subject)
    text = read_text(path, "report file")
    return parse_comparison(text, f"comparison {str(path)!r}"), path.parent


def _is_comparison(subject: Subject) -> TypeGuard[str | Path]:
    """Say whether a subject is the name of a file that holds a comparison."""
    if not isinstance(subject, str | Path) or is_directory(Path(subject)):
        return False
    text = read_text(subject, "report file")
    found = parse_json(text, f"report file {str(subject)!r}")
    return kind_of(found) is Document.COMPARISON


def _plan_of(comparison: Comparison, folder: Path) -> Plan:
    """Read the plan that a comparison names: from here, or from beside the comparison."""
    named = Path(comparison.plan or "")
    beside = folder / named.name
    try:
        plan = load_plan(named if exists(named) or not exists(beside) else beside)
    except InputError as error:
        raise InputError(
            f"the comparison names its plan {str(named)!r}, but {error}; put it beside the "
            "comparison, or compare again"
        ) from None
    ours = comparison.fabrics[0]
    same = (
        plan.job.model.name == comparison.model
        and (plan.cluster.servers, plan.cluster.degree) == (comparison.servers, comparison.degree)
        and (plan.iteration_time_s, plan.packet_time_s)
        == (ours.iteration_time_s, ours.packet_time_s)
    )
    if not same:
        raise InputError(
            f"plan {str(named)!r} is not the one of the comparison (another model, cluster or "
            "time); compare again with --save-plan"
        )
    return plan


def _write_with_plans(
    path: Path, plans: Mapping[str, Plan], front: Callable[[dict[str, str]], str]
) -> None:
    """Write the page of each plan into a folder beside the page that leads to them, and that."""
    folder = path.parent / f"{path.stem}-plans"
    page = front({name: quote(f"{folder.name}/{name}.html") for name in plans})
    made = {name: render_plan(plan) for name, plan in plans.items()}
    make_directory(folder)
    for name, text in made.items():
        write_text_atomically(folder / f"{name}.html", text)
    write_text_atomically(path, page)


def render_picture(subject: Subject) -> str:
    """Return the drawing that `write_report` writes.

    Parameters
    ----------
    subject : Plan, str or Path
        A plan, or the name of its file.

    Returns
    -------
    str
        An SVG document.

    Raises
    ------
    InputError
        If the subject is no plan, or one without a network.
    """
    if isinstance(subject, Comparison) or _is_comparison(subject):
        raise InputError(
            "a comparison has no wiring to draw; give a name that ends in .html, or the plan that "
            "topoopt compare --save-plan writes"
        )
    if isinstance(subject, str | Path):
        subject = load_plan(subject)
    if not isinstance(subject, Plan):
        raise InputError(
            f"no picture shows {told(subject)}; give a plan, or a name that "
            "ends in .html for a page"
        )
    return plan_picture(subject)


def render_report(subject: Subject) -> str:
    """Return the page that `write_report` writes.

    Parameters
    ----------
    subject : Plan, Comparison, ExperimentRun, str or Path

    Returns
    -------
    str
        An HTML document: the same for the same subject.

    Raises
    ------
    InputError
        If the subject cannot be read or its numbers do not hold.
    """
    if isinstance(subject, Plan):
        return render_plan(subject)
    if isinstance(subject, Comparison):
        return render_comparison(subject)
    if isinstance(subject, ExperimentRun):
        return render_results(load_results(subject.output))
    if not isinstance(subject, str | Path):
        raise InputError(
            f"report: its subject is {told(subject)}; give a plan, a comparison, the run of an "
            "experiment, or the name of a file or folder"
        )
    path = Path(subject)
    if is_directory(path):
        return render_results(load_results(path))
    return _of_file(path)


def _of_file(path: Path) -> str:
    where = f"report file {str(path)!r}"
    text = read_text(path, "report file")
    kind = kind_of(parse_json(text, where))
    if kind is Document.PLAN:
        plan = parse_plan(text, f"plan file {str(path)!r}")
        try:
            return render_plan(plan)
        except InputError as error:
            raise type(error)(f"plan file {str(path)!r}: {error}") from None
    if kind is Document.COMPARISON:
        return render_comparison(parse_comparison(text, f"comparison {str(path)!r}"))
    if kind is Document.MANIFEST:
        return render_results(load_results(path.parent))
    if kind is Document.FRONTIER:
        raise InputError(
            f"{str(path)!r} is {kind}, which has no plans; give the folder of its --save-plans"
        )
    raise InputError(
        f"{str(path)!r} is neither a plan nor a comparison nor the manifest of an experiment; give "
        "a file of topoopt plan -o or topoopt compare --json, the results folder of an experiment, "
        "or a folder of plans (topoopt pareto --save-plans, topoopt.sweep)"
    )
