"""What the ranks of a placed layout send in a pass, as tasks of a graph."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from codesign_base.arrays import Floats, Ints
from parallelism.taskgraph import Phase, TaskKind
from parallelism.transformers.groups import AllToAll, Exchange, as_servers
from parallelism.transformers.loads import Loads
from parallelism.transformers.placement import Placement
from parallelism.transformers.schedules import PassKind
from parallelism.transformers.shape import Shape
from parallelism.transformers.task_list import NOBODY, Label, TaskList

SENDS = {PassKind.FORWARD: (1, Phase.ACTIVATION), PassKind.BACKWARD: (-1, Phase.GRADIENT)}
"""Of passes whose outputs are sent: the step to the part that reads them, and their phase."""


class Messages:
    """Adds messages to a list of tasks.

    Whatever concerns the ranks of a stage is an array over them: a task of each rank, or one
    that it waits for.

    Parameters
    ----------
    placement : Placement
    loads : Loads
    shape : Shape
        Of the ranks that are looked at.
    tasks : TaskList
    """

    def __init__(self, placement: Placement, loads: Loads, shape: Shape, tasks: TaskList) -> None:
        self.placement, self.layout = placement, placement.layout
        self.loads, self.shape, self.tasks = loads, shape, tasks
        tensor, servers = np.array([placement.layout.tensor, placement.servers_per_rank], float)
        self._tensor = float(as_servers(tensor, servers))
        # Of exchanges of the shape, by their identity.
        self._groups: dict[int, Ints] = {}
        self._called: dict[int, list[Ints]] = {}
        self._sorted: dict[int, _Sorted] = {}

    def send(
        self,
        kind: PassKind,
        stage: int,
        label: Label,
        gate: list[Ints],
        earlier: list[Ints],
    ) -> list[Ints]:
        """Send outputs to the ranks of the next part, or gradients to those of the one before.

        Each message goes when the ``earlier`` one between the same ranks has arrived.
        """
        part, _, microbatch = label
        ahead, phase = SENDS[kind]
        steps = self.layout.part_steps
        step = steps[part] if ahead > 0 else -steps[part - 1]
        shares = self.placement.servers_per_rank
        source = self.shape.home[stage]
        target = self.shape.home[(stage + step) % self.layout.pipeline]
        called = self.shape.sends.get((stage, step))
        here = source == target
        found = [np.where(here, task, NOBODY) for task in gate] if here.any() else []
        if here.all():
            return found
        size = self.loads.boundary_bytes / shares
        label = (part, phase, microbatch)
        away = slice(None) if not here.any() else np.flatnonzero(~here)
        before = [task[away] for task in gate + earlier]
        for share in range(shares):
            sent = np.full(source.size, NOBODY, dtype=np.int64)
            sent[away] = self.tasks.add(
                TaskKind.TRANSFER, source[away] + share, target[away] + share, size, before,
                label, element=None if called is None else called[away],
            )  # fmt: skip
            found.append(sent)
        return found

    def collective(
        self,
        kind: TaskKind,
        over: Exchange,
        size: float,
        waits: list[Ints],
        label: Label,
        inside: Floats | None = None,
        *,
        in_turn: bool = False,
    ) -> list[Ints]:
        """Add one collective a group; return those of each rank.

        Those that come ``in_turn`` go one after another, as calls of one NCCL communicator do.
        """
        groups = self._groups.get(id(over))
        if groups is None:
            groups = np.array([self.tasks.group(servers) for servers in over.servers])
            self._groups[id(over)] = groups
        before = [task[over.members] for task in waits]
        sizes = size / over.shares * over.as_servers
        turn = self.turn(over) if in_turn else []
        made = self._both(kind, groups, sizes, before, label, inside, over.element, turn)
        if in_turn:
            self.resume(over, made)
        return [row for block in made for row in block[over.of_place].T]

    def turn(self, over: Exchange) -> list[Ints]:
        """Return the last collectives in turn, which the next will wait for."""
        return self._called.get(id(over), [])

    def resume(self, over: Exchange, turn: list[Ints]) -> None:
        """Let the next collective in turn wait for these."""
        self._called[id(over)] = turn

    def _both(
        self,
        kind: TaskKind,
        groups: Ints,
        size: float | Floats,
        before: list[Ints],
        label: Label,
        inside: Floats | None,
        element: Ints | None = None,
        turn: Sequence[Ints] = (),
    ) -> list[Ints]:
        """Add collectives over servers and, at the same time, their seconds ``inside`` each.

        Rings go through the ranks of a server at the rate of what is slower. Both wait for those of
        the call before, if there is one.
        """
        add, last = self.tasks.add, [[each] for each in turn] or [[], []]
        made = [add(kind, groups, None, size, before + last[0], label, 0.0, element)]
        if inside is not None:
            made.append(add(kind, groups, None, 0.0, before + last[1], label, inside, element))
        return made

    def exchange_context(
        self, size: float, stage: int, waits: list[Ints], label: Label
    ) -> list[Ints]:
        """Let keys and values go round each context group."""
        over = self.shape.collectives.context[stage]
        return self.collective(TaskKind.ALL_GATHER, over, size, waits, label)

    def gather_inputs(
        self, kind: PassKind, stage: int, waits: list[Ints], label: Label
    ) -> list[Ints]:
        """Gather inputs again for gradients of weights, over the servers of each rank."""
        size = float(self.loads.input_bytes[kind, label[0]])
        if self.placement.servers_per_rank == 1 or size == 0.0:
            return []
        groups = self._rank_groups(stage)
        size *= self._tensor
        return [self.tasks.add(TaskKind.ALL_GATHER, groups, None, size, waits, label)]

    def _rank_groups(self, stage: int) -> Ints:
        """Return the group of servers of each rank."""
        servers = [self.placement.rank_servers(int(rank)) for rank in self.shape.ranks[stage]]
        return np.array([self.tasks.group(one) for one in servers])

    def reduce_tensor(
        self, kind: PassKind, stage: int, gate: list[Ints], label: Label
    ) -> list[Ints]:
        """Reduce over the servers of each rank, and inside each of them; the rank waits for it."""
        size = float(self.loads.tensor_bytes[kind, label[0]])
        if self.placement.servers_per_rank == 1 or size == 0.0:
            return gate
        groups = self._rank_groups(stage)
        inside = np.full(groups.size, self.loads.inside_s(self.placement)[kind, label[0]])
        size *= self._tensor
        return self._both(TaskKind.ALLREDUCE, groups, size, gate, label, inside)

    def exchange_heads(
        self, kind: PassKind, stage: int, gate: list[Ints], label: Label
    ) -> list[Ints]:
        """Exchange heads of linear attention among the servers of each context group."""
        size = float(self.loads.heads_bytes[kind, label[0]]) / self.layout.context
        return self._all_to_all(self.shape.heads[stage], size, gate, label)

    def exchange_experts(
        self, kind: PassKind, stage: int, gate: list[Ints], label: Label, share: float
    ) -> list[Ints]:
        """Send a share of the tokens from every server of an expert group to every other."""
        size = share * float(self.loads.expert_bytes[kind, label[0]]) / self.layout.expert_ranks
        return self._all_to_all(self.shape.tokens[stage], size, gate, label)

    def _all_to_all(
        self, over: AllToAll, size: float, gate: list[Ints], label: Label
    ) -> list[Ints]:
        """Send what each rank has for each other of its group; return what brings it to each."""
        if size == 0.0 or not over.source.size:
            return []
        known = self._sorted.get(id(over))
        if known is None:
            known = self._sorted[id(over)] = _by_weight(over)
        sent = np.empty(over.source.size, dtype=np.int64)
        for weight, these, senders in known.kinds:
            before = [_pick(task, senders) for task in gate]
            sent[these] = self.tasks.add(
                TaskKind.TRANSFER, over.source[these], over.target[these], weight * size, before,
                label, element=None if over.element is None else over.element[these],
            )  # fmt: skip
        return list(_pick(sent, known.into).T)


class _Places(NamedTuple):
    """Places in an array, and where none is meant, if anywhere."""

    which: Ints
    none: npt.NDArray[np.bool_] | None


class _Sorted(NamedTuple):
    """An all-to-all with its pairs by their weights: of each the pairs, and who sends."""

    kinds: list[tuple[float, Ints, _Places]]
    into: _Places


def _by_weight(over: AllToAll) -> _Sorted:
    kinds = []
    for weight in np.unique(over.weight).tolist():
        these = np.flatnonzero(over.weight == weight)
        kinds.append((weight, these, _places(over.senders[these])))
    return _Sorted(kinds, _places(over.into))


def _places(which: Ints) -> _Places:
    none = which < 0
    return _Places(np.maximum(which, 0), none if none.any() else None)


def _pick(tasks: Ints, places: _Places) -> Ints:
    """Return entries of an array, `NOBODY` where none is meant."""
    picked = tasks[places.which]
    if places.none is not None:
        picked[places.none] = NOBODY
    return picked
