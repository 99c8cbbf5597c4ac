"""From a network, workloads and a budget to the answer with everything a user asks of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from codesign_base import InputError
from topoopt.bandwidth.collectives import PartialGroups
from topoopt.bandwidth.communicator import PHASES, Communicator, Group, hybrid_communicator
from topoopt.bandwidth.constraints import budget_constraint
from topoopt.bandwidth.cost import GBYTE, CostModel, default_cost
from topoopt.bandwidth.discrete import NODES, DiscreteSolution
from topoopt.bandwidth.expressions import Expr, total
from topoopt.bandwidth.from_plan import PlanWorkload
from topoopt.bandwidth.loops import (
    LayerTimes,
    Loop,
    TrainingLoop,
    add_up,
    check_layers,
    layer_times,
    unsent_notes,
)
from topoopt.bandwidth.network import MultiDimNetwork
from topoopt.bandwidth.problem import Objective, Problem
from topoopt.bandwidth.rates import parse_rates
from topoopt.bandwidth.setting import Setting
from topoopt.bandwidth.several import Together, combine
from topoopt.bandwidth.solver import Solution
from topoopt.bandwidth.time_model import Floats, TimeModel, compile_time
from topoopt.bandwidth.workload import Workload

AnyWorkload = Workload | PlanWorkload


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
class WorkloadTimes:
    """One workload at some bandwidths; times in seconds.

    Parameters
    ----------
    name : str
    iteration : float
    compute : float
        The iteration if communication took no time.
    exposed : tuple of float
        Rest of the iteration by the dimension that is waited for; dimensions that are equally
        slow share it evenly.
    latency : float
        What the steps' latency adds.
    utilisation : tuple of float
        Share of the collectives' time in which each dimension's usable links are busy.
    equal_iteration : float
        The iteration at equal bandwidths.
    """

    name: str
    iteration: float
    compute: float
    exposed: tuple[float, ...]
    latency: float
    utilisation: tuple[float, ...]
    equal_iteration: float


@dataclass(frozen=True, eq=False)
class Allocation:
    """The answer.

    Parameters
    ----------
    network : MultiDimNetwork
    objective : Objective
    solution : Solution
    workloads : tuple of WorkloadTimes
    equal : float64 array, shape (dimensions,)
        Equal bandwidths of the same sum, in bytes/s.
    equal_cost : float
        Their cost in US dollars.
    shadow_prices : tuple of ShadowPrice
    notes : tuple of str
    problem : Problem
    setting : Setting
        What the problem was made of.
    discrete : DiscreteSolution or None
        The search over rates, if there were some.
    """

    network: MultiDimNetwork
    objective: Objective
    solution: Solution
    workloads: tuple[WorkloadTimes, ...]
    equal: Floats
    equal_cost: float
    shadow_prices: tuple[ShadowPrice, ...]
    notes: tuple[str, ...]
    problem: Problem
    setting: Setting
    discrete: DiscreteSolution | None = None

    @property
    def bandwidth(self) -> Floats:
        """Bytes/s per NPU of each dimension."""
        return self.solution.bandwidth


def default_communicator(network: MultiDimNetwork, workload: Workload) -> Communicator:
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
    whole = Group(network.sizes, (1,) * network.dimensions)
    own = tuple((name, (whole, whole, whole)) for name in workload.everywhere)
    return Communicator(made.groups, own)


def allocate_bandwidth(
    network: MultiDimNetwork,
    workloads: AnyWorkload | Sequence[AnyWorkload],
    communicators: Communicator | Sequence[Communicator] | None = None,
    *,
    budget: str | None = None,
    constraints: Sequence[str] = (),
    caps: Sequence[str | None] = (),
    objective: Objective = Objective.TIME,
    loop: Loop | TrainingLoop = Loop.NONE,
    partial: PartialGroups = PartialGroups.USABLE,
    cost: CostModel | None = None,
    npu_cost: float | None = None,
    deadline: float | None = None,
    weights: Sequence[float] | None = None,
    together: Together = Together.SUM,
    rates: Sequence[str] = (),
    nodes: int = NODES,
) -> Allocation:
    """Divide bandwidth over the dimensions of a network.

    Parameters
    ----------
    network : MultiDimNetwork
    workloads : Workload or PlanWorkload, or a sequence of them
    communicators : Communicator or sequence of Communicator, optional
        One a workload; by default those that built-in workloads are made for. Plans have
        their own groups.
    budget : str, optional
        Sum of the bandwidths of an NPU: ``"500GB/s"`` (exactly) or ``"<= 500GB/s"``.
    constraints : sequence of str, optional
        See `constraints.parse_constraints`.
    caps : sequence of str or None, optional
        Largest bandwidth of each dimension (``"200GB/s"``), None where there is none.
    objective : Objective, optional
    loop : Loop or callable, optional
        How the layers add up, see `loops.iteration_time`.
    partial : PartialGroups, optional
        What a group that fills a part of a dimension may use.
    cost : CostModel, optional
        LIBRA's default prices by default.
    npu_cost : float, optional
        US dollars of an NPU, replacing the cost model's.
    deadline : float, optional
        Largest iteration time in seconds (of the combined time, with several workloads).
    weights : sequence of float, optional
    together : Together, optional
        With several workloads: each counts relative to its time at equal bandwidths.
    rates : sequence of str, optional
        Rates that the dimensions may have, see `rates.parse_rates`; any by default.
    nodes : int, optional
        Limit of the search over rates.

    Returns
    -------
    Allocation

    Raises
    ------
    InputError
        If an input is wrong, or zero or unlimited bandwidth would be optimal.
    InfeasibleError
        If nothing satisfies the constraints.
    """
    jobs = list(workloads) if isinstance(workloads, Sequence) else [workloads]
    prices = cost if cost is not None else default_cost()
    each = prices.npu if npu_cost is None else npu_cost
    if not 0 <= each < float("inf"):
        raise InputError(f"NPU cost is {each} USD; give zero or more")
    groups = _communicators(network, jobs, communicators)
    layers = [
        layers_of(network, job, group, partial) for job, group in zip(jobs, groups, strict=True)
    ]
    times = [add_up(each_layers, loop) for each_layers in layers]
    n = network.dimensions
    texts = list(constraints)
    if budget is not None:
        texts.insert(0, budget_constraint(budget, n))
    if len(caps) > n:
        raise InputError(f"{len(caps)} caps for {n} dimensions; give at most one each")
    texts += [f"b{d} <= {cap}" for d, cap in enumerate(caps) if cap is not None]
    combined = times[0]
    if len(times) > 1 or weights is not None:
        combined = combine(times, weights, together, np.full(n, 100 * GBYTE))
    setting = Setting(
        network, compile_time(combined, n), tuple(texts), replace(prices, npu=each), objective,
        deadline, parse_rates(rates, n) if rates else None, nodes,
    )  # fmt: skip
    problem = setting.problem()
    solution, discrete = setting.answer(problem)
    equal = np.full(n, solution.bandwidth.sum() / n)
    reports = tuple(
        _times(job.name, own, expression, loop, solution.bandwidth, equal)
        for job, own, expression in zip(jobs, layers, times, strict=True)
    )
    return Allocation(
        network, objective, solution, reports, equal, problem.cost_of(equal),
        _shadow_prices(problem, solution, len(jobs) > 1),
        _notes(jobs, groups, solution, discrete), problem, setting, discrete,
    )  # fmt: skip


def _notes(
    jobs: Sequence[AnyWorkload],
    groups: Sequence[Communicator | None],
    solution: Solution,
    discrete: DiscreteSolution | None,
) -> tuple[str, ...]:
    notes = [note for job in jobs for note in job.notes]
    for job, group in zip(jobs, groups, strict=True):
        if isinstance(job, Workload) and group is not None:
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
                f"the search over rates stopped at {discrete.nodes} nodes; the gap states what "
                "may be missed"
            )
    return tuple(dict.fromkeys(notes))


def layers_of(
    network: MultiDimNetwork,
    job: AnyWorkload,
    communicator: Communicator | None,
    partial: PartialGroups,
) -> tuple[LayerTimes, ...]:
    """Return the layers' times of a workload of either kind.

    Parameters
    ----------
    network : MultiDimNetwork
    job : Workload or PlanWorkload
    communicator : Communicator or None
        Of a `Workload`.
    partial : PartialGroups

    Returns
    -------
    tuple of LayerTimes
    """
    if isinstance(job, Workload):
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
            default_communicator(network, job) if isinstance(job, Workload) else None
            for job in jobs
        ]
    listed = [given] if isinstance(given, Communicator) else list(given)
    if len(listed) != len(jobs):
        raise InputError(
            f"{len(listed)} communicators for {len(jobs)} workloads; give one each, in order"
        )
    for job, group in zip(jobs, listed, strict=True):
        if not isinstance(job, Workload):
            raise InputError(
                f"workload {job.name!r} is a plan, which has groups of its own; "
                "leave the --communicator out"
            )
        check_layers(job, group)
        for index, phase in enumerate(PHASES):
            if len(group.groups[index].sizes) != network.dimensions:
                raise InputError(
                    f"communicator: {phase} has {len(group.groups[index].sizes)} dimensions, "
                    f"the network {network.dimensions}; make it for this network"
                )
    return list(listed)


def _times(
    name: str,
    layers: tuple[LayerTimes, ...],
    expression: Expr,
    loop: Loop | TrainingLoop,
    bandwidth: Floats,
    equal: Floats,
) -> WorkloadTimes:
    n = len(bandwidth)
    model = compile_time(expression, n)
    iteration = model.time(bandwidth)
    no_bytes = add_up(tuple(layer.without_communication() for layer in layers), loop)
    free_of_bytes = model.time(np.full(n, np.inf))
    compute = compile_time(no_bytes, n).time(np.full(n, np.inf))
    shares = critical_shares(model, bandwidth)
    exposed = shares * ((iteration - free_of_bytes) / shares.sum() if shares.sum() > 0 else 0.0)
    traffic = compile_time(
        total(
            layer.count * part
            for layer in layers
            for part in (layer.forward_comm, layer.input_grad_comm, layer.weight_grad_comm)
        ),
        n,
    )
    busy = np.zeros(n)
    loaded = traffic.loads.any(axis=0)
    busy[loaded] = (traffic.weights @ traffic.loads)[loaded] / bandwidth[loaded]
    span = float(traffic.weights @ traffic.node_values(bandwidth))
    return WorkloadTimes(
        name,
        iteration,
        compute,
        tuple(exposed.tolist()),
        free_of_bytes - compute,
        tuple((busy / span if span > 0 else busy).tolist()),
        model.time(equal),
    )


def critical_shares(model: TimeModel, bandwidth: Floats, tolerance: float = 1e-6) -> Floats:
    """Return the seconds on the iteration's critical path by dimension waited for.

    Parameters
    ----------
    model : TimeModel
    bandwidth : float64 array, shape (dimensions,)
        Bytes/s.
    tolerance : float, optional
        Dimensions, and parts of a maximum, within this relative distance share evenly.

    Returns
    -------
    float64 array, shape (dimensions,)
    """
    values = model.node_values(bandwidth)
    weight = model.weights.copy()
    count = len(model.loads)
    for node in range(model.nodes - 1, count - 1, -1):
        rows = np.flatnonzero(model.part_node == node)
        sizes = model.part_constant[rows] + model.part_coefficients[rows] @ values
        tied = rows[sizes >= sizes.max() * (1 - tolerance)]
        weight = weight + weight[node] / len(tied) * model.part_coefficients[tied].sum(axis=0)
    shares = np.zeros(model.dimensions)
    for k in range(count):
        on = model.loads[k] > 0
        times = np.zeros(model.dimensions)
        times[on] = model.loads[k][on] / bandwidth[on]
        slow = times >= times.max() * (1 - tolerance)
        shares[slow] += weight[k] * values[k] / slow.sum()
    return shares


def _shadow_prices(problem: Problem, solution: Solution, relative: bool) -> tuple[ShadowPrice, ...]:
    if problem.objective == Objective.COST:
        unit, scale = "USD", 1.0
    elif problem.objective == Objective.TIME_COST:
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
