"""What to say about a name that does not exist."""

import difflib

# A sentence does not list more names than this.
_MOST = 24


def suggestion(word: str, known: list[str]) -> str:
    """Return ``"did you mean 'x'?"`` for a near miss, else the list of what is known."""
    near = difflib.get_close_matches(word, known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    rest = f" and {len(known) - _MOST} more" if len(known) > _MOST else ""
    return f"known: {', '.join(known[:_MOST])}{rest}"
