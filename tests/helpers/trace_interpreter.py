"""Runs traces of ranks on links that pass one message after another: an oracle of a few lines."""

import heapq
from collections import defaultdict


def run_traces(ranks, rate, latency):
    """Return when the last node of traces ends, and the bytes of each link.

    Compute takes its whole microseconds (a nanosecond if it has none), a send its bytes at the
    rate of the link once earlier ones have left it, and arrives a latency later.
    """
    nodes = {(rank, node.id): node for rank, trace in enumerate(ranks) for node in trace}
    left = {place: len(node.after) for place, node in nodes.items()}
    after = defaultdict(list)
    for (rank, number), node in nodes.items():
        for before in node.after:
            after[rank, before].append((rank, number))
    receivers = {}
    for (rank, number), node in nodes.items():
        if node.type.name == "COMM_RECV":
            key = (int(node.number("comm_src")), rank, int(node.number("comm_tag")))
            assert key not in receivers
            receivers[key] = (rank, number)
    free, carried = defaultdict(float), defaultdict(float)
    events = [(0.0, order, "ready", place) for order, place in enumerate(nodes) if not left[place]]
    order, posted, arrived, done, last = len(nodes), set(), set(), set(), 0.0

    def later(time, what, place):
        nonlocal order
        order += 1
        heapq.heappush(events, (time, order, what, place))

    heapq.heapify(events)
    while events:
        time, _, what, place = heapq.heappop(events)
        node = nodes[place]
        if what == "ready":
            if node.type.name == "COMP":
                later(time + max(node.micros * 1e-6, 1e-9), "done", place)
            elif node.type.name == "COMM_RECV":
                posted.add(place)
                if place in arrived:
                    later(time, "done", place)
            else:
                link = (place[0], int(node.number("comm_dst")))
                size = node.number("comm_size")
                carried[link] += size
                free[link] = max(free[link], time) + size / rate
                later(free[link] + latency, "done", place)
                other = receivers[(*link, int(node.number("comm_tag")))]
                assert nodes[other].number("comm_size") == size
                later(free[link] + latency, "arrives", other)
        elif what == "arrives":
            arrived.add(place)
            if place in posted:
                later(time, "done", place)
        else:
            assert place not in done
            done.add(place)
            last = max(last, time)
            for other in after[place]:
                left[other] -= 1
                if not left[other]:
                    later(time, "ready", other)
    assert len(done) == len(nodes), "some nodes never ran"
    return last, dict(carried)
