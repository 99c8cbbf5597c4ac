"""Component prices and what fabrics cost, so that fabrics of equal cost can be compared.

The default table ships as ``prices.json``; a user replaces it by a file of the same form.
Fibre is not priced: every fabric needs about one cable a port.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any

from codesign_base import InputError
from codesign_base.arguments import check_kind, is_number, several, told
from parallelism.reading import parse_json, read_text, schema_fault
from topoopt.problem.fat_tree_sizes import fat_tree_size
from topoopt.problem.units import BYTES_PER_GBIT

COMPONENTS = ("transceiver", "nic", "switch-port", "ocs-port", "patch-panel-port")
LAYERS = {"patch-panel": "patch-panel-port", "ocs": "ocs-port"}
MOST_USD = 1e12
"""Of one price: far above any, and far from where sums of products overflow."""
_LEAST_RATE = 1e-9 * BYTES_PER_GBIT
PRICES_EXAMPLE = "a table, such as topoopt.problem.prices.load_prices('prices.json')"


def _pairs(component: str, points: Any) -> tuple[tuple[float, float], ...]:
    wanted = "pairs of bytes/s and US dollars"
    for point in several(f"price table: {component}", points, wanted):
        if not (isinstance(point, tuple | list) and [*map(is_number, point)] == [True, True]):
            raise InputError(f"price table: {component} has {told(point)}; give {wanted}")
    return tuple((float(rate), float(usd)) for rate, usd in points)


@dataclass(frozen=True)
class PriceTable:
    """US dollars of one port of each component, at the rates where they are known.

    Parameters
    ----------
    source : str
        Where the prices come from.
    usd : mapping of str to tuple of (float, float)
        For each of `COMPONENTS`, (bytes/s, US dollars) by increasing rate; prices must not
        fall with the rate.

    Raises
    ------
    InputError
        If a component is missing or unknown, or a rate or price is out of range.
    """

    source: str
    usd: Mapping[str, tuple[tuple[float, float], ...]]

    def __post_init__(self) -> None:
        check_kind("price table: source", self.source, str, "a text")
        check_kind("price table: usd", self.usd, Mapping, "points by component")
        if set(self.usd) != set(COMPONENTS):
            odd = sorted(set(self.usd) ^ set(COMPONENTS))
            raise InputError(
                f"price table: {', '.join(odd)} missing or unknown; give {', '.join(COMPONENTS)}"
            )
        known = {name: _pairs(name, points) for name, points in self.usd.items()}
        object.__setattr__(self, "usd", known)
        for component, points in known.items():
            rates = [rate for rate, _ in points]
            if not points or rates != sorted(set(rates)) or rates[0] <= 0:
                raise InputError(f"price table: {component} needs one or more distinct rates > 0")
            prices = [usd for _, usd in points]
            if prices != sorted(prices) or prices[0] < 0 or not all(map(isfinite, prices + rates)):
                raise InputError(
                    f"price table: {component} costs {prices} USD by rate; "
                    "give finite prices of zero or more that do not fall with the rate"
                )
            # Beyond the known rates prices are in proportion to the rate, so a small one counts.
            if prices[-1] > MOST_USD or rates[0] < _LEAST_RATE:
                raise InputError(
                    f"price table: {component} costs {prices[-1]:g} USD, and its lowest rate is "
                    f"{rates[0] / BYTES_PER_GBIT:g} Gbps; give prices of at most {MOST_USD:g} USD "
                    f"and rates of at least {_LEAST_RATE / BYTES_PER_GBIT:g} Gbps"
                )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "PriceTable":
        """Read the form of the price file.

        Raises
        ------
        InputError
            If a field is missing, unknown or of the wrong type.
        """
        from pydantic import BaseModel, ConfigDict, ValidationError

        class PriceFile(BaseModel):
            model_config = ConfigDict(extra="forbid", strict=True)
            source: str
            usd_per_port_by_gbps: dict[str, dict[str, float]]

        try:
            read = PriceFile.model_validate(dict(data))
        except ValidationError as error:
            raise InputError(f"price table: {schema_fault(error)}") from None
        usd = {}
        for component, points in read.usd_per_port_by_gbps.items():
            try:
                rates = [(float(gbps) * BYTES_PER_GBIT, price) for gbps, price in points.items()]
            except ValueError:
                raise InputError(
                    f"price table: {component} has rates {', '.join(points)}; "
                    'write them in Gbps, such as "100"'
                ) from None
            usd[component] = tuple(sorted(rates))
        return cls(read.source, usd)

    def to_dict(self) -> dict[str, Any]:
        """Return the form of the price file."""
        return {
            "source": self.source,
            "usd_per_port_by_gbps": {
                component: {f"{rate / BYTES_PER_GBIT:.15g}": usd for rate, usd in points}
                for component, points in self.usd.items()
            },
        }

    def price(self, component: str, bandwidth: float) -> float:
        """Return US dollars of one port: linear between known rates, proportional outside.

        Parameters
        ----------
        component : str
            One of `COMPONENTS`.
        bandwidth : float
            Bytes per second, positive.

        Raises
        ------
        InputError
            If the component is unknown or the bandwidth not positive.
        """
        points = self._points(component, bandwidth)
        low_rate, low = points[0]
        high_rate, high = points[-1]
        if bandwidth <= low_rate:
            return low * bandwidth / low_rate
        if bandwidth >= high_rate:
            return high * bandwidth / high_rate
        for (r0, p0), (r1, p1) in pairwise(points):
            if bandwidth <= r1:
                return p0 + (p1 - p0) * (bandwidth - r0) / (r1 - r0)
        return high

    def note(self, *bandwidths: float) -> str:
        """Return a sentence that names the rates outside the known prices; "" without any."""
        lowest = max(points[0][0] for points in self.usd.values())
        highest = min(points[-1][0] for points in self.usd.values())
        beyond = sorted({rate for rate in bandwidths if not lowest <= rate <= highest})
        # Rates that are written alike are named once.
        told = list(dict.fromkeys(f"{rate / BYTES_PER_GBIT:.4g}" for rate in beyond))
        if not told:
            return ""
        rates = " and ".join(filter(None, (", ".join(told[:-1]), told[-1])))
        return (
            f"prices at {rates} Gbps are extrapolated in proportion to "
            f"bandwidth (known: {lowest / BYTES_PER_GBIT:.4g} to "
            f"{highest / BYTES_PER_GBIT:.4g} Gbps)"
        )

    def _points(self, component: str, bandwidth: float) -> tuple[tuple[float, float], ...]:
        if component not in self.usd:
            raise InputError(f"component {component!r}; choose {', '.join(COMPONENTS)}")
        if not (bandwidth > 0 and isfinite(bandwidth)):
            raise InputError(f"bandwidth is {bandwidth} bytes/s; give a positive number")
        return self.usd[component]


@cache
def default_prices() -> PriceTable:
    """Return the table that ships with the package."""
    return load_prices(Path(__file__).with_name("prices.json"))


def load_prices(path: str | Path) -> PriceTable:
    """Read a price file (JSON: ``source`` and ``usd_per_port_by_gbps``).

    Raises
    ------
    InputError
        If the file cannot be read or is not a valid price table.
    """
    data = parse_json(read_text(path, "price file"), f"price file {str(path)!r}")
    if not isinstance(data, dict):
        raise InputError(
            f"price file {str(path)!r}: holds no JSON object; give source and usd_per_port_by_gbps"
        )
    try:
        return PriceTable.from_dict(data)
    except InputError as error:
        raise InputError(f"price file {str(path)!r}: {error}") from None


def direct_connect_cost(
    servers: int,
    degree: int,
    bandwidth: float,
    prices: PriceTable,
    layer: str = "patch-panel",
) -> float:
    """Return US dollars of a direct-connect fabric (TopoOpt, or an expander).

    Parameters
    ----------
    servers, degree : int
    bandwidth : float
        Bytes per second of a port.
    prices : PriceTable
    layer : {"patch-panel", "ocs"}
        What joins the ports.

    Returns
    -------
    float
        servers x degree x (NIC + transceiver + port of the layer); nothing for one server, which
        has no network.

    Raises
    ------
    InputError
        If the layer is unknown or a number out of range.
    """
    _check_count(servers, "servers")
    _check_count(degree, "ports a server")
    if layer not in LAYERS:
        raise InputError(f"layer is {layer!r}; choose {' or '.join(LAYERS)}")
    if servers == 1:
        return 0.0
    parts = ("nic", "transceiver", LAYERS[layer])
    return servers * degree * sum(prices.price(part, bandwidth) for part in parts)


def fat_tree_cost(
    hosts: int, bandwidth: float, prices: PriceTable, oversubscription: float = 1.0
) -> float:
    """Return US dollars of the fat-tree that `topoopt.topology.fabrics.fat_tree` builds.

    Parameters
    ----------
    hosts : int
    bandwidth : float
        Bytes per second of a host's link.
    prices : PriceTable
    oversubscription : float
        Above the racks there are this many times fewer cables, of the same rate. (The network
        model gives every cable less bandwidth instead, which is the same to the flows.)

    Returns
    -------
    float
        A NIC a host, a transceiver at each end of every cable, a port at each switch end.

    Raises
    ------
    InputError
        If a number is out of range.
    """
    if not (oversubscription >= 1 and isfinite(oversubscription)):
        raise InputError(f"oversubscription is {oversubscription}; give 1 (none) or more")
    size = fat_tree_size(hosts)
    upper = (size.edge_cables + size.core_cables) / oversubscription
    return (
        hosts * prices.price("nic", bandwidth)
        + 2 * (hosts + upper) * prices.price("transceiver", bandwidth)
        + (hosts + 2 * upper) * prices.price("switch-port", bandwidth)
    )


def equal_cost_fat_tree_bandwidth(
    target_cost: float, hosts: int, prices: PriceTable, oversubscription: float = 1.0
) -> float:
    """Return the bandwidth at which a fat-tree costs a given sum.

    Parameters
    ----------
    target_cost : float
        US dollars.
    hosts : int
    prices : PriceTable
    oversubscription : float

    Returns
    -------
    float
        Bytes per second of a host's link.

    Raises
    ------
    InputError
        If a number is out of range, or the table has only zero prices.

    Notes
    -----
    The cost grows with bandwidth, linearly between the rates of the table and in proportion
    below the lowest and above the highest, so the solution is exact. Where prices do not grow,
    it is the largest bandwidth of that cost.
    """
    if not (target_cost > 0 and isfinite(target_cost)):
        raise InputError(f"target cost is {target_cost} USD; give a positive number")
    parts = ("nic", "transceiver", "switch-port")
    rates = sorted({rate for part in parts for rate, _ in prices.usd[part]})
    costs = [fat_tree_cost(hosts, rate, prices, oversubscription) for rate in rates]
    if costs[-1] <= 0:
        raise InputError("price table: a fat-tree costs nothing, so no bandwidth has equal cost")
    if target_cost >= costs[-1]:
        return rates[-1] * target_cost / costs[-1]
    if target_cost < costs[0]:
        return rates[0] * target_cost / costs[0]
    above = next(i for i, cost in enumerate(costs) if cost > target_cost)
    r0, r1, c0, c1 = rates[above - 1], rates[above], costs[above - 1], costs[above]
    return r0 + (r1 - r0) * (target_cost - c0) / (c1 - c0)


def _check_count(count: int, what: str) -> None:
    """Check that there is at least one."""
    if count < 1:
        raise InputError(f"cost of {count} {what}; give at least 1")
