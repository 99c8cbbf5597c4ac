"""Rails whose ports belong to GPUs: a message takes the ports of the GPUs that it is for."""

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Flags, Ints
from codesign_base.rows import spread, starts
from parallelism.taskgraph import TaskGraph, TaskKind, edges_of
from routing.network import Network
from routing.paths import ecmp_routes
from topoopt.fabric.fabric import Fabric


@dataclass(frozen=True, eq=False)
class GpuPorts:
    """A network of rails in which every port of a server is that of its GPUs alone.

    Parameters
    ----------
    name : str
    network : Network
        Of servers, each with one cable to each of as many switches: port k is the k-th of them.
    pooled : Fabric
        The same, with all ports at the service of all GPUs: no faster, by any bound.

    Raises
    ------
    InputError
        If servers differ in ports, or have several cables to a switch.

    Notes
    -----
    The devices of a server (`TaskGraph.server_of_device`) divide its ports evenly, in their order;
    a model that knows servers as one device has all ports pooled. A transfer leaves and enters its
    two servers by the ports of the devices that wait for it, evenly: what other GPUs hold goes to
    these inside the sending server first (PXN in NCCL), free of charge. A collective takes the
    ports of its members, at the places that they have on its first server. Ports are nodes between
    servers and switches, so that paths count two links more, without latency.
    """

    name: str
    network: Network
    pooled: Fabric
    _fabrics: dict[bytes, Fabric] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        network = self.network
        leaving = network.multiplicity[network.source < network.hosts]
        ports = network.out_degree()[: network.hosts]
        if np.any(leaving > 1) or np.any(ports != ports[0]):
            raise InputError(
                f"fabric {self.name!r}: servers have {ports.min()} to {ports.max()} ports, up to "
                f"{leaving.max(initial=0)} to a switch; give each one cable to as many switches"
            )

    @property
    def ports(self) -> int:
        """Ports of a server."""
        return int(self.network.out_degree()[0])

    def divided(self, tasks: TaskGraph) -> tuple[Fabric, TaskGraph]:
        """Return the fabric of the ports that tasks take, and the tasks on its hosts.

        Parameters
        ----------
        tasks : TaskGraph
            Each task stands for itself.

        Returns
        -------
        fabric : Fabric
            Its hosts are the servers, once for every set of ports that a task takes.
        tasks : TaskGraph
            The same tasks, in the same order.
        """
        taken = _ports_taken(tasks, self.ports)
        network = (tasks.kind == TaskKind.TRANSFER) | tasks.collective
        sets, own = np.unique(taken[network], axis=0, return_inverse=True)
        which = np.zeros(tasks.tasks, dtype=np.int64)
        which[network] = own.ravel()
        servers = self.network.hosts
        groups: dict[tuple[int, int], int] = {}
        first, second = tasks.first.copy(), tasks.second.copy()
        moves = tasks.kind == TaskKind.TRANSFER
        first[moves] += which[moves] * servers
        second[moves] += which[moves] * servers
        for task in np.flatnonzero(tasks.collective).tolist():
            key = (int(tasks.first[task]), int(which[task]))
            first[task] = groups.setdefault(key, len(groups))
        divided = replace(
            tasks,
            servers=max(1, len(sets)) * servers,
            first=first,
            second=second,
            groups=tuple(
                tuple(chosen * servers + server for server in tasks.groups[group])
                for group, chosen in groups
            ),
        )
        return self._fabric(sets), divided

    def _fabric(self, sets: Flags) -> Fabric:
        """Return the fabric whose hosts have a set of ports each."""
        key = np.packbits(sets, axis=1).tobytes() + bytes(str(sets.shape), "ascii")
        known = self._fabrics.get(key)
        if known is not None:
            return known
        whole, servers, ports = self.network, self.network.hosts, self.ports
        chosen, port = np.nonzero(sets if len(sets) else np.ones((1, ports), dtype=np.bool_))
        hosts = (int(chosen.max()) + 1) * servers
        # A port is the node between servers and its switch: links are sorted, so that its number
        # is that of its link.
        node = np.arange(servers)[:, None] * ports + port + hosts
        host = chosen * servers + np.arange(servers)[:, None]
        out = np.flatnonzero(whole.source < servers)
        to_switch = out[(node - hosts).ravel()]
        rate = whole.capacity[to_switch]
        rename = hosts + servers * ports - servers + _same_above(whole)
        source, target = rename[whole.source], rename[whole.target]
        source[out] = hosts + np.arange(out.size)
        back = np.flatnonzero(whole.target < servers)
        # Cables carry both directions, so that entering links have the same order by server.
        back = back[np.lexsort((whole.source[back], whole.target[back]))]
        target[back] = hosts + np.arange(back.size)
        many = whole.multiplicity
        network = Network.from_links(
            whole.name,
            hosts,
            servers * ports + whole.switches,
            np.concatenate((host.ravel(), node.ravel(), np.repeat(source, many))),
            np.concatenate((node.ravel(), host.ravel(), np.repeat(target, many))),
            np.concatenate((rate, rate, np.repeat(whole.capacity / many, many))),
            np.concatenate((np.zeros(2 * rate.size), np.repeat(whole.latency, many))),
        )
        # Hosts of other sets need not reach each other, so that there are no routes of all pairs.
        routes = replace(
            ecmp_routes(network, pairs=np.zeros(0, dtype=np.int64)),
            more=partial(ecmp_routes, network),
        )
        fabric = Fabric(self.name, network, routes)
        self._fabrics[key] = fabric
        return fabric


