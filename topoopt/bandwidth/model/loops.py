"""Training loops: how compute and collectives of the layers add up to an iteration."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from codesign_base import InputError
from codesign_base.counted import counted
from topoopt.bandwidth.model.collectives import Collective, PartialGroups, pattern
from topoopt.bandwidth.model.communicator import PHASES, Communicator, NpuGroup, matches
from topoopt.bandwidth.model.expressions import Expr, comm, compute, maximum, total
from topoopt.bandwidth.model.network import MultiDimNetwork
from topoopt.bandwidth.model.workload import LayerPhase, LayerWorkload


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Times of one layer as expressions, and how many layers are equal to it.

    Parameters
    ----------
    count : int
    forward_compute, forward_comm : Expr
    input_grad_compute, input_grad_comm : Expr
    weight_grad_compute, weight_grad_comm : Expr
    """

    count: int
    forward_compute: Expr
    forward_comm: Expr
    input_grad_compute: Expr
    input_grad_comm: Expr
    weight_grad_compute: Expr
    weight_grad_comm: Expr

    def without_communication(self) -> "LayerTimes":
        """Return the layer as if nothing had to be sent."""
        nothing = Expr(0.0, {})
        return LayerTimes(
            self.count, self.forward_compute, nothing, self.input_grad_compute, nothing,
            self.weight_grad_compute, nothing,
        )  # fmt: skip


TrainingLoop = Callable[[tuple[LayerTimes, ...]], Expr]


class Loop(StrEnum):
    """The built-in training loops."""

    NONE = "none"
    OVERLAP = "overlap"


def no_overlap(layers: tuple[LayerTimes, ...]) -> Expr:
    """Add everything: no communication is hidden."""
    return total(
        layer.count * part
        for layer in layers
        for part in (
            layer.forward_compute, layer.forward_comm,
            layer.input_grad_compute, layer.input_grad_comm,
            layer.weight_grad_compute, layer.weight_grad_comm,
        )
    )  # fmt: skip


def tp_dp_overlap(layers: tuple[LayerTimes, ...]) -> Expr:
    """Hide a backward layer's input-gradient collective behind its weight gradient.

    References
    ----------
    Won et al., LIBRA, ISPASS 2024, section IV (TP-DP overlap training loop).
    """
    return total(
        layer.count
        * (
            layer.forward_compute
            + layer.forward_comm
            + maximum(
                layer.input_grad_compute + layer.input_grad_comm,
                layer.input_grad_compute + layer.weight_grad_compute + layer.weight_grad_comm,
            )
        )
        for layer in layers
    )


LOOPS: dict[Loop, TrainingLoop] = {Loop.NONE: no_overlap, Loop.OVERLAP: tp_dp_overlap}


def layer_times(
    network: MultiDimNetwork,
    workload: LayerWorkload,
    communicator: Communicator,
    partial: PartialGroups = PartialGroups.USABLE,
) -> tuple[LayerTimes, ...]:
    """Return the distinct layers' times as expressions of the bandwidths.

    Parameters
    ----------
    network : MultiDimNetwork
    workload : LayerWorkload
    communicator : Communicator
    partial : PartialGroups, optional

    Returns
    -------
    tuple of LayerTimes
    """
    patterns: dict[tuple[NpuGroup, Collective], tuple[tuple[float, ...], float, float]] = {}

    def communicate(phase: LayerPhase, group: NpuGroup) -> Expr:
        if phase.kind == Collective.NONE or phase.size == 0.0:
            return Expr(0.0, {})
        key = (group, phase.kind)
        if key not in patterns:
            patterns[key] = pattern(network, group, phase.kind, partial)
        load, multiple, latency = patterns[key]
        made = comm(load, multiple * phase.size)
        return made + latency if latency else made

    found = []
    if communicator.layers:
        counted: dict[tuple[tuple[LayerPhase, ...], tuple[NpuGroup, ...]], int] = {}
        for layer in workload.layers:
            key = (layer.phases, communicator.of(layer.name))
            counted[key] = counted.get(key, 0) + 1
        distinct = [(phases, groups, count) for (phases, groups), count in counted.items()]
    else:
        distinct = [(phases, communicator.groups, n) for phases, n in workload.distinct]
    for phases, groups, count in distinct:
        exprs: list[Expr] = []
        for phase, group in zip(phases, groups, strict=True):
            exprs += (compute(phase.compute), communicate(phase, group))
        found.append(LayerTimes(count, *exprs))
    return tuple(found)


def check_layers(workload: LayerWorkload, communicator: Communicator) -> None:
    """Refuse layer exceptions of a communicator that name no layer of the workload.

    Raises
    ------
    InputError
        Naming the pattern.
    """
    for name, _ in communicator.layers:
        if not any(matches(layer.name, name) for layer in workload.layers):
            raise InputError(
                f"communicator: no layer of workload {workload.name!r} is called {name!r}; "
                "correct or remove it"
            )


def unsent_notes(workload: LayerWorkload, communicator: Communicator) -> list[str]:
    """Say which collectives have bytes but a group of one NPU, so that nothing is sent."""
    notes = []
    for index, phase in enumerate(PHASES):
        count = sum(
            1
            for layer in workload.layers
            if layer.phases[index].size > 0
            and all(g == 1 for g in communicator.of(layer.name)[index].sizes)
        )
        if count:
            notes.append(
                f"{phase} collectives of {counted(count, 'layer')} are not sent: their group is "
                "one NPU"
            )
    return notes


def add_up(layers: tuple[LayerTimes, ...], loop: Loop | TrainingLoop) -> Expr:
    """Return the iteration time of layers under a training loop.

    Parameters
    ----------
    layers : tuple of LayerTimes
    loop : Loop or callable
        A built-in loop, or a function from the layers' times to an expression.

    Raises
    ------
    InputError
        If the callable returns something else than an expression.
    """
    made = LOOPS[loop](layers) if isinstance(loop, Loop) else loop(layers)
    if not isinstance(made, Expr):
        raise InputError(f"training loop returned {made!r}; return an expression of the layers")
    return made
