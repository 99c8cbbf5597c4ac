"""Write files whole or not at all: a temporary neighbour, then an atomic replacement."""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from codesign_base import InputError
from codesign_base.paths import exists, is_directory, is_file


@contextlib.contextmanager
def open_atomically(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for binary writing; it appears under its name only when the block succeeds.

    An existing file keeps its permissions, and a symbolic link stays a link (its target is
    replaced). Devices and pipes such as ``/dev/stdout`` are written directly.

    Parameters
    ----------
    path : path-like
        The file to create or replace.

    Yields
    ------
    binary file
        Open for writing.

    Raises
    ------
    InputError
        If the directory is missing or not writable, or the path is a directory or a
        read-only file. Errors of the block itself pass through, and leave the old file.
    """
    target = Path(path)
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        mode = None
    except OSError as error:
        raise _unwritable(target, error) from None
    if mode is not None and stat.S_ISDIR(mode):
        raise InputError(f"cannot write {target}: it is a directory; name a file inside it")
    if mode is not None and not os.access(target, os.W_OK):
        raise InputError(f"cannot write {target}: the file is read-only; choose another path")
    if mode is not None and not stat.S_ISREG(mode):
        try:
            stream: BinaryIO = target.open("wb")
        except OSError as error:
            raise _unwritable(target, error) from None
        with stream:
            yield stream
        return

    final = target.resolve()
    temporary = final.parent / f".topoopt-{os.urandom(8).hex()}.tmp"
    try:
        # 0o666 lets the process's umask decide, as for any file that a program writes.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except OSError as error:
        raise _unwritable(target, error) from None
    try:
        with os.fdopen(descriptor, "wb") as stream:
            if mode is not None:
                temporary.chmod(stat.S_IMODE(mode))
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(final)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(final.parent)


def write_bytes_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file whole or not at all.

    Parameters
    ----------
    path : path-like
        The file to create or replace.
    data : bytes
        Its whole content.

    Raises
    ------
    InputError
        As `open_atomically`, and if the disk is full.
    """
    try:
        with open_atomically(path) as stream:
            stream.write(data)
    except OSError as error:
        raise _unwritable(Path(path), error) from None


def write_text_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Write a UTF-8 text file whole or not at all; see `write_bytes_atomically`."""
    write_bytes_atomically(path, text.encode())


class _NothingToWriteError(Exception):
    """Ends a file that was only begun."""


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a file that cannot be written, by beginning to write it.

    Nothing is left of it, and an existing file stays as it is. Devices and pipes are not opened.

    Raises
    ------
    InputError
        As `open_atomically`.
    """
    target = Path(path)
    if exists(target) and not is_file(target) and not is_directory(target):
        return
    with contextlib.suppress(_NothingToWriteError), open_atomically(target):
        raise _NothingToWriteError


def _unwritable(target: Path, error: OSError) -> InputError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        directory = target.resolve().parent  # of what a link leads to
        if is_directory(directory):
            return InputError(
                f"cannot write {target}: {directory} takes no new files; choose another path"
            )
        missing = directory if is_directory(target.parent) else target.parent
        return InputError(
            f"cannot write {target}: {missing} is not an existing directory; "
            "create it or choose another path"
        )
    reason = error.strerror or type(error).__name__
    return InputError(f"cannot write {target}: {reason.lower()}; choose another path")


def _sync_directory(directory: Path) -> None:
    # Makes the rename itself survive a power cut; some file systems cannot, which is no error.
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
