"""Cables in both directions, and the checks that all builders share."""

from math import isfinite

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats, Ints
from codesign_base.counted import counted
from routing.network import Network
from topoopt.topology.wiring import DegreeTooSmallError


def check_rates(hosts: int, bandwidth: float, latency: float, least: int = 2) -> None:
    """Check what all fabrics take.

    Parameters
    ----------
    hosts : int
    bandwidth : float
        Bytes/s of a cable.
    latency : float
        Seconds of a link.
    least : int
        Hosts that there must be.

    Raises
    ------
    InputError
        If there are fewer hosts than the least, or a number is out of range.
    """
    if hosts < least:
        raise InputError(f"a network of {counted(hosts, 'server')}; give at least {least}")
    if not (bandwidth > 0 and isfinite(bandwidth)):
        raise InputError(f"bandwidth is {bandwidth} bytes/s; give a positive number")
    if not (latency >= 0 and isfinite(latency)):
        raise InputError(f"latency is {latency} s; give zero or more")


def both_ways(
    name: str,
    hosts: int,
    switches: int,
    low: Ints,
    high: Ints,
    capacity: float | Floats,
    latency: float,
    count: int | Ints = 1,
) -> Network:
    """Return a network of cables that carry both directions.

    Parameters
    ----------
    name, hosts, switches
        As in `Network`.
    low, high : int64 array
        Ends of each cable, or bundle of cables.
    capacity : float or array
        Bytes/s of one cable in each direction.
    latency : float
        Seconds.
    count : int or array
        Cables of each bundle.
    """
    many = np.broadcast_to(np.asarray(count, dtype=np.int64), low.shape)
    rate = np.repeat(np.broadcast_to(np.asarray(capacity, dtype=np.float64), low.shape), many)
    one, other = np.repeat(low, many), np.repeat(high, many)
    return Network.from_links(
        name,
        hosts,
        switches,
        np.concatenate((one, other)),
        np.concatenate((other, one)),
        np.concatenate((rate, rate)),
        latency,
    )


def check_degree(name: str, needed: int, degree: int | None) -> None:
    """Check that servers have the ports that a fabric needs.

    Raises
    ------
    DegreeTooSmallError
    """
    if degree is not None and degree < needed:
        raise DegreeTooSmallError(
            f"{name} needs {needed} ports a server, degree is {degree}; give at least {needed}"
        )
