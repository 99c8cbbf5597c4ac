"""Numbers, names and keys that pages tell and code decides: a test fails where they part."""

import json
import re
from dataclasses import fields
from typing import get_args

import numpy as np
import pytest
import typer
from doc_tables import DOCS, rows
from small_plans import shared_plan

import topoopt as to
from parallelism.models.schema import ModelSpec
from parallelism.taskgraph import TaskGraph, TaskKind
from parallelism.transformers.balance import layer_loads
from parallelism.transformers.gpu import rates_of
from parallelism.transformers.implementation import STACKS, get_stack
from parallelism.transformers.layout import Layout
from parallelism.transformers.memory import memory_use
from parallelism.transformers.presets import get_transformer
from parallelism.transformers.schedules import build_schedule, schedule_of
from parallelism.transformers.timeline import PassTimes, timeline
from parallelism.transformers.training import Training
from routing.clos.optimum import TIME_LIMIT
from routing.clos.routers import ROUTERS as CLOS_METHODS
from routing.collectives.choice import choose_schedules
from routing.network import Network
from routing.paths import USUAL_PATHS, USUAL_SLACK, ecmp_routes
from routing.routed import Method
from topoopt.bandwidth.model.builtin import WORKLOAD_NAMES as WORKLOADS
from topoopt.base.engine import LOCAL
from topoopt.baselines.baselines import BASELINES
from topoopt.cli.app import app
from topoopt.codesign.designs import Design
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.simulation import simulate
from topoopt.problem import options, schedule
from topoopt.problem.cluster import MAX_DEGREE, MAX_SERVERS
from topoopt.problem.effort import EFFORTS
from topoopt.problem.job import nvlink_server
from topoopt.problem.prices import default_prices
from topoopt.problem.reconfiguration import RECONFIGURABLE, Reconfiguration
from topoopt.problem.units import format_time
from topoopt.report import lanes, layout_map, traffic, wiring
from topoopt.search import joint, joint_moves, on_baseline, population
from topoopt.studies.failures import fail_randomly
from topoopt.studies.repairs import REPAIRS
from topoopt.studies.shared.fabrics import SHARED_FABRICS
from topoopt.studies.topology_report import topology_report
from topoopt.topology.zoo.registry import build_fabric


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
            2: f"{effort.again:g}",
            3: f"{effort.cuts};",
            5: stages,
            6: f"{effort.routed}",
            7: f"{effort.confirmed}; {effort.finalists}",
            8: f"{effort.compared:g}",
            9: f"{on_baseline._RANKED * effort.confirmed}",
            10: f"{effort.layouts}",
        }
        for row, number in expected.items():
            assert re.match(rf"{re.escape(number)}(?![\d.])", told[row]), (place, number)
        assert float(told[1]) == effort.least_work
        assert str(effort.widenings) in told[3]


def test_limits_of_a_cluster_are_told():
    said = re.sub(r"\s+", " ", (DOCS / "defaults.md").read_text())
    assert f"at most {MAX_SERVERS} servers of at most {MAX_DEGREE} ports" in said
    least, most, slowest = re.search(
        r"ports, of (\S+) to (\S+) each; a hop .* most (\S+)\.", said
    ).groups()
    for words in ({"bandwidth": least}, {"bandwidth": most}, {"latency": slowest}):
        asked = {"servers": 2, "degree": 1, "bandwidth": "1Gbps", **words}
        assert to.Cluster(**asked)
    for words in ({"bandwidth": "0.99bps"}, {"bandwidth": "1.01e6Tbps"}, {"latency": "61min"}):
        with pytest.raises(to.InputError, match="is out of range; give"):
            to.Cluster(**{**asked, **words})


def default_of(command, name):
    """Return the default of an option, as a page says it."""
    group = typer.main.get_command(app)
    for word in command.split():
        group = group.commands[word]
    (found,) = (p for p in group.params if p.name == name)
    shown = getattr(found, "show_default", None)
    return shown if found.default is None and isinstance(shown, str) else str(found.default)


WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
WITHIN = default_of("route", "within")
FIBRE = float(default_of("topology", "fibre_usd"))
DARK = {name: format_time(Reconfiguration().delay_of(name)) for name in RECONFIGURABLE}
NEAR = f"paths of at most {WORDS[USUAL_SLACK]} hop more"
ELEMENT = ModelSpec.model_fields["element_bytes"]
WIDTHS = re.sub(r", (\d+)$", r" or \1", ", ".join(map(str, get_args(ELEMENT.annotation))))
RESULTS = default_of("experiment run", "output")
SAID = [
    ("clos.md", "of `optimum`: work, not the clock; default {})", f"{TIME_LIMIT:g}"),
    ("clos.md", "(`run`: `--bandwidth`, default {})", default_of("clos run", "bandwidth")),
    ("clos.md", "`--move-cost TIME` ({} by default", default_of("clos run", "move_cost")[:-1]),
    ("routing.md", "`max_link_utilisation`; default {} |", f"{WITHIN[:-1]} {WITHIN[-1]}"),
    ("routing.md", "| `--allreduce` | `{}` (default)", default_of("route", "allreduce")),
    ("prices.md", "adds so many US dollars a cable, {} by default", f"{FIBRE:g}"),
    ("prices.md", "that joins them: `{}` (default)", default_of("topology", "layer")),
    ("compare.md", "by default {} for `sip-ml`", DARK["sip-ml"]),
    ("compare.md", "`sip-ml`, {} for `ocs-reconfig`", DARK["ocs-reconfig"]),
    ("compare.md", "`BASELINES` (default) | the {} that", WORDS[len(BASELINES)]),
    ("simulate.md", "`--routing {}` (default)", default_of("simulate", "routing")),
    ("simulate.md", "`k-shortest` ({})", f"{USUAL_PATHS} {NEAR}"),
    ("routing.md", "equal split over up to {}", f"{USUAL_PATHS} shortest {NEAR}"),
    ("model-file.md", "| `element_bytes` | {} |", f"{WIDTHS} | {ELEMENT.default}"),
    ("model-file.md", "element_bytes: {} # optional", ELEMENT.default),
    ("simulate.md", "`--model {}` (default)", default_of("simulate", "model")),
    ("llm.md", "`load_imbalance` ({} by default)", f"{get_stack('nemo').load_imbalance:g}"),
    ("llm.md", "| `{}`, the default |", next(iter(STACKS))),
    ("experiments.md", "| `--engine E` | `{}` (default)", LOCAL),
    ("experiments.md", "directory of all results, by default `{}`", RESULTS),
    ("topologies.md", "- `{}` (default): the circulant", default_of("topology", "selection")),
    ("bandwidth.md", "is divided by: `{}` (default)", default_of("bandwidth", "relative_to")),
    ("plan-search.md", "{} rounds without progress, and", WORDS[joint._IDLE].capitalize()),
    ("plan-search.md", "the fastest {} of each batch are wired", WORDS[joint_moves._WIRED]),
    ("plan-search.md", "4. On up to {} servers, packet trains choose", options.CONFIRMED_SERVERS),
    ("plan-search.md", "On up to {} servers the score of", options.PACKET_SERVERS),
    ("plan-search.md", "is {} times slower on the ideal switch", population._NEAR),
    ("report.md", "in the timeline more than {} servers", lanes.MOST_ROWS),
    ("report.md", "or more than {} tasks on them", f"{lanes.MOST_SEGMENTS:,}"),
    ("report.md", "more than {} collectives", lanes.MOST_COLLECTIVES),
    ("report.md", "collectives, or than {} at a time", lanes.MOST_STREAMS),
    ("report.md", "of more than {} links the busiest are drawn", wiring.MOST_LINKS),
    ("report.md", "above {} servers a cell of the traffic matrix", traffic.MOST_CELLS),
    ("report.md", "above {} servers the picture of a layout", layout_map.MOST_SERVERS),
]  # fmt: skip


@pytest.mark.parametrize(("page", "words", "value"), SAID)
def test_numbers_and_defaults_in_sentences_are_those_of_the_code(page, words, value):
    said = re.sub(r"\s+", " ", (DOCS / page).read_text())
    assert words.format(value) in said


def test_the_table_of_stacks_has_the_shares_of_the_code():
    for row in rows("llm.md", "| stack | tensor"):
        for name in in_code(row[0]):
            stack = STACKS[name]
            hidden = (stack.overlap_tensor, stack.overlap_data, stack.overlap_pipeline)
            assert tuple(map(float, row[1:4])) == hidden, name


def keys(page, first, column):
    """Names in code of one column of a table."""
    return {name for row in rows(page, first) for name in in_code(row[column])}


