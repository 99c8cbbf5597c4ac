"""Write directories whole or not at all, and replace only those that were written so."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from codesign_base import InputError


def write_directory(files: Mapping[str, bytes], directory: str | Path, mark: str) -> None:
    """Write all files under a temporary name, and put them in place at once.

    Parameters
    ----------
    files : mapping of str to bytes
        By path within the directory, with forward slashes; one of them is the mark. Those that
        end in ``.sh`` may be executed.
    directory : str or Path
        Created, or replaced if it holds the mark.
    mark : str
        The file by which a directory is known for one that may be replaced.

    Raises
    ------
    InputError
        If something else is there, or it cannot be written.
    """
    target = Path(directory)
    check_replaceable(target, mark)
    try:
        with _beside(target) as new:
            for name, data in files.items():
                path = new / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                if path.suffix == ".sh":
                    path.chmod(0o755)
            _put(new, target)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise InputError(f"cannot write {directory}: {reason}; choose another path") from None


def check_replaceable(target: Path, mark: str) -> None:
    """Refuse a directory that must not be replaced.

    Raises
    ------
    InputError
        If it is a file, or holds anything without the mark.
    """
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise InputError(f"output {target} is not a directory; give another name")
    if target.is_dir() and any(target.iterdir()) and not (target / mark).is_file():
        raise InputError(
            f"output {target} holds other files and no {mark}; give a new or empty directory"
        )


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """Yield a new directory beside the target; nothing of it remains if the block fails."""
    parent = target.resolve().parent
    new = parent / f".topoopt-{os.urandom(8).hex()}.tmp"
    new.mkdir()
    try:
        yield new
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _put(new: Path, target: Path) -> None:
    """Rename a directory into place; the old one is only removed once the new one is there."""
    if not target.exists():
        new.rename(target)
        return
    old = new.with_suffix(".old")
    target.rename(old)
    try:
        new.rename(target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
