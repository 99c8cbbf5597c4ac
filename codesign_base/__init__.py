"""What all packages use: errors, checks of arguments, the decorator of compiled kernels, paths.

This package imports nothing of the project. ``routing`` and ``parallelism`` must not import
each other, so what both need is below them.
"""

from codesign_base.errors import InfeasibleError, InputError

__all__ = ["InfeasibleError", "InputError"]
