"""The command line: one module a command, all of them thin.

Standard output holds the answer only (text, or JSON with ``--json``); progress and messages go
to standard error. Exit status: 0 done, 2 wrong input (one sentence says what and how to correct
it), 130 interrupted without a result.
"""

import gc
import sys


def main() -> None:
    """Run the command line; Ctrl-C ends in one line and status 130, while modules load, too."""
    try:
        from topoopt.cli.app import main as run

        run()
    except KeyboardInterrupt:
        print("interrupted: there is no result yet, nothing was written", file=sys.stderr)
        sys.exit(130)
    finally:
        # The process ends here: looking through all it holds for garbage would take 0.3 s.
        gc.freeze()


__all__ = ["main"]
