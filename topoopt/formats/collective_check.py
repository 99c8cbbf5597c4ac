"""Files of collective schedules, checked: done on numbers, and every claim worked out again."""

import json
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from codesign_base import InputError
from codesign_base.counted import counted
from codesign_base.rows import starts
from parallelism.reading import schema_fault
from routing.collectives.bounds import Line, allreduce_rate, distances, rooted_lines, shared_lines
from routing.collectives.choice import ROOTED, CollectiveSchedule
from routing.collectives.exchange import AllToAllRouting, exchanges
from routing.collectives.joint import JOINT_TREES
from routing.collectives.meeting import EXCHANGE, GATHER, SPREAD, Meeting, meeting_waves
from routing.collectives.rate import gather_rate, members_of, roots_of
from routing.collectives.reduce_broadcast import REDUCE_BROADCAST, rate_both_ways
from routing.collectives.trees import Forest, Tree, of_links, shared_rate, turned
from routing.collectives.waves import waves_of
from routing.network import Network
from topoopt.topology.network_json import network_of_document

if TYPE_CHECKING:
    from topoopt.formats.collective_schema import ForestFile, PartFile, ScheduleFile

CHECKS = ("network", "members", "messages", "rate", "time", "bound")
_ALIKE = 1e-9
_NAMES = re.compile(
    r"ring|rings|trees|(shortest|nearest|joint)-trees|add-all|meeting-\d+-\d+|" + REDUCE_BROADCAST
)


def schedule_document(path: Path) -> dict[str, Any] | None:
    """Return what a file of a collective's schedule holds, or None if it is another file.

    Parameters
    ----------
    path : Path
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # the last of brackets without end
        return None
    return document if isinstance(document, dict) and "collective" in document else None


def check_schedule(document: dict[str, Any]) -> CollectiveSchedule:
    """Check that a schedule does its collective, and takes the time that it says.

    Parameters
    ----------
    document : dict
        As `save_schedule` writes it. Its network is taken as given.

    Returns
    -------
    CollectiveSchedule
        What the file holds; of an exchange without its paths.

    Raises
    ------
    InputError
        Naming the first thing that is wrong.

    Notes
    -----
    Trees reach every member once, and are all of their roots' parts; of a meeting every member's
    numbers are added wave by wave; an exchange sends all of every pair's part. Then rate, latency,
    time and bound are worked out from the network. The name of a schedule must be one that has such
    a form.
    """
    from pydantic import ValidationError

    from topoopt.formats.collective_schema import ScheduleFile

    try:
        file = ScheduleFile.model_validate(document)
    except ValidationError as error:
        raise InputError(schema_fault(error)) from None
    network = network_of_document(dict(file.network), "network", "network")
    members = members_of(network, file.members)
    _need(list(members) == file.members, "members are not in ascending order")
    rooted = file.collective in ROOTED
    _need((file.root is not None) == rooted, f"root is {file.root} of {file.collective}")
    roots_of(members, file.root)
    schedule = _schedule(file, network, members)
    for name, stated, found in (
        ("bytes_per_s", file.bytes_per_s, schedule.bytes_per_s),
        ("latency_s", file.latency_s, schedule.latency_s),
        ("seconds", file.seconds, schedule.time(file.bytes)),
        ("lower_bound_s", file.lower_bound_s, _bound(file, network, members)),
    ):
        _need(
            isclose(stated, found, rel_tol=_ALIKE, abs_tol=1e-18),
            f"{name} is {stated!r}, but the schedule's is {found!r}",
        )
    return schedule


def _need(holds: bool, said: str) -> None:
    if not holds:
        raise InputError(said)


def _schedule(
    file: "ScheduleFile", network: Network, members: tuple[int, ...]
) -> CollectiveSchedule:
    """Return the schedule of a file, once it is one of its collective."""
    given = {
        name
        for name in ("scatter", "gather", "exchange", "meeting")
        if getattr(file, name) is not None
    }
    if file.collective == "all-to-all":
        _need(given == {"exchange"}, f"an all-to-all has {sorted(given)}; it is an exchange only")
        way = _exchange(file, network, members)
        return CollectiveSchedule(way.name, None, None, way.bytes_per_s, way.latency_s, way)
    _need(_NAMES.fullmatch(file.schedule) is not None, f"schedule is {file.schedule!r}")
    if file.schedule.startswith("meeting"):
        _need(
            given == {"meeting"} and file.collective == "allreduce",
            f"{file.schedule} has {sorted(given)}; it is a meeting, and an allreduce",
        )
        assert file.meeting is not None
        met = _meeting(file.schedule, file.meeting, network, members)
        return CollectiveSchedule(
            met.name, None, None, met.bytes_per_s, met.latency_s, waves=(met.waves,), meeting=met
        )
    wanted = {"allreduce": {"scatter", "gather"}, "reduce-scatter": {"scatter"},
              "reduce": {"scatter"}}.get(file.collective, {"gather"})  # fmt: skip
    whole = file.schedule == "add-all"
    if whole or file.schedule == REDUCE_BROADCAST:
        _need(
            file.collective == "allreduce",
            f"schedule is {file.schedule!r} of {file.collective}",
        )
    if whole:
        wanted = {"gather"}
    _need(given == wanted, f"{file.schedule} has {sorted(given)}; it needs {sorted(wanted)}")
    back = turned(network)
    seconds = latency = 0.0
    waves = []
    found: dict[str, Forest] = {}
    for forest_file, on, name in (
        (file.scatter, back, "scatter"),
        (file.gather, network, "gather"),
    ):
        if forest_file is None:
            continue
        forest = _forest(forest_file, file, on, members, back=name == "scatter")
        _check_form(forest, file, on)
        found[name] = forest
        seconds += 1.0 / (forest.bytes_per_s if whole else forest.whole_bytes_per_s)
        latency += forest.latency(on)
        waves.append(waves_of(on, forest).times(len(members) if whole else 1))
    rate = 1.0 / seconds
    if file.schedule == REDUCE_BROADCAST:
        _need(
            _shares(found["scatter"]) == _shares(found["gather"]),
            "trees of scatter and of gather have other shares of their roots",
        )
        rate = rate_both_ways(network, found["scatter"], found["gather"])
    return CollectiveSchedule(
        file.schedule, found.get("scatter"), found.get("gather"), rate, latency, waves=tuple(waves)
    )


def _shares(forest: Forest) -> dict[int, int]:
    """Return the copies of each root's trees together."""
    found = Counter[int]()
    for tree in forest.trees:
        found[tree.root] += tree.copies
    return found


