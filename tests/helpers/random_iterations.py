"""Random iterations of computing and communicating tasks."""

from parallelism.taskgraph import TaskGraph, TaskKind

C, T, A = TaskKind.COMPUTE, TaskKind.TRANSFER, TaskKind.ALLREDUCE


def random_tasks(rng, servers=6, count=40):
    """Tasks whose dependencies go forward, with groups of all sizes."""
    groups = ((0, 1, 2, 3, 4, 5), (0, 2, 4), (1, 5), (3,))
    tasks, edges = [], []
    for task in range(count):
        kind = [C, C, T, A][rng.integers(4)]
        if kind == C:
            tasks.append((C, int(rng.integers(servers)), -1, float(rng.random()), 0.0))
        elif kind == T:
            a, b = rng.choice(servers, 2, replace=False).tolist()
            tasks.append((T, a, b, float(rng.integers(0, 4)) * 1e5, 0.0))
        else:
            size, delay = float(rng.random()) * 1e6, float(rng.random()) / 10
            tasks.append((A, int(rng.integers(4)), -1, size, delay))
        for before in rng.choice(task, min(task, int(rng.integers(3))), replace=False).tolist():
            edges.append((before, task))
    return TaskGraph.from_lists(servers, tasks, edges, groups)
