"""Ways to divide a job over NPUs: tensor x data x pipeline, and where each lies in a network."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import inf

from codesign_base import InfeasibleError, InputError
from parallelism.accelerators import get_accelerator
from parallelism.graph import ModelGraph
from topoopt.bandwidth.builtin import TRANSFORMERS, TransformerSpec, transformer_workload
from topoopt.bandwidth.collectives import PartialGroups
from topoopt.bandwidth.communicator import Communicator, Group
from topoopt.bandwidth.expressions import Expr, comm
from topoopt.bandwidth.from_model import model_workload
from topoopt.bandwidth.loops import LayerTimes, layer_times
from topoopt.bandwidth.network import Block, MultiDimNetwork
from topoopt.bandwidth.workload import Workload

AXES = ("tensor", "data", "pipeline")


@dataclass(frozen=True)
class Way:
    """One division of a job.

    Parameters
    ----------
    workload : Workload
        Of one stage of one replica.
    tensor, data, pipeline : int
        NPUs of a tensor-parallel group, replicas, stages; their product is the cluster.
    microbatches : int
        That pass through the stages one after the other.
    boundary : float
        Bytes that an NPU sends to the next stage for each of them, and receives back.
    orders : tuple of tuple of str
        From the innermost axis to the outermost, the ways to lay them over a network.
    """

    workload: Workload
    tensor: int
    data: int
    pipeline: int = 1
    microbatches: int = 1
    boundary: float = 0.0
    orders: tuple[tuple[str, ...], ...] = (AXES,)

    @property
    def label(self) -> str:
        """Such as "TP 16 x DP 256"."""
        stages = f" x PP {self.pipeline}" if self.pipeline > 1 else ""
        return f"TP {self.tensor} x DP {self.data}{stages}"

    def count(self, axis: str) -> int:
        """Return the size of an axis."""
        return {"tensor": self.tensor, "data": self.data, "pipeline": self.pipeline}[axis]


def orders_of(tensor: int, data: int, pipeline: int) -> tuple[tuple[str, ...], ...]:
    """Return the orders of the axes that differ; axes of one NPU stand outside."""
    sizes = dict(zip(AXES, (tensor, data, pipeline), strict=True))
    real = [axis for axis in AXES if sizes[axis] > 1]
    rest = [axis for axis in AXES if sizes[axis] == 1]
    return tuple((*order, *rest) for order in permutations(real))


def lay(network: MultiDimNetwork, counts: Sequence[int]) -> list[Group] | None:
    """Lay axes over a network, the first one innermost.

    Parameters
    ----------
    network : MultiDimNetwork
    counts : sequence of int
        NPUs of each axis; their product is that of the network.

    Returns
    -------
    list of Group or None
        One an axis, possibly over parts of dimensions; None if a dimension would be divided
        unevenly.

    Examples
    --------
    >>> from topoopt.bandwidth.network import parse_network
    >>> inner, outer = lay(parse_network("RI(4)_FC(8)"), (8, 4))
    >>> inner.sizes, outer.sizes, outer.strides
    ((4, 2), (1, 4), (1, 2))
    """
    found = []
    begin = 1
    for count in counts:
        end = begin * count
        sizes, steps = [], []
        start = 1
        for n in network.sizes:
            stop = start * n
            low, high = max(begin, start), min(end, stop)
            if high <= low:
                sizes.append(1)
                steps.append(1)
            elif low % start or high % low or stop % high or low % begin or end % high:
                return None
            else:
                sizes.append(high // low)
                steps.append(low // start)
            start = stop
        found.append(Group(tuple(sizes), tuple(steps)))
        begin = end
    return found


def way_layers(
    network: MultiDimNetwork,
    way: Way,
    order: Sequence[str],
    partial: PartialGroups = PartialGroups.USABLE,
) -> tuple[LayerTimes, ...] | None:
    """Return the layers' times of a job divided and laid in one way.

    Parameters
    ----------
    network : MultiDimNetwork
    way : Way
    order : sequence of str
        One of the way's orders.
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
    laid = lay(network, [way.count(axis) for axis in order])
    if laid is None:
        return None
    groups = dict(zip(order, laid, strict=True))
    whole = Group(network.sizes, (1,) * network.dimensions)
    tensor = groups["tensor"]
    everywhere = tuple((name, (whole, whole, whole)) for name in way.workload.everywhere)
    own = Communicator((tensor, tensor, groups["data"]), everywhere)
    layers = layer_times(network, way.workload, own, partial)
    if way.pipeline == 1:
        return layers
    passes = way.microbatches + way.pipeline - 1
    factor = passes / way.microbatches
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
    sent = comm(load, way.boundary * passes) + latency * passes
    stretched.append(LayerTimes(1, nothing, sent, nothing, sent, nothing, nothing))
    return tuple(stretched)


