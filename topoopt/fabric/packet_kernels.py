"""The compiled event loop of the packet model.

Events are named by numbers, which order those of one time: messages' set-up packets first, then
tasks, rings and packet trains.
"""

from typing import NamedTuple

import numpy as np

from codesign_base.array_kernels import grown
from codesign_base.arrays import Flags, Floats, Ints
from codesign_base.hash_kernels import hash_word
from codesign_base.jit import inner_kernel, kernel
from topoopt.fabric.calendar_kernels import first, no_events, pop, push, push_far, with_room
from topoopt.fabric.device_kernels import enqueue
from topoopt.fabric.packet_queue_kernels import (
    ALPHA,
    BASE,
    DONE,
    DUE,
    END,
    FRESH,
    GAVE_UP,
    HANDLED,
    HOP,
    HOPS,
    IDLES,
    LEFT,
    LIMIT,
    LOST,
    MARKED,
    MOMENTS,
    NEXT,
    NONE,
    OF,
    OWNER,
    PATIENT,
    RATE,
    RING,
    ROOM,
    ROUNDS,
    SEEN,
    SHORT,
    SIZE,
    STATE,
    TASK,
    TIMER,
    TIMES,
    TRAIN,
    TRIP,
    VARIES,
    WAITING,
    WIDEST,
    WINDOW,
    MessageRoutes,
    Sending,
    UnderWay,
    begin_message,
    fill_window,
    forward,
    has_plenty,
    more_trains,
    pass_link,
    set_up,
    trains_needed,
)  # fmt: skip
from topoopt.fabric.packet_window_kernels import acknowledge, lose_patience

BUCKETS_A_PACKET = 8.0  # of the calendar at first, on the fastest link
SCAN = 1e-3  # seconds from one look at the timers to the next
DRAWS = 1048576  # hashes of one message and of the next do not overlap within so many rounds


class Tasks(NamedTuple):
    """A task graph in the terms of the packet model.

    Parameters
    ----------
    compute : bool array, shape (tasks,)
        Compute task, or network task.
    resource : int64 array, shape (tasks,)
        Device of a compute task.
    volume : float64 array, shape (tasks,)
        Seconds on the device; for network tasks, zero if they send nothing.
    delay, lag : float64 arrays, shape (tasks,)
        Seconds before and after the bytes; ``lag`` only where nothing is sent.
    first_message : int64 array, shape (tasks,)
        Message of a transfer; -1 otherwise.
    first_ring : int64 array, shape (tasks + 1,)
        Boundaries of each task's rings.
    successor_offsets, successors, predecessors, start_order : int64 arrays
        As in `topoopt.fabric.arrays_kernels.Orders`.
    priority : int64 array, shape (tasks,)
        Of compute tasks: those with lower numbers leave their device's queue first.
    tail : float64 array, shape (tasks,)
        Least seconds from each task's end to the end of all.
    devices : int
    """

    compute: Flags
    resource: Ints
    volume: Floats
    delay: Floats
    lag: Floats
    first_message: Ints
    first_ring: Ints
    successor_offsets: Ints
    successors: Ints
    predecessors: Ints
    start_order: Ints
    priority: Ints
    tail: Floats
    devices: int


class _Course(NamedTuple):
    """What has become of tasks, rings and devices so far."""

    waiting: Ints
    ready: Floats
    start: Floats
    finish: Floats
    binding: Ints
    begun: Flags
    open_rings: Ints
    ring_end: Floats
    clock: Floats
    running: Ints
    before: Ints
    front: Ints
    back: Ints
    following: Ints
    fresh: Ints
    idle: Ints
    turn: Ints  # rings whose next round begins now


