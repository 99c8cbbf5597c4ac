"""What an engine runs: calls that need nothing of each other."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Call:
    """One call that needs nothing of the others.

    Parameters
    ----------
    function : callable
        Defined at the top level of a module.
    arguments : mapping
        Keyword arguments; they and the result must be picklable for more than one worker.
    """

    function: Callable[..., Any]
    arguments: Mapping[str, Any]


class WorkerDied:
    """Stands for the result of a job whose worker process died."""