@pytest.mark.slow
def test_the_configuration_of_a_transformer_of_ones_own_is_read(tmp_path):
    page = (DOCS / "transformers.md").read_text()
    (shown,) = re.findall(r"```json\n(\{.*?\})\n```", page, re.S)
    (more,) = re.findall(r'With `("model_type".*?)` it has experts', page)
    for numbers, experts in ({}, None), (json.loads(f"{{{more}}}"), 16):
        (tmp_path / "config.json").write_text(json.dumps(json.loads(shown) | numbers))
        model = to.load_transformer(tmp_path / "config.json")
        assert (model.name, model.sequence) == (tmp_path.name, 4096)
        assert (model.experts and (model.experts.count, model.experts.width)) == (
            experts and (experts, 6912)
        )


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


def test_lone_messages_take_as_long_as_told():
    told = rows("fabric-model.md", "| path | bandwidth-delay product")
    for path, product, ratio in told:
        hops, cables, gbps, micros = re.fullmatch(
            r"(\d+) hops of (?:(\d+) x )?(\d+) Gbps, (\d+) us a hop", path
        ).groups()
        hops, cables, rate, delay = (
            int(hops),
            int(cables or 1),
            int(gbps) / 8 * 1e9,
            int(micros) / 1e6,
        )
        ends = np.arange(hops)
        source, target = np.append(ends, ends + 1), np.append(ends + 1, ends)
        many = np.tile(source, cables), np.tile(target, cables)
        network = Network.from_links("line", hops + 1, 0, *many, rate, delay)
        fabric = Fabric("line", network, ecmp_routes(network))
        tasks = TaskGraph.from_lists(hops + 1, [(TaskKind.TRANSFER, 0, hops, 3.3e7, 0.0)], [])
        packet = fabric.transport.segment_bytes
        whole = np.ceil(3.3e7 / packet) * packet
        lone = 2 * hops * delay + whole / (cables * rate) + (hops - 1) * packet / rate
        assert simulate(fabric, tasks).makespan == pytest.approx(lone)
        assert f"{simulate(fabric, tasks, model='packet').makespan / lone:.2f}" == ratio, path
        assert round(2 * hops * delay * cables * rate / packet) == int(product), path


def test_the_table_of_commands_has_the_titles_and_the_order_of_the_program():
    shown, title = {}, ""
    for cells in rows("commands.md", "| command | Python"):
        if cells[0].startswith("**"):
            title = cells[0].split("**")[1]
            shown[title] = []
        else:
            shown[title].append(in_code(cells[0])[0].removeprefix("topoopt "))
    program = {}
    for name, command in typer.main.get_command(app).commands.items():
        program.setdefault(command.rich_help_panel, []).append(name)
    assert shown == program


def test_pages_repeat_the_largest_errors_on_published_runs():
    (row,) = (cells for cells in rows("validate.md", "| family | cases") if cells[0] == "all")
    fluid, packet = (f"{float(cell.split()[4]):.3g}" for cell in row[2:])
    assert (fluid, packet) == ("12.8", "1.55")
    packet = "1.6"
    pages = {
        name: " ".join((DOCS / name).read_text().split())
        for name in ("../README.md", "fabric-model.md", "results.md")
    }
    assert f"the largest is {packet} % ({fluid} %)" in pages["../README.md"]
    assert f"the largest {fluid} % (CANDLE) and {packet} % ([" in pages["fabric-model.md"]
    assert (
        f"CANDLE within {packet} % by packet trains, {fluid} % by the fluid" in pages["results.md"]
    )


def test_the_readme_repeats_errors_of_language_models():
    told = {cells[0]: cells[1:] for cells in rows("llm.md", "| quantity | cases")}
    readme = re.sub(r"\s+", " ", (DOCS.parent / "README.md").read_text())
    count, mean, most = told["`--runs published` but for hybrid models, held out"]
    assert (
        f"On {count} more, on which nothing was fitted, {float(mean[:-2]):.1f} %; the largest is"
        in readme
    )
    assert f"the largest is {float(most[:-2]):.0f} % (256K tokens)" in readme
    count, mean, most = told["`--runs published`, hybrid models, held out"]
    assert (
        f"On {count} of hybrid models (Mamba-2, Gated DeltaNet) {float(mean[:-2]):.0f} %" in readme
    )
    assert f"the largest {float(most[:-2]):.0f} %;" in readme
    (row,) = (cells for cells in rows("validate.md", "| family | cases") if cells[0] == "all")
    fluid, packet = (cell.split()[0] for cell in row[2:])
    assert (
        f"**{packet} %** median error of packet trains ({fluid} % of flows) on {row[1]} " in readme
    )


