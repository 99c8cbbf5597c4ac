"""Dependencies of fused tasks against a set of pairs, sorted."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from parallelism.edge_kernels import merged_rows

TASKS = 6
PLACES = st.lists(st.integers(0, 3), min_size=TASKS, max_size=TASKS)
PAIRS = st.sets(st.tuples(st.integers(0, TASKS - 1), st.integers(0, TASKS - 1)), max_size=20)


@given(PAIRS, PLACES)
def test_rows_are_the_distinct_pairs_in_order(pairs, place) -> None:
    before, after = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2).T.copy()
    begin = np.searchsorted(before, np.arange(TASKS + 1)).astype(np.int64)
    offsets, rows, waits = merged_rows(begin, after, np.array(place, dtype=np.int64), 4)
    expected = sorted({(place[a], place[b]) for a, b in pairs if place[a] != place[b]})
    assert [(t, s) for t in range(4) for s in rows[offsets[t] : offsets[t + 1]].tolist()] == (
        expected
    )
    assert (offsets.size, offsets[-1]) == (5, rows.size)
    assert waits.tolist() == [sum(b == t for _, b in expected) for t in range(4)]
