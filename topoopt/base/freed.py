"""Memory that is free, given back to the system."""

import ctypes
from functools import cache
from typing import Any


def give_back() -> None:
    """Give the system the pages that hold nothing any more, where the C library can do that.

    Arrays of some megabytes that come and go in several threads leave pages behind that glibc
    keeps: many times what is in use.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return None
