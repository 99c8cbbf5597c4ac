"""What says how long a parallelization takes on a fabric that a plan is compared with."""

from typing import NamedTuple

from parallelism.buckets import bucket_allreduces, packet_bucket
from parallelism.family import Family, P
from parallelism.operator_family import OperatorFamily
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.schedule_search import fused_schedules
from topoopt.evaluate.scoring import MOST_MOVES, SEARCH_TOLERANCE, Scorer, moves_too_often
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.fluid import Run
from topoopt.fabric.reconfigurable import AnyFabric
from topoopt.fabric.rotated import for_each


def baseline_scorer(
    problem: Problem[Family[P]], fabric: AnyFabric, parallelization: P
) -> Scorer[P]:
    """Return what says how long a parallelization takes on a fabric to compare with.

    Exactly, unless on many servers it has too many transfers that stand for themselves: then near.
    """
    near = False
    if problem.spares and isinstance(fabric, Fabric):
        transfers = problem.port_load(parallelization).transfers
        near = transfers > MOST_MOVES * problem.family.servers and moves_too_often(
            problem.family.represented(parallelization), fabric
        )
    tolerance = SEARCH_TOLERANCE if near else 0.0
    return Scorer(problem, fabric, tolerance, problem.baseline_work)


# Buckets that gain less than this share of the iteration are left as they are: in another order
# they gain as little, and without symmetry every simulation takes long.
_WORTH = 1e-3


class Took(NamedTuple):
    """What a parallelization takes on a fabric to compare with.

    ``bounded``: at least so many seconds. ``near``: not simulated exactly.
    """

    seconds: float
    bounded: bool
    near: bool


def in_other_buckets(
    problem: Problem[Family[P]], fabric: AnyFabric, parallelization: P, took: Took
) -> Took:
    """Return the least that a parallelization takes, whichever gradients are fused.

    As for the plan: fused in the order in which they are ready on this fabric, into buckets of all
    sizes that are tried there, and each by itself; as far as a simulation takes no more work than
    it may on such a fabric, and buckets gain anything there.

    Parameters
    ----------
    problem : Problem
    fabric : Fabric, GpuPorts, DirectCircuits or WindowedCircuits
        Only of a `Fabric` it is known when gradients are ready.
    parallelization : P
    took : Took
        What `baseline_scorer` says.

    Returns
    -------
    Took
        The same where the problem has no buckets, or no gradient needs one.
    """
    plain, family = problem.unfused, problem.family
    if plain is problem:
        return took
    assert isinstance(family, OperatorFamily)  # no other one has buckets of its own
    tasks = plain.family.represented(parallelization)
    if packet_bucket(tasks, family.packet_bytes) is None:
        return took
    scorer = baseline_scorer(plain, fabric, parallelization)
    if not isinstance(fabric, Fabric):
        time = scorer(parallelization, took.seconds)
        return Took(time, scorer.bounded, scorer.near) if time < took.seconds else took
    if took.bounded:
        # Unfused there are no fewer flows, so that their simulation would be given up, too.
        return took
    over = scorer.within(tasks)
    run = None if over is None else scorer.run(over)
    if over is None or not isinstance(run, Run) or run.spent:
        return took
    if run.makespan < took.seconds:
        return Took(run.makespan, False, run.near)
    if run.makespan <= took.seconds * (1.0 + _WORTH):
        return took
    ready = for_each(over, tasks, run.start)
    for schedule in fused_schedules(fabric, tasks, ready):
        assert schedule.bucket_bytes is not None
        fused, _ = bucket_allreduces(tasks, schedule.bucket_bytes, ready)
        time = scorer.timed(fused, took.seconds)
        if time < took.seconds and not scorer.bounded:
            took = Took(time, False, scorer.near)
    return took
