"""How a transformer is spread over GPUs: degrees, schedule, recomputation, sharded states."""

from dataclasses import dataclass
from typing import Literal, get_args

from codesign_base import InputError

Schedule = Literal["gpipe", "1f1b", "interleaved", "zero-bubble"]
Recompute = Literal["none", "selective", "full"]
MOST_DEGREE = 2**20
"""Ranks, samples or stages of any one kind."""


@dataclass(frozen=True)
class Layout:
    """Degrees of parallelism and everything that goes with them.

    GPUs are ``tensor * context * data * pipeline``. Experts are spread over ``expert`` of the
    ``data * context`` ranks of a stage, and each is split over the tensor ranks.

    Parameters
    ----------
    tensor, context, data, pipeline : int
        Degrees tp, cp, dp, pp. Ranks are numbered with tensor innermost, then context, data,
        and pipeline outermost (Megatron's order).
    expert : int
        Degree ep: ranks that share a layer's experts; divides ``data * context``.
    sequence_parallel : bool
        Norms and dropouts split along the sequence within a tensor group: AllReduces become
        ReduceScatter and AllGather (Korthikanti et al., 2022).
    microbatch : int
        Samples of a microbatch on one data-parallel rank.
    schedule : {"gpipe", "1f1b", "interleaved", "zero-bubble"}
    virtual_stages : int
        Model chunks a GPU of an interleaved schedule; 1 otherwise.
    recompute : {"none", "selective", "full"}
        Activations computed again in the backward pass: none, attention cores, whole layers.
    zero : {0, 1, 2, 3}
        What is sharded over data-parallel ranks: nothing, optimizer states, also gradients,
        also weights (ZeRO stages).
    """

    tensor: int = 1
    context: int = 1
    data: int = 1
    pipeline: int = 1
    expert: int = 1
    sequence_parallel: bool = True
    microbatch: int = 1
    schedule: Schedule = "1f1b"
    virtual_stages: int = 1
    recompute: Recompute = "none"
    zero: int = 1

    def __post_init__(self) -> None:
        for name in (
            "tensor", "context", "data", "pipeline", "expert", "microbatch", "virtual_stages",
        ):  # fmt: skip
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"layout: {name} is {value!r}; give a whole number of at least 1")
            if value > MOST_DEGREE:
                raise InputError(f"layout: {name} is {value}; give at most {MOST_DEGREE}")
        if self.zero not in (0, 1, 2, 3):
            raise InputError(f"layout: zero is {self.zero!r}; choose 0, 1, 2 or 3")
        for name, known in (("schedule", Schedule), ("recompute", Recompute)):
            value, choices = getattr(self, name), get_args(known)
            if value not in choices:
                raise InputError(f"layout: {name} is {value!r}; choose {', '.join(choices)}")
        if (self.data * self.context) % self.expert:
            raise InputError(
                f"layout: expert is {self.expert}, which does not divide data * context = "
                f"{self.data * self.context}; give a divisor"
            )
        if self.virtual_stages > 1 and self.schedule != "interleaved":
            raise InputError(
                f"layout: virtual_stages is {self.virtual_stages} with schedule "
                f"{self.schedule!r}; give 1, or schedule 'interleaved'"
            )
        if self.schedule == "interleaved" and (self.pipeline < 2 or self.virtual_stages < 2):
            raise InputError(
                "layout: schedule 'interleaved' needs pipeline and virtual_stages of at least 2"
            )

    @property
    def gpus(self) -> int:
        """GPUs that the job takes."""
        return self.tensor * self.context * self.data * self.pipeline

    def microbatches(self, global_batch: int) -> int:
        """Return the microbatches of one iteration on each data-parallel rank.

        Raises
        ------
        InputError
            If the batch does not divide.
        """
        each = self.data * self.microbatch
        if global_batch % each:
            raise InputError(
                f"global batch is {global_batch}, no multiple of data * microbatch = {each}; "
                "choose another batch or degree"
            )
        return global_batch // each
