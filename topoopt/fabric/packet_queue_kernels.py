"""Packet trains on their way: windows, queues and set-up packets.

Links are first-in first-out servers that remember when they are free. A *message* (a transfer,
or one member's part of one round of a ring) announces itself with a set-up packet, then sends
what its window allows as *packet trains*. What acknowledgements make of the window is in
`topoopt.fabric.packet_window_kernels`.
"""

from typing import NamedTuple

import numpy as np

from codesign_base.array_kernels import copy_into
from codesign_base.arrays import Floats, Ints, SmallInts
from codesign_base.hash_kernels import hash_word
from codesign_base.jit import inner_kernel, kernel
from topoopt.fabric.calendar_kernels import Calendar, push
from topoopt.fabric.draw_kernels import draw_path

# Columns of the table of messages: task; row of routes; ring, -1 for transfers; packets in all,
# not yet sent, and sent but not acknowledged; hops of the path, and those that the set-up packet
# has behind it, one more once it has arrived; packet trains that have not entered their last link;
# packets not yet sent that go a second time, and acknowledged ones; how often it was announced, and
# packets under way of what was announced before; whether it always takes one path.
TASK, PAIR, RING, PACKETS, LEFT, FLYING, HOPS, HOP, COMING = 0, 1, 2, 3, 4, 5, 6, 7, 8
AGAIN, ACKED, TIMES, STALE, FIXED, COLUMNS = 9, 10, 11, 12, 13, 14
# Columns of its moments: latest arrival (s); time of an acknowledgement (s); window (packets);
# share of marks, DCTCP's alpha, negative in slow start; packets arrived and marked since the
# window was last reduced, and how many make the next reduction due; where slow start ends
# (packets); when it takes what is under way for lost, after how long without an
# acknowledgement, and the round trip and its variation that this follows (s).
END, ACK, WINDOW, ALPHA, SEEN, MARKED, DUE = 0, 1, 2, 3, 4, 5, 6
LIMIT, TIMER, PATIENT, TRIP, VARIES, MOMENTS = 7, 8, 9, 10, 11, 12
# Columns of the table of packet trains: message; links that it has entered; packets; how many are
# marked; the link it is on, and the next, NONE on its last (of free rows, the next free one);
# whether all of it was sent before; and in which announcement of its message.
OF, AT, LENGTH, MARK, ON, NEXT, COPY, TIME, TRAIN = 0, 1, 2, 3, 4, 5, 6, 7, 8
NONE = -1
# Columns of the table of rings: task, first message, messages, rounds left, messages under way.
OWNER, BASE, SIZE, ROUNDS, WAITING = 0, 1, 2, 3, 4
# Columns of links: bytes/s, seconds, when it is free, backlog in seconds above which it marks, and
# the seconds of a packet.
RATE, DELAY, FREE, MARKS, EACH, LINK = 0, 1, 2, 3, 4, 5
# Entries of the state of the loop: first free row of trains, free rows; tasks that have become
# ready, devices that have fallen idle; events handled, tasks done, whether it gave up, a message
# without a path; free rows that it needs to go on; packets that no window so far was wider than.
SPARE, ROOM, FRESH, IDLES, HANDLED, DONE, GAVE_UP, LOST, SHORT, WIDEST, STATE = range(11)
NANOSECONDS = 1e9


