"""The answer in one line, and what was asked."""

from topoopt.plan.plan import Plan
from topoopt.problem.units import format_bandwidth, format_bytes, format_time
from topoopt.report.evaluate import AnyPlan


def plan_answer(plan: AnyPlan) -> str:
    """Return one sentence: how fast, against what, and how far from the bound."""
    time = format_time(plan.iteration_time_s)
    words = f"{plan.model.name} takes {time} an iteration on {servers_text(plan.cluster.servers)}"
    clauses = []
    rival = plan.baselines.get("fat-tree")
    if rival is not None:
        ratio = rival.iteration_time_s / plan.iteration_time_s
        same = plan.cost_usd is not None and rival.cost_usd is not None
        if same and plan.cost_usd and rival.cost_usd:
            same = abs(rival.cost_usd / plan.cost_usd - 1.0) < 0.01
        what = "a Fat-tree of the same cost" if same else "the Fat-tree"
        times = "" if f"{ratio:.2f}" == "1.00" else f"{ratio:.2f} times "
        clauses.append(f"{times}as fast as {what}")
    clauses.append(f"{plan.gap:.1%} above the lower bound over all plans")
    return f"{words}: {', '.join(clauses)}."


def plan_facts(plan: Plan) -> list[tuple[str, str]]:
    """Return what was asked, as pairs of a name and words."""
    cluster, accelerator = plan.cluster, plan.server["accelerator"]
    memory = format_bytes(accelerator["memory_bytes"])
    kind = "measured operator times" if plan.compute.get("kind") == "profile" else "roofline"
    return [
        ("Model", f"{plan.model.name}, {len(plan.model.operators)} operators"),
        (
            "Servers",
            f"{servers_text(cluster.servers)} x {plan.server['gpus']} {accelerator['name']} "
            f"({memory} each)",
        ),
        (
            "Ports",
            f"{cluster.degree} x {format_bandwidth(cluster.bandwidth_bytes_per_s)} a server, "
            f"{cluster.ports}, {format_time(cluster.latency_s)} a hop",
        ),
        ("Batch", f"{plan.global_batch} samples, {plan.batch_per_gpu} a GPU"),
        ("Operator times", f"{kind}, optimizer {plan.optimizer}"),
        ("Search", search_text(plan)),
    ]


def search_text(plan: Plan) -> str:
    """Return how long the search was, and how it ended."""
    search = plan.search
    words = [f"{search.steps} steps", f"{search.chains} chains", f"seed {plan.seed}"]
    if search.converged:
        words.append("converged")
    if search.interrupted:
        words.append("interrupted: the best so far")
    if search.faithful:
        words.append(f"faithful to the {search.faithful}")
    return ", ".join(words)


def servers_text(count: int) -> str:
    """Return a number of servers in words."""
    return "1 server" if count == 1 else f"{count} servers"
