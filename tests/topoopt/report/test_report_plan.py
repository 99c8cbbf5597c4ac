"""The report of a plan: what it shows is what the plan says."""

import base64
import dataclasses
import json
import math
import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest
from html_pages import Page, assert_safe
from hypothesis import given, settings
from hypothesis import strategies as st
from small_layouts import lone_layout_plan, shared_layout_plan, shared_spanning_plan
from small_plans import shared_bidirectional_plan, shared_plan, small_mlp, solve

import topoopt as to
from parallelism.taskgraph import TaskKind
from parallelism.transformers.text import layout_text, order_text
from topoopt.problem.units import (
    format_bandwidth,
    format_bytes,
    format_count,
    format_time,
)
from topoopt.report import render_report, write_report
from topoopt.report.answer import plan_facts
from topoopt.report.evaluation import simulate_again
from topoopt.report.lanes import Segment, make_lanes, pack, shown_servers
from topoopt.report.layers import layer_names
from topoopt.report.reproduce import plan_command_line
from topoopt.report.wiring import MOST_LINKS, draw, seats_of, wiring_svg

HOSTILE = "</script><img src=x onerror=\"alert('1')\"><!-- & ]]> \u2028 \ud800 {{x}}"


@lru_cache(maxsize=4)
def page_of(plan):
    return Page(render_report(plan()))


OPERATORS = {"directed": shared_plan, "bidirectional": shared_bidirectional_plan}
LAYOUTS = {"layout": shared_layout_plan, "spanning": shared_spanning_plan}
PLANS = OPERATORS | LAYOUTS


@pytest.fixture(params=PLANS.values(), ids=list(PLANS))
def plan_of(request):
    return request.param


@pytest.fixture(params=OPERATORS.values(), ids=list(OPERATORS))
def operator_plan_of(request):
    return request.param


@pytest.fixture(params=LAYOUTS.values(), ids=list(LAYOUTS))
def layout_plan_of(request):
    return request.param


def test_the_page_is_whole_and_fetches_nothing(plan_of):
    text = render_report(plan_of())
    assert text.startswith('<!DOCTYPE html>\n<html lang="en">')
    page = page_of(plan_of)
    assert_safe(page)
    assert "://" not in text
    assert "@import" not in text
    assert "url(" not in text
    names = [a["id"] for _, a in page.elements if "id" in a]
    assert len(set(names)) == len(names)
    for link in page.of("a"):
        assert link["href"][1:] in names
    noun = {"operators": "strategy", "layouts": "layout"}[plan_of().job.kind]
    sections = [section["id"] for section in page.of("section")]
    assert sections == ["baselines", "gap", "topology", "traffic-matrix", "iteration", noun,
                        "notes", "reproduce"]  # fmt: skip


def test_every_number_with_all_digits_is_the_plans_and_reads_like_it(plan_of):
    plan, page = plan_of(), page_of(plan_of)
    known = {plan.time_s, plan.iteration_time_s, plan.compute_time_s, plan.exposed_communication_s,
             plan.lower_bound_s, plan.bandwidth_tax, plan.allreduce_bytes, plan.transfer_bytes,
             plan.memory_per_gpu_bytes, plan.cost_usd,
             plan.cluster.bandwidth_bytes_per_s}  # fmt: skip
    known |= {part.seconds for part in plan.gap_parts}
    for base in plan.baselines.values():
        known |= {base.time_s, base.cost_usd, base.bandwidth_bytes_per_s}
    known |= {plan.tokens_per_s, plan.model_flops_utilisation}
    shown = {float(value) for value, _ in page.data}
    assert {value for value in known if value is not None} <= shown
    for value, text in page.data:
        number = float(value)
        readings = {
            format_time(number),
            format_bytes(number),
            format_bandwidth(number),
            f"{number:.2f}",
            f"{number:.2f}x",
            f"{number:.1%}",
            f"${number:,.0f}",
            format_count(number),
            str(int(number)),
        }
        # What is below a part in 10^8 of the iteration counts as nothing.
        assert text in readings or (text == "0 s" and number < 1e-8), (value, text)


