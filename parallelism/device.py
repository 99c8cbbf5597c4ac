"""Servers, and the time that one part of an operator takes on one of them."""

from dataclasses import dataclass
from typing import Any, Protocol

from codesign_base import InputError
from codesign_base.arguments import (
    check_fractions,
    check_kind,
    check_not_negative,
    is_number,
    python_numbers,
    told,
    whole,
)
from parallelism.accelerators import Accelerator, Precision, get_accelerator
from parallelism.graph import Mode, ModelGraph, Operator

DEFAULT_ACCELERATOR = get_accelerator("a100")
MOST_GPUS = 4096
"""Of one server."""


@dataclass(frozen=True)
class Server:
    """The GPUs of one server, which act as one device.

    Dense weights are replicated on all GPUs, which share the samples of a part; embedding
    tables are sharded over them.

    Parameters
    ----------
    accelerator : Accelerator
    gpus : int
    intra_bandwidth : float
        Bytes/s of each GPU-to-GPU link inside the server, a full mesh.

    Raises
    ------
    InputError
        If a number is out of range.

    Examples
    --------
    >>> from parallelism.accelerators import get_accelerator
    >>> from parallelism.device import Server
    >>> Server(get_accelerator("h100"), gpus=8).gpus
    8
    """

    accelerator: Accelerator = DEFAULT_ACCELERATOR
    gpus: int = 4
    intra_bandwidth: float = 25e9

    def __post_init__(self) -> None:
        python_numbers(self)
        if not isinstance(self.accelerator, Accelerator):
            raise InputError(
                f"server: accelerator is {self.accelerator!r}; give an Accelerator, such as "
                "parallelism.accelerators.get_accelerator('h100')"
            )
        wanted = "a whole number of at least 1"
        if whole("server: gpus", self.gpus, wanted) < 1:
            raise InputError(f"server: gpus is {self.gpus}; give {wanted}")
        if self.gpus > MOST_GPUS:
            raise InputError(f"server: gpus is {self.gpus}; give at most {MOST_GPUS}")
        rate = self.intra_bandwidth
        if not (is_number(rate) and 0 < rate < float("inf")):
            raise InputError(
                f"server: intra_bandwidth is {told(rate)}; give a positive number of bytes/s, "
                "such as 25e9"
            )

    @property
    def memory_bytes(self) -> float:
        """Memory of all GPUs together."""
        return self.gpus * self.accelerator.memory_bytes

    def intra_allreduce_time(self, size: float) -> float:
        """Return the seconds to reduce a buffer over the server's GPUs.

        A ring over g GPUs moves ``2 (g - 1) / g`` of the buffer through every GPU, and the full
        mesh lets it use ``g - 1`` rings at once: ``2 size / (g * intra_bandwidth)``. With 4 GPUs
        and 25e9 bytes/s that is the 50e9 bytes/s of the published task graphs.

        Parameters
        ----------
        size : float
            Bytes of the buffer, the same on each GPU.
        """
        if self.gpus == 1:
            return 0.0
        return 2.0 * size / (self.gpus * self.intra_bandwidth)


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """Seconds of one part of an operator on one server, per iteration.

    Parameters
    ----------
    forward, backward, update : float
        ``update`` is the optimizer's step on the part's parameters.
    """

    forward: float
    backward: float
    update: float


class ComputeModel(Protocol):
    """Anything that times one part of an operator on one server."""

    def operator_time(
        self, graph: ModelGraph, index: int, batch: int, sample: int, parameter: int, mode: Mode
    ) -> OperatorTime:
        """Return the time of one part.

        Parameters
        ----------
        graph : ModelGraph
        index : int
            Index of the operator.
        batch : int
            Global batch; a part processes ``batch / sample`` samples, spread over the GPUs.
        sample, parameter : int
            Degrees of sample and of parameter parallelism.
        mode : Mode
            How the parameter dimension is split (immaterial when ``parameter`` is 1).

        Returns
        -------
        OperatorTime
        """
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Every assumption and interpolation used so far, one sentence each, sorted."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return what identifies this model, as plain data with units in the names."""
        ...


def default_precision(element_bytes: int) -> Precision:
    """Return the matrix precision of a training job that does not name one.

    Elements of 4 bytes are multiplied in FP32, as the published A100 profiles were and as
    PyTorch does by default; elements of 2 bytes as BF16 (FP16 has the same peak).

    Raises
    ------
    InputError
        For any other width.
    """
    if element_bytes == 4:
        return "fp32"
    if element_bytes == 2:
        return "bf16"
    raise InputError(
        f"element_bytes is {element_bytes}: no default precision; "
        "give 2 or 4, or name the roofline's precision"
    )


