"""A slow, plain simulator of ring AllReduces on a Clos fabric, written from the definition."""

import numpy as np


def fair_rates(paths, capacity, cap):
    """Max-min rates by progressive filling; ``paths``: link names of each flow."""
    rates = [None] * len(paths)
    room = dict(capacity)
    level = 0.0
    while any(rate is None for rate in rates):
        going = [f for f, rate in enumerate(rates) if rate is None]
        best = cap
        for link in {link for f in going for link in paths[f]}:
            crossing = sum(paths[f].count(link) for f in going)
            best = min(best, level + room[link] / crossing)
        rise = best - level
        for f in going:
            for link in paths[f]:
                room[link] -= rise
        level = best
        for f in going:
            full = any(room[link] <= 1e-9 * max(capacity[link], 1e-30) for link in paths[f])
            if level >= cap * (1 - 1e-12) or full:
                rates[f] = level
    return rates


def path(clos, source, target, spine):
    """Names of the directed resources of a flow between two NICs."""
    size = clos.nics_per_tor
    a, b = source // size, target // size
    ends = [("out", source), ("in", target)]
    return ends if a == b else [*ends, ("up", a, spine), ("down", spine, b)]


def capacities(clos, nic_rate):
    size = clos.tors * clos.nics_per_tor
    room = {(side, nic): nic_rate for side in ("out", "in") for nic in range(size)}
    for tor in range(clos.tors):
        for spine in range(clos.spines):
            room["up", tor, spine] = clos.up[tor, spine] * nic_rate
            room["down", spine, tor] = clos.down[spine, tor] * nic_rate
    return room


def simulate_plainly(clos, jobs, spine, epochs, nic_rate, reroute=None):
    """Return start and end times, one list a job, and every flow's times in order of ending.

    ``reroute``: (time, clos, spine), or a list of such, from which on other routes hold; with a
    fourth entry {flow: until}, those flows send nothing before ``until``.
    """
    rings = []
    flow = 0
    for j, job in enumerate(jobs):
        for row in job.nics.tolist():
            names = list(range(flow, flow + len(row)))
            flow += len(row)
            rings.append({"job": j, "nics": row, "flows": names, "step": None, "rest": {}})
    start = [[] for _ in jobs]
    end = [[] for _ in jobs]
    due = [job.start_time for job in jobs]
    flow_times = [[] for _ in range(flow)]
    now = 0.0
    room = capacities(clos, nic_rate)
    pending = [] if reroute is None else reroute if isinstance(reroute, list) else [reroute]
    pending = sorted(pending, key=lambda change: change[0])
    held = {}

    def begin(ring):
        size = jobs[ring["job"]].flow_bytes
        ring["rest"] = dict.fromkeys(ring["flows"], size)
        ring["since"] = now

    while any(len(end[j]) < epochs for j in range(len(jobs))):
        sending, paths = [], []
        for ring in rings:
            count = len(ring["nics"])
            for i, name in enumerate(ring["flows"]):
                free = held.get(name, 0.0) <= now
                if ring["step"] is not None and name in ring["rest"] and free:
                    sending.append((ring, name))
                    nics = ring["nics"][i], ring["nics"][(i + 1) % count]
                    paths.append(path(clos, *nics, spine[name]))
        rates = fair_rates(paths, room, nic_rate)
        instants = [now + r["rest"][f] / x for (r, f), x in zip(sending, rates, strict=True)]
        instants += [t for t in due if t is not None] + [p[0] for p in pending]
        instants += [until for until in held.values() if until > now]
        instant = min(instants)
        for (ring, name), rate in zip(sending, rates, strict=True):
            ring["rest"][name] -= rate * (instant - now)
        now = instant
        while pending and pending[0][0] <= now:
            _, clos, spine, *holds = pending.pop(0)
            held.update(*holds)
            room = capacities(clos, nic_rate)
        for ring, name in sending:
            job = jobs[ring["job"]]
            if ring["rest"][name] <= job.flow_bytes * 1e-10:
                del ring["rest"][name]
                flow_times[name].append(now - ring["since"])
        for ring in rings:
            job = jobs[ring["job"]]
            if ring["step"] is None or ring["rest"]:
                continue
            ring["step"] += 1
            if ring["step"] < job.steps:
                begin(ring)
            else:
                ring["step"] = None
                same = [r for r in rings if r["job"] == ring["job"]]
                if all(r["step"] is None for r in same):
                    end[ring["job"]].append(now)
                    if len(end[ring["job"]]) < epochs:
                        due[ring["job"]] = now + job.compute_time
        for j, time in enumerate(due):
            if time is not None and time <= now * (1 + 1e-12):
                due[j] = None
                start[j].append(now)
                for ring in rings:
                    if ring["job"] == j:
                        ring["step"] = 0
                        begin(ring)
    return start, end, flow_times


def random_case(rng, tors=None, spines=None):
    """A small fabric, some of it failed or slow, jobs on random NICs, and random live spines."""
    from routing.clos.fabric import Clos
    from routing.clos.jobs import RingJob, flows_of

    tors = tors or int(rng.integers(2, 5))
    spines = spines or int(rng.integers(2, 5))
    nics = int(rng.integers(2, 6))
    clos = Clos.uniform(tors, spines, nics_per_tor=nics)
    for _ in range(int(rng.integers(0, 3))):
        clos = clos.with_share(
            int(rng.integers(tors)), int(rng.integers(1, spines)), float(rng.choice([0, 0.5, 2])),
            str(rng.choice(["both", "up", "down"])),
        )  # fmt: skip
    order = rng.permutation(tors * nics)
    jobs, used = [], 0
    for number in range(int(rng.integers(1, 4))):
        replicas = int(rng.integers(2, 4))
        rings = int(rng.integers(1, 4))
        if used + rings * replicas > order.size:
            break
        nic = order[used : used + rings * replicas].reshape(rings, replicas)
        used += rings * replicas
        jobs.append(
            RingJob(f"job {number}", nic, float(rng.integers(1, 9)),
                    float(rng.choice([0.0, 0.7, 3.0])), float(rng.uniform(0, 3)))
        )  # fmt: skip
    if not jobs:
        jobs = [RingJob("job 0", order[:2].reshape(1, 2), 3.0)]
    flows = flows_of(clos, jobs)
    return clos, jobs, flows, random_spines(rng, clos, flows)


def random_spines(rng, clos, flows):
    spine = np.full(flows.count, -1)
    for f in np.flatnonzero(flows.crosses):
        live = np.flatnonzero(clos.live(flows.source_tor[f], flows.target_tor[f]))
        spine[f] = rng.choice(live)
    return spine