def _forest(
    given: "ForestFile", file: "ScheduleFile", network: Network, members: tuple[int, ...],
    *, back: bool,
) -> Forest:  # fmt: skip
    """Return trees that reach every member once, and are all of each root's part."""
    trees = []
    links = of_links(network, network.capacity)
    inside, copies = set(members), Counter[int]()
    for tree in given.trees:
        paths = [tuple(path[::-1] if back else path) for path in tree.paths]
        if back:
            paths.reverse()
        has = {tree.root}
        for path in paths:
            _follow(links, path)
            _need(
                path[0] in has and path[-1] in inside - has,
                f"a path from {path[0]} to {path[-1]} of root {tree.root} does not grow its tree",
            )
            has.add(path[-1])
        _need(has == inside, f"a tree of root {tree.root} reaches {counted(len(has), 'member')}")
        copies[tree.root] += tree.copies
        trees.append(Tree(tree.root, tree.copies, tuple(paths)))
    roots = roots_of(members, file.root)
    if file.schedule == REDUCE_BROADCAST:
        _need(
            copies.total() == given.units,
            f"trees are not {counted(given.units, 'copy', 'copies')} of the buffer",
        )
    else:
        _need(
            copies == dict.fromkeys(roots, given.units),
            f"trees are not {counted(given.units, 'copy', 'copies')} of each of "
            f"{counted(len(roots), 'root')}",
        )
    rate = shared_rate(network, trees, given.units)
    return Forest(file.schedule, members, rate, given.units, tuple(trees))