def _neighbour(network: MultiDimNetwork, group: Group) -> tuple[list[float], float]:
    """Return what a byte to the next stage loads on the dimensions, and its latency."""
    used = [d for d, g in enumerate(group.sizes) if g > 1]
    load = [0.0] * network.dimensions
    latency = 0.0
    for d in used:
        n, g, step = network.sizes[d], group.sizes[d], group.strides[d]
        hops = 1
        if network.blocks[d] == Block.RING:
            back = (g - 1) * step  # where the next dimension carries, the inner one goes back
            hops = step if d == used[-1] else max(step, min(back, n - back))
            load[d] = float(hops if n == 2 else 2 * hops)
        elif network.blocks[d] == Block.FULLY_CONNECTED:
            load[d] = float(n - 1)
        else:
            load[d] = 1.0
        latency += hops * network.latencies[d]
    return load, latency


def fixed_way(workload: Workload, npus: int) -> Way:
    """Return the one way that a workload is worked out for: tensor groups inside replicas.

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
    return Way(workload, workload.tensor, npus // workload.tensor)


def transformer_ways(
    spec: TransformerSpec,
    npus: int,
    device: str = "a100",
    memory: float | None = None,
) -> list[Way]:
    """Return the ways to divide a transformer whose global batch is given.

    Parameters
    ----------
    spec : TransformerSpec
        Its batch and tensor groups set the sequences of an NPU, which all ways keep.
    npus : int
    device : str, optional
    memory : float, optional
        Bytes of an NPU for weights, gradients and the optimizer; the device's by default,
        `math.inf` for no limit.

    Returns
    -------
    list of Way
        By stages, then by tensor groups.

    Raises
    ------
    InfeasibleError
        If none fits in memory.

    Notes
    -----
    2-byte weights and gradients, and 12 bytes of optimizer state a parameter spread over the
    replicas (ZeRO, stage 1); activations are computed again and not counted. A stage holds as
    many blocks as every other; the output projection counts with each.
    """
    accelerator = get_accelerator(device)
    room = accelerator.memory_bytes if memory is None else memory
    parameters = spec.blocks * 12.0 * spec.hidden**2 + spec.vocabulary * spec.hidden
    ways, smallest = [], inf
    within = "without a limit of memory" if room == inf else f"within {room / 1e9:g} GB"
    note = (
        f"{spec.name}: {spec.blocks} blocks of {spec.hidden}, sequence {spec.sequence} "
        f"({spec.source}); {spec.batch / spec.tensor:g} sequences an NPU in every design, 2-byte "
        f"elements on {accelerator.name}; 16 bytes a parameter, 12 of them spread over the "
        f"replicas, {within}; one sequence a microbatch"
    )
    for stages in (p for p in range(1, spec.blocks + 1) if spec.blocks % p == 0 and npus % p == 0):
        for tensor in (t for t in _divisors(npus // stages) if spec.hidden % t == 0):
            sequences, over = divmod(spec.batch * tensor * stages, spec.tensor)
            data = npus // (tensor * stages)
            if over or sequences < 1:
                continue
            needed = parameters / (tensor * stages) * (4.0 + 12.0 / data)
            smallest = min(smallest, needed)
            if needed > room:
                continue
            made = transformer_workload(
                replace(spec, blocks=spec.blocks // stages), tensor, sequences, accelerator
            )
            layers = made.layers if stages == 1 else made.layers[1:]
            ways.append(
                Way(
                    Workload(made.name, layers, (note,), tensor),
                    tensor,
                    data,
                    stages,
                    sequences if stages > 1 else 1,
                    spec.sequence * spec.hidden * 2.0 / tensor,
                    orders_of(tensor, data, stages),
                )
            )
    if not ways:
        raise InfeasibleError(
            f"{spec.name} needs at least {smallest / 1e9:.4g} GB an NPU on {npus} NPUs, but "
            f"{room / 1e9:.4g} GB are there; give more NPUs or more --memory"
        )
    return ways


def model_ways(graph: ModelGraph, npus: int, device: str = "a100") -> list[Way]:
    """Return the ways to divide a model graph: tensor groups and replicas, no stages.

    The samples of an NPU stay the same. Memory is not checked.
    """
    ways = []
    for tensor in _divisors(npus):
        try:
            made = model_workload(graph, tensor, None, device)
        except InputError:
            continue  # no operator splits so many ways
        data = npus // tensor
        ways.append(Way(made, tensor, data, orders=orders_of(tensor, data, 1)))
    return ways


def builtin_ways(
    name: str, npus: int, device: str = "a100", memory: float | None = None
) -> list[Way]:
    """Return the ways to divide a built-in workload; see `transformer_ways`.

    Raises
    ------
    InputError
        If there is no such workload.
    """
    from parallelism.models import get_model
    from topoopt.bandwidth.builtin import builtin_workload

    if name in TRANSFORMERS:
        return transformer_ways(TRANSFORMERS[name], npus, device, memory)
    if name == "resnet-50":
        return model_ways(get_model("resnet50-imagenet"), npus, device)
    return [fixed_way(builtin_workload(name, device=device), npus)]


def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})
