"""`topoopt what-if`: what an iteration costs after failures."""

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from codesign_base import InputError
from codesign_base.counted import counted
from topoopt.base.text import table_lines
from topoopt.cli import common
from topoopt.problem.seeds import checked_seed
from topoopt.problem.units import format_time

if TYPE_CHECKING:
    from topoopt.studies.failures import LostCable

# Cables that the text names.
_NAMED = 10
_IDLE = (
    "layouts fill all servers that are left, or the plan's goes on without the replicas that lost "
    "one; other numbers of servers are not looked at"
)


def what_if_command(
    context: typer.Context,
    plan: Annotated[Path, typer.Argument(help="A plan file.")],
    fail_links: Annotated[
        int | None, typer.Option(help="Cables that fail in each trial.", show_default="1")
    ] = None,
    fail_ports: Annotated[
        int | None, typer.Option(help="Ports that fail in each trial, instead.")
    ] = None,
    fail_servers: Annotated[
        int | None, typer.Option(help="Servers that fail in each trial, instead.")
    ] = None,
    each_link: Annotated[
        bool, typer.Option("--each-link", help="Every cable in turn, instead; the worst are named.")
    ] = False,
    trials: Annotated[int, typer.Option(help="Random sets of failures to try.")] = 100,
    steps: Annotated[
        int, typer.Option(help="Proposals of the strategy search after servers failed.")
    ] = 200,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
    as_json: common.AsJson = False,
    quiet: common.Quiet = False,
) -> None:
    """Simulate a plan after random failures, under several ways to go on.

    A cable is two-way with bidirectional ports, and one fibre with directed ones. A port takes
    its cable with it; a directed port the fibre it sends on and the one it receives on. Without a
    server the job is planned again on those that are left, each with as many samples as before.

    Example: topoopt what-if plan.json --fail-links 3 --trials 100
    """
    from parallelism.transformers.family import LayoutFamily
    from topoopt.fabric.simulation import score
    from topoopt.plan.plan import load_plan
    from topoopt.plan.rebuild import rebuild
    from topoopt.studies.failures import fail_each, fail_randomly
    from topoopt.studies.server_failures import fail_servers as kill_servers
    from topoopt.studies.workload import schedule_left_out

    given = {"links": fail_links, "ports": fail_ports, "servers": fail_servers}
    asked = {what: count for what, count in given.items() if count is not None} or {"links": 1}
    if len(asked) > 1:
        names = " and ".join(f"--fail-{what}" for what in asked)
        raise InputError(f"{names} are given; give one of them")
    ((what, count),) = asked.items()
    if each_link:
        common.refuse_given(
            context,
            ("fail_links", "fail_ports", "fail_servers", "trials", "seed"),
            "--each-link takes every cable once; give one of them",
        )
    if what != "servers":
        common.refuse_given(
            context, ("steps",), "no strategy is searched; give --fail-servers, or leave it out"
        )
    checked_seed(seed)
    loaded = load_plan(plan)
    if loaded.cluster.servers == 1:
        raise InputError(
            f"plan file {plan} is for one server, whose failure leaves nothing to simulate; give a "
            "plan for two or more"
        )
    built = rebuild(loaded)
    if "steps" in built.family.refused:
        common.refuse_given(context, ("steps",), built.family.refused["steps"])
    both_ways = built.cluster.ports == "bidirectional"
    with common.progress_reports(quiet) as progress:
        if each_link:
            tasks = built.tasks()
            lost = fail_each(built.fabric, tasks, both_ways=both_ways, progress=progress)
            whole = score(built.fabric, tasks)
        elif what == "servers":
            found: Any = kill_servers(
                built, count, trials, steps=steps, seed=seed, progress=progress
            )
        else:
            found = fail_randomly(
                built.fabric,
                built.tasks(),
                count,
                trials,
                seed=seed,
                both_ways=both_ways,
                ports=what == "ports",
                progress=progress,
            )
    document = _each(lost, whole) if each_link else _document(found, what, count, seed)
    document["notes"] = schedule_left_out(loaded)
    if what == "servers" and isinstance(built.family, LayoutFamily):
        document["notes"].append(_IDLE)
    if as_json:
        common.print_json(document)
    else:
        table = _each_lines(document) if each_link else _lines(document, what)
        lines = [*table, *(f"note: {note}" for note in document["notes"])]
        print("\n".join(lines))


