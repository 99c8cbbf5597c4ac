"""The links of GPUs inside and across servers, and the time of collectives over them."""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, log2
from typing import Literal

from codesign_base import InputError
from codesign_base.arguments import check_fractions, check_not_negative
from parallelism.accelerators import Accelerator, scale_up_of
from parallelism.device import Server

CollectiveKind = Literal["allreduce", "reducescatter", "allgather", "alltoall", "ring", "send"]

# GPUs of a server that none is outside of.
_EVERY = 2**40


@dataclass(frozen=True)
class Links:
    """What each GPU can send, inside its server and to others.

    Parameters
    ----------
    gpus : int
        GPUs of a server.
    intra_bandwidth, inter_bandwidth : float
        Bytes/s of one GPU each way: to the others of its server together, and to other servers.
    intra_efficiency, inter_efficiency : float
        Fractions of these that long messages reach.
    intra_latency, inter_latency : float
        Seconds of one step of a collective.
    """

    gpus: int
    intra_bandwidth: float
    inter_bandwidth: float
    intra_efficiency: float = 1.0
    inter_efficiency: float = 1.0
    intra_latency: float = 0.0
    inter_latency: float = 0.0

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise InputError(f"links: gpus is {self.gpus}; give at least 1")
        for name in ("intra_bandwidth", "inter_bandwidth"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise InputError(f"links: {name} is {value} bytes/s; give a positive number")
        check_fractions("links", self, ("intra_efficiency", "inter_efficiency"))
        latencies = ("intra_latency", "inter_latency")
        check_not_negative("links", self, latencies, "zero or more seconds")

    @classmethod
    def of_server(cls, server: Server, inter_bandwidth: float) -> "Links":
        """Return the links of a server whose NICs have ``inter_bandwidth`` bytes/s together.

        `Server.intra_bandwidth` is of one link of a full mesh; a GPU has ``gpus - 1`` of them.
        Efficiencies and latencies are those of `switched_links`.
        """
        mesh = max(1, server.gpus - 1) * server.intra_bandwidth
        return switched_links(server.gpus, mesh, inter_bandwidth / server.gpus)

    def rates(self) -> tuple[float, float]:
        """Return the bytes/s that one GPU reaches inside and across servers."""
        return (
            self.intra_bandwidth * self.intra_efficiency,
            self.inter_bandwidth * self.inter_efficiency,
        )


@lru_cache(maxsize=64)
def near_links(server: Server) -> Links:
    """Return the links of a server that all GPUs are on: no message leaves it.

    Parameters
    ----------
    server : Server
    """
    return replace(Links.of_server(server, 1.0), gpus=_EVERY)


def switched_links(gpus: int, intra_bandwidth: float, inter_bandwidth: float) -> Links:
    """Return links with the efficiencies and latencies that published runs were met with.

    Parameters
    ----------
    gpus : int
        GPUs of a server.
    intra_bandwidth, inter_bandwidth : float
        Bytes/s of one GPU each way, by data sheet; a NIC of 200 Gbit/s a GPU has 25e9.

    Returns
    -------
    Links
        Inside a server 0.75 of the bandwidth (fitted with the rates of A100, see
        `gpu.rates_of`) and 3 us a step; across servers 0.8 and 10 us (set, not fitted).
    """
    return Links(gpus, intra_bandwidth, inter_bandwidth, 0.75, 0.8, 3e-6, 10e-6)


def links_of(accelerator: Accelerator | str, gpus: int, inter_bandwidth: float) -> Links:
    """Return the links of servers whose GPUs are joined by a switch; see `scale_up_of`.

    Parameters
    ----------
    accelerator : Accelerator or str
        A record, or a name that `get_accelerator` knows.
    gpus : int
        GPUs of a server.
    inter_bandwidth : float
        Bytes/s of one GPU's share of the NICs, each way.

    Raises
    ------
    InputError
        If the name is unknown, or its scale-up domain.
    """
    return switched_links(gpus, scale_up_of(accelerator).bandwidth, inter_bandwidth)


@dataclass(frozen=True, slots=True)
class GroupPlacement:
    """How a group of ranks lies on servers.

    Parameters
    ----------
    size : int
        Ranks of the group.
    inside : int
        Of these on one server.
    """

    size: int
    inside: int

    @property
    def servers(self) -> int:
        """Servers that the group touches."""
        return ceil(self.size / self.inside)


def group_placement_of(size: int, stride: int, gpus: int) -> GroupPlacement:
    """Return how a group of ranks ``stride`` apart lies on servers of ``gpus`` ranks each."""
    return GroupPlacement(size, max(1, min(size, gpus // stride)))


def sent_bytes(kind: CollectiveKind, size: float, ranks: int) -> float:
    """Return the bytes that each rank of a group sends.

    Parameters
    ----------
    kind : {"allreduce", "reducescatter", "allgather", "alltoall", "ring", "send"}
    size : float
        ALLREDUCE: bytes of the buffer. REDUCESCATTER: bytes before it on each rank. ALLGATHER:
        bytes after it. ALLTOALL: bytes of each rank for all ranks, itself included. RING: bytes
        of the chunk that every rank passes on until all have seen it. SEND: bytes.
    ranks : int

    Returns
    -------
    float
        On a ring, for the first three: ``2 (g - 1) / g``, ``(g - 1) / g``, ``(g - 1) / g`` of it.
    """
    if ranks == 1 and kind != "send":
        return 0.0
    share = (ranks - 1) / ranks
    factors = {"allreduce": 2 * share, "ring": ranks - 1.0, "send": 1.0}
    return size * factors.get(kind, share)


def collective_seconds(
    kind: CollectiveKind,
    size: float,
    span: GroupPlacement,
    links: Links,
    crossing: float | None = None,
) -> float:
    """Return the seconds of one collective over a group, alone on its links.

    Parameters
    ----------
    kind : {"allreduce", "reducescatter", "allgather", "alltoall", "ring", "send"}
    size : float
        As in `sent_bytes`.
    span : GroupPlacement
    links : Links
    crossing : float, optional
        Of an all-to-all whose messages cross to each server once and are forwarded inside: what
        crosses, over the bytes that would.

    Returns
    -------
    float
        Rings use the NICs of all members on a server side by side. All-to-all: the slower of
        what stays in servers and what leaves them. Latency is counted by steps; an AllReduce
        across servers goes up and down a tree.
    """
    if span.size == 1 and kind != "send":
        return 0.0
    intra, inter = links.rates()
    sent = sent_bytes(kind, size, span.size)
    across = span.servers > 1
    if kind in ("send", "ring"):
        hops = 1 if kind == "send" else span.size - 1
        rate = inter if across else intra
        return sent / rate + hops * (links.inter_latency if across else links.intra_latency)
    if kind == "alltoall":
        near = size * (span.inside - 1) / span.size / intra
        far = size * (span.size - span.inside) / span.size / inter
        if crossing is not None and across:
            # All arrive inside by forwarding, from whatever server they are.
            near, far = size * (span.inside - 1) / span.inside / intra, far * crossing
        return max(near, far) + (links.inter_latency if across else links.intra_latency)
    moving = sent / intra if span.inside > 1 else 0.0
    if across:
        moving = max(moving, sent / (span.inside * inter))
    near_steps = span.inside - 1
    far_steps = log2(span.servers) if kind == "allreduce" else span.servers - 1
    rounds = 2 if kind == "allreduce" else 1
    waits = near_steps * links.intra_latency + far_steps * links.inter_latency
    return moving + rounds * waits
