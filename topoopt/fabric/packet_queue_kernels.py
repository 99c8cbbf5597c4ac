"""Packet trains on their way: windows, queues and set-up packets.

Links are first-in first-out servers that remember when they are free. A *message* (a transfer,
or one member's part of one round of a ring) announces itself with a set-up packet, then sends
what its window allows as *packet trains*; each train that arrives opens the window, as DCTCP
does with the marks that the train met.
"""

from typing import NamedTuple

import numpy as np

from codesign_base.jit import inner_kernel, kernel
from routing.fairness_kernels import Floats, Ints, SmallInts
from topoopt.fabric.draw_kernels import draw_path, mixed
from topoopt.fabric.heap_kernels import push

# Columns of the table of messages: task; row of routes; ring, -1 for transfers; packets in all,
# not yet sent, and sent but not acknowledged; hops of the path, and those that the set-up packet
# has behind it, one more once it has arrived; packet trains that have not entered their last link.
TASK, PAIR, RING, PACKETS, LEFT, FLYING, HOPS, HOP, COMING, COLUMNS = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
# Columns of its moments: latest arrival (s); time of an acknowledgement (s); window (packets);
# share of marks, DCTCP's alpha, negative in slow start; packets arrived and marked since the
# window was last reduced, and how many make the next reduction due.
END, ACK, WINDOW, ALPHA, SEEN, MARKED, DUE, MOMENTS = 0, 1, 2, 3, 4, 5, 6, 7
# Columns of the table of packet trains: message; hops behind it, ARRIVED on its last link; packets;
# whether marked; next free row, or on its last link that link.
OF, AT, LENGTH, MARK, NEXT = 0, 1, 2, 3, 4
ARRIVED = -1
# Columns of the table of rings: task, first message, messages, rounds left, messages under way.
OWNER, BASE, SIZE, ROUNDS, WAITING = 0, 1, 2, 3, 4
# Rows of links: bytes/s, seconds, when it is free, backlog in seconds above which it marks.
RATE, DELAY, FREE, MARKS = 0, 1, 2, 3
# Entries of the state of the loop: events to come, first free row of trains, free rows; tasks that
# have become ready, devices that have fallen idle; events played, tasks done, whether it gave up,
# a message without a path; free rows that it needs to go on.
EVENTS, SPARE, ROOM, FRESH, IDLES, PLAYED, DONE, GAVE_UP, LOST, SHORT, STATE = range(11)
GAIN = 1.0 / 16.0  # DCTCP's g
PATIENCE = 8  # part of a window that is worth a train


class Rows(NamedTuple):
    """The routes of messages: ``begin`` and ``end`` of each in ``links`` and ``weights``."""

    begin: Ints
    end: Ints
    links: SmallInts
    weights: Floats
    source: Ints
    target: Ints
    hosts: int


class Sending(NamedTuple):
    """How messages are sent.

    Parameters
    ----------
    packet : float
        Bytes.
    window, longest_train : int
        Packets.
    arrival_order : bool
        Tasks of a device that become ready at one time run in the order in which that was found
        out, rather than by their numbers.
    acknowledged, handshake, cold : bool
        Acknowledgements take the way back; messages are announced; every round draws a new path
        and begins with the first window.
    """

    packet: float
    window: int
    longest_train: int
    arrival_order: bool
    acknowledged: bool
    handshake: bool
    cold: bool


class UnderWay(NamedTuple):
    """Messages and packet trains under way.

    Parameters
    ----------
    table : int64 array, shape (messages, COLUMNS)
    moment : float64 array, shape (messages, MOMENTS)
    paths : int32 array, shape (messages, longest)
    link : float64 array, shape (4, links)
    trains, tails : arrays
        The table of packet trains; when the last packet of each is here (s).
    times, names : arrays
        Heap of the events to come.
    state : int64 array, shape (STATE,)
    first_train : int
        Name of the first packet train's events.
    packet : float
        Bytes.
    """

    table: Ints
    moment: Floats
    paths: SmallInts
    link: Floats
    trains: Ints
    tails: Floats
    times: Floats
    names: Ints
    state: Ints
    first_train: int
    packet: float


