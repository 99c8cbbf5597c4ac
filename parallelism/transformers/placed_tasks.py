"""From a placed layout to the task graph of one iteration: every rank, pass and message."""

from typing import NamedTuple

import numpy as np

from codesign_base.arrays import Ints
from parallelism.taskgraph import Group, Phase, TaskGraph, TaskKind
from parallelism.transformers.groups import Exchange
from parallelism.transformers.loads import Loads
from parallelism.transformers.pass_order import Shared, pass_order
from parallelism.transformers.placed_messages import SENDS, Messages
from parallelism.transformers.placement import Placement
from parallelism.transformers.schedules import PassKind, PipelineSchedule
from parallelism.transformers.shape import Shape, whole_shape
from parallelism.transformers.stages import WeightCount
from parallelism.transformers.task_list import NOBODY, Label, Repeated, TaskList

PIECES = 4
"""Pieces in which each part's gradients are reduced and weights gathered."""

_PHASE = {
    PassKind.FORWARD: Phase.FORWARD,
    PassKind.BACKWARD: Phase.BACKWARD,
    PassKind.WEIGHT: Phase.BACKWARD,
}


def iteration_tasks(
    placement: Placement,
    schedule: PipelineSchedule,
    loads: Loads,
    *,
    shape: Shape | None = None,
) -> TaskGraph:
    """Return the task graph of one iteration.

    Parameters
    ----------
    placement : Placement
    schedule : PipelineSchedule
        Of the placement's layout.
    loads : Loads
    shape : Shape, optional
        `whole_shape` of the placement, where it is at hand.

    Returns
    -------
    TaskGraph
        One device a rank. A rank runs its passes in the schedule's order, each when its input
        has arrived. Tensor groups over several servers and expert exchange hold the rank up
        after the pass, and so does what context groups exchange for linear attention; keys and
        values go round the context group beside its attention. Messages from one rank to another of
        the pipeline go one after another, as calls of one NCCL communicator do. Gradients are
        reduced (ZeRO 0) or scattered (1 to 3) over the data and context ranks of a stage, those of
        experts over the ranks that have the same ones; copies of sharded states add up their shares
        in the end; each rank then updates its share. Weights
        are gathered in the order of use: at the beginning (1, 2), which in the steady state is the
        end of the iteration before, or for every forward and backward pass, each piece while the
        one before it is at work (3). Both are in `PIECES` a part, which overlap with its last
        backward and first forward pass (ZeRO 3: with all of them). Of the share that no pass hides
        (`Loads.exposed`) weights are gathered before the first pass and gradients summed after the
        last one; but what is done in every pass, gathering of ZeRO 3 and scattering of 2 and 3,
        holds each pass up. Ranks of a group on one server exchange with each other while the server
        sends to others.
    """
    own = whole_shape(placement) if shape is None else shape
    return _Builder(placement, schedule, loads, own).build()[0]


def represented_tasks(
    placement: Placement,
    schedule: PipelineSchedule,
    loads: Loads,
    shape: Shape,
    groups: tuple[Group, ...],
) -> tuple[TaskGraph, Ints]:
    """Return the task graph of some ranks, which stand for all.

    Parameters
    ----------
    placement, schedule, loads
        As in `iteration_tasks`.
    shape : Shape
        Of these ranks; its exchanges have names.
    groups : tuple of tuple of int
        Of all ranks.

    Returns
    -------
    tasks : TaskGraph
    element : int64 array, shape (tasks,)
        Name of the exchange that each task is; -1 of compute tasks.
    """
    builder = _Builder(placement, schedule, loads, shape)
    for group in groups:
        builder.tasks.group(group)
    return builder.build()


