"""Collectives as messages of other schedules than rings, which the simulators take as transfers."""

from parallelism.taskgraph import TaskGraph, TaskKind

A, R, G, T = (
    TaskKind.ALLREDUCE, TaskKind.REDUCE_SCATTER, TaskKind.ALL_GATHER, TaskKind.TRANSFER,
)  # fmt: skip


def random_tree(members, root, rng):
    """Pairs (member, parent) of a random tree, parents first."""
    met, pairs = [root], []
    for member in rng.permutation([m for m in members if m != root]).tolist():
        pairs.append((member, met[rng.integers(len(met))]))
        met.append(member)
    return pairs


def messages(kind, members, size, rng):
    """One schedule: (source, target, bytes, messages waited for).

    An AllReduce by everybody sending to all, over one tree, or a part of it over a tree each; a
    ReduceScatter or AllGather over a tree each.
    """
    how = rng.choice(["all", "one", "each"]) if kind == A else "each"
    if how == "all":
        return [(a, b, size, []) for a in members for b in members if a != b]
    chunks = int(rng.integers(1, 4))
    roots = [int(rng.choice(members))] if how == "one" else members
    sent = []
    for root in roots * chunks:
        part = size / len(roots) / chunks
        pairs = random_tree(members, root, rng)
        last = {member: [] for member in members}
        if kind != G:
            for member, parent in reversed(pairs):
                last[parent].append(len(sent))
                sent.append((member, parent, part, last[member]))
        if kind != R:
            heard = {root: last[root]}
            for member, parent in pairs:
                heard[member] = [len(sent)]
                sent.append((parent, member, part, heard[parent]))
    return sent


def by_messages(tasks, rng):
    """The same iteration with every collective of several servers as messages."""
    count = tasks.tasks
    after = [
        tasks.successors[tasks.successor_offsets[t] : tasks.successor_offsets[t + 1]].tolist()
        for t in range(count)
    ]
    rows, begins, ends, edges = [], {}, {}, []
    for task in range(count):
        kind, first = TaskKind(tasks.kind[task]), int(tasks.first[task])
        row = (kind, first, int(tasks.second[task]), float(tasks.size[task]),
               float(tasks.delay[task]))  # fmt: skip
        begins[task] = ends[task] = [len(rows)]
        if kind >= A and len(tasks.groups[first]) > 1:
            sent = messages(kind, list(tasks.groups[first]), row[3], rng)
            base = len(rows)
            rows += [(T, a, b, part, 0.0 if before else row[4]) for a, b, part, before in sent]
            edges += [(base + b, base + at) for at, one in enumerate(sent) for b in one[3]]
            begins[task] = [base + at for at, one in enumerate(sent) if not one[3]]
            ends[task] = [base + at for at in range(len(sent))]
        else:
            rows.append(row)
    edges += [(a, b) for t in range(count) for s in after[t] for a in ends[t] for b in begins[s]]
    made = TaskGraph.from_lists(tasks.servers, rows, sorted(set(edges)), tasks.groups)
    assert tasks.devices == tasks.servers
    return made
