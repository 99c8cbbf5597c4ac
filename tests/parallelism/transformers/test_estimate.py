"""Passes whose messages share ports: closed forms, and an oracle that goes from event to event."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_parts import part_of, stage_of

from parallelism.transformers.port_kernels import PassSends, stage_ends
from parallelism.transformers.schedules import build_schedule
from parallelism.transformers.timeline import PassTimes, timeline

NAMES = [("1f1b", 1), ("interleaved", 2), ("breadth-first", 3), ("zero-bubble", 1),
         ("zero-bubble-v", 2)]  # fmt: skip


def sends_of(parts, computing=(1.0, 2.0, 0.5), **given):
    """Return passes that take as long in every part, and send what is given."""
    zero = {name: np.zeros((3, parts)) for name in ("beside", "after")}
    zero |= {"outputs": np.zeros((2, parts))}
    zero |= {name: np.zeros(parts) for name in ("weights", "gradients", "copies")}
    for name, value in given.items():
        zero[name] = zero[name] + value
    zero["outputs"][0, -1] = zero["outputs"][1, 0] = 0.0
    return PassSends(np.outer(computing, np.ones(parts)), **zero)


def ends_of(schedule, sends, zero=1, exposed=0.0, share=1.0):
    return stage_ends(
        schedule.passes, schedule.parts, schedule.microbatches, zero, 4, sends, exposed, share
    )


@pytest.mark.parametrize(("name", "chunks"), NAMES)
def test_without_messages_passes_take_the_timeline(name, chunks) -> None:
    schedule = build_schedule(name, 4, 8, chunks)
    none = np.zeros(4 * chunks)
    sends = sends_of(4 * chunks)
    times = PassTimes(*sends.computing, none, none)
    joint = times.backward if schedule.split_backward else times.backward + times.weight
    sends = sends._replace(computing=np.stack([times.forward, joint, times.weight]))
    assert ends_of(schedule, sends).max() == pytest.approx(timeline(schedule, times).makespan)


def test_a_message_alone_is_a_delay() -> None:
    schedule = build_schedule("1f1b", 3, 1)
    send = np.array([0.3, 0.3, 0.0])
    times = PassTimes(*np.outer((1.0, 2.0, 0.0), np.ones(3)), send, send)
    found = ends_of(schedule, sends_of(3, (1.0, 2.0, 0.0), outputs=0.3))
    assert found.max() == pytest.approx(timeline(schedule, times).makespan)


def test_messages_longer_than_passes_wait_for_each_other() -> None:
    # With delays all would be under way at once, and 10 s pass while a microbatch goes on and back.
    schedule = build_schedule("breadth-first", 2, 8, 3)
    found = ends_of(schedule, sends_of(6, (1e-6, 1e-6, 0.0), outputs=1.0))
    # The first stage sends eight outputs of three parts, and eight gradients of two.
    assert 8 * (3 + 2) <= found.max() < 8 * (3 + 2 + 1)


def test_gradients_hide_behind_all_but_the_last_quarter_of_their_pass() -> None:
    schedule = build_schedule("1f1b", 1, 1)
    for sent in (0.4, 8.0):
        found = ends_of(schedule, sends_of(1, (1.0, 2.0, 0.0), gradients=sent))
        assert found.max() == pytest.approx(1.0 + max(2.0 + sent / 4, 0.5 + sent))
    found = ends_of(schedule, sends_of(1, (1.0, 2.0, 0.0), gradients=0.4), exposed=1.0)
    assert found.max() == pytest.approx(3.4)


def test_weights_are_there_a_quarter_at_a_time() -> None:
    schedule = build_schedule("1f1b", 1, 1)
    for sent in (0.4, 8.0):
        found = ends_of(schedule, sends_of(1, (1.0, 2.0, 0.0), weights=sent))
        assert found.max() == pytest.approx(2.0 + max(1.0 + sent / 4, 0.25 + sent))
    # Sharded, for each pass, a quarter while the one before is at work.
    found = ends_of(schedule, sends_of(1, (1.0, 2.0, 0.0), weights=0.4), zero=3)
    assert found.max() == pytest.approx(3.1)
    found = ends_of(schedule, sends_of(1, (1.0, 2.0, 0.0), weights=8.0), zero=3)
    assert found.max() == pytest.approx(16.0 + 0.5)


def test_what_waits_gets_its_share_of_a_message() -> None:
    # Weights of the second part wait while the first sends its output.
    schedule = build_schedule("1f1b", 2, 1)
    sends = sends_of(2, (1.0, 2.0, 0.0), outputs=1.0)
    sends.gradients[1] = 12.0
    # The gradient that the first stage waits for takes twice as long beside them.
    for share, late in ((0.0, 0.0), (1.0, 1.0)):
        found = ends_of(schedule, sends, share=share)
        assert found[0] == pytest.approx(1.0 + 1.0 + 1.0 + 2.0 + 1.0 + late + 2.0)
        assert found[1] == pytest.approx(3.0 + 0.5 + 12.0 + 1.0)


def walked(schedule, sends, zero, share, exposed):
    """Return what `stage_ends` does, in exact numbers, with all that ports send in lists."""
    stages, parts = schedule.stages, schedule.stages * schedule.chunks
    whole = [[[Fraction(float(x)) for x in row] for row in np.atleast_2d(each)] for each in sends]
    computing, beside, after, outputs, (weights,), (gradients,), (copies,) = whole
    share, exposed = Fraction(share), Fraction(exposed)
    free = [Fraction(0)] * stages
    queue = [[] for _ in range(stages)]  # pieces that wait, first come first
    clock, place = [Fraction(0)] * stages, [0] * stages
    there, left = {}, {}
    gathered = [[] for _ in range(stages)]

    def drain(stage, seconds):
        while seconds > 0 and queue[stage]:
            taken = min(seconds, queue[stage][0])
            queue[stage][0] -= taken
            seconds -= taken
            if not queue[stage][0]:
                queue[stage].pop(0)

    def rest(stage, now):
        if now > free[stage]:
            drain(stage, now - free[stage])
            free[stage] = now

    def send(stage, seconds, now):
        if not seconds:
            return now
        rest(stage, now)
        waited = min(sum(queue[stage]), share * seconds)
        drain(stage, waited)
        free[stage] += seconds + waited
        return free[stage]

    for part in range(parts):
        left[part] = schedule.microbatches
        if zero == 1:
            stage = stage_of(schedule.name, stages, part)
            queue[stage].append(weights[part])
            gathered[stage].append(weights[part])
    total = [sum(each) for each in gathered]
    needed = [exposed * each for each in total]
    late = [Fraction(0)] * stages
    ready = True
    while ready:
        ready = False
        for stage in range(stages):
            if place[stage] == schedule.length:
                continue
            kind, chunk, batch = schedule.passes[stage, place[stage]].tolist()
            part = part_of(schedule.name, stages, stage, chunk)
            source = (kind, part + (-1 if kind == 0 else 1), batch)
            if kind < 2 and 0 <= source[1] < parts:
                if source not in there:
                    continue
                clock[stage] = max(clock[stage], there[source])
            ready = True
            begin = clock[stage]
            met = send(stage, beside[kind][part], begin)
            first = kind == 0 and not any(key[:2] == (0, part) for key in there)
            last = kind == (2 if schedule.split_backward else 1) and left[part] == 1
            left[part] -= kind == (2 if schedule.split_backward else 1)
            pieces = 4 if (first and zero == 1) or last else 1
            now = begin
            for _ in range(pieces):
                if first and zero == 1:
                    needed[stage] += (1 - exposed) * weights[part] / 4
                    missing = sum(queue[stage]) - (total[stage] - needed[stage])
                    if missing > 0:
                        now = max(now, free[stage] + missing)
                now += computing[kind][part] / pieces
                if last:
                    rest(stage, now)
                    queue[stage].append((1 - exposed) * (gradients[part] + copies[part]) / 4)
                    late[stage] += exposed * (gradients[part] + copies[part]) / 4
            now = send(stage, after[kind][part], max(now, met))
            if kind < 2:
                there[kind, part, batch] = send(stage, outputs[kind][part], now)
            clock[stage] = now
            place[stage] += 1
    assert place == [schedule.length] * stages
    ends = zip(clock, free, queue, late, strict=True)
    return [float(max(done, sent + sum(left)) + last) for done, sent, left, last in ends]


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(NAMES),
    stages=st.integers(1, 4),
    rounds=st.integers(1, 3),
    zero=st.integers(0, 1),
    share=st.sampled_from([0.0, 0.125, 1.0]),
    exposed=st.sampled_from([0.0, 0.25, 1.0]),
    seed=st.integers(0, 2**31 - 1),
)
def test_ends_are_those_of_lists_of_messages(
    kind, stages, rounds, zero, share, exposed, seed
) -> None:
    name, chunks = kind
    schedule = build_schedule(name, stages, stages * rounds, chunks)
    rng, parts = np.random.default_rng(seed), stages * chunks
    shapes = (*((3, parts),) * 3, (2, parts), parts, parts, parts)
    made = [rng.uniform(0.0, 2.0, shape) for shape in shapes]
    made[1] *= rng.integers(0, 2, (3, parts))
    sends = PassSends(*made)
    found = ends_of(schedule, sends, zero, exposed, share)
    assert found.tolist() == pytest.approx(walked(schedule, sends, zero, share, exposed))