@kernel
def simulate_packets(
    todo: Tasks, table: Ints, rings: Ints, routes: MessageRoutes, link: Floats, longest: int,
    how: Sending, seed: int, horizon: float, most: int, stop: Ints,
) -> tuple[Floats, Floats, Ints, int, Ints]:  # fmt: skip
    """Simulate all tasks; see `topoopt.fabric.packets.run_packets` for the meaning.

    Parameters
    ----------
    todo : Tasks
    table : int64 array, shape (messages, COLUMNS)
    rings : int64 array, shape (rings, 5)
    routes : MessageRoutes
    link : float64 array, shape (links, LINK)
    longest : int
        Hops of the longest path that may be drawn.
    how : Sending
    seed : int
    horizon : float
        Give up when it is known that the last task ends after this many seconds.
    most : int
        Give up after so many events.
    stop : int64 array, shape (1,)
        Give up as soon as it is not zero; another thread may write to it.

    Returns
    -------
    start, finish, binding : arrays, shape (tasks,)
        ``finish`` is infinite for tasks that never ran.
    done : int
        Number of tasks that ran.
    work : int64 array, shape (3,)
        Events, 1 if it gave up, and a message without a path (-1: none).
    """
    tasks = todo.compute.size
    devices = todo.devices
    messages = table.shape[0]
    first_train = messages + tasks + rings.shape[0]
    course = _Course(
        todo.predecessors.copy(),
        np.empty(tasks),
        np.empty(tasks),
        np.full(tasks, np.inf),
        np.full(tasks, -1, np.int64),
        np.zeros(tasks, np.bool_),
        np.zeros(tasks, np.int64),
        np.zeros(rings.shape[0]),
        np.array([0.0, least_timeout(how)]),
        np.full(devices, -1, np.int64),
        np.full(devices, -1, np.int64),
        np.full(devices, -1, np.int64),
        np.full(devices, -1, np.int64),
        np.full(tasks, -1, np.int64),
        np.empty(tasks, np.int64),
        np.empty(devices + 1, np.int64),
        np.empty(rings.shape[0] + 1, np.int64),
    )
    moment = np.zeros((messages, MOMENTS))
    moment[:, TIMER] = np.inf
    paths = np.empty((messages, longest), np.int32)
    trains = np.empty((256, TRAIN), np.int32)
    for train in range(256):
        trains[train, NEXT] = train + 1
    tails = np.empty(256)
    sent = np.empty(256)
    fastest = 1.0
    for name in range(link.shape[0]):
        fastest = max(fastest, link[name, RATE])
    events = no_events(first_train + 256, BUCKETS_A_PACKET * fastest / how.packet)
    state = np.zeros(STATE, np.int64)
    state[ROOM] = 256
    state[LOST] = -1
    state[WIDEST] = max(how.window, 2)
    for place in range(tasks):
        task = todo.start_order[place]
        if course.waiting[task] == 0:
            course.fresh[state[FRESH]] = task
            state[FRESH] += 1
    while True:
        way = UnderWay(
            table, moment, paths, link, trains, tails, sent, events, state, first_train,
            how.packet, how.timeout,
        )  # fmt: skip
        _run_events(
            todo, rings, routes, how, way, course, hash_word(np.uint64(seed)), horizon, most, stop
        )
        if state[SHORT] == 0:
            break
        while state[ROOM] < state[SHORT]:
            trains = more_trains(trains, state)
        tails = grown(tails, trains.shape[0])
        sent = grown(sent, trains.shape[0])
        events = with_room(events, first_train + trains.shape[0])
    work = np.array([state[HANDLED], state[GAVE_UP], state[LOST]])
    return course.start, course.finish, course.binding, state[DONE], work


@inner_kernel
def least_timeout(how: Sending) -> float:
    """Return the least seconds after which a new connection can lose patience."""
    least = np.inf
    if how.timeout > 0.0:
        least = min(how.timeout, how.ring_timeout)
    return least


@inner_kernel
def arrived(way: UnderWay, message: int, now: float) -> None:
    """Take the round trip of a set-up packet for the first estimate."""
    moment = way.moment
    if moment[message, PATIENT] == 0.0:
        return
    trip = now - moment[message, END]
    moment[message, TRIP] = trip
    moment[message, VARIES] = 0.5 * trip
    moment[message, PATIENT] = max(way.timeout, 3.0 * trip)
    moment[message, TIMER] = np.inf


