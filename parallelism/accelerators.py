"""Accelerators and their published peaks, as data."""

from dataclasses import dataclass
from typing import Literal

from codesign_base import InputError

Precision = Literal["fp32", "tf32", "bf16", "fp16"]


@dataclass(frozen=True)
class Accelerator:
    """One GPU: published dense peaks (no structured sparsity), memory and bandwidth.

    Parameters
    ----------
    name : str
    fp32_flops : float
        FLOP/s of ordinary single-precision units.
    tf32_flops, bf16_flops, fp16_flops : float
        FLOP/s of tensor cores.
    memory_bytes : float
    memory_bandwidth : float
        Bytes/s.
    source : str

    Raises
    ------
    InputError
        If a number is not positive and finite.
    """

    name: str
    fp32_flops: float
    tf32_flops: float
    bf16_flops: float
    fp16_flops: float
    memory_bytes: float
    memory_bandwidth: float
    source: str

    def __post_init__(self) -> None:
        for quantity in (
            "fp32_flops", "tf32_flops", "bf16_flops", "fp16_flops", "memory_bytes",
            "memory_bandwidth",
        ):  # fmt: skip
            value = getattr(self, quantity)
            if not 0 < value < float("inf"):
                raise InputError(
                    f"accelerator {self.name!r}: {quantity} is {value}; give a positive number"
                )

    @property
    def usable_bytes(self) -> float:
        """Bytes of memory that a program can take: data sheets call GB what are GiB of HBM."""
        return self.memory_bytes * 2**30 / 1e9

    def peak_flops(self, precision: Precision) -> float:
        """Return the peak FLOP/s of matrix products in a precision.

        Raises
        ------
        InputError
            If the precision is unknown.
        """
        peaks = {
            "fp32": self.fp32_flops,
            "tf32": self.tf32_flops,
            "bf16": self.bf16_flops,
            "fp16": self.fp16_flops,
        }
        if precision not in peaks:
            raise InputError(f"unknown precision {precision!r}; choose one of {list(peaks)}")
        return peaks[precision]


_A100 = "NVIDIA A100 Tensor Core GPU data sheet, SXM column"

# Data sheets of H100 and H200 print tensor peaks with 2:4 sparsity; dense is half of that.
_TABLE = (
    Accelerator("a100-40gb", 19.5e12, 156e12, 312e12, 312e12, 40e9, 1.555e12, _A100),
    Accelerator("a100-80gb", 19.5e12, 156e12, 312e12, 312e12, 80e9, 2.039e12, _A100),
    Accelerator(
        "h100-sxm", 67e12, 494.5e12, 989.5e12, 989.5e12, 80e9, 3.35e12,
        "NVIDIA H100 Tensor Core GPU data sheet, SXM column, tensor peaks halved (dense)",
    ),
    Accelerator(
        "h200-sxm", 67e12, 494.5e12, 989.5e12, 989.5e12, 141e9, 4.8e12,
        "NVIDIA H200 Tensor Core GPU data sheet, SXM column, tensor peaks halved (dense)",
    ),
)  # fmt: skip

ACCELERATORS: dict[str, Accelerator] = {item.name: item for item in _TABLE}
ALIASES = {"a100": "a100-80gb", "h100": "h100-sxm", "h200": "h200-sxm"}


def get_accelerator(name: str) -> Accelerator:
    """Return an accelerator of the table, by name or short name, upper or lower case.

    Parameters
    ----------
    name : str
        ``a100`` (80 GB), ``a100-40gb``, ``h100``, ``h200``, or a full name.

    Returns
    -------
    Accelerator

    Raises
    ------
    InputError
        If there is none.
    """
    key = name.lower()
    key = ALIASES.get(key, key)
    if key not in ACCELERATORS:
        known = ", ".join([*ALIASES, *ACCELERATORS])
        raise InputError(f"unknown accelerator {name!r}; known: {known}")
    return ACCELERATORS[key]
