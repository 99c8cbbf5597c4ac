"""The two exceptions that users meet, and that every room raises or derives from."""


class InputError(ValueError):
    """The input is wrong; the message names it, its offending value and the remedy.

    The command line prints the message and exits with status 2.
    """

    def __str__(self) -> str:
        """Return the message as one line: names from files may hold breaks and control letters."""
        text = super().__str__()
        if text.isprintable():
            return text
        plain = "".join(letter if letter.isprintable() else " " for letter in text)
        return " ".join(plain.split())


class InfeasibleError(InputError):
    """The input is well formed, but nothing can satisfy it (memory, degree, budget).

    The message says by how much it fails and what would help.
    """