@inner_kernel
def _run_events(
    todo: Tasks, rings: Ints, routes: MessageRoutes, how: Sending, way: UnderWay, course: _Course,
    origin: np.uint64, horizon: float, most: int, stop: Ints,
) -> None:  # fmt: skip
    """Simulate to the end, or until there are fewer than ``state[SHORT]`` rows for packet trains.

    A function of its own, because in one that makes arrays anew every use of any counts
    references.
    """
    (
        compute, _, volume, delay, lag, first_message, first_ring, successor_offsets, successors,
        _, _, _, _, _,
    ) = todo  # fmt: skip
    (
        waiting, ready, start, finish, binding, begun, open_rings, ring_end, clock, running, before,
        front, back, following, fresh, idle, turn,
    ) = course  # fmt: skip
    table, moment, _, _, trains, _, _, events, state, first_train, _, _ = way
    window, longest_train, arrival_order = how.window, how.longest_train, how.arrival_order
    tasks = compute.size
    base = table.shape[0]
    now = clock[0]
    freshly, idles = state[FRESH], state[IDLES]
    state[SHORT] = 0
    turns = int(np.int64(0))
    while True:
        for i in range(freshly):
            task = fresh[i]
            ready[task] = now
            start[task] = now
            if not compute[task]:
                late = now + delay[task]
                if volume[task] == 0.0:
                    begun[task] = True
                    late += lag[task]
                push_far(events, late, base + task)
                continue
            device = todo.resource[task]
            enqueue(task, device, now, arrival_order, todo.priority, ready, front, back, following)
            if running[device] < 0:
                running[device] = 1
                idle[idles] = device
                idles += 1
        freshly = int(np.int64(0))
        # Of what becomes ready at one time the task with the lowest number goes first.
        if idles > 0 and (arrival_order or first(events)[0] > now):
            for i in range(idles):
                device = idle[i]
                task = front[device]
                front[device] = following[task]
                running[device] = 1
                start[task] = now
                if ready[task] < now:
                    binding[task] = before[device]
                push_far(events, now + volume[task], base + task)
            idles = int(np.int64(0))
        for i in range(turns):
            ring = turn[i]
            rings[ring, WAITING] = rings[ring, SIZE]
            rings[ring, ROUNDS] -= 1
            ring_end[ring] = now
            for message in range(rings[ring, BASE], rings[ring, BASE] + rings[ring, SIZE]):
                draw = hash_word(
                    origin + np.uint64(message * DRAWS + (rings[ring, ROUNDS] if how.cold else 0))
                )
                if not begin_message(way, routes, how, message, now, draw, how.cold):
                    state[LOST] = message
        turns = int(np.int64(0))
        time, code = first(events)
        if code < 0 or state[LOST] >= 0:
            break
        if time > clock[1]:
            # Timers are looked at every millisecond, as by htsim, when one can have run out.
            late = clock[1]
            expired = int(np.int64(0))
            for message in range(base):
                expired += int(moment[message, TIMER] < late)
            if state[ROOM] < expired:
                state[SHORT] = expired
                break
            soon = np.inf
            for message in range(base):
                if moment[message, TIMER] < late:
                    lose_patience(way, message, late)
                soon = min(soon, moment[message, TIMER])
            # Timers that begin with the next event, or later, cannot run out before this.
            soon = min(soon, time + least_timeout(how))
            clock[1] = max(np.ceil(soon / SCAN), np.rint(late / SCAN) + 1.0) * SCAN
            continue
        if time > horizon or state[HANDLED] >= most or stop[0] != 0:
            state[GAVE_UP] = 1
            break
        if (code < base or code >= first_train) and not has_plenty(state, longest_train):
            # Before anything changes, make sure that what its message may send has rows.
            message = code if code < base else trains[code - first_train, OF]
            allowed = max(window, int(moment[message, WINDOW])) + longest_train
            needed = trains_needed(table[message, LEFT], allowed, longest_train)
            if state[ROOM] < needed:
                state[SHORT] = needed
                break
        now = time
        pop(events, code)
        state[HANDLED] += 1
        if code < base:
            message = code
            if table[message, HOP] < table[message, HOPS]:
                push(events, set_up(way, message, now), message)
                continue
            opening = how.cold or table[message, TIMES] == 1
            if opening and moment[message, LIMIT] < np.inf:
                moment[message, WINDOW] = 2.0  # announced again
                moment[message, ALPHA] = -1.0
            elif opening:
                moment[message, WINDOW] = window
                moment[message, LIMIT] = np.inf
                moment[message, ALPHA] = -1.0
                moment[message, SEEN] = 0.0
                moment[message, MARKED] = 0.0
                # New connections of htsim look at their marks first after two packets.
                moment[message, DUE] = 2.0 if how.cold else window
            table[message, HOP] += 1
            arrived(way, message, now)
            over = False
            opens = True
        elif code >= first_train:
            train = code - first_train
            message = trains[train, OF]
            opens = trains[train, NEXT] == NONE
            if opens:
                acknowledge(way, train, now)
                over = False
                # Perhaps one of the round before, while the next is being announced.
                opens = table[message, HOP] > table[message, HOPS]
            else:
                over = pass_link(way, train, now) and forward(way, train, now)
        if code < base or code >= first_train:
            if opens and table[message, LEFT] > 0:
                over = fill_window(way, message, now, longest_train, window)
            if over:
                end = moment[message, END]
                ring = table[message, RING]
                arrives = base + table[message, TASK]
                if ring >= 0:
                    rings[ring, WAITING] -= 1
                    ring_end[ring] = max(ring_end[ring], end)
                    end = ring_end[ring]
                    arrives = base + tasks + ring
                if ring < 0 or rings[ring, WAITING] == 0:
                    push_far(events, end, arrives)
            continue
        if code >= base + tasks:
            ring = code - base - tasks
            if rings[ring, ROUNDS] > 0:
                turn[0] = ring
                turns = int(np.int64(1))
                continue
            task = rings[ring, OWNER]
            open_rings[task] -= 1
            if open_rings[task] > 0:
                continue
        else:
            task = code - base
            if not compute[task] and not begun[task]:
                begun[task] = True
                message = first_message[task]
                if message >= 0:
                    draw = hash_word(origin + np.uint64(message * DRAWS))
                    if not begin_message(way, routes, how, message, now, draw, True):
                        state[LOST] = message
                else:
                    for ring in range(first_ring[task], first_ring[task + 1]):
                        turn[turns] = ring
                        turns += 1
                    open_rings[task] = turns
                continue
        finish[task] = now
        state[DONE] += 1
        if now + todo.tail[task] > horizon:
            state[GAVE_UP] = 1
            break
        if compute[task]:
            device = todo.resource[task]
            before[device] = task
            running[device] = -1
            if front[device] >= 0:
                running[device] = 1
                idle[idles] = device
                idles += 1
        for entry in range(successor_offsets[task], successor_offsets[task + 1]):
            after = successors[entry]
            waiting[after] -= 1
            if waiting[after] == 0:
                binding[after] = task
                fresh[freshly] = after
                freshly += 1
    clock[0] = now
    state[FRESH], state[IDLES] = freshly, idles
