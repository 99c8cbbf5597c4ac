"""Numbers, names and keys that pages tell and code decides: a test fails where they part."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from small_plans import shared_plan

import topoopt as to
from parallelism.transformers.implementation import STACKS
from routing.clos.routers import METHODS as CLOS_METHODS
from routing.routed import Method
from topoopt.bandwidth.model.builtin import NAMES as WORKLOADS
from topoopt.codesign.designs import Design
from topoopt.problem import options, schedule
from topoopt.problem.effort import EFFORTS
from topoopt.problem.job import MAX_DEGREE, MAX_SERVERS
from topoopt.problem.prices import default_prices
from topoopt.studies.failures import REPAIRS, fail_randomly
from topoopt.studies.shared.fabrics import SHARED_FABRICS
from topoopt.studies.topology_report import topology_report
from topoopt.topology.zoo.registry import build_fabric

DOCS = Path(__file__).resolve().parents[1] / "docs"


def rows(page, first):
    """Cells of the table of a page whose head begins so, from its second line on."""
    lines = (DOCS / page).read_text().splitlines()
    (head,) = (place for place, line in enumerate(lines) if line.startswith(first))
    found = []
    for line in lines[head + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split(" | ")])
    assert len(found) > 1
    return found


def in_code(cell):
    return re.findall(r"`([^`]+)`", cell)


NAMES = {
    ("what-if.md", "| repair | what changes |"): REPAIRS,
    ("shared-cluster.md", "| fabric | meaning"): SHARED_FABRICS,
    ("plan-search.md", "| method | what"): options.METHODS,
    ("routing.md", "| method | routes"): [method.value for method in Method],
    ("clos.md", "| method | chooses"): CLOS_METHODS,
    ("llm.md", "| stack | "): STACKS,
    ("bandwidth.md", "| name | parameters | parallelism"): WORKLOADS,
    ("schedules.md", "| field | values"): [each.name for each in fields(schedule.Schedule)],
}


@pytest.mark.parametrize(("page", "first"), NAMES)
def test_the_first_column_of_a_table_has_every_name(page, first):
    named = [name for row in rows(page, first) for name in in_code(row[0])]
    assert sorted(named) == sorted(NAMES[page, first])


def test_the_values_of_a_schedule_are_told():
    told = {row[0].strip("`"): in_code(row[1]) for row in rows("schedules.md", "| field | values")}
    assert told["overlap"] == list(schedule.OVERLAPS)
    assert told["compute"] == list(schedule.COMPUTE_ORDERS)
    assert told["network"] == list(schedule.NETWORK_ORDERS)


def test_the_table_of_efforts_has_the_numbers_of_the_code():
    table = {row[0]: row[1:] for row in rows("plan-search.md", "| | quick")}
    for place, effort in enumerate(EFFORTS.values()):
        told = [cells[place] for cells in table.values()]
        gain = f"{effort.least_gain * 100:g} %" if effort.least_gain else "never"
        stages = ", ".join(f"{pairs} x {each}" for pairs, each in effort.packet_stages)
        expected = {
            0: gain,
            1: f"{effort.cuts};",
            3: stages,
            4: f"{effort.routed}",
            5: f"{effort.confirmed}; {effort.finalists}",
            6: f"{effort.compared:g}",
            7: f"{effort.layouts}",
        }
        for row, number in expected.items():
            assert re.match(rf"{re.escape(number)}(?![\d.])", told[row]), (place, number)
        assert str(effort.widenings) in told[1]


def test_limits_of_a_cluster_are_told():
    said = re.sub(r"\s+", " ", (DOCS / "defaults.md").read_text())
    assert f"at most {MAX_SERVERS} servers of at most {MAX_DEGREE} ports" in said


def keys(page, first, column):
    """Names in code of one column of a table."""
    return {name for row in rows(page, first) for name in in_code(row[column])}


def test_keys_of_an_exploration_are_told():
    point = {"servers", "degree", "bandwidth_bytes_per_s", "cost_usd"}
    own = {each.name for each in fields(Design)} - {"point"}
    told = keys("pareto.md", "| field (`--json`)", 0)
    assert point | own | {"frontier", "best", "designs"} == told - {"plan"} | {"why"}
    job = to.Job(to.models.dlrm(tables=4, batch_per_gpu=32))
    grid = to.Grid(servers=(4,), degrees=(1,), bandwidths=("100Gbps",))
    found = to.explore(job, grid, to.SearchOptions(steps=5, confirm="none")).to_dict()
    assert point | own == set(found["designs"][0])


def test_keys_of_what_if_are_told():
    from topoopt.cli.what_if_command import _document
    from topoopt.plan.rebuild import rebuild

    page = (DOCS / "what-if.md").read_text()
    built = rebuild(shared_plan())
    found = _document(fail_randomly(built.fabric, built.tasks(), 1, 2), "links", 1, 0)
    for key in {*found, *found["repairs"], *next(iter(found["repairs"].values()))}:
        assert f"`{key}`" in page, key


def test_keys_of_a_topology_are_told():
    built = build_fabric("kautz", 12, 2, bandwidth=12.5e9)
    found = topology_report(built, 12.5e9, default_prices()).to_dict()
    told = keys("topologies.md", "| line | key", 1)
    page = (DOCS / "topologies.md").read_text()
    assert told <= set(found)
    assert [key for key in found if key not in told and f"`{key}`" not in page] == []
