"""Schedule files: all kinds pass, and of each every changed field is refused."""

import json
import sys
from collections import Counter
from itertools import pairwise

import pytest
from tampering import changes, nodes, replaced

from codesign_base import InfeasibleError, InputError
from routing.collectives.choice import COLLECTIVES, ROOTED, choose_schedules
from routing.network import Network
from topoopt.cli import main
from topoopt.formats.collective_check import check_schedule
from topoopt.formats.collective_json import save_schedule

SIZE = 3e4


def network():
    """Seven hosts, links of different rates and latencies, each both ways."""
    ends = [(i, (i + s) % 7) for s in (1, 2) for i in range(7)]
    rates = [1e9 * (1 + i % 3) for i in range(14)]
    away = [1e-6 * (1 + i % 2) for i in range(14)]
    source, target = zip(*ends, *((b, a) for a, b in ends), strict=True)
    return Network.from_links("seven", 7, 0, source, target, rates * 2, away * 2)


def written(collective, path):
    """Yield the documents of all schedules of a collective."""
    members = [0, 1, 3, 4, 6]
    root = 3 if collective in ROOTED else None
    choice = choose_schedules(network(), members, collective, root)
    for schedule in choice.schedules:
        save_schedule(network(), choice, schedule, SIZE, path)
        yield json.loads(path.read_text())


def same(one, other):
    """Say whether documents differ in nothing but the order of trees, of paths and of messages."""

    def sorted_lists(value):
        if isinstance(value, dict):
            return {key: sorted_lists(part) for key, part in value.items()}
        if isinstance(value, list) and any(isinstance(part, dict | list) for part in value):
            return sorted(map(sorted_lists, value), key=json.dumps)
        return value

    return sorted_lists(one) == sorted_lists(other)


def as_good(document, changed, path):
    """Say whether a change makes another schedule with the same claims.

    A path that leads another way to the same member at no loss, or a message that another wave
    sends in time; or, where there is no path, other members.
    """
    if path[0] == "members":
        return document["exchange"] == []
    if path[0] == "meeting":
        return path[-1] == 0
    deep = next(at for at, key in enumerate(path) if key == "paths") + 2
    one, other = document, changed
    for key in path[:deep]:
        one, other = one[key], other[key]
    links = set(zip(network().source.tolist(), network().target.tolist(), strict=True))
    # From another member that has the same as soon; back from where it goes for sums.
    end = 0 if path[0] == "scatter" else -1
    return one[end] == other[end] and set(pairwise(other)) <= links


@pytest.mark.parametrize("most", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_schedules_pass_and_changed_ones_do_not(collective, most, tmp_path) -> None:
    """Of each kind of change of each field so many."""
    names = []
    for document in written(collective, tmp_path / "schedule.json"):
        check_schedule(document)
        names.append(document["schedule"])
        tried: Counter[tuple[object, ...]] = Counter()
        for path, value in nodes(document):
            # The network is the question; a change of it is noticed where it changes a time.
            if path[:1] == ("network",):
                continue
            field = tuple(key for key in path if isinstance(key, str))
            for kind, after in changes(value):
                tried[field, len(path), kind] += 1
                changed = replaced(document, path, after)
                if tried[field, len(path), kind] > most or same(document, changed):
                    continue
                try:
                    check_schedule(changed)
                except (InputError, InfeasibleError):
                    continue
                assert as_good(document, changed, path), (path, kind, after)
        assert len(tried) > 25
    if collective == "allreduce":
        assert any(name.startswith("meeting") for name in names)
        assert {"ring", "shortest-trees", "trees", "add-all", "reduce-broadcast"} <= set(names)


def test_whoever_adds_up_a_share_has_to_broadcast_it(tmp_path) -> None:
    (document,) = (
        each
        for each in written("allreduce", tmp_path / "schedule.json")
        if each["schedule"] == "reduce-broadcast"
    )
    # As many copies in all, but one more and one less of two trees' roots.
    trees = document["gather"]["trees"]
    one = next(at for at, tree in enumerate(trees) if tree["copies"] > 1)
    other = next(at for at, tree in enumerate(trees) if tree["root"] != trees[one]["root"])
    moved = [
        {**tree, "copies": tree["copies"] + {one: -1, other: 1}.get(at, 0)}
        for at, tree in enumerate(trees)
    ]
    with pytest.raises(InputError, match="other shares of their roots"):
        check_schedule(replaced(document, ("gather", "trees"), moved))
    with pytest.raises(InputError, match="of the buffer"):
        check_schedule(replaced(document, ("gather", "units"), document["gather"]["units"] + 1))
    alone = replaced(document, ("collective",), "allgather")
    with pytest.raises(InputError, match="'reduce-broadcast' of allgather"):
        check_schedule(replaced(alone, ("scatter",), None))


def test_meetings_are_checked_message_by_message(tmp_path) -> None:
    """Each message of one part left out, sent twice, or a wave earlier or later."""
    (document, *_) = (
        each
        for each in written("allreduce", tmp_path / "schedule.json")
        if each["schedule"].startswith("meeting")
    )
    part = document["meeting"][0]
    count = 0
    for kind, messages in part.items():
        for at, (wave, *rest) in enumerate(messages):
            others = messages[:at] + messages[at + 1 :]
            for some in (others, [*messages, messages[at]], [*others, [wave + 99, *rest]]):
                changed = replaced(document, ("meeting", 0, kind), some)
                with pytest.raises(InputError):
                    check_schedule(changed)
                count += 1
    assert count > 20


def test_links_that_are_slower_than_a_schedule_says(tmp_path) -> None:
    for document in written("allgather", tmp_path / "schedule.json"):
        for field, factor in (("capacity_gbps", 0.5), ("latency_ns", 3.0)):
            edges = [{**edge, field: edge[field] * factor} for edge in document["network"]["edges"]]
            with pytest.raises(InputError, match="the schedule's is"):
                check_schedule(replaced(document, ("network", "edges"), edges))
        with pytest.raises(InputError, match="which no link joins"):
            check_schedule(
                replaced(document, ("network", "edges"), document["network"]["edges"][::2])
            )


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["topoopt", "verify", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0


def test_the_command(monkeypatch, capsys, tmp_path) -> None:
    path = tmp_path / "schedule.json"
    for document in written("broadcast", path):
        path.write_text(json.dumps(document))
        assert run(monkeypatch, path) == 0
        assert "ok (network, members, messages, rate, time, bound)" in capsys.readouterr().out
        path.write_text(json.dumps({**document, "seconds": 2 * document["seconds"]}))
        assert run(monkeypatch, path) == 2
        assert "schedule file" in capsys.readouterr().err


def test_trees_on_a_network_that_lost_a_link_pass(tmp_path) -> None:
    ends = [(i, (i + stride) % 8) for stride in (1, 3) for i in range(8)][1:]
    broken = Network.from_links("broken", 8, 0, *zip(*ends, strict=True), 1e9, 1e-6)
    path = tmp_path / "schedule.json"
    choice = choose_schedules(broken, [0, 2, 4, 6], "allreduce")
    joint = next(each for each in choice.schedules if each.name == "joint-trees")
    save_schedule(broken, choice, joint, SIZE, path)
    document = json.loads(path.read_text())
    assert check_schedule(document).name == "joint-trees"
    document["gather"]["trees"][0]["paths"].pop()
    with pytest.raises(InputError, match="reaches 3 members"):
        check_schedule(document)
