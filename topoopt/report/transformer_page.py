"""The report of a transformer's plan."""

import shlex

import numpy as np

from codesign_base import InputError
from parallelism.taskgraph import traffic_of
from topoopt.base.text import dollars
from topoopt.fabric.fluid import FABRIC_MODEL
from topoopt.fabric.simulate import simulate
from topoopt.plan.arithmetic import SIMULATED, require_same
from topoopt.problem.units import format_bandwidth, format_bytes, format_count, format_time
from topoopt.report.answer import plan_answer, servers_text
from topoopt.report.bars import Bar, bar_table
from topoopt.report.evaluate import Played, ring_bytes
from topoopt.report.markup import Html, element, joined, number, table
from topoopt.report.page import Section, render_page
from topoopt.report.plan_page import gap, halves, sums
from topoopt.report.traffic import traffic_section
from topoopt.report.wiring import wiring_section
from topoopt.transformers.plan import TransformerPlan
from topoopt.transformers.summary import layout_text, order_text
from topoopt.transformers.verify import plan_parts


def render_transformer_plan(plan: TransformerPlan) -> str:
    """Return the page of a transformer's plan.

    Parameters
    ----------
    plan : TransformerPlan

    Returns
    -------
    str
        An HTML document; the same for the same plan.

    Raises
    ------
    InputError
        If the plan is of another fabric model, or takes another time than it says.
    """
    found = played_again(plan)
    sections = [
        Section("layout", "Layout", _layout(plan)),
        Section("baselines", "Against other fabrics", _baselines(plan)),
        Section("gap", "Where the time goes", joined(halves(plan), gap(plan))),
        Section("memory", "Memory", _memory(plan)),
        Section("topology", "Topology", wiring_section(found)),
        Section("traffic-matrix", "Traffic", joined(sums(plan), traffic_section(found))),
        Section("notes", "Notes", element("ul", (element("li", note) for note in plan.notes))),
        Section("reproduce", "Check it", _check(plan)),
    ]
    title = f"topoopt plan: {plan.model.name}"
    return render_page(title, plan_answer(plan), _facts(plan), sections)


def played_again(plan: TransformerPlan) -> Played:
    """Play one iteration of a plan again.

    Parameters
    ----------
    plan : TransformerPlan

    Returns
    -------
    Played

    Raises
    ------
    InputError
        If the plan is of another fabric model, or takes another time than it says.
    """
    if plan.fabric_model != FABRIC_MODEL:
        raise InputError(
            f"fabric_model is {plan.fabric_model!r}, this version has {FABRIC_MODEL!r}; plan again"
        )
    fabric, tasks = plan_parts(plan)
    timeline = simulate(fabric, tasks)
    require_same("iteration_time_s", plan.iteration_time_s, timeline.makespan, SIMULATED)
    devices = np.bincount(tasks.server_of_device, minlength=tasks.servers)
    busy = np.bincount(
        tasks.server_of_device, weights=timeline.device_busy, minlength=tasks.servers
    )
    # A tensor group over several servers is one device, at home on the first of them.
    homes = np.maximum.accumulate(np.where(devices > 0, np.arange(tasks.servers), 0))
    return Played(
        plan=plan,
        fabric=fabric,
        tasks=tasks,
        timeline=timeline,
        server_busy=busy[homes] / devices[homes],
        allreduce=ring_bytes(fabric, tasks),
        transfers=traffic_of(tasks).transfers,
    )


