"""A model that is open while its folder is removed or replaced: nothing is written to what is there now."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from models import a_reader, new_model, photos

from fiveshot.recognizer import LostModelError, Recognizer, check_model, erase_pending
from fiveshot.recognizer.store.schema import DATABASE

CHANGES: dict[str, Callable[[Recognizer], object]] = {
    "learn": lambda model: model.learn_features("wren", photos("wren")),
    "add": lambda model: model.learn_features("owl", photos("owl", seed=1), add=True),
    "rename": lambda model: model.rename("owl", "barn owl"),
    "forget": lambda model: model.forget("owl", for_good=True),
    "forget a base class": lambda model: model.forget("ash", for_good=True),
    "forget, to be undone": lambda model: model.forget("ash"),
    "undo": lambda model: model.undo(),
    "settle": lambda model: erase_pending(model),
    "refresh": lambda model: model.refresh(),
    "predict": lambda model: model.predict_features(photos("owl")),
    "show": lambda model: model.show(),
}


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*"))}


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another closed model with its own base file."""
    with new_model(tmp_path / "other", base=("oak", "elm", "fir")) as model:
        model.learn_features("robin", photos("robin"))
    return tmp_path / "other"


def opened(make: Callable[..., Recognizer]) -> Recognizer:
    model = make("open", base=("ash", "yew", "box"))
    model.learn_features("owl", photos("owl"))
    return model


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_took_the_place_is_untouched(
    make: Callable[..., Recognizer], other: Path, change: str
) -> None:
    model = opened(make)
    before = files_of(other)
    shutil.rmtree(model.path)
    shutil.copytree(other, model.path)
    for _ in range(2):
        with pytest.raises(LostModelError) as refused:
            CHANGES[change](model)
        assert refused.value.code == "model_replaced"
    model.close()
    assert files_of(model.path) == before
    assert check_model(model.path) == []


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_is_gone_is_refused_and_not_made_again(make: Callable[..., Recognizer], change: str) -> None:
    model = opened(make)
    shutil.rmtree(model.path)
    with pytest.raises(LostModelError) as refused:
        CHANGES[change](model)
    assert refused.value.code == "model_gone"
    assert not model.path.exists()


def test_what_a_change_has_left_to_do_is_not_done_in_another_model(
    make: Callable[..., Recognizer], other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = opened(make)
    before = files_of(other)
    with monkeypatch.context() as patch:
        patch.setattr("fiveshot.recognizer.store.folder.ModelFolder.settle", lambda *_: None)
        model.rename("ash", "mountain ash")
    assert model.live.folder.unsettled() == "files"
    shutil.rmtree(model.path)
    shutil.copytree(other, model.path)
    with pytest.raises(LostModelError):
        model.live.folder.settle()
    model.live.folder.discard(list(model.path.glob("base-*")))
    assert files_of(model.path) == before


def test_a_folder_that_is_replaced_within_a_change(make: Callable[..., Recognizer], other: Path) -> None:
    model = opened(make)
    before = files_of(other)

    def change() -> None:
        with model.live.change() as change:
            shutil.rmtree(model.path)
            shutil.copytree(other, model.path)
            change.record("learn")

    with pytest.raises(LostModelError):
        change()
    assert files_of(model.path) == before


def test_a_database_that_is_written_over_in_place(make: Callable[..., Recognizer], other: Path) -> None:
    model = opened(make)
    model.live.folder._truncate_log(0)
    inode = (model.path / DATABASE).stat().st_ino
    shutil.copyfile(other / DATABASE, model.path / DATABASE)
    assert (model.path / DATABASE).stat().st_ino == inode
    with pytest.raises(LostModelError) as refused:
        model.forget("ash", for_good=True)
    assert refused.value.code == "model_replaced"
    assert (model.path / DATABASE).read_bytes() == (other / DATABASE).read_bytes()
    assert not list(model.path.glob("base-*.part"))


@pytest.mark.parametrize("way", ["close", "end of the process"])
def test_closing_deletes_no_log_of_another_model(tmp_path: Path, other: Path, way: str) -> None:
    new_model(tmp_path / "open").close()
    code = (
        "import shutil, sys; from fiveshot.recognizer import Recognizer\n"
        "path, other, close = sys.argv[1:]\n"
        "model = Recognizer.open(path)\n"
        "shutil.rmtree(path); shutil.copytree(other, path)\n"
        "input(print('replaced', flush=True) or '')\n"
        "if close == 'close': model.close()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "open"), str(other), way]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "replaced\n"
        with Recognizer.open(tmp_path / "open") as new, a_reader(new.path):
            new.learn_features("wren", photos("wren"))
            process.communicate("\n", timeout=60)
            assert process.returncode == 0
            log = tmp_path / "open" / f"{DATABASE}-wal"
            assert log.stat().st_size  # the only place where the wren is
            (where,) = new.live.folder.connection.execute("PRAGMA database_list").fetchall()
            names = sqlite3.connect(where[2]).execute("SELECT name FROM classes ORDER BY id").fetchall()
    assert names == [("robin",), ("wren",)]


def test_a_model_that_is_moved_away_and_back(make: Callable[..., Recognizer], tmp_path: Path) -> None:
    model = opened(make)
    model.path.rename(tmp_path / "elsewhere")
    with pytest.raises(LostModelError):
        model.learn_features("wren", photos("wren"))
    (tmp_path / "elsewhere").rename(model.path)
    model.learn_features("wren", photos("wren"))
    assert model.check() == []


def test_an_earlier_copy_of_the_same_model_is_another_one(make: Callable[..., Recognizer], tmp_path: Path) -> None:
    model = opened(make)
    model.live.folder._truncate_log(0)
    shutil.copytree(model.path, tmp_path / "copy", ignore=shutil.ignore_patterns("*-wal", "*-shm"))
    model.learn_features("wren", photos("wren"))
    shutil.rmtree(model.path)
    shutil.copytree(tmp_path / "copy", model.path)
    with pytest.raises(LostModelError):
        model.learn_features("lark", photos("lark"))
    assert "wren" not in model.reopen().classes
    model.learn_features("lark", photos("lark"))
    assert model.check() == []


def test_a_model_opened_by_a_relative_path_follows_no_change_of_directory(
    make: Callable[..., Recognizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("birds").close()
    monkeypatch.chdir(tmp_path)
    with Recognizer.open("birds") as model:
        monkeypatch.chdir("/")
        model.learn_features("wren", photos("wren"))
        assert model.check() == []


def test_two_models_never_have_the_same_id(make: Callable[..., Recognizer]) -> None:
    assert make("one").live.folder.id != make("two").live.folder.id
