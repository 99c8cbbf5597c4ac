"""Check a plan file: every invariant recomputed, every time simulated again."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from codesign_base import InputError
from codesign_base.arguments import check_called
from topoopt.plan.baseline_checks import check_baselines, check_costs, check_starts
from topoopt.plan.packet_checks import check_packets
from topoopt.plan.parallelization_checks import check_parallelization, check_question
from topoopt.plan.plan import Plan, load_plan
from topoopt.plan.rebuild import Rebuilt, rebuild
from topoopt.plan.route_checks import check_flows, check_routes
from topoopt.plan.search_checks import check_search
from topoopt.plan.time_checks import check_bounds, check_times
from topoopt.plan.wiring_checks import check_ports, check_rings

_Stages = tuple[tuple[tuple[str, Callable[[Plan, Rebuilt], None]], ...], ...]
# In stages: what a stage recomputes rests on what the stages before it found in order.
_STAGES: _Stages = (
    (
        ("parallelization", check_parallelization),
        ("question", check_question),
        ("search", check_search),
    ),
    (("ports", check_ports), ("rings", check_rings), ("routes", check_routes)),
    (("times", check_times),),
    (
        ("packets", check_packets),
        ("bounds", check_bounds),
        ("costs", check_costs),
        ("starts", check_starts),
        ("baselines", check_baselines),
    ),
)
# What is built of a plan, without what the plan says of it.
_BUILT: _Stages = ((("ports", check_ports), ("rings", check_rings), ("routes", check_flows)),)


@dataclass(frozen=True)
class Verification:
    """What was checked, and what failed; as a condition true if nothing did.

    Parameters
    ----------
    ok : bool
    checks : tuple of str
        Names of the checks made, in order.
    failures : tuple of str
        One sentence for each that failed.
    skipped : tuple of str
        Checks that were not made, because what they rest on is wrong.
    """

    ok: bool
    checks: tuple[str, ...]
    failures: tuple[str, ...]
    skipped: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether all is as the plan claims."""
        return self.ok


def verify_plan(
    plan: Plan | str | Path, *, progress: Callable[[str], None] | None = None
) -> Verification:
    """Recompute every invariant of a plan and simulate it again.

    Free text (names, notes, sources, the version) and how the search went (its budget and method,
    steps, converged, interrupted) describe, and cannot be recomputed. Everything else is: the
    parallelization is legal, fits in memory and takes the stated times; links keep to the ports;
    rings are single cycles over links; routes are unit flows, and those of the stated routing;
    simulation gives the stated time; bounds, costs, starting strategies and baselines follow.
    Numbers of the question (model, server, prices, cluster) are taken as asked: a plan whose
    question was changed passes only if the answer still holds.

    Parameters
    ----------
    plan : Plan, str or Path
        A plan, or the name of a plan file.
    progress : callable, optional
        Called with the name of each check before it begins.

    Returns
    -------
    Verification

    Raises
    ------
    InputError
        If the file cannot be read or does not follow the schema. A plan that follows the
        schema but is wrong is reported, not raised.

    Examples
    --------
    >>> from dataclasses import replace
    >>> import topoopt as to
    >>> job = to.Job(to.models.dlrm(tables=4, batch_per_gpu=32))
    >>> cluster = to.Cluster(servers=4, degree=2, bandwidth="100Gbps")
    >>> plan = to.co_optimize(job, cluster, to.SearchOptions(steps=5, confirm="none"))
    >>> to.verify_plan(plan).ok
    True
    >>> to.verify_plan(replace(plan, bandwidth_tax=0.5)).ok
    False
    """
    check_called("progress", progress)
    if not isinstance(plan, Plan):
        plan = load_plan(plan)
    found = dict(findings(plan, progress))
    failures = tuple(failure for failure in found.values() if failure is not None)
    skipped = tuple(name for stage in _STAGES for name, _ in stage if name not in found)
    return Verification(not failures, tuple(found), failures, skipped)


def load_sound_plan(path: str | Path) -> Plan:
    """Read a plan file to build the plan, or to write it for other programs.

    Checked is what is built, without simulation: the parallelization is legal, fits in memory and
    fills the GPUs; links keep to the ports; rings are cycles over links; routes are unit flows.
    Times, bounds and costs, which change no cable, are left to `verify_plan`.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        If the file cannot be read, does not follow the schema, or was changed so that the plan
        cannot be built.

    Examples
    --------
    >>> import tempfile
    >>> import topoopt as to
    >>> job = to.Job(to.models.dlrm(tables=4, batch_per_gpu=32))
    >>> cluster = to.Cluster(servers=4, degree=2, bandwidth="100Gbps")
    >>> plan = to.co_optimize(job, cluster, to.SearchOptions(steps=5, confirm="none"))
    >>> path = tempfile.mkdtemp() + "/plan.json"
    >>> plan.save(path)
    >>> load_sound_plan(path) == plan
    True
    """
    plan = load_plan(path)
    for _, failure in findings(plan, stages=_BUILT):
        if failure is not None:
            raise InputError(
                f"plan file {str(path)!r} is wrong: {failure}; undo the change, or plan again"
            )
    return plan


def findings(
    plan: Plan, progress: Callable[[str], None] | None = None, *, stages: _Stages = _STAGES
) -> Iterator[tuple[str, str | None]]:
    """Make the checks of a plan one after another.

    Parameters
    ----------
    plan : Plan
    progress : callable, optional
        Called with the name of each check before it begins.
    stages : tuple, optional
        The checks, beside that of the structure; by default all.

    Yields
    ------
    check : str
    failure : str or None
        One sentence if it failed. The checks of later stages are not made then.
    """
    begins = progress or (lambda _: None)
    begins("structure")
    try:
        with np.errstate(all="ignore"):  # of nonsense; its results are compared
            rebuilt = rebuild(plan)
    except Exception as error:
        yield "structure", _failure("structure", error)
        return
    yield "structure", None
    for stage in stages:
        failed = False
        for name, check in stage:
            failure = None
            begins(name)
            try:
                with np.errstate(all="ignore"):
                    check(plan, rebuilt)
            except Exception as error:  # whatever arithmetic over nonsense ends in
                failure, failed = _failure(name, error), True
            yield name, failure
        if failed:
            return


def _failure(name: str, error: BaseException) -> str:
    """Return one sentence that says which check failed and why."""
    message = " ".join(str(error).split())
    if not isinstance(error, InputError):
        message = f"cannot be recomputed ({type(error).__name__}: {message})"
    return f"{name}: {message}"
