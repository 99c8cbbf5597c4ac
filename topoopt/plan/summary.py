"""A plan as a page of text: the answer first, then where the time goes, then the plan."""

import re
from itertools import pairwise

from topoopt.base.text import dollars, table_lines
from topoopt.plan.plan import OperatorPlan, Plan, RingRecord
from topoopt.problem.schedule import Schedule
from topoopt.problem.units import format_bandwidth, format_bytes, format_time
from topoopt.topology.totient import ring_places


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
        *_times(plan),
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
        f"seed {plan.seed}, {plan.search.steps} steps, {plan.search.chains} "
        + ("chain" if plan.search.chains == 1 else "chains")
        + (", converged" if plan.search.converged else "")
        + (
            f", best of {plan.search.restarts} searches from seed {plan.search.first_seed}"
            if plan.search.restarts > 1
            else ""
        )
        + (", interrupted" if plan.search.interrupted else "")
        + (f", faithful to the {plan.search.faithful}" if plan.search.faithful else "")
        + f", fabric model {plan.fabric_model}, topoopt {plan.version}",
    ]
    lines += [f"note: {note}" for note in plan.notes]
    return "\n".join(lines)


def _times(plan: Plan) -> list[str]:
    total = plan.iteration_time_s
    # Times leave a part in 10^9 for rounding, which is nothing exposed.
    exposed = plan.exposed_communication_s * (plan.exposed_communication_s > 1e-8 * total)
    rows: list[tuple[str, ...]] = [
        (
            "iteration time",
            format_time(total),
            "search interrupted: the best so far" if plan.search.interrupted else "",
        ),
        ("  compute", format_time(plan.compute_time_s), _share(plan.compute_time_s, total)),
        (
            "  exposed communication",
            format_time(exposed),
            _share(exposed, total),
        ),
        ("lower bound", format_time(plan.lower_bound_s), _gap(plan.gap, _binding(plan))),
    ]
    reached = plan.lower_bound_s
    for label, part in zip(_LEVELS, plan.gap_parts, strict=False):
        reached += part.seconds
        # A bound of everything also holds for one strategy, and may be the larger.
        rows.append((label, format_time(reached), _gap(total / reached - 1.0, part.binding)))
    # Bounds leave a part in 10^9 for rounding, which is no gap.
    shown = {part.name: part.seconds * (part.seconds > 1e-8 * total) for part in plan.gap_parts}
    parts = [f"{name} {format_time(seconds)}" for name, seconds in shown.items()]
    rows.append(("gap", format_time(sum(shown.values())), " + ".join(parts)))
    lines = table_lines(rows, left=(0, 2))
    lines += _schedule(plan)
    record = plan.confirmation
    if record is not None:
        lines.append(
            f"packet trains: {format_time(record.iteration_time_s)}, mean of {record.copies} "
            f"copies with moved delays (spread {format_time(record.iteration_time_spread_s)}); "
            f"the fastest of {len(record.candidates)} candidates"
        )
    return lines


def _schedule(plan: Plan) -> list[str]:
    from topoopt.plan.rebuild import rebuild_schedule

    schedule = rebuild_schedule(plan.schedule)
    if schedule == Schedule.plain():
        return []
    before = format_time(plan.schedule.plain_time_s)
    return [f"schedule: {schedule.describe()}; plain {before}"]


_LEVELS = ("  for this strategy", "  on this wiring", "  over these routes")


def _binding(plan: Plan) -> str:
    mostly = next(iter(plan.bound.weights), "")
    name = plan.bound.binding
    return f"{name}, mostly {mostly}" if name == "trade-off" else name


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}"


def _gap(gap: float, binding: str) -> str:
    return f"gap {gap:.1%}; binding: {binding}"


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
    if servers == 1:
        return [f"strategy: all {len(strategy)} operators on the one server"]
    data: list[str] = []
    whole: list[OperatorPlan] = []
    rest: dict[tuple[int, int, str], list[OperatorPlan]] = {}
    for op in strategy:
        if op.parameter == 1 and op.sample == servers:
            data.append(op.operator)
        elif op.sample == op.parameter == 1:
            whole.append(op)
        else:
            rest.setdefault((op.sample, op.parameter, op.mode), []).append(op)
    lines = ["strategy:"]
    if data:
        lines.append(f"  data-parallel on all servers ({len(data)}): {operator_names(data)}")
    if whole:
        lines.append(f"  whole on one server ({len(whole)}): {_placements(whole)}")
    for (sample, parameter, mode), ops in sorted(rest.items()):
        splits = [f"{sample} sample shards"] if sample > 1 else []
        if parameter > 1:
            splits.append(f"{parameter} {mode} shards")
        places = {tuple(op.servers) for op in ops}
        one = server_names(next(iter(places)))
        where = one if len(places) == 1 else f"{len(places)} placements"
        names = operator_names([op.operator for op in ops])
        lines.append(f"  {' x '.join(splits)} on {where} ({len(ops)}): {names}")
    return lines


