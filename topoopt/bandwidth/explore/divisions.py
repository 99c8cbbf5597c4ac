"""Layouts of a job on NPUs, tensor x data x pipeline, and where each axis lies in a network."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from codesign_base import InfeasibleError, InputError
from codesign_base.counted import counted
from codesign_base.whole_numbers import divisors
from parallelism.graph import ModelGraph
from parallelism.models import get_model
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.layout import Layout
from parallelism.transformers.placement import axis_orders
from topoopt.bandwidth.model.builtin import (
    PUBLISHED_WORKLOADS,
    builtin_workload,
    matrix_parameters,
    transformer_workload,
)
from topoopt.bandwidth.model.collectives import PartialGroups
from topoopt.bandwidth.model.communicator import Communicator, NpuGroup, lay, whole_network
from topoopt.bandwidth.model.expressions import Expr, comm
from topoopt.bandwidth.model.from_model import ACCELERATOR, model_workload
from topoopt.bandwidth.model.loops import LayerTimes, layer_times
from topoopt.bandwidth.model.network import MultiDimNetwork
from topoopt.bandwidth.model.workload import LayerWorkload
from topoopt.topology.zoo.blocks import BuildingBlock

_AXES = ("tensor", "data", "pipeline")


@dataclass(frozen=True)
class Division:
    """A job under one layout.

    Parameters
    ----------
    workload : LayerWorkload
        Of one stage of one replica.
    layout : Layout
        Its tensor, data and pipeline degrees, whose product is the cluster.
    orders : tuple of tuple of str
        From the innermost axis to the outermost, the ways to lay them over a network.
    microbatches : int
        That pass through the stages one after the other.
    boundary : float
        Bytes that an NPU sends to the next stage for each of them, and receives back.
    """

    workload: LayerWorkload
    layout: Layout
    orders: tuple[tuple[str, str, str], ...] = (_AXES,)
    microbatches: int = 1
    boundary: float = 0.0

    @property
    def label(self) -> str:
        """Such as "TP 16 x DP 256"."""
        stages = f" x PP {self.layout.pipeline}" if self.layout.pipeline > 1 else ""
        return f"TP {self.layout.tensor} x DP {self.layout.data}{stages}"

    @property
    def stretch(self) -> float:
        """How many times as long the pipeline makes computing, as it fills and drains."""
        return (self.microbatches + self.layout.pipeline - 1) / self.microbatches


def division_layers(
    network: MultiDimNetwork,
    division: Division,
    order: Sequence[str],
    partial: PartialGroups = PartialGroups.USABLE,
) -> tuple[LayerTimes, ...] | None:
    """Return the layers' times of a divided job, its axes laid over a network in an order.

    Parameters
    ----------
    network : MultiDimNetwork
    division : Division
    order : sequence of str
        One of the division's orders.
    partial : PartialGroups, optional

    Returns
    -------
    tuple of LayerTimes or None
        None if the axes cannot be laid over the dimensions.

    Notes
    -----
    With p stages and m microbatches, computing and tensor parallelism take (m + p - 1) / m
    times as long (the pipeline fills and drains), and as many microbatches are sent to the next
    stage and back; gradients are reduced once. A message to one neighbour has half of a Ring,
    one of the n-1 links of FullyConnected, all of a Switch; a stage may border on the next one
    in several dimensions.

    References
    ----------
    Narayanan et al., Efficient Large-Scale Language Model Training, SC 2021, section 2.2
    (pipeline bubble) and 4.1 (slices between stages).
    """
    laid = lay(network, [getattr(division.layout, axis) for axis in order])
    if laid is None:
        return None
    groups = dict(zip(order, laid, strict=True))
    whole = whole_network(network)
    tensor = groups["tensor"]
    everywhere = tuple((name, (whole, whole, whole)) for name in division.workload.everywhere)
    own = Communicator((tensor, tensor, groups["data"]), everywhere)
    layers = layer_times(network, division.workload, own, partial)
    if division.layout.pipeline == 1:
        return layers
    passes = division.microbatches + division.layout.pipeline - 1
    factor = division.stretch
    stretched = [
        LayerTimes(
            layer.count,
            factor * layer.forward_compute,
            factor * layer.forward_comm,
            factor * layer.input_grad_compute,
            factor * layer.input_grad_comm,
            factor * layer.weight_grad_compute,
            layer.weight_grad_comm,
        )
        for layer in layers
    ]
    nothing = Expr(0.0, {})
    load, latency = _neighbour(network, groups["pipeline"])
    sent = comm(load, division.boundary * passes) + latency * passes
    stretched.append(LayerTimes(1, nothing, sent, nothing, sent, nothing, nothing))
    return tuple(stretched)


def _neighbour(network: MultiDimNetwork, group: NpuGroup) -> tuple[list[float], float]:
    """Return what a byte to the next stage loads on the dimensions, and its latency."""
    used = [d for d, g in enumerate(group.sizes) if g > 1]
    load = [0.0] * network.dimensions
    latency = 0.0
    for d in used:
        n, g, step = network.sizes[d], group.sizes[d], group.strides[d]
        hops = 1
        if network.blocks[d] == BuildingBlock.RING:
            back = (g - 1) * step  # where the next dimension carries, the inner one goes back
            hops = step if d == used[-1] else max(step, min(back, n - back))
            load[d] = float(hops if n == 2 else 2 * hops)
        elif network.blocks[d] == BuildingBlock.FULLY_CONNECTED:
            load[d] = float(n - 1)
        else:
            load[d] = 1.0
        latency += hops * network.latencies[d]
    return load, latency


def fixed_division(workload: LayerWorkload, npus: int) -> Division:
    """Return the division that a workload is worked out for: tensor groups inside replicas.

    Raises
    ------
    InputError
        If it does not say its tensor groups, or they do not divide the NPUs.
    """
    if workload.tensor is None:
        raise InputError(
            f"workload {workload.name!r} does not say which NPUs its collectives run over; give "
            "--tensor-parallel"
        )
    if npus % workload.tensor:
        raise InputError(
            f"tensor parallelism of {workload.tensor} does not divide {npus} NPUs; give a divisor"
        )
    return Division(workload, _layout(workload.tensor, npus // workload.tensor))


def _layout(tensor: int, data: int, pipeline: int = 1, microbatch: int = 1) -> Layout:
    """Return a layout as LIBRA means it: AllReduces of activations, which are computed again."""
    return Layout(
        tensor, data=data, pipeline=pipeline, microbatch=microbatch, sequence_parallel=False,
        recompute="full",
    )  # fmt: skip


def transformer_divisions(
    model: Transformer, replica: Layout, npus: int, memory: float | None = None
) -> list[Division]:
    """Return the divisions of a transformer whose global batch is given.

    Parameters
    ----------
    model : Transformer
    replica : Layout
        Its microbatch and tensor groups set the sequences of an NPU, which all divisions keep.
    npus : int
    memory : float, optional
        Bytes of an NPU for weights, gradients and the optimizer; the accelerator's by default,
        `math.inf` for no limit.

    Returns
    -------
    list of Division
        By stages, then by tensor groups.

    Raises
    ------
    InfeasibleError
        If none fits in memory.

    Notes
    -----
    2-byte weights and gradients, and 12 bytes of optimizer state a parameter spread over the
    replicas (ZeRO, stage 1); activations are computed again and not counted. A stage holds as
    many blocks as every other; the output projection counts with each. Tensor groups divide the
    hidden width, not the heads, and may span any number of NPUs, as in LIBRA.
    """
    room = ACCELERATOR.memory_bytes if memory is None else memory
    parameters = model.layers * sum(matrix_parameters(model)) + model.vocabulary * model.hidden
    found, smallest = [], inf
    each = counted(f"{replica.microbatch / replica.tensor:g}", "sequence")
    within = "without a limit of memory" if room == inf else f"within {room / 1e9:g} GB"
    note = (
        f"{model.name}: {counted(model.layers, 'block')} of {model.hidden}, sequence "
        f"{model.sequence} ({model.source}); {each} an NPU in every "
        f"design, 2-byte elements on {ACCELERATOR.name}; 16 bytes a parameter, 12 of "
        f"them spread over the replicas, {within}; one sequence a microbatch"
    )
    for stages in (s for s in divisors(model.layers) if npus % s == 0):
        for tensor in (t for t in divisors(npus // stages) if model.hidden % t == 0):
            sequences, over = divmod(replica.microbatch * tensor * stages, replica.tensor)
            data = npus // (tensor * stages)
            if over or sequences < 1:
                continue
            needed = parameters / (tensor * stages) * (4.0 + 12.0 / data)
            smallest = min(smallest, needed)
            if needed > room:
                continue
            layout = _layout(tensor, data, stages, sequences if stages == 1 else 1)
            made = transformer_workload(model, layout, sequences)
            found.append(
                Division(
                    replace(made, notes=(note,)),
                    layout,
                    tuple(axis_orders(layout, _AXES)),
                    layout.microbatches(sequences * data),
                    float(model.sequence * model.hidden * model.dense_bytes) / tensor,
                )
            )
    if not found:
        raise InfeasibleError(
            f"{model.name} needs at least {smallest / 1e9:.4g} GB an NPU on {npus} NPUs, but "
            f"{room / 1e9:.4g} GB are there; give more NPUs or more --memory"
        )
    return found


def model_divisions(graph: ModelGraph, npus: int) -> list[Division]:
    """Return the divisions of a model graph: tensor groups and replicas, no stages.

    The samples of an NPU stay the same. Memory is not checked.
    """
    found = []
    for tensor in divisors(npus):
        try:
            made = model_workload(graph, tensor)
        except InputError:
            continue  # no operator splits so many ways
        layout = _layout(tensor, npus // tensor)
        found.append(Division(made, layout, tuple(axis_orders(layout, _AXES))))
    return found


def builtin_divisions(name: str, npus: int, memory: float | None = None) -> list[Division]:
    """Return the divisions of a built-in workload; see `transformer_divisions`.

    Raises
    ------
    InputError
        If there is no such workload.
    """
    if name in PUBLISHED_WORKLOADS:
        return transformer_divisions(*PUBLISHED_WORKLOADS[name], npus, memory)
    if name == "resnet-50":
        return model_divisions(get_model("resnet50-imagenet"), npus)
    return [fixed_division(builtin_workload(name), npus)]
