"""A plan as a page of text: the answer first, then where the time goes, then the plan."""

from collections import Counter

from codesign_base.counted import counted
from parallelism.operator_records import StrategyRecord
from parallelism.operator_text import server_names, strategy_lines
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.family import LayoutFamily
from parallelism.transformers.records import LayoutQuestion, LayoutRecord
from parallelism.transformers.text import layout_text, order_text
from topoopt.base.display import register
from topoopt.base.text import dollars, table_lines
from topoopt.plan.plan import Plan
from topoopt.plan.rank_groups import (
    copy_groups,
    expert_groups,
    groups_along,
    servers_of,
    sharing_groups,
)
from topoopt.plan.ranks import ranks_of
from topoopt.plan.rebuild import rebuild_schedule
from topoopt.plan.records import Baseline, Parallelization, RingRecord
from topoopt.problem.options import PACKET_SERVERS
from topoopt.problem.schedule import Schedule
from topoopt.problem.units import format_bandwidth, format_bytes, format_count, format_time
from topoopt.search.confirm import NO_PACKET_TIME, PACKET_RUNS

# Beyond this share the two models disagree on what the plan is worth.
APART = 0.05


def plan_summary(plan: Plan) -> str:
    """Return the page that `topoopt plan --details` prints.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    str
        Several paragraphs of plain text, without a trailing newline.
    """
    lines = [
        headline(plan),
        "",
        *_times(plan),
        "",
        *_comparison(plan),
        "",
        *parallelization_lines(plan.parallelization, plan.cluster.servers),
        "",
        *_wiring(plan),
        "",
        f"{memory_text(plan)}{_fullest(plan)}; "
        f"AllReduce {format_bytes(plan.allreduce_bytes)} and transfers "
        f"{format_bytes(plan.transfer_bytes)} an iteration; "
        f"bandwidth tax {plan.bandwidth_tax:.2f}",
        f"{search_text(plan)}, fabric model {plan.fabric_model}, topoopt {plan.version}",
    ]
    lines += [f"note: {note}" for note in plan.notes]
    return "\n".join(lines)


def headline(plan: Plan) -> str:
    """Return the question in one line."""
    cluster, server = plan.cluster, plan.job.server
    size = counted(cluster.servers, "server")
    return (
        f"{_model(plan)} on {size} x {server.gpus} {server.accelerator.name}"
        f", {cluster.degree} x {format_bandwidth(cluster.bandwidth_bytes_per_s)} {cluster.ports} "
        f"ports, global batch {plan.global_batch}{_tokens(plan)}"
    )


def bounded_noun(kind: str) -> str:
    """Return what a family's lower bound is over: all plans, or the layouts it looks at."""
    return "layout that is considered" if kind == LayoutFamily.kind else "plan"


def rings_reduce(plan: Plan) -> bool:
    """Return whether anything is reduced along the rings of cables, or they only connect servers.

    Rings over all servers are wired where smaller groups reduce, too, over the plan's routes.
    """
    everyone = tuple(range(plan.cluster.servers))
    only = bool(plan.rings) and all(ring.group == everyone for ring in plan.rings)
    if plan.allreduce_bytes <= 0.0 or not only:
        return plan.allreduce_bytes > 0.0
    if not isinstance(plan.parallelization, LayoutRecord):
        return True
    layout, ranks = plan.parallelization.layout, ranks_of(plan)
    kinds = [groups_along(ranks, (axis,)) for axis in ("tensor", "context")]
    kinds += [sharing_groups(layout, ranks), copy_groups(layout, ranks)]
    if layout.expert > 1 or layout.expert_tensor is not None:
        kinds.append(expert_groups(layout, ranks))
    return any(servers_of(group) == everyone for kind in kinds for group in kind.values())


def ring_word(plan: Plan) -> str:
    """Return what rings of cables are: of AllReduces, if any goes along them."""
    return "AllReduce ring" if rings_reduce(plan) else "ring"


