"""Passes of an iteration one after another, and which of them are repetitions."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from codesign_base.arrays import Flags, Ints
from parallelism.alike import numbered
from parallelism.transformers.schedules import PassKind, PipelineSchedule
from parallelism.transformers.timeline_kernels import pass_sequence


class Shared(NamedTuple):
    """Which states of a part its ranks share with others.

    Parameters
    ----------
    weights : bool
        Any that are gathered.
    dense, expert : bool
        Gradients that are summed, of such weights.
    """

    weights: bool
    dense: bool
    expert: bool


@dataclass(frozen=True, eq=False)
class PassOrder:
    """All passes, each after those that it waits for; arrays have one entry for each.

    Parameters
    ----------
    kind, stage, part, microbatch : int64 arrays
        ``part`` is that of the model, see `PipelineSchedule`.
    before : int64 array
        The pass that the ranks of the stage do before; -1: none.
    sender : int64 array
        The pass whose outputs it reads; -1: none.
    earlier : int64 array
        The pass of the same kind on its stage whose outputs went to the same stage last; -1: none.
    gathered : int64 array
        If it ``uses`` weights, the pass of its stage that gathered some last before it; -1: none.
    dense, expert : int64 array
        If it ``scatters`` gradients of such weights, the pass of its stage that did so last before
        it; -1: none.
    uses : bool array
        Whether it gathers the weights that it uses.
    scatters : bool array
        Whether its gradients are reduced or scattered.
    last : bool array
        Whether it completes the gradients of its part.
    alike : bool array
        Whether it shares no states, or does so as all of its kind and part do: such passes differ
        in what they wait for only.
    origins : tuple of int64 array
        All passes that those which are ``alike`` wait for: ``before``, and which of the others
        say of any of them more.
    template : int64 array
        The first pass that it is a repetition of: of the same kind and part, after passes
        (``origins``) of the same kinds and parts. Itself, if it is the first, or not ``alike``.
    """

    kind: Ints
    stage: Ints
    part: Ints
    microbatch: Ints
    before: Ints
    sender: Ints
    earlier: Ints
    gathered: Ints
    dense: Ints
    expert: Ints
    uses: Flags
    scatters: Flags
    last: Flags
    alike: Flags
    origins: tuple[Ints, ...]
    template: Ints


@lru_cache(maxsize=32)
def pass_order(schedule: PipelineSchedule, zero: int, shared: tuple[Shared, ...]) -> PassOrder:
    """Return the order in which the passes of a schedule are added to a task graph.

    Parameters
    ----------
    schedule : PipelineSchedule
    zero : int
        What is sharded: decides which passes gather weights, and scatter gradients.
    shared : tuple of Shared
        Of each part.

    Returns
    -------
    PassOrder
    """
    stages, length = schedule.stages, schedule.length
    parts = stages * schedule.chunks
    sequence = pass_sequence(schedule.passes, schedule.parts, schedule.microbatches)
    stage, place = sequence.T
    kind, chunk, microbatch = schedule.passes[stage, place].T
    part = schedule.parts[stage, chunk]
    count = stage.size
    number = np.full((stages, length), -1, dtype=np.int64)
    number[stage, place] = np.arange(count)
    before = np.where(place > 0, number[stage, np.maximum(place - 1, 0)], -1)
    made = np.full((3, parts + 2, schedule.microbatches), -1, dtype=np.int64)
    made[kind, part + 1, microbatch] = np.arange(count)
    # Activations come from the part before, their gradients from the one after.
    step = np.array([-1, 1, 0])[kind]
    sender = np.where(step != 0, made[kind, part + 1 + step, microbatch], -1)
    earlier = _earlier(schedule.parts, stage, part, step)
    completes = PassKind.WEIGHT if schedule.split_backward else PassKind.BACKWARD
    first, last = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    for found, which, way in ((first, PassKind.FORWARD, -1), (last, completes, 1)):
        own = np.flatnonzero(kind == which)[::way]
        end = np.empty(parts, dtype=np.int64)
        end[part[own]] = own  # of several the last one stays
        found[end] = True
    uses = first if zero in (1, 2) else (kind != PassKind.WEIGHT) & (zero == 3)
    scatters = last | ((kind == completes) & (zero >= 2))
    weights, *summed = np.array(shared, dtype=np.bool_).T[:, part]
    gathered = np.where(uses, _last_before(number, uses & weights), -1)
    dense, expert = (
        np.where(own, _last_before(number, own), -1) for own in (scatters & each for each in summed)
    )
    # What is done once is done by the first or last of several; ZeRO 3 gathers for every pass.
    alike = ~(last | (uses & (zero < 3)))
    origins = [before]
    for origin in (sender, earlier, gathered, dense, expert):
        own = origin[alike]
        if own.max(initial=-1) >= 0 and not np.array_equal(own, origins[-1][alike]):
            origins.append(origin)
    # Passes of one sort leave the same outputs, wherever they begin.
    sort = np.append(np.where(alike, kind * parts + part, 3 * parts + np.arange(count)), -1)
    waits = [sort[origin] for origin in origins]
    same = _first_same(origins)
    template = np.arange(count)
    template[alike] = np.flatnonzero(alike)[
        _first_equal((kind * parts + part, *waits, *same), alike)
    ]
    return PassOrder(
        kind, stage, part, microbatch, before, sender, earlier, gathered, dense, expert, uses,
        scatters, last, alike, tuple(origins), template,
    )  # fmt: skip


def _last_before(number: Ints, which: Flags) -> Ints:
    """Return the last pass on the stage of each, before it, that is one of some; -1 if none is.

    ``number`` are the passes of each stage, ascending.
    """
    last = np.maximum.accumulate(np.where(which[number], number, -1), axis=1)
    found = np.full(which.size, -1, dtype=np.int64)
    found[number[:, 1:]] = last[:, :-1]
    return found


def _first_same(columns: Sequence[Ints]) -> list[Ints]:
    """Return for every column but the first, row by row, the first column with the same value."""
    table = np.stack(columns)
    return [
        (table[:count] == table[count - 1]).argmax(axis=0) for count in range(2, len(columns) + 1)
    ]


def _first_equal(columns: Sequence[Ints | Flags], among: Flags) -> Ints:
    """Return for each of some rows the first of them with the same values; all are at least -1.

    Column by column, so that nothing is sorted: a sort of rows took longer than the tasks made of
    the passes.
    """
    of = np.zeros(int(among.sum()), dtype=np.int64)
    first = np.zeros(1, dtype=np.int64)
    for column in columns:
        values = column[among] + 1
        pairs = of * (values.max(initial=0) + 1) + values
        of, first = numbered(pairs.view(np.uint64))
    return first[of]


def _earlier(parts: Ints, stage: Ints, part: Ints, step: Ints) -> Ints:
    """Return the last pass before each, on its stage and of its kind, that sent to the same stage.

    -1 where there is none. The passes of a stage are in the order in which they run; ``step`` is
    -1 of passes that read from the part before, 1 of those that read from the part after, else 0.
    """
    home = np.empty(parts.size, dtype=np.int64)
    home[parts] = np.arange(parts.shape[0])[:, None]
    reader = part - step
    sends = (step != 0) & (reader >= 0) & (reader < parts.size)
    own = np.flatnonzero(sends)
    # Of one sort: the same kind from one stage to another.
    sort = ((step[own] + 1) * parts.shape[0] + stage[own]) * parts.shape[0] + home[reader[own]]
    order = np.argsort(sort, kind="stable")
    same = np.flatnonzero(sort[order[1:]] == sort[order[:-1]])
    found = np.full(stage.size, -1, dtype=np.int64)
    found[own[order[same + 1]]] = own[order[same]]
    return found