def test_tables_hold_baselines_and_gap(plan_of):
    plan, page = plan_of(), page_of(plan_of)
    head, ours, *others = page.tables["Iteration time and cost by fabric"]
    assert head[:4] == ["fabric", "iteration", "vs plan", "network cost"]
    assert ours[:3] == ["topoopt", format_time(plan.time_s), "1.00x"]
    assert [row[0] for row in others] == list(plan.baselines)
    for row, base in zip(others, plan.baselines.values(), strict=True):
        ratio = plan.relative_time(base)
        assert row[1:3] == [format_time(base.time_s), f"{ratio:.2f}x"]
        if plan.job.kind == "operators":
            assert row[5] == base.origin
        elif base.parallelization == plan.parallelization:
            assert row[5] == "the plan's"
        elif base.parallelization.layout == plan.parallelization.layout:
            placed = order_text(base.parallelization.order, base.parallelization.layout)
            assert row[5] == f"the plan's, but {placed}"
        else:
            assert row[5] == layout_text(base.parallelization.layout)
    gap = page.tables["The iteration: lower bound and the parts of the gap"][1:]
    assert [row[0] for row in gap] == ["lower bound", *(part.name for part in plan.gap_parts)]
    for row, part in zip(gap[1:], plan.gap_parts, strict=True):
        assert part.how[1:] in row[3]
        assert part.binding in row[3]


def test_the_bound_is_claimed_for_what_it_is_over(plan_of):
    text = render_report(plan_of())
    bounded = {"operators": "plan", "layouts": "layout that is considered"}[plan_of().job.kind]
    assert f"above the lower bound of any {bounded}" in text
    assert f"No {bounded} takes less, with any wiring and routing" in text
    assert f"lower bound of any {bounded} in the fluid model" in text


def test_memory_is_in_the_same_unit_everywhere(plan_of):
    plan = plan_of()
    accelerator = plan.job.server.accelerator
    size = f"{accelerator.memory_bytes / 1e9:g}"
    layouts = f"({size} GiB, {format_bytes(accelerator.usable_bytes)}, each)"
    expected = {"operators": f"({size} GB each)", "layouts": layouts}[plan.job.kind]
    assert expected in dict(plan_facts(plan))["Servers"]


def test_a_strategy_is_shown_operator_by_operator(operator_plan_of):
    plan, page = operator_plan_of(), page_of(operator_plan_of)
    rows = page.tables["The strategy, operator by operator"][1:]
    assert sum(int(row[2]) for row in rows) == len(plan.parallelization.operators)
    for row in rows:
        assert row[5] in {format_time(op.forward_s) for op in plan.parallelization.operators}


