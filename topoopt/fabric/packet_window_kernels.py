"""The window of a message: opened and reduced as by DCTCP, and given up when nothing is heard."""

import numpy as np

from codesign_base.arrays import Floats
from codesign_base.jit import inner_kernel
from topoopt.fabric.packet_queue_kernels import (
    ACKED,
    AGAIN,
    ALPHA,
    DUE,
    FLYING,
    HOP,
    HOPS,
    LEFT,
    LENGTH,
    LIMIT,
    MARK,
    MARKED,
    NANOSECONDS,
    OF,
    PACKETS,
    PATIENT,
    SEEN,
    STALE,
    TIME,
    TIMER,
    TIMES,
    TRIP,
    VARIES,
    WIDEST,
    WINDOW,
    UnderWay,
    mark,
    release,
    send,
)  # fmt: skip

GAIN = 1.0 / 16.0  # DCTCP's g
CALM = 0.2  # part of the timeout; it stays the least one while round trips are shorter


@inner_kernel
def acknowledge(way: UnderWay, train: int, now: float) -> None:
    """Open or reduce the window of DCTCP for a train that has arrived."""
    moment, trains = way.moment, way.trains
    message = trains[train, OF]
    length = trains[train, LENGTH]
    mark(way, train, now)
    release(way, train)
    if trains[train, TIME] == way.table[message, TIMES]:
        heard(way, message, train, now)
    else:
        # What was given up before it was announced anew is not counted any more.
        counted = min(length, way.table[message, STALE])
        way.table[message, FLYING] -= counted
        way.table[message, STALE] -= counted
    marked = float(trains[train, MARK]) / length
    if marked > 0.0:
        moment[message, ALPHA] = max(moment[message, ALPHA], 0.0)
        moment[message, LIMIT] = min(moment[message, LIMIT], moment[message, WINDOW])
    # A window often ends within a train: what is left of it counts for the next one.
    left = float(length)
    while left > 0.0:
        due = np.ceil(moment[message, DUE] - moment[message, SEEN])
        part = min(left, max(due, 1.0))
        left -= part
        slowly = max(min(part, moment[message, LIMIT] - moment[message, WINDOW]), 0.0)
        moment[message, WINDOW] += slowly
        if slowly < part:
            moment[message, WINDOW] += (part - slowly) / moment[message, WINDOW]
        moment[message, SEEN] += part
        moment[message, MARKED] += part * marked
        if moment[message, SEEN] >= moment[message, DUE]:
            close_window(moment, message)
    if moment[message, WINDOW] > way.state[WIDEST]:
        way.state[WIDEST] = 2 * np.int64(moment[message, WINDOW])


@inner_kernel
def close_window(moment: Floats, message: int) -> None:
    """Reduce a window by the share of its packets that were marked, and begin the next."""
    if moment[message, ALPHA] >= 0.0:
        share = moment[message, MARKED] / moment[message, SEEN]
        alpha = moment[message, ALPHA] * (1.0 - GAIN) + GAIN * share
        moment[message, ALPHA] = alpha
        moment[message, WINDOW] = max(1.0, moment[message, WINDOW] * (1.0 - 0.5 * alpha))
        moment[message, LIMIT] = moment[message, WINDOW]
    moment[message, SEEN] = 0.0
    moment[message, MARKED] = 0.0
    moment[message, DUE] = moment[message, WINDOW]


@inner_kernel
def heard(way: UnderWay, message: int, train: int, now: float) -> None:
    """Count what a train acknowledges, and wait anew for what is still under way.

    Where the sender has gone back, packets that it has not sent again yet may be acknowledged.
    """
    table, moment = way.table, way.moment
    length = way.trains[train, LENGTH]
    table[message, ACKED] += length
    skipped = max(length - (table[message, FLYING] - table[message, STALE]), 0)
    table[message, FLYING] -= length - skipped
    table[message, LEFT] -= skipped
    table[message, AGAIN] = max(table[message, AGAIN] - skipped, 0)
    if table[message, ACKED] >= table[message, PACKETS]:
        table[message, LEFT] = 0
        table[message, AGAIN] = 0
    if moment[message, PATIENT] == 0.0:
        return
    trip = now - way.sent[train] / NANOSECONDS
    if max(trip, moment[message, TRIP]) > CALM * way.timeout:
        # One estimate a packet, all of the same round trip.
        apart = trip - moment[message, TRIP]
        slow, fast = (7.0 / 8.0) ** length, (3.0 / 4.0) ** length
        moment[message, VARIES] = fast * moment[message, VARIES] + 2.0 * abs(apart) * (slow - fast)
        moment[message, TRIP] = trip - apart * slow
    patient = moment[message, TRIP] + 4.0 * moment[message, VARIES]
    moment[message, PATIENT] = max(patient, way.timeout)
    moment[message, TIMER] = (
        now + moment[message, PATIENT] if table[message, FLYING] > table[message, STALE] else np.inf
    )


@inner_kernel
def lose_patience(way: UnderWay, message: int, now: float) -> None:
    """Take what a message has under way for lost: back to the first of it, with a window of one.

    It is not lost but late, so that what follows goes twice. Set-up packets take no room.
    """
    table, moment = way.table, way.moment
    announced = table[message, HOP] <= table[message, HOPS]
    flying = table[message, FLYING] - table[message, STALE]
    if not announced and flying <= 0:
        moment[message, TIMER] = np.inf
        return
    moment[message, LIMIT] = max(0.5 * moment[message, WINDOW], 2.0)
    moment[message, DUE] = moment[message, WINDOW]
    moment[message, SEEN] = 0.0
    moment[message, MARKED] = 0.0
    moment[message, WINDOW] = 1.0
    moment[message, PATIENT] *= 2.0
    moment[message, TIMER] = now + moment[message, PATIENT]
    if announced:
        return
    table[message, FLYING] = table[message, STALE]
    table[message, LEFT] += flying
    table[message, AGAIN] += flying
    send(way, message, 1, now)
