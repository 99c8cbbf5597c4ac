"""An immutable directed network of hosts and switches, held in arrays."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from codesign_base.arrays import Floats, Ints
from codesign_base.rows import starts, summed

NodePath = tuple[int, ...]
"""Nodes from a source to a target, both of them named."""

_ARRAYS = ("source", "target", "capacity", "latency", "multiplicity")


@dataclass(frozen=True, eq=False)
class Network:
    """Directed links between hosts (nodes ``0 .. hosts-1``) and switches (the nodes after).

    Links are unique per ordered node pair: parallel cables are one link whose ``multiplicity``
    counts them and whose capacity is their sum.

    Parameters
    ----------
    name : str
        What the network is called in tables; not empty.
    hosts, switches : int
        Number of hosts (servers) and of switches.
    source, target : int64 array, shape (links,)
        End nodes of each link, sorted by (source, target).
    capacity : float64 array, shape (links,)
        Bytes per second, positive and finite.
    latency : float64 array, shape (links,)
        Seconds for one hop, not negative.
    multiplicity : int64 array, shape (links,)
        Number of parallel cables behind each link.

    Raises
    ------
    InputError
        If the name is empty, an array has the wrong shape, a node does not exist, a link is a
        self-loop or occurs twice, or a capacity or latency is out of range.

    Examples
    --------
    >>> from routing.network import Network
    >>> pair = Network.from_links("pair", 2, 0, [0, 0, 1], [1, 1, 0], 12.5e9, 1e-6)
    >>> pair.capacity.tolist(), pair.multiplicity.tolist()
    ([25000000000.0, 12500000000.0], [2, 1])
    """

    name: str
    hosts: int
    switches: int
    source: Ints
    target: Ints
    capacity: Floats
    latency: Floats
    multiplicity: Ints

    def __post_init__(self) -> None:
        links = self.source.shape
        for field in _ARRAYS:
            array = getattr(self, field)
            if array.shape != links or array.ndim != 1:
                raise InputError(
                    f"network {self.name!r}: {field} has shape {array.shape}, expected {links}"
                )
            if not array.flags.c_contiguous:  # kernels are compiled for one layout
                array = array.copy()
                object.__setattr__(self, field, array)
            array.setflags(write=False)
        if not self.name:
            raise InputError("network: the name is ''; give it one, such as 'pod'")
        if self.hosts < 1 or self.switches < 0:
            raise InputError(
                f"network {self.name!r}: {self.hosts} hosts and {self.switches} switches; "
                "give at least one host"
            )
        nodes = self.hosts + self.switches
        for field in ("source", "target"):
            array = getattr(self, field)
            if array.size and (array.min() < 0 or array.max() >= nodes):
                raise InputError(
                    f"network {self.name!r}: a {field} lies outside 0..{nodes - 1}; "
                    "links must join existing nodes"
                )
        if np.any(self.source == self.target):
            node = int(self.source[self.source == self.target][0])
            raise InputError(
                f"network {self.name!r}: link {node}->{node} is a self-loop; remove it"
            )
        keys = self.source * nodes + self.target
        if np.any(np.diff(keys) <= 0):
            raise InputError(
                f"network {self.name!r}: links must be unique and sorted by (source, target); "
                "build the network with Network.from_links"
            )
        if not np.all((self.capacity > 0) & np.isfinite(self.capacity)):
            bad = int(np.flatnonzero(~((self.capacity > 0) & np.isfinite(self.capacity)))[0])
            raise InputError(
                f"network {self.name!r}: link {self.source[bad]}->{self.target[bad]} has capacity "
                f"{self.capacity[bad]} bytes/s; give a positive number"
            )
        if not np.all((self.latency >= 0) & np.isfinite(self.latency)):
            bad = int(np.flatnonzero(~((self.latency >= 0) & np.isfinite(self.latency)))[0])
            raise InputError(
                f"network {self.name!r}: link {self.source[bad]}->{self.target[bad]} has latency "
                f"{self.latency[bad]} s; give zero or more"
            )
        if np.any(self.multiplicity < 1):
            raise InputError(f"network {self.name!r}: every multiplicity must be at least 1")

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Arrays that were pickled may be written to again, and kernels are compiled anew for such.
        self.__dict__.update(state)
        for field in _ARRAYS:
            getattr(self, field).setflags(write=False)

    @classmethod
    def from_links(
        cls,
        name: str,
        hosts: int,
        switches: int,
        source: npt.ArrayLike,
        target: npt.ArrayLike,
        capacity: npt.ArrayLike,
        latency: npt.ArrayLike,
    ) -> "Network":
        """Build a network from a list of cables in any order, merging parallel ones.

        Parameters
        ----------
        name, hosts, switches
            As in `Network`.
        source, target : array_like of int
            One entry a directed cable; parallel cables repeat.
        capacity, latency : array_like of float
            Bytes per second and seconds of each cable (or one value for all). Merged cables
            add their capacities and keep the largest latency.

        Returns
        -------
        Network
        """
        src = np.asarray(source, dtype=np.int64).ravel()
        dst = np.asarray(target, dtype=np.int64).ravel()
        cap = np.broadcast_to(np.asarray(capacity, dtype=np.float64), src.shape)
        lat = np.broadcast_to(np.asarray(latency, dtype=np.float64), src.shape)
        nodes = hosts + switches
        keys, inverse = np.unique(src * nodes + dst, return_inverse=True)
        merged_latency = np.full(keys.size, -np.inf)
        np.maximum.at(merged_latency, inverse, lat)
        return cls(
            name=name,
            hosts=hosts,
            switches=switches,
            source=keys // nodes,
            target=keys % nodes,
            capacity=summed(inverse, cap, keys.size),
            latency=merged_latency,
            multiplicity=np.bincount(inverse, minlength=keys.size).astype(np.int64),
        )

    @property
    def nodes(self) -> int:
        """Number of hosts and switches together."""
        return self.hosts + self.switches

    @property
    def links(self) -> int:
        """Number of (merged) directed links."""
        return int(self.source.size)

    @cached_property
    def out_offsets(self) -> Ints:
        """CSR offsets: links of node v are ``out_offsets[v] .. out_offsets[v + 1]``."""
        counts = np.bincount(self.source, minlength=self.nodes)
        return starts(counts)

    @cached_property
    def _index(self) -> dict[tuple[int, int], int]:
        pairs = zip(self.source.tolist(), self.target.tolist(), strict=True)
        return {pair: link for link, pair in enumerate(pairs)}

    def link(self, source: int, target: int) -> int:
        """Return the index of the link from one node to another.

        Raises
        ------
        InputError
            If there is no such link.
        """
        try:
            return self._index[source, target]
        except KeyError:
            raise InputError(f"network {self.name!r} has no link {source}->{target}") from None

    def has_link(self, source: int, target: int) -> bool:
        """Say whether a link joins the two nodes in this direction."""
        return (source, target) in self._index

    def out_degree(self) -> Ints:
        """Return transmit ports in use at each node, parallel cables counted."""
        return np.bincount(self.source, weights=self.multiplicity, minlength=self.nodes).astype(
            np.int64
        )

    def in_degree(self) -> Ints:
        """Return receive ports in use at each node, parallel cables counted."""
        return np.bincount(self.target, weights=self.multiplicity, minlength=self.nodes).astype(
            np.int64
        )

    def out_rate(self) -> Floats:
        """Return the bytes/s of all links out of each node."""
        return summed(self.source, self.capacity, self.nodes)

    def in_rate(self) -> Floats:
        """Return the bytes/s of all links into each node."""
        return summed(self.target, self.capacity, self.nodes)
