"""What every room stands on: the exception tree and the compiled-kernel decorator.

This package imports nothing of the project. ``routing`` and ``parallelism`` must not import
each other, so the two things that both need live below them.
"""

from codesign_base.errors import InfeasibleError, InputError

__all__ = ["InfeasibleError", "InputError"]