class _Made(NamedTuple):
    """Tasks of a pass that others wait for, and how many it has.

    Those that the next pass of its ranks waits for, and those that the reader of its outputs
    does (none if nobody reads them); the last that gather weights, that compute, and that sum
    gradients in turn, of each kind of weights; and all that sum gradients.
    """

    size: int
    gate: list[Ints]
    sent: list[Ints]
    gathered: list[Ints]
    ended: list[Ints]
    dense: list[Ints]
    expert: list[Ints]
    reduced: list[Ints]
    tasks: Repeated


class _Builder:
    """One build: what the next pass of each stage's ranks waits for, and where outputs are.

    Whatever concerns the ranks of a stage is an array over them: a task of each rank, or one
    that it waits for.
    """

    def __init__(
        self,
        placement: Placement,
        schedule: PipelineSchedule,
        loads: Loads,
        shape: Shape,
    ) -> None:
        self.placement, self.loads = placement, loads
        self.layout, self.shape = placement.layout, shape
        self.stages = schedule.stages
        self.parts = schedule.stages * schedule.chunks
        self.tasks = TaskList()
        self.messages = Messages(placement, loads, shape, self.tasks)
        self.ranks = shape.ranks
        self.order = pass_order(schedule, placement.layout.zero, self._shared())
        self.template: list[int] = self.order.template.tolist()
        self.made: dict[int, _Made] = {}
        self.begin: Ints = np.zeros(self.order.kind.size, dtype=np.int64)
        self.gathered: list[list[Ints]] = [[] for _ in range(self.stages)]
        self.ended: list[list[Ints]] = [[] for _ in range(self.stages)]
        self.reduced: list[list[Ints]] = [[] for _ in range(self.stages)]

    def _shared(self) -> tuple[Shared, ...]:
        """Return which states of each part are gathered and summed over the ranks of its stage."""
        known = self.shape.collectives
        found = []
        for weights, gradients in zip(self.loads.weights, self.loads.gradients, strict=True):
            (gathers, also), sums = (
                (bool(known.dense and each.dense), bool(known.expert and each.expert))
                for each in (weights, gradients)
            )
            found.append(Shared(gathers or also, *sums))
        return tuple(found)

    def build(self) -> tuple[TaskGraph, Ints]:
        """Add all passes, each after those that it waits for."""
        order, count = self.order, self.order.kind.size
        if self.layout.zero in (1, 2) and self.loads.exposed > 0.0:
            self._begin()
        sizes = np.zeros(count, dtype=np.int64)  # of templates
        at = 0
        for number in [*np.flatnonzero(order.template == np.arange(count)).tolist(), count]:
            if at < number:  # repetitions of passes that were added before
                size = sizes[order.template[at:number]]
                self.begin[at:number] = self.tasks.tasks + np.cumsum(size) - size
                self.tasks.skip(int(size.sum()))
            if number < count:
                self.begin[number] = self.tasks.tasks
                self._pass(number)
                sizes[number] = self.made[number].size
            at = number + 1
        self._repeat()
        self._finish()
        return self.tasks.finish(self.placement, self.shape.server_of_device)

    def _begin(self) -> None:
        """Gather the share of weights that no pass hides, before the first one."""
        for number in np.flatnonzero(self.order.uses).tolist():
            stage, part = int(self.order.stage[number]), int(self.order.part[number])
            weights = self.loads.weights[part].times(self.loads.exposed)
            label = (part, Phase.SYNCHRONISE, int(self.order.microbatch[number]))
            before = self.gathered[stage]
            found = self._synchronise(TaskKind.ALL_GATHER, stage, weights, before, label)
            self.gathered[stage] = found or before

    def _repeat(self) -> None:
        """Add the repetitions of passes."""
        order = self.order
        again = np.flatnonzero(order.template != np.arange(order.kind.size))
        again = again[np.argsort(order.template[again], kind="stable")]
        edges = np.flatnonzero(np.diff(order.template[again], prepend=-1))
        begin = np.append(self.begin, 0)  # where there is no pass
        for numbers in np.split(again, edges[1:]) if again.size else []:
            columns = (numbers, *(origin[numbers] for origin in order.origins))
            begins = np.stack([begin[each] for each in columns], axis=1)
            template = int(order.template[numbers[0]])
            made = self.made[template]
            self.tasks.repeat(made.tasks, begins, order.microbatch[numbers])
            moved = begins[:, 0] - self.begin[template]
            self.reduced[int(order.stage[template])] += [
                each[:, None] + moved for each in made.reduced
            ]

    def _outputs(self, number: int, name: str) -> list[Ints]:
        """Return some tasks of a pass that others wait for, see `_Made`; none of no pass."""
        if number < 0:
            return []
        template = self.template[number]
        tasks: list[Ints] = getattr(self.made[template], name)
        moved = self.begin[number] - self.begin[template]
        return tasks if moved == 0 else [each + moved for each in tasks]

    def _resume(self, number: int) -> None:
        """Let a pass go on from those before it on its stage, which may be repetitions."""
        order, stage = self.order, int(self.order.stage[number])
        before, gathered = int(order.before[number]), int(order.gathered[number])
        if before >= 0 and self.layout.zero == 3:
            self.ended[stage] = self._outputs(before, "ended")
        if gathered >= 0:
            self.gathered[stage] = self._outputs(gathered, "gathered")
        for over, origin, name in zip(
            self._summed(stage), (order.dense, order.expert), ("dense", "expert"), strict=True
        ):
            if over is not None and origin[number] >= 0:
                self.messages.resume(over, self._outputs(int(origin[number]), name))

    def _summed(self, stage: int) -> list[Exchange | None]:
        """Return over what gradients of dense weights, and of experts, are summed; None: not."""
        known = self.shape.collectives
        return [over[stage] if over else None for over in (known.dense, known.expert)]

    def _span(self, number: int) -> tuple[int, int]:
        """Return where the tasks of a pass begin and end; (0, 0) of no pass."""
        if number < 0:
            return 0, 0
        begin = int(self.begin[number])
        return begin, begin + self.made[self.template[number]].size

    def _pass(self, number: int) -> None:
        """Add one pass of all ranks of a stage, task by task."""
        order = self.order
        origins = [int(origin[number]) for origin in order.origins]
        before, sender, earlier = (
            int(each[number]) for each in (order.before, order.sender, order.earlier)
        )
        kind, part = PassKind(int(order.kind[number])), int(order.part[number])
        mark = self.tasks.mark()
        label = (part, _PHASE[kind], int(order.microbatch[number]))
        waits = self._outputs(before, "gate") + self._outputs(sender, "sent")
        stage = int(order.stage[number])
        self._resume(number)
        summed = len(self.reduced[stage])
        gate = self._new(
            kind, stage, label, waits, bool(order.uses[number]), bool(order.scatters[number]),
            bool(order.last[number]),
        )  # fmt: skip
        sent: list[Ints] = []
        if kind in SENDS and 0 <= part + SENDS[kind][0] < self.parts:
            sent = self.messages.send(kind, stage, label, gate, self._outputs(earlier, "sent"))
        spans = tuple(
            (0, 0) if origin in origins[:place] else self._span(origin)
            for place, origin in enumerate(origins)
        )
        dense, expert = (
            [] if over is None else self.messages.turn(over) for over in self._summed(stage)
        )
        self.made[number] = _Made(
            self.tasks.tasks - mark.tasks, gate, sent, self.gathered[stage], self.ended[stage],
            dense, expert, self.reduced[stage][summed:], self.tasks.since(mark, spans),
        )  # fmt: skip

    def _new(
        self,
        kind: PassKind,
        stage: int,
        label: Label,
        waits: list[Ints],
        uses: bool,
        scatters: bool,
        last: bool,
    ) -> list[Ints]:
        """Add a pass task by task but for its outputs; return what the next pass waits for."""
        part, _, microbatch = label
        zero = self.layout.zero
        beside = self.messages.gather_inputs(kind, stage, waits, label)
        beside += self.messages.exchange_experts(kind, stage, waits, label, self.loads.beside)
        pieces = PIECES if last or uses or (zero == 3 and scatters) else 1
        whole = float(self.loads.seconds[kind, part])
        around = [
            (float(size) / pieces, float(attention) / pieces)
            for size, attention in zip(
                self.loads.context_bytes[:, kind, part], self.loads.attention_s[:, kind, part],
                strict=True,
            )
            if size > 0.0
        ]  # fmt: skip
        seconds = whole / pieces - sum(attention for _, attention in around)
        for _ in range(pieces):
            before = waits + (self._gather(stage, part, pieces, microbatch, waits) if uses else [])
            for size, attention in around:
                moved = self.messages.exchange_context(size, stage, before, label)
                before = [self._compute(stage, attention, before, label), *moved]
            ends = self._compute(stage, seconds, before, label)
            waits = [ends]
            self.ended[stage] = [*self.ended[stage][-1:], ends]
            if scatters:
                waits = [ends, *self._reduce(stage, part, ends, pieces, microbatch, last)]
        gate = self.messages.reduce_tensor(kind, stage, waits + beside, label)
        gate = gate + self.messages.exchange_heads(kind, stage, gate, label)
        return gate + self.messages.exchange_experts(
            kind, stage, gate, label, 1.0 - self.loads.beside
        )

    def _compute(self, stage: int, seconds: float, before: list[Ints], label: Label) -> Ints:
        return self.tasks.add(TaskKind.COMPUTE, self.ranks[stage], None, seconds, before, label)

    def _synchronise(
        self,
        kind: TaskKind,
        stage: int,
        shared: WeightCount,
        before: list[Ints],
        label: Label,
        in_turn: bool = False,
    ) -> list[Ints]:
        """Add collectives over the ranks that share weights; return them by rank."""
        known = self.shape.collectives
        return [
            *self._collective(kind, known.dense, stage, shared.dense, before, label, in_turn),
            *self._collective(kind, known.expert, stage, shared.expert, before, label, in_turn),
        ]

    def _add_up(
        self,
        stage: int,
        gradients: WeightCount,
        before: list[Ints],
        label: Label,
        in_turn: bool,
    ) -> list[Ints]:
        """Let copies of sharded states add up what was scattered; return it by rank."""
        share = (
            gradients.dense + gradients.expert * self.layout.expert_ranks
        ) / self.layout.sharing
        over = self.shape.collectives.copies
        return self._collective(TaskKind.ALLREDUCE, over, stage, share, before, label, in_turn)

    def _collective(
        self,
        kind: TaskKind,
        of_stage: tuple[Exchange, ...],
        stage: int,
        size: float,
        before: list[Ints],
        label: Label,
        in_turn: bool,
    ) -> list[Ints]:
        """Add collectives of a stage; return them by rank, none if nothing is sent."""
        if size == 0.0 or not of_stage:
            return []
        over = of_stage[stage]
        inside = None
        if over.near is not None:
            passes = 2.0 if kind == TaskKind.ALLREDUCE else 1.0
            inside = passes * over.near * size / (self.layout.tensor * self.loads.gather_rate)
        return self.messages.collective(kind, over, size, before, label, inside, in_turn=in_turn)

    def _gather(
        self, stage: int, part: int, pieces: int, microbatch: int, waits: list[Ints]
    ) -> list[Ints]:
        """Gather the weights of a part, or a piece of them, after the piece before.

        Where they are dropped after use, there is room for the piece at work and for the next, and
        the share that no pass hides is gathered only when the rank has done all before; else
        `_begin` has gathered that share.
        """
        known, exposed = self.gathered[stage], self.loads.exposed
        before, found = list(known), []
        shares = [(1.0 - exposed, before)]
        if self.layout.zero == 3:
            if len(self.ended[stage]) > 1:
                before.append(self.ended[stage][0])
            shares.append((exposed, before + waits))
        label = (part, Phase.SYNCHRONISE, microbatch)
        for share, after in shares:
            weights = self.loads.weights[part].times(share / pieces)
            found += self._synchronise(TaskKind.ALL_GATHER, stage, weights, after, label)
        self.gathered[stage] = found or known
        return self.gathered[stage]

    def _reduce(
        self, stage: int, part: int, ends: Ints, pieces: int, microbatch: int, last: bool
    ) -> list[Ints]:
        """Reduce or scatter the gradients of a part, or a piece; return what the rank waits for.

        That is the share that no pass hides, which goes first, where every microbatch's gradients
        are scattered (ZeRO 2, 3). Else `_finish` sums that share, and the rank waits for none.
        """
        label, exposed = (part, Phase.SYNCHRONISE, microbatch), self.loads.exposed
        gradients, held = self.loads.gradients[part].times(1.0 / pieces), []
        if self.layout.zero >= 2:
            held = self._sum(stage, gradients.times(exposed), [ends], label, last, False)
        hidden = gradients.times(1.0 - exposed)
        self._sum(stage, hidden, [ends, *held], label, last, True)
        return held

    def _sum(
        self,
        stage: int,
        gradients: WeightCount,
        waits: list[Ints],
        label: Label,
        last: bool,
        in_turn: bool,
    ) -> list[Ints]:
        """Reduce or scatter gradients; of the last microbatch copies add up what is complete."""
        kind = TaskKind.REDUCE_SCATTER if self.layout.zero else TaskKind.ALLREDUCE
        found = self._synchronise(kind, stage, gradients, waits, label, in_turn)
        if last:
            found += self._add_up(stage, gradients, waits + found, label, in_turn)
        self.reduced[stage] += found
        return found

    def _finish(self) -> None:
        """Sum what no pass hides, and the gradient of a tied embedding, then update."""
        if self.layout.zero < 2 and self.loads.exposed > 0.0:
            for number in np.flatnonzero(self.order.last).tolist():
                stage, part = int(self.order.stage[number]), int(self.order.part[number])
                gradients = self.loads.gradients[part].times(self.loads.exposed)
                label = (part, Phase.SYNCHRONISE, int(self.order.microbatch[number]))
                self._sum(stage, gradients, self._last_outputs(stage), label, True, True)
        if self.loads.tied_bytes > 0.0 and self.stages > 1:
            self._tie()
        if self.loads.update_s == 0.0:
            return
        for stage in range(self.stages):
            waits = self._last_outputs(stage) + self.reduced[stage]
            label = (stage, Phase.UPDATE, 0)
            self.tasks.add(
                TaskKind.COMPUTE, self.ranks[stage], None, self.loads.update_s, waits, label
            )

    def _last_outputs(self, stage: int) -> list[Ints]:
        """Return what the ranks of a stage do last."""
        return self._outputs(int(np.flatnonzero(self.order.stage == stage)[-1]), "gate")

    def _tie(self) -> None:
        shares = self.placement.servers_per_rank
        head, tail = self.shape.home[0], self.shape.home[-1]
        ties = self.shape.ties
        away = np.flatnonzero(head != tail)
        if not away.size:
            return
        ends = self._last_outputs(0) + self._last_outputs(self.stages - 1)
        before = [task[away] for task in ends]
        label = (0, Phase.SYNCHRONISE, 0)
        for share in range(shares):
            pairs = zip(head[away].tolist(), tail[away].tolist(), strict=True)
            groups = np.array(
                [self.tasks.group((min(a, b) + share, max(a, b) + share)) for a, b in pairs]
            )
            done = np.full(head.size, NOBODY, dtype=np.int64)
            done[away] = self.tasks.add(
                TaskKind.ALLREDUCE, groups, None, self.loads.tied_bytes / shares, before, label,
                element=None if ties is None else ties[away],
            )  # fmt: skip
            self.reduced[0].append(done)
            self.reduced[-1].append(done)
