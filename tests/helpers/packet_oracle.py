"""A plain-Python event simulation of the packet model, written from its description.

Everything is a dictionary, a list or a number. Events are ordered by (time, kind, number), where
set-up packets come first, then tasks, rings and packet trains; these are numbered by slots, of
which the one that was given back last is taken first.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil, floor, inf

from fabric_oracle import message_lag, ring_edges, stream_row

from parallelism.taskgraph import TaskGraph, TaskKind
from routing.routes import Routes
from topoopt.fabric import Fabric, Transport

WORD = 2**64 - 1
SET_UP, TASK, RING, TRAIN = 0, 1, 2, 3


def hashed(value: int) -> int:
    """Return splitmix64's hash of a 64-bit number."""
    word = (value + 0x9E3779B97F4A7C15) & WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
    return word ^ (word >> 31)


def walk(
    fabric: Fabric, routes: Routes, source: int, target: int, word: int, longest: int
) -> list[int] | None:
    """Walk from the source along a pair's links, at each node one as likely as its share."""
    network = fabric.network
    links, weights = routes.row(source, target)
    node, path = source, []
    while node != target:
        ways = [
            (link, weight)
            for link, weight in zip(links.tolist(), weights.tolist(), strict=True)
            if network.source[link] == node
        ]
        if not ways or len(path) == longest:
            return None
        chosen = ways[-1][0]
        if len(ways) > 1:
            word = hashed(word)
            total = 0.0
            for _, weight in ways:
                total += weight
            rest = total * ((word >> 11) / 2**53)
            for link, weight in ways:
                rest -= weight
                if rest < 0:
                    chosen = link
                    break
        path.append(chosen)
        node = int(network.target[chosen])
    return path


def drawn_path(
    fabric: Fabric, routes: Routes, source: int, target: int, draw: int, longest: int
) -> list[int]:
    """Return the path of a message; a walk that got lost in a loop is tried again."""
    word = hashed(draw)
    for _ in range(64):
        path = walk(fabric, routes, source, target, word, longest)
        if path is not None:
            return path
        word = hashed(word)
    raise AssertionError(f"no path {source}->{target}")


def packets_of(size: float, transport: Transport) -> int:
    """Return how many packets a message of some bytes is sent in."""
    if transport.htsim:
        return max(ceil((size - 1) / transport.segment_bytes), 1)
    return max(ceil(size / transport.segment_bytes * (1 - 1e-12)), 1)


@dataclass
class Message:
    """A transfer, or one member's part of the rounds of a ring."""

    number: int
    task: int
    source: int
    target: int
    routes: Routes
    packets: int
    ring: int = -1
    path: list[int] = field(default_factory=list)
    way_back: float = 0.0
    left: int = 0
    unheard: int = 0  # packets sent that it has not heard of
    coming: int = 0  # packet trains that have not entered their last link
    is_set_up: bool = False
    set_up_hop: int = 0
    end: float = 0.0
    window: float = 0.0
    alpha: float | None = None  # None: slow start
    seen: int = 0
    marked: float = 0.0
    due: float = 0.0
    rounds: int = 0
    times: int = 0  # announced
    stale: int = 0  # unheard of since it was announced before
    again: int = 0  # packets that it goes back to, and sends a second time
    heard: int = 0  # packets acknowledged since it was announced
    limit: float = inf  # slow start goes up to this window
    timer: float = inf  # when it loses patience
    patience: float = 0.0
    trip: float = 0.0
    varies: float = 0.0


@dataclass
class Train:
    message: Message
    packets: int
    tail: float
    hop: int = 0
    marked: int = 0
    last: int | None = None  # its last link, once it is there
    copy: bool = False
    sent: float = 0.0
    times: int = 0


@dataclass
class PlainPacketRun:
    """What the oracle found; what each link served as (from, to, bytes)."""

    start: list[float]
    finish: list[float]
    binding: list[int]
    served: list[list[tuple[float, float, float]]]
    messages: list[Message]
    marks: int


def simulate_packets_plainly(fabric: Fabric, tasks: TaskGraph, seed: int = 0) -> PlainPacketRun:
    """Simulate one iteration train by train."""
    return _Simulation(fabric, tasks, seed).run()


