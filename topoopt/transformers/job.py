"""The question: a transformer to train, with how large a batch, on what servers."""

from dataclasses import dataclass, field

from codesign_base import InputError
from parallelism.accelerators import get_accelerator
from parallelism.device import Server
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.costs import DEFAULT, sequence_of
from parallelism.transformers.enumeration import Choices
from parallelism.transformers.gpu import GpuRates, rates_of
from parallelism.transformers.implementation import Implementation
from parallelism.transformers.links import nvlink_bandwidth
from topoopt.problem.job import Cluster


def nvlink_server(accelerator: str, gpus: int) -> Server:
    """Return a server whose GPUs are joined by their NVLink switch.

    Parameters
    ----------
    accelerator : str
    gpus : int

    Returns
    -------
    Server
        Its full mesh of links adds up to the GPU's NVLink bandwidth.

    Raises
    ------
    InputError
        If the accelerator, or its NVLink bandwidth, is not known.
    """
    return Server(
        get_accelerator(accelerator), gpus, nvlink_bandwidth(accelerator) / max(1, gpus - 1)
    )


@dataclass(frozen=True)
class TransformerJob:
    """A transformer to train.

    Parameters
    ----------
    model : Transformer
    global_batch : int
        Samples of an iteration.
    server : Server
        Eight H100 on an NVLink switch by default.
    sequence : int, optional
        Tokens of a sample; the model's own by default.
    implementation : Implementation
    choices : Choices
        Which layouts are considered.
    rates : GpuRates, optional
        What a GPU reaches; by default what was fitted for its family.
    memory_reserve : float
        Share of each GPU's memory that is left free (fragments, the runtime's own).
    """

    model: Transformer
    global_batch: int
    server: Server = field(default_factory=lambda: nvlink_server("h100", 8))
    sequence: int | None = None
    implementation: Implementation = DEFAULT
    choices: Choices = field(default_factory=Choices)
    rates: GpuRates | None = None
    memory_reserve: float = 0.05

    def __post_init__(self) -> None:
        if isinstance(self.global_batch, bool) or self.global_batch < 1:
            raise InputError(f"global_batch is {self.global_batch!r}; give at least 1")
        if not 0 <= self.memory_reserve < 1:
            raise InputError(
                f"memory_reserve is {self.memory_reserve}; give a share of at least 0 and below 1"
            )
        sequence_of(self.model, self.sequence)

    @property
    def tokens(self) -> int:
        """Tokens of a sample."""
        return sequence_of(self.model, self.sequence)

    @property
    def gpu_rates(self) -> GpuRates:
        """What a GPU reaches."""
        return self.rates or rates_of(self.server.accelerator)

    @property
    def memory_limit(self) -> float:
        """Bytes of each GPU that a layout may use."""
        return self.server.accelerator.memory_bytes * (1.0 - self.memory_reserve)

    def gpus(self, cluster: Cluster) -> int:
        """Return the GPUs of a cluster of such servers."""
        return cluster.servers * self.server.gpus


__all__ = ["TransformerJob", "nvlink_server"]
