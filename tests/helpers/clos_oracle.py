"""Clos metric and optima by the definition, in plain Python and numpy, for small instances."""

from itertools import product

import numpy as np

from codesign_base import InfeasibleError
from routing.clos.assignment import check_connected
from routing.clos.fabric import Clos
from routing.clos.flows import ClosFlows


def job_speeds(clos, flows, spine):
    """Fill jobs one level at a time; links are pairs, nothing is indexed cleverly."""
    use = {}
    for f in range(flows.count):
        if spine[f] < 0:
            continue
        a, b, s, j = flows.source_tor[f], flows.target_tor[f], spine[f], int(flows.job[f])
        for link in (("up", int(a), int(s)), ("down", int(s), int(b))):
            row = use.setdefault(link, {})
            row[j] = row.get(j, 0.0) + float(flows.weight[f])
    room = {
        link: float(clos.up[link[1], link[2]] if link[0] == "up" else clos.down[link[1], link[2]])
        for link in use
    }
    speed = {}
    rising = {int(j) for j in flows.jobs}
    while rising:
        level, full = 1.0, []
        for link, row in use.items():
            need = sum(n for j, n in row.items() if j in rising)
            if need == 0:
                continue
            share = (room[link] - sum(n * speed[j] for j, n in row.items() if j in speed)) / need
            if share < level - 1e-13:
                level, full = share, [link]
            elif share <= level + 1e-13:
                full.append(link)
        frozen = {j for link in full for j in use[link] if j in rising}
        if level >= 1.0:
            frozen = rising
        for j in frozen:
            speed[j] = max(level, 0.0)
        rising = rising - frozen
    return np.array([speed[int(j)] for j in flows.jobs])


def all_speeds(clos, flows, spines):
    """Speeds of many assignments at once, shape (assignments, jobs), by the definition."""
    jobs = flows.jobs.size
    pairs = clos.tors * clos.spines
    use = np.zeros((len(spines), 2 * pairs, jobs))
    row = np.arange(len(spines))
    for f in np.flatnonzero(flows.crosses):
        j, w = flows.job_index[f], flows.weight[f]
        use[row, flows.source_tor[f] * clos.spines + spines[:, f], j] += w
        use[row, pairs + flows.target_tor[f] * clos.spines + spines[:, f], j] += w
    use = use[:, (use > 0).any(axis=(0, 2))] if len(spines) else use
    room = np.concatenate((clos.up.ravel(), clos.down.T.ravel()))
    kept = np.zeros(2 * pairs, dtype=bool)
    for f in np.flatnonzero(flows.crosses):
        for s in range(clos.spines):
            if (spines[:, f] == s).any():
                kept[flows.source_tor[f] * clos.spines + s] = True
                kept[pairs + flows.target_tor[f] * clos.spines + s] = True
    room = room[kept]
    speed = np.full((len(spines), jobs), np.nan)
    for _ in range(jobs):
        rising = np.isnan(speed)
        need = (use * rising[:, None, :]).sum(axis=2)
        used = (use * np.where(rising, 0.0, speed)[:, None, :]).sum(axis=2)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(need > 0, (room - used) / need, np.inf)
        level = np.minimum(share.min(axis=1), 1.0)
        full = share <= level[:, None] + 1e-13
        frozen = (use * full[:, :, None]).sum(axis=1) > 0
        frozen |= (level >= 1.0)[:, None]
        speed = np.where(rising & frozen, np.maximum(level, 0.0)[:, None], speed)
    return np.where(np.isnan(speed), 1.0, speed)


def enumerate_best(clos, flows):
    """The lexicographically best efficiency vector over all assignments."""
    ways = [
        np.flatnonzero(clos.live(a, b)).tolist() if a != b else [-1]
        for a, b in zip(flows.source_tor.tolist(), flows.target_tor.tolist(), strict=True)
    ]
    best = np.zeros(flows.jobs.size)
    batch = []
    for spine in product(*ways):
        batch.append(spine)
        if len(batch) == 4096:
            best = _better(best, all_speeds(clos, flows, np.array(batch)))
            batch = []
    return _better(best, all_speeds(clos, flows, np.array(batch))) if batch else best


def _better(best, speeds):
    ranked = np.round(np.sort(np.vstack((speeds, best)), axis=1), 11)
    return ranked[np.lexsort(ranked.T[::-1])[-1]]


def random_instance(seed, most_flows=12):
    """A fabric of 4x2 to 8x4 with failed links and jobs of unequal flows that fit it."""
    rng = np.random.default_rng(seed)
    while True:
        tors, spines = int(rng.integers(4, 9)), int(rng.integers(2, 5))
        count, jobs = int(rng.integers(4, most_flows + 1)), int(rng.integers(2, 5))
        clos = Clos.uniform(tors, spines)
        for _ in range(int(rng.integers(0, 5))):
            tor, spine = int(rng.integers(tors)), int(rng.integers(spines))
            clos = clos.with_share(tor, spine, 0.0, ("up", "down", "both")[rng.integers(3)])
        if rng.integers(4) == 0:
            tor, spine = int(rng.integers(tors)), int(rng.integers(spines))
            clos = clos.with_share(tor, spine, float(rng.choice([0.5, 2.0])))
        hot = int(rng.integers(2, tors + 1))
        source, target = rng.integers(hot, size=count), rng.integers(hot, size=count)
        sizes = (
            np.ones(count),
            rng.choice([1.0, 2.0, 3.0, 4.0], count),
            rng.uniform(0.2, 1.0, count),
        )[rng.integers(3)]
        keep = source != target
        if keep.sum() < 3:
            continue
        job = rng.integers(jobs, size=count)[keep]
        flows = ClosFlows.of(source[keep], target[keep], job, sizes[keep])
        try:
            check_connected(clos, flows)
        except InfeasibleError:
            continue
        return clos, flows


def permutation_traffic(tors, nics, flows, jobs, seed):
    """Flows between NICs, at most one out of and one into each, in jobs of about equal size."""
    rng = np.random.default_rng(seed)
    source = rng.permutation(tors * nics)[:flows]
    target = rng.permutation(tors * nics)[:flows]
    keep = source // nics != target // nics
    job = np.sort(rng.integers(jobs, size=flows))[keep]
    source, target = source[keep], target[keep]
    return ClosFlows.of(source // nics, target // nics, job, 1.0, source, target)
