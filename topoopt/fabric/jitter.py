"""How far a simulated time depends on chance: copies with perturbed delays."""

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from codesign_base import InputError
from codesign_base.arguments import whole
from codesign_base.arrays import Floats
from parallelism.taskgraph import TaskGraph
from routing.network import Network
from routing.routes import Routes
from topoopt.fabric.fabric import Fabric, check_simulated
from topoopt.fabric.simulation import score
from topoopt.fabric.used_pairs import listing
from topoopt.problem.seeds import SEEDS, checked_seed

AMPLITUDE = 0.02
"""Delays are moved by up to this fraction."""

MOST_COPIES = 100_000

_Delayed = TypeVar("_Delayed", Network, Routes)


@dataclass(frozen=True, eq=False)
class Jitter:
    """Iteration times of copies with perturbed delays.

    Parameters
    ----------
    times : float64 array, shape (copies,)
        Seconds.
    events : int
        What they took, where that was counted.
    """

    times: Floats
    events: int = 0

    @property
    def mean(self) -> float:
        """Mean iteration time in seconds."""
        return float(self.times.mean())

    @property
    def spread(self) -> float:
        """Slowest minus fastest copy, in seconds."""
        return float(self.times.max() - self.times.min())


def jittered(
    fabric: Fabric,
    tasks: TaskGraph,
    copies: int,
    *,
    model: str = "packet",
    seed: int = 0,
    limit: float = float("inf"),
) -> Jitter:
    """Simulate copies of an iteration, each with all delays scaled by a factor of its own.

    Where many transfers contend, a small change of delays changes which packets queue behind
    which, and by some percent the result: then the mean says more than one run.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
    copies : int
        At most `MOST_COPIES`.
    model : {"fluid", "packet"}
    seed : int
        Of the factors, uniform within 2 % of 1, and of the paths that each copy draws.
    limit : float
        Copies that are known to take longer than this many seconds take infinitely long.

    Returns
    -------
    Jitter

    Raises
    ------
    InputError
        If the number of copies is out of range, or as in `simulate`.
    """
    check_copies(copies)
    check_simulated(fabric, tasks)
    seed = checked_seed(seed)
    fabric = listing(fabric, tasks)
    rng = np.random.default_rng(seed)
    factors = rng.uniform(1.0 - AMPLITUDE, 1.0 + AMPLITUDE, copies)
    times = [
        score(
            _slowed(fabric, float(factor)),
            tasks,
            model=model,
            seed=(seed + number) % SEEDS,
            limit=limit,
        )
        for number, factor in enumerate(factors)
    ]
    return Jitter(np.array(times))


def check_copies(copies: int) -> None:
    """Refuse a number of copies that is out of range.

    Raises
    ------
    InputError
        If there is no copy, or there are more than `MOST_COPIES`.
    """
    if not 1 <= whole("copies", copies, f"1 to {MOST_COPIES}") <= MOST_COPIES:
        raise InputError(f"jitter is {copies} copies; give 1 to {MOST_COPIES}")


def _slowed(fabric: Fabric, factor: float) -> Fabric:
    """Return the fabric with all delays scaled."""

    def slowed(given: _Delayed) -> _Delayed:
        return replace(given, latency=given.latency * factor)

    edges = fabric.ring_routes
    return replace(
        fabric,
        network=slowed(fabric.network),
        routes=slowed(fabric.routes),
        ring_routes=None if edges is None else slowed(edges),
    )
