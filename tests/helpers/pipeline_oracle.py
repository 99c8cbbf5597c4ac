"""The shortest time of a small task graph over every order in which its resources may serve.

Devices and the ports of servers, each way, do one thing at a time, at full speed. Orders are
enumerated as by Giffler and Thompson (1960): of what can go next, take the task that can be done
first, and branch over those that share a resource with it and could begin before it is done.
Every such tree holds a shortest schedule.
"""

from typing import NamedTuple

from parallelism.taskgraph import TaskKind


class Job(NamedTuple):
    """What a task does: waits, keeps its resources busy, and ends so long after it began."""

    wait: float
    busy: float
    length: float
    resources: frozenset
    before: tuple


def jobs_of(tasks, rate, lag):
    """Return the jobs of a task graph whose servers have ``rate`` bytes/s to all others at once.

    A ring keeps the ports of its members busy with what they send; each of its rounds takes
    ``lag`` seconds more, a transfer once.
    """
    before = [[] for _ in range(tasks.tasks)]
    for task in range(tasks.tasks):
        for after in tasks.successors[
            tasks.successor_offsets[task] : tasks.successor_offsets[task + 1]
        ].tolist():
            before[after].append(task)
    found = []
    for task in range(tasks.tasks):
        kind, size = int(tasks.kind[task]), float(tasks.size[task])
        first, second = int(tasks.first[task]), int(tasks.second[task])
        wait = 0.0
        if kind == TaskKind.COMPUTE:
            busy = length = size
            used = {("device", first)}
        elif kind == TaskKind.TRANSFER:
            busy, length = size / rate, size / rate + lag
            used = {("out", first), ("in", second)}
        else:
            group = tasks.groups[first]
            turns = (2 if kind == TaskKind.ALLREDUCE else 1) * (len(group) - 1)
            busy = turns * size / len(group) / rate
            length = busy + turns * lag
            wait = float(tasks.delay[task])
            used = {(way, server) for server in group for way in ("out", "in")}
        found.append(Job(wait, busy, length, frozenset(used), tuple(before[task])))
    return found


def shortest(jobs, nodes=3000):
    """Return the least time found, and whether all orders were looked at.

    What is found before ``nodes`` branches are spent is the time of some order all the same.
    """
    count = len(jobs)
    after = [[] for _ in jobs]
    for number, job in enumerate(jobs):
        for one in job.before:
            after[one].append(number)
    tail = [0.0] * count
    for number in reversed(_sorted(jobs, after)):
        follow = max((tail[one] for one in after[number]), default=0.0)
        tail[number] = jobs[number].wait + jobs[number].length + follow
    best, left = float("inf"), nodes

    def branch(ends, missing, free, ready):
        nonlocal best, left
        if not ready:
            best = min(best, max(ends.values(), default=0.0))
            return
        starts = {}
        for number in ready:
            job = jobs[number]
            known = max((ends[one] for one in job.before), default=0.0) + job.wait
            starts[number] = max([known, *(free.get(each, 0.0) for each in job.resources)])
            if known - job.wait + tail[number] >= best - 1e-12:
                return
        first = min(ready, key=lambda number: (starts[number] + jobs[number].busy, number))
        done = starts[first] + jobs[first].busy
        rivals = [
            number
            for number in ready
            if number == first
            or (starts[number] < done and jobs[number].resources & jobs[first].resources)
        ]
        for number in sorted(rivals, key=lambda number: (starts[number], -tail[number])):
            if left == 0 and best < float("inf"):
                return
            left = max(0, left - (len(rivals) > 1))
            job = jobs[number]
            now = dict(free)
            for each in job.resources:
                now[each] = starts[number] + job.busy
            waiting, opened = dict(missing), [one for one in ready if one != number]
            for one in after[number]:
                waiting[one] -= 1
                if waiting[one] == 0:
                    opened.append(one)
            branch({**ends, number: starts[number] + job.length}, waiting, now, opened)

    missing = {number: len(job.before) for number, job in enumerate(jobs)}
    branch({}, missing, {}, [number for number, wanted in missing.items() if not wanted])
    return best, left > 0


def _sorted(jobs, after):
    waiting = [len(job.before) for job in jobs]
    order = [number for number, wanted in enumerate(waiting) if not wanted]
    for number in order:
        for one in after[number]:
            waiting[one] -= 1
            if waiting[one] == 0:
                order.append(one)
    return order
