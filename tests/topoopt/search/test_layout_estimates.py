"""Estimates of layouts against their task graphs on a switch of the same ports."""

import numpy as np
import pytest

import topoopt as to
from parallelism.transformers.implementation import get_stack
from parallelism.transformers.layout import Layout
from parallelism.transformers.placement import AXES, Placement
from topoopt.evaluate.problem import Problem
from topoopt.problem.options import SearchOptions
from topoopt.search.layouts import LayoutSearch
from topoopt.search.placed_times import switched_s


def searched(name, ports, batch, stack="megatron-core", servers=8):
    job = to.Job(to.load_transformer(name), global_batch=batch, implementation=get_stack(stack))
    cluster = to.Cluster(servers, 4, ports)
    return LayoutSearch(Problem(job.family(servers), cluster, SearchOptions(), 0))


def compared(search, layouts, order=AXES):
    """Return estimates and simulated times, seconds, with the ranks in an order of axes."""
    family, cluster = search.family, search.cluster
    rate = cluster.degree * cluster.port_rate
    pairs = [
        (family.estimate(place, rate), switched_s(search.problem, place))
        for place in (Placement(layout, 8, order) for layout in layouts)
    ]
    return np.array(pairs).T


@pytest.mark.parametrize(
    ("name", "ports", "batch", "least", "count"),
    [
        ("llama3-8b", "25Gbps", 128, 0.63, 16),
        pytest.param("llama3-8b", "25Gbps", 128, 0.63, 40, marks=pytest.mark.slow),
        pytest.param("llama3-8b", "400Gbps", 128, 0.95, 40, marks=pytest.mark.slow),
        pytest.param("mixtral-8x7b", "25Gbps", 64, 0.63, 40, marks=pytest.mark.slow),
        pytest.param("mixtral-8x7b", "400Gbps", 64, 0.85, 40, marks=pytest.mark.slow),
    ],
)
def test_estimates_order_layouts_as_a_switch_does(name, ports, batch, least, count) -> None:
    # What they leave out makes them low, by less the faster ports are; where several stages are on
    # a server, half of what the others send goes first, which may be too much. Of the layouts that
    # fit every so manieth is simulated, so that so many are.
    from scipy.stats import spearmanr  # its modules take longer than most tests

    search = searched(name, ports, batch)
    family = search.family
    fit = [x for x in family.layouts() if max(u.total for u in family.uses(x)) < 80e9]
    estimates, times = compared(search, fit[:: len(fit) // count])
    ratios = estimates / times
    assert least < ratios.min() and ratios.max() < 1.2
    assert np.median(ratios) < 1.01
    assert spearmanr(estimates, times).statistic > 0.93
    assert times[estimates.argmin()] < 1.15 * times.min()


@pytest.mark.parametrize(
    ("name", "ports", "least", "off"),
    [
        ("mixtral-8x7b", "100Gbps", 0.85, 0.05),
        pytest.param("llama3-8b", "25Gbps", 0.7, 0.085, marks=pytest.mark.slow),
    ],
)
def test_estimates_know_stages_that_share_the_ports_of_a_server(name, ports, least, off) -> None:
    search = searched(name, ports, 128)
    family = search.family
    fit = [x for x in family.layouts() if max(u.total for u in family.uses(x)) < 80e9]
    shared = [x for x in fit if 1 < x.pipeline <= 8]
    every = shared[:: len(shared) // 24]
    estimates, times = compared(search, every, ("context", "pipeline", "data"))
    ratios = estimates / times
    assert least < ratios.min() and ratios.max() < 1.15
    assert abs(ratios - 1.0).mean() < off


@pytest.mark.parametrize("stack", ["fsdp1", "megatron-moe"])
@pytest.mark.parametrize(
    "layout",
    [
        Layout(data=64, expert=8, zero=0),
        Layout(data=64, expert=8, zero=1),
        Layout(data=64, expert=8, zero=2),
        Layout(data=64, expert=8, zero=3, recompute="full"),
        Layout(data=64, expert=8, zero=2, replicate=8),
        Layout(data=64, expert=4, zero=3, replicate=4),
        Layout(tensor=2, context=4, data=4, pipeline=2, expert=4),
        Layout(tensor=8, data=2, pipeline=4, expert=2),
    ],
    ids=str,
)
def test_estimates_know_what_ranks_wait_for(layout, stack) -> None:
    search = searched("mixtral-8x7b", "100Gbps", 128, stack)
    (estimate,), (time,) = compared(search, [layout])
    assert estimate == pytest.approx(time, rel=0.05)


@pytest.mark.parametrize(("context", "data"), [(4, 4), (8, 2)])
def test_estimates_know_keys_and_values_that_go_beside_tokens(context, data) -> None:
    search = searched("mixtral-8x7b", "100Gbps", 128, "megatron-moe")
    layout = Layout(tensor=4, context=context, data=data, expert=8)
    (estimate,), (time,) = compared(search, [layout])
    assert estimate == pytest.approx(time, rel=0.08)


def test_estimates_know_tensor_groups_that_span_servers() -> None:
    search = searched("llama3-8b", "400Gbps", 32)
    layout = Layout(tensor=16, data=2, pipeline=2, sequence_parallel=True)
    (estimate,), (time,) = compared(search, [layout])
    assert estimate == pytest.approx(time, rel=0.05)
