"""Communicators: which NPUs of each dimension a collective of each phase runs over."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from codesign_base import InputError
from codesign_base.counted import counted
from parallelism.reading import check_fields, shown
from topoopt.bandwidth.model.network import MultiDimNetwork
from topoopt.bandwidth.model.reading import read_yaml

PHASES = ("Forward", "InputGrad", "WeightGrad")
UNUSED = -1


@dataclass(frozen=True)
class NpuGroup:
    """The members of a collective: on each dimension, every ``stride``-th of ``size``.

    Parameters
    ----------
    sizes : tuple of int
        Members on each dimension; 1 where the dimension is not used.
    strides : tuple of int
        Distance of neighbouring members; 1 where they are side by side.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Communicator:
    """Groups of the phases Forward, InputGrad and WeightGrad.

    Parameters
    ----------
    groups : tuple of NpuGroup
        One a phase.
    layers : tuple of (str, tuple of NpuGroup)
        Exceptions by layer name or shell pattern (``expert*``); the first match counts.
    """

    groups: tuple[NpuGroup, NpuGroup, NpuGroup]
    layers: tuple[tuple[str, tuple[NpuGroup, NpuGroup, NpuGroup]], ...] = field(default=())

    def of(self, layer: str) -> tuple[NpuGroup, NpuGroup, NpuGroup]:
        """Return the groups of a layer's three phases."""
        for pattern, groups in self.layers:
            if matches(layer, pattern):
                return groups
        return self.groups


def matches(layer: str, pattern: str) -> bool:
    """Say whether a layer has this name, or one of this shell pattern."""
    return layer == pattern or fnmatchcase(layer, pattern)


def make_group(
    network: MultiDimNetwork,
    sizes: object,
    strides: object = None,
    where: str = "group",
) -> NpuGroup:
    """Check a group against a network.

    Parameters
    ----------
    network : MultiDimNetwork
    sizes : list of int
        Members on each dimension; -1 (or 1) where it is not used.
    strides : list of int, optional
        Distance of neighbouring members on each dimension; 1 by default.
    where : str
        The place, for the message.

    Returns
    -------
    NpuGroup

    Raises
    ------
    InputError
        If an entry is missing, no whole number, larger than the dimension, or does not divide
        it; or a stride leaves the dimension.
    """
    listed = _whole_list(sizes, network.dimensions, where)
    steps = (
        [1] * network.dimensions
        if strides is None
        else _whole_list(strides, network.dimensions, f"{where} stride")
    )
    final = []
    for d, (size, n) in enumerate(zip(listed, network.sizes, strict=True)):
        if size == UNUSED:
            final.append(1)
            continue
        if size < 1:
            raise InputError(
                f"{where}: size {size} on dimension {d}; give 1 to {n}, or -1 where it is unused"
            )
        if size > n:
            raise InputError(
                f"{where}: a group of {size} on dimension {d}, which has {n} members; "
                f"give at most {n}"
            )
        if n % size:
            raise InputError(
                f"{where}: a group of {size} does not divide the {n} members of dimension {d}; "
                "give a divisor"
            )
        final.append(size)
    strided = []
    for d, (step, size, n) in enumerate(zip(steps, final, network.sizes, strict=True)):
        if step == UNUSED:
            step = 1
        if step < 1 or step * size > n or n % (step * size):
            raise InputError(
                f"{where}: {size} members at stride {step} on dimension {d} of {n}; "
                "give a stride whose product with the size divides the dimension"
            )
        strided.append(step)
    return NpuGroup(tuple(final), tuple(strided))


def _whole_list(values: object, length: int, where: str) -> list[int]:
    if not isinstance(values, list | tuple) or any(
        isinstance(v, bool) or not isinstance(v, int) for v in values
    ):
        raise InputError(
            f"{where} is {shown(values)}; give a list of whole numbers, one a dimension"
        )
    if len(values) != length:
        raise InputError(
            f"{where} has {counted(len(values), 'entry', 'entries')} for "
            f"{counted(length, 'dimension')}; give one each"
        )
    return list(values)