def _check_form(forest: Forest, file: "ScheduleFile", network: Network) -> None:
    """Check that trees are what the schedule's name says."""
    name = file.schedule
    if name in ("ring", "rings"):
        chains = all(
            one[-1] == other[0] for tree in forest.trees for one, other in pairwise(tree.paths)
        )
        _need(
            chains and (forest.units == 1 or name == "rings"),
            f"schedule is {name!r}, but its trees are no rings (at each root: {forest.units})",
        )
    elif name == "trees":
        best = gather_rate(network, forest.members, file.root).bytes_per_s
        _need(
            isclose(forest.bytes_per_s, best, rel_tol=_ALIKE),
            "schedule is 'trees', which have the best rate, but these have less",
        )
    elif name not in (JOINT_TREES, REDUCE_BROADCAST):
        _need(
            forest.units == 1,
            f"schedule is {name!r}, but has {counted(forest.units, 'tree')} a root",
        )
        on = network
        if name != "nearest-trees":
            on = replace(network, latency=np.ones(network.links))
        least = distances(on, forest.members).seconds
        place = {member: at for at, member in enumerate(forest.members)}
        link = of_links(on, on.latency)
        for tree in forest.trees:
            away = {tree.root: 0.0}
            for path in tree.paths:
                away[path[-1]] = away[path[0]] + sum(link[pair] for pair in pairwise(path))
                _need(
                    isclose(
                        away[path[-1]], least[place[tree.root], place[path[-1]]],
                        rel_tol=1e-6, abs_tol=1e-15,
                    ),
                    f"schedule is {name!r}, but host {path[-1]} is not at the end of such a path",
                )  # fmt: skip


def _follow(links: Collection[tuple[int, int]], path: Sequence[int]) -> None:
    for pair in pairwise(path):
        _need(pair in links, f"a path goes from {pair[0]} to {pair[1]}, which no link joins")


def _exchange(file: "ScheduleFile", network: Network, members: tuple[int, ...]) -> AllToAllRouting:
    """Return the exchange of a file, with its own rate and latency."""
    assert file.exchange is not None
    names = ("shortest-paths", "least-congestion")
    _need(file.schedule in names, f"schedule is {file.schedule!r}; it may be {' or '.join(names)}")
    _need(
        (not file.exchange) == (file.schedule == names[0]),
        f"schedule is {file.schedule!r} with {counted(len(file.exchange), 'path')}",
    )
    if not file.exchange:
        return exchanges(network, members)[0][0]
    inside = set(members)
    load: dict[tuple[int, int], float] = {}
    shares: dict[tuple[int, int], float] = {}
    capacity, link = of_links(network, network.capacity), of_links(network, network.latency)
    longest = 0.0
    for way in file.exchange:
        a, b = way.path[0], way.path[-1]
        _need(a != b and {a, b} <= inside, f"a path leads from {a} to {b}, which are no members")
        _follow(capacity, way.path)
        shares[a, b] = shares.get((a, b), 0.0) + way.share
        for pair in pairwise(way.path):
            load[pair] = load.get(pair, 0.0) + way.share
        longest = max(longest, sum(link[pair] for pair in pairwise(way.path)))
    _need(
        len(shares) == len(members) * (len(members) - 1)
        and all(isclose(share, 1.0, rel_tol=1e-6) for share in shares.values()),
        "paths do not take the whole part of every pair of members",
    )
    busiest = max(amount / capacity[pair] for pair, amount in load.items()) / len(members)
    return AllToAllRouting(names[1], 1.0 / busiest, longest, ())


def _meeting(
    name: str, parts: list["PartFile"], network: Network, members: tuple[int, ...]
) -> Meeting:
    """Return the meeting of a file, once every member ends with the sum of all numbers."""
    ends = zip(network.source.tolist(), network.target.tolist(), strict=True)
    place = {pair: at for at, pair in enumerate(ends)}
    rows, pairs, hops, links = [], [], [], []
    draw = np.random.default_rng(len(parts))
    for number, part in enumerate(parts):
        messages = _messages(part, members)
        values = draw.integers(1 << 62, size=len(members)).tolist()
        _add_up(messages, members, dict(zip(members, values, strict=True)))
        for kind, origin, wave, path in messages:
            _follow(place, path)
            links += [place[pair] for pair in pairwise(path)]
            rows.append((number, kind, origin, wave))
            pairs.append((path[0], path[-1]))
            hops.append(len(path) - 1)
    _need(bool(rows), "a meeting has no messages")
    start = np.array([wave for *_, wave in rows], dtype=np.int64)
    bounds = starts(hops)
    held = np.array(links, dtype=np.int32)
    waves, rate = meeting_waves(network, len(parts), start, bounds, held)
    return Meeting(
        name, members, len(parts), np.array(rows), np.array(pairs), bounds, held, waves, rate
    )