@inner_kernel
def worth(window: float, longest: int) -> int:
    """Return how many packets are worth a train, if there are more to come."""
    return min(longest // 2 + 1, max(int(window) // PATIENCE, 1))


@inner_kernel
def trains_needed(packets: int, longest: int) -> int:
    """Return in how many packet trains so many packets go at most, when a window opens."""
    # All but the last are as long as may be, or take all the room that there is.
    return packets // longest + 2


@inner_kernel
def fill_window(way: UnderWay, message: int, now: float, longest: int) -> bool:
    """Send what the window allows; return whether all has been sent and arrives at END.

    Less than half of the longest train and an eighth of the window waits for more to go with it,
    unless it is all.
    """
    table, moment, trains, state = way.table, way.moment, way.trains, way.state
    over = False
    least = worth(moment[message, WINDOW], longest)
    while table[message, LEFT] > 0:
        room = np.int64(moment[message, WINDOW]) - table[message, FLYING]
        if table[message, FLYING] == 0:
            room = max(room, 1)
        elif room < min(least, table[message, LEFT]):
            break
        length = min(room, table[message, LEFT])
        if length > longest:
            length = longest
        table[message, LEFT] -= length
        table[message, FLYING] += length
        table[message, COMING] += 1
        train = state[SPARE]
        state[SPARE] = trains[train, NEXT]
        state[ROOM] -= 1
        trains[train, OF] = message
        trains[train, AT] = 0
        trains[train, LENGTH] = length
        trains[train, MARK] = 0
        way.tails[train] = now
        over = forward(way, train, now)
    return over


@inner_kernel
def forward(way: UnderWay, train: int, now: float) -> bool:
    """Put a train on its next link; return whether its message has all arrived at END."""
    table, moment, link, trains = way.table, way.moment, way.link, way.trains
    tails, packet = way.tails, way.packet
    message = trains[train, OF]
    length = trains[train, LENGTH]
    hop = trains[train, AT]
    name = way.paths[message, hop]
    rate = link[RATE, name]
    if hop > 0:
        mark(way, train, way.paths[message, hop - 1], now)
    start = max(now, link[FREE, name])
    link[FREE, name] = start + length * packet / rate
    head = start + packet / rate + link[DELAY, name]
    # A train that a slower link has stretched cannot leave before its last packet is here.
    tail = max(link[FREE, name], tails[train] + packet / rate) + link[DELAY, name]
    trains[train, AT] = hop + 1
    if hop + 1 < table[message, HOPS]:
        tails[train] = tail
        push(way.times, way.names, way.state, head, way.first_train + train)
        return False
    # The message may have another path when this is acknowledged.
    trains[train, AT] = ARRIVED
    trains[train, NEXT] = name
    moment[message, END] = max(moment[message, END], tail)
    table[message, COMING] -= 1
    if table[message, LEFT] == 0:
        table[message, FLYING] -= length
        release(way, train)
        # Acknowledgements that are still on their way back do not hold the receiver up.
        return bool(table[message, COMING] == 0)
    # Its acknowledgements come one by one; the middle one stands for all.
    middle = 0.5 * (head + tail) + moment[message, ACK]
    push(way.times, way.names, way.state, middle, way.first_train + train)
    return False


@inner_kernel
def mark(way: UnderWay, train: int, name: int, now: float) -> None:
    """Mark a train if there is a long backlog behind it, as queues of htsim do.

    Looked at when it reaches the next link, or its acknowledgement the sender.
    """
    if way.link[FREE, name] - now > way.link[MARKS, name]:
        way.trains[train, MARK] = 1


@inner_kernel
def release(way: UnderWay, train: int) -> None:
    """Give the row of a train back."""
    way.trains[train, NEXT] = way.state[SPARE]
    way.state[SPARE] = train
    way.state[ROOM] += 1


@inner_kernel
def acknowledge(way: UnderWay, train: int, now: float) -> None:
    """Open or reduce the window of DCTCP for a train that has arrived."""
    moment, trains = way.moment, way.trains
    message = trains[train, OF]
    length = trains[train, LENGTH]
    mark(way, train, trains[train, NEXT], now)
    release(way, train)
    way.table[message, FLYING] -= length
    moment[message, SEEN] += length
    if trains[train, MARK] == 1:
        moment[message, MARKED] += length
        moment[message, ALPHA] = max(moment[message, ALPHA], 0.0)
    if moment[message, ALPHA] < 0.0:
        moment[message, WINDOW] += length
    else:
        moment[message, WINDOW] += length / moment[message, WINDOW]
    if moment[message, SEEN] < moment[message, DUE]:
        return
    if moment[message, ALPHA] >= 0.0:
        share = moment[message, MARKED] / moment[message, SEEN]
        alpha = moment[message, ALPHA] * (1.0 - GAIN) + GAIN * share
        moment[message, ALPHA] = alpha
        moment[message, WINDOW] = max(1.0, moment[message, WINDOW] * (1.0 - 0.5 * alpha))
    moment[message, SEEN] = 0.0
    moment[message, MARKED] = 0.0
    moment[message, DUE] = moment[message, WINDOW]


@kernel
def more_trains(trains: Ints, state: Ints) -> Ints:
    """Return a table of twice as many rows, the new ones free."""
    rows = trains.shape[0]
    larger = np.empty((2 * rows, trains.shape[1]), dtype=np.int64)
    larger[:rows] = trains
    for train in range(rows, 2 * rows):
        larger[train, NEXT] = train + 1
    larger[2 * rows - 1, NEXT] = state[SPARE]
    state[SPARE] = rows
    state[ROOM] += rows
    return larger


@kernel
def longer(values: Floats, size: int) -> Floats:
    """Return a copy with room for more."""
    copy = np.empty(size, dtype=values.dtype)
    copy[: values.size] = values
    return copy


@inner_kernel
def set_up(way: UnderWay, message: int, now: float) -> None:
    """Let the set-up packet, which has no length, wait its turn at its next link."""
    hop = way.table[message, HOP]
    name = way.paths[message, hop]
    arrival = max(now, way.link[FREE, name]) + way.link[DELAY, name]
    way.table[message, HOP] = hop + 1
    push(way.times, way.names, way.state, arrival, message)


@inner_kernel
def begin_message(
    way: UnderWay, routes: Rows, how: Sending, message: int, now: float, draw: np.uint64,
    redraw: bool,
) -> bool:  # fmt: skip
    """Announce a message, on a new path or the one it has; False if no path was found."""
    table, moment, paths = way.table, way.moment, way.paths
    if table[message, HOPS] == 0 or redraw:
        pair = table[message, PAIR]
        hops = int(np.int64(-1))
        word = mixed(draw)
        for _ in range(64):
            hops = draw_path(
                pair // routes.hosts, pair % routes.hosts, routes.begin[message],
                routes.end[message], word, routes.links, routes.weights, routes.source,
                routes.target, paths[message],
            )  # fmt: skip
            if hops > 0:
                break
            word = mixed(word)
        if hops <= 0:
            return False
        table[message, HOPS] = hops
        moment[message, ACK] = 0.0
        if how.acknowledged:
            for hop in range(hops):
                moment[message, ACK] += way.link[DELAY, paths[message, hop]]
    moment[message, END] = now
    table[message, LEFT] = table[message, PACKETS]
    table[message, HOP] = 0
    if how.handshake:
        set_up(way, message, now)
    else:
        table[message, HOP] = table[message, HOPS]
        push(way.times, way.names, way.state, now, message)
    return True
