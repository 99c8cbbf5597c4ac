"""All-to-alls over given paths: executed on numbers, over these paths alone."""

from collections import Counter
from itertools import pairwise, permutations
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msccl_oracle import assert_right

from codesign_base import InputError
from topoopt.formats.msccl_alltoall import routed_alltoall
from topoopt.formats.msccl_blocks import BLOCKS_OF_CHANNEL


def direct(size):
    return {pair: [pair] for pair in permutations(range(size), 2)}


@given(st.integers(2, 6), st.integers(1, 3), st.data())
@settings(max_examples=30, deadline=None)
def test_every_rank_gets_its_parts_over_the_paths(size, parts, data):
    paths, expected = {}, Counter()
    for a, b in permutations(range(size), 2):
        others = [rank for rank in range(size) if rank not in (a, b)]
        paths[a, b] = []
        for _ in range(parts):
            between = data.draw(st.permutations(others))[: data.draw(st.integers(0, len(others)))]
            paths[a, b].append((a, *between, b))
            expected.update(pairwise(paths[a, b][-1]))
    assert assert_right(routed_alltoall("test", size, paths), size) == expected


def test_no_channel_has_too_many_thread_blocks():
    size = 2 * BLOCKS_OF_CHANNEL + 3
    top = ElementTree.fromstring(routed_alltoall("many", size, direct(size)))
    for gpu in top:
        used = Counter(block.get("chan") for block in gpu if block.get("send") != "-1")
        assert sum(used.values()) == size - 1
        assert max(used.values()) <= BLOCKS_OF_CHANNEL
        assert set(used) <= {str(channel) for channel in range(int(top.get("nchannels")))}


@pytest.mark.parametrize("paths", [[(0, 2)], [(0, 1), (0, 1)], [(0, 2, 0, 1)], []])
def test_what_is_no_path_is_refused(paths):
    with pytest.raises(InputError, match="path"):
        routed_alltoall("wrong", 3, {**direct(3), (0, 1): paths})
