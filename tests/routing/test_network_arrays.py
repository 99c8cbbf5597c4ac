"""Networks hold their arrays in one form."""

import pickle
from dataclasses import replace

import numpy as np

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
