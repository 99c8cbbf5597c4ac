"""What to say about a name that does not exist."""

import difflib


def suggestion(word: str, known: list[str]) -> str:
    """Return ``"did you mean 'x'?"`` for a near miss, else the list of what is known."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
