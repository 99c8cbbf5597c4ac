"""Counts with their nouns."""

import numpy as np
import pytest

from codesign_base.counted import counted


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 switches"),
        (1, "1 switch"),
        (2, "2 switches"),
        (np.int64(1), "1 switch"),
        ("1", "1 switch"),
        ("1,001", "1,001 switches"),
        (-1, "-1 switches"),
    ],
)
def test_only_one_is_singular(count, text):
    assert counted(count, "switch", "switches") == text


def test_the_plural_is_that_with_an_s_unless_it_is_given():
    assert counted(3, "legal layout") == "3 legal layouts"
