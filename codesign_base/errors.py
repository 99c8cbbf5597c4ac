"""The two exceptions that users meet, and that every room raises or derives from."""


class InputError(ValueError):
    """The input is wrong; the message names it, its offending value and the mend.

    The command line prints the message and exits with status 2.
    """


class InfeasibleError(InputError):
    """The input is well formed, but nothing can satisfy it (memory, degree, budget).

    The message says by how much it fails and what would help.
    """
