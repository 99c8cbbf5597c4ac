"""A transformer's plan as a page of text."""

from parallelism.transformers.layout import Layout
from topoopt.base.text import dollars, table_lines
from topoopt.problem.units import format_bandwidth, format_bytes, format_count, format_time
from topoopt.transformers.plan import Order, TransformerPlan


def transformer_summary(plan: TransformerPlan) -> str:
    """Return the page that `topoopt plan` prints for a transformer.

    Parameters
    ----------
    plan : TransformerPlan

    Returns
    -------
    str
        Several paragraphs of plain text, without a trailing newline.
    """
    cluster, server = plan.cluster, plan.server
    size = "1 server" if cluster.servers == 1 else f"{cluster.servers} servers"
    fullest = max(range(len(plan.stages)), key=lambda stage: plan.stages[stage].total)
    use = plan.stages[fullest]
    lines = [
        f"{plan.model.name} ({format_count(plan.model.parameters)} parameters) on {size} x "
        f"{server.gpus} {server.accelerator.name}, {cluster.degree} x "
        f"{format_bandwidth(cluster.bandwidth_bytes_per_s)} {cluster.ports} ports, global batch "
        f"{plan.global_batch} x {plan.sequence} tokens",
        "",
        *_times(plan),
        "",
        f"layout: {layout_text(plan.layout)}",
        f"placement: {order_text(plan.order, plan.layout)}",
        "",
        *_comparison(plan),
        "",
        f"wiring: {cluster.degree} ports = {plan.degree_allreduce} for rings + "
        f"{plan.degree_transfer} for transfers; routing {plan.routing}; bandwidth tax "
        f"{plan.bandwidth_tax:.2f}",
        f"collectives send {format_bytes(plan.allreduce_bytes)} and transfers "
        f"{format_bytes(plan.transfer_bytes)} an iteration between servers",
        f"memory {format_bytes(plan.memory_per_gpu_bytes)} of "
        f"{format_bytes(server.accelerator.memory_bytes)} on the fullest GPU (stage {fullest}): "
        f"weights {format_bytes(use.weights)}, gradients {format_bytes(use.gradients)}, optimizer "
        f"{format_bytes(use.optimizer)}, activations {format_bytes(use.activations)}, buffers "
        f"{format_bytes(use.buffers)}",
        f"seed {plan.seed}; {plan.search.layouts} legal layouts, {plan.search.fitting} fit, "
        f"{plan.search.simulated} placed ones simulated, {plan.search.wired} wired"
        + (", interrupted" if plan.search.interrupted else "")
        + f"; fabric model {plan.fabric_model}, topoopt {plan.version}",
    ]
    lines += [f"note: {note}" for note in plan.notes]
    return "\n".join(lines)


def layout_text(layout: Layout) -> str:
    """Return a layout in the field's abbreviations."""
    degrees = [
        f"{short} {value}"
        for short, value in (
            ("tp", layout.tensor), ("cp", layout.context), ("dp", layout.data),
            ("pp", layout.pipeline), ("ep", layout.expert),
        )
        if value > 1
    ]  # fmt: skip
    schedule: str = layout.schedule
    if layout.virtual_stages > 1:
        schedule += f" x {layout.virtual_stages}"
    rest = [f"microbatch {layout.microbatch}"]
    rest += [f"schedule {schedule}"] if layout.pipeline > 1 else []
    rest += [f"recomputation {layout.recompute}", f"ZeRO {layout.zero}"]
    rest += ["sequence parallel"] if layout.tensor > 1 and layout.sequence_parallel else []
    return ", ".join([*(degrees or ["one GPU"]), *rest])


def order_text(order: Order, layout: Layout) -> str:
    """Return which ranks are neighbours."""
    moved = [axis for axis in order if getattr(layout, axis) > 1]
    if not moved:
        return "one rank a server, or one rank"
    return "servers are filled along " + ", then ".join(moved)


def _times(plan: TransformerPlan) -> list[str]:
    total = plan.iteration_time_s
    rows: list[tuple[str, ...]] = [
        (
            "iteration time",
            format_time(total),
            f"{format_count(plan.tokens_per_s)} tokens/s, model FLOP utilisation "
            f"{plan.model_flops_utilisation:.1%}",
        ),
        ("  compute", format_time(plan.compute_time_s), f"{plan.compute_time_s / total:.1%}"),
        (
            "  exposed communication",
            format_time(plan.exposed_communication_s),
            f"{plan.exposed_communication_s / total:.1%}",
        ),
        (
            "lower bound",
            format_time(plan.lower_bound_s),
            f"gap {plan.gap:.1%}; binding: {plan.bound.binding}",
        ),
        (
            "gap",
            format_time(total - plan.lower_bound_s),
            " + ".join(f"{part.name} {format_time(part.seconds)}" for part in plan.gap_parts),
        ),
    ]
    return table_lines(rows, left=(0, 2))


def _comparison(plan: TransformerPlan) -> list[str]:
    rows: list[tuple[str, ...]] = [("fabric", "iteration", "vs plan", "network cost", "layout")]
    rows.append(
        ("topoopt", format_time(plan.iteration_time_s), "1.00x", dollars(plan.cost_usd), "")
    )
    for name, base in plan.baselines.items():
        ratio = base.iteration_time_s / plan.iteration_time_s
        same = (base.layout, base.order) == (plan.layout, plan.order)
        rows.append(
            (
                name,
                format_time(base.iteration_time_s),
                f"{ratio:.2f}x",
                dollars(base.cost_usd),
                "the same" if same else layout_text(base.layout),
            )
        )
    lines = table_lines(rows, left=(0, 4))
    tree = plan.baselines.get("fat-tree")
    if tree is not None:
        won = tree.iteration_time_s > plan.iteration_time_s
        lines.append(
            "faster than the best layout found on a Fat-tree of the same cost"
            if won
            else "not faster than the best layout found on a Fat-tree of the same cost"
        )
    return lines


__all__ = ["layout_text", "order_text", "transformer_summary"]