def test_a_layout_is_shown_with_its_speed_and_memory(layout_plan_of):
    plan, page = layout_plan_of(), page_of(layout_plan_of)
    layout = plan.parallelization.layout
    shown = dict(map(tuple, page.tables["Degrees of parallelism and schedule"][1:]))
    for name in ("tensor", "context", "data", "pipeline", "expert", "microbatch"):
        assert shown[name] == str(getattr(layout, name))
    assert shown["microbatches"] == str(plan.global_batch // layout.data // layout.microbatch)
    assert shown["schedule"].split(":")[0] in (layout.schedule, "no pipeline")
    assert (shown["schedule"] == "no pipeline") == (layout.pipeline == 1)
    tokens = plan.global_batch * plan.job.sequence / plan.iteration_time_s
    assert f"{format_count(tokens)} tokens/s" in page.text
    assert f"utilisation {plan.model_flops_utilisation:.1%}" in page.text
    head, *rows = page.tables["Memory per GPU by stage"]
    assert [row[0] for row in rows] == [str(stage) for stage in range(layout.pipeline)]
    for row, use in zip(rows, plan.parallelization.stages, strict=True):
        for name, cell in zip(head[1:-1], row[1:-1], strict=True):
            assert cell == format_bytes(getattr(use, name))
        parts = (use.weights, use.gradients, use.optimizer, use.activations, use.buffers,
                 use.runtime)  # fmt: skip
        assert row[-1] == format_bytes(sum(parts))


def test_stacked_bars_are_in_proportion(plan_of):
    plan, page = plan_of(), page_of(plan_of)
    pieces = {a["class"].split()[-1]: a for a in page.of("span") if "data-tip" in a}
    for name, seconds in [("p-bound", plan.lower_bound_s), ("p-compute", plan.compute_time_s)]:
        width = float(pieces[name]["style"].removeprefix("width:").removesuffix("%")) / 100
        assert width == pytest.approx(seconds / plan.iteration_time_s, abs=1e-4)
        assert format_time(seconds) in pieces[name]["data-tip"]


def test_the_answer_names_time_rival_and_gap():
    plan = shared_plan()
    page = page_of(shared_plan)
    fat_tree = plan.baselines["fat-tree"]
    ratio = fat_tree.packet_time_s / plan.packet_time_s
    for words in (
        format_time(plan.packet_time_s),
        format_time(plan.iteration_time_s),
        f"{ratio:.2f} times",
        f"{plan.gap:.1%}",
    ):
        assert words in page.text
    equal = dataclasses.replace(
        plan,
        baselines={"fat-tree": dataclasses.replace(fat_tree, packet_time_s=plan.packet_time_s)},
    )  # fmt: skip
    assert ": as fast as a Fat-tree" in Page(render_report(equal)).text
    near = Page(render_report(dataclasses.replace(plan, gap=4e-4))).text
    assert near.count("less than 0.1% above the lower bound") == 2


def sent_by_definition(plan):
    """Bytes between servers, and on links, from the tasks one by one."""
    found = simulate_again(plan)
    tasks = found.tasks
    rings, transfers = defaultdict(float), defaultdict(float)
    links = defaultdict(float)
    wired = {(link.source, link.target) for link in plan.links}

    def routed(a, b, size):
        row = a * plan.cluster.servers + b
        for entry in range(plan.routes.offsets[row], plan.routes.offsets[row + 1]):
            link = plan.routes.links[entry]
            share = plan.routes.weight_values[plan.routes.weights[entry]]
            links[plan.links[link].source, plan.links[link].target] += share * size

    for task in range(tasks.tasks):
        size = float(tasks.size[task])
        if tasks.kind[task] == TaskKind.TRANSFER:
            a, b = int(tasks.first[task]), int(tasks.second[task])
            transfers[a, b] += size
            routed(a, b, size)
        elif tasks.kind[task] != TaskKind.COMPUTE:
            group = tasks.groups[int(tasks.first[task])]
            mine = [r.order for r in plan.rings if tuple(sorted(r.order)) == tuple(group)]
            if len(group) < 2:
                continue
            times = 2 if tasks.kind[task] == TaskKind.ALLREDUCE else 1
            if not mine:
                assert len(group) == 2, "the example's larger groups have rings"
                for a, b in (group, group[::-1]):
                    rings[a, b] += times / 2 * size
                    routed(a, b, times / 2 * size)
            for order in mine:
                for a, b in zip(order, order[1:] + order[:1], strict=True):
                    assert (a, b) in wired
                    share = times * (len(group) - 1) / len(group) * size / len(mine)
                    rings[a, b] += share
                    links[a, b] += share
    return found, rings, transfers, links


def test_sums_of_the_matrices_are_the_plans(plan_of):
    plan = plan_of()
    found = simulate_again(plan)
    assert found.allreduce.sum() == pytest.approx(plan.allreduce_bytes, rel=1e-12)
    assert found.transfers.sum() == pytest.approx(plan.transfer_bytes, rel=1e-12)


@pytest.mark.parametrize("plan_of", [shared_plan, shared_layout_plan])
def test_matrices_and_links_are_sums_over_the_tasks(plan_of):
    plan = plan_of()
    found, rings, transfers, links = sent_by_definition(plan)
    for matrix, pairs in ((found.allreduce, rings), (found.transfers, transfers)):
        for place, value in np.ndenumerate(matrix):
            assert value == pytest.approx(pairs.get(place, 0.0), rel=1e-12)
    data = page_of(plan_of).scripts["wiring-data"]
    assert len(data["links"]) == len(plan.links)
    for index, source, target, tip, used in data["links"]:
        link = plan.links[index]
        assert (source, target) == (link.source, link.target)
        assert format_bytes(links[source, target]) in tip
        assert format_bandwidth(link.capacity_bytes_per_s) in tip
        use = links[source, target] / link.capacity_bytes_per_s / plan.iteration_time_s
        assert f"{use:.1%} used" in tip
        for ring in used:
            order = plan.rings[ring].order
            assert (source, target) in {*pairwise(order), (order[-1], order[0])}


def test_heat_map_cells_read_as_the_matrices(plan_of):
    found = simulate_again(plan_of())
    data = page_of(plan_of).scripts["traffic-data"]
    assert data["block"] == 1
    both = found.allreduce + found.transfers
    rings = "AllReduces" if plan_of().job.kind == "operators" else "Collectives"
    for name, matrix in (
        (rings, found.allreduce), ("Transfers", found.transfers), ("Both", both)
    ):  # fmt: skip
        which = np.frombuffer(base64.b64decode(data["cells"][name]), dtype="<u2")
        assert [data["texts"][i] for i in which] == [format_bytes(v) for v in matrix.ravel()]


def test_lanes_are_the_timeline(plan_of):
    found = simulate_again(plan_of())
    made = make_lanes(found)
    path = made.lanes[0].segments
    assert path[0].start == 0.0
    assert path[-1].end == found.timeline.makespan
    for before, after in pairwise(path):
        assert after.start == before.end
    for lane in made.lanes:
        for before, after in pairwise(lane.segments):
            assert before.end <= after.start
    named = [lane.name for lane in made.lanes if lane.name.startswith("server ")]
    assert named == [f"server {server}" for server in made.servers]
    for server in made.servers:
        # A device over several servers is listed under the first of them.
        place = max(at for at in found.tasks.server_of_device.tolist() if at <= server)
        left = set(np.flatnonzero(found.tasks.server_of_device == place).tolist())
        mine = re.compile(rf"server {server}\b")
        for lane in (lane for lane in made.lanes if mine.match(lane.spoken)):
            if lane.size != "lane":
                continue
            ranks = {int(text) for text in re.findall(r"\d+", lane.spoken.partition(",")[2])}
            for rank in ranks or set(left):
                left.remove(rank)
                busy = found.timeline.device_busy[rank]
                assert sum(s.end - s.start for s in lane.segments) == pytest.approx(busy)
        assert not left
    streams = [s for lane in made.lanes if lane.spoken == made.collectives for s in lane.segments]
    assert len(streams) == made.streams
    assert not made.left_out
    critical = {s.label for lane in made.lanes[1:] for s in lane.segments if s.critical}
    assert {s.label for s in path if s.kind in ("forward", "backward", "update")} <= critical


def test_the_page_holds_the_lanes_in_nanoseconds(plan_of):
    made = make_lanes(simulate_again(plan_of()))
    data = page_of(plan_of).scripts["timeline-data"]
    assert len(data["lanes"]) == len(made.lanes)
    for (spoken, numbers), lane in zip(data["lanes"], made.lanes, strict=True):
        assert spoken == lane.spoken
        read = [numbers[i : i + 3] for i in range(0, len(numbers), 3)]
        for (start, length, text), segment in zip(read, lane.segments, strict=True):
            assert start == round(segment.start * 1e9)
            assert start + length == round(segment.end * 1e9)
            assert data["texts"][text] == segment.label


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=25), st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_packing_takes_as_many_lanes_as_overlap(spans, most):
    segments = [Segment(a, a + length, "allreduce", str(i)) for i, (a, length) in enumerate(spans)]
    deepest = max((sum(a <= t < a + n for a, n in spans) for t in range(40)), default=0)
    lanes = pack(segments, 100)
    assert len(lanes) == deepest
    assert sorted(s.label for lane in lanes for s in lane) == sorted(s.label for s in segments)
    few = pack(segments, most)
    assert len(few) <= most
    for lane in few:
        assert all(a.end <= b.start for a, b in pairwise(lane))


