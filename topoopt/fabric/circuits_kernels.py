"""Direct circuits on demand: who gets which ports, compiled.

Links are server pairs, ``source * servers + target``. A pair has ``lit`` circuits that carry bytes
and ``coming`` ones whose ports are dark until they are due.
"""

from typing import NamedTuple

import numpy as np

from codesign_base.arrays import Floats, Ints
from codesign_base.jit import inner_kernel, kernel
from topoopt.fabric.arrays_kernels import Orders
from topoopt.fabric.flows_kernels import (
    ACTIVE,
    BEGIN,
    CAP,
    CAPACITY,
    END,
    HEAD,
    LOAD,
    MARK,
    RATE,
    ROW,
    SERVICE,
    SINCE,
    SPARE,
    Flows,
)
from topoopt.fabric.iteration_kernels import INSTANT, Iteration
from topoopt.fabric.varying_kernels import (
    ASKED,
    GAVE_UP,
    LOWEST,
    NOW,
    OVER,
    PARKED,
    SOLVE_AT,
    Changing,
    advance,
    cap_of,
    let_go,
    room_of,
)

LIT, COMING, CLAIMS = 0, 1, 2  # pair: circuits that carry bytes, that are being set up; demands
# that wait for the pair's other circuits and keep these
OUT, IN = 0, 1  # ports: not in any circuit, of each server
GOT, TAKEN = 0, 1  # setup: circuits set up so far, of those lit so far
NOTED = 4  # beside the reasons of `advance`: the circuits that carry bytes have changed


class Circuits(NamedTuple):
    """Direct circuits, those under way, and the ports that are in none.

    Parameters
    ----------
    pair : int64 array, shape (3, servers * servers)
        Circuits of each ordered pair.
    ports, open_ports, held : int64 arrays, shape (2, servers)
        Ports in no circuit; work space.
    due, made : arrays, shape (ports,)
        Ring buffer of circuits that are being set up: when they carry bytes (s), their pairs.
    setup : int64 array, shape (2,)
    seen, waits, rows : arrays
        Work space by rows of demands; ``seen`` is all zero between calls.
    work : float64 array, shape (1,)
        What decisions have cost, in streams re-solved.
    """

    pair: Ints
    ports: Ints
    open_ports: Ints
    held: Ints
    due: Floats
    made: Ints
    setup: Ints
    seen: Ints
    waits: Floats
    rows: Ints
    work: Floats


@inner_kernel
def light_due(rate: float, clock: Floats, circuits: Circuits, link: Floats) -> None:
    """Let circuits carry bytes whose delay is over."""
    pair, due, made, setup = circuits.pair, circuits.due, circuits.made, circuits.setup
    while setup[TAKEN] < setup[GOT]:
        at = setup[TAKEN] % made.size
        if due[at] > clock[NOW] * (1.0 + INSTANT):
            break
        name = made[at]
        setup[TAKEN] += 1
        pair[COMING, name] -= 1
        pair[LIT, name] += 1
        link[CAPACITY, name] += rate
        link[SPARE, name] += rate
        clock[LOWEST] = 0.0
        clock[SOLVE_AT] = clock[NOW]


@inner_kernel
def _idle(name: int, pair: Ints, link: Floats) -> bool:
    """Whether no flow uses a pair's circuits and none is about to."""
    return bool(link[LOAD, name] < 0.5 and pair[CLAIMS, name] == 0)


@inner_kernel
def _to_spare(name: int, surplus: bool, pair: Ints, link: Floats) -> int:
    """Return how many lit circuits of a pair may be taken: idle ones, and all but one in use."""
    lit = int(pair[LIT, name])
    if lit == 0 or _idle(name, pair, link):
        return lit
    return lit - 1 if surplus else 0


@inner_kernel
def _count_ports(surplus: bool, pair: Ints, ports: Ints, link: Floats, open_ports: Ints) -> None:
    """Count the ports that each server has free, or in circuits that may be taken."""
    servers = ports.shape[1]
    for side in range(2):
        for server in range(servers):
            open_ports[side, server] = ports[side, server]
    for source in range(servers):
        for target in range(servers):
            name = source * servers + target
            if pair[LIT, name] > 0:
                spare = _to_spare(name, surplus, pair, link)
                open_ports[OUT, source] += spare
                open_ports[IN, target] += spare


