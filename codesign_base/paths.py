"""Whether a text that a user gave names a file: also where it cannot be a name at all."""

from pathlib import Path


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


__all__ = ["exists", "is_directory", "is_file"]
