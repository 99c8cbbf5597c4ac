"""The tables of a simulation, which its kernels take as one argument, and their rows.

A module of kernels, without any, so that the cache of compiled code notices an edit.
"""

from typing import NamedTuple

from codesign_base.arrays import Flags, Floats, Ints, SmallInts

# Rows of the tables of flows (real, whole) and of links.
# CAP is what the NICs allow: NIC, or 0 until HELD, while a flow is being moved.
REST, SINCE, RATE, SIZE, CAP, BEGAN, DUE, LIMIT, NIC, HELD = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
# Place in the heap or -1; ring; whether it is in the news. Lists: the heap of flows in flight by
# completion time, flows whose rate is to be computed.
PLACE, RING, TOUCHED, HEAP, NEWS = 0, 1, 2, 3, 4
QUEUED, FRESH, HEAPED = 0, 1, 2  # counts
ROOM, LEVEL = 0, 1

SLOTS = 4  # links of a flow: NIC out, up, down, NIC in; -1 where none can be a bottleneck

# Rows of the table of jobs, of their times (next AllReduce, computing), and of the rings' table.
PHASE, EPOCH, LEFT, STEPS, EPOCHS, RING_0, RING_1, FCT_0, WATCH = 0, 1, 2, 3, 4, 5, 6, 7, 8
NEXT, COMPUTE = 0, 1
OWNER, STEP, OPEN, FLOW_0, FLOW_1 = 0, 1, 2, 3, 4  # OPEN: flows of the step that have not ended
# Phases of a job.
WAITING, SENDING, GONE = 0, 1, 2
# Why the event loop stopped.
REACHED, STARTED, LEFT_NOW, FINISHED, STUCK, STEPPED = 0, 1, 2, 3, 4, 5


class Rates(NamedTuple):
    """What max-min rates are kept of; the rows of its tables are above.

    Parameters
    ----------
    flow, mark, link : arrays
        Tables of flows (real, whole) and of links.
    links : int32 array, shape (flows, slots)
        Links of each flow that may hold it back; -1 for none.
    begin, members : int64 and int32 arrays
        Flows ``members[begin[name] : begin[name + 1]]`` pass link ``name``.
    queue, queued : int64 and bool arrays
        Links whose level is to be computed, and whether each is among them.
    counts : int64 array, shape (3,)
        How many links are queued, flows are news, and flows are in the heap.
    """

    flow: Floats
    mark: Ints
    link: Floats
    links: SmallInts
    begin: Ints
    members: SmallInts
    queue: Ints
    queued: Flags
    counts: Ints


class RingRun(NamedTuple):
    """A simulation of rings; the rows of its tables are above.

    Parameters
    ----------
    rates : Rates
    clock : float64 array, shape (1,)
        Now.
    job, times, ring : arrays
        Tables of jobs (whole, real) and of rings.
    spans : float64 array, shape (2, jobs, epochs)
        When each AllReduce began and ended.
    fct : float64 array
        Seconds of each flow of each step.
    """

    rates: Rates
    clock: Floats
    job: Ints
    times: Floats
    ring: Ints
    spans: Floats
    fct: Floats
