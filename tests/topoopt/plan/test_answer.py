"""A plan in a few lines: what they say, and that they stay few."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from small_layouts import shared_layout_plan, shared_moe_plan
from small_plans import shared_plan

from parallelism.transformers.assumptions import LACKING, assumptions_of
from parallelism.transformers.layout import Layout
from parallelism.transformers.placement import Placement
from topoopt.plan.answer import same_cost
from topoopt.plan.notes import (
    schedule_notes,
    shown_notes,
    skipped_notes,
    unsimulated_notes,
    unused_notes,
)
from topoopt.problem.schedule import Schedule
from topoopt.problem.units import format_time


def test_rings_over_all_servers_only_connect_them_where_smaller_groups_reduce():
    plan = shared_moe_plan(4)
    inside = replace(plan.parallelization, order=("context", "data", "pipeline"))
    across = replace(plan.parallelization, order=("pipeline", "context", "data"))
    # Stages of four ranks on servers of two: on two servers each, or on all four.
    assert {ring.group for ring in plan.rings} == {(0, 1, 2, 3)} and plan.allreduce_bytes > 0.0
    lone, shared = (str(replace(plan, parallelization=one)) for one in (inside, across))
    assert "2 rings over servers 0..3, which only connect them (groups that reduce are" in lone
    assert "2 AllReduce rings over servers 0..3;" in shared


@pytest.mark.parametrize("made", [shared_plan, shared_layout_plan])
def test_the_answer_is_six_lines_with_the_numbers_of_the_plan(made):
    plan = made()
    lines = str(plan).splitlines()
    assert [line.split()[0] for line in lines[1:]] == [
        "time",
        "against",
        "bound",
        "split",
        "wiring",
        *["note"] * any(LACKING in note for note in plan.notes),
    ]
    assert lines[0] == plan.summary(details=True).splitlines()[0]
    assert f" {format_time(plan.time_s)} an iteration" in lines[1]
    assert ("packet trains" in lines[1]) == (plan.packet_time_s is not None)
    for name, base in list(plan.baselines.items())[:3]:
        assert f"{plan.relative_time(base):.2f}x as fast as {name}" in lines[2]
    assert f"{format_time(plan.lower_bound_s)}" in lines[3] and f"{plan.gap:.1%}" in lines[3]
    assert f"{sum(link.cables for link in plan.links)} one-way cables" in lines[5]
    assert plan.summary().startswith(str(plan))


@pytest.mark.parametrize(
    ("made", "what"),
    [(shared_plan, "no plan takes"), (shared_layout_plan, "no layout that is considered takes")],
)
@pytest.mark.parametrize(
    ("gap", "more"), [(0.2, "20.0%"), (0.001, "0.1%"), (4e-4, "less than 0.1%")]
)
def test_the_bound_says_over_what_it_is_and_how_far(made, what, gap, more):
    plan = made()
    plan = replace(plan, lower_bound_s=plan.iteration_time_s / (1.0 + gap), gap=gap)
    line = str(plan).splitlines()[3]
    assert line.startswith(f"bound    {what} less than ")
    assert line.endswith(f"; this one takes {more} more")


def test_a_schedule_that_the_software_lacks_is_said_at_once():
    plan = shared_layout_plan()
    plan = replace(plan, notes=[note for note in plan.notes if LACKING not in note])
    assert not any(line.startswith("note") for line in str(plan).splitlines())

    def said(schedule, parts):
        layout = Layout(pipeline=2, data=8, schedule=schedule, virtual_stages=parts)
        found = assumptions_of(plan.job, Placement(layout, plan.job.server.gpus))
        return [note for note in found if note.startswith(LACKING)]

    (note,) = said("zero-bubble-v", 2)
    shown = str(replace(plan, notes=[*plan.notes, note])).splitlines()
    assert shown[-1] == f"note     {note}" and "'zero-bubble-v'" in note
    assert said("interleaved", 2) == []


def test_the_split_counts_every_operator_once():
    plan = shared_plan()
    line = str(plan).splitlines()[4]
    counts = [int(word.split()[0]) for word in line.removeprefix("split").split(";")]
    assert sum(counts) == len(plan.parallelization.operators)


def test_operators_on_one_server_each_are_not_said_to_share_it():
    plan = shared_plan()
    operators = plan.parallelization.operators[:2]
    alone = [
        replace(op, sample=1, parameter=1, servers=[server]) for server, op in enumerate(operators)
    ]
    record = replace(plan.parallelization, operators=alone)
    assert "2 operators each whole on one server" in str(replace(plan, parallelization=record))


def test_counts_of_one_are_singular():
    plan = shared_plan()
    links = [replace(plan.links[0], cables=1)]
    one = replace(
        plan,
        links=links,
        parallelization=replace(plan.parallelization, operators=plan.parallelization.operators[:1]),
        search=replace(plan.search, steps=1),
        cluster=replace(plan.cluster, degree=1),
    )
    lines = str(one).splitlines()
    assert lines[4].split()[1:3] == ["1", "operator"]
    assert "; 1 one-way cable" in lines[5] and "one-way cables" not in lines[5]
    text = one.summary(details=True)
    assert "1 step," in text and "wiring: 1 port = " in text and "; 1 one-way cable; " in text
    both = replace(one, cluster=replace(one.cluster, ports="bidirectional"), links=links * 2)
    assert "; 1 two-way cable" in str(both)


def test_a_wiring_without_rings_says_what_allreduces_use():
    plan = shared_plan()
    assert plan.allreduce_bytes
    without = replace(plan, rings=[])
    assert "AllReduce rings along any links; " in without.summary()
    assert "no AllReduce rings; " in replace(without, allreduce_bytes=0.0).summary()


@pytest.mark.parametrize("made", [shared_plan, shared_layout_plan])
def test_the_summary_stays_within_25_lines_whatever_the_plan_holds(made):
    plan = made()
    (first, *_) = plan.baselines.values()
    crowded = replace(
        plan,
        baselines={f"fabric-{i}": first for i in range(20)},
        rings=[
            replace(ring, order=ring.order[:size]) for ring in plan.rings for size in (1, 2, 3, 4)
        ],
        schedule=replace(plan.schedule, compute="critical-path"),
        notes=[*(f"note {i}" for i in range(9)), *unused_notes(["context 3", "zero 2"])],
    )
    lines = crowded.summary().splitlines()
    assert len(lines) <= 25
    assert any("more fabrics" in line for line in lines)
    assert "9 assumptions" in lines[-1]
    assert lines[-2] == "note: asked for, but in no layout that is legal: context 3; zero 2"
    assert "and 17 more" in lines[2]


def test_what_was_not_simulated_is_said():
    plan = shared_layout_plan()
    notes = [*skipped_notes(["dp 2", "tp 2, pp 2", "cp 4"], 3e9), *unsimulated_notes(2)]
    lines = replace(plan, notes=["usual", *notes]).summary().splitlines()
    assert lines[-3:-1] == [
        "note: not simulated, because a task graph would take more than 3 GB: 3 layouts, any of "
        "which may be faster (--details names them)",
        f"note: {notes[1]}",
    ]
    assert "not simulated" in notes[1] and lines[-1].startswith("1 assumption behind")
    assert f"note: {notes[0]}" in replace(plan, notes=notes).summary(details=True)
    assert not [line for line in plan.summary().splitlines() if "not simulated" in line]


@pytest.mark.parametrize(("plain", "slower"), [(2.0, False), (1.0, True)])
def test_a_schedule_that_loses_is_said_to(plain, slower):
    schedule = Schedule(compute="critical-path")
    scheduled = SimpleNamespace(
        schedule=schedule, simulated=SimpleNamespace(time=1.5), plain_time=plain, tried=1
    )
    notes = schedule_notes(scheduled, "compute")
    assert (shown_notes(notes) == notes) is slower
    assert (f"takes {format_time(1.0)} under the plain schedule, 1.5 s" in notes[0]) is slower


def test_what_has_no_schedule_is_compared_with_the_plan_without_one():
    plan = shared_plan()
    base = plan.baselines["ideal-switch"]
    schedule = replace(plan.schedule, network="transfers-first", plain_time_s=2.0)
    options = replace(plan.search.options, schedule="auto")
    mine = replace(
        plan, packet_time_s=None, iteration_time_s=1.0, schedule=schedule,
        baselines={"ideal-switch": replace(base, packet_time_s=None, iteration_time_s=2.0)},
        search=replace(plan.search, options=options),
    )  # fmt: skip
    (other,) = mine.baselines.values()
    assert mine.relative_time(other) == 1.0
    assert str(mine).splitlines()[2].endswith("; without its schedule, as they are")
    assert "plain 2 s, which other fabrics are compared with" in mine.summary()
    # Gradients are fused on other fabrics as well.
    same = replace(mine, search=replace(plan.search, options=replace(options, schedule="fused")))
    assert same.relative_time(other) == 2.0
    assert "without its schedule" not in str(same)


def test_a_fabric_that_is_only_bounded_is_at_least_so_slow():
    plan = shared_plan()
    (name, base), *_ = plan.baselines.items()
    bounded = replace(plan, baselines={name: replace(base, bounded=True)})
    ratio = f"{plan.relative_time(base):.2f}x as fast as {name}"
    assert f" at least {ratio}" in str(bounded).splitlines()[2]
    assert "at least" not in str(plan).splitlines()[2]


def test_what_must_not_be_missed_is_said():
    plan = shared_plan()
    cut = replace(plan, search=replace(plan.search, interrupted=True))
    assert "interrupted" in str(cut).splitlines()[1]
    apart = replace(plan, packet_time_s=1.06 * plan.iteration_time_s)
    assert ", +6.0%: rely on packets" in str(apart).splitlines()[1]
    near = replace(plan, packet_time_s=0.96 * plan.iteration_time_s)
    assert "rely" not in str(near)
    assert "nothing" in str(replace(plan, baselines={})).splitlines()[2]
    one = replace(plan, links=[], rings=[])
    assert str(one).splitlines()[5].endswith("one server: no network")


def test_the_same_cost_is_within_a_percent():
    plan = shared_plan()
    (name, base), *_ = plan.baselines.items()
    for factor, same in ((1.0, True), (1.009, True), (1.011, False), (0.5, False)):
        priced = {name: replace(base, cost_usd=factor * plan.cost_usd)}
        assert same_cost(replace(plan, baselines=priced), name) is same
    assert not same_cost(replace(plan, baselines={name: replace(base, cost_usd=None)}), name)
