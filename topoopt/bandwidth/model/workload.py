"""Workloads: layers with compute times and collectives, as LIBRA and ASTRA-sim 1.0 list them."""

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from codesign_base import InputError
from codesign_base.counted import counted
from parallelism.reading import read_text
from topoopt.bandwidth.model.collectives import Collective, collective_of

# A header line of ASTRA-sim 1.0 starts with one of these.
POLICIES = (
    "DATA", "MODEL", "HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA", "HYBRID_TRANSFORMER",
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD", "HYBRID_DLRM", "DLRM", "HYBRID_DLRM_ENHANCED", "MICRO",
    "DISTRIBUTED_INFERENCE",
)  # fmt: skip
_COLUMNS = 12
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_DECIMAL = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?")


@dataclass(frozen=True)
class LayerPhase:
    """Compute of one phase of a layer, and the collective after it.

    Parameters
    ----------
    compute : float
        Seconds.
    kind : Collective
    size : float
        Bytes of the collective per NPU (of AllGather: of the shard).
    """

    compute: float
    kind: Collective = Collective.NONE
    size: float = 0.0


@dataclass(frozen=True)
class Layer:
    """One layer.

    Parameters
    ----------
    name : str
    forward, input_grad, weight_grad : LayerPhase
    """

    name: str
    forward: LayerPhase
    input_grad: LayerPhase
    weight_grad: LayerPhase

    @property
    def phases(self) -> tuple[LayerPhase, LayerPhase, LayerPhase]:
        """Forward, input gradient and weight gradient."""
        return (self.forward, self.input_grad, self.weight_grad)


@dataclass(frozen=True)
class LayerWorkload:
    """One training iteration of one NPU.

    Parameters
    ----------
    name : str
    layers : tuple of Layer
    notes : tuple of str
        Assumptions behind the numbers, one sentence each.
    tensor : int or None
        NPUs of a tensor-parallel group that the sizes were worked out for, where known; the
        other phases run over the rest of the cluster.
    everywhere : tuple of str
        Names or patterns of layers whose collectives all run over the whole cluster.

    Raises
    ------
    InputError
        If there is no layer, or a time or size is negative or not finite.
    """

    name: str
    layers: tuple[Layer, ...]
    notes: tuple[str, ...] = field(default=())
    tensor: int | None = None
    everywhere: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if not self.layers:
            raise InputError(f"workload {self.name!r} has no layers; give at least one")
        for layer in self.layers:
            for phase in layer.phases:
                for what, value in (("compute", phase.compute), ("size", phase.size)):
                    if not 0 <= value < float("inf"):
                        raise InputError(
                            f"workload {self.name!r}: layer {layer.name!r} has {what} {value}; "
                            "give zero or a positive number"
                        )

    @cached_property
    def distinct(self) -> tuple[tuple[tuple[LayerPhase, LayerPhase, LayerPhase], int], ...]:
        """Layers that differ in more than their names, with how often each occurs."""
        return tuple(Counter(layer.phases for layer in self.layers).items())

    @property
    def compute(self) -> float:
        """Seconds of compute of all phases."""
        return sum(phase.compute for layer in self.layers for phase in layer.phases)


def load_layer_workload(path: str | Path) -> LayerWorkload:
    """Read a LIBRA or ASTRA-sim 1.0 workload text file.

    Parameters
    ----------
    path : str or Path
        One layer a line: name, dependency, then for forward, input gradient and weight
        gradient compute nanoseconds, collective and bytes, then the update's nanoseconds. The
        two header lines of ASTRA-sim (policy, number of layers) may come before them.

    Returns
    -------
    LayerWorkload

    Raises
    ------
    InputError
        If the file cannot be read, or a line is not of this form.

    Notes
    -----
    As in LIBRA, the dependency column and the update time (last column) do not enter the
    iteration time. The policy of the header does not either: the communicator says which NPUs
    a collective runs over.
    """
    return parse_workload(
        read_text(path, "workload file"), f"workload file {str(path)!r}", Path(path).stem
    )


def parse_workload(text: str, where: str, name: str) -> LayerWorkload:
    """Read the content of a workload file; see `load_layer_workload`."""
    rows = [(at, line.split()) for at, line in enumerate(text.splitlines(), 1) if line.strip()]
    stated = None
    if rows and (rows[0][1][0] in POLICIES or len(rows[0][1]) != _COLUMNS):
        at, words = rows.pop(0)
        if words[0] not in POLICIES:
            raise InputError(
                f"{where}: line {at} has {counted(len(words), 'column')}; a layer has {_COLUMNS}, "
                f"and a header begins with a policy such as {POLICIES[0]}"
            )
        if not rows or len(rows[0][1]) != 1 or not _WHOLE.fullmatch(rows[0][1][0]):
            raise InputError(
                f"{where}: the line after policy {words[0]} is not a number of layers; add it"
            )
        stated = int(rows.pop(0)[1][0])
    layers = tuple(_layer(words, f"{where}: line {at}") for at, words in rows)
    if stated is not None and stated != len(layers):
        raise InputError(
            f"{where}: the header says {counted(stated, 'layer')}, but {len(layers)} follow; "
            "correct it"
        )
    if not layers:
        raise InputError(f"{where} has no layers; give at least one")
    return LayerWorkload(name, layers)


def _layer(words: list[str], where: str) -> Layer:
    if len(words) != _COLUMNS:
        raise InputError(f"{where} has {counted(len(words), 'column')}; a layer has {_COLUMNS}")
    if not _WHOLE.fullmatch(words[1]):
        raise InputError(f"{where}: dependency is {words[1]!r}; give a whole number, -1 for none")
    _amount(words[11], f"{where}: update time")
    phases = []
    for start, phase in ((2, "forward"), (5, "input gradient"), (8, "weight gradient")):
        compute = _amount(words[start], f"{where}: {phase} compute")
        kind = collective_of(words[start + 1], f"{where}: {phase}")
        size = _amount(words[start + 2], f"{where}: {phase} bytes")
        if kind == Collective.NONE and size > 0:
            raise InputError(
                f"{where}: {phase} has {words[start + 2]} bytes but no collective; name one"
            )
        phases.append(LayerPhase(compute * 1e-9, kind, size))
    return Layer(words[0], phases[0], phases[1], phases[2])


def _amount(word: str, what: str) -> float:
    if not _DECIMAL.fullmatch(word):
        raise InputError(f"{what} is {word!r}; give a number of zero or more")
    return float(word)
