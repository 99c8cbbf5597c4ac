"""Schedules as a user of the command line meets them."""

import json
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from cli_runs import CLUSTER, SMALL, inside, refused, run
from small_plans import shared_plan, small_dlrm, solve
from test_simulate_cli import simulated

from codesign_base import InputError
from topoopt.evaluate.scheduling import ordered_tasks
from topoopt.fabric import simulate
from topoopt.fabric.unrolled import unrolled
from topoopt.plan.rebuild import rebuild
from topoopt.problem.schedule import Schedule
from topoopt.studies.workload import plan_workload, schedule_left_out, scheduled_workload


@lru_cache(maxsize=1)
def overlapping_plan():
    """Return a plan whose iterations overlap: a small one, whose AllReduces end late."""
    plan = solve(small_dlrm(), 4, schedule="auto")
    assert plan.schedule.overlap == "next-forward"
    return plan


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    directory = tmp_path_factory.mktemp("schedules")
    shared_plan().save(directory / "plain.json")
    overlapping_plan().save(directory / "other.json")
    return directory


def test_options_of_simulate_are_the_schedule(place):
    found = simulated(
        "plain.json", "--buckets", "1MB", "--compute-order", "critical-path", "--priority",
        "transfers-first", directory=place,
    )  # fmt: skip
    schedule = Schedule("barrier", "critical-path", "transfers-first", 1e6)
    built = rebuild(shared_plan())
    tasks, _ = ordered_tasks(built.fabric, built.tasks(), schedule)
    assert found["iteration_time_s"] == simulate(built.fabric, tasks).makespan
    assert found["schedule"] == schedule.describe()
    assert found["notes"] == []
    assert simulated("plain.json", directory=place)["schedule"] == "plain"
    text = run("simulate", "plain.json", "--buckets", "1MB", directory=place)
    assert "fluid model, buckets of 1 MB" in text


def test_where_a_plan_s_schedule_is_left_out_a_note_says_so(place):
    plan = overlapping_plan()
    (note,) = schedule_left_out(plan)
    assert "overlap with the next forward pass" in note
    found = simulated("other.json", directory=place)
    assert found["notes"] == [note]
    assert found["iteration_time_s"] == pytest.approx(plan.schedule.plain_time_s)
    for arguments in (
        ("what-if", "other.json", "--fail-links", 1, "--trials", 1, "--quiet"),
        ("export", "other.json", "--format", "fbuf", "--omit-updates", "-o", "other.fbuf"),
    ):
        text = run(*arguments, directory=place)
        assert f"note: {note}" in text
        assert ("1 trial of 1 failed cable, seed" in text) == (arguments[0] == "what-if")
    assert schedule_left_out(shared_plan()) == []


def test_a_bucket_is_called_like_its_last_part(place):
    plan = shared_plan()
    workload = plan_workload(plan, "plan")
    fabric = workload.own_fabric(1.0, 1.0)
    fused = scheduled_workload(workload, fabric, Schedule(bucket_bytes=1e12))
    tasks, place_of = ordered_tasks(fabric, workload.tasks, Schedule(bucket_bytes=1e12))
    assert fused.tasks.tasks == tasks.tasks < workload.tasks.tasks
    for task in range(tasks.tasks):
        parts = np.flatnonzero(place_of == task)
        more = f" and {parts.size - 1} more" if parts.size > 1 else ""
        assert fused.label(task) == workload.label(int(parts[-1])) + more


def test_allreduces_in_messages_are_not_fused():
    workload = plan_workload(shared_plan(), "plan")
    fabric = workload.own_fabric(1.0, 1.0)
    written = replace(workload, tasks=unrolled(workload.tasks, fabric.rings))
    with pytest.raises(InputError, match="plan holds its AllReduces as messages and has no"):
        scheduled_workload(written, fabric, Schedule(bucket_bytes=1e6))


def test_plan_prints_and_verifies_its_schedule(place):
    (place / "small.yaml").write_text(SMALL)
    text = run(
        "plan", "small.yaml", *CLUSTER, "--steps", 4, "--effort", "quick", "--schedule", "auto",
        "--quiet", "-o", "new.json", directory=place,
    )  # fmt: skip
    record = json.loads((place / "new.json").read_text())["schedule"]
    plain = (record["overlap"], record["compute"], record["network"]) == (
        "barrier", "ready", "fair",
    )  # fmt: skip
    assert plain or "schedule: " in text
    assert inside("verify", "new.json", directory=place).exit_code == 0


def test_wrong_options_are_refused(place):
    assert "network priority is 'x'" in refused(
        "simulate", "plain.json", "--priority", "x", directory=place
    )
    assert "compute order is 'x'" in refused(
        "simulate", "plain.json", "--compute-order", "x", directory=place
    )
    assert "buckets '5'" in refused("simulate", "plain.json", "--buckets", "5", directory=place)
    assert "schedule is 'x'; choose plain, fused, compute, barrier, auto" in refused(
        "plan", "dlrm-16", "--servers", 4, "--degree", 2, "--bandwidth", "100Gbps", "--schedule",
        "x", "-o", "none.json", directory=place,
    )  # fmt: skip
    assert not (place / "none.json").exists()