def load_communicator(path: str | Path, network: MultiDimNetwork) -> Communicator:
    """Read a communicator file: LIBRA's YAML form, with layers and strides of our own.

    Parameters
    ----------
    path : str or Path
        ``Forward``, ``InputGrad`` and ``WeightGrad``: group size on each dimension, -1 where
        it is unused. Optional ``Stride``: the same three, distance of neighbouring members.
        Optional ``Layers``: by layer name or shell pattern, any of the same fields.
    network : MultiDimNetwork

    Returns
    -------
    Communicator

    Raises
    ------
    InputError
        If the file cannot be read, a field is missing or unknown, or a group does not fit.
    """
    where = f"communicator file {str(path)!r}"
    data = read_yaml(path, "communicator file")
    check_fields(data, where, PHASES, ("Stride", "Layers"))
    base = _phases(data, where, network, None)
    layers = data.get("Layers", {})
    if not isinstance(layers, dict):
        raise InputError(f"{where}: Layers is {shown(layers)}; give blocks named after layers")
    own = []
    for name, entry in layers.items():
        place = f"{where}: Layers.{name}"
        if not isinstance(entry, dict):
            raise InputError(f"{place} is {shown(entry)}; give Forward, InputGrad or WeightGrad")
        check_fields(entry, place, (), (*PHASES, "Stride"))
        own.append((str(name), _phases(entry, place, network, base)))
    return Communicator(base, tuple(own))


def _phases(
    data: Mapping[Any, Any],
    where: str,
    network: MultiDimNetwork,
    base: tuple[NpuGroup, NpuGroup, NpuGroup] | None,
) -> tuple[NpuGroup, NpuGroup, NpuGroup]:
    strides = data.get("Stride", {})
    if not isinstance(strides, dict):
        raise InputError(f"{where}: Stride is {shown(strides)}; give lists named after phases")
    check_fields(strides, f"{where}: Stride", (), PHASES)
    found = []
    for index, phase in enumerate(PHASES):
        place = f"{where}: {phase}"
        if phase not in data and base is not None:
            if phase in strides:
                raise InputError(f"{place} has a Stride but no sizes; give both")
            found.append(base[index])
        else:
            found.append(make_group(network, data[phase], strides.get(phase), place))
    return (found[0], found[1], found[2])


def lay(network: MultiDimNetwork, counts: Sequence[int]) -> list[NpuGroup] | None:
    """Lay axes over a network, the first one innermost.

    Parameters
    ----------
    network : MultiDimNetwork
    counts : sequence of int
        NPUs of each axis; their product is that of the network.

    Returns
    -------
    list of NpuGroup or None
        One an axis, possibly over parts of dimensions; None if a dimension would be divided
        unevenly.

    Examples
    --------
    >>> from topoopt.bandwidth.model.network import parse_network
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
        found.append(NpuGroup(tuple(sizes), tuple(steps)))
        begin = end
    return found


def hybrid_communicator(network: MultiDimNetwork, tensor: int) -> Communicator:
    """Lay tensor parallelism over the inner dimensions and data parallelism over the rest.

    Parameters
    ----------
    network : MultiDimNetwork
    tensor : int
        NPUs of one tensor-parallel group; forward and input-gradient collectives run over
        them, weight-gradient collectives over the others.

    Returns
    -------
    Communicator

    Raises
    ------
    InputError
        If the group cannot be laid over whole divisors of the dimensions.

    Examples
    --------
    >>> from topoopt.bandwidth.model.network import parse_network
    >>> made = hybrid_communicator(parse_network("RI(4)_FC(8)_RI(4)_SW(32)"), 16)
    >>> made.groups[0].sizes, made.groups[2].sizes
    ((4, 4, 1, 1), (1, 2, 4, 32))
    """
    laid = None
    if tensor >= 1 and network.npus % tensor == 0:
        laid = lay(network, (tensor, network.npus // tensor))
    if laid is None:
        raise InputError(
            f"tensor parallelism of {tensor} cannot be laid over the inner dimensions of "
            f"{network.notation}; give a product of its leading sizes, the last one divided"
        )
    tensors, data = laid
    return Communicator((tensors, tensors, data))


def whole_network(network: MultiDimNetwork) -> NpuGroup:
    """Return the group of all NPUs."""
    return NpuGroup(network.sizes, (1,) * network.dimensions)