@dataclass(frozen=True)
class RooflineModel:
    """Compute time by roofline: the slower of arithmetic and memory traffic, plus a launch.

    A pass of a part takes ``max(flops / (efficiency * peak), bytes / (memory_efficiency *
    bandwidth)) + launch_overhead`` on each GPU, which has ``batch / (sample * gpus)`` samples.
    Dense weights are read once a forward pass, and read and their gradients written once a
    backward pass. Plain SGD reads weights and gradients and writes weights; the update of a
    table is part of its backward pass.

    Parameters
    ----------
    server : Server
    efficiency : float
        Achievable fraction of the peak FLOP/s.
    memory_efficiency : float
        Achievable fraction of the memory bandwidth.
    launch_overhead : float
        Seconds added to every pass.
    precision : {"fp32", "tf32", "bf16", "fp16"}, optional
        Precision of arithmetic; by default FP32 for elements of 4 bytes and BF16 for 2.

    Raises
    ------
    InputError
        If a fraction is outside (0, 1], the overhead negative, or the precision unknown.

    Notes
    -----
    What the default fractions give on published A100 profiles (geometric mean of roofline over
    measured time, forward and backward, all operators and splits of 14 profiles): 1.01 with
    ``precision="fp32"`` (0.54 for NCF to 1.6 for VGG16), 0.32 with TF32. The profiles ran dense
    layers on single-precision units at 0.9 to 0.95 of their peak, but convolutions and
    attention on tensor cores: take ``"fp32"`` to compare with published times, TF32 or BF16
    for what such a job takes today (a fraction of 0.6 there is usual for large products, not
    taken from these profiles). Large element-wise operators moved their bytes at 0.67 of the
    80 GB part's bandwidth, which is 0.88 of the 40 GB part's; 0.8 lies between.

    Examples
    --------
    >>> import topoopt as to
    >>> graph = to.models.dlrm(tables=4, batch_per_gpu=32)
    >>> slow, fast = (to.RooflineModel(efficiency=share) for share in (0.1, 0.9))
    >>> times = [model.operator_time(graph, 0, 4096, 1, 1, "output") for model in (slow, fast)]
    >>> times[0].forward > times[1].forward
    True
    """

    server: Server = Server()
    efficiency: float = 0.6
    memory_efficiency: float = 0.8
    launch_overhead: float = 5e-6
    precision: Precision | None = None

    def __post_init__(self) -> None:
        python_numbers(self)
        check_kind("roofline: server", self.server, Server, "a topoopt.Server")
        check_fractions("roofline", self, ("efficiency", "memory_efficiency"))
        check_not_negative("roofline", self, ("launch_overhead",), "zero or more seconds")
        if self.precision is not None:
            self.server.accelerator.peak_flops(self.precision)

    def operator_time(
        self, graph: ModelGraph, index: int, batch: int, sample: int, parameter: int, mode: Mode
    ) -> OperatorTime:
        """Return the time of one part; see `ComputeModel`."""
        op = graph.operators[index]
        accelerator = self.server.accelerator
        rate = self._peak(graph.element_bytes) * self.efficiency
        bandwidth = accelerator.memory_bandwidth * self.memory_efficiency
        samples = batch / (sample * self.server.gpus)
        share = traffic_share(op, graph.element_bytes, parameter, mode)
        weights = 0.0 if op.sparse else graph.parameter_bytes(index) / parameter

        def seconds(flops: float, traffic: float, passes: int) -> float:
            arithmetic = flops * samples / parameter / rate
            memory = (traffic * samples * share + passes * weights) / bandwidth
            return max(arithmetic, memory) + self.launch_overhead

        return OperatorTime(
            forward=seconds(op.forward_flops, op.forward_bytes, 1),
            backward=seconds(op.backward_flops, op.backward_bytes, 2),
            update=3.0 * weights / bandwidth + self.launch_overhead if weights else 0.0,
        )

    def _peak(self, element_bytes: int) -> float:
        accelerator = self.server.accelerator
        if self.precision is not None:
            return accelerator.peak_flops(self.precision)
        precision = default_precision(element_bytes)
        try:
            return accelerator.peak_flops(precision)
        except InputError as error:
            # Of precisions nobody was asked: the model's elements and the device say which it is.
            raise InputError(
                f"accelerator {accelerator.name!r} has no {precision} peak, in which elements of "
                f"{element_bytes} bytes are multiplied; choose another accelerator, or a model "
                "with element_bytes 2"
            ) from error

    @property
    def notes(self) -> tuple[str, ...]:
        """The one assumption that every roofline time rests on."""
        peak = self.precision or "fp32 (4-byte elements) or bf16 (2-byte elements)"
        return (
            f"compute times are a roofline: {self.efficiency:g} of the {peak} peak and "
            f"{self.memory_efficiency:g} of the memory bandwidth of "
            f"{self.server.accelerator.name}, {self.launch_overhead * 1e6:g} us a pass",
        )

    def describe(self) -> dict[str, Any]:
        """Return the model's numbers for a plan's provenance."""
        return {
            "kind": "roofline",
            "accelerator": self.server.accelerator.name,
            "gpus": self.server.gpus,
            "efficiency": self.efficiency,
            "memory_efficiency": self.memory_efficiency,
            "launch_overhead_s": self.launch_overhead,
            "precision": self.precision,
        }


def traffic_share(op: Operator, element_bytes: int, parameter: int, mode: Mode) -> float:
    """Return the fraction of an operator's activation traffic that one of its parts has.

    A part that reads the whole input (``OUTPUT``, ``HEADS``) or writes the whole output
    (``REDUCTION``, ``HEADS``) does not save that traffic. Columns of an embedding table are
    read by column, so such a part saves everything.

    Parameters
    ----------
    op : Operator
    element_bytes : int
    parameter : int
        Degree of parameter parallelism.
    mode : Mode

    Returns
    -------
    float
        In ``[1 / parameter, 1]``.
    """
    split = 1.0 / parameter
    if parameter == 1 or op.forward_bytes == 0 or mode == Mode.CHANNEL:
        return split
    if op.sparse and mode == Mode.OUTPUT:
        return split
    output = min(1.0, float(op.output_elements) * element_bytes / op.forward_bytes)
    if mode == Mode.OUTPUT:
        return (1.0 - output) + output * split
    if mode == Mode.REDUCTION:
        return (1.0 - output) * split + output
    # HEADS: queries come in and partial sums go out whole; what lies between is split.
    ends = min(1.0, 2.0 * output)
    return ends + (1.0 - ends) * split
