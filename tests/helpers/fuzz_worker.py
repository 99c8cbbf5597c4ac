"""Runs cases of fuzzers, each with so much processor time at most: ``KIND,... FIRST END FOLDER``.

Prints a line a failing case, and the number of each case before it begins, so that whoever
started it knows which one never ended.
"""

import resource
import sys
from itertools import product
from pathlib import Path

import fuzzing

# Of processor time, whatever else the machine does; and bytes of memory.
SECONDS, BYTES = 300, 6 * 2**30


def main() -> None:
    """Run the cases of each kind."""
    kinds, first, end, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    for kind, case in product(kinds.split(","), range(first, end)):
        used = resource.getrusage(resource.RUSAGE_SELF)
        # The system ends the process, also inside of compiled code.
        spent = int(used.ru_utime + used.ru_stime)
        resource.setrlimit(resource.RLIMIT_CPU, (spent + SECONDS, resource.RLIM_INFINITY))
        print(f"case {case}", flush=True)
        wrong = fuzzing.failure(kind, case, folder)
        if wrong:
            print(f"failed {wrong}", flush=True)


main()
