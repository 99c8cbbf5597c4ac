"""A task graph that stands for a larger one against it: bytes, bounds and times are the same."""

import numpy as np
import pytest

from parallelism.taskgraph import traffic_of
from topoopt.bounds.bounds import strategy_bound
from topoopt.bounds.wired import collective_bound, routes_bound, topology_bound
from topoopt.fabric.fluid import run_fluid
from topoopt.fabric.loads import demand_of, link_bytes


def same_terms(one, other):
    assert one.terms == pytest.approx(other.terms, rel=1e-9)


def check_traffic(whole, own):
    before, after = traffic_of(whole), traffic_of(own)
    assert before.groups == after.groups  # in the order of use, which wirings go by
    np.testing.assert_allclose(before.transfers, after.transfers, rtol=1e-9)
    np.testing.assert_allclose(before.group_bytes, after.group_bytes, rtol=1e-9)
    same_terms(*(strategy_bound(each, 4, 5e10, 1e-6) for each in (whole, own)))


def check_on(fabric, whole, own, *, collapsed=True):
    """Compare on a fabric; ``collapsed`` is how the whole is simulated."""
    np.testing.assert_allclose(link_bytes(fabric, whole), link_bytes(fabric, own), rtol=1e-9)
    np.testing.assert_allclose(demand_of(fabric, whole), demand_of(fabric, own), rtol=1e-9)
    for bound in (topology_bound, routes_bound, collective_bound):
        same_terms(bound(fabric, whole), bound(fabric, own))
    time = run_fluid(fabric, whole, collapsed=collapsed).makespan
    again = run_fluid(fabric, whole, resolve_all=True, collapsed=collapsed).makespan
    # Devices are first in first out: where rounding alone says what was first, any two ways
    # to work out the rates of the whole differ as well, and there is nothing to compare.
    if abs(again - time) <= 1e-11 * again:
        assert run_fluid(fabric, own).makespan == pytest.approx(time, rel=1e-9)