def cables_text(plan: Plan) -> str:
    """Return how many cables a wiring has, of which kind, and whether they were there."""
    cables = sum(link.cables for link in plan.links)
    given = " as given" * (plan.search.wiring == "given")
    if plan.cluster.ports == "bidirectional":
        return counted(cables // 2, "two-way cable") + given
    return counted(cables, "one-way cable") + given


def free_ports(plan: Plan) -> int:
    """Return the ports of each server that no cable is in, of wirings that were given."""
    cabled: Counter[tuple[str, int]] = Counter()
    for link in plan.links:
        cabled["from", link.source] += link.cables
        cabled["to", link.target] += link.cables
    return plan.cluster.degree - max(cabled.values(), default=plan.cluster.degree)


def memory_text(plan: Plan) -> str:
    """Return how full the fullest GPU is."""
    job, accelerator = plan.job, plan.job.server.accelerator
    memory = accelerator.memory_bytes
    if isinstance(job, LayoutQuestion):
        memory = accelerator.usable_bytes * (1.0 - job.memory_reserve)
    return f"memory {format_bytes(plan.memory_per_gpu_bytes)} of {format_bytes(memory)} per GPU"


def parallelization_lines(record: Parallelization, servers: int) -> list[str]:
    """Describe a parallelization.

    Parameters
    ----------
    record : StrategyRecord or LayoutRecord
    servers : int

    Returns
    -------
    list of str
    """
    if isinstance(record, StrategyRecord):
        return strategy_lines(record.operators, servers)
    return [
        f"layout: {layout_text(record.layout)}",
        f"placement: {order_text(record.order, record.layout)}",
    ]


def parallelization_text(record: Parallelization, origin: str) -> str:
    """Return a few words for a row: a layout's degrees, or where a strategy came from."""
    return layout_text(record.layout) if isinstance(record, LayoutRecord) else origin


def placed_text(plan: Plan, base: Baseline) -> str:
    """Return how a fabric places the layout of the plan, if it does so otherwise; else nothing."""
    own, other = plan.parallelization, base.parallelization
    if not isinstance(own, LayoutRecord) or not isinstance(other, LayoutRecord):
        return ""
    moved = other.layout == own.layout and other.order != own.order
    return order_text(other.order, other.layout) if moved else ""


def baseline_text(plan: Plan, base: Baseline) -> str:
    """Return what a fabric runs, told by the plan where it is the plan's, for a row beside it."""
    if isinstance(plan.parallelization, LayoutRecord):
        if base.parallelization == plan.parallelization:
            return "the plan's"
        if placed := placed_text(plan, base):
            return f"the plan's, but {placed}"
    return parallelization_text(base.parallelization, base.origin)


def search_text(plan: Plan) -> str:
    """Return how long the search was, and how it ended."""
    search, options = plan.search, plan.search.options
    words = [f"seed {plan.seed}", f"{options.effort} effort"]
    if plan.job.kind == "operators":
        chains = 1 if options.faithful else options.chains
        words += [counted(search.steps, "step"), counted(chains, "chain")]
    else:
        counts = search.counts
        words += [
            counted(counts.get("layouts", 0), "legal layout"), f"{counts.get('fitting', 0)} fit",
            counted(search.steps, "placed one") + " simulated", f"{counts.get('wired', 0)} wired",
        ]  # fmt: skip
    if search.converged and plan.job.kind == "operators":
        words.append("converged")
    if options.restarts > 1:
        words.append(f"best of {options.restarts} searches from seed {search.first_seed}")
    if search.interrupted:
        words.append("interrupted")
    if options.faithful:
        words.append(f"faithful to the {options.faithful}")
    return ", ".join(words)


def _model(plan: Plan) -> str:
    model = plan.job.model
    if isinstance(model, Transformer):
        return f"{model.name} ({format_count(model.parameters)} parameters)"
    return model.name


def _tokens(plan: Plan) -> str:
    return f" x {plan.job.sequence} tokens" if isinstance(plan.job, LayoutQuestion) else ""


def _fullest(plan: Plan) -> str:
    """Say what fills the fullest GPU of a layout."""
    if not isinstance(plan.parallelization, LayoutRecord):
        return ""
    stages = plan.parallelization.stages
    fullest = max(range(len(stages)), key=lambda stage: stages[stage].total)
    use = stages[fullest]
    return (
        f" (stage {fullest}: weights {format_bytes(use.weights)}, gradients "
        f"{format_bytes(use.gradients)}, optimizer {format_bytes(use.optimizer)}, activations "
        f"{format_bytes(use.activations)}, buffers {format_bytes(use.buffers)}, "
        f"runtime {format_bytes(use.runtime)})"
    )


def _times(plan: Plan) -> list[str]:
    total, packets = plan.iteration_time_s, plan.packet_time_s
    # Times leave a part in 10^9 for rounding, which is nothing exposed.
    exposed = plan.exposed_communication_s * (plan.exposed_communication_s > 1e-8 * total)
    rates = ", ".join(filter(None, (_rates(plan), _interrupted(plan))))
    rows: list[tuple[str, ...]] = []
    if packets is not None:
        rows.append(("packet time", format_time(packets), packet_text(plan)))
    rows += [
        ("fluid time", format_time(total), rates),
        ("  compute", format_time(plan.compute_time_s), _share(plan.compute_time_s, total)),
        (
            "  exposed communication",
            format_time(exposed),
            _share(exposed, total),
        ),
        ("lower bound", format_time(plan.lower_bound_s), _gap(plan.gap, _binding(plan))),
    ]
    reached = plan.lower_bound_s
    noun = plan.gap_parts[0].name
    levels = (f"  for this {noun}", "  on this wiring", "  over these routes", "  by these rings")
    for label, part in zip(levels, plan.gap_parts, strict=False):
        reached += part.seconds
        # A bound of everything also holds for one strategy, and may be the larger.
        rows.append((label, format_time(reached), _gap(total / reached - 1.0, part.binding)))
    # Bounds leave a part in 10^9 for rounding, which is no gap.
    shown = {part.name: part.seconds * (part.seconds > 1e-8 * total) for part in plan.gap_parts}
    parts = [f"{name} {format_time(seconds)}" for name, seconds in shown.items()]
    rows.append(("gap", format_time(sum(shown.values())), " + ".join(parts)))
    lines = table_lines(rows, left=(0, 2)) + schedule_lines(plan)
    if packets is not None and abs(packets / total - 1.0) > APART:
        lines.insert(
            0,
            f"packet trains and the fluid model differ by {packets / total - 1.0:+.1%}: rely on "
            "the packet time; bounds and gap are of the fluid model",
        )
    return lines


def packet_text(plan: Plan) -> str:
    """Return in a few words how a packet time was obtained, and how far it is from the fluid one.

    Parameters
    ----------
    plan : Plan
        With a packet time.

    Returns
    -------
    str
    """
    assert plan.packet_time_s is not None and plan.packet_spread_s is not None
    apart = plan.packet_time_s / plan.iteration_time_s - 1.0
    runs = f"mean of {PACKET_RUNS} runs, spread {format_time(plan.packet_spread_s)}"
    if plan.packet_spread_s == 0.0 and plan.cluster.servers > PACKET_SERVERS:
        runs = "one run"
    words = [
        f"{abs(apart):.1%} {'below' if apart < 0 else 'above'} the fluid time",
        runs,
    ]
    candidates = plan.search.counts.get("candidates")
    if candidates:
        words.append(f"best of {counted(candidates, 'candidate')}")
    return "; ".join(words)


def schedule_lines(plan: Plan) -> list[str]:
    """Return what the schedule inside the iteration is, nothing for the plain one."""
    schedule = rebuild_schedule(plan.schedule)
    if schedule == Schedule.plain():
        return []
    before = format_time(plan.schedule.plain_time_s)
    against = ", which other fabrics are compared with" * has_schedule(plan)
    return [f"schedule: {schedule.describe()}; plain {before}{against}"]


def has_schedule(plan: Plan) -> bool:
    """Say whether a plan has a schedule that what it is compared with has not."""
    plain = rebuild_schedule(plan.schedule) == Schedule.plain()
    return plan.scheduled_apart and not plain and bool(plan.baselines)


def _rates(plan: Plan) -> str:
    if plan.tokens_per_s is None or plan.model_flops_utilisation is None:
        return ""
    return (
        f"{format_count(plan.tokens_per_s)} tokens/s, model FLOP utilisation "
        f"{plan.model_flops_utilisation:.1%}"
    )


def _interrupted(plan: Plan) -> str:
    return "search interrupted: the best so far" if plan.search.interrupted else ""


def _binding(plan: Plan) -> str:
    mostly = next(iter(plan.bound.weights), "")
    name = plan.bound.binding
    return f"{name}, mostly {mostly}" if name == "trade-off" else name


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}"


