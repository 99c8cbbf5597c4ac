"""The notes of a plan: what must be known beside its numbers, a sentence each."""

from collections.abc import Iterable, Mapping, Sequence

from codesign_base.counted import counted
from topoopt.baselines.baselines import PLAN_BASELINES, usual_baselines
from topoopt.evaluate.schedule_search import Scheduled
from topoopt.evaluate.scheduling import MOST_CROSSINGS, MOST_TRANSFERS, NEAR
from topoopt.plan.records import Baseline
from topoopt.problem.cluster import Cluster
from topoopt.problem.prices import PriceTable
from topoopt.problem.schedule import Schedule
from topoopt.problem.units import format_bytes, format_time

IN_VAIN = "asked for, but in no layout that is legal: "
SLOWER = "the schedule asked for is slower"
TOO_LARGE = "not simulated"
TOO_MUCH_WORK = "not simulated, because too few servers are alike"
"""How notes begin, or hold, that the answer shows, since they are about the question."""


def price_notes(cluster: Cluster, compared: dict[str, Baseline], prices: PriceTable) -> list[str]:
    """Return a sentence that names the prices outside the table's rates; none if all are known."""
    priced = [base for base in compared.values() if base.cost_usd is not None]
    rates = [cluster.port_rate, *(base.bandwidth_bytes_per_s for base in priced)]
    return [note] if (note := prices.note(*rates)) else []


def left_out_notes(servers: int, compared: Iterable[str]) -> list[str]:
    """Return a sentence that names what a plan of so many servers is not compared with unasked."""
    names = set(compared)
    usual = usual_baselines(servers)
    left = [name for name in PLAN_BASELINES if name not in usual]
    if not left or not names.issuperset(usual) or names.intersection(left):
        return []
    return [
        f"not compared with {' and '.join(left)}, whose routes of all pairs of {servers:,} servers "
        "fill memory"
    ]


def schedule_notes(scheduled: Scheduled, asked: str) -> list[str]:
    """Return what must be known to compare a plan under another schedule than the plain one.

    ``asked`` is how the schedule was to be chosen (`SearchOptions`).
    """
    if scheduled.schedule == Schedule.plain():
        tried = scheduled.tried
        return [f"none of {tried} schedules tried beats the plain one"] if tried > 1 else []
    bucket = scheduled.schedule.bucket_bytes
    if asked == "fused" and bucket is not None:
        return [
            f"gradients are fused into AllReduces of at least {format_bytes(bucket)}, because some "
            "had less than a packet for each server; so they are on other fabrics, where that is "
            f"faster. Each by itself, the plan takes {format_time(scheduled.plain_time)} "
            "(--schedule plain)"
        ]
    if scheduled.plain_time < scheduled.simulated.time:
        return [
            f"{SLOWER}: the plan takes {format_time(scheduled.plain_time)} under the plain "
            f"schedule, {format_time(scheduled.simulated.time)} under the one asked for "
            f"({scheduled.schedule.describe()}); --schedule plain searches with the former"
        ]
    return [
        f"the iteration time holds for a schedule ({scheduled.schedule.describe()}) that published "
        "results do not use; baselines have the plain one, under which "
        f"the plan takes {format_time(scheduled.plain_time)}"
    ]


def skipped_notes(skipped: Sequence[str], memory: float) -> list[str]:
    """Return a sentence that names what was not simulated for want of memory."""
    if not skipped:
        return []
    return [
        f"{TOO_LARGE}, because a task graph would take more than {format_bytes(memory)}: "
        + "; ".join(skipped)
    ]


def shown_notes(notes: Sequence[str]) -> list[str]:
    """Return the notes that a short answer shows: what was asked in vain, or not looked at.

    Lists of layouts are counted in it.
    """
    shown = []
    for note in notes:
        if note.startswith(TOO_LARGE):
            said, _, listed = note.partition(": ")
            count = len(listed.split("; "))
            layouts = counted(count, "layout")
            shown.append(f"{said}: {layouts}, any of which may be faster (--details names them)")
        elif note.startswith((IN_VAIN, SLOWER)) or TOO_MUCH_WORK in note:
            shown.append(note)
    return shown


def unused_notes(unused: Sequence[str]) -> list[str]:
    """Return a sentence that names what was asked for in vain."""
    if not unused:
        return []
    return [f"{IN_VAIN}{'; '.join(unused)}"]


def unsimulated_notes(count: int) -> list[str]:
    """Return a sentence that says how many wirings were not simulated for their size."""
    if not count:
        return []
    networks = counted(count, "wiring with its routes was", "wirings with routes were")
    return [
        f"{networks} {TOO_MUCH_WORK} on them for the work that a simulation may take; "
        "bounds do not rule out that they are faster"
    ]


def near_notes(near: bool) -> list[str]:
    """Return a sentence that says so where the plan's time is not that of an exact simulation."""
    if not near:
        return []
    return [
        f"the time by flows is off by about 0.1 %: there are more than {MOST_TRANSFERS} transfers, "
        f"or they cross more than {MOST_CROSSINGS / 1e6:g} million links in all, so flows that end "
        f"within {100 * NEAR:g} % of their age are batched"
    ]


def bounded_notes(compared: Mapping[str, Baseline]) -> list[str]:
    """Return a sentence for each fabric whose time is a bound that it is not below."""
    return [
        f"{name} takes at least the time stated: simulating it would take too much work, and what "
        "its ports and links must carry bounds it from below"
        for name, base in compared.items()
        if base.bounded
    ]
