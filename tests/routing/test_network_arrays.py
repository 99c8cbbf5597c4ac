"""Networks hold their arrays in one form."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from codesign_base import InputError
from codesign_base.rows import summed
from routing.network import Network


def test_arrays_of_a_network_lie_in_one_way_however_it_was_made():
    # Kernels are compiled anew for strided arrays, and for arrays that may be written to.
    links = np.array([[0, 1], [1, 2], [2, 0]])
    ones = np.ones(3)
    made = Network("ring", 3, 0, links[:, 0], links[:, 1], ones, ones, np.ones(3, dtype=np.int64))
    again = pickle.loads(pickle.dumps(made))
    for network in (made, again, replace(made, capacity=np.full(6, 2.0)[::2])):
        for array in (network.source, network.target, network.capacity, network.multiplicity):
            assert array.flags.c_contiguous and not array.flags.writeable
        assert network.target.tolist() == [1, 2, 0]
    assert links.flags.writeable


def test_rates_of_nodes_add_up_their_links():
    links = [(0, 1, 2.0), (0, 2, 3.0), (1, 0, 7.0), (2, 1, 5.0)]
    source, target, capacity = (np.array(column) for column in zip(*links, strict=True))
    ones = np.ones(len(links), dtype=np.int64)
    network = Network("few", 2, 2, source, target, capacity, np.zeros(len(links)), ones)
    assert network.out_rate().tolist() == [5.0, 7.0, 5.0, 0.0]
    assert network.in_rate().tolist() == [7.0, 7.0, 3.0, 0.0]


def test_a_network_has_a_name():
    with pytest.raises(InputError, match="the name is ''; give it one"):
        Network.from_links("", 2, 0, [0], [1], 1.0, 0.0)


def test_sums_of_nothing_are_floats_too() -> None:
    none = np.zeros(0, dtype=np.int64)
    assert summed(none, np.zeros(0), 3).dtype == np.float64
    assert summed(np.array([2, 0, 2]), np.array([1.5, 2.0, 3.0]), 4).tolist() == [2.0, 0.0, 4.5, 0]
