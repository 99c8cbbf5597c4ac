"""The checks of times and bounds: each is simulated, or computed, again."""

from codesign_base import InputError
from parallelism.taskgraph import traffic_of
from parallelism.transformers.family import LayoutFamily
from topoopt.bounds.bounds import Bound
from topoopt.bounds.everything import wirings_of
from topoopt.bounds.gap import how, plan_bounds
from topoopt.bounds.layouts import fitting_bounds, least_bound
from topoopt.fabric.loads import link_bytes
from topoopt.fabric.simulation import score
from topoopt.plan.arithmetic import SIMULATED, require_same
from topoopt.plan.plan import Plan
from topoopt.plan.rebuild import Rebuilt


def check_times(plan: Plan, rebuilt: Rebuilt) -> None:
    """Simulation under the schedule gives the stated time, and divides it as stated."""
    simulated = rebuilt.simulated
    require_same("iteration_time_s", plan.iteration_time_s, simulated.time, SIMULATED)
    require_same("compute_time_s", plan.compute_time_s, simulated.computing, SIMULATED)
    exposed = simulated.time - simulated.computing
    # A difference of two times, which may be nothing but their rounding.
    if abs(plan.exposed_communication_s - exposed) > SIMULATED * simulated.time:
        raise InputError(
            f"exposed_communication_s is {plan.exposed_communication_s!r} in the plan, "
            f"recomputed {exposed!r}"
        )
    _check_rates(plan, rebuilt, simulated.time)
    tasks = rebuilt.represented()
    plain = score(rebuilt.fabric, tasks)
    require_same("schedule.plain_time_s", plan.schedule.plain_time_s, plain, SIMULATED)
    traffic = traffic_of(tasks)
    useful = traffic.allreduce_sent() + traffic.transfer_sent()
    tax = float(link_bytes(rebuilt.fabric, tasks).sum() / useful) if useful else 1.0
    require_same("bandwidth_tax", plan.bandwidth_tax, tax)


def _check_rates(plan: Plan, rebuilt: Rebuilt, time: float) -> None:
    """Tokens a second and utilisation follow from the time of a transformer; others have none."""
    family = rebuilt.family
    expected: dict[str, float | None] = {
        "tokens_per_s": family.tokens_per_s(time),
        "model_flops_utilisation": family.utilisation(time),
    }
    for name, value in expected.items():
        stated = getattr(plan, name)
        if value is None or stated is None:
            if value is not stated:
                raise InputError(f"{name} is {stated!r} in the plan, expected {value!r}")
        else:
            require_same(name, stated, value, SIMULATED)


def check_bounds(plan: Plan, rebuilt: Rebuilt) -> None:
    """The lower bounds are those of the job and the strategy, and lie below the time."""
    tasks = rebuilt.simulated.tasks
    whole: Bound | None = None
    if isinstance(rebuilt.family, LayoutFamily):
        bounded = fitting_bounds(rebuilt.family)
        _check_counts(plan, rebuilt.family, len(bounded))
        wirings = wirings_of(rebuilt.family, rebuilt.cluster)
        # A search that was stopped states the one that is soon there.
        if plan.search.interrupted:
            whole = least_bound(rebuilt.family, wirings, bounded, quick=True)
        if whole is None or plan.bound.seconds > whole.seconds * (1.0 + SIMULATED):
            whole = least_bound(rebuilt.family, wirings, bounded)
    # The weights were found by a search whose end another machine's arithmetic may move; with
    # any weights the bound holds, and theirs is recomputed.
    again = plan_bounds(
        rebuilt.family, rebuilt.cluster, rebuilt.strategy, rebuilt.fabric, tasks,
        plan.iteration_time_s, weights=plan.bound.weights, schedule=rebuilt.schedule,
        everything=whole,
    )  # fmt: skip
    everything, own = again.everything, again.parallelization
    for name, stored, bound in (
        ("bound", plan.bound, everything),
        ("parallelization_bound", plan.parallelization_bound, own),
        ("topology_bound", plan.topology_bound, again.topology),
        ("routes_bound", plan.routes_bound, again.routes),
        ("collective_bound", plan.collective_bound, again.collective),
    ):
        require_same(f"{name}.seconds", stored.seconds, bound.seconds)
        if set(stored.terms_s) != set(bound.terms):
            raise InputError(f"{name} has terms {sorted(stored.terms_s)}")
        for term, value in bound.terms.items():
            require_same(f"{name} term {term}", stored.terms_s[term], value)
        if set(stored.weights) != set(bound.weights):
            raise InputError(f"{name} has weights of {sorted(stored.weights)}")
        for term, value in bound.weights.items():
            require_same(f"{name} weight of {term}", stored.weights[term], value)
        if stored.binding != bound.binding:
            raise InputError(f"{name}.binding is {stored.binding!r}, not {bound.binding!r}")
    require_same("lower_bound_s", plan.lower_bound_s, everything.seconds)
    tightest = max(own.seconds, everything.seconds)
    require_same("parallelization_lower_bound_s", plan.parallelization_lower_bound_s, tightest)
    require_same("gap", plan.gap, plan.iteration_time_s / plan.lower_bound_s - 1.0, SIMULATED)
    if plan.parallelization_lower_bound_s > plan.iteration_time_s:
        raise InputError("a lower bound exceeds the iteration time")
    names = [part.name for part in again.parts]
    if [part.name for part in plan.gap_parts] != names:
        raise InputError(f"gap_parts are not {', '.join(names)}")
    for part, computed in zip(plan.gap_parts, again.parts, strict=True):
        # Differences of times, each of which may be rounded.
        if abs(part.seconds - computed.seconds) > SIMULATED * plan.iteration_time_s:
            raise InputError(
                f"gap_parts: {part.name} is {part.seconds!r} in the plan, recomputed "
                f"{computed.seconds!r}"
            )
        if (part.binding, part.how) != (computed.binding, how(part.name, rebuilt.family.noun)):
            raise InputError(f"gap_parts: {part.name} has another binding or method")


def _check_counts(plan: Plan, family: LayoutFamily, fitting: int) -> None:
    """As many layouts are considered, and fit, as stated."""
    for name, number in (("layouts", len(family.layouts())), ("fitting", fitting)):
        if plan.search.counts[name] != number:
            raise InputError(
                f"search.counts.{name} is {plan.search.counts[name]}, recomputed {number}"
            )
