"""Code in pages of Markdown."""

import re


def blocks(text, language):
    """Return the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def cells(text):
    """Return the code cells of a tutorial."""
    return blocks(text, r"\{code-cell\} python")
