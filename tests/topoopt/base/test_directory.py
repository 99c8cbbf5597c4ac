"""Directories of results: what is replaced, and what is never lost."""

import json

import pytest

from codesign_base import InputError, paths
from codesign_base.paths import make_directory
from topoopt.base.directory import check_replaceable, mark_text, write_directory
from topoopt.base.version import installed_version

MARK = "made.json"
FILES = {"a/b.txt": b"b", "c.sh": b"#!/bin/sh\n"}
FILES |= {MARK: mark_text({"notes": []}, FILES, MARK).encode()}


def names(directory):
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*")}


def test_what_was_written_is_replaced_whole_and_again_the_same(tmp_path):
    target = tmp_path / "out"
    write_directory(FILES, target, MARK)
    first = {name: (target / name).read_bytes() for name in FILES}
    said = {"version": installed_version(), "notes": [], "files": sorted(FILES)}
    assert json.loads(first[MARK]) == said and first == FILES
    assert (target / "c.sh").stat().st_mode & 0o111
    write_directory(FILES, target, MARK)
    assert {name: (target / name).read_bytes() for name in FILES} == first
    write_directory({MARK: FILES[MARK]}, target, MARK)
    assert names(target) == {MARK}
    assert names(tmp_path) == {"out", f"out/{MARK}"}


@pytest.mark.parametrize("place", ["plan.json", "a/notes.txt", "new/one"])
def test_what_somebody_put_beside_it_is_not_lost(tmp_path, place):
    write_directory(FILES, tmp_path / "out", MARK)
    mine = tmp_path / "out" / place
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    with pytest.raises(InputError, match=f"also holds '{place}', which would be lost"):
        write_directory(FILES, tmp_path / "out", MARK)
    assert mine.read_text() == "mine"
    mine.unlink()
    write_directory(FILES, tmp_path / "out", MARK)


def test_a_directory_of_an_earlier_version_lists_nothing_and_is_replaced(tmp_path):
    (tmp_path / MARK).write_text('{"version": "0.0.1"}')
    (tmp_path / "old.txt").write_text("old")
    check_replaceable(tmp_path, MARK)


@pytest.mark.parametrize("text", ["", "[]", "{}", "no JSON", '{"name": "of another program"}'])
def test_a_file_that_is_only_called_like_the_mark_is_none(tmp_path, text):
    (tmp_path / MARK).write_text(text)
    with pytest.raises(InputError, match=f"holds other files and no {MARK}"):
        check_replaceable(tmp_path, MARK)


def test_a_directory_for_results_that_may_not_be_written_is_refused_before_the_work(
    tmp_path, monkeypatch
):
    make_directory(tmp_path)
    make_directory(tmp_path / "new")
    monkeypatch.setattr(paths.os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(InputError, match="may not be written; give another name"):
        make_directory(tmp_path / "new")
