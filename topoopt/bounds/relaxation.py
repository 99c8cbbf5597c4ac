"""What any placement of a configuration costs at least, operator by operator and edge by edge.

The smallest numbers that the splits alone fix, wherever the parts run and however the servers
are wired: device time, bytes that AllReduces must send, bytes that must leave a server, and hops
that they take.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from codesign_base.arrays import Floats
from parallelism.builder import TaskGraphBuilder
from parallelism.search.space import Degrees, legal_degrees
from topoopt.bounds.collectives import farthest, least_seconds


class OwnCost(IntEnum):
    """What is known of one operator's configuration alone, all in seconds.

    ``WORK``, ``FORWARD_WORK``, ``BACKWARD_WORK``: device time of all parts over N devices.
    ``FORWARD``, ``BACKWARD``: of one part. ``TAIL``: from the end of the last backward pass of
    a parameter shard to the end of its update. ``RING``: bytes that all AllReduces send, over all
    ports of all servers. ``LAST_RING``: the same for one of the parameter shards. ``MEMORY``:
    share of all memory (no seconds). ``FORWARD_SHARD``, ``BACKWARD_SHARD``: device time of one
    parameter shard of every sample, over N devices; ``FORWARD_NEEDED``, ``BACKWARD_NEEDED``: of
    all shards, unless each reads its own slice of the input: then of one.
    """

    WORK = 0
    FORWARD = 1
    BACKWARD = 2
    TAIL = 3
    RING = 4
    LAST_RING = 5
    FORWARD_WORK = 6
    BACKWARD_WORK = 7
    MEMORY = 8
    FORWARD_SHARD = 9
    BACKWARD_SHARD = 10
    FORWARD_NEEDED = 11
    BACKWARD_NEEDED = 12


class SharedCost(IntEnum):
    """What is known of the configurations of a producer and a reader, all in seconds.

    ``NETWORK``: link-bytes of the activations (and again of the gradients), over all links.
    ``INTO_READER``: a part of the reader has to receive so long before it starts, over all ports
    of its server; a part of the reader has to send its gradients as long. ``FROM_PRODUCER``: a
    part of the producer sends its output so long, and receives its gradients as long.
    ``FORWARD_READ``: device time, over N devices, of what makes the input of one part of the
    reader for every sample: all parts of the producer, unless both are split along features.
    """

    NETWORK = 0
    INTO_READER = 1
    FROM_PRODUCER = 2
    FORWARD_READ = 3


@dataclass(frozen=True)
class Wirings:
    """All wirings of some ports, between which a bound does not choose.

    Parameters
    ----------
    servers, degree : int
    bandwidth : float
        Bytes/s of a port, each way.
    lag : float
        Seconds that any message takes beyond its bytes.
    memory : float
        Bytes of each GPU.
    """

    servers: int
    degree: int
    bandwidth: float
    lag: float = 0.0
    memory: float = float("inf")

    @property
    def port_rate(self) -> float:
        """Bytes/s of all ports of a server, each way."""
        return self.degree * self.bandwidth

    @property
    def network_rate(self) -> float:
        """Bytes/s of all links."""
        return self.servers * self.degree * self.bandwidth

    def hops(self, targets: Floats) -> Floats:
        """Return the least total hops from one server to the nearest of the others.

        Parameters
        ----------
        targets : float64 array
            How many servers are reached, the server itself (0 hops) among them; a fraction is
            a part of the last one's bytes.

        Returns
        -------
        float64 array, of the same shape
            At most ``degree ** h`` servers are at distance h, whatever the wiring.
        """
        total = np.zeros_like(targets)
        left = targets - 1.0
        level, width = 1, float(self.degree)
        while np.any(left > 0.0) and level <= self.servers:
            total += level * np.clip(left, 0.0, width)
            left = left - width
            level, width = level + 1, min(width * self.degree, float(self.servers))
        return total


def operator_degrees(builder: TaskGraphBuilder, index: int, memory: float) -> tuple[Degrees, ...]:
    """Return the legal degrees of an operator of which one part fits on a server.

    Parameters
    ----------
    builder : TaskGraphBuilder
    index : int
        Operator.
    memory : float
        Bytes of each GPU.

    Returns
    -------
    tuple of (int, int, Mode)
        All legal ones if none fits (the job then has no plan).
    """
    op = builder.graph.operators[index]
    legal = legal_degrees(op, builder.servers, builder.batch)
    return tuple(d for d in legal if builder.part_memory(index, *d) <= memory) or legal


def own_costs(
    builder: TaskGraphBuilder, index: int, degrees: tuple[Degrees, ...], wirings: Wirings
) -> Floats:
    """Return what each configuration of an operator costs at least by itself.

    A parameter shard of S bytes that s servers replicate is reduced: all of them send 2 (s - 1) S
    bytes together, by any schedule (`topoopt.bounds.collectives`).

    Parameters
    ----------
    builder : TaskGraphBuilder
    index : int
    degrees : tuple of (sample, parameter, mode)
    wirings : Wirings

    Returns
    -------
    float64 array, shape (`OwnCost`, degrees)
    """
    size = builder.graph.parameter_bytes(index)
    op = builder.graph.operators[index]
    rows = []
    for sample, parameter, mode in degrees:
        time = builder.part_time(index, sample, parameter, mode)
        parts = sample * parameter
        both = time.forward + time.backward
        shard = size / parameter
        tail = time.update
        if shard > 0.0:
            tail += 0.0 if op.sparse else builder.server.intra_allreduce_time(shard)
            if sample > 1:
                far = wirings.lag * float(farthest(sample, wirings.degree))
                rates = (*(wirings.port_rate,) * 3, far)
                tail += float(least_seconds(shard, float(sample), 2.0, rates, wirings.lag))
        ring = 2.0 * (sample - 1.0) * size / wirings.network_rate
        room = wirings.memory * wirings.servers
        forward, backward = (
            parts * each / wirings.servers for each in (time.forward, time.backward)
        )
        needed = parameter if mode.slices_input else 1
        rows.append(
            (
                parts * (both + time.update) / wirings.servers,
                time.forward,
                time.backward,
                tail,
                ring,
                ring / parameter,
                forward,
                backward,
                parts * builder.part_memory(index, sample, parameter, mode) / room,
                forward / parameter,
                backward / parameter,
                forward / needed,
                backward / needed,
            )
        )
    return np.array(rows).T.copy()


def slice_shares(
    first: int, width: int, features: int, read: tuple[Degrees, ...]
) -> tuple[float, ...]:
    """Return the largest share of an input that a slice of a concatenation needs.

    Parameters
    ----------
    first, width, features : int
        Where the input begins among the features of the concatenation, how many it has, and how
        many the concatenation has.
    read : tuple of (sample, parameter, mode)
        Configurations of the concatenation.

    Returns
    -------
    tuple of float
        One a configuration, at most 1.
    """
    found = []
    for _, parts, mode in read:
        slices = parts if mode.slices_input else 1
        edges = [at * (features // slices) - first for at in range(slices)] + [features - first]
        inside = np.clip(np.array(edges), 0, width)
        found.append(float(np.diff(inside).max()) / width)
    return tuple(found)


def least_moved(
    size: float,
    made: tuple[Degrees, ...],
    read: tuple[Degrees, ...],
    wirings: Wirings,
    forward: Floats,
    shares: tuple[float, ...] | None = None,
) -> Floats:
    """Return what each pair of configurations of a producer and its reader moves at least.

    A part of the reader needs its share of the input, from every partial sum; a pair of parts
    has at most the overlap of two slices in common, and a server holds at most one part of each
    operator. So of what a part needs or makes, one overlap may stay on its server, and as many
    overlaps as the server has neighbours may travel one hop.

    Parameters
    ----------
    size : float
        Bytes of the producer's output, all samples.
    made, read : tuple of (sample, parameter, mode)
        Configurations of the producer and of the reader.
    wirings : Wirings
    forward : float64 array, shape (made,)
        `OwnCost.FORWARD_WORK` of the producer.
    shares : tuple of float, optional
        Of a reader that is a concatenation, see `slice_shares`. Its slices need unequal shares of
        the producer, and ``INTO_READER`` is what the one receives that needs most of it; together
        they need all of it, once for every copy of the samples.

    Returns
    -------
    float64 array, shape (`SharedCost`, made, read)
    """
    sa, pa, cut_a = (x[:, None] for x in _split(made, out=True))
    sb, pb, cut_b = (x[None, :] for x in _split(read, out=False))
    whole_a = np.where(cut_a, 1.0, pa)  # partial sums, each of the whole output
    whole_b = np.where(cut_b, 1.0, pb)
    needed = whole_a / sb / np.where(cut_b, pb, 1.0)
    sent = whole_b / sa / np.where(cut_a, pa, 1.0)
    features = np.maximum(np.where(cut_a, pa, 1.0), np.where(cut_b, pb, 1.0))
    overlap = 1.0 / np.maximum(sa, sb) / features
    if shares is not None:
        share = np.array(shares)[None, :]
        needed = whole_a / sb * share
        overlap = np.minimum(1.0 / np.where(cut_a, pa, 1.0), share) / np.maximum(sa, sb)
    into, out = needed / overlap, sent / overlap
    hops = sa * pa * wirings.hops(out)
    if shares is None:
        hops = np.maximum(hops, sb * pb * wirings.hops(into))
    # Ratios of whole numbers: what is less than a part in 10^9 of an overlap is rounding.
    late = [
        (part - 1.0) * overlap * size / wirings.port_rate + np.where(part > 1.0, wirings.lag, 0.0)
        for part in (np.where(x < 1.0 + 1e-9, 1.0, x) for x in (into, out))
    ]
    if size == 0.0:
        late = [np.zeros_like(hops)] * 2
    sliced = np.logical_and(cut_a, cut_b) if shares is None else np.broadcast_to(cut_b, hops.shape)
    read_of = forward[:, None] / np.where(sliced, pa, 1.0)
    if shares is not None:
        read_of = np.where(sliced, 0.0, read_of)
    return np.stack((hops * overlap * size / wirings.network_rate, *late, read_of))


def _split(degrees: tuple[Degrees, ...], *, out: bool) -> tuple[Floats, Floats, Floats]:
    sample = np.array([d[0] for d in degrees], dtype=np.float64)
    parameter = np.array([d[1] for d in degrees], dtype=np.float64)
    cut = [d[1] > 1 and (d[2].slices_output if out else d[2].slices_input) for d in degrees]
    return sample, parameter, np.array(cut)
