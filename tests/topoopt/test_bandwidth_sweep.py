"""Shapes, ways to divide a job, and the search over both: against enumeration by other means."""

import os
import signal
import subprocess
import sys
import time
from math import inf, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InfeasibleError, InputError
from topoopt.bandwidth.allocate import allocate_bandwidth
from topoopt.bandwidth.builtin import TRANSFORMERS, builtin_workload
from topoopt.bandwidth.communicator import hybrid_communicator
from topoopt.bandwidth.constraints import parse_constraints
from topoopt.bandwidth.cost import cost_coefficients, default_cost
from topoopt.bandwidth.expressions import comm, compute, maximum, total
from topoopt.bandwidth.loops import Loop
from topoopt.bandwidth.network import Block, parse_network
from topoopt.bandwidth.problem import Objective, Problem
from topoopt.bandwidth.quick import largest_sum, minorant_at, quick_bound
from topoopt.bandwidth.shapes import (
    BlockLimit,
    factorisations,
    network_shapes,
    parse_limits,
)
from topoopt.bandwidth.solver import solve
from topoopt.bandwidth.sweep import describe, search_designs
from topoopt.bandwidth.time_model import compile_time
from topoopt.bandwidth.ways import (
    Way,
    builtin_ways,
    fixed_way,
    lay,
    orders_of,
    transformer_ways,
    way_layers,
)

G = 1e9
GPT = TRANSFORMERS["gpt-3"]


