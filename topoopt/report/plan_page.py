"""The report of a plan."""

from topoopt.plan.answer import gap_text
from topoopt.plan.plan import Plan
from topoopt.plan.summary import (
    baseline_text,
    bounded_noun,
    has_schedule,
    packet_text,
    parallelization_text,
    ring_word,
)
from topoopt.problem.units import format_bytes, format_time
from topoopt.report.answer import family_noun, plan_answer, plan_facts
from topoopt.report.bars import Bar, BarPart, bar_table, fabric_cells, stacked_bar, times_text
from topoopt.report.evaluation import simulate_again
from topoopt.report.markup import Html, element, joined, number
from topoopt.report.page import Section, render_page
from topoopt.report.parallelization import parallelization_section
from topoopt.report.reproduce import plan_command_line
from topoopt.report.timeline import timeline_section
from topoopt.report.traffic import traffic_section
from topoopt.report.wiring import wiring_section


def render_plan(plan: Plan) -> str:
    """Return the page of a plan.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    str
        An HTML document; the same for the same plan.

    Raises
    ------
    InputError
        As `simulate_again`.
    """
    found = simulate_again(plan)
    noun = family_noun(plan.job.kind)
    sections = [
        Section("baselines", "Against other fabrics", baselines(plan)),
        Section("gap", "Where the time goes", joined(halves(plan), gap_bar(plan))),
        Section("topology", "Topology", wiring_section(found)),
        Section("traffic-matrix", "Traffic", joined(sums(plan), traffic_section(found))),
        Section("iteration", "One iteration", timeline_section(found)),
        Section(noun, noun.capitalize(), parallelization_section(found)),
        Section("notes", "Notes", _notes(plan)),
        Section("reproduce", "Make it again", _reproduce(plan)),
    ]
    title = f"topoopt plan: {plan.job.model.name}"
    return render_page(title, plan_answer(plan), plan_facts(plan), sections)


def baselines(plan: Plan) -> Html:
    """Return the plan and the fabrics compared with as bars."""
    noun = family_noun(plan.job.kind)
    layouts = noun == "layout"
    port = plan.cluster.bandwidth_bytes_per_s
    own = parallelization_text(plan.parallelization, plan.origin)
    bars = [
        Bar("topoopt", plan.time_s,
            fabric_cells(1.0, plan.cost_usd, port, own), ours=True)
    ]  # fmt: skip
    for name, base in plan.baselines.items():
        words = baseline_text(plan, base)
        ratio = plan.relative_time(base)
        cells = fabric_cells(ratio, base.cost_usd, base.bandwidth_bytes_per_s, words)
        bars.append(Bar(f"{name}, at least" if base.bounded else name, base.time_s, cells))
    last = "layout" if layouts else "strategy from"
    head = ("fabric", "iteration", "vs plan", "network cost", "link", last)
    notes = [
        element("li", element("strong", name), f": {base.note}")
        for name, base in plan.baselines.items()
        if base.note
    ]
    return joined(
        element("p", f"Every fabric runs the best {noun} that was found for it. The line marks "
                f"the lower bound of any {bounded_noun(plan.job.kind)} in the fluid model. ",
                _models(plan), class_="note"),
        bar_table(bars, head, caption="Iteration time and cost by fabric",
                  mark=plan.lower_bound_s, words=frozenset({5})),
        element("ul", notes, class_="small") if notes else "",
    )  # fmt: skip


def _models(plan: Plan) -> str:
    """Say which model the times are of."""
    if has_schedule(plan):
        plain = format_time(plan.schedule.plain_time_s)
        return (
            "Times are of the fluid model, too. Only the plan has a schedule; the others are "
            f"compared with the {plain} that it takes without."
        )
    if plan.packet_time_s is None:
        return "Times are of the fluid model, too."
    return times_text(plan.baselines)


def halves(plan: Plan) -> Html:
    """Return compute and exposed communication as a stacked bar."""
    if plan.schedule.overlap == "barrier":
        computing = "Computing on the critical path."
        rest = (
            "The rest of the critical path: network time, and reductions inside servers, that no "
            "computation hides."
        )
    else:
        computing = "Computing on the busiest device."
        rest = "The rest of the period of iterations that overlap."
    parts = [
        BarPart("compute", plan.compute_time_s, "p-compute", computing),
        BarPart("exposed communication", plan.exposed_communication_s, "p-exposed", rest),
    ]
    return joined(
        element("h3", "Compute and communication"),
        stacked_bar(parts, label="The iteration: compute and exposed communication"),
    )


def gap_bar(plan: Plan) -> Html:
    """Return the bound and the parts of the gap as a stacked bar."""
    mostly = next(iter(plan.bound.weights), "")
    how = (
        f"No {bounded_noun(plan.job.kind)} takes less, with any wiring and routing; "
        f"fixed by the {plan.bound.binding} term"
    )
    parts = [
        BarPart(
            "lower bound",
            plan.lower_bound_s,
            "p-bound",
            f"{how}, mostly {mostly}." if mostly else f"{how}.",
        )
    ]
    for part in plan.gap_parts:
        words = f"{part.how[:1].upper()}{part.how[1:]}; fixed by {part.binding}."
        parts.append(BarPart(part.name, part.seconds, f"p-{part.name}", words))
    fluid = number(plan.iteration_time_s, format_time(plan.iteration_time_s))
    text = joined(
        "In the fluid model, which bounds are about, the plan takes ", fluid,
        f": {gap_text(plan)} above the lower bound. A part says what its choice may cost, "
        "not what another choice would save: a bound may be out of reach.",
    )  # fmt: skip
    return joined(
        element("h3", "The gap to the lower bound"),
        element("p", text, class_="note"),
        stacked_bar(parts, label="The iteration: lower bound and the parts of the gap"),
    )


def sums(plan: Plan) -> Html:
    """Return what an iteration sends in all."""
    tax = number(plan.bandwidth_tax, f"{plan.bandwidth_tax:.2f}")
    return element(
        "p",
        "An iteration sends ",
        number(plan.allreduce_bytes, format_bytes(plan.allreduce_bytes)),
        f" along {ring_word(plan)}s and ",
        number(plan.transfer_bytes, format_bytes(plan.transfer_bytes)),
        " in transfers; bandwidth tax ", tax,
        " (bytes on all links over bytes sent; 1: nothing is forwarded).",
    )  # fmt: skip


def _notes(plan: Plan) -> Html:
    notes = [element("li", note) for note in plan.notes]
    if plan.packet_time_s is not None:
        notes.append(element("li", f"packet trains ({plan.packet_model}): {packet_text(plan)}"))
    named = [
        f"{name} {'does not fit' if time is None else format_time(time)}"
        for name, time in plan.named_strategies_s.items()
    ]
    if named:
        notes.append(element("li", f"starting strategies: {', '.join(named)}"))
    over = (
        "one iteration that starts on an idle cluster"
        if plan.schedule.overlap == "barrier"
        else "the period of iterations in a row"
    )
    notes.append(element("li", f"times are those of the fabric model {plan.fabric_model}, {over}"))
    return element("ul", notes)


def _reproduce(plan: Plan) -> Html:
    command, remarks = plan_command_line(plan)
    lines = f"{command}\ntopoopt verify plan.json\ntopoopt report plan.json -o plan.html"
    return joined(
        element("p", f"With topoopt {plan.version} this command gives the same plan; verify "
                "recomputes it from the file alone."),
        element("pre", element("code", lines), tabindex=0),
        element("ul", (element("li", remark) for remark in remarks)) if remarks else "",
    )  # fmt: skip
