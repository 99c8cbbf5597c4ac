"""The tuner's table by the rules of NCCL's example plugin: the first row that fits."""

import csv
import itertools
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_layouts import lone_layout_plan, shared_moe_plan
from small_plans import shared_layout_plan, shared_plan

from topoopt.deploy.deployment import deployment
from topoopt.deploy.msccl_files import channels_by_servers, reducing_groups
from topoopt.deploy.nccl_tuner import TUNED, nccl_tuner
from topoopt.plan.rank_groups import servers_of
from topoopt.plan.ranks import ranks_of
from topoopt.plan.records import RingRecord
from topoopt.topology.wiring import ring_orders


def chosen(text, kind, size, nodes, ranks):
    """Return algorithm, protocol and channels."""
    for row in csv.reader(line for line in text.splitlines() if not line.startswith("#")):
        assert len(row) == 8
        fits = row[0] == kind and int(row[1]) <= size <= int(row[2])
        if fits and row[6] in ("-1", str(nodes)) and row[7] in ("-1", str(ranks)):
            return row[3], row[4], int(row[5])
    raise AssertionError("no row fits")


def next_to_next(order, group):
    """Whether a ring goes from host to next host in the order of ranks, as NCCL's own do."""
    hosts = list(dict.fromkeys(rank.server for rank in group))
    at = order.index(hosts[0])
    return [*order[at:], *order[:at]] == hosts


@pytest.mark.parametrize("plan", [shared_plan, shared_layout_plan, shared_moe_plan])
@pytest.mark.parametrize("kind", TUNED)
def test_groups_take_the_rings_that_are_wired(plan, kind):
    made = deployment(plan())
    ranks = ranks_of(made.plan)
    text = nccl_tuner(made, ranks)
    orders = channels_by_servers(made)
    over = [group for group in reducing_groups(made.plan, ranks).values()
            if servers_of(group) in orders]  # fmt: skip
    assert over
    for group in over:
        servers = servers_of(group)
        few = min(
            sum(next_to_next(order, other) for order in orders[servers_of(other)])
            for other in over
            if (len(other), len(servers_of(other))) == (len(group), len(servers))
        )
        whole = chosen(text, kind, 10**9, len(servers), len(group))
        assert whole == ("ring", "simple", few)  # a cable of 100 Gbps is one channel
        assert chosen(text, kind, 1024, len(servers), len(group))[:2] == ("ring", "ll")
        # At the border ll's second copy of the bytes takes as long as it saves a step.
        border = len(group) * few * 12.5e9 * 11.3e-6
        assert chosen(text, kind, int(border) - 2, len(servers), len(group))[1] == "ll"
        assert chosen(text, kind, int(border) + 2, len(servers), len(group))[1] == "simple"


def test_everything_else_has_more_than_the_one_channel_of_the_plugin():
    made = deployment(shared_plan())
    text = nccl_tuner(made, ranks_of(made.plan))
    for kind in (*TUNED, "broadcast", "reduce"):
        for nodes in (1, 2, 77):
            assert chosen(text, kind, 2**40, nodes, 1234)[2] > 1


def test_a_server_alone_has_a_table():
    made = deployment(lone_layout_plan())
    text = nccl_tuner(made, ranks_of(made.plan))
    for kind in TUNED:
        assert chosen(text, kind, 2**20, 1, 4) == ("nvls", "simple", 16)
        assert chosen(text, kind, 2**20, 2, 8) == ("ring", "simple", made.degree)


@given(
    st.lists(st.permutations(range(4)), min_size=1, max_size=4),
    st.lists(st.integers(1, 5), min_size=12, max_size=12),
)
def test_channels_fill_cables_and_no_more(orders, numbers):
    pairs = itertools.permutations(range(4), 2)
    cables = {pair: list(range(number)) for pair, number in zip(pairs, numbers, strict=True)}
    rings = [RingRecord(0, list(order)) for order in orders]
    plan, cabling = SimpleNamespace(rings=rings), SimpleNamespace(ports_to=cables)
    made = SimpleNamespace(plan=plan, cabling=cabling)
    ((servers, channels),) = channels_by_servers(made).items()
    assert servers == (0, 1, 2, 3)
    # Every ring of the plan is a channel, and they come in the plan's order.
    assert tuple(channels[: len(orders)]) == ring_orders(r.wired for r in rings)[servers]

    def steps(order):
        return list(zip(order, (*order[1:], order[0]), strict=True))

    def used(rings):
        return Counter(step for ring in rings for step in steps(ring))

    wanted, taken = used(orders), used(channels)
    for pair, number in taken.items():
        assert number <= max(len(cables[pair]), wanted[pair])
    # No ring could come once more.
    for order in orders:
        assert any(taken[step] >= len(cables[step]) for step in steps(order))
    assert set(channels) == set(map(tuple, orders))
