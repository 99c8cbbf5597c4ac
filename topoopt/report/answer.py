"""The answer in one line, and what was asked."""

from codesign_base.counted import counted
from parallelism.operator_family import OperatorFamily
from parallelism.transformers.family import LayoutFamily
from parallelism.transformers.gpu import fitted_on
from parallelism.transformers.records import LayoutQuestion
from topoopt.plan.answer import gap_text, same_cost
from topoopt.plan.plan import Plan
from topoopt.plan.summary import bounded_noun, has_schedule, search_text
from topoopt.problem.units import format_bandwidth, format_bytes, format_count, format_time


def plan_answer(plan: Plan) -> str:
    """Return one sentence: how fast, against what, and how far from the bound."""
    time = format_time(plan.time_s)
    servers = counted(plan.cluster.servers, "server")
    words = f"{plan.job.model.name} takes {time} an iteration on {servers}"
    clauses = []
    rival = plan.baselines.get("fat-tree")
    if rival is not None:
        ratio = plan.relative_time(rival)
        same = same_cost(plan, "fat-tree")
        what = "a Fat-tree of the same cost" if same else "the Fat-tree"
        times = "" if f"{ratio:.2f}" == "1.00" else f"{ratio:.2f} times "
        plain = ", both without a schedule" * has_schedule(plan)
        clauses.append(f"{times}as fast as {what}{plain}")
    fluid = "" if plan.packet_time_s is None else "in the fluid model "
    bounded = bounded_noun(plan.job.kind)
    clauses.append(f"{fluid}{gap_text(plan)} above the lower bound of any {bounded}")
    return f"{words}: {', '.join(clauses)}."


def plan_facts(plan: Plan) -> list[tuple[str, str]]:
    """Return what was asked, as pairs of a name and words."""
    cluster, server, job = plan.cluster, plan.job.server, plan.job
    accelerator = server.accelerator
    memory = format_bytes(accelerator.memory_bytes)
    if isinstance(job, LayoutQuestion):
        # Layouts take a data sheet's GB for GiB, and the rest of the page says what may be used.
        memory = (
            f"{accelerator.memory_bytes / 1e9:g} GiB, {format_bytes(accelerator.usable_bytes)},"
        )
        size = f"{format_count(job.model.parameters)} parameters"
        batch = f"{counted(plan.global_batch, 'sample')} of {counted(job.sequence, 'token')}"
        fitted = f"fitted on {fitted_on(job.rates)}"
        times = ("GPU rates", f"{job.rates.accelerator.name}, {fitted}")
    else:
        kind = "measured" if job.compute.get("kind") == "profile" else "roofline"
        size = counted(len(job.model.operators), "operator")
        batch = f"{counted(plan.global_batch, 'sample')}, {job.batch_per_gpu} per GPU"
        times = ("Operator times", f"{kind}, optimizer {job.optimizer}")
    return [
        ("Model", f"{job.model.name}, {size}"),
        (
            "Servers",
            f"{counted(cluster.servers, 'server')} x {server.gpus} {accelerator.name} "
            f"({memory} each)",
        ),
        (
            "Ports",
            f"{cluster.degree} x {format_bandwidth(cluster.bandwidth_bytes_per_s)} a server, "
            f"{cluster.ports}, {format_time(cluster.latency_s)} a hop",
        ),
        ("Batch", batch),
        times,
        ("Search", search_text(plan)),
    ]


def family_noun(kind: str) -> str:
    """Return what a family calls a parallelization: "strategy" or "layout"."""
    return LayoutFamily.noun if kind == LayoutFamily.kind else OperatorFamily.noun
