"""Scores of (strategy, fabric) pairs."""

from dataclasses import dataclass, replace
from typing import Generic, NamedTuple

import numpy as np

from parallelism.family import Family, P, Shorter
from parallelism.rotation import rotated_classes
from parallelism.taskgraph import TaskGraph, TaskKind
from topoopt.bounds.wired import topology_bound
from topoopt.evaluate.least_times import busiest, lengthened, of_servers, sent_seconds
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.scheduling import NEAR, ordered_tasks
from topoopt.fabric.collapse import seeks_symmetry
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.fluid import Run
from topoopt.fabric.gpu_ports import GpuPorts
from topoopt.fabric.reconfigurable import AnyFabric, run_iteration
from topoopt.fabric.represented import tasks_within, whole_size, whole_tasks
from topoopt.fabric.rotated import rotated_kinds
from topoopt.fabric.varying import VaryingRun

# Beyond this size a search scores with flows that end within this share of their age batched
# (error about 0.1 %); whatever it keeps is simulated again exactly.
_EXACT_SERVERS = 32
SEARCH_TOLERANCE = NEAR
CHOSEN_UP_TO = 64
"""Members of a group whose rings are chosen, where a wiring of many servers has none for it."""
MOST_MOVES = 100
"""Transfers of each of many servers beyond which nothing is scored beside what is faster."""
MOST_FOLDED = 1e7
"""Transfers beyond which it is not looked for what a rotation of the servers maps on each other."""
# Costs in units of one re-solved flow, fitted to measurements on 16 and 128 servers.
_TASK_WORK = 0.5
_BOUND_WORK = 0.8
# Adding up what devices have to do, before any task is made.
_DEVICE_WORK = 2e3
# Making, where it was not made before, a task: memory counts as much as time.
BUILD_WORK = 50.0
# Making a task, and looking for what a rotation maps on it, where a job has millions of them. It
# counts where strategies are wired: counted for scores, too, it would end the search of fabrics
# that are compared with, and of strategies on the ideal switch, before it found anything.
MADE_WORK = 10.0
# Looking for symmetry, a task.
_COLLAPSE_WORK = 4.0
# Ranking the tasks by their remaining paths, a task.
_ORDER_WORK = 1.0


# Shares of a step's time by which two steps of an iteration that is in a steady state differ.
_STEADY = 1e-9


def search_tolerance(servers: int) -> float:
    """Return the completion tolerance that a search scores with."""
    return SEARCH_TOLERANCE if servers > _EXACT_SERVERS else 0.0


class Lengthened(NamedTuple):
    """An iteration time that follows from those of shorter iterations.

    ``steady`` says whether these differ by one amount, but for rounding.
    """

    seconds: float
    steady: bool


