"""What to say about a name that does not exist."""

import difflib
from collections.abc import Iterable

# A sentence does not list more names than this.
_MOST = 24


# Names longer than this may have a second edit; in shorter ones it often makes another field.
_LONG = 12


def misspelt(word: str, known: str) -> bool:
    """Whether a name looks like a slip of another: one edit away, or two of a long one.

    An edit drops, adds or changes a letter, or swaps two neighbours (the optimal string alignment
    distance). Names that differ in case and separators alone are slips, too.

    Examples
    --------
    >>> misspelt("num_hiden_layers", "num_hidden_layers"), misspelt("qk_head_dim", "v_head_dim")
    (True, False)
    """
    first, second = (name.lower().replace("-", "_") for name in (word, known))
    if first.replace("_", "") == second.replace("_", ""):
        return True
    most = 1 + (len(known) > _LONG)
    return abs(len(first) - len(second)) <= most and _edits(first, second) <= most


def _edits(first: str, second: str) -> int:
    """Return the edits between two words, row by row of the usual table."""
    before: list[int] = []
    row = list(range(len(second) + 1))
    for i, letter in enumerate(first, 1):
        earlier, before, row = before, row, [i]
        for j, other in enumerate(second, 1):
            edits = min(row[j - 1] + 1, before[j] + 1, before[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == second[j - 2] and first[i - 2] == other:
                edits = min(edits, earlier[j - 2] + 1)
            row.append(edits)
    return row[-1]


def choice(word: str, known: Iterable[str]) -> str:
    """Return ``"did you mean 'x', or choose a, b, x"``; without a near miss the choice alone."""
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1)
    meant = f"did you mean {near[0]!r}, or " if near else ""
    return f"{meant}choose {', '.join(names)}"


def suggestion(word: str, known: list[str]) -> str:
    """Return ``"did you mean 'x'?"`` for a near miss, else the list of what is known."""
    near = difflib.get_close_matches(word, known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    rest = f" and {len(known) - _MOST} more" if len(known) > _MOST else ""
    return f"known: {', '.join(known[:_MOST])}{rest}"
