"""Task graphs of placed layouts rank by rank and message by message, in plain loops."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from pipeline_parts import part_of, stage_of

from parallelism.taskgraph import Group, Phase, TaskGraph, TaskKind
from parallelism.transformers.loads import Loads
from parallelism.transformers.placement import Placement
from parallelism.transformers.schedules import PassKind, PipelineSchedule
from parallelism.transformers.task_list import Label

_PHASE = {
    PassKind.FORWARD: Phase.FORWARD,
    PassKind.BACKWARD: Phase.BACKWARD,
    PassKind.WEIGHT: Phase.BACKWARD,
}
_SENDS = {PassKind.FORWARD: (1, Phase.ACTIVATION), PassKind.BACKWARD: (-1, Phase.GRADIENT)}


def _more(ranks: int, servers: int) -> float:
    """A ring of ranks sends (ranks - 1) / ranks of a buffer from server to server."""
    if servers == 1:
        return 1.0
    return ((ranks - 1) / ranks) / ((servers - 1) / servers)


def plain_tasks(
    placement: Placement, schedule: PipelineSchedule, loads: Loads, buckets: int = 4
) -> TaskGraph:
    return _Builder(placement, schedule, loads, buckets).build()


@dataclass
class TaskList:
    """Tasks and dependencies as they are added; columns are those of `TaskGraph`."""

    kind: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    second: list[int] = field(default_factory=list)
    size: list[float] = field(default_factory=list)
    delay: list[float] = field(default_factory=list)
    operator: list[int] = field(default_factory=list)
    phase: list[int] = field(default_factory=list)
    part: list[int] = field(default_factory=list)
    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    _groups: dict[Group, int] = field(default_factory=dict)

    def add(
        self,
        kind: TaskKind,
        first: int,
        second: int,
        size: float,
        waits: Iterable[int],
        label: Label,
        delay: float = 0.0,
    ) -> int:
        """Append a task that waits for others; return its number."""
        operator, phase, part = label
        task = len(self.kind)
        self.kind.append(kind)
        self.first.append(first)
        self.second.append(second)
        self.size.append(size)
        self.delay.append(delay)
        self.operator.append(operator)
        self.phase.append(phase)
        self.part.append(part)
        unique = sorted(set(waits))
        self.before += unique
        self.after += [task] * len(unique)
        return task

    def collective(
        self,
        kind: TaskKind,
        servers: Group,
        size: float,
        waits: Iterable[int],
        label: Label,
        delay: float = 0.0,
    ) -> int:
        """Append a collective over some servers; return its number."""
        number = self._groups.setdefault(servers, len(self._groups))
        return self.add(kind, number, -1, size, waits, label, delay)

    def both(
        self,
        kind: TaskKind,
        servers: Group,
        size: float,
        waits: Iterable[int],
        label: Label,
        inside: float,
        turn: Sequence[int] = (),
    ) -> list[int]:
        """Append a collective across servers and what their ranks exchange inside meanwhile."""
        waits = list(waits)
        tasks = [self.collective(kind, servers, size, [*waits, *turn[:1]], label)]
        if inside > 0.0:
            tasks.append(self.collective(kind, servers, 0.0, [*waits, *turn[1:]], label, inside))
        return tasks

    def finish(self, placement: Placement) -> TaskGraph:
        """Return the task graph."""
        count = len(self.kind)
        before = np.array(self.before, dtype=np.int64)
        after = np.array(self.after, dtype=np.int64)
        order = np.lexsort((after, before))
        offsets = np.concatenate(([0], np.cumsum(np.bincount(before, minlength=count))))
        ranks = placement.rank.size
        home = np.arange(ranks) // placement.ranks_per_server * placement.servers_per_rank
        return TaskGraph(
            servers=placement.servers,
            devices=ranks,
            kind=np.array(self.kind, dtype=np.int64),
            first=np.array(self.first, dtype=np.int64),
            second=np.array(self.second, dtype=np.int64),
            size=np.array(self.size, dtype=np.float64),
            delay=np.array(self.delay, dtype=np.float64),
            operator=np.array(self.operator, dtype=np.int64),
            phase=np.array(self.phase, dtype=np.int64),
            part=np.array(self.part, dtype=np.int64),
            successor_offsets=offsets.astype(np.int64),
            successors=after[order],
            predecessors=np.bincount(after, minlength=count).astype(np.int64),
            groups=tuple(self._groups),
            server_of_device=home.astype(np.int64),
        )


class _Builder:
    """One build: what the next pass of each rank waits for, and where outputs are."""

    def __init__(
        self, placement: Placement, schedule: PipelineSchedule, loads: Loads, buckets: int
    ) -> None:
        self.placement, self.schedule, self.loads = placement, schedule, loads
        self.layout = layout = placement.layout
        self.stages = schedule.stages
        self.parts = schedule.stages * schedule.chunks
        self.tasks = TaskList()
        # Ranks of a stage by data and, within, context: shape (stages, ranks).
        self.ranks = placement.rank.transpose(2, 1, 0).reshape(layout.pipeline, -1)
        every = self.ranks.ravel().tolist()
        self.gate: dict[int, list[int]] = {rank: [] for rank in every}
        self.gathered: dict[int, list[int]] = {rank: [] for rank in every}
        self.ended: dict[int, list[int]] = {rank: [] for rank in every}
        self.reduced: dict[int, list[int]] = {rank: [] for rank in every}
        self.arrived: dict[tuple[int, int, int, int], list[int]] = {}
        self.queued: dict[tuple[int, int, int], list[int]] = {}
        self.called: dict[tuple[int, ...], list[int]] = {}
        self.buckets = buckets
        split = schedule.split_backward
        self.completes = PassKind.WEIGHT if split else PassKind.BACKWARD
        # (first, members) of the groups that share gradients; experts by their place.
        places = np.arange(self.ranks.shape[1])
        fold = layout.tensor // (layout.expert_tensor or layout.tensor)
        self.apart = layout.expert // fold
        copies = np.split(places, layout.replicate)
        self.dense_groups = copies
        self.expert_groups = [own[k :: self.apart] for own in copies for k in range(self.apart)]
        # Those that have the same of each copy, and what part of it.
        each = len(copies[0])
        self.copies = [places[k::each] for k in range(each)] if layout.replicate > 1 else []

    def build(self) -> TaskGraph:
        """Add all passes, each after those that it waits for."""
        first, last = self._ends()
        for stage, place in sorted(first) if self.layout.zero in (1, 2) else ():
            _, chunk, microbatch = self.schedule.passes[stage, place].tolist()
            part = part_of(self.schedule.name, self.stages, stage, chunk)
            before = {rank: self.gathered[rank] for rank in self.ranks[stage].tolist()}
            label = (part, Phase.SYNCHRONISE, microbatch)
            self.gathered |= self._gather(stage, part, before, self.loads.exposed, label)
        at = [0] * self.stages
        done: set[tuple[int, int, int]] = set()
        while any(place < self.schedule.length for place in at):
            for stage in range(self.stages):
                while at[stage] < self.schedule.length:
                    kind, chunk, microbatch = self.schedule.passes[stage, at[stage]].tolist()
                    part = part_of(self.schedule.name, self.stages, stage, chunk)
                    if not self._input_made(kind, part, microbatch, done):
                        break
                    place = (stage, at[stage])
                    self._pass(PassKind(kind), stage, part, microbatch, place in first,
                               place in last)  # fmt: skip
                    done.add((kind, part, microbatch))
                    at[stage] += 1
        self._finish()
        return self.tasks.finish(self.placement)

    def _ends(self) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
        """Return the passes that first use each part's weights, and complete its gradients."""
        first: dict[tuple[int, int], int] = {}
        last: dict[tuple[int, int], int] = {}
        for stage in range(self.stages):
            for place, (kind, chunk, _) in enumerate(self.schedule.passes[stage].tolist()):
                if kind == PassKind.FORWARD:
                    first.setdefault((stage, chunk), place)
                if kind == self.completes:
                    last[stage, chunk] = place
        return (
            {(stage, place) for (stage, _), place in first.items()},
            {(stage, place) for (stage, _), place in last.items()},
        )

    def _input_made(
        self, kind: int, part: int, microbatch: int, done: set[tuple[int, int, int]]
    ) -> bool:
        if kind == PassKind.FORWARD:
            return part == 0 or (kind, part - 1, microbatch) in done
        if kind == PassKind.BACKWARD:
            return part == self.parts - 1 or (kind, part + 1, microbatch) in done
        return True

    def _pass(
        self, kind: PassKind, stage: int, part: int, microbatch: int, first: bool, last: bool
    ) -> None:
        """Add one pass of all ranks of a stage, and what follows from it."""
        label = (part, _PHASE[kind], microbatch)
        ranks = self.ranks[stage].tolist()
        waits = {
            rank: self.gate[rank] + self.arrived.pop((kind, part, microbatch, rank), [])
            for rank in ranks
        }
        zero = self.layout.zero
        again: dict[int, list[int]] = {}
        inputs = float(self.loads.input_bytes[kind, part])
        if self.placement.servers_per_rank > 1 and inputs > 0.0:
            for rank in ranks:
                servers = self.placement.rank_servers(rank)
                gather = self.tasks.collective(
                    TaskKind.ALL_GATHER,
                    servers,
                    inputs * _more(self.layout.tensor, len(servers)),
                    waits[rank],
                    label,
                )
                again[rank] = [gather]
        other = {rank: list(waits[rank]) for rank in ranks}
        self._exchange_experts(kind, stage, other, label, self.loads.beside)
        for rank in ranks:
            again[rank] = again.get(rank, []) + other[rank][len(waits[rank]) :]
        scatters = last or (zero >= 2 and kind == self.completes)
        gathers = (zero == 3 and kind != PassKind.WEIGHT) or (first and zero in (1, 2))
        whole = zero != 3 and not last and not (first and zero)
        pieces = 1 if whole or not (gathers or scatters) else self.buckets
        meets = [k for k in (0, 1) if self.loads.context_bytes[k, kind, part] > 0.0]
        attention = [float(self.loads.attention_s[k, kind, part]) / pieces for k in meets]
        for _ in range(pieces):
            gathered: dict[int, list[int]] = {}
            if gathers:
                held = {rank: list(self.gathered[rank]) for rank in ranks}
                for rank in ranks:
                    held[rank] += self.ended[rank][-2:-1] if zero == 3 else []
                hidden = (1.0 - self.loads.exposed) / pieces
                gathered = self._gather(stage, part, held, hidden, label)
                if zero == 3:
                    late = {rank: held[rank] + waits[rank] for rank in ranks}
                    shown = self._gather(stage, part, late, self.loads.exposed / pieces, label)
                    gathered = {
                        rank: gathered.get(rank, []) + shown.get(rank, []) for rank in ranks
                    }
                else:
                    gathered = {rank: self.gathered[rank] for rank in ranks} | gathered
                self.gathered |= gathered
            seconds = float(self.loads.seconds[kind, part]) / pieces - sum(attention)
            ends = {}
            ready = {rank: waits[rank] + gathered.get(rank, []) for rank in ranks}
            for k, shown in zip(meets, attention, strict=True):
                size = float(self.loads.context_bytes[k, kind, part]) / pieces
                around = self._exchange_context(size, stage, ready, label)
                for rank in ranks:
                    done = self.tasks.add(TaskKind.COMPUTE, rank, -1, shown, ready[rank], label)
                    ready[rank] = [done, *around.get(rank, [])]
            for rank in ranks:
                before = ready[rank]
                ends[rank] = self.tasks.add(TaskKind.COMPUTE, rank, -1, seconds, before, label)
                waits[rank] = [ends[rank]]
                self.ended[rank].append(ends[rank])
            if scatters:
                after, where = (
                    {rank: [end] for rank, end in ends.items()},
                    (stage, part, microbatch),
                )
                if zero >= 2:
                    share = self.loads.exposed / pieces
                    shown = self._reduce(*where, after, share, last, False)
                    for rank in ranks:
                        waits[rank] = waits[rank] + shown[rank]
                        after[rank] = after[rank] + shown[rank]
                self._reduce(*where, after, (1.0 - self.loads.exposed) / pieces, last, True)
        gates = {rank: [*waits[rank], *again.get(rank, [])] for rank in ranks}
        self._reduce_tensor(kind, gates, label)
        size = float(self.loads.heads_bytes[kind, part]) / self.layout.context
        self._all_to_all(stage, gates, label, self.layout.context, size)
        self._exchange_experts(kind, stage, gates, label, 1.0 - self.loads.beside)
        for rank in ranks:
            self.gate[rank] = gates[rank]
        if kind in _SENDS:
            self._send(kind, stage, part, microbatch, gates)

    def _send(
        self, kind: PassKind, stage: int, part: int, microbatch: int, gates: dict[int, list[int]]
    ) -> None:
        """Send outputs to the ranks of the next part, or gradients to those of the one before."""
        step, phase = _SENDS[kind]
        if not 0 <= part + step < self.parts:
            return
        readers = self.ranks[stage_of(self.schedule.name, self.stages, part + step)].tolist()
        for rank, reader in zip(self.ranks[stage].tolist(), readers, strict=True):
            source, target = self.placement.rank_servers(rank), self.placement.rank_servers(reader)
            sent = gates[rank]
            if source != target:
                size = self.loads.boundary_bytes / len(source)
                label = (part, phase, microbatch)
                waits = gates[rank] + self.queued.get((kind, rank, reader), [])
                sent = [
                    self.tasks.add(TaskKind.TRANSFER, a, b, size, waits, label)
                    for a, b in zip(source, target, strict=True)
                ]
                self.queued[kind, rank, reader] = sent
            self.arrived[kind, part + step, microbatch, reader] = sent

    def _columns(self, ranks: Iterable[int]) -> list[Group]:
        """Return the servers that the first, second, ... servers of some ranks make up.

        Ranks within servers make up one set; of ranks over several servers, each server holds a
        share of the tensors and meets only those that hold the same share.
        """
        columns = zip(*(self.placement.rank_servers(rank) for rank in ranks), strict=True)
        return [tuple(sorted(set(column))) for column in columns]

    def _exchange_context(
        self, size: float, stage: int, waits: dict[int, list[int]], label: Label
    ) -> dict[int, list[int]]:
        """Let keys and values go round each context group while its ranks compute."""
        found: dict[int, list[int]] = {}
        for members in self.ranks[stage].reshape(-1, self.layout.context).tolist():
            before = [task for rank in members for task in waits[rank]]
            columns = self._columns(members)
            share = size / self.placement.servers_per_rank * _more(len(members), len(columns[0]))
            tasks = [
                self.tasks.collective(TaskKind.ALL_GATHER, servers, share, before, label)
                for servers in columns
                if len(servers) > 1
            ]
            found |= dict.fromkeys(members, tasks)
        return found

    def _reduce_tensor(self, kind: PassKind, gates: dict[int, list[int]], label: Label) -> None:
        """Reduce over the servers of each rank, which waits for it."""
        size = float(self.loads.tensor_bytes[kind, label[0]])
        if self.placement.servers_per_rank == 1 or size == 0.0:
            return
        gpus = self.layout.tensor
        inside = 2.0 * (gpus - 1) / gpus * size / self.loads.gather_rate
        size *= _more(gpus, self.placement.servers_per_rank)
        for rank, gate in gates.items():
            servers = self.placement.rank_servers(rank)
            gates[rank] = self.tasks.both(TaskKind.ALLREDUCE, servers, size, gate, label, inside)

    def _exchange_experts(
        self, kind: PassKind, stage: int, gates: dict[int, list[int]], label: Label, share: float
    ) -> None:
        """Send a share of the tokens from every server of an expert group to every other."""
        size = share * float(self.loads.expert_bytes[kind, label[0]]) / self.apart
        self._all_to_all(stage, gates, label, self.apart, size)

    def _all_to_all(
        self, stage: int, gates: dict[int, list[int]], label: Label, group: int, size: float
    ) -> None:
        """Send what each rank of a group has for each other; they wait for what comes."""
        if size == 0.0:
            return
        for members in self.ranks[stage].reshape(-1, group).tolist():
            at: dict[Group, list[int]] = {}
            for rank in members:
                at.setdefault(self.placement.rank_servers(rank), []).append(rank)
            before = {
                place: [task for rank in ranks for task in gates[rank]]
                for place, ranks in at.items()
            }
            into: dict[Group, list[int]] = {place: [] for place in at}
            for source, senders in at.items():
                for target, readers in at.items():
                    if source == target:
                        continue
                    each = size * len(senders) * len(readers) / len(source)
                    into[target] += [
                        self.tasks.add(TaskKind.TRANSFER, a, b, each, before[source], label)
                        for a, b in zip(source, target, strict=True)
                    ]
            for place, ranks in at.items():
                for rank in ranks:
                    gates[rank] = gates[rank] + into[place]

    def _synchronise(
        self,
        kind: TaskKind,
        stage: int,
        sizes: tuple[float, float],
        groups_of: tuple[list[np.ndarray], list[np.ndarray]],
        before: dict[int, list[int]],
        label: Label,
        in_turn: bool = False,
    ) -> dict[int, list[int]]:
        """Add collectives of dense weights and of experts; return them by rank.

        Those of one group ``in_turn`` go one after another.
        """
        found: dict[int, list[int]] = {}
        for size, groups in zip(sizes, groups_of, strict=True):
            sort = [groups is each for each in (self.dense_groups, self.expert_groups)]
            for group in groups if size > 0.0 else ():
                ranks = self.ranks[stage][group].tolist()
                if len(ranks) == 1:
                    continue
                waits = [task for rank in ranks for task in before.get(rank, [])]
                columns = self._columns(ranks)
                # Ranks of one server exchange meanwhile, each GPU its own part.
                here = len(ranks) / len(columns[0])
                inside = (len(ranks) - 1.0) / len(ranks) * size / self.layout.tensor
                delay = inside / self.loads.gather_rate if here > 1.0 else 0.0
                each = size / len(columns) * _more(len(ranks), len(columns[0]))
                if kind == TaskKind.ALLREDUCE:
                    delay *= 2.0
                tasks = []
                for place, servers in enumerate(columns):
                    caller = (*sort, *ranks, place)
                    turn = self.called.get(caller, []) if in_turn else []
                    made = self.tasks.both(kind, servers, each, waits, label, delay, turn)
                    if in_turn:
                        self.called[caller] = made
                    tasks += made
                for rank in ranks:
                    found.setdefault(rank, []).extend(tasks)
        return found

    def _gather(
        self, stage: int, part: int, before: dict[int, list[int]], share: float, label: Label
    ) -> dict[int, list[int]]:
        """Gather a share of the weights of a part."""
        weights = self.loads.weights[part].times(share)
        return self._synchronise(
            TaskKind.ALL_GATHER, stage, (weights.dense, weights.expert),
            (self.dense_groups, self.expert_groups), before, (part, Phase.SYNCHRONISE, label[2]),
        )  # fmt: skip

    def _reduce(
        self,
        stage: int,
        part: int,
        microbatch: int,
        after: dict[int, list[int]],
        share: float,
        last: bool,
        in_turn: bool,
    ) -> dict[int, list[int]]:
        """Reduce or scatter a share of the gradients of a part; return the tasks of each rank."""
        kind = TaskKind.REDUCE_SCATTER if self.layout.zero else TaskKind.ALLREDUCE
        gradients = self.loads.gradients[part].times(share)
        label = (part, Phase.SYNCHRONISE, microbatch)
        sizes = gradients.dense, gradients.expert
        groups = (self.dense_groups, self.expert_groups)
        found = self._synchronise(kind, stage, sizes, groups, after, label, in_turn)
        made = {rank: list(found.get(rank, [])) for rank in after}
        if last and self.copies:
            each = sum(size / len(own[0]) for size, own in zip(sizes, groups, strict=True))
            before = {rank: after[rank] + made[rank] for rank in after}
            summed = self._synchronise(
                TaskKind.ALLREDUCE, stage, (each, 0.0), (self.copies, []), before, label, in_turn
            )
            for rank, tasks in summed.items():
                made[rank] += tasks
        for rank, tasks in made.items():
            self.reduced[rank] += tasks
        return made

    def _finish(self) -> None:
        """Sum what is left, share a tied embedding's gradient between the end stages, update."""
        for stage, place in sorted(self._ends()[1]) if self.layout.zero < 2 else ():
            _, chunk, microbatch = self.schedule.passes[stage, place].tolist()
            part = part_of(self.schedule.name, self.stages, stage, chunk)
            after = {rank: self.gate[rank] for rank in self.ranks[stage].tolist()}
            self._reduce(stage, part, microbatch, after, self.loads.exposed, True, True)
        if self.loads.tied_bytes > 0.0 and self.stages > 1:
            label = (0, Phase.SYNCHRONISE, 0)
            for head, tail in zip(self.ranks[0].tolist(), self.ranks[-1].tolist(), strict=True):
                waits = self.gate[head] + self.gate[tail]
                columns = self._columns((head, tail))
                size = self.loads.tied_bytes / len(columns)
                tasks = [
                    self.tasks.collective(TaskKind.ALLREDUCE, servers, size, waits, label)
                    for servers in columns
                    if len(servers) > 1
                ]
                self.reduced[head] += tasks
                self.reduced[tail] += tasks
        if self.loads.update_s == 0.0:
            return
        for stage in range(self.stages):
            for rank in self.ranks[stage].tolist():
                waits = self.gate[rank] + self.reduced[rank]
                label = (stage, Phase.UPDATE, 0)
                self.tasks.add(TaskKind.COMPUTE, rank, -1, self.loads.update_s, waits, label)
