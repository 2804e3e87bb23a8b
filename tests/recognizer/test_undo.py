from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from models import held, new_model, photos, picture

from fiveshot.errors import InputError
from fiveshot.recognizer import Recognizer
from fiveshot.recognizer.store.manifest import Options

hypothesis = pytest.importorskip("hypothesis", reason="hypothesis is not installed")
given, settings, st = hypothesis.given, hypothesis.settings, hypothesis.strategies

NAMES = ("ani", "owl", "rook", "wren")


def test_undo_restores_the_very_bits(make: Callable[..., Recognizer]) -> None:
    model = make(base=NAMES[:2])
    model.learn_features("wren", photos("wren"), thumbnails=[picture()] * 5)
    before = held(model)
    model.learn_features("wren", photos("wren", 3, seed=1), add=True)
    assert held(model) != before
    undone = model.undo()
    assert (undone.action, undone.classes, undone.photos) == ("add", ("wren",), 3)
    assert held(model) == before


def test_undo_of_each_kind(make: Callable[..., Recognizer], tmp_path: Path) -> None:
    model = make(base=NAMES[:2], options=Options(keep_photos=True))
    other = make("other", base=NAMES[:2])
    other.learn_features("wren", photos("wren"))
    other.learn_features("ani", photos("ani", 2, seed=5), add=True)
    states = [held(model)]
    for change in (
        lambda: model.learn_features("rook", photos("rook"), originals=[b"large"] * 5),
        lambda: model.learn_features("rook", photos("rook", 2, seed=2), add=True),
        lambda: model.learn_features("owl", photos("owl", 2, seed=3), add=True),
        lambda: model.rename("rook", "a rook/crow 🐦"),
        lambda: model.rename("owl", "tawny owl"),
        lambda: model.merge(other.path),
        lambda: model.forget("tawny owl"),
        lambda: model.forget("a rook/crow 🐦"),
        lambda: model.forget("ani"),
    ):
        change()
        states.append(held(model))
    for expected in reversed(states[:-1]):
        model.undo()
        assert held(model) == expected
        assert model.check() == []
    with pytest.raises(InputError, match="nothing to undo"):
        model.undo()
    assert [entry.undone_by is None for entry in model.history() if entry.action == "learn"] == [False]


@given(st.data())
@settings(suppress_health_check=[hypothesis.HealthCheck.too_slow], max_examples=20)
def test_any_sequence_is_undone_step_by_step(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    with (
        tempfile.TemporaryDirectory(dir=tmp_path_factory.getbasetemp()) as folder,
        new_model(Path(folder) / "m", base=("ani", "rook")) as model,
    ):
        states = [held(model)]
        for step in range(data.draw(st.integers(1, 8))):
            known = list(model.snapshot.classes)
            free = [name for name in NAMES if name not in known]
            verb = data.draw(st.sampled_from(["learn"] * bool(free) + ["add", "rename", "forget"] * bool(known)))
            name = data.draw(st.sampled_from(free if verb == "learn" else known))
            if verb in ("learn", "add"):
                model.learn_features(name, photos(name, 1 + step % 3, seed=step), add=verb == "add")
            elif verb == "rename":
                model.rename(name, f"{name} {step}")
            else:
                model.forget(name)
            states.append(held(model))
        for expected in reversed(states[:-1]):
            model.undo()
            assert held(model) == expected


def test_undo_after_undo_goes_further_back(make: Callable[..., Recognizer]) -> None:
    model = make()
    for name in NAMES[:3]:
        model.learn_features(name, photos(name))
    assert [model.undo().classes for _ in range(2)] == [("rook",), ("owl",)]
    model.learn_features("wren", photos("wren"))
    assert model.undo().classes == ("wren",)
    assert model.undo().classes == ("ani",)
    assert model.snapshot.classes == ()


def test_forgotten_without_history_stays_forgotten(make: Callable[..., Recognizer]) -> None:
    model = make()
    model.learn_features("ani", photos("ani"))
    model.learn_features("owl", photos("owl"))
    model.forget("owl", for_good=True)
    with pytest.raises(InputError, match=r"cannot be undone.*past_forget"):
        model.undo()
    assert model.snapshot.classes == ("ani",)
    assert model.undo(past_forget=True).classes == ("ani",)


def test_undo_of_a_state_that_has_passed_is_refused(
    make: Callable[..., Recognizer], reopen: Callable[..., Recognizer]
) -> None:
    """What somebody else has done since then is not taken back by mistake."""
    model = make()
    model.learn_features("ani", photos("ani"))
    seen = model.snapshot.state
    reopen(model.path).learn_features("owl", photos("owl"))
    with pytest.raises(InputError, match=f"changed since state {seen}, it is in state {seen + 1} now; nothing"):
        model.undo(state=seen)
    assert model.refresh().classes == ("ani", "owl")
    assert model.undo(state=seen + 1).classes == ("owl",)


def test_one_class_of_many_can_be_forgotten_and_the_rest_undone(make: Callable[..., Recognizer]) -> None:
    model = make()
    model.learn_features("ani", photos("ani"))
    other = make("other")
    for name in NAMES[1:]:
        other.learn_features(name, photos(name))
    model.merge(other.path)
    model.forget("rook", for_good=True)
    assert model.undo(past_forget=True).classes == ("owl", "wren")
    assert model.snapshot.classes == ("ani",)


def test_predictions_after_undo_are_those_before(make: Callable[..., Recognizer]) -> None:
    model = make(base=NAMES[:2])
    X = np.concatenate([photos(name, 4, seed=9) for name in NAMES])
    before = model.predict_features(X)
    model.learn_features("wren", photos("wren"))
    model.learn_features("ani", photos("ani", seed=4), add=True)
    assert model.predict_features(X) != before
    model.undo()
    model.undo()
    assert model.predict_features(X) == before
