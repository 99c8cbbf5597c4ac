"""Atomic writes: whole or not at all, and no litter."""

import os
import stat
from pathlib import Path

import pytest

from codesign_base import InputError
from topoopt.base.atomic import (
    check_writable,
    open_atomically,
    write_bytes_atomically,
    write_text_atomically,
)


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_writes_and_replaces(tmp_path):
    path = tmp_path / "plan.json"
    write_text_atomically(path, "one µs\n")
    assert path.read_bytes() == "one µs\n".encode()
    write_bytes_atomically(str(path), b"\x00two")
    assert path.read_bytes() == b"\x00two"
    assert names(tmp_path) == ["plan.json"]


def test_error_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), open_atomically(path) as stream:
        stream.write(b"half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert names(tmp_path) == ["plan.json"]


def test_nothing_shows_before_the_end(tmp_path):
    path = tmp_path / "plan.json"
    with open_atomically(path) as stream:
        stream.write(b"data")
        stream.flush()
        assert not path.exists()
    assert path.read_bytes() == b"data"


def test_permissions(tmp_path):
    path = tmp_path / "plan.json"
    before = os.umask(0o027)
    try:
        write_text_atomically(path, "new")
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        write_text_atomically(path, "again")
        assert stat.S_IMODE(path.stat().st_mode) == 0o604
    finally:
        os.umask(before)


def test_symbolic_link_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "plan.json"
    link.symlink_to(tmp_path / "real" / "plan.json")
    for text in ("first", "second"):
        write_text_atomically(link, text)
        assert link.is_symlink()
        assert (tmp_path / "real" / "plan.json").read_text() == text


def test_devices_are_written_directly(tmp_path):
    write_text_atomically(os.devnull, "gone")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text_atomically(pipe, "through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing/plan.json", "not an existing directory"),
        ("file/plan.json", "not an existing directory"),
        ("folder", "is a directory"),
        ("x" * 300, "too long"),
    ],
)
def test_bad_paths(tmp_path, name, reason):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=reason) as error:
        write_text_atomically(tmp_path / name, "text")
    assert name in str(error.value)
    assert names(tmp_path) == ["file", "folder"]


def test_directory_without_write_permission(tmp_path, monkeypatch):
    def refused(*arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refused)  # the superuser may write anywhere
    with pytest.raises(InputError, match="permission denied; choose another path"):
        write_text_atomically(tmp_path / "plan.json", "text")


def test_a_directory_that_takes_no_files(monkeypatch, tmp_path):
    """As /proc, in which nobody can create a file."""

    def refused(*arguments):
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "open", refused)
    words = f"cannot write .*plan.json: {tmp_path} takes no new files; choose another path"
    for write in (check_writable, lambda path: write_text_atomically(path, "text")):
        with pytest.raises(InputError, match=words):
            write(tmp_path / "plan.json")


def test_a_link_to_a_missing_directory_names_that(tmp_path):
    link = tmp_path / "plan.json"
    link.symlink_to(tmp_path / "missing" / "plan.json")
    with pytest.raises(InputError, match="missing is not an existing directory; create it"):
        write_text_atomically(link, "text")


def test_what_can_be_written_is_only_tried(tmp_path):
    old, new, pipe = tmp_path / "old.json", tmp_path / "new.json", tmp_path / "pipe"
    old.write_text("kept")
    os.mkfifo(pipe)  # to open it would wait for a reader
    for path in (old, new, pipe, os.devnull):
        check_writable(path)
    assert names(tmp_path) == ["old.json", "pipe"]
    assert old.read_text() == "kept"
    for bad in (tmp_path / "missing" / "new.json", tmp_path / ("x" * 300), tmp_path):
        with pytest.raises(InputError, match="cannot write"):
            check_writable(bad)


def test_read_only_file(tmp_path, monkeypatch):
    path = tmp_path / "plan.json"
    path.write_text("kept")
    monkeypatch.setattr(os, "access", lambda *arguments: False)
    with pytest.raises(InputError, match="read-only"):
        write_text_atomically(path, "text")
    assert path.read_text() == "kept"
    assert names(tmp_path) == ["plan.json"]


def test_full_disk(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="no space left"):
        write_text_atomically(tmp_path / "plan.json", "text")
    assert names(tmp_path) == []