def compositions(number, most):
    """Ordered factorisations by brute force."""
    found = []

    def go(rest, parts):
        if rest == 1 and parts:
            found.append(parts)
        if len(parts) < most:
            for f in range(2, rest + 1):
                if rest % f == 0:
                    go(rest // f, (*parts, f))

    go(number, ())
    return set(found)


@pytest.mark.parametrize("number", [2, 7, 12, 36, 64, 97, 360])
def test_factorisations_are_all_of_them(number):
    for most in (1, 2, 3, 4):
        found = list(factorisations(number, most))
        assert set(found) == compositions(number, most)
        assert len(found) == len(set(found))


def test_shapes_keep_to_the_limits():
    limits = parse_limits("RI(2..8), fc(3..4),SW(16..64)")
    assert limits[1] == BlockLimit(Block.FULLY_CONNECTED, 3, 4)
    shapes = network_shapes(64, 3, limits)
    assert {s.npus for s in shapes} == {64}
    assert {s.notation for s in shapes if s.dimensions == 1} == {"SW(64)"}
    expected = sum(
        prod(sum(x.least <= n <= x.most for x in limits) for n in sizes)
        for sizes in compositions(64, 3)
    )
    assert len(shapes) == len({s.notation for s in shapes}) == expected
    with pytest.raises(InputError, match="no shape"):
        network_shapes(127, 3, parse_limits("RI(2..64)"))
    with pytest.raises(InputError, match="more than a million"):
        network_shapes(2**20, 10)
    for text in ("RI(2-8)", "XX(2..8)", "RI(8..2)", "RI(1..4)", ""):
        with pytest.raises(InputError, match="blocks"):
            parse_limits(text)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_axes_cover_the_network_without_overlap(seed):
    """Groups of each axis, found by coordinates, are those of mixed-radix numbers."""
    rng = np.random.default_rng(seed)
    network = parse_network(
        "_".join(f"SW({rng.choice([2, 3, 4, 6, 8])})" for _ in range(int(rng.integers(1, 4))))
    )
    n = network.npus
    first = int(rng.choice([d for d in range(1, n + 1) if n % d == 0]))
    rest = n // first
    second = int(rng.choice([d for d in range(1, rest + 1) if rest % d == 0]))
    counts = (first, second, rest // second)
    laid = lay(network, counts)
    members = np.arange(n)
    coordinates = np.array(np.unravel_index(members, network.sizes, order="F"))
    begin = 1
    even = True
    for axis, count in enumerate(counts):
        # The group of NPU 0 along this axis.
        group = coordinates[:, [k * begin for k in range(count)]]
        sizes = [len(set(row)) for row in group.tolist()]
        if prod(sizes) != count:
            even = False
        elif laid is not None:
            assert laid[axis].sizes == tuple(sizes)
            for d, size in enumerate(sizes):
                if size > 1:
                    steps = np.diff(sorted(set(group[d].tolist())))
                    assert set(steps.tolist()) == {laid[axis].strides[d]}
        begin *= count
    if laid is not None:
        assert even


def test_a_fixed_way_is_the_usual_communicator():
    network = parse_network("RI(4)_FC(8)_RI(4)_SW(32)")
    way = fixed_way(builtin_workload("gpt-3"), network.npus)
    made = lay(network, (way.tensor, way.data))
    usual = hybrid_communicator(network, 16)
    assert made[0].sizes == usual.groups[0].sizes
    assert made[1] == usual.groups[2]


def test_ways_keep_the_global_batch_and_fit_in_memory():
    ways = transformer_ways(GPT, 1024, memory=40e9)
    assert len({w.label for w in ways}) == len(ways) > 20
    parameters = GPT.blocks * 12 * GPT.hidden**2 + GPT.vocabulary * GPT.hidden
    for w in ways:
        assert w.tensor * w.data * w.pipeline == 1024
        assert parameters / w.tensor / w.pipeline * (4 + 12 / w.data) <= 40e9
        if w.pipeline > 1:
            assert w.microbatches * w.data == GPT.batch * 1024 // GPT.tensor
            layers = 2 * GPT.blocks // w.pipeline + 1
            assert len(w.workload.layers) == layers
    all_ways = transformer_ways(GPT, 1024, memory=inf)
    assert {w.label for w in ways} < {w.label for w in all_ways}
    with pytest.raises(InfeasibleError, match="GB an NPU on 16 NPUs"):
        transformer_ways(GPT, 16, memory=1e9)
    assert orders_of(4, 1, 2) == (("tensor", "pipeline", "data"), ("pipeline", "tensor", "data"))
    assert [w.label for w in builtin_ways("dlrm", 64)] == ["TP 1 x DP 64"]
    assert len(builtin_ways("resnet-50", 64)) > 2


def test_stages_stretch_the_iteration_as_the_bubble_says():
    network = parse_network("SW(8)_SW(4)")
    way = next(w for w in transformer_ways(GPT, 32, memory=inf)
               if (w.tensor, w.data, w.pipeline) == (8, 1, 4))  # fmt: skip
    layers = way_layers(network, way, ("tensor", "pipeline", "data"))
    spent = total(
        layer.count * (layer.forward_compute + layer.input_grad_compute + layer.weight_grad_compute)
        for layer in layers
    ).constant
    m, p = way.microbatches, way.pipeline
    assert spent == pytest.approx(way.workload.compute * (m + p - 1) / m)
    sent = layers[-1].forward_comm.evaluate([1.0, 1e9])
    assert sent == pytest.approx((m + p - 1) * GPT.sequence * GPT.hidden * 2 / 8 / 1e9)
    ring = parse_network("SW(8)_RI(4)")
    assert way_layers(ring, way, ("tensor", "pipeline", "data"))[-1].forward_comm.evaluate(
        [1.0, 1e9]
    ) == pytest.approx(2 * sent)
    assert way_layers(parse_network("SW(3)_SW(8)"), Way(way.workload, 2, 12), ("tensor", "data",
                      "pipeline")) is None  # fmt: skip


def random_problem(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 5))
    loads = rng.uniform(0, 1e9, (int(rng.integers(1, 5)), n))
    loads[rng.random(loads.shape) < 0.3] = 0.0
    loads[0] += 1e6
    parts = [comm(row.tolist(), float(rng.integers(1, 9))) for row in loads]
    time = total([compute(float(rng.uniform(0, 0.1))), *parts])
    if seed % 2:
        hidden = [maximum(p, compute(0.02) + q) for p, q in zip(parts, parts[::-1], strict=True)]
        time = total([time, *hidden])
    prices = rng.uniform(1, 60, n) * 4e3 / G
    fixed = float(rng.choice([0.0, 1e6]))
    limits = parse_constraints(["sum(b) == 500"], n, prices, fixed)
    objective = Objective(["time", "time*cost", "cost"][seed % 3])
    model = compile_time(time, n)
    deadline = None
    if objective == Objective.COST:
        deadline = 1.5 * model.time(np.full(n, 500 * G / n))
    return Problem(model, prices, fixed, limits, objective, deadline)


def test_quick_bounds_hold_and_are_near():
    ratios = []
    for seed in range(120):
        problem = random_problem(seed)
        truth = solve(problem).primal
        bound = quick_bound(problem, largest_sum(problem))
        assert bound <= truth * (1 + 1e-9)
        ratios.append(bound / truth)
        rng = np.random.default_rng(seed)
        at, other = rng.uniform(1, 500, (2, problem.dimensions)) * G
        below = minorant_at(problem.time, at)
        assert below.constant + float((below.loads / at).sum()) == pytest.approx(
            problem.time.time(at)
        )
        assert below.constant + float((below.loads / other).sum()) <= problem.time.time(other) * (
            1 + 1e-9
        )
    assert np.median(ratios) > 0.6


@pytest.mark.parametrize("objective", [Objective.TIME, Objective.TIME_COST])
def test_a_search_over_shapes_equals_one_allocation_after_the_other(objective):
    shapes = network_shapes(64, 3, parse_limits("RI(2..8),FC(3..8),SW(8..64)"))
    job = builtin_workload("gpt-3", 8)
    found = search_designs(
        shapes, [fixed_way(job, 64)], budget="500GB/s", objective=objective, keep=5
    )
    every = [
        (answer.solution.primal, network.notation)
        for network in shapes
        for answer in [allocate_bandwidth(
            network, job, budget="500GB/s", objective=objective)]
    ]  # fmt: skip
    every.sort()
    assert found.designs[0].solution.primal == pytest.approx(every[0][0], rel=2e-7)
    distinct = sorted({round(value / every[0][0], 6) for value, _ in every})
    values = [design.solution.primal / every[0][0] for design in found.designs]
    assert values == pytest.approx(sorted(values), rel=2e-7)
    assert values[-1] <= distinct[4] + 1e-6
    for design in found.designs:
        assert design.solution.gap <= 1e-7
    tally = found.tally
    assert tally.solved + tally.repeated + tally.pruned + tally.unfit == found.candidates


def test_pruning_and_processes_do_not_change_the_answer():
    shapes = network_shapes(32, 3)
    ways = transformer_ways(GPT, 32, memory=inf)
    options = {"budget": "500GB/s", "keep": 4, "loop": Loop.OVERLAP}
    plain = search_designs(shapes[::5], ways, prune=False, **options)
    pruned = search_designs(shapes[::5], ways, **options)
    spread = search_designs(shapes[::5], ways, jobs=2, **options)
    assert plain.tally.pruned == 0 < pruned.tally.pruned
    assert pruned.tally == spread.tally
    names = [[describe(d.network, d.way, d.order) for d in r.designs]
             for r in (plain, pruned, spread)]  # fmt: skip
    assert names[1] == names[2]
    for one, two in zip(plain.designs, pruned.designs, strict=True):
        assert one.solution.primal == pytest.approx(two.solution.primal, rel=2e-7)
    assert [d.solution.primal for d in pruned.designs] == [
        d.solution.primal for d in spread.designs
    ]


def test_an_interrupted_search_returns_what_it_found():
    shapes = network_shapes(256, 4)
    way = fixed_way(builtin_workload("gpt-3"), 256)
    seen = []

    def stop(report):
        seen.append(report)
        raise KeyboardInterrupt

    found = search_designs(shapes, [way], budget="500GB/s", progress=stop)
    assert found.interrupted
    assert found.designs
    assert 0 < seen[0].done < seen[0].total == found.candidates
    assert seen[0].best >= found.designs[0].solution.primal * (1 - 1e-9)


def test_a_search_that_has_no_answer_says_so():
    shapes = network_shapes(32, 2)
    way = fixed_way(builtin_workload("gpt-3"), 32)
    with pytest.raises(InputError, match="--budget"):
        search_designs(shapes, [way])
    with pytest.raises(InfeasibleError, match="none of"):
        search_designs(shapes, [way], budget="<= 500GB/s", objective=Objective.COST, deadline=1e-3)
    with pytest.raises(InputError, match="mixes 32 and 64"):
        search_designs(shapes, [fixed_way(builtin_workload("gpt-3"), 64)], budget="5GB/s")
    with pytest.raises(InputError, match="at least 1 each"):
        search_designs([], [way])
    with pytest.raises(InputError, match="b1"):
        search_designs(shapes, [way], budget="5GB/s", constraints=["b1 <= 3"])


def test_a_deadline_search_is_the_cheapest():
    shapes = network_shapes(32, 2)
    way = fixed_way(builtin_workload("gpt-3", 4), 32)
    fastest = search_designs(shapes, [way], budget="500GB/s", keep=1).designs[0].solution.time
    found = search_designs(
        shapes, [way], budget="<= 500GB/s", objective=Objective.COST, deadline=1.2 * fastest, keep=2
    )
    prices = default_cost()
    costs = []
    for network in shapes:
        try:
            answer = allocate_bandwidth(
                network, way.workload, budget="<= 500GB/s", objective=Objective.COST,
                deadline=1.2 * fastest,
            )  # fmt: skip
        except InfeasibleError:
            continue
        costs.append(answer.solution.cost)
    assert found.designs[0].solution.cost == pytest.approx(min(costs), rel=1e-6)
    network = found.designs[0].network
    assert len(cost_coefficients(network, prices)) == network.dimensions


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_ctrl_c_on_the_command_line_prints_what_was_found():
    command = [
        sys.executable, "-c", "from topoopt.cli import main; main()",
        "bandwidth", "--search-shapes", "4096",
        "--max-dimensions", "4", "--workload", "gpt-3", "--budget", "500GB/s", "--jobs", "2",
        "--objective", "time*cost", "--search-parallelism",
    ]  # fmt: skip
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    heard = []
    begun = time.monotonic()
    for line in child.stderr:
        heard.append(line)
        if "best" in line or time.monotonic() - begun > 60:
            break
    os.killpg(child.pid, signal.SIGINT)
    out, rest = child.communicate(timeout=60)
    assert "interrupted" in out, (heard, rest)
    assert "TP" in out
    assert "Traceback" not in rest
    assert child.returncode == 0
