from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fiveshot.errors import FiveshotError, StorageError
from fiveshot.storage import atomic_path, atomic_paths


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_finished_block_leaves_the_whole_file_and_nothing_else(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "a.txt") as path:
        path.write_text("whole")
        assert path.parent == tmp_path, "on another disk the last step would not be atomic"
        assert not (tmp_path / "a.txt").exists(), "nothing is visible before the end"
    assert names(tmp_path) == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "whole"


def test_a_reader_sees_the_old_file_until_the_end(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    with target.open() as reader, atomic_path(str(target)) as path:
        path.write_text("new and longer")
        assert target.read_text() == "old"
        assert reader.read() == "old"
    assert target.read_text() == "new and longer"


@pytest.mark.parametrize("reason", [ValueError("no"), KeyboardInterrupt(), SystemExit(1)])
def test_a_failed_block_keeps_the_old_file(tmp_path: Path, reason: BaseException) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(type(reason)), atomic_path(target) as path:  # noqa: PT012
        path.write_text("half")
        raise reason
    assert names(tmp_path) == ["a.txt"]
    assert target.read_text() == "old"


def test_a_failed_block_leaves_no_new_file(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), atomic_path(tmp_path / "a.txt") as path:  # noqa: PT012
        path.write_text("half")
        raise ZeroDivisionError
    assert names(tmp_path) == []


def test_a_block_that_removes_its_file_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot write .*a\.txt"), atomic_path(tmp_path / "a.txt") as path:
        path.unlink()
    assert names(tmp_path) == []


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(StorageError, match=r"the folder .*absent does not exist; create it first"),
        atomic_path(tmp_path / "absent" / "a.txt"),
    ):
        raise AssertionError("the block must not run")
    assert names(tmp_path) == []


def test_a_folder_in_the_way_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "inside").write_text("kept")
    for place in (tmp_path / "a", ".", "/"):
        with pytest.raises(StorageError, match="it is a folder; name a file in it"), atomic_path(place):
            raise AssertionError("the block must not run")
    assert names(tmp_path) == ["a"]
    assert names(tmp_path / "a") == ["inside"]


def test_an_error_is_one_the_command_line_catches(tmp_path: Path) -> None:
    with pytest.raises(FiveshotError) as caught, atomic_path(tmp_path / "a.txt"):
        raise OSError(28, "No space left on device")
    assert isinstance(caught.value, OSError)
    assert str(caught.value).endswith("No space left on device; nothing was left behind")


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_the_file_has_the_rights_of_an_ordinary_new_file(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        with atomic_path(tmp_path / "a.txt") as path:
            path.write_text("x")
        assert os.umask(mask) == mask, "the process's own mask is put back"
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o666 & ~mask


def test_the_umask_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It belongs to all threads: while one asks for it, another would make files that everybody can write."""

    def touched(mask: int) -> int:
        raise AssertionError(f"umask({mask})")

    monkeypatch.setattr(os, "umask", touched)
    with atomic_path(tmp_path / "a.txt") as path:
        path.write_text("x")


def test_a_library_that_replaces_the_file_changes_no_rights(tmp_path: Path) -> None:
    (tmp_path / "ordinary").touch()
    with atomic_path(tmp_path / "a.txt") as path:
        (tmp_path / "own").touch(0o600)
        (tmp_path / "own").replace(path)
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


def test_a_file_that_the_disk_does_not_confirm_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flush = os.fsync

    def fails_on_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(5, "Input/output error")
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", fails_on_folders)
    with pytest.raises(StorageError) as caught, atomic_path(tmp_path / "a.txt") as path:
        path.write_text("x")
    assert "is in place, but the disk did not confirm it (Input/output error)" in str(caught.value)
    assert names(tmp_path) == ["a.txt"]


def failing(monkeypatch: pytest.MonkeyPatch, fails: Callable[[os.stat_result], bool]) -> None:
    """Let the disk confirm nothing for which ``fails`` holds."""
    flush = os.fsync

    def fsync(descriptor: int) -> None:
        if fails(os.fstat(descriptor)):
            raise OSError(28, "No space left on device")
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


def write_both(folder: Path) -> None:
    with atomic_paths(folder / "a", folder / "b") as (first, second):
        first.write_text("new")
        second.write_text("newer")


@pytest.mark.parametrize("size", [3, 5])
def test_of_several_files_none_is_replaced_when_one_is_not_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    for name in "ab":
        (tmp_path / name).write_text("old")
    failing(monkeypatch, lambda found: found.st_size == size)
    with pytest.raises(StorageError, match=r"cannot write .*/a and .*/b: No space left on .*; nothing was left"):
        write_both(tmp_path)
    assert names(tmp_path) == ["a", "b"]
    assert [(tmp_path / name).read_text() for name in "ab"] == ["old", "old"]


def test_several_files_are_in_place_when_the_folder_is_not_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, lambda found: stat.S_ISDIR(found.st_mode))
    with pytest.raises(StorageError, match="is in place"):
        write_both(tmp_path)
    assert names(tmp_path) == ["a", "b"]


def test_several_files_of_which_one_cannot_take_its_place(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught, atomic_paths(tmp_path / "a", tmp_path / "b"):
        (tmp_path / "b").mkdir()  # by somebody else, meanwhile
    assert str(caught.value).endswith(f"Is a directory; {tmp_path / 'a'} was replaced already")
    assert names(tmp_path) == ["a", "b"]


def test_several_files_of_which_one_cannot_be_begun(tmp_path: Path) -> None:
    with (
        pytest.raises(StorageError, match="File name too long"),
        atomic_paths(tmp_path / "a", tmp_path / ("b" * 255)),
    ):
        raise AssertionError("the block must not run")
    assert names(tmp_path) == []


def test_a_process_killed_half_way_leaves_the_old_file_readable(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    code = (
        "import os, signal, sys; from fiveshot.storage import atomic_path\n"
        "with atomic_path(sys.argv[1]) as path:\n"
        "    path.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(target)], check=False)
    assert done.returncode == -9
    assert target.read_text() == "old"