@inner_kernel
def _take_port(
    side: int, server: int, surplus: bool, rate: float, clock: Floats, pair: Ints, ports: Ints,
    link: Floats,
) -> None:  # fmt: skip
    """Take a free port, or that of an idle circuit, or (surplus) of one circuit of several."""
    if ports[side, server] > 0:
        ports[side, server] -= 1
        return
    servers = ports.shape[1]
    for share in range(2 if surplus else 1):
        for other in range(servers):
            name = server * servers + other if side == OUT else other * servers + server
            if pair[LIT, name] > 0 and _to_spare(name, share == 1, pair, link) > 0:
                pair[LIT, name] -= 1
                link[CAPACITY, name] = max(link[CAPACITY, name] - rate, 0.0)
                if pair[LIT, name] == 0:
                    link[CAPACITY, name] = 0.0
                link[SPARE, name] -= rate
                ports[1 - side, other] += 1
                clock[LOWEST] = 0.0
                clock[SOLVE_AT] = clock[NOW]
                return


@inner_kernel
def _set_up(
    name: int, surplus: bool, rate: float, delay: float, clock: Floats, circuits: Circuits,
    link: Floats,
) -> None:  # fmt: skip
    """Begin a circuit over ports that are known to be open."""
    pair, ports, open_ports = circuits.pair, circuits.ports, circuits.open_ports
    due, made, setup = circuits.due, circuits.made, circuits.setup
    servers = ports.shape[1]
    source = name // servers
    target = name % servers
    _take_port(OUT, source, surplus, rate, clock, pair, ports, link)
    _take_port(IN, target, surplus, rate, clock, pair, ports, link)
    open_ports[OUT, source] -= 1
    open_ports[IN, target] -= 1
    at = setup[GOT] % made.size
    setup[GOT] += 1
    made[at] = name
    due[at] = clock[NOW] + delay
    pair[COMING, name] += 1


