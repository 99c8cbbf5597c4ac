"""Calls for a second process, which finds them by this module's name."""

import os
import signal
import time
from pathlib import Path

LOADED = []


def load():
    """What a second process may be told to call first."""
    LOADED.append(os.getpid())


def loaded(factor):
    return LOADED


def multiplied(factor, value, added=0):
    return factor * value + added


def process(factor):
    return os.getpid()


def noisy(factor, value):
    print("not an answer")
    return factor * value


def failing(factor, where):
    Path(where, str(os.getpid())).touch()
    raise ValueError("as ever")


def dying(factor, here):
    if os.getpid() != here:
        os.kill(os.getpid(), signal.SIGKILL)
    return factor


def nothing_to_send(factor):
    return lambda: factor


def waiting_for(factor, path):
    """Return once a file is there."""
    while not Path(path).exists():
        time.sleep(0.01)
    return os.getpid()
