"""The errors that no model can be below, because the same job was published with other times."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from topoopt.studies.validation.published_run import PublishedRun


@dataclass(frozen=True, slots=True)
class Floor:
    """What the rows of which a model is told the same forbid it.

    Parameters
    ----------
    runs, jobs : int
        Such rows, and the jobs that they are of.
    mean, max : float
        Of errors without sign, over all rows: no model is below either (0.01 is 1 %), whatever
        it makes of the other rows.
    """

    runs: int
    jobs: int
    mean: float
    max: float


def least_errors(runs: Iterable[PublishedRun]) -> Floor:
    """Return the least mean and the least maximum of the errors of any model of these runs.

    A model that knows model, layouts, batch, stack and hardware has one time for all rows that are
    the same in these. Their sum of ``abs(time / published - 1)`` is least at one of the published
    times; the largest of them is least where the two ends are equally far, at
    ``(slowest - fastest) / (slowest + fastest)``.

    Examples
    --------
    >>> from topoopt.studies.validation.runs_file import read_runs
    >>> found = least_errors(read_runs("published"))
    >>> found.runs, found.jobs
    (6, 3)
    """
    told: dict[PublishedRun, list[float]] = {}
    count = 0
    for run in runs:
        count += 1
        known = replace(
            run, name="", source="", role="held-out", seconds=0.0, derived="",
            model=replace(run.model, name="", source=""),
        )  # fmt: skip
        told.setdefault(known, []).append(run.seconds)
    alike = [times for times in told.values() if len(times) > 1]
    least = [min(sum(abs(one / time - 1.0) for time in times) for one in times) for times in alike]
    ends = [(max(times) - min(times)) / (max(times) + min(times)) for times in alike]
    return Floor(
        sum(map(len, alike)), len(alike), sum(least) / max(1, count), max(ends, default=0.0)
    )
