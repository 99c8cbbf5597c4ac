"""What depends on the training software rather than on model or layout."""

from dataclasses import dataclass

from codesign_base import InputError


@dataclass(frozen=True)
class Implementation:
    """Kernels, precisions and overlaps of the training software.

    Parameters
    ----------
    flash : bool
        One fused attention kernel, which stores no scores and skips what a causal mask hides.
        Otherwise scores are written to memory, all of them (Megatron-LM until 2022).
    dropout : bool
        Dropout after attention scores, attention and feed-forward part, whose masks are kept.
    load_imbalance : float
        Tokens of the busiest expert rank over the mean, at least 1.
    gradient_bytes : int
        Bytes of a summed gradient element: 4 (Megatron-LM) or 2 (the ZeRO paper).
    optimizer_bytes : int
        Bytes a parameter of optimizer state: 12 are Adam's two moments and the FP32 copy.
    scatter_gather : bool
        Each tensor rank sends its own part of a stage's output (Narayanan et al., 2021,
        section 4.1), rather than all of it. Sequence parallelism implies it.
    fused_gradients : bool
        Weight gradients are added to their FP32 sum inside the product. Otherwise a kernel of
        its own reads gradient and sum and writes the sum, every microbatch.
    overlap_gradients : bool
        Data-parallel communication hides behind backward passes (and the next forward ones).
    overlap_tensor : float
        Fraction of tensor-parallel communication that hides behind products, 0 to 1.
    overlap_pipeline : bool
        Messages between stages pass while both compute. Otherwise a stage waits for each
        message that it gets.
    """

    flash: bool = True
    dropout: bool = False
    load_imbalance: float = 1.0
    gradient_bytes: int = 4
    optimizer_bytes: int = 12
    scatter_gather: bool = True
    fused_gradients: bool = True
    overlap_gradients: bool = True
    overlap_tensor: float = 0.0
    overlap_pipeline: bool = True

    def __post_init__(self) -> None:
        if not 1.0 <= self.load_imbalance < float("inf"):
            raise InputError(
                f"implementation: load_imbalance is {self.load_imbalance}; give at least 1"
            )
        if not 0.0 <= self.overlap_tensor <= 1.0:
            raise InputError(
                f"implementation: overlap_tensor is {self.overlap_tensor}; give 0 to 1"
            )
        if self.gradient_bytes not in (2, 4):
            raise InputError(
                f"implementation: gradient_bytes is {self.gradient_bytes!r}; give 2 or 4"
            )
        if self.optimizer_bytes < 0:
            raise InputError(
                f"implementation: optimizer_bytes is {self.optimizer_bytes!r}; give 0 or more"
            )


MEGATRON_2022 = Implementation(
    flash=False, dropout=True, overlap_gradients=False, overlap_pipeline=False
)
"""Megatron-LM as Korthikanti et al. (2022) ran it."""

MEGATRON_2021 = Implementation(
    flash=False, dropout=True, fused_gradients=False, overlap_gradients=False,
    overlap_pipeline=False,
)  # fmt: skip
"""Megatron-LM as Narayanan et al. (2021) ran it: gradients were summed by a kernel of its own."""
