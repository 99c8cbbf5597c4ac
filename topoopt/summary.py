"""A plan as a page of text: the answer first, then where the time goes, then the plan."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from topoopt.plan import OperatorPlan, Plan
from topoopt.units import format_bandwidth, format_bytes, format_time


def plan_summary(plan: Plan) -> str:
    """Return the page that `topoopt plan` prints.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    str
        Several paragraphs of plain text, without a trailing newline.
    """
    cluster = plan.cluster
    size = "1 server" if cluster.servers == 1 else f"{cluster.servers} servers"
    lines = [
        f"{plan.model.name} on {size} x {plan.server['gpus']} {plan.server['accelerator']['name']}"
        f", {cluster.degree} x {format_bandwidth(cluster.bandwidth_bytes_per_s)} {cluster.ports} "
        f"ports, global batch {plan.global_batch}",
        "",
        f"iteration time         {format_time(plan.iteration_time_s)}"
        + ("   (search interrupted: best so far)" if plan.search.interrupted else ""),
        f"  compute              {format_time(plan.compute_time_s)}",
        f"  exposed communication {format_time(plan.exposed_communication_s)}",
        f"lower bound            {format_time(plan.lower_bound_s)}   "
        f"gap {plan.gap:.1%}; binding: {plan.bound.binding}",
        f"  for this strategy    {format_time(plan.strategy_lower_bound_s)}   "
        f"gap {_gap(plan.iteration_time_s, plan.strategy_lower_bound_s)}; "
        f"binding: {plan.strategy_bound.binding}",
        "",
        *_comparison(plan),
        "",
        *strategy_lines(plan.strategy, cluster.servers),
        "",
        *_wiring(plan),
        "",
        f"memory {format_bytes(plan.memory_per_gpu_bytes)} of "
        f"{format_bytes(plan.server['accelerator']['memory_bytes'])} a GPU; "
        f"AllReduce {format_bytes(plan.allreduce_bytes)} and transfers "
        f"{format_bytes(plan.transfer_bytes)} an iteration; "
        f"bandwidth tax {plan.bandwidth_tax:.2f}",
        f"seed {plan.seed}, {plan.search.steps} steps, {plan.search.chains} chains"
        + (", converged" if plan.search.converged else "")
        + (f", faithful to the {plan.search.faithful}" if plan.search.faithful else "")
        + f", fabric model {plan.fabric_model}, topoopt {plan.version}",
    ]
    lines += [f"note: {note}" for note in plan.notes]
    return "\n".join(lines)


def _gap(time: float, bound: float) -> str:
    return f"{time / bound - 1.0:.1%}"


def _comparison(plan: Plan) -> list[str]:
    rows = [("fabric", "iteration", "vs plan", "network cost")]
    rows.append(("topoopt", format_time(plan.iteration_time_s), "1.00x", dollars(plan.cost_usd)))
    for name, base in plan.baselines.items():
        ratio = base.iteration_time_s / plan.iteration_time_s
        rows.append(
            (name, format_time(base.iteration_time_s), f"{ratio:.2f}x", dollars(base.cost_usd))
        )
    named = [
        f"{name} {format_time(time) if time is not None else 'does not fit'}"
        for name, time in plan.named_strategies_s.items()
        if name in ("data-parallel", "hybrid")
    ]
    return [*table_lines(rows), "starting strategies: " + ", ".join(named)]


def dollars(cost: float | None) -> str:
    """Return a price for a table, "-" where there is none."""
    return "-" if cost is None else f"${cost:,.0f}"


def table_lines(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Align rows of cells: the first column left, the others right.

    Parameters
    ----------
    rows : sequence of tuple of str

    Returns
    -------
    list of str
    """
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if c == 0 else cell.rjust(width)
            for c, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def strategy_lines(strategy: list[OperatorPlan], servers: int) -> list[str]:
    """Describe a strategy, operators of the same kind of split together.

    Parameters
    ----------
    strategy : list of OperatorPlan
    servers : int

    Returns
    -------
    list of str
    """
    data, whole, rest = [], [], {}  # type: ignore[var-annotated]
    for op in strategy:
        if op.parameter == 1 and op.sample == servers:
            data.append(op.operator)
        elif op.sample == op.parameter == 1:
            whole.append(op)
        else:
            rest.setdefault((op.sample, op.parameter, op.mode), []).append(op)
    lines = ["strategy:"]
    if data:
        lines.append(f"  data-parallel on all servers ({len(data)}): {_names(data)}")
    if whole:
        lines.append(
            f"  whole on one server ({len(whole)}): "
            + _shortened([f"{op.operator}@{op.servers[0]}" for op in whole])
        )
    for (sample, parameter, mode), ops in sorted(rest.items()):
        split = f"{sample} sample shards"
        if parameter > 1:
            split += f" x {parameter} {mode} shards"
        places = {tuple(op.servers) for op in ops}
        where = _places(next(iter(places))) if len(places) == 1 else f"{len(places)} placements"
        lines.append(f"  {split} on {where} ({len(ops)}): {_names(op.operator for op in ops)}")
    return lines


def _places(servers: tuple[int, ...]) -> str:
    ordered = sorted(servers)
    steps = {b - a for a, b in pairwise(ordered)}
    if len(steps) == 1:
        step = steps.pop()
        every = "" if step == 1 else f" by {step}"
        return f"servers {ordered[0]}..{ordered[-1]}{every}"
    return f"servers {', '.join(map(str, ordered[:8]))}{', ...' if len(ordered) > 8 else ''}"


def _names(names: Iterable[str]) -> str:
    return _shortened(list(names))


def _shortened(names: list[str], keep: int = 8) -> str:
    if len(names) <= keep:
        return ", ".join(names)
    return ", ".join(names[: keep - 1]) + f", ... {names[-1]}"


def _wiring(plan: Plan) -> list[str]:
    if not plan.links:
        return ["one server: no network"]
    cables = sum(link.cables for link in plan.links)
    lines = [
        f"wiring: {plan.cluster.degree} ports = {plan.degree_allreduce} for AllReduce rings + "
        f"{plan.degree_transfer} for transfers; {cables} directed cables; routing {plan.routing}"
    ]
    groups: dict[tuple[int, ...], list[int]] = {}
    for ring in plan.rings:
        groups.setdefault(tuple(sorted(ring.order)), []).append(ring.generator)
    shown = list(groups.items())
    for members, generators in shown[:6]:
        steps = ", ".join(f"+{g}" for g in generators)
        lines.append(f"  rings over {len(members)} ({_places(members)}): generators {steps}")
    if len(shown) > 6:
        lines.append(f"  ... and rings over {len(shown) - 6} more groups")
    return lines