_Message = tuple[int, int, int, list[int]]


def _messages(part: "PartFile", members: Sequence[int]) -> list[_Message]:
    """Return kind, whose sum, wave and path of each message."""
    inside, found = set(members), list[_Message]()
    for kind, rows in ((GATHER, part.gather), (EXCHANGE, part.exchange), (SPREAD, part.spread)):
        for row in rows:
            wave, path = row[0], row[-1]
            fields = 3 if kind == EXCHANGE else 2
            good = len(row) == fields and isinstance(path, list) and len(path) > 1
            good = good and all(type(each) is int for each in [*row[:-1], *path])
            _need(good and wave >= 0, f"a message is {row!r}; give its wave and path")
            _need(
                {path[0], path[-1]} <= inside and not inside & set(path[1:-1]),
                f"a message of path {path} is not from member to member",
            )
            found.append((kind, row[1] if kind == EXCHANGE else -1, wave, path))
    most = sum(len(path) for *_, path in found)
    _need(
        all(wave < most for _, _, wave, _ in found),
        f"a message waits for more waves than a part has hops ({most})",
    )
    return found


def _add_up(messages: list[_Message], members: Sequence[int], values: dict[int, int]) -> None:
    """Do a part's messages wave by wave; what a member sent to a gatherer is gone."""
    kept, total = dict(values), dict[int, int]()
    sums = dict[int, dict[int, int]]()  # by member, of each gatherer
    gatherers = set(members) - {path[0] for kind, *_, path in messages if kind == GATHER}
    spreaders = set(members) - {path[-1] for kind, *_, path in messages if kind == SPREAD}

    def complete(host: int) -> int:
        mine = dict(sums.get(host, {}))
        if host in gatherers:
            mine[host] = kept[host]
        _need(set(mine) == gatherers, f"member {host} has not got the sums of all gatherers")
        return sum(mine.values())

    begin: dict[int, list[_Message]] = {}
    for message in messages:
        begin.setdefault(message[2], []).append(message)
    arriving: dict[int, list[tuple[_Message, int]]] = {}
    for now in range(max((m[2] + len(m[3]) for m in messages), default=0)):
        for (kind, origin, _, path), value in arriving.pop(now, ()):
            to = path[-1]
            if kind == GATHER:
                _need(to in kept, f"what is gathered comes to member {to} too late")
                kept[to] += value
            elif kind == EXCHANGE:
                _need(origin not in sums.get(to, {}), f"member {to} gets one sum twice")
                sums.setdefault(to, {})[origin] = value
            else:
                _need(to not in total, f"member {to} gets the sum of all twice")
                total[to] = value
        for message in begin.get(now, ()):
            kind, origin, _, path = message
            a = path[0]
            if kind == GATHER:
                _need(a in kept, f"member {a} sends what it has to gather twice")
                value = kept.pop(a)
            elif kind == EXCHANGE:
                _need(origin in gatherers, f"member {origin} gathers nothing")
                got = {a: kept[a]} if a == origin else sums.get(a, {})
                _need(origin in got, f"member {a} sends a sum that it has not got yet")
                value = got[origin]
            elif a in spreaders:
                value = complete(a)
            else:
                _need(a in total, f"member {a} passes on a sum that it has not got yet")
                value = total[a]
            arriving.setdefault(now + len(path) - 1, []).append((message, value))
    total |= {host: complete(host) for host in spreaders}
    _need(
        total == dict.fromkeys(members, sum(values.values())),
        "members do not end with the sum of all",
    )


def _bound(file: "ScheduleFile", network: Network, members: tuple[int, ...]) -> float:
    """Return what no schedule goes below."""
    back = file.collective in ("reduce-scatter", "reduce")
    on = turned(network) if back else network
    lines: Sequence[Line]
    if file.root is None:
        lines = shared_lines(distances(network, members), file.collective)
    else:
        lines = rooted_lines(distances(on, members), members.index(file.root))
    if file.collective == "all-to-all":
        rate = exchanges(network, members)[1]
    elif file.collective == "allreduce":
        rate = allreduce_rate(network, members)
    else:
        best = gather_rate(on, members, file.root)
        rate = best.bytes_per_s * len(best.roots)
    cut = file.bytes / rate + float(network.latency.min())
    return max(cut, *(seconds + each * file.bytes for seconds, each in lines))
