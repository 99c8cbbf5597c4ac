"""`topoopt what-if`: what an iteration costs after failures."""

from pathlib import Path
from typing import Annotated, Any

import typer

from topoopt.cli import common


def what_if_command(
    plan: Annotated[Path, typer.Argument(help="A plan file.")],
    fail_links: Annotated[int, typer.Option(help="Cables that fail in each trial.")] = 1,
    trials: Annotated[int, typer.Option(help="Random sets of failures to try.")] = 100,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
    as_json: common.AsJson = False,
    quiet: common.Quiet = False,
) -> None:
    """Simulate a plan after random cable failures, under several ways to go on.

    With bidirectional ports a cable is two-way, and both directions fail.

    Example: topoopt what-if plan.json --fail-links 3 --trials 100
    """
    from topoopt.failures import fail_randomly
    from topoopt.plan import load_plan
    from topoopt.rebuild import rebuild
    from topoopt.search_types import Progress
    from topoopt.workload import schedule_left_out

    loaded = load_plan(plan)
    built = rebuild(loaded)
    tasks = built.builder.build(built.strategy)
    with common.progress_reports(quiet) as report:
        found = fail_randomly(
            built.fabric,
            tasks,
            fail_links,
            trials,
            seed=seed,
            both_ways=built.cluster.ports == "bidirectional",
            progress=lambda done, time: report(Progress("failures", done, trials, time)),
        )
    document = _document(found, fail_links, seed) | {"notes": schedule_left_out(loaded)}
    if as_json:
        common.print_json(document)
    else:
        print("\n".join([*_lines(document), *(f"note: {n}" for n in document["notes"])]))


def _document(found: Any, fail_links: int, seed: int) -> dict[str, Any]:
    import numpy as np

    def summary(times: Any) -> dict[str, Any]:
        alive = times[np.isfinite(times)]
        if not alive.size:
            return {"mean_s": None, "p99_s": None, "worst_s": None, "disconnected": times.size}
        return {
            "mean_s": float(alive.mean()),
            "p99_s": float(np.quantile(alive, 0.99, method="inverted_cdf")),
            "worst_s": float(alive.max()),
            "disconnected": int(times.size - alive.size),
        }

    return {
        "iteration_time_s": found.undamaged,
        "fail_links": fail_links,
        "trials": len(found.cables),
        "seed": seed,
        "repairs": {how: summary(times) for how, times in found.times.items()},
        "best": summary(found.best),
    }


def _lines(document: dict[str, Any]) -> list[str]:
    from topoopt.summary import table_lines
    from topoopt.units import format_time

    whole = document["iteration_time_s"]
    rows: list[tuple[str, ...]] = [("repair", "mean", "p99", "worst", "mean slowdown", "cut off")]
    for name, row in (*document["repairs"].items(), ("fastest of them", document["best"])):
        times = [
            "-" if row[key] is None else format_time(row[key])
            for key in ("mean_s", "p99_s", "worst_s")
        ]
        slow = "-" if row["mean_s"] is None else f"{row['mean_s'] / whole:.3f}x"
        rows.append((name, *times, slow, str(row["disconnected"])))
    return [
        f"iteration {format_time(whole)} undamaged; {document['trials']} trials of "
        f"{document['fail_links']} failed cables, seed {document['seed']}",
        "",
        *table_lines(rows),
    ]
