"""Trees as MSCCL files: executed on numbers, over the trees' links alone."""

from collections import Counter
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msccl_oracle import assert_right
from small_networks import network_of

from codesign_base import InputError
from routing.collectives.choice import ROOTED, choose_schedules
from routing.collectives.trees import Forest, Tree
from routing.network import Network
from topoopt.formats.msccl_blocks import BLOCKS_OF_CHANNEL, MOST_CHUNKS
from topoopt.formats.msccl_trees import MSCCL_NAMES, tree_collective


def network(hosts, seed):
    """A ring and a few more links, of rates from 1 to 3 GB/s."""
    draw = np.random.default_rng(seed)
    pairs = {(a, (a + 1) % hosts) for a in range(hosts)}
    while len(pairs) < 2 * hosts:
        a, b = draw.integers(hosts, size=2).tolist()
        pairs |= {(a, b)} if a != b else set()
    ends = sorted(pairs | {(b, a) for a, b in pairs})
    source, target = zip(*ends, strict=True)
    rates = draw.integers(1, 4, size=len(ends)) * 1e9
    return Network.from_links("drawn", hosts, 0, source, target, rates, 1e-6)


def sent(schedule, members, whole):
    """Count chunks from rank to rank that a schedule's trees carry."""
    found = Counter()
    for forest, back in ((schedule.scatter, True), (schedule.gather, False)):
        for tree in forest.trees if forest is not None else ():
            for path in tree.paths:
                ends = members.index(path[0]), members.index(path[-1])
                found[ends[::-1] if back else ends] += tree.copies * whole // forest.copies
    return found


@pytest.mark.parametrize("collective", MSCCL_NAMES)
@given(st.integers(4, 7), st.integers(0, 10**6), st.data())
@settings(max_examples=12, deadline=None)
def test_every_rank_ends_with_what_it_should(collective, hosts, seed, data):
    members = sorted(data.draw(st.permutations(range(hosts)))[: data.draw(st.integers(2, hosts))])
    root = data.draw(st.sampled_from(members)) if collective in ROOTED else None
    choice = choose_schedules(network(hosts, seed), members, collective, root)
    for schedule in choice.schedules:
        if schedule.meeting is not None or schedule.name == "add-all":
            continue
        text = tree_collective("drawn", collective, schedule.scatter, schedule.gather)
        top = ElementTree.fromstring(text)
        whole = int(top.get("nchunksperloop"))
        place = 0 if root is None else members.index(root)
        assert assert_right(text, seed, place) == sent(schedule, members, whole)


def test_roots_may_have_other_shares():
    # A mesh of two by three: its middle adds up more than its corners.
    pairs = [(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)]
    arcs = [*pairs, *((b, a) for a, b in pairs)]
    choice = choose_schedules(network_of(arcs, 6), range(6), "allreduce")
    (schedule,) = (s for s in choice.schedules if s.name == "reduce-broadcast")
    text = tree_collective("mesh", "allreduce", schedule.scatter, schedule.gather)
    whole = int(ElementTree.fromstring(text).get("nchunksperloop"))
    assert whole == schedule.gather.copies
    assert assert_right(text) == sent(schedule, range(6), whole)


def test_wide_steps_are_divided_and_channels_hold_their_blocks():
    # A star: its middle hears from and sends to more ranks than a channel has blocks for.
    size = BLOCKS_OF_CHANNEL + 8
    spokes = [tuple((0, leaf) for leaf in range(1, size))]
    spokes += [
        ((leaf, 0), *((0, k) for k in range(1, size) if k != leaf)) for leaf in range(1, size)
    ]
    trees = [Tree(root, copies, spokes[root]) for root in range(size) for copies in (100, 3)]
    forest = Forest("trees", tuple(range(size)), 1e9, 103, tuple(trees))
    text = tree_collective("star", "allreduce", forest, forest)
    assert_right(text)
    top = ElementTree.fromstring(text)
    assert max(int(step.get("cnt")) for step in top.iter("step")) == MOST_CHUNKS
    for gpu in top:
        used = Counter(block.get("chan") for block in gpu)
        assert max(used.values()) <= BLOCKS_OF_CHANNEL
        assert set(used) <= {str(channel) for channel in range(int(top.get("nchannels")))}


def test_what_has_no_trees_is_refused():
    with pytest.raises(InputError, match="0 sets of trees"):
        tree_collective("none", "allreduce", None, None)
    with pytest.raises(InputError, match="all-to-all"):
        tree_collective("none", "all-to-all", None, None)