def _gap(gap: float, binding: str) -> str:
    return f"gap {gap:.1%}; binding: {binding}"


def comparison_rows(plan: Plan) -> list[tuple[str, ...]]:
    """Return the table of the fabrics that a plan is compared with, its head first."""
    layouts = isinstance(plan.parallelization, LayoutRecord)
    packets = plan.packet_time_s
    rows: list[tuple[str, ...]] = [
        (
            "fabric", *(("packets",) if packets else ()), "fluid", "vs plan", "network cost",
            *(("layout",) if layouts else ()),
        ),
        (
            "topoopt", *((format_time(packets),) if packets else ()),
            format_time(plan.iteration_time_s), "1.00x", dollars(plan.cost_usd),
            *(("",) if layouts else ()),
        ),
    ]  # fmt: skip
    for name, base in plan.baselines.items():
        ratio = plan.relative_time(base)
        also: tuple[str, ...] = ()
        if packets is not None:
            none = "too long" if NO_PACKET_TIME in base.note else "-"
            also = (none if base.packet_time_s is None else format_time(base.packet_time_s),)
        words = baseline_text(plan, base)
        least = ">= " if base.bounded else ""
        rows.append(
            (
                name, *also, f"{least}{format_time(base.iteration_time_s)}", f"{least}{ratio:.2f}x",
                dollars(base.cost_usd),
                *((words,) if layouts else ()),
            )
        )  # fmt: skip
    return rows


