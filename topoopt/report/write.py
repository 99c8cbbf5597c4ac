"""Which page a subject gets, and writing it."""

from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

from codesign_base import InputError
from codesign_base.paths import exists, is_directory
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
        wiring and nothing else. The pages of a folder of plans go into a folder beside it, whose
        name is that of the page and ``-plans``.

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
    kind = Path(path).suffix.lower()
    if kind not in (".html", ".htm", ".svg"):
        raise InputError(
            f"report {str(path)!r} is neither a page nor a picture; give a name that ends in .html "
            "or .svg"
        )
    if kind != ".svg" and isinstance(subject, str | Path) and _holds_plans(Path(subject)):
        _write_study(Path(subject), Path(path))
        return
    drawn = kind == ".svg"
    write_text_atomically(path, render_picture(subject) if drawn else render_report(subject))


def _holds_plans(path: Path) -> bool:
    return is_directory(path) and not exists(path / "manifest.json")


def _write_study(folder: Path, path: Path) -> None:
    """Write the page of each plan into a folder beside the page that leads to them, and that."""
    plans = plans_of(folder)
    pages = {name: f"{path.stem}-plans/{name}.html" for name in plans}
    study = render_study(plans, {name: quote(page) for name, page in pages.items()})
    made = {name: render_plan(plan) for name, plan in plans.items()}
    try:
        (path.parent / f"{path.stem}-plans").mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make the folder {path.parent / f'{path.stem}-plans'} ({error.strerror}); give "
            "another name or an existing directory"
        ) from None
    for name, page in pages.items():
        write_text_atomically(path.parent / page, made[name])
    write_text_atomically(path, study)


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
    if isinstance(subject, str | Path):
        subject = load_plan(subject)
    if not isinstance(subject, Plan):
        raise InputError(
            f"a picture of a {type(subject).__name__} is not known; give a plan, or a name that "
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
            f"a report of a {type(subject).__name__} is not known; give a plan, a comparison, the "
            "run of an experiment, or the name of a file"
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
    raise InputError(
        f"{str(path)!r} is neither a plan nor a comparison nor the manifest of an experiment; give "
        "a file of topoopt plan -o or topoopt compare --json, or an experiment's results folder"
    )
