"""Candidate paths in the compact form that all link-based routers and the metric work on.

A path of flow f is a number p; its links are ``base[f, k] + shift[kind[f], k, p]`` for every
slot k. In a two-layer Clos p is the spine and the slots are the link up and the link down, so
that 100,000 flows with 128 candidates each need no list of candidates. Any other fabric fits as
well: `listed_paths` takes explicit candidates, `ThreeLayer` builds those of a fabric of pods.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from codesign_base.arrays import Floats, Ints
from routing.clos.arrays_kernels import ClosPaths
from routing.clos.fabric import Clos
from routing.clos.flows import ClosFlows


def clos_paths(clos: Clos, flows: ClosFlows) -> ClosPaths:
    """Return the candidates on a two-layer fabric: path p goes over spine p.

    Parameters
    ----------
    clos : Clos
        The fabric.
    flows : ClosFlows
        What is sent.

    Returns
    -------
    ClosPaths
    """
    pairs = clos.tors * clos.spines
    base = np.empty((flows.count, 2), dtype=np.int32)
    base[:, 0] = flows.source_tor * clos.spines
    base[:, 1] = flows.target_tor * clos.spines + pairs
    shift = np.empty((1, 2, clos.spines), dtype=np.int32)
    shift[:] = np.arange(clos.spines)
    kind = np.zeros(flows.count, dtype=np.int32)
    ways = np.array([clos.spines], dtype=np.int32)
    if not flows.crosses.all():
        kind[~flows.crosses] = 1
        shift = np.concatenate((shift, shift))
        ways = np.array([clos.spines, 0], dtype=np.int32)
    group = np.empty((flows.count, 2), dtype=np.int32)
    group[:, 0] = flows.source_tor
    group[:, 1] = flows.target_tor + clos.tors
    of_link = np.full(2 * pairs + 1, -1, dtype=np.int32)
    of_link[:-1].reshape(-1, clos.spines)[:] = np.arange(2 * clos.tors)[:, None]
    return ClosPaths(np.append(clos.capacity, np.inf), base, kind, shift, ways, group, of_link)


def listed_paths(
    capacity: npt.ArrayLike, candidates: Sequence[Sequence[Sequence[int]]]
) -> ClosPaths:
    """Return paths given one by one: any fabric, any number of layers.

    Parameters
    ----------
    capacity : array_like of float, shape (links,)
        Of each directed link, in units of a NIC's rate; 0 for a failed one.
    candidates : sequence of sequences of sequences of int
        For every flow its candidate paths, each a list of links; an empty list of candidates
        for a flow that needs no link.

    Returns
    -------
    ClosPaths
        Flows with the same candidates share one entry.

    Raises
    ------
    InputError
        If a link does not exist or a capacity is out of range.

    Examples
    --------
    >>> from routing.clos.paths import listed_paths
    >>> paths = listed_paths([1.0, 1.0], [[[0], [1]], [[0], [1]]])  # two flows, two links for each
    """
    room = np.asarray(capacity, dtype=np.float64)
    if room.ndim != 1 or not np.all((room >= 0) & np.isfinite(room)):
        raise InputError("every capacity must be a finite number of NIC rates, 0 for a failed link")
    kinds: dict[tuple[tuple[int, ...], ...], int] = {}
    rows = [tuple(tuple(path) for path in paths) for paths in candidates]
    kind = np.array([kinds.setdefault(row, len(kinds)) for row in rows], dtype=np.int32)
    longest = max((len(path) for row in kinds for path in row), default=1)
    slots = 1 << max(longest - 1, 1).bit_length() if longest > 2 else 2
    most = max((len(row) for row in kinds), default=1)
    shift = np.full((max(len(kinds), 1), slots, max(most, 1)), room.size, dtype=np.int32)
    for row, number in kinds.items():
        for p, path in enumerate(row):
            for k, link in enumerate(path):
                if not 0 <= link < room.size:
                    raise InputError(
                        f"link {link} does not exist; choose one of 0..{room.size - 1}"
                    )
                shift[number, k, p] = link
    return ClosPaths(
        np.append(room, np.inf),
        np.zeros((len(rows), slots), dtype=np.int32),
        kind,
        shift,
        np.array([len(row) for row in kinds] or [0], dtype=np.int32),
        np.full((len(rows), 2), -1, dtype=np.int32),
        np.full(room.size + 1, -1, dtype=np.int32),
    )


@dataclass(frozen=True)
class ThreeLayer:
    """A fabric of pods: each has ToRs and aggregation switches; cores join the pods.

    Aggregation switch a of every pod reaches cores ``a * cores .. (a + 1) * cores - 1``. Flows
    within a pod choose an aggregation switch, flows between pods a core; all links are directed
    and alike.

    Parameters
    ----------
    pods, tors, aggregations, cores : int
        Pods; ToRs and aggregation switches a pod; cores an aggregation switch.
    capacity : float
        Of every link, in units of a NIC's rate.
    """

    pods: int
    tors: int
    aggregations: int
    cores: int
    capacity: float = 1.0

    def __post_init__(self) -> None:
        for field in ("pods", "tors", "aggregations", "cores", "capacity"):
            value = getattr(self, field)
            if not (value > 0 and np.isfinite(value)):
                raise InputError(f"a three-layer fabric with {field} = {value}; give more than 0")

    def links(self) -> Floats:
        """Return the capacities of all links: ToRs up, ToRs down, pods up, pods down."""
        edge = self.pods * self.tors * self.aggregations
        core = self.pods * self.aggregations * self.cores
        return np.full(2 * edge + 2 * core, float(self.capacity))

    def paths(self, flows: ClosFlows, capacity: npt.ArrayLike | None = None) -> ClosPaths:
        """Return the candidates of flows between ToRs numbered pod by pod.

        Parameters
        ----------
        flows : ClosFlows
            What is sent.
        capacity : array_like of float, optional
            Capacities in the order of `links`, for fabrics with failures.

        Returns
        -------
        ClosPaths
            Path p between pods goes over core p, within a pod over aggregation switch p.
        """
        room = np.asarray(self.links() if capacity is None else capacity, dtype=np.float64)
        if room.shape != self.links().shape:
            raise InputError(f"capacity has shape {room.shape}; {self.links().shape} is expected")
        aggs, tors = self.aggregations, self.pods * self.tors
        flows.check_fits(Clos.uniform(tors, 1))
        edge, core = tors * aggs, self.pods * aggs * self.cores
        base = np.empty((flows.count, 4), dtype=np.int32)
        base[:, 0] = flows.source_tor * aggs
        base[:, 1] = edge + flows.target_tor * aggs
        base[:, 2] = 2 * edge + flows.source_tor // self.tors * aggs * self.cores
        base[:, 3] = 2 * edge + core + flows.target_tor // self.tors * aggs * self.cores
        way = np.arange(aggs * self.cores)
        inside = flows.source_tor // self.tors == flows.target_tor // self.tors
        base[inside, 2:] = 0
        shift = np.full((3, 4, way.size), room.size, dtype=np.int32)
        shift[0] = np.stack((way // self.cores, way // self.cores, way, way))
        shift[1, :2, :aggs] = np.arange(aggs)
        group = np.stack((flows.source_tor, flows.target_tor + tors), axis=1).astype(np.int32)
        of_link = np.full(room.size + 1, -1, dtype=np.int32)
        of_link[: 2 * edge] = np.repeat(np.arange(2 * tors), aggs)
        kind: Ints = np.where(~flows.crosses, 2, np.where(inside, 1, 0))
        ways = np.array([way.size, aggs, 0], dtype=np.int32)
        return ClosPaths(
            np.append(room, np.inf), base, kind.astype(np.int32), shift, ways, group, of_link
        )