@dataclass
class Scorer(Generic[P]):
    """Scores parallelizations of one job on one fabric; counts what does not fit as infinite.

    Parameters
    ----------
    problem : Problem
        Reconfigurable fabrics know fluid scores and devices in order of arrival only.
    fabric : Fabric, GpuPorts, DirectCircuits or WindowedCircuits
    tolerance : float
        Completion tolerance of the simulation; 0 is exact.
    budget : float
        Work of one simulation of plain fluid time on fabrics that stay as they are. What would
        take more counts as a bound that no iteration is shorter than.
    wired_later : bool
        Whether, on many servers, what has too many transfers to be wired is left out on this
        fabric, too, because what is found here is to be wired.

    Attributes
    ----------
    bounded : bool
        Whether the last simulation passed the budget, so that its time is a bound.
    near : bool
        Whether it was not exact. A bound that follows from the links alone is.
    work : float
        What all of that cost, in units of one re-solved flow (about 0.13 microseconds), counted
        from the work done and not from a clock, so that budgets in it are reproducible.
    """

    problem: Problem[Family[P]]
    fabric: AnyFabric
    tolerance: float = 0.0
    budget: float = float("inf")
    wired_later: bool = False
    work: float = 0.0
    bounded: bool = False
    near: bool = False

    def __call__(self, strategy: P, limit: float = float("inf")) -> float:
        """Return the iteration time of a parallelization.

        Parameters
        ----------
        strategy : P
        limit : float
            If the time provably exceeds this many seconds, a larger number is returned
            instead: a bound, which costs far less than a simulation, or infinity if only the
            simulation found out.

        Returns
        -------
        float
            Seconds; infinity if the strategy does not fit.
        """
        if not self.problem.fits(strategy):
            return float("inf")
        limited = limit < float("inf")
        spares = self.problem.spares and limited
        if spares or (limited and self.tolerance > 0.0):
            bound = self.problem.least_seconds(strategy)
            self.work += _DEVICE_WORK
            if bound > limit:
                return bound
        bound = 0.0
        if spares and isinstance(self.fabric, Fabric):
            load = self.problem.port_load(strategy)
            self.work += _BOUND_WORK * load.tasks
            net, hosts = self.fabric.wired, load.sent.size
            bound = sent_seconds(load.sent, net.out_rate()[:hosts], net.in_rate()[:hosts])
            if bound > limit:
                return bound
            direct = not net.switches
            kept_out = direct or self.wired_later
            if kept_out and load.transfers > MOST_FOLDED:
                self.work += _COLLAPSE_WORK * load.tasks
                return float("inf")
            tasks = self.problem.family.represented(strategy)
            if kept_out and moves_too_often(tasks, self.fabric):
                self.work += _COLLAPSE_WORK * tasks.tasks
                return float("inf")
            if direct and _rings_to_choose(self.fabric, tasks):
                return float("inf")
        else:
            tasks = self.problem.family.represented(strategy)
        if limit < float("inf"):
            self.work += _BOUND_WORK * tasks.tasks
            bound = busiest(self.fabric, tasks, limit)
            if bound > limit:
                return bound
        return self.timed(tasks, limit, bound)

    def lengthened(self, shorter: Shorter) -> Lengthened | None:
        """Return the iteration time that follows from those of shorter iterations.

        A pipeline in its steady state takes as long for every further microbatch; what begins and
        ends it does not depend on their number. Not a simulation: whatever is kept is simulated.

        Parameters
        ----------
        shorter : Shorter

        Returns
        -------
        Lengthened or None
            None where only whole iterations are scored: under another order of devices than that
            of arrival, with weight on transfers that yield, on other than plain fabrics, and where
            a shorter one takes more than the budget.
        """
        ordered = self.problem.options.compute_order != "ready" or self.problem.yielding > 0.0
        if ordered or not isinstance(self.fabric, Fabric):
            return None
        exact = replace(self, tolerance=0.0, work=0.0)
        times = []
        for tasks in shorter.graphs:
            times.append(exact.simulate(tasks))
            if exact.bounded:
                self.work += exact.work
                return None
        self.work += exact.work
        before, last = times[1] - times[0], times[2] - times[1]
        steady = abs(last - before) <= _STEADY * last
        mean = (times[2] - times[0]) / 2.0
        return Lengthened(lengthened(times[2] - mean, times[2], shorter.steps), steady)

    def timed(self, tasks: TaskGraph, limit: float = float("inf"), bound: float = 0.0) -> float:
        """Return the score of a task graph that is known to fit.

        Parameters
        ----------
        tasks : TaskGraph
        limit : float
            As in a call.
        bound : float
            Seconds that no simulation of it is below.

        Returns
        -------
        float
            Seconds.
        """
        late = self.problem.yielding if isinstance(self.fabric, Fabric) else 0.0
        if late > 0.0 and not _yields(tasks):
            late = 0.0
        soon, fluid = 1.0 - late, 0.0
        if soon > 0.0:
            most = (limit - late * bound) / soon
            fluid = self.simulate(tasks, most)
            if late == 0.0:
                return fluid
            if fluid > most:
                return float("inf")
        left = (limit - soon * fluid) / late
        return soon * fluid + late * self.simulate(tasks, left, transfers_yield=True)

    def simulate(
        self, tasks: TaskGraph, limit: float = float("inf"), transfers_yield: bool = False
    ) -> float:
        """Return the iteration time of a task graph that is known to fit.

        Parameters
        ----------
        tasks : TaskGraph
        limit : float
            As in a call.
        transfers_yield : bool
            Whether transfers have what AllReduces leave of a link, rather than a fair share.

        Returns
        -------
        float
            Seconds.
        """
        self.bounded, self.near = False, False
        if self.problem.options.compute_order != "ready" and isinstance(self.fabric, Fabric):
            if BUILD_WORK * whole_size(tasks) > self.budget:
                return self._bound(self.fabric, tasks)
            tasks, _ = ordered_tasks(self.fabric, whole_tasks(tasks), self.problem.schedule)
            self.work += _ORDER_WORK * tasks.tasks
        over = self.within(tasks)
        if over is None:
            assert isinstance(self.fabric, Fabric | GpuPorts)
            return self._bound(of_servers(self.fabric), tasks)
        if transfers_yield:
            later = (over.kind == TaskKind.TRANSFER).astype(np.int64)
            over = replace(over, priority=later + (0 if over.priority is None else over.priority))
        run = self.run(over, limit)
        if isinstance(run, Run) and run.spent and isinstance(self.fabric, Fabric | GpuPorts):
            bound = self._bound(of_servers(self.fabric), over)
            self.near = run.near and run.least > bound
            return max(run.least, bound)
        if over.alike is None and seeks_symmetry(over):
            self.work += _COLLAPSE_WORK * over.tasks
        return run.makespan

    def within(self, tasks: TaskGraph) -> TaskGraph | None:
        """Return a task graph in which a task stands for what is alike on this fabric.

        Parameters
        ----------
        tasks : TaskGraph

        Returns
        -------
        TaskGraph or None
            None where it would have more tasks than the budget allows.
        """
        most = self.budget / BUILD_WORK
        if isinstance(self.fabric, GpuPorts):
            # All of them would be made: none stands for another where ports are not alike.
            many = tasks.alike is not None and tasks.copies.sum() > most
            return None if many else whole_tasks(tasks)
        if not isinstance(self.fabric, Fabric):
            return tasks
        over = tasks_within(self.fabric, tasks, most)
        if over is not None and tasks.alike is None and over.alike is not None:
            self.work += (_TASK_WORK + _COLLAPSE_WORK) * tasks.tasks
        return over

    def run(self, over: TaskGraph, limit: float = float("inf")) -> Run | VaryingRun:
        """Simulate what `within` returned.

        Parameters
        ----------
        over : TaskGraph
        limit : float
            As in a call.

        Returns
        -------
        Run or VaryingRun
        """
        run = run_iteration(
            self.fabric, over, self.tolerance, limit=limit, budget=self.budget,
            exact_classes=self.problem.spares,
        )  # fmt: skip
        self.work += _TASK_WORK * over.tasks + run.resolved
        self.near = run.near if isinstance(run, Run) else self.tolerance > 0.0
        return run

    def _bound(self, fabric: Fabric, tasks: TaskGraph) -> float:
        """Return seconds that no simulation of a task graph is below."""
        self.bounded, self.near = True, False
        wired = topology_bound(fabric, tasks).seconds
        return max(wired, busiest(fabric, tasks))


