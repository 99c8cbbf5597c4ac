"""Shapes, divisions of a job, and the search over both: against enumeration by other means."""

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
from parallelism.transformers.layout import Layout
from topoopt.bandwidth.allocate import allocate_bandwidth
from topoopt.bandwidth.explore.divisions import (
    Division,
    builtin_divisions,
    division_layers,
    fixed_division,
    transformer_divisions,
)
from topoopt.bandwidth.explore.shapes import (
    BlockLimit,
    factorisations,
    network_shapes,
    parse_limits,
)
from topoopt.bandwidth.explore.sweep import describe_design, search_designs
from topoopt.bandwidth.model.builtin import PUBLISHED_WORKLOADS, builtin_workload
from topoopt.bandwidth.model.communicator import hybrid_communicator, lay
from topoopt.bandwidth.model.cost import cost_coefficients, default_cost
from topoopt.bandwidth.model.expressions import comm, compute, maximum, total
from topoopt.bandwidth.model.loops import Loop
from topoopt.bandwidth.model.network import parse_network
from topoopt.bandwidth.model.time_model import compile_time
from topoopt.bandwidth.solve.constraints import parse_constraints
from topoopt.bandwidth.solve.problem import AllocationObjective, AllocationProblem
from topoopt.bandwidth.solve.question import Question
from topoopt.bandwidth.solve.quick import largest_sum, minorant_at, quick_bound
from topoopt.bandwidth.solve.solver import solve
from topoopt.topology.zoo.blocks import BuildingBlock

G = 1e9
GPT, REPLICA = PUBLISHED_WORKLOADS["gpt-3"]


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
    assert limits[1] == BlockLimit(BuildingBlock.FULLY_CONNECTED, 3, 4)
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


def test_a_fixed_division_is_the_usual_communicator():
    network = parse_network("RI(4)_FC(8)_RI(4)_SW(32)")
    division = fixed_division(builtin_workload("gpt-3"), network.npus)
    made = lay(network, (division.layout.tensor, division.layout.data))
    usual = hybrid_communicator(network, 16)
    assert made[0].sizes == usual.groups[0].sizes
    assert made[1] == usual.groups[2]


def test_divisions_keep_the_global_batch_and_fit_in_memory():
    divisions = transformer_divisions(GPT, REPLICA, 1024, memory=40e9)
    assert len({w.label for w in divisions}) == len(divisions) > 20
    parameters = 96 * 12 * 12288**2 + 50257 * 12288
    for w in divisions:
        layout = w.layout
        assert layout.gpus == layout.tensor * layout.data * layout.pipeline == 1024
        assert parameters / layout.tensor / layout.pipeline * (4 + 12 / layout.data) <= 40e9
        # 16 sequences on 16 NPUs: one an NPU, in every division.
        assert w.microbatches * layout.microbatch * layout.data == 1024
        if layout.pipeline > 1:
            assert layout.microbatch == 1
            assert len(w.workload.layers) == 2 * 96 // layout.pipeline + 1
    everything = transformer_divisions(GPT, REPLICA, 1024, memory=inf)
    assert {w.label for w in divisions} < {w.label for w in everything}
    with pytest.raises(InfeasibleError, match="GB an NPU on 16 NPUs"):
        transformer_divisions(GPT, REPLICA, 16, memory=1e9)
    orders = {w.label: w.orders for w in divisions}
    inner = [[axis for axis in order if axis != "data"] for order in orders["TP 256 x DP 1 x PP 4"]]
    assert inner == [["tensor", "pipeline"], ["pipeline", "tensor"]]
    assert [w.label for w in builtin_divisions("dlrm", 64)] == ["TP 1 x DP 64"]
    assert "; 1 sequence an NPU in every" in builtin_divisions("gpt-3", 64)[0].workload.notes[0]
    assert len(builtin_divisions("resnet-50", 64)) > 2


def test_stages_stretch_the_iteration_as_the_bubble_says():
    network = parse_network("SW(8)_SW(4)")
    division = next(
        each for each in transformer_divisions(GPT, REPLICA, 32, memory=inf)
        if each.label == "TP 8 x DP 1 x PP 4"
    )  # fmt: skip
    inside_out = ("tensor", "pipeline", "data")
    layers = division_layers(network, division, inside_out)
    spent = total(
        layer.count * (layer.forward_compute + layer.input_grad_compute + layer.weight_grad_compute)
        for layer in layers
    ).constant
    m, p = division.microbatches, division.layout.pipeline
    assert spent == pytest.approx(division.workload.compute * (m + p - 1) / m)
    sent = layers[-1].forward_comm.evaluate([1.0, 1e9])
    assert sent == pytest.approx((m + p - 1) * GPT.sequence * GPT.hidden * 2 / 8 / 1e9)
    ring = parse_network("SW(8)_RI(4)")
    further = division_layers(ring, division, inside_out)[-1].forward_comm
    assert further.evaluate([1.0, 1e9]) == pytest.approx(2 * sent)
    uneven = Division(division.workload, Layout(2, data=12))
    assert division_layers(parse_network("SW(3)_SW(8)"), uneven, inside_out) is None


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
    objective = AllocationObjective(["time", "time*cost", "cost"][seed % 3])
    model = compile_time(time, n)
    deadline = None
    if objective == AllocationObjective.COST:
        deadline = 1.5 * model.time(np.full(n, 500 * G / n))
    return AllocationProblem(model, prices, fixed, limits, objective, deadline)


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
        constant, loads = minorant_at(problem.time, at)
        assert constant + float((loads / at).sum()) == pytest.approx(problem.time.time(at))
        assert constant + float((loads / other).sum()) <= problem.time.time(other) * (1 + 1e-9)
    assert np.median(ratios) > 0.6


