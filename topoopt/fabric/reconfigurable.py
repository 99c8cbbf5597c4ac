"""Fabrics that stay as they are and fabrics that are rewired, behind one interface."""

from typing import TypeAlias

from parallelism.taskgraph import TaskGraph
from topoopt.fabric.circuits import DirectCircuits
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.fluid import Run, run_fluid
from topoopt.fabric.varying import VaryingRun
from topoopt.fabric.windowed import WindowedCircuits

Reconfigurable: TypeAlias = DirectCircuits | WindowedCircuits
Playable: TypeAlias = Fabric | DirectCircuits | WindowedCircuits

# Hosts from which on it pays to look whether a limit must be passed: simulations are long there.
FORESEEN_FROM = 33


def play(
    fabric: Playable,
    tasks: TaskGraph,
    completion_tolerance: float = 0.0,
    *,
    limit: float = float("inf"),
) -> Run | VaryingRun:
    """Play one iteration in the fluid model over any fabric.

    Parameters
    ----------
    fabric : Fabric, DirectCircuits or WindowedCircuits
    tasks, completion_tolerance, limit
        As in `topoopt.fabric.simulate.score`, with its errors.

    Returns
    -------
    Run or VaryingRun
        Both have ``start``, ``finish`` and ``binding`` of each task, and ``resolved``.
    """
    if isinstance(fabric, Fabric):
        foresee = fabric.network.hosts >= FORESEEN_FROM
        return run_fluid(fabric, tasks, completion_tolerance, limit=limit, foresee=foresee)
    return fabric.run(tasks, completion_tolerance, limit=limit)
