"""What any network costs: its parts counted cable by cable, priced from the table."""

from dataclasses import dataclass, replace
from math import isfinite

import numpy as np

from codesign_base import InputError
from routing.network import Network
from topoopt.problem.prices import LAYERS, MOST_USD, PriceTable

NO_LAYER = "none"


@dataclass(frozen=True, slots=True)
class Bill:
    """The parts of a network and their price.

    Parameters
    ----------
    cost : float
        US dollars.
    nic_ports, transceivers, switch_ports, layer_ports : int
        Parts; ``layer_ports`` are those of the patch panel or optical switch.
    cables : int
        Cables, each of two fibres; the ports of direct-connect servers have one each.
    """

    cost: float
    nic_ports: int
    transceivers: int
    switch_ports: int
    layer_ports: int
    cables: int


def network_bill(
    network: Network,
    prices: PriceTable,
    *,
    layer: str = "patch-panel",
    forwarders: int = 0,
    fibre_usd: float = 0.0,
) -> Bill:
    """Count and price the parts of a network.

    Parameters
    ----------
    network : Network
    prices : PriceTable
    layer : {"patch-panel", "ocs", "none"}
        What joins the ports of servers that are wired to each other; "none": fixed cables.
    forwarders : int
        The first so many switches are nodes by which servers forward: they cost nothing, and
        what leaves them leaves the server.
    fibre_usd : float
        US dollars of one cable. The price table knows no fibres, so by default they are free.

    Returns
    -------
    Bill

    Raises
    ------
    InputError
        If the layer is unknown or the fibre price negative.

    Notes
    -----
    Server to switch: a NIC port, two transceivers, a switch port. Switch to switch: two
    transceivers, two switch ports. Server to server: each end has a NIC port, a transceiver, a
    port of the layer and a cable to it (without layer: half a cable). Every cable is priced at
    its own rate.
    """
    if layer not in (*LAYERS, NO_LAYER):
        raise InputError(f"layer is {layer!r}; choose {', '.join((*LAYERS, NO_LAYER))}")
    if not 0 <= fibre_usd <= MOST_USD:
        raise InputError(
            f"fibre_usd is {fibre_usd}; give zero or more US dollars, at most {MOST_USD:g}"
        )
    hosts = network.hosts
    node = np.arange(network.nodes)
    node[hosts : hosts + forwarders] = np.arange(forwarders)
    source, target = node[network.source], node[network.target]
    rate = network.capacity / network.multiplicity
    # Rates that were added up from equal cables differ in the last digit.
    rate = np.array([float(f"{r:.12g}") for r in rate.tolist()])
    cost, nics, transceivers, switch_ports, layer_ports, cables = 0.0, 0, 0, 0, 0, 0
    for each in np.unique(rate).tolist():
        here = (rate == each) & (source != target)
        a, b, many = source[here], target[here], network.multiplicity[here]
        direct = (a < hosts) & (b < hosts)
        sent = np.bincount(a[direct], weights=many[direct], minlength=hosts)
        received = np.bincount(b[direct], weights=many[direct], minlength=hosts)
        ports = int(np.maximum(sent, received).sum())
        access = int(many[(a < hosts) & (b >= hosts)].sum())
        trunks = int(many[(a >= hosts) & (b > a)].sum())
        parts = {
            "nic": ports + access,
            "transceiver": ports + 2 * (access + trunks),
            "switch-port": access + 2 * trunks,
        }
        if layer != NO_LAYER:
            parts[LAYERS[layer]] = ports
        cost += sum(count * prices.price(part, each) for part, count in parts.items() if count)
        nics += parts["nic"]
        transceivers += parts["transceiver"]
        switch_ports += parts["switch-port"]
        layer_ports += ports if layer != NO_LAYER else 0
        cables += access + trunks + (ports if layer != NO_LAYER else -(-ports // 2))
    return Bill(cost + cables * fibre_usd, nics, transceivers, switch_ports, layer_ports, cables)


def equal_cost_bandwidth(
    network: Network,
    bandwidth: float,
    target_cost: float,
    prices: PriceTable,
    forwarders: int = 0,
    layer: str = "patch-panel",
) -> float:
    """Return the port bandwidth at which a network costs a given sum, all links in proportion.

    Parameters
    ----------
    network : Network
    bandwidth : float
        Bytes per second of a server's port in this network.
    target_cost : float
        US dollars.
    prices, forwarders, layer
        As in `network_bill`.

    Returns
    -------
    float
        Bytes per second; the largest of that cost (to within rounding).

    Raises
    ------
    InputError
        If a number is out of range, or no bandwidth costs that little or that much.

    Notes
    -----
    Prices do not fall with the rate, so bisection over the rate finds it.
    """
    if not (target_cost > 0 and isfinite(target_cost)):
        raise InputError(f"target cost is {target_cost} USD; give a positive number")

    def cost(factor: float) -> float:
        scaled = replace(network, capacity=network.capacity * factor)
        return network_bill(scaled, prices, forwarders=forwarders, layer=layer).cost

    low, high = 1e-6, 1e6
    if cost(low) > target_cost or cost(high) < target_cost:
        raise InputError(
            f"network {network.name!r} costs {cost(low):.4g} to {cost(high):.4g} USD at any "
            f"bandwidth in reach, not {target_cost:.4g}; give another sum"
        )
    while high / low > 1.0 + 1e-12:
        middle = (low * high) ** 0.5
        if cost(middle) > target_cost:
            high = middle
        else:
            low = middle
    return low * bandwidth
