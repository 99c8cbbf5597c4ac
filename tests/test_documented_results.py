"""What pages say of experiments is what these wrote: a test fails where they part."""

import csv
import re

import pytest
from doc_tables import DOCS, rows

RESULTS_OF = DOCS.parent / "experiments" / "results"


def wrote(experiment, mode="quick", **only):
    """Rows that an experiment wrote, of those values."""
    with (RESULTS_OF / experiment / mode / "results.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    found = [row for row in rows if all(row[key] == value for key, value in only.items())]
    assert found
    return found


def times(rows, *keys, value="iteration_time_s"):
    return {tuple(row[key] for key in keys): float(row[value]) for row in rows if row[value]}


def span(numbers, digits=1):
    """Least and largest as a sentence says them."""
    return f"{min(numbers):.{digits}f} to {max(numbers):.{digits}f}"


def over_plan(rows, fabric, *keys):
    """Times on a fabric over those of the co-designed one in the same cases."""
    found = times(rows, "fabric", *keys)
    plans = {
        case: time
        for (name, *case), time in found.items()
        if name == "topoopt"
        for case in [tuple(case)]
    }
    return {case: found[fabric, *case] / time for case, time in plans.items()}


def test_what_experiments_wrote_is_what_the_page_of_results_says():
    page = re.sub(r"\s+", " ", (DOCS / "results.md").read_text())
    case = ("model", "degree", "bandwidth_gbps")
    full = wrote("dedicated-cluster", "full")
    tree, expander, switch, rewired = (
        over_plan(full, name, *case)
        for name in ("fat-tree", "expander", "ideal-switch", "ocs-reconfig")
    )
    # Cases in which both have a packet time.
    simulated = [
        {**row, "iteration_time_s": row["packet_time_s"]}
        for row in full
        if row["fabric"] in ("topoopt", "fat-tree")
        and all(
            other["packet_time_s"]
            for other in full
            if other["fabric"] == "fat-tree" and all(other[key] == row[key] for key in case)
        )
    ]
    gains = {
        name: [gain for (model, *_), gain in tree.items() if model == name]
        for name in ("dlrm", "ncf")
    }
    waits = [ratio for (model, *_), ratio in rewired.items() if model in ("dlrm", "ncf")]
    others = [ratio for (model, *_), ratio in rewired.items() if model == "candle"]
    packets = {
        name: [
            ratio
            for (model, *_), ratio in over_plan(simulated, "fat-tree", *case).items()
            if model == name
        ]
        for name in ("dlrm", "ncf")
    }
    small = over_plan(wrote("dedicated-cluster"), "fat-tree", "model")
    assert f"| up to {max(tree.values()):.1f}x (see below) |" in page
    assert f"is {span(gains['dlrm'])}x for DLRM and {span(gains['ncf'])}x for NCF" in page
    assert f"expander is {span(expander.values())}x slower than the plan" in page
    assert f"bandwidth at most {1 / min(switch.values()):.1f}x faster (CANDLE, DLRM and NCF" in page
    assert f"({span(waits)}x on DLRM and NCF)" in page
    assert f"on CANDLE ({span(others)}x)" in page
    assert f"is {span(packets['dlrm'])}x for DLRM, {span(packets['ncf'])}x for NCF and" in page
    assert f"DLRM {small[('dlrm-16',)]:.1f}x and CANDLE {small[('candle-16',)]:.1f}x faster" in page

    dark = times(
        wrote("reconfiguration-latency", fabric="sip-ml"), "delay_us", value="relative_time"
    )
    assert f"{dark[('100.0',)]:.2f}x slower at 100 us, {dark[('10000.0',)]:.1f}x at 10 ms" in page
    fixed = times(
        wrote("reconfiguration-latency", fabric="ocs-reconfig"), "delay_us", value="relative_time"
    )
    assert f"OCS-reconfig with forwarding {fixed[('1.0',)]:.2f}x at every delay" in page
    assert len({round(ratio, 6) for ratio in fixed.values()}) == 1

    together = wrote("shared-cluster", model="all")
    spread = over_plan(
        [{**row, "iteration_time_s": row["mean_iteration_s"]} for row in together],
        "fat-tree-spread", "jobs", "placement",
    )  # fmt: skip
    assert f"spread over all paths it is {span(spread.values())} in the mean" in page

    trees = times(wrote("other-schedules"), "model", value="trees_over_rings")
    name, least = min(trees.items(), key=lambda one: one[1])
    assert f"The most that trees gain there is {100 * (1 - least):.1f} %, of {name[0]}" in page

    taxes = [
        float(row["bandwidth_tax"]) for row in wrote("all-to-all", fabric="topoopt", degree="4")
    ]
    batches = over_plan(wrote("all-to-all", degree="4"), "fat-tree", "batch_per_gpu")
    assert (
        f"tax {span(taxes, 2)} at d=4, Fat-tree {batches[('64',)]:.1f}x slower at batch 64" in page
    )
    assert f"and {batches[('2048',)]:.2f}x at batch 2048" in page
    ports = times(wrote("degree", model="dlrm-16"), "degree")
    assert f"DLRM {1e3 * ports[('2',)]:.0f} to {1e3 * ports[('10',)]:.0f} ms" in page

    losses = wrote("libra-group")
    worst = [float(row["loss"]) for row in losses if row["network_for"] == "group (worst)"]
    most = 1 + max(float(row["loss"]) for row in losses)
    assert (
        f"another takes up to {most:.1f}x its own optimum; the best for the group at most" in page
    )
    assert f"the group at most {100 * max(worst):.1f} % |" in page
    fast = [float(row["speedup"]) for row in wrote("libra-speedup", objective="time")]
    cheap = [
        float(row["perf_per_cost_gain"]) for row in wrote("libra-speedup", objective="time*cost")
    ]
    assert f"speed-up {span(fast)}, performance per cost {span(cheap)} |" in page
    saved = max(1 - 1 / float(row["overlap_gain"]) for row in wrote("libra-overlap"))
    assert f"overlap saves up to {100 * saved:.0f} %" in page

    whole, failed = (
        [row for row in wrote("clos-grid", methods=USUAL_CLOS) if (row["failed"] == "0") == none]
        for none in (True, False)
    )

    def slow(rows, method, column="mean_slowdown"):
        return [float(row[column]) for row in rows if row["method"] == method]

    for method, name in (("greedy", "greedy"), ("ecmp", "ECMP"), ("random", "random")):
        assert f"{name} {span(slow(whole, method))}" in page
    assert f"colouring does, {span(slow(failed, 'edge-coloring'))};" in page
    assert max(slow(failed, "edge-coloring", "worst_slowdown")) == pytest.approx(2.0)
    greedy = max(slow(failed, "greedy")), max(slow(failed, "greedy", "worst_slowdown"))
    assert "greedy takes up to {:.1f}, single epochs up to {:.1f};".format(*greedy) in page
    assert f"`best` {span(slow(failed, 'best'), 2)} by exchanging" in page


USUAL_CLOS = "ecmp random greedy edge-coloring best spray"


def test_the_page_of_schedules_has_what_the_experiment_wrote():
    gains = times(wrote("schedule-ablation"), "model", "schedule", value="relative_time")
    for name, *shown in rows("schedules.md", "| model | `barrier` | `auto` |"):
        model = f"{name.lower().replace('-', '')}-16"
        expected = [
            f"{100 * (1 - gains[model, schedule]):.1f} %" for schedule in ("barrier", "auto")
        ]
        assert shown == expected, name


def test_the_divisions_of_ports_are_those_that_the_experiment_wrote():
    found = {
        (row["model"], row["servers"], row["degree"]): row for row in wrote("port-phases", "full")
    }
    shown = rows("bounds.md", "| model | servers | degree | bound | least")
    assert len(shown) == len(found)
    for model, servers, degree, bound, least, over, ports, _ in shown:
        row = found[model, servers, degree]
        floor, time = (float(cell.split()[0]) for cell in (bound, least))
        assert 1e3 * float(row["least_s"]) == pytest.approx(time, abs=0.005)
        # The plan's bound, which a search renews, is a little above that of the experiment.
        assert 1e3 * float(row["bound_s"]) == pytest.approx(floor, rel=2e-3)
        assert over == f"{100 * (time / floor - 1):.0f} %"
        block = int(row["across"]) + int(row["within"])
        assert ports == f"{row['partner']}, {block}, {row['out']}"
    presets = {
        tuple(cells[:3]): cells[3:]
        for cells in rows("results.md", "| model | servers | degree | fluid")
    }
    for *asked, bound, _, _, _, plan in shown:
        fluid, _, least, *_ = presets[tuple(asked)]
        assert (plan.split()[0], bound.split()[0]) == (fluid.split()[0], least.split()[0]), asked
    gap, *_, scheduling = presets["candle", "128", "4"][3:9]
    page = re.sub(r"\s+", " ", (DOCS / "bounds.md").read_text())
    assert (
        f"CANDLE on 128 servers (4 ports) is {gap} above its bound, {scheduling} of which" in page
    )


def test_mean_distances_are_those_that_the_experiment_wrote():
    table = rows("topologies.md", "| servers | ports | d | geo")
    shown = {tuple(cells[:3]): cells[3:] for cells in table}
    written = wrote("circulant-selection")
    for case in {(row["servers"], row["ports"], row["degree"]) for row in written}:
        own = {row["rule"]: row for row in written if case[0] == row["servers"]
               and case[1:] == (row["ports"], row["degree"])}  # fmt: skip
        made = {
            rule: f"{float(row['mean_distance_hops']):.3f} ({row['diameter_hops']})"
            for rule, row in own.items()
        }
        fewer = own["Cayley"]["rings"]
        if fewer != own["geometric"]["rings"]:
            made["Cayley"] += f" ({fewer} rings)"
        assert shown[case][:3] == [made["geometric"], made["least mean"], made["Cayley"]], case
        least = own["geometric"]
        moore = f"{float(least['moore_mean_hops']):.3f} ({least['moore_diameter_hops']})"
        assert shown[case][3] == moore, case
