"""What forgetting had to leave behind, erased on request by a process that changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from models import files_with, photos

from fiveshot.errors import InputError, StorageError
from fiveshot.recognizer import Recognizer, erase_pending


def test_settling_erases_once_nobody_reads(
    make: Callable[..., Recognizer], reopen: Callable[..., Recognizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fiveshot.recognizer.store.folder.TIMEOUT", 0.2)
    model = make()
    assert erase_pending(model)
    model.learn_features("secret owl", photos("secret owl"))
    model.learn_features("wren", photos("wren"))
    with reopen(model.path, readonly=True).live.folder.reading() as connection:
        connection.execute("SELECT count(*) FROM classes").fetchone()
        with pytest.raises(StorageError, match="another process"):
            model.forget("secret owl", for_good=True)
        assert not erase_pending(model)
        assert files_with(model.path, b"secret owl")
    state = model.snapshot.state
    assert erase_pending(model)
    assert files_with(model.path, b"secret owl") == []
    assert model.check() == []
    assert model.refresh().state == state


def test_a_closed_model_cannot_settle(make: Callable[..., Recognizer]) -> None:
    model = make()
    model.close()
    with pytest.raises(InputError, match="closed; open it again"):
        erase_pending(model)
