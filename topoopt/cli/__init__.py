"""The command line: one module a command, all of them thin.

Standard output holds the answer only (text, or JSON with ``--json``); progress and messages go
to standard error. Exit status: 0 done, 2 wrong input (one sentence says what and how to correct
it), 130 interrupted without a result.
"""

from topoopt.cli.app import main

__all__ = ["main"]
