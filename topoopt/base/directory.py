"""Write directories whole or not at all, and replace only those that were written so."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from codesign_base import InputError
from topoopt.base.version import installed_version

_LISTED = "files"


def write_directory(files: Mapping[str, bytes], directory: str | Path, mark: str) -> None:
    """Write all files under a temporary name, and put them in place at once.

    Parameters
    ----------
    files : mapping of str to bytes
        By path within the directory, with forward slashes; one of them is the mark. Those that
        end in ``.sh`` may be executed.
    directory : str or Path
        Created, or replaced if it holds the mark and nothing that was not written with it.
    mark : str
        The file by which a directory is known for one that may be replaced, see `mark_text`.

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


def mark_text(said: Mapping[str, Any], names: Iterable[str], mark: str) -> str:
    """Return the mark of a directory, which lists all files that are written with it.

    Parameters
    ----------
    said : mapping of str to JSON
        What else it says.
    names : iterable of str
        Of the other files.
    mark : str
    """
    document = {"version": installed_version(), **said, _LISTED: sorted({*names, mark})}
    return json.dumps(document, indent=2) + "\n"


def check_replaceable(target: Path, mark: str) -> None:
    """Refuse a directory that must not be replaced.

    Raises
    ------
    InputError
        If it is a file, or holds anything without the mark, or beside what was written with it.
    """
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise InputError(f"output {target} is not a directory; give another name")
    if not target.is_dir() or not any(target.iterdir()):
        return
    said = _said(target / mark)
    if said is None:
        raise InputError(
            f"output {target} holds other files and no {mark}; give a new or empty directory"
        )
    # Versions before this did not list what they wrote.
    written = said.get(_LISTED)
    there = (path for path in sorted(target.rglob("*")) if path.is_symlink() or path.is_file())
    for path in there:
        name = path.relative_to(target).as_posix()
        if isinstance(written, list) and name not in written:
            raise InputError(
                f"output {target} also holds {name!r}, which would be lost; move that elsewhere, "
                "or give another directory"
            )


def _said(mark: Path) -> dict[str, Any] | None:
    """Return what a mark says, or nothing if it is none of ours."""
    try:
        found = json.loads(mark.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and "version" in found else None


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