def fabric_lines(rows: list[tuple[str, ...]]) -> list[str]:
    """Align the table of fabrics: the first column and the layouts are words."""
    return table_lines(rows, left=(0, *(c for c, name in enumerate(rows[0]) if name == "layout")))


def too_long_lines(plan: Plan) -> list[str]:
    """Say what "too long" means in the table of fabrics, if it is there."""
    if any(NO_PACKET_TIME in base.note for base in plan.baselines.values()):
        return [f"too long: {NO_PACKET_TIME}; compared by fluid times"]
    return []


def searched_lines(plan: Plan) -> list[str]:
    """Say how parallelizations were sought for the fabrics compared with, if there are any."""
    if not plan.baselines:
        return []
    if isinstance(plan.parallelization, LayoutRecord):
        return ["each other fabric has the fastest on it of the layouts that were simulated"]
    after = "" if plan.search.interrupted else ", then a search as the plan's"
    return [f"each other fabric has its own strategy: the best that the plan's search kept{after}"]


def _comparison(plan: Plan) -> list[str]:
    lines = [
        *fabric_lines(comparison_rows(plan)), *too_long_lines(plan), *searched_lines(plan),
    ]  # fmt: skip
    named = [
        f"{name} {format_time(time) if time is not None else 'does not fit'}"
        for name, time in plan.named_strategies_s.items()
        if name in ("data-parallel", "hybrid")
    ]
    return [*lines, "starting strategies: " + ", ".join(named)] if named else lines


def _rings(rings: list[RingRecord]) -> str:
    """Write the steps of a group's rings, and how many have none."""
    steps = [ring for ring in rings if ring.generator]
    told = []
    if steps:
        told.append("generators " + ", ".join(f"+{ring.generator}" for ring in steps))
    if len(steps) < len(rings):
        told.append(counted(len(rings) - len(steps), "Hamiltonian cycle"))
    return "; ".join(told)


def _wiring(plan: Plan) -> list[str]:
    if not plan.links:
        return ["one server: no network"]
    cables, free = cables_text(plan), free_ports(plan)
    without = f" + {free} without a cable" if free else ""
    lines = [
        f"wiring: {counted(plan.cluster.degree, 'port')} = {plan.degree_allreduce} for "
        f"{ring_word(plan)}s + {plan.degree_transfer - free} for transfers{without}; {cables}; "
        f"routing {plan.routing}"
    ]
    rings = ring_lines(plan)
    lines += rings[:6]
    if len(rings) > 6:
        lines.append(f"  ... and rings over {counted(len(rings) - 6, 'more group')}")
    return lines


def ring_lines(plan: Plan) -> list[str]:
    """Return the AllReduce rings, a line for each group of servers."""
    groups: dict[tuple[int, ...], list[RingRecord]] = {}
    for ring in plan.rings:
        groups.setdefault(ring.group, []).append(ring)
    return [
        f"  rings over {len(members)} ({server_names(members)}): {_rings(rings)}"
        for members, rings in groups.items()
    ]


register("details", Plan, plan_summary)
