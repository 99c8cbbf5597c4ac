"""How often the search finds the optimum of small random jobs, and how tight the bound is."""

from collections.abc import Sequence

import numpy as np

from parallelism.graph import ModelGraph
from parallelism.operator_family import OperatorFamily
from parallelism.operators.builder import GraphBuilder
from parallelism.operators.elementwise import concat
from parallelism.operators.layers import dense, embedding
from topoopt import Cluster, Job, co_optimize
from topoopt.experiment import Experiment, Row, Table, run_from_command_line
from topoopt.problem.options import SearchOptions
from topoopt.studies.exhaustive import count_pairs, exhaustive_optimum

MOST_PAIRS = 25000


def random_model(rng: np.random.Generator) -> ModelGraph:
    """Draw a chain of dense layers, or a table beside a dense layer that meet in another."""
    build = GraphBuilder("random", int(rng.choice([8, 16, 32])), 4)

    def width() -> int:
        return int(2 ** rng.integers(6, 13))

    x = build.input(width())
    if rng.random() < 0.8:
        for layer in range(int(rng.choice([2, 2, 3]))):
            x = dense(build, f"dense_{layer}", x, width())
    else:
        dim = int(2 ** rng.integers(5, 9))
        rows, bag = int(10 ** rng.integers(4, 7)), int(rng.choice([1, 10, 100]))
        table = embedding(build, "table", rows, dim, bag=bag)
        x = concat(build, "concat", [dense(build, "bottom", x, dim), table])
    return build.build()


def instance(number: int) -> tuple[Job, Cluster]:
    """Draw the instance of a number: the first that is small enough to try everything."""
    rng = np.random.default_rng(np.random.SeedSequence(7, spawn_key=(number,)))
    servers = int(rng.integers(4, 9))
    while True:
        degree = min(int(rng.integers(1, 4)), servers - 1)
        gbps = float(10 ** rng.uniform(0.0, 2.3))
        job, cluster = Job(random_model(rng)), Cluster(servers, degree, f"{gbps:.4g}Gbps")
        if count_pairs(job.builder(servers), cluster) <= MOST_PAIRS:
            return job, cluster


def case(number: int, seed: int) -> dict[str, object]:
    """Compare search, optimum and bound of one instance.

    Parameters
    ----------
    number : int
        Of the instance.
    seed : int
        Of the search.

    Returns
    -------
    dict
        The columns of `EXPERIMENT`.
    """
    job, cluster = instance(number)
    family = job.family(cluster.servers)
    assert isinstance(family, OperatorFamily)  # drawn as graphs of operators
    best = exhaustive_optimum(family, cluster)
    plan = co_optimize(job, cluster, SearchOptions(confirm="none"), seed=seed, baselines=())
    return {
        "servers": cluster.servers,
        "degree": cluster.degree,
        "operators": len(job.model.operators),
        "pairs": count_pairs(family.builder, cluster),
        "optimum_s": best,
        "found_s": plan.iteration_time_s,
        "excess": plan.iteration_time_s / best - 1.0,
        "bound_share": plan.lower_bound_s / min(best, plan.iteration_time_s),
    }


def tabulate(rows: Sequence[Row]) -> Table:
    """Count hits, and summarise excess and tightness."""
    done = [row for row in rows if row["status"] == "ok"]
    if not done:
        return Table(("what", "value"), (("instances", "0"),))
    excess = np.array([float(row["excess"] or 0) for row in done])
    share = np.array([float(row["bound_share"] or 0) for row in done])
    lines = [
        ("instances", str(excess.size)),
        ("search finds the optimum (within 0.01 %) or better", f"{(excess <= 1e-4).mean():.1%}"),
        ("search finds better than every circulant", f"{(excess < -1e-4).mean():.1%}"),
        ("largest excess", f"{max(excess.max(), 0.0):.2%}"),
        ("bound over optimum, median", f"{np.median(share):.3f}"),
        ("bound over optimum, least", f"{share.min():.3f}"),
        ("bound over optimum, largest", f"{share.max():.6f}"),
    ]
    return Table(("what", "value"), tuple(lines))


EXPERIMENT = Experiment(
    name="small-optima",
    description="Search and lower bound against the optimum of small random jobs.",
    source="extends TopoOpt (NSDI 2023): every strategy of the space on every circulant network",
    grid={"number": list(range(500)), "seed": [0]},
    quick_grid={"number": list(range(12)), "seed": [0]},
    columns=(
        "servers", "degree", "operators", "pairs", "optimum_s", "found_s", "excess", "bound_share",
    ),
    case=case,
    tabulate=tabulate,
)  # fmt: skip

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