class MessageRoutes(NamedTuple):
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
    timeout, ring_timeout : float
        Seconds without acknowledgement after which a new connection, and one of a ring, takes
        what is under way for lost; 0: never.
    """

    packet: float
    window: int
    longest_train: int
    arrival_order: bool
    acknowledged: bool
    handshake: bool
    cold: bool
    timeout: float
    ring_timeout: float


class UnderWay(NamedTuple):
    """Messages and packet trains under way.

    Parameters
    ----------
    table : int64 array, shape (messages, COLUMNS)
    moment : float64 array, shape (messages, MOMENTS)
    paths : int32 array, shape (messages, longest)
    link : float64 array, shape (links, LINK)
    trains, tails, sent : arrays
        The table of packet trains; when the last packet of each is here (s), and when the whole
        of it was sent (nanoseconds, rounded down).
    events : Calendar
        Of what is to come.
    state : int64 array, shape (STATE,)
    first_train : int
        Name of the first packet train's events.
    packet : float
        Bytes.
    timeout : float
        Least seconds without acknowledgement after which what is under way counts as lost.
    """

    table: Ints
    moment: Floats
    paths: SmallInts
    link: Floats
    trains: SmallInts
    tails: Floats
    sent: Floats
    events: Calendar
    state: Ints
    first_train: int
    packet: float
    timeout: float


@inner_kernel
def longest_now(window: float, longest: int, first: int) -> int:
    """Return how many packets go together: of any window as large a part as of a first one.

    Windows of a few packets are what a transfer has beside AllReduces, and what becomes of them
    depends on which of their packets are marked.
    """
    return max(min(int(window * longest) // first, longest), 1)


@inner_kernel
def trains_needed(packets: int, window: int, longest: int) -> int:
    """Return in how many packet trains so many packets go at most, when a window opens.

    ``window`` is no less than it or a first one.
    """
    # All but the last, and the last of those sent again, are as long as may be, or take all the
    # room that there is. Rounded down, that is no less than half of its part of the window.
    return min(packets, 2 * window // longest) + 3


@inner_kernel
def has_plenty(state: Ints, longest: int) -> bool:
    """Say whether there are rows for whichever message is next: for the widest of all windows."""
    return bool((state[ROOM] - 4) * longest >= 2 * state[WIDEST])


@inner_kernel
def fill_window(way: UnderWay, message: int, now: float, longest: int, first: int) -> bool:
    """Send what the window allows; return whether all has been sent and arrives at END.

    Less than a third of a train waits for more to go with it, unless it is all.
    """
    table, moment = way.table, way.moment
    over = False
    most = longest_now(moment[message, WINDOW], longest, first)
    least = max(min(most, int(moment[message, WINDOW])) // 3, 1)
    while table[message, LEFT] > 0:
        room = np.int64(moment[message, WINDOW]) - table[message, FLYING]
        if table[message, FLYING] == 0:
            room = max(room, 1)
        elif room < min(least, table[message, LEFT]):
            break
        length = min(room, table[message, LEFT], most)
        if table[message, AGAIN] > 0 and length > table[message, AGAIN]:
            length = table[message, AGAIN]
        over = send(way, message, length, now) or over
    return over


@inner_kernel
def send(way: UnderWay, message: int, length: int, now: float) -> bool:
    """Send so many packets of a message as a train; return whether all of it arrives at END."""
    table, moment, trains, state = way.table, way.moment, way.trains, way.state
    copy = table[message, AGAIN] > 0
    table[message, LEFT] -= length
    table[message, FLYING] += length
    if copy:
        table[message, AGAIN] -= length
    else:
        table[message, COMING] += 1
    if moment[message, TIMER] == np.inf and moment[message, PATIENT] > 0.0:
        moment[message, TIMER] = now + moment[message, PATIENT]
    train = state[SPARE]
    state[SPARE] = trains[train, NEXT]
    state[ROOM] -= 1
    trains[train, OF] = message
    trains[train, AT] = 0
    trains[train, LENGTH] = length
    trains[train, MARK] = 0
    trains[train, NEXT] = way.paths[message, 0]
    trains[train, COPY] = int(copy)
    trains[train, TIME] = table[message, TIMES]
    way.tails[train] = now
    way.sent[train] = np.floor(now * NANOSECONDS)
    return forward(way, train, now)


@inner_kernel
def forward(way: UnderWay, train: int, now: float) -> bool:
    """Put a train on its next link; return whether its message has all arrived at END."""
    table, moment, link, trains, tails = way.table, way.moment, way.link, way.trains, way.tails
    name = trains[train, NEXT]
    message = trains[train, OF]
    length = trains[train, LENGTH]
    hops = trains[train, AT] + 1
    start = max(now, link[name, FREE])
    free = start + length * way.packet / link[name, RATE]
    head = start + link[name, EACH] + link[name, DELAY]
    # A train that a slower link has stretched cannot leave before its last packet is here.
    tail = max(free, tails[train] + link[name, EACH]) + link[name, DELAY]
    link[name, FREE] = free
    tails[train] = tail
    trains[train, AT] = hops
    trains[train, ON] = name
    over = False
    if hops < table[message, HOPS]:
        trains[train, NEXT] = way.paths[message, hops]
    elif trains[train, COPY] == 1:
        release(way, train)  # the receiver has had it
        return False
    else:
        trains[train, NEXT] = NONE
        moment[message, END] = max(moment[message, END], tail)
        table[message, COMING] -= 1
        whole = table[message, LEFT] == table[message, AGAIN]
        # Acknowledgements that are still on their way back do not hold the receiver up.
        over = bool(whole and table[message, COMING] == 0)
        if (
            whole
            and table[message, AGAIN] == 0
            and tail + moment[message, ACK] <= moment[message, TIMER]
        ):
            # Nothing depends on its acknowledgement.
            table[message, FLYING] -= length
            table[message, ACKED] += length
            moment[message, TIMER] = tail + moment[message, ACK] + moment[message, PATIENT]
            if table[message, ACKED] == table[message, PACKETS]:
                moment[message, TIMER] = np.inf
            release(way, train)
            return over
        # Its acknowledgements come one by one; the middle one stands for all.
        head = 0.5 * (head + tail) + moment[message, ACK]
    push(way.events, head, way.first_train + train)
    return over


@inner_kernel
def pass_link(way: UnderWay, train: int, now: float) -> bool:
    """Let a train reach the end of a link that is not its last; whether it goes on from there."""
    trains = way.trains
    if trains[train, COPY] == 1:
        # What went before has arrived, and its message may have taken another path since.
        message, hops = trains[train, OF], trains[train, AT]
        if hops >= way.table[message, HOPS]:
            release(way, train)
            return False
        trains[train, ON] = way.paths[message, hops - 1]
        trains[train, NEXT] = way.paths[message, hops]
    mark(way, train, now)
    return True


@inner_kernel
def mark(way: UnderWay, train: int, now: float) -> None:
    """Mark the packets of a train that have a long backlog behind them, as queues of htsim do.

    Looked at when its first packet reaches the next link, or the acknowledgement of its middle one
    the sender.
    """
    link, trains = way.link, way.trains
    name, length = trains[train, ON], trains[train, LENGTH]
    beyond = (link[name, FREE] - now - link[name, MARKS]) / link[name, EACH]
    if trains[train, NEXT] == NONE:
        beyond += 0.5 * (length - 1)
    trains[train, MARK] = max(trains[train, MARK], min(int(np.ceil(max(beyond, 0.0))), length))


@inner_kernel
def release(way: UnderWay, train: int) -> None:
    """Give the row of a train back."""
    way.trains[train, NEXT] = way.state[SPARE]
    way.state[SPARE] = train
    way.state[ROOM] += 1


@kernel
def more_trains(trains: SmallInts, state: Ints) -> SmallInts:
    """Return a table of twice as many rows, the new ones free."""
    rows = trains.shape[0]
    larger = np.empty((2 * rows, trains.shape[1]), np.int32)
    for train in range(rows):
        copy_into(larger[train], trains[train])
    for train in range(rows, 2 * rows):
        larger[train, NEXT] = train + 1
    larger[2 * rows - 1, NEXT] = state[SPARE]
    state[SPARE] = rows
    state[ROOM] += rows
    return larger


@inner_kernel
def set_up(way: UnderWay, message: int, now: float) -> float:
    """Let the set-up packet, which has no length, wait its turn at its next link; its arrival."""
    hop = way.table[message, HOP]
    name = way.paths[message, hop]
    way.table[message, HOP] = hop + 1
    free: float = way.link[name, FREE]
    return max(now, free) + float(way.link[name, DELAY])


@inner_kernel
def _has_one_path(routes: MessageRoutes, message: int) -> bool:
    """Say whether no node has two links to choose from, so that every draw is the same."""
    for one in range(routes.begin[message], routes.end[message]):
        for other in range(routes.begin[message], one):
            if routes.source[routes.links[one]] == routes.source[routes.links[other]]:
                return False
    return True


@inner_kernel
def begin_message(
    way: UnderWay, routes: MessageRoutes, how: Sending, message: int, now: float, draw: np.uint64,
    redraw: bool,
) -> bool:  # fmt: skip
    """Announce a message, on a new path or the one it has; False if no path was found."""
    table, moment, paths = way.table, way.moment, way.paths
    if table[message, HOPS] == 0 or (redraw and table[message, FIXED] == 0):
        pair = table[message, PAIR]
        hops = int(np.int64(-1))
        word = hash_word(draw)
        for _ in range(64):
            hops = draw_path(
                pair // routes.hosts, pair % routes.hosts, routes.begin[message],
                routes.end[message], word, routes.links, routes.weights, routes.source,
                routes.target, paths[message],
            )  # fmt: skip
            if hops > 0:
                break
            word = hash_word(word)
        if hops <= 0:
            return False
        if table[message, HOPS] == 0:
            table[message, FIXED] = int(_has_one_path(routes, message))
        table[message, HOPS] = hops
        moment[message, ACK] = 0.0
        if how.acknowledged:
            for hop in range(hops):
                moment[message, ACK] += way.link[paths[message, hop], DELAY]
    moment[message, END] = now
    table[message, LEFT] = table[message, PACKETS]
    table[message, AGAIN] = 0
    table[message, ACKED] = 0
    table[message, STALE] = table[message, FLYING]
    table[message, TIMES] += 1
    table[message, HOP] = 0
    if how.cold or moment[message, WINDOW] == 0.0:
        moment[message, WINDOW] = how.window
        moment[message, LIMIT] = np.inf
        moment[message, TRIP] = 0.0
        moment[message, VARIES] = 0.0
        moment[message, PATIENT] = how.ring_timeout if table[message, RING] >= 0 else how.timeout
    moment[message, TIMER] = now + moment[message, PATIENT] if moment[message, PATIENT] else np.inf
    arrival = now
    if how.handshake:
        arrival = set_up(way, message, now)
    else:
        table[message, HOP] = table[message, HOPS]
    push(way.events, arrival, message)
    return True
