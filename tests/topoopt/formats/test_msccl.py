"""MSCCL files: executed on numbers, the result is the sum, over the rings' edges alone."""

from collections import Counter
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msccl_oracle import execute

from codesign_base import InputError
from topoopt.formats.msccl import ring_allreduce


@given(st.integers(2, 7), st.integers(1, 3), st.data())
@settings(max_examples=40, deadline=None)
def test_every_rank_ends_with_the_sum(size, count, data):
    rings = [data.draw(st.permutations(range(size))) for _ in range(count)]
    text = ring_allreduce("test", rings)
    top = ElementTree.fromstring(text)
    chunks = int(top.get("nchunksperloop"))
    buffers = np.random.default_rng(size).integers(0, 1000, (size, chunks))
    total = buffers.sum(axis=0)
    sent = execute(text, buffers)
    assert (buffers == total).all()
    # Each ring sends 2 (n - 1) / n of its part over each of its edges.
    expected = Counter()
    for ring in rings:
        for a, b in zip(ring, [*ring[1:], ring[0]], strict=True):
            expected[a, b] += 2 * (size - 1)
    assert sent == expected


def test_the_file_has_what_readers_of_it_expect():
    top = ElementTree.fromstring(ring_allreduce("two", [[0, 1, 2], [0, 2, 1]], "LL128"))
    assert top.attrib == {
        "name": "two", "proto": "LL128", "nchannels": "2", "nchunksperloop": "6", "ngpus": "3",
        "coll": "allreduce", "inplace": "1",
    }  # fmt: skip
    assert [gpu.get("i_chunks") for gpu in top] == ["6", "6", "6"]
    assert [block.get("chan") for block in top[0]] == ["0", "1"]


@pytest.mark.parametrize("rings", [[], [[0]], [[0, 1, 1]], [[0, 1], [0, 1, 2]]])
def test_what_is_no_ring_is_refused(rings):
    with pytest.raises(InputError, match="ring"):
        ring_allreduce("wrong", rings)
    with pytest.raises(InputError, match="protocol"):
        ring_allreduce("wrong", [[0, 1]], "fast")