class _Simulation:
    def __init__(self, fabric: Fabric, tasks: TaskGraph, seed: int) -> None:
        self.fabric, self.tasks, self.seed = fabric, tasks, seed
        self.way, self.packet = fabric.transport, fabric.transport.segment_bytes
        network = fabric.network
        self.cold = self.way.htsim or self.way.reconnect
        self.rate, self.delay = network.capacity.tolist(), network.latency.tolist()
        self.free = [0.0] * network.links
        self.marks_above = [
            inf
            if network.switches and network.source[link] < network.hosts
            else self.way.marking_backlog * self.packet / self.rate[link]
            for link in range(network.links)
        ]
        self.longest = network.nodes
        self.served: list[list[tuple[float, float, float]]] = [[] for _ in self.rate]
        self.heap: list[tuple[float, int, int]] = []
        self.room = 256
        self.slots = list(reversed(range(self.room)))
        self.trains: dict[int, Train] = {}
        self.messages: list[Message] = []
        self.rings: list[dict[str, int]] = []
        self.ring_end: dict[int, float] = {}
        self.of_task: dict[int, list[int]] = {}  # message of a transfer, rings of an AllReduce
        self.lag = [0.0] * tasks.tasks
        self.marks = 0
        self.now = 0.0
        self.timeout = self.way.timeout
        rings_on_switches = self.way.htsim and network.switches > 0
        self.ring_timeout = self.timeout * (0.1 if rings_on_switches else 1.0)
        self.next_look = min(self.timeout, self.ring_timeout) or inf
        self.prepare()

    def prepare(self) -> None:
        tasks, fabric = self.tasks, self.fabric
        sizes = [float(s) for s in tasks.size]
        if self.way.htsim:
            sizes = [s if tasks.kind[t] == TaskKind.COMPUTE else s % 2**32
                     for t, s in enumerate(sizes)]  # fmt: skip
        for t in range(tasks.tasks):
            if tasks.kind[t] != TaskKind.TRANSFER:
                continue
            a, b = int(tasks.first[t]), int(tasks.second[t])
            if sizes[t] > 0:
                self.of_task[t] = [len(self.messages)]
                count = packets_of(sizes[t], self.way)
                self.messages.append(
                    Message(len(self.messages), t, a, b, fabric.routes, count, rounds=1)
                )
            else:
                self.lag[t] = message_lag(fabric, fabric.routes, a, b)
        for t in range(tasks.tasks):
            if tasks.kind[t] != TaskKind.ALLREDUCE:
                continue
            members = tasks.groups[int(tasks.first[t])]
            g = len(members)
            if g < 2:
                continue
            _, round_lag, rings = stream_row(fabric, members)
            orders = fabric.rings_of(members)
            rounds, part = 2 * (g - 1), sizes[t] / (g * rings)
            if self.way.htsim and sizes[t] < 9000 * g:
                rounds, part = 1, floor(rounds * sizes[t] / g) / (g * rings)
            elif self.way.htsim and sizes[t] <= 18000 * (g - 1):
                rounds = 1
            if sizes[t] == 0:
                self.lag[t] = rounds * round_lag
                continue
            self.of_task[t] = []
            for order in orders:
                self.of_task[t].append(len(self.rings))
                ring = {"task": t, "base": len(self.messages), "size": g, "rounds": rounds}
                for a, b in ring_edges(fabric, order):
                    self.messages.append(
                        Message(
                            len(self.messages), t, a, b, fabric.edge_routes,
                            packets_of(part, self.way), len(self.rings), rounds=rounds,
                        )
                    )  # fmt: skip
                self.rings.append(ring)

    def post(self, time: float, kind: int, number: int) -> None:
        heapq.heappush(self.heap, (time, kind, number))

    def begin(self, m: Message, draw: int) -> None:
        """Announce a message."""
        if not m.path or self.cold:
            m.path = drawn_path(
                self.fabric, m.routes, m.source, m.target,
                hashed((hashed(self.seed) + m.number * 2**20 + draw) & WORD), self.longest,
            )  # fmt: skip
        m.way_back = 0.0
        if not self.way.htsim:
            for link in m.path:
                m.way_back += self.delay[link]
        m.end, m.left, m.is_set_up, m.set_up_hop = self.now, m.packets, False, 0
        m.again, m.heard, m.stale = 0, 0, m.unheard
        m.times += 1
        if self.cold or m.times == 1:
            m.window, m.limit, m.trip, m.varies = self.way.initial_window, inf, 0.0, 0.0
            m.patience = self.timeout if m.ring < 0 else self.ring_timeout
        m.timer = self.now + m.patience if m.patience else inf
        if self.way.handshake:
            self.announce(m)
        else:
            m.set_up_hop = len(m.path)
            self.post(self.now, SET_UP, m.number)

    def announce(self, m: Message) -> None:
        """Let the set-up packet, which has no length, wait its turn."""
        link = m.path[m.set_up_hop]
        m.set_up_hop += 1
        self.post(max(self.now, self.free[link]) + self.delay[link], SET_UP, m.number)

    def make_room(self, m: Message) -> None:
        """Have slots for all that a message may send now.

        Only the order of packet trains that arrive at one instant depends on the slots.
        """
        window = max(self.way.initial_window, int(m.window)) + self.way.train_packets
        self.have_slots(min(m.left, 2 * window // self.way.train_packets) + 3)

    def have_slots(self, most: int) -> None:
        while len(self.slots) < most:
            self.slots += reversed(range(self.room, 2 * self.room))
            self.room *= 2

    def fill(self, m: Message) -> bool:
        """Send what the window allows; whether all is sent and its arrival known."""
        over = False
        # In as many trains as a first window.
        most = int(m.window * self.way.train_packets) // self.way.initial_window
        most = max(min(most, self.way.train_packets), 1)
        while m.left:
            room = int(m.window) - m.unheard
            if m.unheard == 0:
                room = max(room, 1)
            elif room < min(max(min(most, int(m.window)) // 3, 1), m.left):
                break  # too little to be worth a train
            length = min(room, m.left, most)
            over |= self.send(m, min(length, m.again or length))
        return over

    def send(self, m: Message, length: int) -> bool:
        m.left -= length
        m.unheard += length
        copy = m.again > 0
        if copy:
            m.again -= length
        else:
            m.coming += 1
        if m.timer == inf and m.patience:
            m.timer = self.now + m.patience
        slot = self.slots.pop()
        sent = floor(self.now * 1e9) / 1e9
        self.trains[slot] = Train(m, length, self.now, copy=copy, sent=sent, times=m.times)
        return self.forward(slot)

    def look_at_timers(self) -> None:
        """Every millisecond senders without acknowledgement for long go back to what it lacks."""
        self.now = self.next_look
        late = [m for m in self.messages if m.timer < self.now]
        self.have_slots(len(late))
        for m in late:
            if m.is_set_up and m.unheard <= m.stale:
                m.timer = inf
                continue
            m.limit, m.due = max(m.window / 2, 2.0), m.window
            m.window, m.seen, m.marked = 1.0, 0, 0
            m.patience *= 2
            m.timer = self.now + m.patience
            if m.is_set_up:
                m.left += m.unheard - m.stale
                m.again += m.unheard - m.stale
                m.unheard = m.stale
                self.send(m, 1)
        # Messages to come begin with the next event at the earliest.
        soon = self.heap[0][0] + min(self.timeout, self.ring_timeout)
        soon = min([soon, *(m.timer for m in self.messages)])
        self.next_look = max(ceil(soon / 1e-3), round(self.now / 1e-3) + 1) * 1e-3

    def forward(self, slot: int) -> bool:
        """Queue a train at its next link; whether its message is then known to have arrived."""
        train = self.trains[slot]
        m, link = train.message, train.message.path[train.hop]
        each = self.packet / self.rate[link]
        if train.hop:
            self.leave(train, m.path[train.hop - 1])
        start = max(self.now, self.free[link])
        self.free[link] = start + train.packets * self.packet / self.rate[link]
        self.served[link].append((start, self.free[link], train.packets * self.packet))
        head = start + each + self.delay[link]
        tail = max(self.free[link], train.tail + each) + self.delay[link]
        train.hop += 1
        if train.hop < len(m.path):
            train.tail = tail
            self.post(head, TRAIN, slot)
            return False
        if train.copy:
            del self.trains[slot]
            self.slots.append(slot)
            return False
        train.last = link
        m.end = max(m.end, tail)
        m.coming -= 1
        all_sent = m.left == m.again
        if m.left == 0 and tail + m.way_back <= m.timer:
            m.unheard -= train.packets
            m.heard += train.packets
            m.timer = inf if m.heard == m.packets else tail + m.way_back + m.patience
            del self.trains[slot]
            self.slots.append(slot)
        else:
            self.post(0.5 * (head + tail) + m.way_back, TRAIN, slot)
        return all_sent and m.coming == 0

    def leave(self, train: Train, link: int) -> None:
        """Mark the packets of a train that leave a long queue behind them.

        Its first packet is here, or its middle one at the end of its way.
        """
        each = self.packet / self.rate[link]
        beyond = (self.free[link] - self.now - self.marks_above[link]) / each
        if train.last is not None:
            beyond += (train.packets - 1) / 2
        if beyond > 0:
            train.marked = max(train.marked, min(ceil(beyond), train.packets))
            self.marks += 1

    def hear(self, slot: int) -> None:
        """DCTCP: the window grows by what has arrived, in slow start, or by one each round trip."""
        train = self.trains.pop(slot)
        self.slots.append(slot)
        m = train.message
        assert train.last is not None
        self.leave(train, train.last)
        if train.times == m.times:
            self.understand(m, train)
        else:
            counted = min(train.packets, m.stale)
            m.unheard -= counted
            m.stale -= counted
        if train.marked:
            m.alpha = m.alpha or 0.0
            m.limit = min(m.limit, m.window)
        come = 0
        while come < train.packets:
            # Up to the packet with which the window ends.
            before, first = m.window, come
            while come < train.packets:
                come, m.seen = come + 1, m.seen + 1
                if m.seen >= m.due:
                    break
            m.marked += (come - first) * (train.marked / train.packets)
            slow = max(min(come - first, m.limit - before), 0.0)
            m.window += slow
            m.window += (come - first - slow) / m.window
            if m.seen >= m.due:
                if m.alpha is not None:
                    m.alpha = m.alpha * (1 - 1 / 16) + m.marked / m.seen / 16
                    m.window = max(1.0, m.window * (1 - m.alpha / 2))
                    m.limit = m.window
                m.seen, m.marked = 0, 0.0
                m.due = m.window

    def understand(self, m: Message, train: Train) -> None:
        """Cumulative acknowledgements: what was to be sent again may be among them."""
        m.heard += train.packets
        ahead = max(train.packets - (m.unheard - m.stale), 0)
        m.unheard -= train.packets - ahead
        m.left -= ahead
        m.again = max(m.again - ahead, 0)
        if m.heard >= m.packets:
            m.left = m.again = 0
        if not m.patience:
            return
        trip = self.now - train.sent
        if max(trip, m.trip) > self.timeout / 5:
            apart, n = trip - m.trip, train.packets
            # The sums of n steps of each of the two averages.
            steps = sum(0.75 ** (n - 1 - i) * 0.875**i for i in range(n)) / 4
            m.varies = 0.75**n * m.varies + abs(apart) * steps
            m.trip = trip - apart * 0.875**n
        m.patience = max(m.trip + 4 * m.varies, self.timeout)
        m.timer = self.now + m.patience if m.unheard > m.stale else inf

    def arrived(self, m: Message) -> None:
        if m.ring < 0:
            self.post(m.end, TASK, m.task)
            return
        ring = self.rings[m.ring]
        ring["waiting"] -= 1
        self.ring_end[m.ring] = max(self.ring_end[m.ring], m.end)
        if ring["waiting"] == 0:
            self.post(self.ring_end[m.ring], RING, m.ring)

    def begin_round(self, number: int) -> None:
        ring = self.rings[number]
        ring["waiting"] = ring["size"]
        ring["rounds"] -= 1
        self.ring_end[number] = self.now
        for m in self.messages[ring["base"] : ring["base"] + ring["size"]]:
            self.begin(m, ring["rounds"] if self.cold else 0)

    def happen(self, kind: int, number: int) -> Iterator[int]:
        """Let an event happen; yield the task that it finishes, if any."""
        if kind in (SET_UP, TRAIN):
            self.make_room(self.messages[number] if kind == SET_UP else self.trains[number].message)
        if kind == SET_UP:
            m = self.messages[number]
            if m.set_up_hop < len(m.path):
                self.announce(m)
                return
            m.is_set_up = True
            opening = self.cold or m.times == 1
            if opening and m.limit < inf:
                m.window, m.alpha = 2.0, None
            elif opening:
                m.window = self.way.initial_window
                m.due = 2 if self.cold else m.window
                m.alpha, m.seen, m.marked = None, 0, 0
            if m.patience:
                m.trip, m.varies, m.timer = self.now - m.end, (self.now - m.end) / 2, inf
                m.patience = max(self.timeout, 3 * m.trip)
            if self.fill(m):
                self.arrived(m)
        elif kind == TRAIN:
            m = self.trains[number].message
            train = self.trains[number]
            if train.copy and train.hop >= len(m.path):
                # The receiver has had it, and its message goes a shorter way now.
                del self.trains[number]
                self.slots.append(number)
                over = False
            elif train.last is None:
                over = self.forward(number)
            else:
                self.hear(number)
                over = m.is_set_up and self.fill(m)
            if over:
                self.arrived(m)
        elif kind == RING:
            ring = self.rings[number]
            if ring["rounds"]:
                self.begin_round(number)
                return
            t = ring["task"]
            self.of_task[t].remove(number)
            if not self.of_task[t]:
                yield t
        elif number in self.delayed:
            self.delayed.remove(number)
            if self.tasks.kind[number] == TaskKind.TRANSFER:
                self.begin(self.messages[self.of_task[number][0]], 0)
            else:
                for ring_number in self.of_task[number]:
                    self.begin_round(ring_number)
        else:
            yield number

    def run(self) -> PlainPacketRun:
        tasks = self.tasks
        n = tasks.tasks
        waiting = tasks.predecessors.tolist()
        start, finish, binding = [0.0] * n, [inf] * n, [-1] * n
        self.delayed = set(self.of_task)
        queue: dict[int, list[tuple[float, int, int]]] = {d: [] for d in range(tasks.devices)}
        busy, last = set(), {}
        order = 0

        def get_ready(t: int) -> None:
            nonlocal order
            order += 1
            start[t] = self.now
            if tasks.kind[t] == TaskKind.COMPUTE:
                tie = order if self.way.htsim else t
                queue[int(tasks.first[t])].append((self.now, tie, t))
            else:
                alone = len(tasks.groups[tasks.first[t]]) < 2 if tasks.second[t] < 0 else False
                skipped = alone and self.way.htsim and tasks.size[t] > 0
                wait = 0.0 if skipped else float(tasks.delay[t])
                late = self.now + wait
                self.post(late if t in self.of_task else late + self.lag[t], TASK, t)

        def employ() -> None:
            if self.heap and self.heap[0][0] <= self.now and not self.way.htsim:
                return  # more tasks may become ready at this time
            for d, waiters in queue.items():
                if waiters and d not in busy:
                    since, tie, t = min(waiters)
                    waiters.remove((since, tie, t))
                    busy.add(d)
                    start[t] = self.now
                    if since < self.now:
                        binding[t] = last[d]
                    self.post(self.now + float(tasks.size[t]), TASK, t)

        for t in range(n):
            if waiting[t] == 0:
                get_ready(t)
        employ()
        while self.heap:
            if self.heap[0][0] > self.next_look:
                self.look_at_timers()
                continue
            self.now, kind, number = heapq.heappop(self.heap)
            for t in self.happen(kind, number):
                finish[t] = self.now
                if tasks.kind[t] == TaskKind.COMPUTE:
                    busy.discard(int(tasks.first[t]))
                    last[int(tasks.first[t])] = t
                begin, end = tasks.successor_offsets[t : t + 2]
                for after in tasks.successors[begin:end].tolist():
                    waiting[after] -= 1
                    if waiting[after] == 0:
                        binding[after] = t
                        get_ready(after)
            employ()
        return PlainPacketRun(start, finish, binding, self.served, self.messages, self.marks)
