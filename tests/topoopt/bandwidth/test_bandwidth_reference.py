"""Published optima: from LIBRA's files where they are at hand, and from folded numbers always."""

import numpy as np
import pytest
from published_data import published_data

from topoopt.bandwidth.allocate import allocate_bandwidth
from topoopt.bandwidth.model.collectives import PartialGroups
from topoopt.bandwidth.model.communicator import load_communicator
from topoopt.bandwidth.model.cost import cost_coefficients, default_cost, load_cost
from topoopt.bandwidth.model.expressions import comm, compute
from topoopt.bandwidth.model.loops import Loop
from topoopt.bandwidth.model.network import load_multi_dim_network, parse_network
from topoopt.bandwidth.model.time_model import compile_time
from topoopt.bandwidth.model.workload import load_layer_workload
from topoopt.bandwidth.solve.constraints import parse_constraints
from topoopt.bandwidth.solve.problem import AllocationObjective, AllocationProblem
from topoopt.bandwidth.solve.question import Question
from topoopt.bandwidth.solve.solver import solve

DATA = published_data("libra")
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="no LIBRA input files")
SHIPPED = ("sum(b) == 1000", "b0 == 500", "b0 >= b1 >= b2", "b2 + b3 == 200")
ALL = [(w, d) for w in ("GPT_3", "MSFT_1T", "ResNet_50", "Turing_NLG") for d in (3, 4)]


def allocation(workload, dimensions, objective, constraints=("sum(b) == 500",), **options):
    network = load_multi_dim_network(DATA / "network" / f"{dimensions}d_network.yml")
    letter = "D" if workload == "Turing_NLG" else "d"
    groups = DATA / "communicator" / f"{workload}_{dimensions}{letter}.yml"
    options.setdefault("partial", PartialGroups.FULL)
    return allocate_bandwidth(
        network,
        load_layer_workload(DATA / "workload" / f"{workload}.txt"),
        Question(
            constraints=constraints,
            objective=AllocationObjective(objective),
            cost=load_cost(DATA / "cost_model" / f"{dimensions}d_cost_model.yml"),
            **options,
        ),
        load_communicator(groups, network),
    )


@needs_data
@pytest.mark.parametrize(
    ("workload", "dimensions", "objective", "bandwidth", "milliseconds", "million"),
    [
        ("GPT_3", 3, "time", (397.6, 90.0, 12.5), 727.44, 10.9161),
        ("GPT_3", 4, "time", (338.4, 84.6, 58.2, 18.8), 722.41, 9.5271),
        ("GPT_3", 4, "time*cost", (448.8, 44.6, 5.00, 1.61), 813.45, 4.8680),
        ("ResNet_50", 4, "time", (375.1, 109.4, 11.7, 3.79), 1.2993, 5.9472),
        ("ResNet_50", 4, "time*cost", (419.8, 70.2, 7.52, 2.43), 1.4131, 5.2843),
    ],
)
def test_reference_optima(workload, dimensions, objective, bandwidth, milliseconds, million):
    answer = allocation(workload, dimensions, objective)
    found = answer.solution
    assert found.time * 1e3 == pytest.approx(milliseconds, rel=1e-4)
    assert found.cost / 1e6 == pytest.approx(million, rel=1e-4)
    assert found.bandwidth / 1e9 == pytest.approx(bandwidth, abs=0.1)
    assert found.gap <= 1e-7
    assert answer.problem.constraints.violation(found.bandwidth) <= 1e-9


@needs_data
def test_shipped_constraints():
    found = allocation("GPT_3", 4, "time", SHIPPED).solution
    assert found.bandwidth / 1e9 == pytest.approx((500, 300, 151.2, 48.8), abs=0.1)
    assert found.time == pytest.approx(0.70844, rel=1e-4)
    assert found.cost == pytest.approx(22.97e6, rel=1e-3)


@needs_data
def test_usable_links_only():
    found = allocation("GPT_3", 4, "time", partial=PartialGroups.USABLE).solution
    assert found.time == pytest.approx(0.73879, rel=1e-4)
    assert found.bandwidth / 1e9 == pytest.approx((300, 175, 18.8, 6.1), abs=0.15)


@needs_data
@pytest.mark.parametrize("objective", ["time", "time*cost"])
@pytest.mark.parametrize("loop", list(Loop))
@pytest.mark.parametrize(("workload", "dimensions"), ALL)
def test_every_combination_is_proven(workload, dimensions, loop, objective):
    answer = allocation(workload, dimensions, objective, loop=loop)
    problem, found = answer.problem, answer.solution
    assert found.gap <= 1e-7
    assert problem.constraints.violation(found.bandwidth) <= 1e-9
    assert found.primal <= problem.value(answer.equal) * (1 + 1e-9)
    times = answer.workloads[0]
    assert times.compute + sum(times.exposed) == pytest.approx(times.iteration)


def test_reference_optimum_from_folded_numbers():
    """GPT-3 on four dimensions: two patterns and the sum of compute say everything."""
    network = parse_network("RI(4)_FC(8)_RI(4)_SW(32)")
    tensor, data = 805306368.0, 452984832.0
    gathered = 16 * 50331648.0  # an AllGather's shards, at half an AllReduce's load each
    first = (3 / 4, 3 / 16, 0.0, 0.0)
    rest = (0.0, 1 / 2, 3 / 8, 31 / 256)
    time = compute(0.684448242) + comm(first, 2 * 8 * tensor + 2 * gathered) + comm(rest, 2 * data)
    cost = cost_coefficients(network, default_cost())
    limits = parse_constraints(["sum(b) == 500"], 4, cost)
    model = compile_time(time, 4)
    found = solve(AllocationProblem(model, cost, 0.0, limits))
    assert found.time * 1e3 == pytest.approx(722.41, rel=1e-4)
    assert found.bandwidth / 1e9 == pytest.approx((338.4, 84.6, 58.2, 18.8), abs=0.1)
    assert found.cost / 1e6 == pytest.approx(9.5271, rel=1e-4)
    found = solve(AllocationProblem(model, cost, 0.0, limits, AllocationObjective.TIME_COST))
    assert found.time * 1e3 == pytest.approx(813.45, rel=1e-4)
    assert found.cost / 1e6 == pytest.approx(4.8680, rel=1e-4)
    assert found.bandwidth / 1e9 == pytest.approx((448.8, 44.6, 5.00, 1.61), abs=0.1)
    assert np.isclose(found.bandwidth.sum(), 500e9, rtol=1e-12)
