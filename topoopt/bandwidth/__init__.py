"""LIBRA: how to divide bandwidth over the dimensions of a multi-dimensional network.

`allocate_bandwidth` is the whole way from inputs and a `Question` to an `Allocation`;
`solve.solver.solve` of a `solve.problem.AllocationProblem` is the fast core below it. Rooms, each
knowing of those before it: `model` (networks, workloads and their times), `solve` (the question,
the convex problem, its answer and proof), then `allocate`, `explore` (searches and changed
questions), `files` (inputs and reports).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topoopt.bandwidth.allocate import Allocation as Allocation
    from topoopt.bandwidth.allocate import allocate_bandwidth as allocate_bandwidth
    from topoopt.bandwidth.solve.question import Question as Question

__all__ = ["Allocation", "Question", "allocate_bandwidth"]


def __getattr__(name: str) -> Any:
    # On first use: whoever reads a network's notation need not load the solver.
    if name in __all__:
        return getattr(import_module("topoopt.bandwidth.allocate"), name)
    raise AttributeError(f"module 'topoopt.bandwidth' has no attribute {name!r}")
