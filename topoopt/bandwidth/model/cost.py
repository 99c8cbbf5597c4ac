"""What a multi-dimensional network costs: dollars for each byte/s of each dimension."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from parallelism.reading import check_fields, shown
from topoopt.bandwidth.model.network import MultiDimNetwork
from topoopt.bandwidth.model.reading import price_number, read_yaml
from topoopt.topology.zoo.blocks import BuildingBlock

GBYTE = 1e9


@dataclass(frozen=True)
class LevelPrice:
    """US dollars per GB/s of one cost level; None where the level has no such component."""

    link: float
    switch: float | None = None
    nic: float = 0.0


@dataclass(frozen=True)
class CostModel:
    """Component prices by cost level.

    Parameters
    ----------
    source : str
        Where the prices are from.
    levels : mapping of str to LevelPrice
    npu : float
        US dollars of one NPU, in addition to the network.
    where : str
        What errors call it.
    """

    source: str
    levels: Mapping[str, LevelPrice]
    npu: float = 0.0
    where: str = "the cost model"


def _levels(data: Mapping[Any, Any], where: str) -> dict[str, LevelPrice]:
    levels = {}
    for name, entry in data.items():
        if not isinstance(entry, dict):
            raise InputError(f"{where}: {name} is {shown(entry)}; give Link, Switch and Nic prices")
        place = f"{where}: {name}"
        check_fields(entry, place, ("Link",), ("Switch", "Nic"))
        price = {field: price_number(value, f"{place}.{field}") for field, value in entry.items()}
        levels[str(name)] = LevelPrice(price["Link"], price.get("Switch"), price.get("Nic", 0.0))
    return levels


def load_cost(path: str | Path) -> CostModel:
    """Read a cost file in LIBRA's YAML form.

    Parameters
    ----------
    path : str or Path
        A block a cost level with ``Link`` and optional ``Switch`` and ``Nic``, in US dollars
        per GB/s (1e9 bytes/s). ``Npu`` (our own, US dollars each) may be beside them.

    Returns
    -------
    CostModel

    Raises
    ------
    InputError
        If the file cannot be read, a field is unknown, or a price is no number >= 0.
    """
    where = f"cost file {str(path)!r}"
    data = read_yaml(path, "cost file")
    npu = price_number(data.pop("Npu", 0.0), f"{where}: Npu")
    return CostModel(str(path), _levels(data, where), npu, where)


def default_cost() -> CostModel:
    """Return the built-in prices (see ``libra_prices.json`` for their source)."""
    table = files("topoopt.bandwidth.model") / "libra_prices.json"
    data = json.loads(table.read_text(encoding="utf-8"))
    levels = _levels(data["usd_per_gbyte_per_s"], "built-in prices")
    return CostModel(data["source"], levels, where="the built-in prices")


def cost_coefficients(network: MultiDimNetwork, cost: CostModel) -> npt.NDArray[np.float64]:
    """Return what one byte/s per NPU costs on each dimension, over the whole cluster.

    An NPU with bandwidth b on a dimension of n members buys links worth b in every block:
    a Ring has 2n links of b/2, FullyConnected n(n-1) of b/(n-1), a Switch n links of b with
    a NIC and a switch port each.

    Parameters
    ----------
    network : MultiDimNetwork
    cost : CostModel

    Returns
    -------
    float64 array, shape (dimensions,)
        US dollars per byte/s.

    Raises
    ------
    InputError
        If the cost model lacks a level of the network, or a switch price on a Switch level.

    References
    ----------
    Won et al., LIBRA, ISPASS 2024, section IV (network cost model).
    """
    rates = np.empty(network.dimensions)
    for d, (block, level) in enumerate(zip(network.blocks, network.levels, strict=True)):
        if level not in cost.levels:
            raise InputError(
                f"level {level!r} of dimension {d} (CostDimension in a network file) is not in "
                f"{cost.where}; name one of its levels there"
                + (f" ({', '.join(cost.levels)})" if cost.levels else "")
                + f", or give a cost file with the level {level!r}"
            )
        price = cost.levels[level]
        rates[d] = price.link
        if block == BuildingBlock.SWITCH:
            if price.switch is None:
                raise InputError(
                    f"level {level!r} has no Switch price in {cost.where}, but dimension {d} is a "
                    "Switch; add one"
                )
            rates[d] += price.switch + price.nic
    return rates * (network.npus / GBYTE)
