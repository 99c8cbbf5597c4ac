"""From a network, workloads and a budget to the answer with everything a user asks of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from codesign_base import InputError
from codesign_base.arguments import check_kind, member, several
from codesign_base.arrays import Floats
from codesign_base.counted import counted
from topoopt.bandwidth.model.collectives import PartialGroups
from topoopt.bandwidth.model.communicator import (
    PHASES,
    Communicator,
    hybrid_communicator,
    whole_network,
)
from topoopt.bandwidth.model.cost import GBYTE
from topoopt.bandwidth.model.expressions import Expr
from topoopt.bandwidth.model.loops import (
    LayerTimes,
    add_up,
    check_layers,
    layer_times,
    unsent_notes,
)
from topoopt.bandwidth.model.network import MultiDimNetwork
from topoopt.bandwidth.model.plan_workload import PlanWorkload
from topoopt.bandwidth.model.several import RelativeTo, Together, combine
from topoopt.bandwidth.model.time_model import compile_time
from topoopt.bandwidth.model.workload import LayerWorkload
from topoopt.bandwidth.model.workload_times import WorkloadTimes, workload_times
from topoopt.bandwidth.solve.discrete import DiscreteSolution, solve_among
from topoopt.bandwidth.solve.problem import AllocationObjective, AllocationProblem
from topoopt.bandwidth.solve.question import Question
from topoopt.bandwidth.solve.rates import parse_rates
from topoopt.bandwidth.solve.solver import Solution

AnyWorkload = LayerWorkload | PlanWorkload


@dataclass(frozen=True)
class ShadowPrice:
    """What relaxing a constraint by one unit saves.

    Parameters
    ----------
    constraint : str
    value : float
        Decrease of the objective; negative if more of an exactly spent budget costs more than
        it saves. One-sided where the optimum has a kink.
    unit : str
    """

    constraint: str
    value: float
    unit: str


@dataclass(frozen=True, eq=False)
class Allocation:
    """The answer.

    Parameters
    ----------
    network : MultiDimNetwork
    question : Question
    problem : AllocationProblem
        What was solved.
    rates : tuple of float64 array, or None
        Bytes/s that each dimension may have; None for any.
    solution : Solution
    discrete : DiscreteSolution or None
        The search over rates, if there were some.
    workloads : tuple of WorkloadTimes
    relative_to : RelativeTo
        What `references` are.
    references : tuple of float, or None
        Seconds that the time of each workload counts relative to; None where one counts alone.
    equal : float64 array, shape (dimensions,)
        Equal bandwidths of the same sum, in bytes/s.
    shadow_prices : tuple of ShadowPrice
    notes : tuple of str
    """

    network: MultiDimNetwork
    question: Question
    problem: AllocationProblem
    rates: tuple[Floats, ...] | None
    solution: Solution
    discrete: DiscreteSolution | None
    workloads: tuple[WorkloadTimes, ...]
    relative_to: RelativeTo
    references: tuple[float, ...] | None
    equal: Floats
    shadow_prices: tuple[ShadowPrice, ...]
    notes: tuple[str, ...]

    @property
    def bandwidth(self) -> Floats:
        """Bytes/s per NPU of each dimension."""
        return self.solution.bandwidth

    @property
    def equal_cost(self) -> float:
        """US dollars of the equal bandwidths."""
        return self.problem.cost_of(self.equal)


def default_communicator(network: MultiDimNetwork, workload: LayerWorkload) -> Communicator:
    """Return the communicator that a built-in workload or model graph is made for.

    Raises
    ------
    InputError
        If the workload says nothing of its groups, or they cannot be laid over the network.
    """
    if workload.tensor is None:
        raise InputError(
            f"workload {workload.name!r} does not say which NPUs its collectives run over; "
            "give a --communicator"
        )
    made = hybrid_communicator(network, workload.tensor)
    whole = whole_network(network)
    own = tuple((name, (whole, whole, whole)) for name in workload.everywhere)
    return Communicator(made.groups, own)


def allocate_bandwidth(
    network: MultiDimNetwork,
    workloads: AnyWorkload | Sequence[AnyWorkload],
    question: Question,
    communicators: Communicator | Sequence[Communicator] | None = None,
    *,
    weights: Sequence[float] | None = None,
    together: Together = Together.SUM,
    relative_to: RelativeTo = RelativeTo.OPTIMUM,
    rates: Sequence[str] = (),
) -> Allocation:
    """Divide bandwidth over the dimensions of a network.

    Parameters
    ----------
    network : MultiDimNetwork
    workloads : LayerWorkload or PlanWorkload, or a sequence of them
    question : Question
        Budget, constraints, objective, prices, training loop, deadline.
    communicators : Communicator or sequence of Communicator, optional
        One a workload; by default those that built-in workloads are made for. Plans have
        their own groups.
    weights : sequence of float, optional
    together : Together, optional
        With several workloads: the sum of their relative times, or the largest of them.
    relative_to : RelativeTo, optional
        What these are relative to.
    rates : sequence of str, optional
        Rates that the dimensions may have, see `rates.parse_rates`; any by default.

    Returns
    -------
    Allocation

    Raises
    ------
    InputError
        If an input is wrong or of another kind, or zero or unlimited bandwidth would be optimal.
    InfeasibleError
        If nothing satisfies the constraints.
    """
    check_kind("network", network, MultiDimNetwork, "what parse_network returns")
    check_kind("question", question, Question, "a Question, such as Question(budget='500GB/s')")
    if isinstance(workloads, Sequence) and not isinstance(workloads, str):
        jobs = list(workloads)
    else:
        jobs = [workloads]
    for job in jobs:
        check_kind("workload", job, AnyWorkload, "what builtin_workload returns")
    if not jobs:
        raise InputError("workloads is empty; give at least one")
    together = member("together", together, Together)
    relative_to = member("relative_to", relative_to, RelativeTo)
    groups = _communicators(network, jobs, communicators)
    layers = [
        workload_layer_times(network, job, group, question.partial)
        for job, group in zip(jobs, groups, strict=True)
    ]
    times = [add_up(each_layers, question.loop) for each_layers in layers]
    n = network.dimensions
    rates = several("rates", rates, "several texts, such as ('25,50,100GB/s',)")
    listed = parse_rates(rates, n) if rates else None
    combined, references = times[0], None
    if len(times) > 1 or weights is not None:
        if relative_to == RelativeTo.EQUAL:
            references = tuple(time.evaluate([100 * GBYTE] * n) for time in times)
        else:
            names = [job.name for job in jobs]
            references = _least_times(network, names, times, question, listed)
        combined = combine(times, weights, together, references)
    problem = question.problem(network, compile_time(combined, n))
    solution, discrete = solve_among(problem, listed)
    equal = np.full(n, solution.bandwidth.sum() / n)
    reports = tuple(
        workload_times(job.name, own, expression, question.loop, solution.bandwidth, equal)
        for job, own, expression in zip(jobs, layers, times, strict=True)
    )
    return Allocation(
        network, question, problem, listed, solution, discrete, reports, relative_to, references,
        equal, _shadow_prices(problem, solution, len(jobs) > 1),
        _notes(jobs, groups, solution, discrete),
    )  # fmt: skip


def _least_times(
    network: MultiDimNetwork,
    names: Sequence[str],
    times: Sequence[Expr],
    question: Question,
    rates: tuple[Floats, ...] | None,
) -> tuple[float, ...]:
    """Return the seconds that each workload takes at the bandwidths that are best for it alone."""
    fastest = replace(question, objective=AllocationObjective.TIME, deadline=None)
    found = []
    for name, time in zip(names, times, strict=True):
        try:
            problem = fastest.problem(network, compile_time(time, network.dimensions))
            alone, _ = solve_among(problem, rates)
        except InputError as error:
            raise InputError(
                f"workload {name!r} has no least time alone that its time could be relative to "
                f"({error}); give a --budget, or --relative-to {RelativeTo.EQUAL}"
            ) from error
        found.append(alone.time)
    return tuple(found)


def _notes(
    jobs: Sequence[AnyWorkload],
    groups: Sequence[Communicator | None],
    solution: Solution,
    discrete: DiscreteSolution | None,
) -> tuple[str, ...]:
    notes = [note for job in jobs for note in job.notes]
    for job, group in zip(jobs, groups, strict=True):
        if isinstance(job, LayerWorkload) and group is not None:
            notes += unsent_notes(job, group)
    if solution.ties_broken:
        notes.append("other bandwidths give the same time; these are the cheapest of them")
    if discrete is not None:
        notes.append(
            "shadow prices are those of the problem with any rates; with these rates, see "
            "--sensitivity"
        )
        if not discrete.complete:
            notes.append(
                f"the search over rates stopped at {counted(discrete.nodes, 'node')}; the gap "
                "states what may be missed"
            )
    return tuple(dict.fromkeys(notes))


def workload_layer_times(
    network: MultiDimNetwork,
    job: AnyWorkload,
    communicator: Communicator | None,
    partial: PartialGroups,
) -> tuple[LayerTimes, ...]:
    """Return the layers' times of a workload of either kind.

    Parameters
    ----------
    network : MultiDimNetwork
    job : LayerWorkload or PlanWorkload
    communicator : Communicator or None
        Of a `LayerWorkload`.
    partial : PartialGroups

    Returns
    -------
    tuple of LayerTimes
    """
    if isinstance(job, LayerWorkload):
        assert communicator is not None
        return layer_times(network, job, communicator, partial)
    return job.layer_times(network, partial)


def _communicators(
    network: MultiDimNetwork,
    jobs: Sequence[AnyWorkload],
    given: Communicator | Sequence[Communicator] | None,
) -> list[Communicator | None]:
    if given is None:
        return [
            default_communicator(network, job) if isinstance(job, LayerWorkload) else None
            for job in jobs
        ]
    wanted = "a Communicator for each workload, such as hybrid_communicator(network, 8) returns"
    listed = [given] if isinstance(given, Communicator) else several("communicators", given, wanted)
    for each in listed:
        check_kind("one of communicators", each, Communicator, wanted)
    if len(listed) != len(jobs):
        raise InputError(
            f"{counted(len(listed), 'communicator')} for {counted(len(jobs), 'workload')}; give "
            "one each, in order"
        )
    for job, group in zip(jobs, listed, strict=True):
        if not isinstance(job, LayerWorkload):
            raise InputError(
                f"workload {job.name!r} is a plan, which has groups of its own; "
                "leave the --communicator out"
            )
        check_layers(job, group)
        for index, phase in enumerate(PHASES):
            if len(group.groups[index].sizes) != network.dimensions:
                raise InputError(
                    f"communicator: {phase} has "
                    f"{counted(len(group.groups[index].sizes), 'dimension')}, the network "
                    f"{network.dimensions}; make it for this network"
                )
    return list(listed)


def _shadow_prices(
    problem: AllocationProblem, solution: Solution, relative: bool
) -> tuple[ShadowPrice, ...]:
    if problem.objective == AllocationObjective.COST:
        unit, scale = "USD", 1.0
    elif problem.objective == AllocationObjective.TIME_COST:
        unit, scale = "s*USD", 1.0
    elif relative:
        unit, scale = "relative time", 1.0
    else:
        unit, scale = "ms", 1e3
    found = []
    limits = problem.constraints
    for name, dual, money in zip(limits.names, solution.duals, limits.in_dollars, strict=True):
        value = float(dual) * scale * (1e6 if money else GBYTE)
        found.append(ShadowPrice(name, value + 0.0, f"{unit} per {'MUSD' if money else 'GB/s'}"))
    if problem.deadline is not None:
        value = solution.deadline_dual * scale * 1e-3
        found.append(ShadowPrice("deadline", value, f"{unit} per ms"))
    return tuple(found)
