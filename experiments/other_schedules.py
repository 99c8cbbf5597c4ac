"""What AllReduces of plans could gain by other schedules than rings, at most and reachably."""

from parallelism.models.presets import get_model
from parallelism.transformers.presets import get_transformer
from topoopt import Cluster, Job, Plan, co_optimize
from topoopt.experiment import Experiment, Row, run_from_command_line
from topoopt.plan.rebuild import rebuild
from topoopt.problem.job import nvlink_server
from topoopt.studies.other_schedules import (
    at_once,
    group_rates,
    separate_network_seconds,
    trees_seconds,
)

WORTH = 0.01


def case(model: str, servers: int, degree: int, batch: int, seed: int) -> dict[str, object]:
    """Plan a model, and time its iteration with other schedules of its AllReduces.

    Parameters
    ----------
    model : str
        A preset, on servers with ports of 100 Gbps; or a transformer, on servers of eight H100
        with ports of 400 Gbps.
    servers, degree : int
    batch : int
        Samples of an iteration (transformers).
    seed : int

    Returns
    -------
    dict
        The columns of `EXPERIMENT`.
    """
    layouts = batch > 0
    job = (
        Job(get_transformer(model), global_batch=batch, server=nvlink_server("h100", 8))
        if layouts
        else Job(get_model(model))
    )
    cluster = Cluster(servers, degree, "400Gbps" if layouts else "100Gbps")
    return measured(co_optimize(job, cluster, baselines=(), seed=seed))


def measured(plan: Plan) -> dict[str, object]:
    """Return the columns of `EXPERIMENT` of a plan."""
    made = rebuild(plan)
    tasks = made.represented()
    rates = group_rates(made.fabric, tasks)
    time = plan.iteration_time_s
    trees = trees_seconds(made.fabric, tasks, rates, WORTH)
    least = separate_network_seconds(made.fabric, tasks, rates, WORTH)
    bounds = (plan.bound, plan.parallelization_bound, plan.topology_bound, plan.routes_bound)
    return {
        "groups": len(rates),
        "members": max((len(rate.group) for rate in rates), default=1),
        "best_over_rings": max((rate.best / rate.rings for rate in rates), default=1.0),
        "at_once_over_rings": at_once(made.fabric, rates, WORTH),
        "iteration_time_s": time,
        "gap": plan.gap,
        "collective_part": next(p.seconds for p in plan.gap_parts if p.name == "collective") / time,
        "trees_over_rings": trees / time if trees < float("inf") else None,
        "alone_over_rings": least / time,
        "bound_over_rings": max(bound.seconds for bound in bounds) / time,
    }


def _rows(models: dict[str, int], servers: int, degrees: tuple[int, ...]) -> list[Row]:
    return [
        {"model": model, "servers": servers, "degree": degree, "batch": batch, "seed": 0}
        for model, batch in models.items()
        for degree in degrees
    ]


PRESETS = dict.fromkeys(("dlrm", "candle", "bert", "ncf", "resnet50", "vgg16"), 0)

EXPERIMENT = Experiment(
    name="other-schedules",
    description=(
        "Plans whose AllReduces go over rings; what the same iteration takes where groups that "
        "rings serve worse than the best trees have these (the best of all of them, or one), and "
        "where each group has a network of its own and the best schedule there is."
    ),
    source="extends TopoOpt (NSDI 2023); trees of Zhao et al., ForestColl (2024)",
    grid=[
        *_rows(PRESETS, 128, (4, 8)),
        *_rows({"llama3-8b": 256}, 16, (8,)),
        *_rows({"llama3-70b": 1024, "mixtral-8x7b": 512, "deepseek-v3": 1024}, 64, (8,)),
    ],
    quick_grid=[*_rows(PRESETS, 16, (4,)), *_rows({"llama3-8b": 256}, 16, (8,))],
    columns=(
        "groups", "members", "best_over_rings", "at_once_over_rings", "iteration_time_s",
        "gap", "collective_part",
        "trees_over_rings", "alone_over_rings", "bound_over_rings",
    ),
    case=case,
)  # fmt: skip

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
