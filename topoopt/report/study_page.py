"""The report of a folder of plans: of a sweep, or of the clusters that `topoopt pareto` weighed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

from codesign_base import InputError
from codesign_base.counted import counted
from parallelism.reading import parse_json, read_text
from topoopt.base.text import dollars
from topoopt.plan.document import Document, kind_of
from topoopt.plan.plan import Plan, parse_plan
from topoopt.problem.units import format_bandwidth, format_time
from topoopt.report.bars import Bar, bar_table
from topoopt.report.markup import Html, element, joined, number
from topoopt.report.page import Section, render_page


def plans_of(folder: Path) -> dict[str, Plan]:
    """Read all plans of a folder.

    Parameters
    ----------
    folder : Path

    Returns
    -------
    dict of str to Plan
        By the name of the file without its ending, ascending. JSON files that are no plans are
        left out: what `topoopt pareto --store` keeps may lie beside them.

    Raises
    ------
    InputError
        If there is no plan, or one cannot be read.
    """
    found = {}
    for path in sorted(folder.glob("*.json")):
        where = f"plan file {str(path)!r}"
        text = read_text(path, "plan file")
        if kind_of(parse_json(text, where)) is Document.PLAN:
            found[path.stem] = parse_plan(text, where)
    if not found:
        raise InputError(
            f"folder {str(folder)!r} holds neither an experiment's manifest.json nor plans; give "
            "a results folder, or one of topoopt pareto --save-plans or topoopt.sweep"
        )
    return found


def render_study(plans: Mapping[str, Plan], pages: Mapping[str, str]) -> str:
    """Return the page that compares plans and leads to the page of each.

    Parameters
    ----------
    plans : mapping of str to Plan
        At least one, by name.
    pages : mapping of str to str
        The page of each, relative to this one.

    Returns
    -------
    str
        An HTML document; the same for the same plans.
    """
    groups = _alike(plans)
    sections = [
        Section(f"model-{place}", title, _table([(n, plans[n], pages[n]) for n in names]))
        for place, (title, names) in enumerate(groups.items())
    ]
    best = min(plans.values(), key=_of_a_sample)
    answer = (
        f"{counted(len(plans), 'plan')} of {next(iter(groups))}: the fastest takes "
        f"{format_time(_of_a_sample(best))} a sample and costs {dollars(best.cost_usd)}."
        if len(groups) == 1
        else f"{counted(len(plans), 'plan')} of {counted(len(groups), 'model')}."
    )
    facts = [("Plans", str(len(plans))), ("Models", ", ".join(groups))]
    return render_page("topoopt plans", answer, facts, sections)


def _alike(plans: Mapping[str, Plan]) -> dict[str, list[str]]:
    """Return names of plans by model, under a title each; only their times compare.

    Different models may have one name, and a sample is a number of tokens, which may differ.
    """
    found: list[tuple[Any, list[str]]] = []
    for name, plan in plans.items():
        what = _what_a_sample_takes(plan)
        for other, names in found:
            if other == what:
                names.append(name)
                break
        else:
            found.append((what, [name]))
    found.sort(key=lambda group: (plans[group[1][0]].job.model.name, group[1]))
    titles = [plans[names[0]].job.model.name for _, names in found]
    return {
        title if titles.count(title) == 1
        else f"{title} ({titles[: place + 1].count(title)} of {titles.count(title)} of this name)":
        names
        for place, (title, (_, names)) in enumerate(zip(titles, found, strict=True))
    }  # fmt: skip


def _what_a_sample_takes(plan: Plan) -> tuple[object, object]:
    """Return model and tokens of a sample; the batch that a model proposes is none of them."""
    model = asdict(plan.job.model)
    model.pop("batch_per_gpu", None)
    return model, getattr(plan.job, "sequence", None)


def _of_a_sample(plan: Plan) -> float:
    """Seconds of a sample, for clusters of several sizes take batches of several sizes."""
    return plan.time_s / plan.global_batch


def _cost(plan: Plan) -> float:
    """US dollars; without end where prices are not known."""
    return inf if plan.cost_usd is None else plan.cost_usd


def _on_one_line(words: str) -> str:
    return words.replace(" ", "\N{NO-BREAK SPACE}")


def _table(found: Sequence[tuple[str, Plan, str]]) -> Html:
    """Return the plans of one model as bars, fastest first."""
    ranked = sorted(found, key=lambda each: (_of_a_sample(each[1]), _cost(each[1]), each[0]))
    seeds = len({plan.seed for _, plan, _ in found}) > 1
    bars = []
    least = inf  # cost of all that is at least as fast
    for name, plan, page in ranked:
        cluster = plan.cluster
        bars.append(
            Bar(
                element("a", name, href=page),
                _of_a_sample(plan),
                (
                    number(plan.time_s, format_time(plan.time_s)),
                    str(plan.global_batch),
                    str(cluster.servers),
                    _on_one_line(
                        f"{cluster.degree} x {format_bandwidth(cluster.bandwidth_bytes_per_s)}"
                    ),
                    dollars(plan.cost_usd),
                    number(plan.gap, f"{plan.gap:.1%}"),
                    *([str(plan.seed)] if seeds else []),
                ),
                ours=_cost(plan) < least,
            )
        )
        least = min(least, _cost(plan))
    head = (
        "plan", "time a sample", "iteration", "global batch", "servers", "ports", "network cost",
        "above the bound", *(["seed"] if seeds else []),
    )  # fmt: skip
    return joined(
        element("p", "Fastest first, by packet trains where a plan has their time, else by "
                "flows; of plans in bold none is as fast with a network for less. Each leads to "
                "its own page.", class_="note"),
        bar_table(bars, head, caption="Time and cost of each plan", words=frozenset({5})),
    )  # fmt: skip
