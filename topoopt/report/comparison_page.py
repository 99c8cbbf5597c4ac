"""The report of a comparison of fabrics."""

import shlex

from codesign_base.counted import counted
from parallelism.models import PRESETS
from parallelism.transformers.presets import TRANSFORMERS
from topoopt.codesign.comparison import Comparison
from topoopt.plan.summary import bounded_noun
from topoopt.problem.reconfiguration import RECONFIGURABLE
from topoopt.problem.units import bandwidth_text, format_bandwidth, format_time
from topoopt.report.answer import family_noun
from topoopt.report.bars import Bar, bar_table, fabric_cells, times_text
from topoopt.report.markup import Html, element, joined, number
from topoopt.report.page import Section, render_page


def render_comparison(comparison: Comparison, page: str | None = None) -> str:
    """Return the page of a comparison.

    Parameters
    ----------
    comparison : Comparison
    page : str, optional
        The page of its plan, relative to this one.

    Returns
    -------
    str
        An HTML document; the same for the same comparison.
    """
    sections = [
        Section("fabrics", "Fabrics", fabrics(comparison, page)),
        Section("reproduce", "Make it again", _reproduce(comparison)),
    ]
    title = f"topoopt comparison: {comparison.model}"
    return render_page(title, comparison_answer(comparison), comparison_facts(comparison), sections)


def comparison_answer(comparison: Comparison) -> str:
    """Return one sentence: how fast, and against what."""
    ours, *others = comparison.fabrics
    words = (
        f"{comparison.model} takes {format_time(ours.time_s)} an iteration on "
        f"{counted(comparison.servers, 'server')} with the co-designed fabric"
    )
    if not others:
        return f"{words}."
    clauses = []
    for rival in others:
        if rival.fabric == "fat-tree":
            clauses.append(f"{rival.relative_time:.2f} times as fast as on the Fat-tree")
    # Not by times: some are of packet trains and some of flows, which differ by more than fabrics.
    fastest = min(comparison.fabrics, key=lambda result: result.relative_time)
    among = counted(len(comparison.fabrics), "fabric")
    if fastest is ours:
        clauses.append(f"the fastest of {among}")
    elif f"{fastest.relative_time:.2f}" == "1.00":
        clauses.append(f"none of {among} takes 1% less")
    else:
        clauses.append(f"the fastest is {fastest.fabric} with {format_time(fastest.time_s)}")
    return f"{words}: {'; '.join(clauses)}."


def comparison_facts(comparison: Comparison) -> list[tuple[str, str]]:
    """Return what was asked, as pairs of a name and words."""
    rate = format_bandwidth(comparison.fabrics[0].bandwidth_bytes_per_s)
    steps = "placed layouts simulated" if comparison.kind == "layouts" else "steps"
    return [
        ("Model", comparison.model),
        ("Servers", counted(comparison.servers, "server")),
        ("Ports", f"{comparison.degree} x {rate} a server"),
        ("Search", f"{comparison.steps} {steps}, seed {comparison.seed}"),
    ]


def fabrics(comparison: Comparison, page: str | None = None) -> Html:
    """Return the fabrics as bars; the co-designed one leads to the page of its plan, if any."""
    bars = [
        Bar(
            element("a", r.fabric, href=page) if page and place == 0 else r.fabric,
            r.time_s,
            fabric_cells(r.relative_time, r.cost_usd, r.bandwidth_bytes_per_s, r.strategy_origin),
            ours=place == 0,
        )
        for place, r in enumerate(comparison.fabrics)
    ]
    noun = family_noun(comparison.kind)
    last = noun if noun == "layout" else f"{noun} from"
    head = ("fabric", "iteration", "relative", "network cost", "link", last)
    bound = number(comparison.lower_bound_s, format_time(comparison.lower_bound_s))
    return joined(
        element("p", f"Every fabric runs the best {noun} that was found for it. The line marks "
                f"the lower bound of any {bounded_noun(comparison.kind)} on any wiring of this "
                "degree, ", bound,
                _models(comparison), " The first leads to the page of its plan." if page else "",
                class_="note"),
        bar_table(bars, head, caption="Iteration time and cost by fabric",
                  mark=comparison.lower_bound_s, words=frozenset({5})),
    )  # fmt: skip


def _models(comparison: Comparison) -> str:
    """Say which model the times are of."""
    if comparison.fabrics[0].packet_time_s is None:
        return ", and times are of the fluid model."
    return f", of the fluid model. {times_text({r.fabric: r for r in comparison.fabrics})}"


def _reproduce(comparison: Comparison) -> Html:
    others = [result.fabric for result in comparison.fabrics[1:]]
    name, remark = comparison.model, ""
    if name not in PRESETS and name not in TRANSFORMERS:
        name = "config.json" if comparison.kind == "layouts" else "model.yaml"
        remark = f" {name} stands for the file of {comparison.model}."
    words = ["topoopt", "compare", name]
    words += ["--servers", str(comparison.servers), "--degree", str(comparison.degree)]
    words += ["--bandwidth", bandwidth_text(comparison.fabrics[0].bandwidth_bytes_per_s)]
    words += ["--fabrics", ",".join(others), "--seed", str(comparison.seed)]
    job = "--device, --batch-per-gpu, --optimizer"
    search = "--effort, --confirm, --schedule, --restarts"
    if comparison.kind == "layouts":
        job = "--global-batch, --device, --stack, the layouts considered"
        search = "--effort, --confirm, --schedule, --simulated"
    else:
        words += ["--steps", str(comparison.steps)]
    if set(RECONFIGURABLE) & set(others):
        search += ", --reconfiguration-delay, --demand-window, --no-forwarding"
    return joined(
        element("p", f"With topoopt {comparison.version}. A comparison records no other "
                f"options of the job ({job}, ...), the cluster (--ports, --latency, --prices, "
                f"...) and the search ({search}, ...): add those that were given.{remark}"),
        element("pre", element("code", shlex.join([*words, "--json"])), tabindex=0),
    )  # fmt: skip
