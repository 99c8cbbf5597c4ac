"""When each pass of a pipeline starts and ends."""

import numpy as np

from codesign_base.arrays import Floats, Ints
from codesign_base.jit import kernel


@kernel
def pass_ends(
    passes: Ints, parts_of: Ints, microbatches: int, seconds: Floats, delay: Floats
) -> Floats:
    """Return the end of every pass, in the order of ``passes``; NaN where it never starts.

    Parameters
    ----------
    passes : int64 array, shape (stages, length, 3)
        Kind, chunk and microbatch.
    parts_of : int64 array, shape (stages, chunks)
        The part of the model that each chunk is.
    microbatches : int
    seconds : float64 array, shape (3, chunks * stages)
        By kind and part of the model.
    delay : float64 array, shape (2, chunks * stages)
        Seconds that an output takes from a part to the next one, and its gradient back.
    """
    stages, length = passes.shape[0], passes.shape[1]
    parts = parts_of.size
    ends = np.full((stages, length), np.nan)
    # When the result of a pass is there, by kind, part and microbatch.
    ready = np.full((2, parts, microbatches), np.nan)
    position = np.zeros(stages, np.int64)
    clock = np.zeros(stages)
    moved = True
    while moved:
        moved = False
        for stage in range(stages):
            while position[stage] < length:
                at = position[stage]
                kind = passes[stage, at, 0]
                part = parts_of[stage, passes[stage, at, 1]]
                batch = passes[stage, at, 2]
                start = clock[stage]
                if kind == 0 and part > 0:
                    start = max(start, ready[0, part - 1, batch] + delay[0, part - 1])
                elif kind == 1:
                    start = max(start, ready[0, part, batch])
                    if part < parts - 1:
                        start = max(start, ready[1, part + 1, batch] + delay[1, part])
                elif kind == 2:
                    start = max(start, ready[1, part, batch])
                # What is waited for has not run yet; NaN may hide in a maximum.
                if (
                    (kind == 0 and part > 0 and np.isnan(ready[0, part - 1, batch]))
                    or (kind == 1 and np.isnan(ready[0, part, batch]))
                    or (kind == 1 and part < parts - 1 and np.isnan(ready[1, part + 1, batch]))
                    or (kind == 2 and np.isnan(ready[1, part, batch]))
                ):
                    break
                clock[stage] = start + seconds[kind, part]
                ends[stage, at] = clock[stage]
                if kind < 2:
                    ready[kind, part, batch] = clock[stage]
                position[stage] = at + 1
                moved = True
    return ends


@kernel
def pass_sequence(passes: Ints, parts_of: Ints, microbatches: int) -> Ints:
    """Return all passes in an order in which each comes after those that it waits for.

    Stages take turns; each goes on until its next pass waits for one that has not come yet.

    Parameters
    ----------
    passes, parts_of, microbatches
        As in `pass_ends`.

    Returns
    -------
    int64 array, shape (passes of all stages, 2)
        Stage, and place in the order of that stage.
    """
    stages, length = passes.shape[0], passes.shape[1]
    parts = parts_of.size
    done = np.zeros((3, parts, microbatches), np.bool_)
    sequence = np.empty((stages * length, 2), np.int64)
    position = np.zeros(stages, np.int64)
    count = 0
    moved = True
    while moved:
        moved = False
        for stage in range(stages):
            while position[stage] < length:
                at = position[stage]
                kind = passes[stage, at, 0]
                part = parts_of[stage, passes[stage, at, 1]]
                batch = passes[stage, at, 2]
                if kind == 0 and part > 0 and not done[0, part - 1, batch]:
                    break
                if kind == 1 and part < parts - 1 and not done[1, part + 1, batch]:
                    break
                done[kind, part, batch] = True
                sequence[count, 0], sequence[count, 1] = stage, at
                count += 1
                position[stage] = at + 1
                moved = True
    return sequence[:count]


@kernel
def most_held(passes: Ints, parts_of: Ints, split: bool, held: Floats, deferred: Floats) -> Floats:
    """Return the most that each stage holds at once of what its passes keep.

    Parameters
    ----------
    passes, parts_of
        As in `pass_ends`.
    split : bool
        Something is held until the weight pass, not the backward pass, has ended.
    held : float64 array, shape (parts,)
        What a forward pass of each part keeps.
    deferred : float64 array, shape (parts,)
        What a backward pass keeps for the weight pass in its place, if ``split``.

    Returns
    -------
    float64 array, shape (stages,)
    """
    stages, length = passes.shape[0], passes.shape[1]
    last = 2 if split else 1
    most = np.zeros(stages)
    for stage in range(stages):
        now = 0.0
        for at in range(length):
            part = parts_of[stage, passes[stage, at, 1]]
            kind = passes[stage, at, 0]
            if kind == 0:
                now += held[part]
            elif kind == last:
                now -= deferred[part] if split else held[part]
            else:
                now += deferred[part] - held[part]
            most[stage] = max(most[stage], now)
    return most
