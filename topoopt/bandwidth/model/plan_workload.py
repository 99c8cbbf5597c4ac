"""A model graph under a strategy as a workload.

The operators of equal depth in the graph form a layer: they compute at once, then their
AllReduces and transfers are sent. An AllReduce over the replicas of a shard becomes a collective
over a group of the network; transfers between differently split operators become the bytes that
dimension-ordered routes put on the links of each dimension.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats
from codesign_base.rows import summed
from parallelism.graph import ModelGraph
from parallelism.taskgraph import Phase, TaskGraph, TaskKind
from topoopt.bandwidth.model.collectives import Collective, PartialGroups, pattern
from topoopt.bandwidth.model.communicator import NpuGroup
from topoopt.bandwidth.model.expressions import Expr, comm, compute, total
from topoopt.bandwidth.model.links import PairLoads
from topoopt.bandwidth.model.loops import LayerTimes
from topoopt.bandwidth.model.network import MultiDimNetwork
from topoopt.topology.zoo.blocks import BuildingBlock


@dataclass(frozen=True, eq=False)
class PlanWorkload:
    """One training iteration of a model graph under a strategy.

    Parameters
    ----------
    name : str
    graph : ModelGraph
    tasks : TaskGraph
        Of the strategy; a server of it is an NPU of the network.
    notes : tuple of str
    """

    name: str
    graph: ModelGraph
    tasks: TaskGraph
    notes: tuple[str, ...] = ()

    def layer_times(
        self, network: MultiDimNetwork, partial: PartialGroups = PartialGroups.USABLE
    ) -> tuple[LayerTimes, ...]:
        """Return the layers' times over a network.

        Parameters
        ----------
        network : MultiDimNetwork
            Server s of the plan is the NPU with number s, the innermost coordinate fastest.
        partial : PartialGroups, optional

        Returns
        -------
        tuple of LayerTimes
            A layer a depth of the model graph, from its inputs on.

        Raises
        ------
        InputError
            If the numbers of servers and NPUs differ, or replicas form no grid.
        """
        tasks = self.tasks
        if tasks.servers == 1:
            raise InputError(
                f"plan {self.name!r} is for one server, which has no network; "
                "give one of two or more"
            )
        if tasks.servers != network.npus:
            raise InputError(
                f"plan {self.name!r} is for {tasks.servers} servers, but {network.notation} has "
                f"{network.npus} NPUs; give a network of {tasks.servers}"
            )
        loads = PairLoads(network) if np.any(tasks.kind == TaskKind.TRANSFER) else None
        depth = depths(self.graph)
        of_task = depth[tasks.operator]
        # Gradients return after the backward pass of the operators that read the output.
        returning = (tasks.kind == TaskKind.TRANSFER) & (tasks.phase == Phase.GRADIENT)
        of_task = np.where(returning, np.minimum(of_task + 1, depth.max()), of_task)
        trained = np.array([op.parameters > 0 for op in self.graph.operators])
        groups = [
            grid_group(network, members, self._owner(g)) if len(members) > 1 else None
            for g, members in enumerate(tasks.groups)
        ]
        layers = []
        for level in range(int(depth.max()) + 1):
            mine = of_task == level
            backward = self._compute(mine, Phase.BACKWARD, None)
            weights = self._compute(mine, Phase.BACKWARD, trained) / 2
            update = self._compute(mine, Phase.UPDATE, None) + self._inside(mine)
            layers.append(
                LayerTimes(
                    1,
                    compute(float(self._compute(mine, Phase.FORWARD, None).max())),
                    self._transfers(mine, Phase.ACTIVATION, loads),
                    compute(float((backward - weights).max())),
                    self._transfers(mine, Phase.GRADIENT, loads),
                    compute(float((weights + update).max())),
                    self._reduced(mine, groups, network, partial),
                )
            )
        return tuple(layers)

    def _owner(self, group: int) -> str:
        tasks = self.tasks
        users = np.flatnonzero((tasks.kind == TaskKind.ALLREDUCE) & (tasks.first == group))
        return self.graph.operators[int(tasks.operator[users[0]])].name if len(users) else "?"

    def _compute(self, mine: np.ndarray, phase: Phase, only: np.ndarray | None) -> Floats:
        """Seconds of each server."""
        tasks = self.tasks
        chosen = mine & (tasks.kind == TaskKind.COMPUTE) & (tasks.phase == phase)
        if only is not None:
            chosen &= only[tasks.operator]
        server = tasks.server_of_device[tasks.first[chosen]]
        return summed(server, tasks.size[chosen], tasks.servers)

    def _inside(self, mine: np.ndarray) -> Floats:
        """Seconds of each server to reduce gradients over its own accelerators."""
        tasks = self.tasks
        spent = np.zeros(tasks.servers)
        for t in np.flatnonzero(mine & (tasks.kind == TaskKind.ALLREDUCE)):
            spent[list(tasks.groups[int(tasks.first[t])])] += tasks.delay[t]
        return spent

    def _transfers(self, mine: np.ndarray, phase: Phase, loads: PairLoads | None) -> Expr:
        tasks = self.tasks
        chosen = mine & (tasks.kind == TaskKind.TRANSFER) & (tasks.phase == phase)
        if loads is None or not np.any(chosen):
            return Expr(0.0, {})
        pairs = tasks.first[chosen] * tasks.servers + tasks.second[chosen]
        sent = summed(pairs, tasks.size[chosen], tasks.servers**2)
        load, latency = loads.of(sent.reshape(tasks.servers, tasks.servers))
        return comm(load) + latency

    def _reduced(
        self,
        mine: np.ndarray,
        groups: Sequence[NpuGroup | None],
        network: MultiDimNetwork,
        partial: PartialGroups,
    ) -> Expr:
        """AllReduces one after the other; those over groups of one kind run side by side."""
        tasks = self.tasks
        sizes: dict[NpuGroup, Floats] = {}
        counts: dict[NpuGroup, Counter[int]] = {}
        for t in np.flatnonzero(mine & (tasks.kind == TaskKind.ALLREDUCE)):
            group = groups[int(tasks.first[t])]
            if group is None:
                continue
            members = list(tasks.groups[int(tasks.first[t])])
            sizes.setdefault(group, np.zeros(tasks.servers))[members] += tasks.size[t]
            counts.setdefault(group, Counter()).update(members)
        parts = []
        for group, size in sizes.items():
            load, multiple, latency = pattern(network, group, Collective.ALL_REDUCE, partial)
            most = max(counts[group].values())
            parts.append(comm(load, multiple * float(size.max())) + latency * most)
        return total(parts)


def depths(graph: ModelGraph) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Return the longest way from an input of the model to each operator, in operators."""
    found = np.zeros(len(graph.operators), dtype=np.int64)
    for index, op in enumerate(graph.operators):
        found[index] = max((found[source] + 1 for source in op.inputs), default=0)
    return found


