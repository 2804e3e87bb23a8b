"""A wall clock that jumps by years, to and fro: history and undo follow the order of changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from models import photos

from fiveshot.recognizer import Recognizer, change

YEARS = (2026, 2006, 2226, 1946, 2027)


def test_history_and_undo_follow_the_order_of_changes(
    make: Callable[..., Recognizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make()
    for year in YEARS:
        monkeypatch.setattr(change, "timestamp", lambda year=year: f"{year}-01-01T00:00:00.000+00:00")
        model.learn_features(f"class of {year}", photos(f"class of {year}"))
    entries = model.history(len(YEARS))
    assert [int(entry.at[:4]) for entry in entries] == [*reversed(YEARS)]
    assert [entry.seq for entry in entries] == sorted((entry.seq for entry in entries), reverse=True)
    assert [model.undo().classes[0] for _ in YEARS] == [f"class of {year}" for year in reversed(YEARS)]
    assert model.check() == []
