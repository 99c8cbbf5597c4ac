"""AllReduce slowdowns on a Clos fabric over jobs, ring sizes and failed spines, every router."""

import statistics
from collections.abc import Sequence

from topoopt.clos import VARIANTS, Clos, draw_jobs, run_methods, run_variant
from topoopt.experiment import Experiment, Row, Table, run_from_command_line


def case(
    tors: int,
    spines: int,
    jobs: int,
    ring: int,
    failed: int,
    first_seed: int,
    sets: int,
    epochs: int,
    methods: str,
    time_limit: float | None,
) -> list[dict[str, object]]:
    """Simulate random job sets under every method; one row a method.

    Parameters
    ----------
    tors, spines : int
    jobs, ring, failed : int
        Concurrent jobs, their ring size, failed spines.
    first_seed, sets : int
        Job sets of the seeds ``first_seed .. first_seed + sets - 1``.
    epochs : int
        AllReduces of each job, all of which count.
    methods : str
        Routers, or variants of the control loop (`topoopt.clos.VARIANTS`), with spaces between.
    time_limit : float or None
        Of one decision of the methods that search.

    Returns
    -------
    list of dict
        The columns of `EXPERIMENT`.
    """
    clos = Clos.uniform(tors, spines)
    broken = clos.with_failed_spines(range(failed))
    names = methods.split()
    found: dict[str, list[tuple[float, float, float, int]]] = {name: [] for name in names}
    for seed in range(first_seed, first_seed + sets):
        drawn = draw_jobs(clos, jobs, ring, seed)
        for name in names:
            if name in VARIANTS:
                result = run_variant(broken, drawn, name, epochs)
            else:
                (result,) = run_methods(broken, drawn, [name], epochs, time_limit=time_limit)
            found[name].append(
                (
                    result.mean_slowdown,
                    result.worst_slowdown,
                    result.controller_time_s / max(result.decisions, 1),
                    result.moved_flows,
                )
            )
    rivals = [found[name] for name in ("greedy", "edge-coloring") if name in found]
    rows = []
    for name, values in found.items():
        least = [
            [min(rival[number][k] for rival in rivals) for k in (0, 1)] if rivals else [0.0, 0.0]
            for number in range(sets)
        ]
        means, worsts, seconds, moves = zip(*values, strict=True)
        rows.append(
            {
                "method": name,
                "mean_slowdown": statistics.fmean(means),
                "worst_slowdown": max(worsts),
                "decision_s": statistics.fmean(seconds),
                "moved_flows": statistics.fmean(moves),
                "sets_worse_than_rivals": sum(
                    mean > low[0] + 1e-9 or worst > low[1] + 1e-9
                    for mean, worst, low in zip(means, worsts, least, strict=True)
                ),
                "sets_better_than_rivals": sum(
                    (mean < low[0] - 1e-9 or worst < low[1] - 1e-9)
                    and mean <= low[0] + 1e-9
                    and worst <= low[1] + 1e-9
                    for mean, worst, low in zip(means, worsts, least, strict=True)
                ),
            }
        )
    return rows


def tabulate(rows: Sequence[Row]) -> list[Table]:
    """Return mean / worst slowdowns, a column a method, and where best stands."""
    tables = []
    for tors, spines, methods in dict.fromkeys(
        (r["tors"], r["spines"], r["methods"]) for r in rows
    ):
        mine = [
            r for r in rows if (r["tors"], r["spines"], r["methods"]) == (tors, spines, methods)
        ]
        names = str(methods).split()
        lines = []
        for key in dict.fromkeys((r["jobs"], r["failed"], r["ring"]) for r in mine):
            here = [r for r in mine if (r["jobs"], r["failed"], r["ring"]) == key]
            cells = {r["method"]: r for r in here if r["status"] == "ok"}
            texts = [
                f"{float(cells[name]['mean_slowdown'] or 0):.3f} / "
                f"{float(cells[name]['worst_slowdown'] or 0):.2f}"
                if name in cells
                else str(here[0]["status"])
                for name in names
            ]
            last = cells.get("best")
            verdict = (
                f"{last['sets_better_than_rivals']} better, {last['sets_worse_than_rivals']} worse"
                if last
                else ""
            )
            lines.append((*key, *texts, f"{verdict} of {here[0]['sets']}"))
        tables.append(
            Table(
                ("jobs", "failed spines", "ring", *names, "best on sets"),
                tuple(lines),
                f"{tors} ToRs x {spines} spines: mean / worst slowdown of all jobs and epochs",
            )
        )
    return tables


def _grid(
    jobs: Sequence[int],
    rings: Sequence[int],
    failed: Sequence[int],
    sets: int,
    methods: str,
    *,
    tors: int = 64,
    spines: int = 32,
    epochs: int = 11,
    time_limit: float | None = None,
) -> list[Row]:
    return [
        {
            "tors": tors, "spines": spines, "jobs": j, "ring": r, "failed": f, "first_seed": 0,
            "sets": sets, "epochs": epochs, "methods": methods, "time_limit": time_limit,
        }
        for j in jobs
        for f in failed
        for r in rings
    ]  # fmt: skip


FAST = "ecmp random greedy edge-coloring best spray"
ABLATION = " ".join(("greedy", "edge-coloring", *VARIANTS))

EXPERIMENT = Experiment(
    name="clos-grid",
    description=(
        "Slowdown of AllReduces over the uncongested floor on a leaf-spine fabric with as many "
        "spines as NICs a ToR; random jobs (GPT-3, BLOOM, LLaMA2-70B) on random ToRs."
    ),
    source="Routing for Large ML Models (arXiv 2503.05324), experiments on 64 ToRs x 32 spines",
    grid=[
        *_grid((1, 2, 3, 4, 5), (2, 4, 8), (0, 1, 4, 8), 100, FAST),
        *_grid((1, 2, 3, 4, 5), (2, 4, 8), (0, 1, 4, 8), 1,
               "annealing optimum greedy edge-coloring best", time_limit=2.0),
        *_grid((2, 3, 5), (2, 4, 8), (1, 4, 8), 20, ABLATION),
        *_grid((5, 20), (8,), (0, 4, 16), 1, "ecmp greedy edge-coloring best",
               tors=256, spines=128, epochs=3),
    ],
    quick_grid=[
        *_grid((1, 3, 5), (2, 8), (0, 1, 8), 2, FAST, epochs=4),
        *_grid((3,), (4,), (4,), 2, ABLATION, epochs=4),
    ],
    columns=(
        "method",
        "mean_slowdown",
        "worst_slowdown",
        "decision_s",
        "moved_flows",
        "sets_worse_than_rivals",
        "sets_better_than_rivals",
    ),
    timings=("decision_s",),
    case=case,
    tabulate=tabulate,
)  # fmt: skip

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