def test_pages_repeat_the_times_of_the_plan_that_one_shows():
    shown = (DOCS / "plans.md").read_text()
    fabrics = {
        words[0]: words[1].split() for line in shown.splitlines()
        if len(words := line.split(maxsplit=1)) == 2 and line.count(" ms ") == 2
    }  # fmt: skip
    (row,) = (
        cells for cells in rows("compare.md", "| job | plan | ideal") if cells[0] == "`dlrm-16`"
    )
    told = [cell.split()[0] for cell in row[1:]]
    assert told == [
        fabrics[name][0] for name in ("topoopt", "ideal-switch", "fat-tree", "expander")
    ]
    (row,) = (
        cells for cells in rows("plan-search.md", "| job, ports | quick") if cells[0] == "DLRM, d=4"
    )
    assert row[2] == " ".join(fabrics["topoopt"][:2])


FEW = (24, 43, 89, 90)


@pytest.mark.parametrize(
    ("first", "collective"),
    [
        ("| group | ring | rings | shortest trees |", "allreduce"),
        ("| group | ring | rings | shortest tree |", "broadcast"),
        ("| group | shortest paths |", "all-to-all"),
    ],
)
def test_tables_of_collectives_have_the_times_of_the_code(first, collective):
    network = build_fabric("totient", 128, 4, bandwidth=12.5e9).network
    shown = {row[0]: row[1:] for row in rows("collectives.md", first)}
    root = 0 if collective == "broadcast" else None
    group = FEW if collective == "allreduce" else range(16)
    choice = choose_schedules(network, group, collective, root)
    took = {each.name: each.time(1e9) / choice.bound(1e9) for each in choice.schedules}
    names = ("shortest-paths", "least-congestion")
    if collective != "all-to-all":
        names = ("ring", "rings", "shortest-trees", "trees")
    if collective == "allreduce":
        names += ("reduce-broadcast",)
    row = shown["4 servers" if group == FEW else "`0-15`"]
    assert {name for name, cell in zip(names, row, strict=True) if cell} == took.keys() & {*names}
    for name, cell in zip(names, row, strict=True):
        digits = len(cell.partition(".")[2])
        assert not cell or float(cell) == pytest.approx(took[name], abs=0.6 * 10**-digits), name


def test_schedules_of_passes_take_what_is_told():
    """Four stages, 16 microbatches, passes of 1 and 2 s."""
    page = re.sub(r"\s+", " ", (DOCS / "llm.md").read_text())

    def seconds(name, send):
        ones = np.ones(4)
        times = PassTimes(ones, 2 * ones, 0 * ones, send * ones, send * ones)
        return f"{timeline(build_schedule(name, 4, 16), times).makespan:g}"

    assert f"take {seconds('1f1b', 0.5)} s over four stages, and {seconds('1f1b', 0)} if" in page
    assert f"runs twice as many forward passes ahead: {seconds('eager-1f1b', 0.5)} s." in page


def test_heads_weigh_as_many_layers_as_told():
    page = re.sub(r"\s+", " ", (DOCS / "llm.md").read_text())
    (told,) = re.findall(
        r"gpt-oss 20B's head takes as long as up to (\S+) of its layers, Gemma 3 27B's as up to "
        r"(\S+), Llama 3 8B's as up to (\S+) \(8,192 tokens a sample\)", page
    )  # fmt: skip
    server, rates = nvlink_server("h100", 8), rates_of("h100")
    for name, most in zip(("gpt-oss-20b", "gemma3-27b", "llama3-8b"), told, strict=True):
        model, stack = get_transformer(name), get_stack("megatron-core")
        found = {
            layer_loads(Training(model, layout, stack, 8192), rates, server).head
            for layout in (Layout(pipeline=2, microbatch=each) for each in (1, 2, 4, 8))
        }
        assert max(found) == float(most), name


def test_a_zero_bubble_schedule_keeps_what_is_told():
    page = re.sub(r"\s+", " ", (DOCS / "llm.md").read_text())
    model, kept = get_transformer("llama3-70b"), {}
    for recompute in ("none", "full"):
        layout = Layout(tensor=8, pipeline=8, schedule="zero-bubble", recompute=recompute)
        training = Training(model, layout, get_stack("megatron-core"), 8192)
        stages = memory_use(training, schedule_of(layout, 64))
        kept[recompute] = [f"{stage.activations / 1e9:.1f}" for stage in stages[-2:]]
    (one, last), (one_without, last_without) = kept["full"], kept["none"]
    told = f"the last but one {one} GB of {one_without}, the last {last} of {last_without}."
    assert told in page
