"""Classes of equal words, numbered by their first members, against a dictionary."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from parallelism.alike import firsts, numbered


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1), st.just(2**64 - 1)), max_size=200
    )
)
def test_classes_are_those_of_a_dictionary(words):
    known: dict[int, int] = {}
    expected = [known.setdefault(word, len(known)) for word in words]
    of, first = numbered(np.array(words, dtype=np.uint64))
    assert of.tolist() == expected
    assert first.tolist() == [words.index(word) for word in known]
    assert firsts(of).tolist() == first.tolist()


def test_many_words_of_one_slot_are_told_apart():
    words = np.arange(5000, dtype=np.uint64) << np.uint64(40)
    of, first = numbered(np.concatenate((words, words[::-1])))
    assert first.tolist() == list(range(5000))
    assert of.tolist() == [*range(5000), *range(4999, -1, -1)]
