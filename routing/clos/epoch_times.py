"""What a simulation of AllReduces measured."""

from dataclasses import dataclass

import numpy as np

from codesign_base.arrays import Floats


@dataclass(frozen=True, eq=False)
class EpochTimes:
    """What a simulation measured.

    Parameters
    ----------
    floor : float64 array, shape (jobs,)
        Seconds of each job's AllReduce in an empty network.
    start, end : tuple of float64 array, one a job, shape (epochs of the job,)
        When each AllReduce began and ended, in seconds.
    flow_times : tuple of float64 array, one a job, shape (epochs, steps, flows)
        Seconds of each flow of each step.
    """

    floor: Floats
    start: tuple[Floats, ...]
    end: tuple[Floats, ...]
    flow_times: tuple[Floats, ...]

    @property
    def allreduce_time(self) -> tuple[Floats, ...]:
        """Seconds of every AllReduce, one array a job."""
        return tuple(end - start for start, end in zip(self.start, self.end, strict=True))

    @property
    def slowdown(self) -> tuple[Floats, ...]:
        """AllReduce times over the floor, one array a job.

        Rounded to ten digits after the point: times are differences of a clock that has run for
        many epochs, and 1 shall be 1.
        """
        return tuple(
            np.round(t / f, 10) for t, f in zip(self.allreduce_time, self.floor, strict=True)
        )

    @property
    def all_slowdowns(self) -> Floats:
        """Slowdowns of all jobs and epochs, none left out."""
        return np.concatenate([np.zeros(0), *self.slowdown])

    @property
    def mean_slowdown(self) -> float:
        """Mean over all jobs and epochs."""
        return float(self.all_slowdowns.mean())

    @property
    def p99_slowdown(self) -> float:
        """The slowdown that 99 % of all epochs do not exceed."""
        return float(np.quantile(self.all_slowdowns, 0.99, method="inverted_cdf"))

    @property
    def worst_slowdown(self) -> float:
        """Largest of all epochs."""
        return float(self.all_slowdowns.max())
