"""What a training job is for routing: rings of NICs that send one size again and again."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from codesign_base import InfeasibleError, InputError
from codesign_base.arrays import Ints
from codesign_base.counted import counted
from routing.clos.fabric import Clos
from routing.clos.flows import ClosFlows

PlacementPolicy = Literal["packed", "random"]


@dataclass(frozen=True, eq=False)
class RingJob:
    """A data-parallel job: its replicas reduce their gradients over rings, then compute.

    Ring i joins accelerator i of every replica. An epoch is ``2 (N - 1)`` steps of N concurrent
    flows a ring; a ring begins a step when all of its flows have ended the one before. The
    AllReduce is over with its slowest ring; then the job computes, and starts again.

    Parameters
    ----------
    name : str
        For tables; need not be unique.
    nics : int64 array, shape (rings, replicas)
        NICs of each ring in the order in which it passes them, numbered over the whole fabric:
        ``tor * nics_per_tor + k``. All distinct, at least two a ring.
    flow_bytes : float
        Bytes of one flow in one step.
    compute_time : float
        Seconds between two AllReduces.
    start_time : float
        Seconds until the job's first AllReduce.

    Raises
    ------
    InputError
        If a value is out of range or a NIC occurs twice.

    References
    ----------
    Cohen et al., "Routing for Large ML Models", arXiv 2503.05324: the traffic of its experiments.
    """

    name: str
    nics: Ints
    flow_bytes: float
    compute_time: float = 0.0
    start_time: float = 0.0

    def __post_init__(self) -> None:
        nics = np.array(self.nics, dtype=np.int64)
        if nics.ndim != 2 or nics.shape[0] < 1 or nics.shape[1] < 2:
            raise InputError(
                f"job {self.name!r}: its rings have the shape {nics.shape}; give one row a ring "
                "of at least two NICs"
            )
        if nics.min() < 0:
            raise InputError(f"job {self.name!r}: NIC {nics.min()} is negative; count from 0")
        values, counts = np.unique(nics, return_counts=True)
        if counts.max() > 1:
            raise InputError(
                f"job {self.name!r}: NIC {values[np.argmax(counts)]} occurs {counts.max()} times; "
                "each accelerator has its own"
            )
        if not (np.isfinite(self.flow_bytes) and self.flow_bytes > 0):
            raise InputError(
                f"job {self.name!r}: flow_bytes is {self.flow_bytes}; give a positive number"
            )
        for field in ("compute_time", "start_time"):
            value = getattr(self, field)
            if not (np.isfinite(value) and value >= 0):
                raise InputError(
                    f"job {self.name!r}: {field} is {value}; give zero or more seconds"
                )
        nics.setflags(write=False)
        object.__setattr__(self, "nics", nics)

    @property
    def rings(self) -> int:
        """Number of rings: accelerators of one replica."""
        return int(self.nics.shape[0])

    @property
    def replicas(self) -> int:
        """Number of replicas N: NICs of a ring."""
        return int(self.nics.shape[1])

    @property
    def flows(self) -> int:
        """Number of flows, one a NIC."""
        return int(self.nics.size)

    @property
    def steps(self) -> int:
        """Barrier steps of one AllReduce: reduce-scatter, then all-gather."""
        return 2 * (self.replicas - 1)

    @cached_property
    def next_nics(self) -> Ints:
        """The NIC that each NIC of `nics` sends to, shape (rings, replicas)."""
        return np.roll(self.nics, -1, axis=1)

    def floor(self, nic_rate: float) -> float:
        """Return the seconds of an AllReduce in an empty network.

        Parameters
        ----------
        nic_rate : float
            Bytes per second of a NIC.

        Returns
        -------
        float
        """
        return self.steps * self.flow_bytes / nic_rate


def ring_flow_bytes(copy_bytes: float, group: int, replicas: int) -> float:
    """Return the bytes of one ring flow in one step: ``ceil(ceil(copy / group) / replicas)``.

    Parameters
    ----------
    copy_bytes : float
        Bytes of gradients of one copy of the model.
    group : int
        Accelerators that hold one copy (tensor x pipeline).
    replicas : int
        Ring size.

    Examples
    --------
    >>> ring_flow_bytes(4 * 176e9, 48, 2)
    7333333334.0
    """
    if not (np.isfinite(copy_bytes) and copy_bytes > 0) or group < 1 or replicas < 2:
        raise InputError(
            f"{copy_bytes} bytes over {counted(group, 'accelerator')} and "
            f"{counted(replicas, 'replica')}; give positive bytes, one or more accelerators, two "
            "or more replicas"
        )
    # In whole numbers: a quotient of floats may round up to the next byte.
    shard = -(-int(np.ceil(copy_bytes)) // group)
    return float(-(-shard // replicas))


def place_rings(
    clos: Clos,
    group: int,
    replicas: int,
    placement: PlacementPolicy,
    taken: Sequence[RingJob] = (),
    rng: np.random.Generator | None = None,
) -> Ints:
    """Choose free NICs for a job and join them to rings.

    Replicas are placed one after the other. ``"packed"`` fills ToRs in ascending order;
    ``"random"`` fills the free NICs of one random ToR after the other, and each replica begins
    with a ToR of its own, as the job files of the paper's experiments do.

    Parameters
    ----------
    clos : Clos
        Its ``nics_per_tor`` bounds the NICs.
    group : int
        Accelerators of a replica.
    replicas : int
        Ring size, at least 2.
    placement : {"packed", "random"}
    taken : sequence of RingJob
        Jobs whose NICs are not free.
    rng : numpy Generator, optional
        Needed for ``"random"``.

    Returns
    -------
    int64 array, shape (group, replicas)
        For `RingJob`.

    Raises
    ------
    InfeasibleError
        If too few NICs are free.
    """
    if group < 1:
        raise InputError(f"a replica of {counted(group, 'accelerator')}; give at least 1")
    if replicas < 2:
        raise InputError(f"replicas is {replicas}; a ring needs at least 2")
    size = clos.nics_per_tor
    free = np.ones((clos.tors, size), dtype=bool)
    for job in taken:
        check_fits(job, clos)
        free.reshape(-1)[job.nics.reshape(-1)] = False
    if free.sum() < group * replicas:
        raise InfeasibleError(
            f"{group} x {replicas} accelerators do not fit on the {int(free.sum())} free of "
            f"{free.size} NICs; take fewer jobs or replicas, or more ToRs"
        )
    if placement == "packed":
        return np.flatnonzero(free)[: group * replicas].reshape(replicas, group).T.copy()
    if placement != "random":
        raise InputError(f"placement is {placement!r}; choose packed or random")
    if rng is None:
        raise InputError("random placement draws ToRs; give it a random generator")
    order = [int(t) for t in rng.permutation(clos.tors) if free[t].any()]
    chosen: list[int] = []
    while len(chosen) < group * replicas:
        missing = group - len(chosen) % group
        # A ToR left partly used is taken up again when no untouched one remains.
        tor = order.pop(0)
        spots = np.flatnonzero(free[tor])[:missing]
        free[tor, spots] = False
        chosen += [tor * size + int(spot) for spot in spots]
        if free[tor].any():
            order.append(tor)
    return np.array(chosen, dtype=np.int64).reshape(replicas, group).T.copy()


def check_fits(job: RingJob, clos: Clos) -> None:
    """Raise InputError if a job uses NICs that the fabric does not have."""
    if job.nics.max() >= clos.tors * clos.nics_per_tor:
        raise InputError(
            f"job {job.name!r} uses NIC {job.nics.max()}; the fabric has "
            f"{clos.tors} x {clos.nics_per_tor} NICs"
        )


def flows_of(clos: Clos, jobs: Sequence[RingJob]) -> ClosFlows:
    """Return the flows of jobs: job by job, ring by ring, in the order of the ring.

    Parameters
    ----------
    clos : Clos
    jobs : sequence of RingJob

    Returns
    -------
    ClosFlows
        One flow a NIC, with NICs; jobs are numbered by their positions in ``jobs``.

    Raises
    ------
    InputError
        If a job does not fit on the fabric.
    """
    for job in jobs:
        check_fits(job, clos)
    nothing = np.zeros(0, dtype=np.int64)
    source = np.concatenate([nothing, *(job.nics.ravel() for job in jobs)])
    target = np.concatenate([nothing, *(job.next_nics.ravel() for job in jobs)])
    counts = [job.flows for job in jobs]
    size = max(clos.nics_per_tor, 1)
    return ClosFlows.of(
        source // size,
        target // size,
        np.repeat(np.arange(len(jobs)), counts),
        np.repeat(np.array([job.flow_bytes for job in jobs], dtype=np.float64), counts),
        source,
        target,
    )
