"""The check of what a plan says of packet trains on its network."""

from codesign_base import InputError
from topoopt.evaluate.scheduling import ordered_tasks
from topoopt.fabric.jitter import Jitter
from topoopt.plan.arithmetic import SIMULATED, require_same
from topoopt.plan.plan import Plan
from topoopt.plan.rebuild import Rebuilt, problem_of
from topoopt.search.confirm import NO_PACKET_TIME, PACKET_MODEL, confirmed_times, states_packets


def check_packets(plan: Plan, rebuilt: Rebuilt) -> None:
    """Packet trains take the stated time, where they say one."""
    stored = (plan.packet_time_s, plan.packet_spread_s, plan.packet_model)
    states = states_packets(problem_of(plan, rebuilt))
    if plan.packet_time_s is None or plan.packet_spread_s is None:
        if stored != (None, None, None):
            raise InputError("packet_time_s, packet_spread_s and packet_model belong together")
        if not states or plan.search.interrupted:
            return
        if _again(plan, rebuilt) is not None:
            raise InputError("packet_time_s is null, but such plans state it")
        return
    if not states:
        raise InputError("packet_time_s is given, but such plans state none")
    if plan.packet_model != PACKET_MODEL:
        raise InputError(
            f"packet_model is {plan.packet_model!r}; this version has {PACKET_MODEL!r}"
        )
    again = _again(plan, rebuilt)
    if again is None:
        raise InputError(f"packet_time_s is {plan.packet_time_s!r}, but there is {NO_PACKET_TIME}")
    require_same("packet_time_s", plan.packet_time_s, again.mean, SIMULATED)
    # A difference of two times of which each may be rounded.
    if abs(plan.packet_spread_s - again.spread) > SIMULATED * again.mean:
        raise InputError(
            f"packet_spread_s is {plan.packet_spread_s!r} in the plan, recomputed {again.spread!r}"
        )


def _again(plan: Plan, rebuilt: Rebuilt) -> Jitter | None:
    tasks, _ = ordered_tasks(rebuilt.fabric, rebuilt.tasks(), rebuilt.schedule)
    return confirmed_times(rebuilt.fabric, tasks, plan.seed)