def _same_above(network: Network) -> Ints:
    """Return each node's number, spines between the same switches that of the first of them.

    Traffic spreads over them evenly, so that one of their capacities together carries as much.
    """
    number = np.arange(network.nodes)
    seen: dict[tuple[bytes, bytes], int] = {}
    for switch in range(network.hosts, network.nodes):
        own = slice(*network.out_offsets[switch : switch + 2].tolist())
        if network.target[own].min(initial=network.nodes) >= network.hosts:
            key = network.target[own].tobytes(), network.capacity[own].tobytes()
            number[switch] = seen.setdefault(key, switch)
    return number


def _ports_taken(tasks: TaskGraph, ports: int) -> Flags:
    """Return which ports of a server each task takes, shape (tasks, ports)."""
    server = tasks.server_of_device
    count = np.bincount(server, minlength=tasks.servers)
    order = np.argsort(server, kind="stable")
    place = np.zeros(tasks.devices, dtype=np.int64)
    place[order] = np.arange(tasks.devices) - starts(count)[server[order]]
    most = max(1, int(count.max()))
    waited, waiting = edges_of(tasks)
    transfer = tasks.kind == TaskKind.TRANSFER
    reads, writes = (np.full(tasks.tasks, -1) for _ in range(2))
    reads[transfer], writes[transfer] = tasks.second[transfer], tasks.first[transfer]
    heads = np.array([group[0] for group in tasks.groups] or [0], dtype=np.int64)
    reads[tasks.collective] = heads[tasks.first[tasks.collective]]
    writes[tasks.collective] = reads[tasks.collective]

    def met(task: Ints, other: Ints, at: Ints) -> Flags:
        """Return the places of devices that compute next to tasks, on certain servers."""
        found = np.zeros((tasks.tasks, most), dtype=np.bool_)
        device = np.where(tasks.kind[other] == TaskKind.COMPUTE, tasks.first[other], 0)
        kept = (tasks.kind[other] == TaskKind.COMPUTE) & (server[device] == at[task])
        found[task[kept], place[device[kept]]] = True
        return found

    after, before = met(waited, waiting, reads), met(waiting, waited, writes)
    # Members of a collective are those that it waits for, or, of weights, those that wait for it.
    preferred = np.where(transfer[:, None], after, before)
    other = np.where(transfer[:, None], before, after)
    found = np.where(preferred.any(axis=1, keepdims=True), preferred, other)
    found[~found.any(axis=1)] = True
    share = np.zeros((most, ports), dtype=np.bool_)
    begin = np.arange(most) * ports // most
    size = np.maximum(-(-(np.arange(1, most + 1) * ports) // most) - begin, 1)
    share[np.repeat(np.arange(most), size), spread(begin, size)] = True
    return np.asarray(found.astype(np.int64) @ share > 0)
