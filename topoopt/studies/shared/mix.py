"""Which jobs share a cluster, and on which servers they run."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from codesign_base import InfeasibleError, InputError

MIX: Mapping[str, int] = {"dlrm-16": 40, "bert-16": 30, "candle-16": 20, "vgg16-16": 10}
"""Percent of the jobs of each model (TopoOpt, NSDI'23, the shared-cluster experiment)."""

PLACEMENTS = ("packed", "scattered")


def apportion(jobs: int) -> list[str]:
    """Return the model of each job of `MIX`, by largest remainders.

    Parameters
    ----------
    jobs : int

    Returns
    -------
    list of str
        In the order of the mix; equal remainders go to the one named first.

    Raises
    ------
    InputError
        If there is no job.
    """
    if jobs < 1:
        raise InputError(f"a mix of {jobs} jobs; give at least 1")
    exact = {name: Fraction(jobs * share, 100) for name, share in MIX.items()}
    counts = {name: int(count) for name, count in exact.items()}
    by_rest = sorted(MIX, key=lambda name: counts[name] - exact[name])
    for name in by_rest[: jobs - sum(counts.values())]:
        counts[name] += 1
    return [name for name, count in counts.items() for _ in range(count)]


def place_jobs(
    sizes: Sequence[int], servers: int, placement: str, rng: np.random.Generator
) -> list[tuple[int, ...]]:
    """Return the servers of each job.

    Parameters
    ----------
    sizes : sequence of int
        Servers of each job.
    servers : int
        Of the cluster.
    placement : {"packed", "scattered"}
        Runs of neighbours in a random order of the jobs, or servers drawn at random, as arrivals
        and departures leave them in the long run.
    rng : numpy.random.Generator

    Returns
    -------
    list of tuple of int
        Ascending.

    Raises
    ------
    InputError
        If the placement is unknown or a size is not positive.
    InfeasibleError
        If the jobs need more servers than there are.
    """
    if placement not in PLACEMENTS:
        raise InputError(f"placement is {placement!r}; choose {' or '.join(PLACEMENTS)}")
    if min(sizes, default=1) < 1:
        raise InputError(f"a job of {min(sizes)} servers; give at least 1")
    if sum(sizes) > servers:
        raise InfeasibleError(
            f"the jobs need {sum(sizes)} servers and the cluster has {servers}; run fewer jobs"
        )
    seats = np.arange(servers) if placement == "packed" else rng.permutation(servers)
    places: list[tuple[int, ...]] = [()] * len(sizes)
    used = 0
    for job in rng.permutation(len(sizes)).tolist():
        places[job] = tuple(sorted(seats[used : used + sizes[job]].tolist()))
        used += sizes[job]
    return places
