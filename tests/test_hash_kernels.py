"""The hash inside kernels is that of whole arrays, and of a plain splitmix64."""

import numpy as np
from numba import njit
from packet_oracle import hashed

from codesign_base.hash_kernels import hash_word
from parallelism.alike import hash_words


@njit
def one_hash(value):
    return hash_word(value)


def test_one_word_and_many_have_the_hash_of_splitmix64() -> None:
    values = (0, 1, 12345, 2**63, 2**64 - 1)
    expected = [hashed(value) for value in values]
    # As published with the generator: what it gives first from the seed 0.
    assert expected[0] == 0xE220A8397B1DCDAF
    assert [int(one_hash(np.uint64(value))) for value in values] == expected
    assert hash_words(np.array(values, dtype=np.uint64)).tolist() == expected