def _each(lost: "list[LostCable]", whole: float) -> dict[str, Any]:
    cables = [
        {
            "source": cable.source,
            "target": cable.target,
            "cables": cable.cables,
            "repair": cable.repair,
            "time_s": cable.time_s if isfinite(cable.time_s) else None,
            "reroute_s": cable.reroute_s if isfinite(cable.reroute_s) else None,
        }
        for cable in lost
    ]
    return {"iteration_time_s": whole, "each_link": cables}


def _each_lines(document: dict[str, Any]) -> list[str]:
    whole, lost = document["iteration_time_s"], document["each_link"]
    rows: list[tuple[str, ...]] = [
        ("without a cable", "parallel", "time", "slowdown", "repair", "by reroute")
    ]
    for cable in lost[:_NAMED]:
        time = cable["time_s"]
        took = ("cut off", "-", "-", "-")
        if time is not None:
            after = cable["reroute_s"]
            rerouted = "cut off" if after is None else format_time(after)
            took = (format_time(time), f"{time / whole:.3f}x", cable["repair"], rerouted)
        rows.append((f"{cable['source']}-{cable['target']}", str(cable["cables"]), *took))
    more = ""
    if len(lost) > _NAMED:
        least = lost[-1]["time_s"]  # the worst come first
        others = "all cut off" if least is None else f"none below {least / whole:.3f}x"
        more = f", {others}; the worst {_NAMED}, --json has all"
    return [
        f"iteration {format_time(whole)} undamaged; one cable lost at each of "
        f"{counted(len(lost), 'place')} in turn{more}",
        "",
        *table_lines(rows),
    ]


def _summary(times: Any) -> dict[str, Any]:
    import numpy as np

    alive = times[np.isfinite(times)]
    if not alive.size:
        return {"mean_s": None, "p99_s": None, "worst_s": None, "disconnected": times.size}
    return {
        "mean_s": float(alive.mean()),
        "p99_s": float(np.quantile(alive, 0.99, method="inverted_cdf")),
        "worst_s": float(alive.max()),
        "disconnected": int(times.size - alive.size),
    }


def _document(found: Any, what: str, count: int, seed: int) -> dict[str, Any]:
    import numpy as np

    document = {
        "iteration_time_s": found.undamaged,
        f"fail_{what}": count,
        "trials": len(found.trials) if what == "servers" else len(found.cables),
        "seed": seed,
    }
    times = found.times
    if what == "servers":
        fits = np.array([trial.fits for trial in found.trials])
        times = {how: each[fits] for how, each in times.items()}
        best = np.min(np.stack([times["skip"], times["new-rings"]]), axis=0)
        document |= {
            "batch_share": found.batch_share,
            "does_not_fit": int((~fits).sum()),
            "why_not": next((trial.why for trial in found.trials if not trial.fits), None),
        }
    else:
        best = found.best
    repairs = {how: _summary(each) for how, each in times.items()}
    return document | {"repairs": repairs, "best": _summary(best)}


def _lines(document: dict[str, Any], what: str) -> list[str]:
    whole = document["iteration_time_s"]
    share = document.get("batch_share", 1.0)
    against = "mean slowdown a sample" if what == "servers" else "mean slowdown"
    rows: list[tuple[str, ...]] = [("repair", "mean", "p99", "worst", against, "cut off")]
    best = "fastest without rewiring" if what == "servers" else "fastest of them"
    for name, row in (*document["repairs"].items(), (best, document["best"])):
        times = [
            "-" if row[key] is None else format_time(row[key])
            for key in ("mean_s", "p99_s", "worst_s")
        ]
        slow = "-" if row["mean_s"] is None else f"{row['mean_s'] / whole / share:.3f}x"
        rows.append((name, *times, slow, str(row["disconnected"])))
    noun = {"links": "cable", "ports": "port", "servers": "server"}[what]
    failed = counted(document[f"fail_{what}"], f"failed {noun}")
    trials = counted(document["trials"], "trial")
    lines = [
        f"iteration {format_time(whole)} undamaged; {trials} of {failed}, seed {document['seed']}",
        "",
        *table_lines(rows),
    ]
    if what == "servers":
        lines += ["", f"the others go on with {share:.1%} of the batch"]
        if document["does_not_fit"]:
            lines.append(
                f"in {document['does_not_fit']} of {trials} they do not: {document['why_not']}"
            )
    return lines