@inner_kernel
def _claim(task: int, orders: Orders, pair: Ints, link: Floats, open_ports: Ints) -> None:
    """Keep the circuits that a waiting demand has already from being taken."""
    servers = open_ports.shape[1]
    for entry in range(orders.begin[task], orders.end[task]):
        name = int(orders.links[entry])
        before = _to_spare(name, True, pair, link)
        pair[CLAIMS, name] += 1
        kept = before - _to_spare(name, True, pair, link)
        open_ports[OUT, name // servers] -= kept
        open_ports[IN, name % servers] -= kept


@inner_kernel
def _open(name: int, open_ports: Ints) -> bool:
    """Whether a circuit can be set up between two servers."""
    servers = open_ports.shape[1]
    return bool(open_ports[OUT, name // servers] > 0 and open_ports[IN, name % servers] > 0)


@inner_kernel
def assign_ports(
    rate: float, delay: float, orders: Orders, changing: Changing, flows: Flows, circuits: Circuits
) -> None:
    """Give ports to what waits, then what is left over to what would last longest.

    Parameters
    ----------
    rate, delay : float
        Bytes/s of a circuit; seconds until a new one carries bytes.
    orders, changing, flows
        As in `topoopt.fabric.varying_kernels.advance`.
    circuits : Circuits

    Notes
    -----
    1. Waiting demands, first come first served, get one circuit for each of their edges if all
       can be had at once, from ports that are free, in idle circuits, or in circuits beyond the
       first of a pair. An AllReduce that cannot be served keeps the ports that are open on its
       servers from what comes after it.
    2. Ports still open (free or in idle circuits) add circuits, one on every edge, to the demand
       that would last longest as it is, as long as that is longer than the delay.
    """
    begin, end, links, resource = orders.begin, orders.end, orders.links, orders.resource
    parked, clock, left, link = changing.parked, changing.clock, changing.left, flows.link
    pair, ports, open_ports, held = (
        circuits.pair, circuits.ports, circuits.open_ports, circuits.held,
    )  # fmt: skip
    seen, waits, rows = circuits.seen, circuits.waits, circuits.rows
    servers = ports.shape[1]
    pair[CLAIMS, :] = 0
    held[:, :] = 0
    found = int(np.int64(0))
    short = int(np.int64(0))
    # Distinct rows that wait, in the order in which they came: 1 served already, 2 not.
    for i in range(changing.waits[PARKED]):
        task = parked[i]
        row = resource[task]
        if seen[row] == 0:
            seen[row] = 1
            waits[row] = 0.0
            rows[found] = task
            found += 1
            for entry in range(begin[task], end[task]):
                name = int(links[entry])
                if pair[LIT, name] + pair[COMING, name] == 0:
                    seen[row] = 2
            if seen[row] == 2:
                short += 1
            else:
                for entry in range(begin[task], end[task]):
                    pair[CLAIMS, int(links[entry])] += 1
        waits[row] += left[task]
    if short > 0:
        _count_ports(True, pair, ports, link, open_ports)
        for i in range(found):
            task = rows[i]
            if seen[resource[task]] != 2:
                continue
            ready = True
            for entry in range(begin[task], end[task]):
                name = int(links[entry])
                if pair[LIT, name] + pair[COMING, name] == 0 and not _open(name, open_ports):
                    ready = False
                    break
            several = end[task] - begin[task] > 1
            if ready or several:
                _claim(task, orders, pair, link, open_ports)
            if ready:
                seen[resource[task]] = 1
            if not (ready or several):
                continue
            for entry in range(begin[task], end[task]):
                name = int(links[entry])
                if pair[LIT, name] + pair[COMING, name] > 0:
                    continue
                if ready:
                    _set_up(name, True, rate, delay, clock, circuits, link)
                else:
                    open_ports[OUT, name // servers] -= 1
                    open_ports[IN, name % servers] -= 1
                    held[OUT, name // servers] += 1
                    held[IN, name % servers] += 1
    _count_ports(False, pair, ports, link, open_ports)
    spare_ports = int(np.int64(0))
    for server in range(servers):
        for side in range(2):
            open_ports[side, server] -= held[side, server]
            spare_ports += max(open_ports[side, server], 0)
    # Candidates for more circuits: the served rows that wait, and the rows that are active.
    places = int(np.int64(0))
    for i in range(found):
        task = rows[i]
        row = resource[task]
        if seen[row] == 1 and spare_ports > 0:
            rows[places] = task
            places += 1
        seen[row] = 0
    if spare_ports > 0:
        slot = flows.slot
        for s in range(flows.counts[ACTIVE]):
            row = flows.numbers[ROW, s]
            head = flows.numbers[HEAD, s]
            service = slot[SERVICE, s] + max(slot[RATE, s], 0.0) * (clock[NOW] - slot[SINCE, s])
            amount = 0.0
            task = head
            while task >= 0:
                amount += max(flows.member[MARK, task] - service, 0.0)
                task = flows.following[task]
            waits[row] = amount
            rows[places] = head
            places += 1
    while places > 0:
        best = -1
        longest = delay
        i = int(np.int64(0))
        while i < places:
            task = rows[i]
            ready = True
            few = pair.shape[1]
            for entry in range(begin[task], end[task]):
                name = int(links[entry])
                if not _open(name, open_ports):
                    ready = False
                    break
                few = min(few, pair[LIT, name] + pair[COMING, name])
            if not ready:
                # Open ports only become fewer.
                places -= 1
                rows[i] = rows[places]
                continue
            lasts = waits[resource[task]] / (few * rate)
            if lasts > longest or (
                best >= 0 and lasts == longest and resource[task] < resource[rows[best]]
            ):
                longest = lasts
                best = i
            i += 1
        if best < 0:
            break
        task = rows[best]
        for entry in range(begin[task], end[task]):
            name = int(links[entry])
            _set_up(name, False, rate, delay, clock, circuits, link)


@inner_kernel
def renew_caps(orders: Orders, changing: Changing, flows: Flows) -> None:
    """Hold every AllReduce to its rounds at the capacities as they are now."""
    index = flows.numbers
    for s in range(flows.counts[ACTIVE]):
        task = index[HEAD, s]
        if changing.pace[task] > 0.0 and index[END, s] > index[BEGIN, s]:
            room = room_of(task, orders, flows.link)
            flows.slot[CAP, s] = cap_of(changing.pace[task], changing.hold[task], room)


@kernel
def simulate_direct(
    rate: float, delay: float, decision: float, orders: Orders, it: Iteration, changing: Changing,
    flows: Flows, circuits: Circuits, horizon: float, tolerance: float, record: bool, stop: Ints,
) -> int:  # fmt: skip
    """Simulate further, and move circuits whenever something comes to wait or ends.

    Parameters
    ----------
    rate, delay : float
        Bytes/s of a circuit; seconds until a new one carries bytes.
    decision : float
        What one costs, in streams re-solved.
    orders, it, changing, flows, horizon, tolerance, stop
        As in `topoopt.fabric.varying_kernels.advance`.
    circuits : Circuits
    record : bool
        Come back whenever circuits have changed, to be called again.

    Returns
    -------
    int
        `OVER`, `GAVE_UP` or `NOTED`.
    """
    clock, setup, due = changing.clock, circuits.setup, circuits.due
    while True:
        until = due[setup[TAKEN] % due.size] if setup[TAKEN] < setup[GOT] else np.inf
        why = advance(orders, it, changing, flows, until, horizon, tolerance, True, stop)
        if why in (OVER, GAVE_UP):
            return int(why)
        light_due(rate, clock, circuits, flows.link)
        if why == ASKED:
            circuits.work[0] += decision
            assign_ports(rate, delay, orders, changing, flows, circuits)
            light_due(rate, clock, circuits, flows.link)
        if clock[SOLVE_AT] <= clock[NOW]:
            let_go(orders, it, changing, flows.link)
            renew_caps(orders, changing, flows)
            if record:
                return NOTED