def server_names(servers: tuple[int, ...]) -> str:
    """Return servers in few words: ``"servers 0..15"``, ``"servers 0..14 by 2"``."""
    ordered = sorted(servers)
    if len(ordered) == 1:
        return f"server {ordered[0]}"
    steps = {b - a for a, b in pairwise(ordered)}
    if len(steps) == 1:
        step = steps.pop()
        every = "" if step == 1 else f" by {step}"
        return f"servers {ordered[0]}..{ordered[-1]}{every}"
    return f"servers {_shortened([str(server) for server in ordered])}"


def _placements(ops: list[OperatorPlan]) -> str:
    """Write where single operators run; layers of one name on evenly spaced servers in one."""
    shown = []
    for run in _runs([op.operator for op in ops]):
        places = [ops[at].servers[0] for at in run]
        steps = {b - a for a, b in pairwise(places)}
        if len(run) > 2 and len(steps) == 1:
            name = _name_run([ops[at].operator for at in run])
            step = steps.pop()
            if step == 0:
                shown.append(f"{name}@{places[0]}")
            else:
                by = "" if step == 1 else f" by {step}"
                shown.append(f"{name}@{places[0]}..{places[-1]}{by}")
        else:
            shown += [f"{ops[at].operator}@{ops[at].servers[0]}" for at in run]
    return _shortened(shown)


_NUMBERED = re.compile(r"(.*?)([0-9]+)")


def _runs(names: list[str]) -> list[list[int]]:
    """Divide names into runs that differ in a last number which counts up by one."""
    runs: list[list[int]] = []
    before: tuple[str, int] | None = None
    for at, name in enumerate(names):
        match = _NUMBERED.fullmatch(name)
        key = (match[1], int(match[2])) if match else None
        if key is not None and before is not None and key == (before[0], before[1] + 1):
            runs[-1].append(at)
        else:
            runs.append([at])
        before = key
    return runs


def _name_run(names: list[str]) -> str:
    match = _NUMBERED.fullmatch(names[-1])
    return names[0] if len(names) == 1 or not match else f"{names[0]}..{match[2]}"


def operator_names(names: list[str]) -> str:
    """Return names in few words, those that count up as one: ``"top_0..15"``."""
    shown = []
    for run in _runs(names):
        if len(run) > 2:
            shown.append(_name_run([names[at] for at in run]))
        else:
            shown += [names[at] for at in run]
    return _shortened(shown)


def _shortened(names: list[str], keep: int = 8) -> str:
    if len(names) <= keep:
        return ", ".join(names)
    return ", ".join(names[: keep - 1]) + f", ... {names[-1]}"


def _rings(members: tuple[int, ...], rings: list[RingRecord]) -> str:
    """Write the steps of a group's rings, and how many have none."""
    steps = [ring for ring in rings if ring.generator]
    told = []
    if steps:
        told.append("generators " + ", ".join(f"+{ring.generator}" for ring in steps))
        if ring_places(steps[0].order, steps[0].generator) != members:
            told.append("seated for the transfers")
    if len(steps) < len(rings):
        told.append(f"{len(rings) - len(steps)} Hamiltonian cycles of a Cayley graph")
    return "; ".join(told)


def _wiring(plan: Plan) -> list[str]:
    if not plan.links:
        return ["one server: no network"]
    cables = sum(link.cables for link in plan.links)
    both = plan.cluster.ports == "bidirectional"
    lines = [
        f"wiring: {plan.cluster.degree} ports = {plan.degree_allreduce} for AllReduce rings + "
        f"{plan.degree_transfer} for transfers; "
        f"{cables // 2 if both else cables} {'two-way' if both else 'one-way'} cables; "
        f"routing {plan.routing}"
    ]
    groups: dict[tuple[int, ...], list[RingRecord]] = {}
    for ring in plan.rings:
        groups.setdefault(tuple(sorted(ring.order)), []).append(ring)
    shown = list(groups.items())
    for members, rings in shown[:6]:
        lines.append(
            f"  rings over {len(members)} ({server_names(members)}): {_rings(members, rings)}"
        )
    if len(shown) > 6:
        lines.append(f"  ... and rings over {len(shown) - 6} more groups")
    return lines
