"""`topoopt collective`: what it prints, writes and refuses."""

import json
import subprocess
import sys

import pytest
from msccl_oracle import assert_right

from routing.collectives import member_links
from routing.network import Network
from topoopt.cli import main
from topoopt.topology.network_file import save_network


@pytest.fixture
def network(tmp_path):
    ends = [(i, (i + s) % 8) for s in (1, 3) for i in range(8)]
    source, target = zip(*ends, strict=True)
    path = tmp_path / "network.json"
    save_network(Network.from_links("eight", 8, 0, source, target, 12.5e9, 1e-6), path)
    return path


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["topoopt", "collective", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0


def test_times_and_the_written_schedule(monkeypatch, capsys, network, tmp_path) -> None:
    out = tmp_path / "schedule.json"
    options = ("--group", "0-7:2", "--sizes", "1KB,1GB", "-o", out, "--json")
    assert run(monkeypatch, network, *options) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["members"] == [0, 2, 4, 6]
    for row in report["sizes"]:
        assert min(row["seconds"].values()) == row["seconds"][row["best"]]
        assert row["lower_bound_s"] <= min(row["seconds"].values())
    written = json.loads(out.read_text())
    assert written["schedule"] == report["sizes"][-1]["best"]
    for forest, back in ((written["gather"], False), (written["scatter"], True)):
        for tree in forest["trees"]:
            paths = [p[::-1] for p in reversed(tree["paths"])] if back else tree["paths"]
            has = {tree["root"]}
            for path in paths:
                assert path[0] in has
                has.add(path[-1])
            assert has == {0, 2, 4, 6}
    assert run(monkeypatch, network, "--group", "0,1,2,3") == 0
    text = capsys.readouterr().out
    assert "allreduce over 4 hosts of eight" in text
    assert "no schedule below" in text
    assert run(monkeypatch, network, "--collective", "reduce", "--group", "1-7:2") == 0
    assert "reduce to host 1 over 4 hosts of eight" in capsys.readouterr().out
    assert run(monkeypatch, network, "--collective", "all-to-all", "--group", "0-3", "-o", out) == 0
    assert "fastest: shortest-paths, least-congestion from" in capsys.readouterr().out
    written = json.loads(out.read_text())
    assert len({(way["path"][0], way["path"][-1]) for way in written["exchange"]}) == 4 * 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--group", "0,x"), "--group is '0,x'"),
        (("--group", "0-9"), "--group has '0-9'"),
        (("--group", "0-7:0"), "--group has '0-7:0'"),
        (("--group", "0,1,5-2"), "--group has '5-2', whose last host is before its first"),
        (("--group", "5"), "at least two distinct hosts"),
        (("--collective", "gather"), "choose allreduce"),
        (("--collective", "broadcast", "--root", "8"), "root is 8, which is not in the group"),
        (("--root", "0"), "root is 0 for collective 'allreduce'; give one for broadcast"),
        (("--sizes", "1GB,"), "sizes"),
        (("--sizes", "-1GB"), "sizes"),
    ],
)
def test_refusals(monkeypatch, capsys, network, options, said) -> None:
    assert run(monkeypatch, network, *options) == 2
    assert said in capsys.readouterr().err


def test_the_package_does_not_load_the_flow_library() -> None:
    code = "import sys, topoopt.cli; print('ortools' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_several_groups_at_once(monkeypatch, capsys, network, tmp_path) -> None:
    options = (network, "--group", "0-3/4-7", "--sizes", "1GB")
    assert run(monkeypatch, *options, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    (row,) = report["sizes"]
    assert row["best"] == "joint-trees"
    assert row["lower_bound_s"] <= row["seconds"]["joint-trees"] < row["seconds"]["rings"]
    assert run(monkeypatch, *options) == 0
    text = capsys.readouterr().out
    assert text.startswith("allreduce over 2 groups of 4 hosts at once of eight\n")
    assert "sizes are those of each group's buffer" in text
    assert run(monkeypatch, network, "--group", "0-3/4-6", "--sizes", "1GB") == 0
    assert "over 2 groups of 4 and 3 hosts at once of eight" in capsys.readouterr().out
    assert run(monkeypatch, *options, "-o", tmp_path / "schedule.json") == 2
    assert "--group has 2 groups" in capsys.readouterr().err


def exported(monkeypatch, capsys, schedule, out, kind="msccl"):
    options = ["topoopt", "export", str(schedule), "--format", kind, "-o", str(out)]
    monkeypatch.setattr(sys, "argv", options)
    try:
        main()
    except SystemExit as ended:
        return ended.code or 0, capsys.readouterr()
    return 0, capsys.readouterr()


def test_a_schedule_goes_to_msccl(monkeypatch, capsys, network, tmp_path) -> None:
    schedule, out = tmp_path / "schedule.json", tmp_path / "msccl"
    for collective in ("allreduce", "broadcast", "all-to-all"):
        options = ("--collective", collective, "--group", "1-7:2", "--sizes", "1GB")
        assert run(monkeypatch, network, *options, "-o", schedule) == 0
        code, said = exported(monkeypatch, capsys, schedule, out)
        assert code == 0, said.err
        assert "rank 0 on host 1, rank 1 on host 3" in said.out
        assert "which must forward" in said.out
        (file,) = out.glob("*.xml")
        assert file.stem == f"{collective}-{json.loads(schedule.read_text())['schedule']}"
        assert_right(file.read_text())
    for kind in ("fbuf", "chakra", "nccl"):
        code, said = exported(monkeypatch, capsys, schedule, tmp_path / "other", kind)
        assert code == 2
        assert "is the schedule of a collective" in said.err
    assert run(monkeypatch, network, "--sizes", "1KB", "-o", schedule) == 0
    code, said = exported(monkeypatch, capsys, schedule, out)
    assert code == 2
    assert "give topoopt collective a size" in said.err


def test_trees_that_take_too_much_work_are_said_to_be_left_out(
    monkeypatch, capsys, network
) -> None:
    monkeypatch.setattr(member_links, "MOST_WORK", 10)
    said = "trees of the best rate are left out: too many nodes outside the group forward"
    assert run(monkeypatch, network, "--group", "0-7:2") == 0
    assert capsys.readouterr().out.splitlines()[-1] == said
    assert run(monkeypatch, network) == 0
    assert said not in capsys.readouterr().out
