"""Multi-dimensional networks: a stack of rings, full meshes and switches."""

from dataclasses import dataclass
from math import prod
from pathlib import Path

from codesign_base import InputError
from codesign_base.arguments import is_number
from codesign_base.counted import counted
from parallelism.reading import check_fields, shown
from topoopt.bandwidth.model.reading import read_yaml
from topoopt.topology.zoo.blocks import SHORT, BuildingBlock, check_sizes, read_blocks

COST_LEVELS = ("InterChiplet", "InterPackage", "InterNode", "InterPod")


@dataclass(frozen=True)
class MultiDimNetwork:
    """A cluster whose NPUs are numbered by one coordinate a dimension.

    Parameters
    ----------
    blocks : tuple of BuildingBlock
        From the innermost dimension (chiplets) to the outermost (pods).
    sizes : tuple of int
        Members of each dimension, at least 2; their product is the number of NPUs.
    levels : tuple of str
        Cost level of each dimension, a key of the cost model.
    latencies : tuple of float, optional
        Seconds of one communication step on each dimension; none by default.
    reducing : tuple of bool, optional
        Whether the dimension's switches reduce in the network; False by default.

    Raises
    ------
    InputError
        If the tuples differ in length, a size is below 2, a latency is negative, or a
        dimension that reduces in the network is no switch.

    Examples
    --------
    >>> parse_network("RI(4)_FC(8)_RI(4)_SW(32)").npus
    4096
    """

    blocks: tuple[BuildingBlock, ...]
    sizes: tuple[int, ...]
    levels: tuple[str, ...]
    latencies: tuple[float, ...] = ()
    reducing: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.blocks)
        if not self.latencies:
            object.__setattr__(self, "latencies", (0.0,) * count)
        if not self.reducing:
            object.__setattr__(self, "reducing", (False,) * count)
        for name in ("sizes", "levels", "latencies", "reducing"):
            if len(getattr(self, name)) != count:
                raise InputError(
                    f"network: {len(getattr(self, name))} {name} for "
                    f"{counted(count, 'dimension')}; give one each"
                )
        check_sizes(self.sizes)
        for d in range(count):
            if not 0 <= self.latencies[d] < float("inf"):
                raise InputError(
                    f"network: latency of dimension {d} is {self.latencies[d]} s; give zero or more"
                )
            if self.reducing[d] and self.blocks[d] != BuildingBlock.SWITCH:
                raise InputError(
                    f"network: dimension {d} is a {self.blocks[d]}; only a Switch reduces in "
                    "the network"
                )

    @property
    def dimensions(self) -> int:
        """Number of dimensions."""
        return len(self.blocks)

    @property
    def npus(self) -> int:
        """Number of NPUs."""
        return prod(self.sizes)

    @property
    def notation(self) -> str:
        """The compact notation, ``RI(4)_FC(8)_RI(4)_SW(32)``."""
        short = {block: letters for letters, block in SHORT.items()}
        return "_".join(f"{short[b]}({n})" for b, n in zip(self.blocks, self.sizes, strict=True))


def default_levels(dimensions: int) -> tuple[str, ...]:
    """Return the cost levels of a network that names none, outermost always ``InterPod``.

    Dimensions beyond four are further levels inside the chiplet level.
    """
    inner = (COST_LEVELS[0],) * max(0, dimensions - len(COST_LEVELS))
    return inner + COST_LEVELS[max(0, len(COST_LEVELS) - dimensions) :]


def parse_network(text: str) -> MultiDimNetwork:
    """Read the compact notation.

    Parameters
    ----------
    text : str
        ``RI(4)_FC(8)_RI(4)_SW(32)``: Ring, FullyConnected or Switch with its members, from
        the innermost dimension to the outermost.

    Returns
    -------
    MultiDimNetwork
        With the cost levels of `default_levels`.

    Raises
    ------
    InputError
        If the text is not of this form or a size is below 2.
    """
    blocks, sizes = zip(*read_blocks(text), strict=True)
    return MultiDimNetwork(tuple(blocks), tuple(sizes), default_levels(len(blocks)))


def load_multi_dim_network(path: str | Path) -> MultiDimNetwork:
    """Read a network file in LIBRA's YAML form.

    Parameters
    ----------
    path : str or Path
        Fields ``Topology`` (names of `BuildingBlock`), ``NpusCount`` and ``CostDimension``; our own
        optional fields are ``LatencyNs`` (of one step) and ``InNetworkReduction``, a list each.

    Returns
    -------
    MultiDimNetwork

    Raises
    ------
    InputError
        If the file cannot be read, or a field is missing, unknown or out of range.
    """
    where = f"network file {str(path)!r}"
    data = read_yaml(path, "network file")
    optional = ("CostDimension", "LatencyNs", "InNetworkReduction")
    check_fields(data, where, ("Topology", "NpusCount"), optional)
    for field, value in data.items():
        if not isinstance(value, list):
            raise InputError(
                f"{where}: {field} is {shown(value)}; give a list, one entry a dimension"
            )
    blocks = []
    for name in data["Topology"]:
        if name not in list(BuildingBlock):
            raise InputError(
                f"{where}: Topology has {shown(name)}; known: {', '.join(BuildingBlock)}"
            )
        blocks.append(BuildingBlock(name))
    for field, value in data.items():
        if len(value) != len(blocks):
            raise InputError(
                f"{where}: {field} has {counted(len(value), 'entry', 'entries')}, but Topology "
                f"has {counted(len(blocks), 'dimension')}; give one each"
            )
    levels = data.get("CostDimension", list(default_levels(len(blocks))))
    for level in levels:
        if not isinstance(level, str):
            raise InputError(f"{where}: CostDimension has {shown(level)}; give names")
    latencies = []
    for value in data.get("LatencyNs", []):
        if not is_number(value):
            raise InputError(f"{where}: LatencyNs has {shown(value)}; give numbers of nanoseconds")
        latencies.append(float(value) * 1e-9)
    reducing = data.get("InNetworkReduction", [])
    for value in reducing:
        if not isinstance(value, bool):
            raise InputError(f"{where}: InNetworkReduction has {shown(value)}; give true or false")
    try:
        return MultiDimNetwork(
            tuple(blocks), tuple(data["NpusCount"]), tuple(levels), tuple(latencies),
            tuple(reducing),
        )  # fmt: skip
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def read_network(text: str) -> MultiDimNetwork:
    """Read the compact notation, or a file where the text names one (``.yml``, ``.yaml``, /)."""
    if text.lower().endswith((".yml", ".yaml")) or "/" in text:
        return load_multi_dim_network(text)
    return parse_network(text)
