"""When the stages of a pipeline end whose messages share the ports of their servers."""

from typing import NamedTuple

import numpy as np

from codesign_base.arrays import Floats, Ints
from codesign_base.jit import inner_kernel, kernel
from parallelism.transformers.timeline_kernels import pass_sequence

# Share of what was gathered that sums in another order differ by.
_ROUNDING = 1e-12


class PassSends(NamedTuple):
    """Seconds of computing, and seconds in which all ports of a server do nothing else.

    By kind of pass and part of the model: what a pass computes, what it sends ``beside``, what
    its ranks wait for ``after`` it. By direction and part: outputs to the next part, gradients to
    the part before. By part: its weights, and its gradients, where ranks share them, and what
    ``copies`` of sharded states add up once.
    """

    computing: Floats
    beside: Floats
    after: Floats
    outputs: Floats
    weights: Floats
    gradients: Floats
    copies: Floats


class ServerPorts(NamedTuple):
    """The ports of each stage's servers: when they are free, and seconds that may wait since."""

    free: Floats
    waiting: Floats


@inner_kernel
def _idle(ports: ServerPorts, stage: int, now: float) -> None:
    """Let ports that have been free send what waits."""
    if now > ports.free[stage]:
        left = ports.waiting[stage] - (now - ports.free[stage])
        ports.waiting[stage] = max(0.0, left)
        ports.free[stage] = now


@inner_kernel
def _sent(ports: ServerPorts, stage: int, seconds: float, now: float, share: float) -> float:
    """Return when a message has gone, after those before it and ``share`` times what waits."""
    if seconds == 0.0:
        return now
    _idle(ports, stage, now)
    waited = min(ports.waiting[stage], share * seconds)
    ports.waiting[stage] -= waited
    end: float = ports.free[stage] + seconds + waited
    ports.free[stage] = end
    return end


@kernel
def stage_ends(
    passes: Ints,
    parts_of: Ints,
    microbatches: int,
    zero: int,
    pieces: int,
    sends: PassSends,
    exposed: float,
    share: float,
) -> Floats:
    """Return when each stage has done its passes, and its ports have sent everything.

    Parameters
    ----------
    passes : int64 array, shape (stages, length, 3)
        Kind, chunk and microbatch; ports send what a stage's passes send in this order.
    parts_of : int64 array, shape (stages, chunks)
        The part of the model that each chunk is.
    microbatches : int
    zero : int
        What is sharded: decides which passes gather weights, and reduce or scatter gradients.
    pieces : int
        In which a part's weights are gathered, and its gradients reduced.
    sends : PassSends
    exposed : float
        Share of weights and gradients that no pass hides: ranks wait for it beside each pass for
        which weights are gathered, or gradients scattered, anew; else in the beginning and the end.
    share : float
        Of the ports, what weights and gradients get for what a message gets beside them.

    Returns
    -------
    float64 array, shape (stages,)
        NaN where passes wait for each other.
    """
    stages, length = passes.shape[0], passes.shape[1]
    parts, chunks = parts_of.size, parts_of.shape[1]
    arrived = np.zeros((2, parts, microbatches))
    ended, done = np.zeros(stages, np.int64), np.zeros((3, parts), np.int64)
    clock, ports = np.zeros(stages), ServerPorts(np.zeros(stages), np.zeros(stages))
    # Pieces of weights come one after another: from the beginning, ``gathered`` in all and
    # ``needed`` so far; or, where ranks drop them, the next one (when it is ``there``) beside the
    # one at work.
    gathered, needed, there = np.zeros(stages), np.zeros(stages), np.zeros(stages)
    used = np.zeros(stages, np.int64)
    uses_in_all = 2 * chunks * microbatches
    completing = 1
    for at in range(length):
        completing = max(completing, passes[0, at, 0])
    hidden = 1.0 - exposed
    for stage in range(stages):
        if zero == 3:
            first = sends.weights[parts_of[stage, passes[stage, 0, 1]]]
            there[stage] = _sent(ports, stage, hidden * first / pieces, 0.0, 1.0)
        elif zero > 0:
            for part in parts_of[stage]:
                gathered[stage] += sends.weights[part]
            ports.waiting[stage] = gathered[stage]
            needed[stage] = exposed * gathered[stage]
    sequence = pass_sequence(passes, parts_of, microbatches)
    for turn in range(sequence.shape[0]):
        stage, at = sequence[turn, 0], sequence[turn, 1]
        kind = passes[stage, at, 0]
        part = parts_of[stage, passes[stage, at, 1]]
        batch = passes[stage, at, 2]
        start = clock[stage]
        source = part - 1 if kind == 0 else part + 1
        if kind < 2 and 0 <= source < parts:
            start = max(start, arrived[kind, source, batch])
        done[kind, part] += 1
        uses = kind == 0 and done[0, part] == 1 and zero > 0
        if zero == 3:
            uses = kind < 2
        scatters = kind == completing and (zero >= 2 or done[kind, part] == microbatches)
        beside = start
        if sends.beside[kind, part] > 0.0:
            beside = _sent(ports, stage, sends.beside[kind, part], start, share)
        now = start
        count = pieces if uses or scatters else 1
        for piece in range(count):
            if uses:
                weights = sends.weights[part] / count
                if zero == 3:
                    now = _sent(ports, stage, exposed * weights, max(now, there[stage]), 1.0)
                    if piece == count - 1:
                        used[stage] += 1
                        following = passes[stage, min(at + 1, length - 1), 1]
                        weights = sends.weights[parts_of[stage, following]] / count
                    if used[stage] < uses_in_all:
                        there[stage] = _sent(ports, stage, hidden * weights, now, 1.0)
                else:
                    needed[stage] += hidden * weights
                    left = ports.waiting[stage] - (gathered[stage] - needed[stage])
                    if left > _ROUNDING * gathered[stage]:
                        now = max(now, ports.free[stage] + left)
            now += sends.computing[kind, part] / count
            if scatters:
                gradients = sends.gradients[part] / count
                if done[kind, part] == microbatches:
                    gradients += sends.copies[part] / count
                if zero >= 2:
                    now = _sent(ports, stage, exposed * gradients, now, 1.0)
                _idle(ports, stage, now)
                ports.waiting[stage] += hidden * gradients
        now = _sent(ports, stage, sends.after[kind, part], max(now, beside), share)
        if kind < 2:
            output = sends.outputs[kind, part]
            arrived[kind, part, batch] = _sent(ports, stage, output, now, share)
        clock[stage] = now
        ended[stage] = at + 1
    ends = np.maximum(clock, ports.free + ports.waiting)
    for stage in range(stages):
        if ended[stage] < length:
            ends[stage] = np.nan
        for part in parts_of[stage] if zero < 2 else parts_of[stage, :0]:
            ends[stage] += exposed * (sends.gradients[part] + sends.copies[part])
    return ends
