"""The fluid model: max-min fair flows, with AllReduces as coupled streams."""

from typing import NamedTuple

import numpy as np

from codesign_base import InputError
from codesign_base.arguments import is_number, told
from codesign_base.arrays import Floats, Ints
from parallelism.taskgraph import TaskGraph
from topoopt.base.interrupts import interruptible
from topoopt.fabric.arrays_kernels import Orders
from topoopt.fabric.collapse import collapse, expand_binding, seeks_symmetry
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.orders import task_orders
from topoopt.fabric.rounding import ROUNDED_UP
from topoopt.fabric.tasks import never_ran

FABRIC_MODEL = "fluid-2"
"""Name of this model in plan files; another name where its times mean something else."""

# Where symmetric flows are simulated as one, and that leaves so few of the tasks, rates are cheap.
_FEW_CLASSES = 1 / 64

WATCHED_FROM = 4096
"""Tasks from which on a simulation may take longer than an interrupt should wait."""


class Run(NamedTuple):
    """What the kernel returns: times and bindings, and how much work they took.

    ``least`` are the seconds that links need for all bytes at their capacity, where a completion
    tolerance let more pass; else 0. ``instants`` are the moments at which something happened,
    ``solves`` those at which rates were worked out, ``resolved`` the streams re-solved in all of
    them. If the budget of work ran out (``spent``), no iteration is shorter than ``least``.
    ``near`` says whether a completion tolerance was used.
    """

    start: Floats
    finish: Floats
    binding: Ints
    least: float
    instants: int
    solves: int
    resolved: int
    spent: bool = False
    near: bool = False

    @property
    def makespan(self) -> float:
        """Seconds: the last finish or ``least`` (0 without tasks, infinity if given up)."""
        return max(float(self.finish.max(initial=0.0)), self.least)


def run_fluid(
    fabric: Fabric,
    tasks: TaskGraph,
    completion_tolerance: float = 0.0,
    *,
    limit: float = float("inf"),
    foresee: bool = False,
    resolve_all: bool = False,
    collapsed: bool | None = None,
    exact_classes: bool = False,
    budget: float = float("inf"),
) -> Run:
    """Run the kernel and return what it found, with counts of its work.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
        Where tasks stand for others, of `topoopt.fabric.represented.tasks_over`.
    completion_tolerance : float
        As in `simulate`.
    limit : float
        Seconds at which a run gives up. Tasks that it cut off finish at infinity, and some do if
        the makespan passes it.
    foresee : bool
        Give up not when the limit is passed, but as soon as a link or a device has been idle for
        so long that it must be; fewer tasks have finished then.
    resolve_all : bool
        Work out every rate anew at each change: slower, for tests of the incremental rates.
    collapsed : bool, optional
        Whether symmetric flows are simulated as one (see `collapse`); by default where there are
        many transfers.
    exact_classes : bool
        Do without the tolerance where that leaves few classes of flows.
    budget : float
        Streams re-solved after which a run gives up.

    Returns
    -------
    Run

    Raises
    ------
    InputError
        As `simulate`.
    """
    tolerance = completion_tolerance
    if not (is_number(tolerance) and 0.0 <= tolerance < 1.0):
        raise InputError(f"completion_tolerance is {told(tolerance)}; give a fraction in [0, 1)")
    orders = task_orders(fabric, tasks)
    if collapsed is None:
        collapsed = seeks_symmetry(tasks) and tasks.alike is None
    # Classes know nothing of the order in which htsim finds tasks ready.
    quotient = collapse(orders) if collapsed and not fabric.transport.htsim else None
    if exact_classes and quotient is not None:
        few = quotient.orders.compute.size <= _FEW_CLASSES * tasks.tasks
        tolerance = 0.0 if few else tolerance
    found, lost = _simulated(
        orders if quotient is None else quotient.orders,
        tolerance,
        limit,
        foresee and limit < float("inf"),
        resolve_all,
        fabric.transport.htsim,
        budget,
    )
    if lost:
        raise never_ran(tasks.tasks, int(np.count_nonzero(np.isinf(found.finish))))
    if quotient is None:
        return found
    of = quotient.class_of_task
    return found._replace(
        start=found.start[of],
        finish=found.finish[of],
        binding=expand_binding(orders, quotient, found.binding),
    )


def _simulated(
    orders: Orders,
    tolerance: float,
    limit: float,
    foresee: bool,
    resolve_all: bool,
    arrival_order: bool,
    budget: float,
) -> tuple[Run, bool]:
    """Run the kernel; also say whether tasks were left that never became ready."""
    from topoopt.fabric.fluid_kernels import SPENT, simulate_fluid

    def run(stop: Ints) -> tuple[Floats, Floats, Ints, float, int, Ints]:
        return simulate_fluid(
            orders,
            tolerance,
            limit * ROUNDED_UP,
            foresee,
            resolve_all,
            arrival_order,
            int(min(budget, 2.0**62)),
            stop,
        )

    start, finish, binding, least, done, work = interruptible(
        run, long=orders.compute.size >= WATCHED_FROM
    )
    instants, solves, resolved, gave_up = work.tolist()
    made = Run(
        start, finish, binding, least, instants, solves, resolved, gave_up == SPENT, tolerance > 0.0
    )
    return made, done < orders.compute.size and not gave_up
