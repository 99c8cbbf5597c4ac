"""MSCCL files: executed on numbers, results are right, over the rings' edges alone."""

from collections import Counter
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msccl_oracle import assert_right

from codesign_base import InputError
from topoopt.formats.msccl import ring_allgather, ring_allreduce, ring_reduce_scatter

# Rounds in which each rank of a ring sends one of n parts.
ROUNDS = {ring_allreduce: 2, ring_reduce_scatter: 1, ring_allgather: 1}


@pytest.mark.parametrize("write", ROUNDS)
@given(st.integers(2, 7), st.integers(1, 3), st.data())
@settings(max_examples=25, deadline=None)
def test_every_rank_ends_with_its_result(write, size, count, data):
    rings = [data.draw(st.permutations(range(size))) for _ in range(count)]
    sent = assert_right(write("test", rings), size)
    expected = Counter()
    for ring in rings:
        for a, b in zip(ring, [*ring[1:], ring[0]], strict=True):
            expected[a, b] += ROUNDS[write] * (size - 1)
    assert sent == expected


def test_the_file_has_what_readers_of_it_expect():
    """Without maxBytes microsoft/msccl leaves buffers of 128 MiB and more to NCCL's own rings."""
    top = ElementTree.fromstring(ring_allreduce("two", [[0, 1, 2], [0, 2, 1]]))
    assert top.attrib == {
        "name": "two", "proto": "Simple", "nchannels": "2", "nchunksperloop": "6", "ngpus": "3",
        "coll": "allreduce", "inplace": "1", "outofplace": "0", "minBytes": "0",
        "maxBytes": str(2**40),
    }  # fmt: skip
    assert [gpu.get("i_chunks") for gpu in top] == ["6", "6", "6"]
    assert [block.get("chan") for block in top[0]] == ["0", "1"]


@pytest.mark.parametrize("rings", [[], [[0]], [[0, 1, 1]], [[0, 1], [0, 1, 2]]])
def test_what_is_no_ring_is_refused(rings):
    with pytest.raises(InputError, match="ring"):
        ring_allreduce("wrong", rings)


def test_a_ring_of_four_is_what_msccl_tools_compile():
    """Steps of GPU 0 in the output of examples/mscclang/simple/allreduce_ring.py 4 1."""
    top = ElementTree.fromstring(ring_allreduce("four", [[0, 1, 2, 3]]))
    steps = [(step.get("type"), step.get("srcoff")) for step in top[0][0]]
    assert steps == [
        ("s", "0"), ("rrs", "3"), ("rrs", "2"), ("rrcs", "1"), ("rcs", "0"), ("rcs", "3"),
        ("r", "2"),
    ]  # fmt: skip
