"""The time of products, fused attention and element-wise work on one GPU."""

from dataclasses import dataclass

from codesign_base import InputError
from codesign_base.arguments import check_fractions, check_kind, check_not_negative, python_numbers
from codesign_base.hashed_once import hashed_once
from parallelism.accelerators import Accelerator, get_accelerator
from parallelism.transformers.implementation import AttentionKernel
from parallelism.transformers.work import Gemm, Work

# Shares of `attention_efficiency` that kernels of fused attention reach, on GPUs newer than A100,
# and on A100. FlashAttention 2 does not use what is new in Hopper: 0.35 of H100's peak (Shah et
# al., FlashAttention-3, 2024, abstract). That of Triton is fitted, see `docs/llm.md`.
_KERNELS: dict[AttentionKernel, tuple[float, float]] = {
    "cudnn": (1.0, 1.0), "flash-2": (0.64, 1.0), "triton": (0.57, 0.57),
}  # fmt: skip

# How sharply the slower of arithmetic and memory wins: 1 adds them, infinity takes the larger.
_SHARPNESS = 2.0


@hashed_once
@dataclass(frozen=True)
class GpuRates:
    """What one GPU reaches of its data sheet, and how that depends on size.

    A product takes ``sqrt(a^2 + b^2) + launch`` seconds, where ``a`` is arithmetic: operations
    over ``product_efficiency`` of the peak, times ``1 + half_size (1/m + 1/n + 1/k)``; and ``b``
    is bytes over ``memory_efficiency`` of the bandwidth. Either is a smooth, saturating function
    of the sizes. Everything else moves bytes, and launches.

    Parameters
    ----------
    accelerator : Accelerator
    product_efficiency : float
        Fraction of the peak that endlessly large products reach.
    half_size : float
        Size of one dimension (the others endless) at which a product reaches half of that.
    attention_efficiency : float
        Fraction of the peak of the fastest fused attention kernels (cuDNN 9, FlashAttention 3).
    memory_efficiency : float
        Fraction of the memory bandwidth.
    launch : float
        Seconds of each kernel that are not hidden behind the one before.
    fitted : str
        What the numbers were fitted on, for reports.
    fp8_efficiency : float
        Fraction of the FP8 peak that endlessly large FP8 products reach.
    """

    accelerator: Accelerator
    product_efficiency: float
    half_size: float
    attention_efficiency: float
    memory_efficiency: float
    launch: float
    fitted: str = ""
    fp8_efficiency: float = 0.586

    def __post_init__(self) -> None:
        python_numbers(self)
        fractions = (
            "product_efficiency", "attention_efficiency", "memory_efficiency", "fp8_efficiency",
        )  # fmt: skip
        check_fractions("GPU rates", self, fractions)
        check_not_negative("GPU rates", self, ("half_size", "launch"))

    def gemm_seconds(self, gemm: Gemm) -> float:
        """Return the seconds of all products of one shape."""
        sizes = 1.0 / gemm.m + 1.0 / gemm.n + 1.0 / gemm.k
        if gemm.fp8:
            rate = self.accelerator.peak_flops("fp8") * self.fp8_efficiency
        else:
            rate = self.accelerator.bf16_flops * self.product_efficiency
        arithmetic = gemm.flops / rate * (1.0 + self.half_size * sizes)
        memory = self.traffic_seconds(gemm.traffic)
        both: float = (arithmetic**_SHARPNESS + memory**_SHARPNESS) ** (1.0 / _SHARPNESS)
        return both + self.launch

    def traffic_seconds(self, size: float) -> float:
        """Return the seconds to move bytes to or from the GPU's memory."""
        return size / (self.accelerator.memory_bandwidth * self.memory_efficiency)

    def attention_seconds(self, work: Work, kernel: AttentionKernel = "cudnn") -> float:
        """Return the seconds of fused attention by a kernel, then of linear attention."""
        share = _KERNELS[kernel][self.accelerator.name.startswith("a100")]
        rate = self.accelerator.bf16_flops * self.attention_efficiency * share
        fused = max(work.attention_flops / rate, self.traffic_seconds(work.attention_traffic))
        return fused + max(work.linear_flops / rate, self.traffic_seconds(work.linear_traffic))


def fitted_on(rates: GpuRates) -> str:
    """Return what rates were fitted on, for readers."""
    return rates.fitted or "nothing: they are the user's own"


def rates_of(accelerator: Accelerator | str) -> GpuRates:
    """Return the rates of an accelerator.

    Parameters
    ----------
    accelerator : Accelerator or str
        A record, or a name that `get_accelerator` knows.

    Returns
    -------
    GpuRates
        Those fitted for its family; H200 and H800 have H100's, whose arithmetic they share, and
        accelerators of which no run was met have its shares of their own peaks.

    Raises
    ------
    InputError
        If the name is unknown, or no rates are known for the family.
    """
    check_kind("accelerator", accelerator, str | Accelerator, "its name, such as 'h100'")
    found = get_accelerator(accelerator) if isinstance(accelerator, str) else accelerator
    kind = found.name if found.name in _FITTED else found.name.split("-")[0]
    if kind not in _FITTED:
        raise InputError(
            f"accelerator {found.name!r}: no rates of matrix products are known; known: "
            f"{', '.join(_FITTED)}; give GpuRates of your own"
        )
    return GpuRates(found, *_FITTED[kind])


def rates_like_h100(accelerator: Accelerator) -> GpuRates:
    """Return rates of an accelerator that nothing is known of: H100's shares of its peaks."""
    return GpuRates(accelerator, *_LIKE_H100)


_A100_FIT = (
    "the times of a 22B layer and the two iterations of 175B (Korthikanti et al., 2022, tables 4 "
    "and 5) and the iteration of 1.7B (Narayanan et al., 2021, table 1): the efficiency of "
    "products, by their size, and of links inside a server; other rates are set by hand"
)
_H100_FIT = (
    "20 runs of Megatron-Core and NeMo from 1.7B to 462B (NVIDIA/Megatron-LM's table of models, "
    "NVIDIA/dgxc-benchmarking), and for FP8 on five of Megatron Bridge: the efficiency of products "
    "and the stack's seconds an iteration; other rates are those fitted for A100, or set by hand"
)
_TAKEN = "no run of its kind: the shares of the peaks are those of H100"
# product_efficiency, half_size, attention_efficiency, memory_efficiency, launch, fitted, FP8
_Row = tuple[float, float, float, float, float, str, float]
_H100: _Row = (0.617, 100.0, 0.545, 0.85, 3e-6, _H100_FIT, 0.586)
_LIKE_H100: _Row = (*_H100[:5], _TAKEN, _H100[6])
_FITTED: dict[str, _Row] = {
    "a100": (0.803, 100.0, 0.55, 0.85, 3e-6, _A100_FIT, 0.586),
    **dict.fromkeys(("h100", "h200", "h800"), _H100),
    **dict.fromkeys(("b200", "b300", "gb200", "gb300", "mi300x", "mi355x", "tpu-v5p"), _LIKE_H100),
}