def test_of_many_servers_the_critical_ones_are_shown(monkeypatch):
    found = simulate_again(shared_plan())
    on_path = {
        int(found.tasks.first[t]) for t in found.critical if found.tasks.kind[t] == TaskKind.COMPUTE
    }
    monkeypatch.setattr("topoopt.report.lanes.MOST_ROWS", 3)
    shown = shown_servers(found)
    assert len(shown) == len(set(shown)) == 3
    assert on_path <= set(shown) or len(on_path) > 3


def test_of_many_collectives_the_longest_are_shown(monkeypatch):
    found = simulate_again(shared_spanning_plan())
    every = [s for lane in make_lanes(found).lanes if lane.size == "lane stream"
             for s in lane.segments]  # fmt: skip
    monkeypatch.setattr("topoopt.report.lanes.MOST_COLLECTIVES", 5)
    made = make_lanes(found)
    kept = [s for lane in made.lanes if lane.size == "lane stream" for s in lane.segments]
    assert made.streams == len(every) > 10
    assert len(kept) == made.streams - made.left_out == 5
    longest = sorted((s.end - s.start for s in every), reverse=True)
    assert sorted((s.end - s.start for s in kept), reverse=True) == longest[:5]
    page = Page(render_report(found.plan))
    assert f"{made.left_out} of {made.streams} collectives found no room" in page.text


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["block_0_add", "block_1_add", "block_2_add"], "block_0..2_add"),
        ([f"b{i}_{j}" for i in range(3) for j in (0, 1)], "b0..2_{0,1}"),
        (["top_1", "top_3"], "top_1, top_3"),
        (["a1b1", "a2b2", "a3b3"], "a1b1, a2b2, a3b3"),
        (["x", "top_0", "top_1", "top_2"], "x, top_0..2"),
        (["t01", "t02", "t03"], "t{01,02,03}"),
    ],
)
def test_layers_that_differ_in_numbers_share_a_name(names, shown):
    assert layer_names(names) == shown