def _yields(tasks: TaskGraph) -> bool:
    """Whether a task graph has transfers and AllReduces to which they may yield."""
    kinds = tasks.kind
    return bool(np.any(kinds == TaskKind.TRANSFER) and np.any(kinds >= TaskKind.ALLREDUCE))


def _rings_to_choose(fabric: Fabric, tasks: TaskGraph) -> bool:
    """Whether the routes of all pairs of a large group would be made to choose its rings."""
    return any(len(group) > CHOSEN_UP_TO and group not in fabric.rings for group in tasks.groups)


def moves_too_often(
    tasks: TaskGraph, fabric: Fabric | None = None, most: float | None = None
) -> bool:
    """Whether a task graph of many servers has more transfers than are routed for a proposal.

    Parameters
    ----------
    tasks : TaskGraph
    fabric : Fabric, optional
        Where one transfer is routed for all that a rotation maps on each other; by default on
        networks that allow any rotation.
    most : float, optional
        Transfers a server; by default `MOST_MOVES`.
    """
    most = MOST_MOVES if most is None else most
    moves = int(np.count_nonzero(tasks.kind == TaskKind.TRANSFER))
    if moves <= most * tasks.servers:
        return False
    if moves > MOST_FOLDED:
        return True
    found = rotated_classes(tasks, 1) if fabric is None else rotated_kinds(fabric, tasks)
    kinds = tasks.kind if found is None else tasks.kind[found.first]
    return int(np.count_nonzero(kinds == TaskKind.TRANSFER)) > most * tasks.servers
