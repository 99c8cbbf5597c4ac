"""What to say about a name that does not exist."""

import difflib
from collections.abc import Iterable

# A sentence does not list more names than this.
_MOST = 24


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
