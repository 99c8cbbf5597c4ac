"""Checks of how a plan says it was sought: what was asked, against what the plan holds."""

from codesign_base import InputError
from parallelism.operator_family import OperatorFamily
from parallelism.transformers.family import LayoutFamily
from topoopt.evaluate.schedule_search import BUCKETS_BYTES, fused_schedules
from topoopt.plan.plan import Plan
from topoopt.plan.rebuild import Rebuilt
from topoopt.problem.schedule import ORDERED, Schedule
from topoopt.problem.seeds import restart_seed

# What a search of layouts counts; the first two are recomputed with the bound over all of them.
LAYOUT_COUNTS = ("layouts", "fitting", "wired")


def check_search(plan: Plan, rebuilt: Rebuilt) -> None:
    """Check that the plan is one that such a search gives.

    Parameters
    ----------
    plan : Plan
    rebuilt : Rebuilt

    Raises
    ------
    InputError
        If an option says nothing for the family; or restarts, steps, schedule, routing or
        fabrics compared with are not what was asked for.
    """
    search, options = plan.search, plan.search.options
    options.check(rebuilt.family)
    if (options.workers, options.engine) != (1, "local"):
        raise InputError(
            f"search.options has workers {options.workers} and engine {options.engine!r}; plans "
            "record 1 and 'local', because these change no plan"
        )
    first = search.first_seed
    if search.restart >= options.restarts or (first is None) != (options.restarts == 1):
        raise InputError(
            f"search.restart is {search.restart} and search.first_seed {first!r}, which are not "
            f"of one of {options.restarts} searches"
        )
    if first is not None and plan.seed != (own := restart_seed(first, search.restart)):
        raise InputError(
            f"seed is {plan.seed}, but of searches from first_seed {first} number "
            f"{search.restart} has {own}"
        )
    expected = LAYOUT_COUNTS if isinstance(rebuilt.family, LayoutFamily) else ()
    if plan.packet_time_s is not None and options.confirm == "packet":
        expected = (*expected, "candidates")
    if sorted(search.counts) != sorted(expected):
        raise InputError(f"search.counts counts {sorted(search.counts)}, not {sorted(expected)}")
    if search.counts.get("candidates") == 0:
        raise InputError("search.counts.candidates is 0, but the plan is one of them")
    one_search = isinstance(rebuilt.family, OperatorFamily) and options.restarts == 1
    if one_search and options.steps != search.steps:
        raise InputError(
            f"search.options.steps is {options.steps}, but search.steps {search.steps}; one search "
            "records as its budget the steps that it made"
        )
    _check_asked(plan, rebuilt)


def _check_asked(plan: Plan, rebuilt: Rebuilt) -> None:
    search, options = plan.search, plan.search.options
    plain = Schedule.plain()
    schedules: tuple[Schedule, ...] = ()
    if options.schedule == "fused":
        schedules = (plain, *fused_schedules(rebuilt.fabric, rebuilt.represented()))
    elif options.schedule in ("plain", "compute"):
        schedules = (ORDERED if options.schedule == "compute" else plain,)
    if schedules and rebuilt.schedule not in schedules:
        raise InputError(
            f"schedule is {rebuilt.schedule.describe()!r}, but search.options.schedule "
            f"{options.schedule!r}"
        )
    bucket = rebuilt.schedule.bucket_bytes
    if bucket is not None and not schedules:
        # Others may be below every AllReduce, where they fuse nothing and change no time.
        tried = ", ".join(f"{size:g}" for size in BUCKETS_BYTES)
        if not plan.allreduce_bytes:
            raise InputError(f"schedule.bucket_bytes is {bucket:g}, but the plan reduces nothing")
        if bucket not in BUCKETS_BYTES:
            raise InputError(f"schedule.bucket_bytes is {bucket:g}; a search tries {tried}")
    if rebuilt.schedule.streaming and options.schedule != "auto":
        raise InputError(
            f"schedule overlaps iterations, but search.options.schedule is {options.schedule!r}"
        )
    alone = plan.cluster.servers == 1
    settled = ["confirm", "effort", "schedule"]
    if isinstance(rebuilt.family, LayoutFamily):
        settled.append("simulated")
    for name in settled:
        if getattr(options, name) is None:
            raise InputError(f"search.options.{name} is null; plans record what was decided")
    known = options.plan_routings(plan.cluster.servers)
    if not alone and plan.routing not in known:
        raise InputError(
            f"routing is {plan.routing!r}; a search with such options routes by {', '.join(known)}"
        )
    asked, found = search.baselines, list(plan.baselines)
    if found != (asked[: len(found)] if search.interrupted else asked):
        raise InputError(
            f"baselines are {', '.join(found) or 'none'}, but search.baselines "
            f"{', '.join(asked) or 'none'}"
        )
    if isinstance(rebuilt.family, OperatorFamily):
        return
    if plan.named_strategies_s:
        raise InputError("named_strategies_s is given, but layouts have no named starts")