def renamed_strategy(plan):
    """The operators' plan with names that look like markup."""
    model = plan.job.model
    operators = [dataclasses.replace(op, name=f"{HOSTILE}{op.name}") for op in model.operators]
    model = dataclasses.replace(model, name=HOSTILE, operators=operators)
    placed = [dataclasses.replace(op, operator=f"{HOSTILE}{op.operator}")
              for op in plan.parallelization.operators]  # fmt: skip
    return dataclasses.replace(
        plan, job=dataclasses.replace(plan.job, model=model),
        parallelization=dataclasses.replace(plan.parallelization, operators=placed),
    )  # fmt: skip


def renamed_layout(plan):
    """The layouts' plan with a name that looks like markup."""
    model = dataclasses.replace(plan.job.model, name=HOSTILE)
    return dataclasses.replace(plan, job=dataclasses.replace(plan.job, model=model))


@pytest.mark.parametrize(
    ("plan_of", "renamed_of"),
    [(shared_plan, renamed_strategy), (shared_layout_plan, renamed_layout)],
    ids=["operators", "layouts"],
)
def test_hostile_names_stay_words(plan_of, renamed_of):
    plan = plan_of()
    renamed = dataclasses.replace(
        renamed_of(plan),
        notes=[HOSTILE],
        origin=HOSTILE,
        version=HOSTILE,
        baselines={HOSTILE: plan.baselines["fat-tree"]},
    )
    text = render_report(renamed)
    page, plain = Page(text), page_of(plan_of)
    assert_safe(page)
    for tag in ("script", "img", "path", "rect", "image"):
        assert page.count(tag) == plain.count(tag), tag
    readable = HOSTILE.replace("\ud800", "?")
    assert readable in page.text
    if plan.job.kind == "operators":
        assert any(HOSTILE in text for text in page.scripts["timeline-data"]["texts"])
    scripts = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', text, re.S)
    assert len(scripts) == 3
    assert not any("<" in script for script in scripts)
    text.encode()  # a lone surrogate could not be written
    command, _ = plan_command_line(renamed)
    file = {"operators": "model.yaml", "layouts": "config.json"}[plan.job.kind]
    assert shlex.split(command)[:3] == ["topoopt", "plan", file]
    for fragment in (renamed._repr_html_(), dataclasses.replace(renamed, links=[])._repr_html_()):
        assert_safe(Page(fragment))


