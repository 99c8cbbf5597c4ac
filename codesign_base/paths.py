"""Whether a text that a user gave names a file: also where it cannot be a name at all."""

import os
from pathlib import Path

from codesign_base.errors import InputError


def exists(path: str | Path) -> bool:
    """Whether there is such a file or directory; not if the name is too long, or holds a NUL."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


def is_file(path: str | Path) -> bool:
    """Whether this is a file; see `exists`."""
    return exists(path) and Path(path).is_file()


def is_directory(path: str | Path) -> bool:
    """Whether this is a directory; see `exists`."""
    return exists(path) and Path(path).is_dir()


def names_model_file(text: str) -> bool:
    """Whether a model is meant as a file: by a suffix or a separator, which names lack."""
    return Path(text).suffix.lower() in (".yaml", ".yml", ".json") or "/" in text


def make_directory(path: str | Path, *, parents: bool = False) -> None:
    """Make a directory for results where there is none yet.

    Parameters
    ----------
    path : path
    parents : bool
        Make the directories above it, too.

    Raises
    ------
    InputError
        If it cannot be made: something else has its name, or, without ``parents``, there is no
        directory above it.
        If it may not be written.
    """
    try:
        Path(path).mkdir(parents=parents, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"directory {str(path)!r} cannot be made ({reason}); give another name"
        ) from None
    if not os.access(path, os.W_OK):
        raise InputError(f"directory {str(path)!r} may not be written; give another name")