def grid_group(network: MultiDimNetwork, members: Sequence[int], owner: str = "?") -> NpuGroup:
    """Return the group that a set of NPUs forms, if it is a grid.

    Parameters
    ----------
    network : MultiDimNetwork
    members : sequence of int
        Distinct NPUs.
    owner : str, optional
        Operator, for the message.

    Returns
    -------
    NpuGroup

    Raises
    ------
    InputError
        If the members are not all combinations of some coordinates of each dimension, or those
        of a Ring are not at equal steps.
    """
    coordinates = np.unravel_index(np.asarray(members), network.sizes, order="F")
    sizes, steps = [], []
    for block, n, along in zip(network.blocks, network.sizes, coordinates, strict=True):
        values = np.unique(along)
        size = len(values)
        gaps = np.diff(np.append(values, values[0] + n)) if size > 1 else np.array([n])
        inner = np.sort(gaps)[:-1]  # without the widest, where the group ends
        step = int(inner[0]) if size > 1 else 1
        if block == BuildingBlock.RING and size > 1 and not np.all(inner == step):
            break
        sizes.append(size)
        steps.append(step if block == BuildingBlock.RING else 1)
    else:
        if int(np.prod(sizes)) == len(members):
            return NpuGroup(tuple(sizes), tuple(steps))
    shown = ", ".join(map(str, members[:8])) + (", ..." if len(members) > 8 else "")
    raise InputError(
        f"operator {owner!r} is reduced over servers {shown}, which are no grid of equal steps "
        f"on {network.notation}; give a network, or a strategy, in which replicas are one"
    )