@pytest.mark.parametrize(
    "plan_of", [shared_plan, pytest.param(shared_layout_plan, marks=pytest.mark.slow)]
)
def test_the_same_plan_gives_the_same_page(tmp_path, plan_of):
    plan = plan_of()
    text = render_report(plan)
    plan.save(tmp_path / "plan.json")
    write_report(tmp_path / "plan.json", tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text() == text
    program = "import sys, topoopt as to; to.write_report(to.load_plan(sys.argv[1]), sys.argv[2])"
    subprocess.run(
        [sys.executable, "-W", "error", "-c", program, "plan.json", "b.html"],
        cwd=tmp_path, check=True, env={**os.environ, "PYTHONHASHSEED": "7"},
    )  # fmt: skip
    assert (tmp_path / "b.html").read_text() == text
    assert not re.search(r"\b20\d\d-\d\d-\d\d", text)


@pytest.mark.parametrize(
    "plan_of", [lambda: solve(small_mlp(), 1, 1, steps=1, baselines=()), lone_layout_plan]
)
def test_one_server_has_no_network(plan_of):
    plan = plan_of()
    page = Page(render_report(plan))
    assert "there is no network" in page.text
    assert set(page.scripts) == {"timeline-data"}
    assert "Topology" not in Page(plan._repr_html_()).text


def test_a_notebook_shows_the_plan_without_scripts(plan_of):
    plan = plan_of()
    page = Page(plan._repr_html_())
    assert_safe(page)
    assert page.count("script") == 0
    assert format_time(plan.iteration_time_s) in page.text
    assert "Iteration time and cost by fabric" in page.tables


@pytest.mark.parametrize("schedule", ["barrier", "auto"])
def test_a_schedule_is_simulated_as_planned(schedule):
    plan = solve(small_mlp(), 3, schedule=schedule, steps=50)
    found = simulate_again(plan)
    page = Page(render_report(plan))
    assert_safe(page)
    overlapping = plan.schedule.overlap == "next-forward"
    assert overlapping == (schedule == "auto"), "the example's best schedules"
    # One iteration alone takes no less than the period of many in a row.
    assert found.timeline.makespan >= plan.iteration_time_s * (1 - 1e-9)
    assert (found.timeline.makespan > plan.iteration_time_s * (1 + 1e-9)) == overlapping
    assert ("period" in page.text) == overlapping


def circulant(plan, servers, steps):
    """The plan as if wired as a circulant graph of many servers; only to be drawn."""
    link = plan.links[0]
    links = [
        dataclasses.replace(link, source=v, target=(v + step) % servers)
        for v in range(servers) for step in steps
    ]  # fmt: skip
    rings = [
        dataclasses.replace(plan.rings[0], generator=step,
                            order=[i * step % servers for i in range(servers)])
        for step in steps
    ]  # fmt: skip
    cluster = dataclasses.replace(plan.cluster, servers=servers)
    return dataclasses.replace(plan, links=links, rings=rings, cluster=cluster)


@pytest.mark.parametrize(("servers", "steps"), [(16, (1, 3, 5)), (128, (1, 3, 17, 41)),
                                                (1024, (1, 3, 17, 41, 99, 201))])  # fmt: skip
def test_drawings_of_any_size(servers, steps):
    plan = circulant(shared_plan(), servers, steps)
    load = np.linspace(0.0, 1.0, len(plan.links))
    drawing = draw(plan, load)
    assert len(drawing.links) == min(len(plan.links), MOST_LINKS)
    # The busiest stay, and lie on top.
    assert drawing.links[-1] == len(plan.links) - 1
    svg = wiring_svg(plan, drawing, load)
    assert len(svg) < 600_000
    page = Page(svg)
    assert page.count("path") == len(drawing.links)
    assert page.count("circle") == servers
    assert all(len(rings) == 1 for rings in drawing.rings)
    for spot in page.of("circle"):
        far = math.hypot(float(spot["cx"]) - 500, float(spot["cy"]) - 500)
        assert far == pytest.approx(430, abs=0.2)


def test_servers_sit_where_their_rings_put_them():
    plan = circulant(shared_plan(), 9, (2,))
    seats = [4, 1, 8, 0, 2, 7, 5, 3, 6]
    ring = dataclasses.replace(plan.rings[0], order=[seats[i * 2 % 9] for i in range(9)])
    assert seats_of(dataclasses.replace(plan, rings=[ring])) == tuple(seats)
    assert seats_of(dataclasses.replace(plan, rings=[])) == tuple(range(9))


def test_a_plan_whose_time_does_not_hold_is_refused(tmp_path, plan_of):
    plan = dataclasses.replace(plan_of(), iteration_time_s=1.0)
    plan.save(tmp_path / "plan.json")
    with pytest.raises(to.InputError, match=r"plan file .*iteration_time_s is 1\.0 in the plan"):
        write_report(tmp_path / "plan.json", tmp_path / "plan.html")
    assert not (tmp_path / "plan.html").exists()
    other = dataclasses.replace(plan_of(), fabric_model="fluid-0")
    with pytest.raises(to.InputError, match="fabric_model is 'fluid-0'"):
        render_report(other)


def test_a_file_that_is_not_well_formed_is_refused(tmp_path):
    document = json.loads(shared_plan().to_json())
    document["job"]["server"]["accelerator"] = 3
    (tmp_path / "odd.json").write_text(json.dumps(document))
    with pytest.raises(to.InputError, match=r"field 'job\.server\.accelerator'"):
        render_report(tmp_path / "odd.json")
