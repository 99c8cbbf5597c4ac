"""A plan in a few lines: the answer, and what of it a reader without the paper needs."""

from codesign_base.counted import counted
from parallelism.operator_records import StrategyRecord
from parallelism.operator_text import server_names
from parallelism.transformers.assumptions import LACKING
from parallelism.transformers.records import LayoutQuestion
from parallelism.transformers.text import layout_text
from topoopt.base.display import register
from topoopt.base.text import dollars
from topoopt.plan.notes import shown_notes
from topoopt.plan.plan import Plan
from topoopt.plan.summary import (
    APART,
    bounded_noun,
    cables_text,
    comparison_rows,
    fabric_lines,
    has_schedule,
    headline,
    memory_text,
    parallelization_lines,
    ring_lines,
    ring_word,
    rings_reduce,
    schedule_lines,
    searched_lines,
    too_long_lines,
)
from topoopt.problem.units import format_time

_SAME_COST = 0.01
# Gaps below this are not told apart.
_LITTLE = 0.001
# Most lines of the parts of the short summary, so that all together are at most 25.
_FABRICS, _SPLITS, _RINGS = 6, 5, 3


def same_cost(plan: Plan, fabric: str) -> bool:
    """Say whether the network of another fabric costs what the plan's does, within a percent."""
    other = plan.baselines[fabric].cost_usd
    return bool(plan.cost_usd and other and abs(other / plan.cost_usd - 1.0) < _SAME_COST)


def answer_lines(plan: Plan) -> list[str]:
    """Return six lines: the question, how fast, against what, how far from the best, and how.

    And a seventh where the software that the plan is for lacks its schedule.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    list of str
    """
    rows = [
        ("time", _time(plan)),
        ("against", _against(plan)),
        ("bound", _bound(plan)),
        ("split", _split(plan)),
        ("wiring", _wiring(plan)),
        *(("note", note) for note in plan.notes if note.startswith(LACKING)),
    ]
    return [headline(plan), *(f"{name:<8} {words}" for name, words in rows)]


def short_summary(plan: Plan) -> str:
    """Return at most 25 lines: the answer, the fabrics compared with, the split and the rings.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    str
    """
    lines = [*answer_lines(plan), *schedule_lines(plan), ""]
    lines += _at_most(_FABRICS, fabric_lines(comparison_rows(plan)), "fabrics")
    lines += [*too_long_lines(plan), *searched_lines(plan)]
    split = parallelization_lines(plan.parallelization, plan.cluster.servers)
    lines += ["", *_at_most(_SPLITS, split, "lines")]
    lines += _at_most(_RINGS, [line.strip() for line in ring_lines(plan)], "groups")
    lines.append(memory_text(plan))
    shown = shown_notes(plan.notes)
    lines += [f"note: {note}" for note in shown]
    count = len(plan.notes) - len(shown)
    assumed = f"{counted(count, 'assumption')} behind the times, " * bool(count)
    return "\n".join(
        [*lines, f"{assumed}bounds and gap step by step: --details, plan.summary(details=True)"]
    )


def _at_most(count: int, lines: list[str], what: str) -> list[str]:
    if len(lines) <= count:
        return lines
    return [*lines[: count - 1], f"... and {len(lines) - count + 1} more {what}"]


def gap_text(plan: Plan) -> str:
    """Return how far above its bound a plan is: a little is not said to be nothing."""
    return f"{plan.gap:.1%}" if plan.gap >= _LITTLE else f"less than {_LITTLE:.1%}"


def _bound(plan: Plan) -> str:
    least = f"{format_time(plan.lower_bound_s)}{_of_flows(plan)}"
    what, more = bounded_noun(plan.job.kind), gap_text(plan)
    return f"no {what} takes less than {least}; this one takes {more} more"


def _of_flows(plan: Plan) -> str:
    return "" if plan.packet_time_s is None else " by flows"


def _time(plan: Plan) -> str:
    share = plan.compute_time_s / plan.iteration_time_s
    words = f"{format_time(plan.time_s)} an iteration"
    flows = f"{share:.1%} compute on the critical path"
    if plan.packet_time_s is not None:
        words += " by packet trains"
        apart = plan.packet_time_s / plan.iteration_time_s - 1.0
        warned = f", {apart:+.1%}: rely on packets" if abs(apart) > APART else ""
        flows = f"by flows {format_time(plan.iteration_time_s)}{warned}, {flows}"
    used = ""
    if plan.tokens_per_s is not None and plan.model_flops_utilisation is not None:
        used = f", model FLOP utilisation {plan.model_flops_utilisation:.1%}"
        if isinstance(plan.job, LayoutQuestion) and plan.job.implementation.precision == "fp8":
            used += " of the BF16 peak"
    # It is of the time by flows.
    words += f" ({flows}{used})" if plan.packet_time_s is not None else f" ({flows}){used}"
    return words + "; search interrupted: the best so far" * plan.search.interrupted


def _against(plan: Plan) -> str:
    if not plan.baselines:
        alone = plan.cluster.servers == 1
        reason = "one server needs no network" if alone else "no other fabric was asked for"
        return f"nothing: {reason}"
    words = [
        "at least " * base.bounded
        + f"{plan.relative_time(base):.2f}x as fast as {name}"
        + " (same cost)" * same_cost(plan, name)
        for name, base in list(plan.baselines.items())[:3]
    ]
    more = f" and {len(plan.baselines) - 3} more" if len(plan.baselines) > 3 else ""
    plain = "; without its schedule, as they are" * has_schedule(plan)
    return ", ".join(words) + more + plain


def _split(plan: Plan) -> str:
    record = plan.parallelization
    if not isinstance(record, StrategyRecord):
        return layout_text(record.layout)
    servers = plan.cluster.servers
    if servers == 1:
        return f"all {counted(len(record.operators), 'operator')} on the one server"
    data = sum(op.parameter == 1 and op.sample == servers for op in record.operators)
    whole = sum(op.parameter == op.sample == 1 for op in record.operators)
    rest = len(record.operators) - data - whole
    parts = (
        (data, "data-parallel on all servers"),
        (whole, "each whole on one server" if whole > 1 else "whole on one server"),
        (rest, "in shards"),
    )
    return "; ".join(f"{counted(count, 'operator')} {how}" for count, how in parts if count)


def _wiring(plan: Plan) -> str:
    if not plan.links:
        return "one server: no network"
    cost = f", {dollars(plan.cost_usd)}" if plan.cost_usd is not None else ""
    return f"{_rings(plan)}; {cables_text(plan)}{cost}; {plan.routing} routes"


def _rings(plan: Plan) -> str:
    rings, what = plan.rings, ring_word(plan)
    if not rings:
        return "AllReduce rings along any links" if plan.allreduce_bytes else "no AllReduce rings"
    groups = {ring.group for ring in rings}
    count = counted(len(rings), what)
    where = server_names(min(groups)) if len(groups) == 1 else f"{len(groups)} groups of servers"
    if rings_reduce(plan):
        return f"{count} over {where}"
    only = "which only connects" if len(rings) == 1 else "which only connect"
    why = (
        "groups that reduce are smaller"
        if plan.allreduce_bytes
        else "nothing is reduced between servers"
    )
    return f"{count} over {where}, {only} them ({why})"


def _answer(plan: Plan) -> str:
    return "\n".join(answer_lines(plan))


register("answer", Plan, _answer)
register("text", Plan, short_summary)
