"""A schedule inside the iteration: in which order and in which pieces its tasks run."""

from dataclasses import dataclass

from codesign_base import InputError
from codesign_base.arguments import is_number, python_numbers, told, whole
from codesign_base.counted import counted
from topoopt.problem.units import format_bytes

OVERLAPS = ("barrier", "next-forward")
COMPUTE_ORDERS = ("ready", "critical-path")
NETWORK_ORDERS = ("fair", "transfers-first", "critical-path")
MOST_MICROBATCHES = 1024
LEVELS = 8
"""Priorities of network tasks: as many as an Ethernet frame can name (IEEE 802.1Q)."""


@dataclass(frozen=True)
class Schedule:
    """How the tasks of an iteration are ordered, cut and overlapped.

    Parameters
    ----------
    overlap : {"barrier", "next-forward"}
        barrier: an iteration begins when all tasks of the one before have ended, as in all
        published numbers. next-forward: a forward pass begins as soon as the weights of its
        part are up to date, so that AllReduces, and the lookups and transfers of embeddings,
        overlap with other layers of the neighbouring iteration; the iteration time is then the
        period of the steady state.
    compute : {"ready", "critical-path"}
        Order of tasks that wait for a device: first in first out, or the one with the longest
        remaining path first. A task that runs is not interrupted.
    network : {"fair", "transfers-first", "critical-path"}
        How messages share links: max-min fair; transfers before collectives; or in `LEVELS`
        classes by the longest remaining path. A class takes what it can, max-min fair within
        itself, and leaves the rest to the next (strict priority).
    bucket_bytes : float, optional
        Gradients of a group are fused into AllReduces of at least so many bytes, in the order in
        which they are ready; each on its own by default.
    microbatches : int
        Parts of the global batch that run through the model one after another, overlapping;
        their gradients are summed before the AllReduce. 1: the whole batch at once.

    Raises
    ------
    InputError
        If a value is not among the choices or out of range.
    """

    overlap: str = "barrier"
    compute: str = "ready"
    network: str = "fair"
    bucket_bytes: float | None = None
    microbatches: int = 1

    def __post_init__(self) -> None:
        python_numbers(self)
        for name, value, choices in (
            ("overlap", self.overlap, OVERLAPS),
            ("compute order", self.compute, COMPUTE_ORDERS),
            ("network priority", self.network, NETWORK_ORDERS),
        ):
            if value not in choices:
                raise InputError(f"{name} is {value!r}; choose {', '.join(choices)}")
        size = self.bucket_bytes
        if size is not None and not (is_number(size) and 0.0 < size < float("inf")):
            raise InputError(f"bucket size is {told(size)} bytes; give a positive size")
        if not 1 <= whole("microbatches", self.microbatches, "a whole number") <= MOST_MICROBATCHES:
            raise InputError(f"microbatches is {self.microbatches}; give 1 to {MOST_MICROBATCHES}")

    @classmethod
    def plain(cls) -> "Schedule":
        """Return the published behaviour: barrier, first in first out, fair, nothing fused."""
        return cls()

    @property
    def streaming(self) -> bool:
        """Whether iterations overlap, so that their time is a period."""
        return self.overlap == "next-forward"

    @property
    def only_fuses(self) -> bool:
        """Whether gradients are in buckets, and all else is plain."""
        return self.bucket_bytes is not None and self == Schedule(bucket_bytes=self.bucket_bytes)

    def describe(self) -> str:
        """Return the schedule in a few words."""
        words = []
        if self.streaming:
            words.append("overlap with the next forward pass")
        if self.microbatches > 1:
            words.append(counted(self.microbatches, "microbatch", "microbatches"))
        if self.compute != "ready":
            words.append("compute by critical path")
        if self.network != "fair":
            words.append(f"network {self.network}")
        if self.bucket_bytes is not None:
            words.append(f"buckets of {format_bytes(self.bucket_bytes)}")
        return ", ".join(words) or "plain"


ORDERED = Schedule(compute="critical-path")
"""Devices take the longest remaining path first; all else is plain."""
