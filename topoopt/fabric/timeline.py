"""What a simulated iteration looked like: times, busy devices and links, the critical path."""

from dataclasses import dataclass

import numpy as np

from codesign_base.arguments import check_kind
from codesign_base.arrays import Floats, Ints
from parallelism.taskgraph import TaskGraph, TaskKind


@dataclass(frozen=True, eq=False)
class Timeline:
    """The result of one simulation.

    Parameters
    ----------
    start : float64 array, shape (tasks,)
        Seconds. Compute: when the device began it. Network: when it became ready.
    finish : float64 array, shape (tasks,)
        Seconds.
    makespan : float
        Seconds: the last finish (0 without tasks), or, with a completion tolerance, what the links
        need for their bytes if that is longer.
    binding : int64 array, shape (tasks,)
        The task whose finish fixed the start: the dependency that finished last, or, if the
        device was busy then, the task that occupied it just before; -1 for none.
    link_bytes : float64 array, shape (links,)
        Bytes that each link carried.
    device_busy : float64 array, shape (devices,)
        Seconds that each device computed.
    """

    start: Floats
    finish: Floats
    makespan: float
    binding: Ints
    link_bytes: Floats
    device_busy: Floats

    def __post_init__(self) -> None:
        for name in ("start", "finish", "binding", "link_bytes", "device_busy"):
            getattr(self, name).setflags(write=False)


def critical_path(tasks: TaskGraph, timeline: Timeline) -> tuple[int, ...]:
    """Return the tasks that fix the makespan, from the first to the last.

    Each begins when the one before it finishes; the first begins at time zero. Among tasks that
    finish last the one with the lowest id is followed back.
    """
    check_kind("tasks", tasks, TaskGraph, "the TaskGraph that was simulated")
    check_kind("timeline", timeline, Timeline, "what topoopt.fabric.simulate returned")
    if tasks.tasks == 0:
        return ()
    path = [int(np.argmax(timeline.finish))]
    while timeline.binding[path[-1]] >= 0:
        path.append(int(timeline.binding[path[-1]]))
    return tuple(reversed(path))


def compute_on_critical_path(tasks: TaskGraph, timeline: Timeline) -> float:
    """Return the seconds of compute on the critical path.

    The rest of the makespan is exposed communication (network time that no computation hides,
    with the delays inside servers that precede AllReduces).
    """
    path = np.array(critical_path(tasks, timeline), dtype=np.int64)
    compute = path[tasks.kind[path] == TaskKind.COMPUTE]
    # The sum may exceed the makespan by its rounding where nothing is exposed.
    return min(float(tasks.size[compute].sum()), timeline.makespan)


def exposed_communication(tasks: TaskGraph, timeline: Timeline) -> float:
    """Return makespan minus compute on the critical path, in seconds."""
    compute = compute_on_critical_path(tasks, timeline)
    return timeline.makespan - compute
