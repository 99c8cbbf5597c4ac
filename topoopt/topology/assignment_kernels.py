"""The cheapest assignment of rows to columns, without loading a library for it.

`scipy.optimize.linear_sum_assignment` does the same, but importing it takes a twentieth of the time
in which a small job is planned; tests hold this one to it.
"""

import numpy as np

from codesign_base.arrays import Flags, Floats, Ints
from codesign_base.jit import inner_kernel, kernel


@kernel
def cheapest_assignment(cost: Floats) -> Ints:
    """Return the column of each row in an assignment of least total cost.

    Parameters
    ----------
    cost : float64 array, shape (n, n)
        Finite.

    Returns
    -------
    int64 array, shape (n,)
        A permutation.

    Notes
    -----
    Rows are assigned one after the other, each along the cheapest augmenting path by reduced costs,
    O(n^3) in all (Crouse, "On implementing 2D rectangular assignment algorithms", 2016, sec. II).
    Of paths that cost the same one that ends now is taken, else the one that was found first; the
    columns are looked at from the last one on, so that of equal costs comes the identity.
    """
    n = cost.shape[0]
    of_row, of_column = np.zeros(n), np.zeros(n)  # what reduces the costs
    column_of, row_of = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    before, left = np.empty(n, np.int64), np.empty(n, np.int64)
    least = np.empty(n)
    reached = np.zeros(n, np.bool_)
    for row in range(n):
        end, length = _cheapest_path(
            cost, row, of_row, of_column, row_of, before, left, least, reached
        )
        of_row[row] += length
        for column in range(n):
            if reached[column]:
                of_column[column] -= length - least[column]
                if row_of[column] >= 0:
                    of_row[row_of[column]] += length - least[column]
        column = end
        while column >= 0:
            one = before[column]
            row_of[column] = one
            column, column_of[one] = column_of[one], column
            if one == row:
                column = int(np.int64(-1))
    return column_of


@inner_kernel
def _cheapest_path(
    cost: Floats, row: int, of_row: Floats, of_column: Floats, row_of: Ints, before: Ints,
    left: Ints, least: Floats, reached: Flags,
) -> tuple[int, float]:  # fmt: skip
    """Return the free column where the cheapest path from a row ends, and its reduced length.

    ``before`` then holds the row from which each column is reached, ``least`` how far, and
    ``reached`` whether the path went on from it, or ends there.
    """
    n = cost.shape[0]
    count = n
    for place in range(n):
        left[place] = n - 1 - place
        least[place] = np.inf
        reached[place] = False
    length = 0.0
    while True:
        nearest = int(np.int64(-1))
        lowest = np.inf
        for place in range(count):
            column = left[place]
            reduced = length + cost[row, column] - of_row[row] - of_column[column]
            if reduced < least[column]:
                before[column] = row
                least[column] = reduced
            free = row_of[column] < 0
            if least[column] < lowest or (least[column] == lowest and free):
                lowest = least[column]
                nearest = place
        length = lowest
        column = left[nearest]
        reached[column] = True
        if row_of[column] < 0:
            return column, length
        row = row_of[column]
        count -= 1
        left[nearest] = left[count]
