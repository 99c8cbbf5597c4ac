"""A published measurement of training, as validation takes it."""

from dataclasses import dataclass
from typing import Literal

from parallelism.transformers.architecture import Transformer
from parallelism.transformers.gpu import GpuRates
from parallelism.transformers.implementation import Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.links import Links

Role = Literal["fitted", "held-out", "other-software"]


@dataclass(frozen=True)
class PublishedRun:
    """One measured iteration time.

    Parameters
    ----------
    name, source : str
    role : {"fitted", "held-out", "other-software"}
        Whether a parameter was fitted on it; runs of other software are told apart, because
        the rates were fitted on Megatron-LM's.
    model : Transformer
    layouts : tuple of Layout
        More than one where the source leaves microbatch or interleaving open: the fastest that
        fits (by the model) counts.
    batch, sequence : int
    seconds : float
        Published, or from the published FLOP/s by the source's own count of operations.
    accelerator : str
    links : Links
    implementation : Implementation
    derived : str
        How ``seconds`` follows from what is published; empty if it is itself.
    rates : GpuRates, optional
        Of an accelerator that is in no table.
    """

    name: str
    source: str
    role: Role
    model: Transformer
    layouts: tuple[Layout, ...]
    batch: int
    sequence: int
    seconds: float
    accelerator: str
    links: Links
    implementation: Implementation
    derived: str = ""
    rates: GpuRates | None = None
