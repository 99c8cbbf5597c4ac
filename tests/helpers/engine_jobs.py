"""Jobs at the top level of a module, as worker processes need them."""

import os
import signal
import time


def square(x, after=0.0):
    time.sleep(after)
    return x * x


def where(x):
    return os.getpid(), os.environ.get("NUMBA_NUM_THREADS")


def deaf(x):
    """Say whether this process was started without hearing Ctrl-C."""
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def shared_and_own(common, x):
    return os.getpid(), id(common), common["base"] + x


def die(x):
    if x == 1:
        os._exit(9)
    time.sleep(0.1)
    return x


def fail(x):
    raise ValueError(f"no {x}")


def interrupt(x):
    if x == 2:
        raise KeyboardInterrupt
    return x
