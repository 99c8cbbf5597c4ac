"""The compact form of plans, comparisons and runs that notebooks show; it needs no script."""

from topoopt.base.display import register
from topoopt.codesign.comparison import Comparison
from topoopt.experiment.run import ExperimentRun
from topoopt.plan.plan import Plan
from topoopt.report.answer import plan_answer, plan_facts
from topoopt.report.comparison_page import comparison_answer, comparison_facts, fabrics
from topoopt.report.experiment_page import markdown_html, picture
from topoopt.report.markup import Html, as_html, element, joined
from topoopt.report.page import fact_list, resource
from topoopt.report.plan_page import baselines, gap_bar, halves
from topoopt.report.wiring import draw, wiring_svg

MOST_DRAWN = 64
"""Servers of a plan whose wiring is drawn in a notebook."""


def plan_html(plan: Plan) -> str:
    """Return a plan as a fragment of HTML: answer, question, bars, gap and wiring."""
    drawing: Html | str = ""
    if plan.links and plan.cluster.servers <= MOST_DRAWN:
        figure = element("figure", wiring_svg(plan, draw(plan)), data_mode="ring")
        drawing = element("details", element("summary", "Topology"), figure)
    return _fragment(
        element("h3", plan_answer(plan)),
        fact_list(plan_facts(plan)),
        baselines(plan),
        element("details", element("summary", "Where the time goes"), halves(plan), gap_bar(plan)),
        drawing,
    )


def comparison_html(comparison: Comparison) -> str:
    """Return a comparison as a fragment of HTML: answer, question and bars."""
    return _fragment(
        element("h3", comparison_answer(comparison)),
        fact_list(comparison_facts(comparison)),
        fabrics(comparison),
    )


def run_html(run: ExperimentRun) -> str:
    """Return the run of an experiment as a fragment of HTML: its tables and figures."""
    figures = [picture(run.output, name) for name in run.figures]
    return _fragment(markdown_html(run.table), figures, element("p", run.counts, class_="note"))


def _fragment(*parts: Html | str | list[Html]) -> str:
    style = resource("report.css")
    # Rules hold below the fragment only, so that the notebook around it stays as it is.
    frame = (
        ":scope { background: var(--panel); border: 1px solid var(--line); border-radius: 10px; "
        "padding: 16px 20px; }"
    )
    scoped = f"@scope (.topoopt-report) {{\n{style.replace(':root', ':scope')}\n{frame}\n}}"
    inside = joined(*(part if isinstance(part, list) else as_html(part) for part in parts))
    return element("div", element("style", Html(scoped)), inside, class_="topoopt-report")


register("html", Plan, plan_html)
register("html", Comparison, comparison_html)
register("html", ExperimentRun, run_html)