def _facts(plan: TransformerPlan) -> list[tuple[str, str]]:
    cluster, accelerator, search = plan.cluster, plan.server.accelerator, plan.search
    return [
        ("Model", f"{plan.model.name}, {format_count(plan.model.parameters)} parameters"),
        (
            "Servers",
            f"{servers_text(cluster.servers)} x {plan.server.gpus} {accelerator.name} "
            f"({format_bytes(accelerator.memory_bytes)} each)",
        ),
        (
            "Ports",
            f"{cluster.degree} x {format_bandwidth(cluster.bandwidth_bytes_per_s)} a server, "
            f"{cluster.ports}, {format_time(cluster.latency_s)} a hop",
        ),
        ("Batch", f"{plan.global_batch} samples of {plan.sequence} tokens"),
        (
            "Search",
            f"{search.layouts} layouts, {search.fitting} fit, {search.simulated} placed ones "
            f"simulated, {search.wired} wired, seed {plan.seed}"
            + (", interrupted: the best so far" if search.interrupted else ""),
        ),
    ]


def _layout(plan: TransformerPlan) -> Html:
    layout = plan.layout
    names = ("tensor", "context", "data", "pipeline", "expert", "microbatch", "virtual_stages")
    rows: list[tuple[str, str]] = [
        (name.replace("_", " "), number(getattr(layout, name), str(getattr(layout, name))))
        for name in names
    ]
    rows += [
        ("schedule", layout.schedule),
        ("recomputation", layout.recompute),
        ("ZeRO", number(layout.zero, str(layout.zero))),
    ]
    words = (
        f"{format_count(plan.tokens_per_s)} tokens/s, model FLOP utilisation "
        f"{plan.model_flops_utilisation:.1%}; {order_text(plan.order, layout)}."
    )
    return joined(
        element("p", words, class_="note"),
        table(("what", "value"), rows, words={0}, caption="Degrees of parallelism and schedule"),
    )


def _baselines(plan: TransformerPlan) -> Html:
    def cells(seconds: float, rate: float, cost: float | None, words: str) -> tuple[str, ...]:
        ratio = seconds / plan.iteration_time_s
        price = dollars(cost) if cost is None else number(cost, dollars(cost))
        return number(ratio, f"{ratio:.2f}x"), price, number(rate, format_bandwidth(rate)), words

    own = plan.iteration_time_s
    port = plan.cluster.bandwidth_bytes_per_s
    bars = [
        Bar("topoopt", own, cells(own, port, plan.cost_usd, layout_text(plan.layout)), ours=True)
    ]
    for name, base in plan.baselines.items():
        same = (base.layout, base.order) == (plan.layout, plan.order)
        words = "the same" if same else layout_text(base.layout)
        time = base.iteration_time_s
        bars.append(Bar(name, time, cells(time, base.bandwidth_bytes_per_s, base.cost_usd, words)))
    head = ("fabric", "iteration", "vs plan", "network cost", "link", "layout")
    return joined(
        element("p", "Every fabric runs the best layout that was found for it. The line marks the "
                "lower bound of any plan.", class_="note"),
        bar_table(bars, head, caption="Iteration time and cost by fabric",
                  mark=plan.lower_bound_s, words=frozenset({5})),
    )  # fmt: skip


def _memory(plan: TransformerPlan) -> Html:
    kinds = ("weights", "gradients", "optimizer", "activations", "buffers", "total")
    rows = []
    for stage, use in enumerate(plan.stages):
        sizes = [float(getattr(use, kind)) for kind in kinds]
        rows.append((str(stage), *(number(size, format_bytes(size)) for size in sizes)))
    usable = plan.server.accelerator.memory_bytes * (1.0 - plan.memory_reserve)
    words = f"Bytes on one GPU of each pipeline stage; {format_bytes(usable)} may be used."
    return joined(
        element("p", words, class_="note"),
        table(("stage", *kinds), rows, words=set(), caption="Memory of a GPU by stage"),
    )


def _check(plan: TransformerPlan) -> Html:
    lines = "topoopt verify plan.json\ntopoopt report plan.json -o plan.html"
    what = shlex.quote(plan.model.name)
    return joined(
        element("p", f"Made with topoopt {plan.version} for {what} (seed {plan.seed}); verify "
                "recomputes the plan from its file alone."),
        element("pre", element("code", lines), tabindex=0),
    )  # fmt: skip
