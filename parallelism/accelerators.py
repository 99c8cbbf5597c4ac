"""Accelerators and their published peaks, as data."""

from dataclasses import dataclass
from typing import Literal

from codesign_base import InputError
from codesign_base.arguments import check_kind, is_number, python_numbers, told
from parallelism.suggestions import choice

Precision = Literal["fp32", "tf32", "bf16", "fp16", "fp8"]


@dataclass(frozen=True)
class Accelerator:
    """One GPU: published dense peaks (no structured sparsity), memory and bandwidth.

    Parameters
    ----------
    name : str
    fp32_flops : float
        FLOP/s of ordinary single-precision units; 0: not published.
    tf32_flops, bf16_flops, fp16_flops : float
        FLOP/s of tensor cores; 0: none (BF16 must be there).
    memory_bytes : float
    memory_bandwidth : float
        Bytes/s.
    source : str
    fp8_flops : float
        FLOP/s of tensor cores; 0: none.

    Raises
    ------
    InputError
        If a number is negative or not finite, or one of BF16 or the memory is zero.
    """

    name: str
    fp32_flops: float
    tf32_flops: float
    bf16_flops: float
    fp16_flops: float
    memory_bytes: float
    memory_bandwidth: float
    source: str
    fp8_flops: float = 0.0

    def __post_init__(self) -> None:
        python_numbers(self)
        check_kind("accelerator: name", self.name, str, "a text")
        for quantity in ("bf16_flops", "memory_bytes", "memory_bandwidth"):
            value = getattr(self, quantity)
            if not (is_number(value) and 0 < value < float("inf")):
                raise InputError(
                    f"accelerator {self.name!r}: {quantity} is {told(value)}; give a "
                    "positive number"
                )
        for quantity in ("fp32_flops", "tf32_flops", "fp16_flops", "fp8_flops"):
            value = getattr(self, quantity)
            if not (is_number(value) and 0 <= value < float("inf")):
                raise InputError(
                    f"accelerator {self.name!r}: {quantity} is {told(value)}; give zero or more"
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
            If the precision is unknown, or the accelerator has no such units.
        """
        peaks = {
            "fp32": self.fp32_flops,
            "tf32": self.tf32_flops,
            "bf16": self.bf16_flops,
            "fp16": self.fp16_flops,
            "fp8": self.fp8_flops,
        }
        if precision not in list(peaks):
            raise InputError(f"unknown precision {precision!r}; choose one of {list(peaks)}")
        if peaks[precision] == 0.0:
            known = ", ".join(name for name, peak in peaks.items() if peak)
            raise InputError(
                f"accelerator {self.name!r} has no {precision} peak; choose one of {known}"
            )
        return peaks[precision]


@dataclass(frozen=True)
class ScaleUp:
    """How the accelerators of one scale-up domain are joined, and what leaves it.

    Parameters
    ----------
    gpus : int
        Of the largest domain: a server, or a rack; it is the "server" that network ports belong to.
    bandwidth : float
        Bytes/s of one accelerator each way, to the others of its domain together.
    nic : float
        Bytes/s of one accelerator's network port, each way, in the vendor's own system.
    source : str
    """

    gpus: int
    bandwidth: float
    nic: float
    source: str


# Data sheets of NVIDIA print tensor peaks with 2:4 sparsity; dense is half of that.
_HALVED = "tensor peaks halved (dense)"
_A100 = "NVIDIA A100 Tensor Core GPU data sheet, SXM column"
_H100 = f"NVIDIA H100 Tensor Core GPU data sheet, {{}} column, {_HALVED}"
_NVL72 = f"NVIDIA {{}} NVL72 data sheet, a 72nd of the rack, {_HALVED}"
_TPU = "Google Cloud TPU documentation, TPU v5p"

_TABLE = (
    Accelerator("a100-40gb", 19.5e12, 156e12, 312e12, 312e12, 40e9, 1.555e12, _A100),
    Accelerator("a100-80gb", 19.5e12, 156e12, 312e12, 312e12, 80e9, 2.039e12, _A100),
    Accelerator(
        "h100-sxm", 67e12, 494.5e12, 989.5e12, 989.5e12, 80e9, 3.35e12, _H100.format("SXM"),
        1979e12,
    ),
    Accelerator(
        "h100-96gb", 60e12, 417.5e12, 835.5e12, 835.5e12, 96e9, 2.4e12,
        "torchtitan, benchmarks of Llama 3 on H100: SXM with HBM2e, limited to 500 W, its peak "
        f"between those of SXM and NVL; peaks are those of NVL ({_H100.format('NVL')})", 1670.5e12,
    ),
    Accelerator(
        "h100-pcie", 51e12, 378e12, 756.5e12, 756.5e12, 80e9, 2e12, _H100.format("PCIe"), 1513e12
    ),
    Accelerator(
        "h200-sxm", 67e12, 494.5e12, 989.5e12, 989.5e12, 141e9, 4.8e12,
        f"NVIDIA H200 Tensor Core GPU data sheet, SXM column, {_HALVED}", 1979e12,
    ),
    Accelerator(
        "h800-sxm", 67e12, 494.5e12, 989.5e12, 989.5e12, 80e9, 3.35e12,
        f"NVIDIA H800 Tensor Core GPU data sheet, SXM column, {_HALVED}", 1979e12,
    ),
    Accelerator(
        "b200", 75e12, 1125e12, 2250e12, 2250e12, 180e9, 8e12,
        f"NVIDIA DGX B200 and HGX B200 data sheets, an eighth of the system, {_HALVED}", 4500e12,
    ),
    Accelerator(
        "b300", 75e12, 1125e12, 2250e12, 2250e12, 270e9, 8e12,
        f"NVIDIA HGX B300 data sheet, an eighth of the system (2.1 TB), {_HALVED}", 4500e12,
    ),
    Accelerator(
        "gb200-nvl72", 80e12, 1250e12, 2500e12, 2500e12, 186e9, 8e12, _NVL72.format("GB200"),
        5000e12,
    ),
    Accelerator(
        "gb300-nvl72", 80e12, 1250e12, 2500e12, 2500e12, 278e9, 8e12, _NVL72.format("GB300"),
        5000e12,
    ),
    Accelerator(
        "mi300x", 163.4e12, 653.7e12, 1307.4e12, 1307.4e12, 192e9, 5.3e12,
        "AMD Instinct MI300X data sheet, without structured sparsity", 2614.9e12,
    ),
    Accelerator(
        "mi355x", 157.3e12, 0.0, 2516.6e12, 2516.6e12, 288e9, 8e12,
        "AMD Instinct MI355X data sheet, without structured sparsity; TF32 has no units",
        5033.2e12,
    ),
    # FP8 is computed at the rate of BF16.
    Accelerator("tpu-v5p", 0.0, 0.0, 459e12, 0.0, 95e9, 2.765e12, _TPU, 459e12),
)  # fmt: skip

ACCELERATORS: dict[str, Accelerator] = {item.name: item for item in _TABLE}
ALIASES = {
    "a100": "a100-80gb", "h100": "h100-sxm", "h200": "h200-sxm", "h800": "h800-sxm",
    "gb200": "gb200-nvl72", "gb300": "gb300-nvl72", "v5p": "tpu-v5p",
}  # fmt: skip

# Bandwidths each way: half of what data sheets print for both ways together.
_DGX = "NVIDIA DGX {} data sheet: NVLink switch; a ConnectX-{} port of {} Gbit/s a GPU"
_RACK = "NVIDIA {} NVL72 data sheet: NVLink switch; a ConnectX-{} port of {} Gbit/s a GPU"
_MESH = "AMD Instinct {} platform data sheet: 7 links of {} GB/s both ways, a full mesh; 400 Gbit/s"
SCALE_UP: dict[str, ScaleUp] = {
    "a100-40gb": ScaleUp(8, 300e9, 25e9, _DGX.format("A100", 6, 200)),
    "a100-80gb": ScaleUp(8, 300e9, 25e9, _DGX.format("A100", 6, 200)),
    "h100-sxm": ScaleUp(8, 450e9, 50e9, _DGX.format("H100", 7, 400)),
    "h100-96gb": ScaleUp(8, 450e9, 50e9, "Meta Grand Teton: NVLink switch; 400 Gbit/s a GPU"),
    "h100-pcie": ScaleUp(
        8, 64e9, 50e9,
        "NVIDIA H100 data sheet, PCIe column: PCIe 5 (a bridge of 300e9 bytes/s joins pairs only)",
    ),
    "h200-sxm": ScaleUp(8, 450e9, 50e9, _DGX.format("H200", 7, 400)),
    "h800-sxm": ScaleUp(
        8, 200e9, 50e9, "NVIDIA H800 data sheet; DeepSeek-V3, arXiv 2412.19437, section 3.1"
    ),
    "b200": ScaleUp(8, 900e9, 50e9, _DGX.format("B200", 7, 400)),
    "b300": ScaleUp(8, 900e9, 100e9, _DGX.format("B300", 8, 800)),
    "gb200-nvl72": ScaleUp(72, 900e9, 50e9, _RACK.format("GB200", 7, 400)),
    "gb300-nvl72": ScaleUp(72, 900e9, 100e9, _RACK.format("GB300", 8, 800)),
    "mi300x": ScaleUp(8, 448e9, 50e9, _MESH.format("MI300X", 128)),
    "mi355x": ScaleUp(8, 537.6e9, 50e9, _MESH.format("MI355X", "153.6")),
    "tpu-v5p": ScaleUp(
        4, 200e9, 400e9,
        f"{_TPU}: a host is 2 x 2 chips of a 3D torus; of a chip's 6 links of 100e9 bytes/s 2 stay "
        "in the host and 4 leave it, as its ports",
    ),
}  # fmt: skip
"""By the full names of `ACCELERATORS`."""


def get_accelerator(name: str) -> Accelerator:
    """Return an accelerator of the table, by name or short name, upper or lower case.

    Parameters
    ----------
    name : str
        A key of `ALIASES` or of `ACCELERATORS`.

    Returns
    -------
    Accelerator

    Raises
    ------
    InputError
        If there is none.
    """
    check_kind("accelerator", name, str, "a name, such as 'h100'")
    key = name.lower()
    key = ALIASES.get(key, key)
    if key not in ACCELERATORS:
        known = choice(key, [*ALIASES, *ACCELERATORS])
        raise InputError(f"unknown accelerator {name!r}; {known}")
    return ACCELERATORS[key]


def scale_up_of(accelerator: Accelerator | str) -> ScaleUp:
    """Return the scale-up domain of an accelerator.

    Parameters
    ----------
    accelerator : Accelerator or str
        A record, or a name that `get_accelerator` knows. A record whose name is not in the table
        has the domain of its kind, which is the name up to the first hyphen.

    Raises
    ------
    InputError
        If the name is unknown, or its domain.
    """
    found = get_accelerator(accelerator) if isinstance(accelerator, str) else accelerator
    kind = found.name.split("-")[0]
    name = found.name if found.name in SCALE_UP else ALIASES.get(kind, kind)
    if name not in SCALE_UP:
        raise InputError(
            f"accelerator {found.name!r}: the bandwidth between those of a server is not known; "
            f"known: {', '.join(SCALE_UP)}; give Links or a Server of your own"
        )
    return SCALE_UP[name]
