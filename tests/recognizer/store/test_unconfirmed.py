"""A commit that the disk does not confirm: an error says so, and the model continues in the state before."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from models import new_model, photos

from fiveshot.errors import StorageError
from fiveshot.recognizer import Recognizer, check_model
from fiveshot.recognizer.store.schema import ModelConnection


@pytest.fixture
def path(tmp_path: Path) -> Path:
    new_model(tmp_path / "model", base=("ash", "yew", "box")).close()
    return tmp_path / "model"


def unconfirmed_commit(self: ModelConnection, statement: str, *given: Any) -> sqlite3.Cursor:
    """Fail like SQLite when the last ``fsync`` of a commit fails."""
    if statement == "COMMIT":
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        raise error
    return sqlite3.Connection.execute(self, statement, *given)


def bases(path: Path) -> set[str]:
    return {file.name for file in path.glob("base-*")}


def test_the_model_continues_in_the_state_before(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Recognizer.open(path) as model:
        model.learn_features("lark", photos("lark"))
        with monkeypatch.context() as patch:
            patch.setattr(ModelConnection, "execute", unconfirmed_commit, raising=False)
            with pytest.raises(StorageError) as caught:
                model.forget("ash")
        assert caught.value.code == "unconfirmed"
        assert "may or may not be stored; run fiveshot check" in str(caught.value)
        assert sorted(model.refresh().classes) == ["ash", "box", "lark", "yew"]
        model.learn_features("wren", photos("wren"))
    with Recognizer.open(path, readonly=True) as model:
        assert sorted(model.snapshot.classes) == ["ash", "box", "lark", "wren", "yew"]
    assert [one for one in check_model(path) if one.severity == "error"] == []


def test_files_of_the_change_stay_until_another_commit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash the commit may be in the log, and would name them."""
    with Recognizer.open(path) as model:
        before = bases(path)
        with monkeypatch.context() as patch:
            patch.setattr(ModelConnection, "execute", unconfirmed_commit, raising=False)
            with pytest.raises(StorageError, match="may or may not be stored"):
                model.forget("ash")
        assert bases(path) > before
        model.live.folder.discard([path / name for name in bases(path)])
        assert bases(path) == before
    assert check_model(path) == []
