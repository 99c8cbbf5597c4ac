"""Routes of ordered host pairs, as weighted link lists in one sparse table."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats, Ints
from codesign_base.rows import spread, starts, summed
from routing.network import Network

EVERY_PAIR_UP_TO = 128
"""Hosts up to which routes of all pairs are worked out and recorded: beyond, they fill memory."""


@dataclass(frozen=True, eq=False)
class Routes:
    """For ordered host pairs, the links that their traffic uses and in what proportion.

    Row ``source * hosts + target`` of the table lists links with weights; a flow of rate r puts
    ``weight * r`` on each. Traffic of a pair may be split over several paths; then weights are
    path fractions summed per link. The rows of pairs (v, v) are empty. A table may list some
    pairs only: then a row is a place in ``pairs``.

    Parameters
    ----------
    hosts : int
        Number of hosts.
    offsets : int64 array, shape (rows + 1,)
        Row boundaries; ``hosts * hosts`` rows, or one for each of ``pairs``.
    links : int64 array, shape (entries,)
        Link indices of a `Network`, ascending within a row.
    weights : float64 array, shape (entries,)
        Fractions in (0, 1].
    latency : float64 array, shape (rows,)
        Seconds of the slowest path in use (zero on the diagonal).
    hops : float64 array, shape (rows,)
        Mean number of links a byte crosses (sum of the row's weights).
    pairs : int64 array, shape (rows,), optional
        The pairs listed, ascending, as ``source * hosts + target``; by default all.
    more : callable, optional
        Makes the routes of further pairs, given as keyword ``pairs``.
    """

    hosts: int
    offsets: Ints
    links: Ints
    weights: Floats
    latency: Floats
    hops: Floats
    pairs: Ints | None = None
    more: "Callable[..., Routes] | None" = None

    def __post_init__(self) -> None:
        rows = self.hosts * self.hosts if self.pairs is None else self.pairs.size
        shapes = (self.offsets.shape, self.latency.shape, self.hops.shape)
        if shapes != ((rows + 1,), (rows,), (rows,)) or self.links.shape != self.weights.shape:
            raise InputError(f"routes for {self.hosts} hosts have inconsistent shapes {shapes}")
        if self.pairs is not None:
            if np.any(np.diff(self.pairs) <= 0):
                raise InputError("routes: the pairs do not ascend; list each once, in order")
            self.pairs.setflags(write=False)
        for array in (self.offsets, self.links, self.weights, self.latency, self.hops):
            array.setflags(write=False)

    @classmethod
    def on_demand(cls, hosts: int, make: "Callable[..., Routes]") -> "Routes":
        """Return routes that are made when they are asked for.

        Parameters
        ----------
        hosts : int
        make : callable
            A router of a network: returns the routes of the ``pairs`` that it is given by that
            name, and of all pairs by default.

        Returns
        -------
        Routes
            None are listed yet.
        """
        none = np.zeros(0, dtype=np.int64)
        empty = np.zeros(0)
        return cls(hosts, np.zeros(1, np.int64), none, empty, empty, empty, none, make)

    @classmethod
    def of_all(cls, hosts: int, make: "Callable[..., Routes]") -> "Routes":
        """Return routes of all pairs of up to `EVERY_PAIR_UP_TO` hosts, and on demand of more.

        Parameters
        ----------
        hosts, make
            As `on_demand` takes them.

        Returns
        -------
        Routes
        """
        return make() if tabled(hosts) else cls.on_demand(hosts, make)

    @cached_property
    def listed(self) -> Ints:
        """The pair of each row."""
        return np.arange(self.hosts * self.hosts) if self.pairs is None else self.pairs

    def rows(self, pairs: Ints) -> Ints:
        """Return the row of each pair, any shape; -1 if it is not listed."""
        if self.pairs is None:
            return pairs
        if not self.pairs.size:
            return np.full(pairs.shape, -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.pairs, pairs), self.pairs.size - 1)
        return np.where(self.pairs[at] == pairs, at, -1)

    def of(self, pairs: Ints) -> "Routes":
        """Return a table that lists some pairs.

        Parameters
        ----------
        pairs : int64 array
            Ascending. Those that are neither listed nor can be made have empty rows.

        Returns
        -------
        Routes
        """
        rows = self.rows(pairs)
        missing = rows < 0
        table = self
        if missing.any() and self.more is not None:
            table = _joined(self, self.more(pairs=pairs[missing]))
            rows = table.rows(pairs)
            missing = rows < 0
        counts = np.where(missing, 0, np.diff(table.offsets)[rows] if table.listed.size else 0)
        at = spread(table.offsets[np.maximum(rows, 0)], counts)
        latency, hops = (
            np.where(missing, 0.0, values[rows] if values.size else 0.0)
            for values in (table.latency, table.hops)
        )
        links, weights = table.links[at], table.weights[at]
        return Routes(self.hosts, starts(counts), links, weights, latency, hops, pairs)

    def complete(self) -> "Routes":
        """Return a table of all pairs."""
        if self.pairs is None:
            return self
        if not self.pairs.size and self.more is not None:
            return self.more()
        return replace(self.of(np.arange(self.hosts * self.hosts)), pairs=None)

    def row(self, source: int, target: int) -> tuple[Ints, Floats]:
        """Return the links and weights of one ordered pair."""
        pair = source * self.hosts + target
        if self.pairs is not None:
            only = self.of(np.array([pair]))
            return only.links, only.weights
        start, stop = self.offsets[pair], self.offsets[pair + 1]
        return self.links[start:stop], self.weights[start:stop]

    def like(self, other: "Routes") -> bool:
        """Whether another table has the same links, and weights and latencies within rounding."""
        return (
            np.array_equal(self.listed, other.listed)
            and np.array_equal(self.offsets, other.offsets)
            and np.array_equal(self.links, other.links)
            and np.allclose(self.weights, other.weights, rtol=0.0, atol=1e-9)
            and np.allclose(self.latency, other.latency, rtol=1e-9, atol=0.0)
        )

    def link_bytes(self, network: Network, traffic: Floats) -> Floats:
        """Return the bytes that a (hosts, hosts) demand matrix puts on each link."""
        sent = np.flatnonzero(traffic)
        rows = self.rows(sent)
        if rows.size and rows.min() < 0:
            return self.of(sent).link_bytes(network, traffic)
        counts = np.diff(self.offsets)[rows]
        at = spread(self.offsets[rows], counts)
        per_entry = np.repeat(traffic.ravel()[sent], counts) * self.weights[at]
        return summed(self.links[at], per_entry, network.links)


def tabled(hosts: int) -> bool:
    """Whether routes of all pairs are worked out and recorded (else those in use)."""
    return hosts <= EVERY_PAIR_UP_TO


def _joined(one: Routes, other: Routes) -> Routes:
    """Return one table of two that list different pairs."""
    listed = np.concatenate((one.listed, other.listed))
    order = np.argsort(listed)
    counts = np.concatenate((np.diff(one.offsets), np.diff(other.offsets)))[order]
    begin = np.concatenate((one.offsets[:-1], other.offsets[:-1] + one.links.size))[order]
    at = spread(begin, counts)
    links, weights = (
        np.concatenate((getattr(one, name), getattr(other, name)))[at]
        for name in ("links", "weights")
    )
    latency, hops = (
        np.concatenate((getattr(one, name), getattr(other, name)))[order]
        for name in ("latency", "hops")
    )
    return Routes(one.hosts, starts(counts), links, weights, latency, hops, listed[order], one.more)