@pytest.mark.parametrize("objective", [AllocationObjective.TIME, AllocationObjective.TIME_COST])
def test_a_search_over_shapes_equals_one_allocation_after_the_other(objective):
    shapes = network_shapes(64, 3, parse_limits("RI(2..8),FC(3..8),SW(8..64)"))
    job = builtin_workload("gpt-3", 8)
    question = Question(budget="500GB/s", objective=objective)
    found = search_designs(shapes, [fixed_division(job, 64)], question, keep=5)
    every = [
        (answer.solution.primal, network.notation)
        for network in shapes
        for answer in [allocate_bandwidth(network, job, question)]
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


@pytest.mark.slow
def test_pruning_and_processes_do_not_change_the_answer():
    shapes = network_shapes(32, 3)
    divisions = transformer_divisions(GPT, REPLICA, 32, memory=inf)
    question = Question(budget="500GB/s", loop=Loop.OVERLAP)
    plain = search_designs(shapes[::18], divisions, question, keep=4, prune=False)
    pruned = search_designs(shapes[::18], divisions, question, keep=4)
    spread = search_designs(shapes[::18], divisions, question, keep=4, jobs=2)
    assert plain.tally.pruned == 0 < pruned.tally.pruned
    assert pruned.tally == spread.tally
    names = [[describe_design(d.network, d.division, d.order) for d in r.designs]
             for r in (plain, pruned, spread)]  # fmt: skip
    assert names[1] == names[2]
    for one, two in zip(plain.designs, pruned.designs, strict=True):
        assert one.solution.primal == pytest.approx(two.solution.primal, rel=2e-7)
    assert [d.solution.primal for d in pruned.designs] == [
        d.solution.primal for d in spread.designs
    ]


def test_an_interrupted_search_returns_what_it_found():
    shapes = network_shapes(256, 4)
    division = fixed_division(builtin_workload("gpt-3"), 256)
    seen = []

    def stop(*report):
        seen.append(report)
        raise KeyboardInterrupt

    found = search_designs(shapes, [division], Question(budget="500GB/s"), progress=stop)
    assert found.interrupted
    assert found.designs
    done, total, best = seen[0]
    assert 0 < done < total == found.candidates
    assert best >= found.designs[0].solution.primal * (1 - 1e-9)


def test_shapes_whose_dimensions_get_nothing_but_rounding_break_the_constraints():
    job = builtin_workload("resnet-50")
    question = Question(budget="500GB/s", constraints=("b0 == 500",))
    shapes = network_shapes(16, 2)
    found = search_designs(shapes, [fixed_division(job, 16)], question, keep=20)
    assert {design.network.dimensions for design in found.designs} == {1}
    assert found.tally.infeasible > 0


def test_a_search_that_has_no_answer_says_so():
    shapes = network_shapes(32, 2)
    division = fixed_division(builtin_workload("gpt-3"), 32)
    with pytest.raises(InputError, match="--budget"):
        search_designs(shapes, [division], Question())
    with pytest.raises(InfeasibleError, match="none of"):
        search_designs(
            shapes,
            [division],
            Question(budget="<= 500GB/s", objective=AllocationObjective.COST, deadline=1e-3),
        )
    with pytest.raises(InputError, match="mixes 32 and 64"):
        search_designs(
            shapes, [fixed_division(builtin_workload("gpt-3"), 64)], Question(budget="5GB/s")
        )
    with pytest.raises(InputError, match="at least 1 each"):
        search_designs([], [division], Question())
    with pytest.raises(InputError, match="b1"):
        search_designs(shapes, [division], Question(budget="5GB/s", constraints=["b1 <= 3"]))


def test_a_deadline_search_is_the_cheapest():
    shapes = network_shapes(32, 2)
    division = fixed_division(builtin_workload("gpt-3", 4), 32)
    fastest = (
        search_designs(shapes, [division], Question(budget="500GB/s"), keep=1)
        .designs[0]
        .solution.time
    )
    found = search_designs(
        shapes,
        [division],
        Question(budget="<= 500GB/s", objective=AllocationObjective.COST, deadline=1.2 * fastest),
        keep=2,
    )
    prices = default_cost()
    costs = []
    for network in shapes:
        try:
            answer = allocate_bandwidth(
                network,
                division.workload,
                Question(
                    budget="<= 500GB/s", objective=AllocationObjective.COST, deadline=1.2 * fastest
                ),
            )
        except InfeasibleError:
            continue
        costs.append(answer.solution.cost)
    assert found.designs[0].solution.cost == pytest.approx(min(costs), rel=1e-6)
    network = found.designs[0].network
    assert len(cost_coefficients(network, prices)) == network.dimensions


@pytest.mark.slow
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
