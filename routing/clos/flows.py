"""What is sent: elephant flows between ToRs, each the work of one job."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from codesign_base.arrays import Floats, Ints, SmallInts
from codesign_base.rows import starts
from routing.clos.fabric import Clos


def parts(number: Ints, count: int) -> tuple[SmallInts, SmallInts]:
    """Sort what has numbers below ``count``: ``member[first[k] : first[k + 1]]`` have number k."""
    first = starts(np.bincount(number, minlength=count)).astype(np.int32)
    # Of few bits, because numpy sorts those by radix.
    member = np.argsort(number.astype(np.min_scalar_type(count)), kind="stable")
    return first, member.astype(np.int32)


@dataclass(frozen=True, eq=False)
class ClosFlows:
    """Flows between the ToRs of a Clos fabric; build them with `ClosFlows.of`.

    A flow whose ToRs are the same needs no spine; its assignment is -1.

    Parameters
    ----------
    source_tor, target_tor : int64 array, shape (flows,)
        End ToRs.
    weight : float64 array, shape (flows,)
        Bytes over the bytes of the job's largest flow, in (0, 1].
    job : int64 array, shape (flows,)
        Number of the job that sends it, not negative; numbers need not be dense.
    bytes_ : float64 array, shape (flows,)
        Bytes that the flow sends in one step, positive.
    source_nic, target_nic : int64 array, shape (flows,), optional
        NICs (host ports), numbered over the whole fabric; for route tables and simulation.

    Raises
    ------
    InputError
        If an array has the wrong length or a value out of range.
    """

    source_tor: Ints
    target_tor: Ints
    weight: Floats
    job: Ints
    bytes_: Floats
    source_nic: Ints | None = None
    target_nic: Ints | None = None

    def __post_init__(self) -> None:
        shape = np.shape(self.source_tor)
        whole = ("source_tor", "target_tor", "job", "source_nic", "target_nic")
        for field in (*whole, "weight", "bytes_"):
            value = getattr(self, field)
            if value is None:
                continue
            kind = np.int64 if field in whole else np.float64
            array = np.ascontiguousarray(value, dtype=kind)
            if array.ndim != 1 or array.shape != shape:
                raise InputError(f"{field} has shape {array.shape}; give one entry a flow: {shape}")
            bad = array < 0 if field in whole else ~((array > 0) & np.isfinite(array))
            if bad.any():
                flow = int(np.flatnonzero(bad)[0])
                need = "zero or more" if field in whole else "a positive finite number"
                raise InputError(f"{field} of flow {flow} is {array[flow]}; give {need}")
            if array is value and array.flags.writeable:
                array = array.copy()
            array.setflags(write=False)
            object.__setattr__(self, field, array)
        if np.any(self.weight > 1.0):
            flow = int(np.flatnonzero(self.weight > 1.0)[0])
            raise InputError(
                f"weight of flow {flow} is {self.weight[flow]}; a weight is the share of the "
                "job's largest flow, at most 1 (ClosFlows.of computes it)"
            )

    @classmethod
    def of(
        cls,
        source_tor: npt.ArrayLike,
        target_tor: npt.ArrayLike,
        job: npt.ArrayLike,
        bytes_: npt.ArrayLike = 1.0,
        source_nic: npt.ArrayLike | None = None,
        target_nic: npt.ArrayLike | None = None,
    ) -> "ClosFlows":
        """Return flows with their weights computed from bytes and jobs.

        Parameters
        ----------
        source_tor, target_tor, job : array_like of int, shape (flows,)
            As in `ClosFlows`.
        bytes_ : array_like of float, shape (flows,) or one value for all
            Bytes of each flow.
        source_nic, target_nic : array_like of int, shape (flows,), optional
            As in `ClosFlows`.

        Returns
        -------
        ClosFlows

        Examples
        --------
        >>> ClosFlows.of([0, 1], [1, 2], [0, 0], [4e9, 2e9]).weight.tolist()
        [1.0, 0.5]
        """
        source = np.asarray(source_tor, dtype=np.int64)
        number = np.asarray(job, dtype=np.int64)
        size = np.array(np.broadcast_to(np.asarray(bytes_, dtype=np.float64), source.shape))
        if number.shape != source.shape:
            raise InputError(f"job has shape {number.shape}; give one entry a flow: {source.shape}")
        _, index = np.unique(number, return_inverse=True)
        largest = np.zeros(source.size)
        with np.errstate(divide="ignore", invalid="ignore"):
            np.maximum.at(largest, index, size)
            weight = size / largest[index]
        # Where a size is out of range the message names it, not the weight that follows from it.
        weight = np.where(np.isfinite(weight) & (weight > 0), weight, 1.0)
        return cls(
            source,
            np.asarray(target_tor, dtype=np.int64),
            weight,
            number,
            size,
            None if source_nic is None else np.asarray(source_nic, dtype=np.int64),
            None if target_nic is None else np.asarray(target_nic, dtype=np.int64),
        )

    @property
    def count(self) -> int:
        """Number of flows."""
        return int(self.source_tor.size)

    @cached_property
    def jobs(self) -> Ints:
        """Numbers of the jobs that have flows, ascending; the order of efficiency vectors."""
        return np.unique(self.job)

    @cached_property
    def job_index(self) -> Ints:
        """Position of each flow's job in `jobs`, shape (flows,)."""
        return np.searchsorted(self.jobs, self.job).astype(np.int64)

    @cached_property
    def by_job(self) -> tuple[SmallInts, SmallInts]:
        """Flows ``member[first[j] : first[j + 1]]`` are those of job j of `jobs`."""
        return parts(self.job_index, self.jobs.size)

    @cached_property
    def crosses(self) -> npt.NDArray[np.bool_]:
        """Whether each flow leaves its ToR and so needs a spine, shape (flows,)."""
        leaves: npt.NDArray[np.bool_] = self.source_tor != self.target_tor
        return leaves

    def subset(self, chosen: npt.ArrayLike) -> "ClosFlows":
        """Return the chosen flows (indices or a mask), with the weights that they have here."""
        index = np.asarray(chosen)
        return ClosFlows(
            self.source_tor[index],
            self.target_tor[index],
            self.weight[index],
            self.job[index],
            self.bytes_[index],
            None if self.source_nic is None else self.source_nic[index],
            None if self.target_nic is None else self.target_nic[index],
        )

    def check_fits(self, clos: Clos) -> None:
        """Raise InputError if a flow ends at a ToR that the fabric does not have."""
        for field in ("source_tor", "target_tor"):
            array = getattr(self, field)
            if array.size and array.max() >= clos.tors:
                flow = int(np.argmax(array))
                raise InputError(
                    f"{field} of flow {flow} is {array[flow]}; the fabric has ToRs "
                    f"0..{clos.tors - 1}"
                )
