"""Arguments of a wrong type are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import new_model, photos

from fiveshot.errors import InputError
from fiveshot.recognizer import Recognizer
from fiveshot.recognizer.store.manifest import Options

CALLS: dict[str, tuple[Callable[[Recognizer], Any], str]] = {
    "a text for a number": (lambda m: m.predict_features(photos("owl"), top="2"), "top='2' is not a whole number"),
    "none": (lambda m: m.predict_features(photos("owl"), top=None), "top=None .*from 1 on"),
    "a half": (lambda m: m.predict_features(photos("owl"), top=1.5), "top=1.5 "),
    "zero": (lambda m: m.predict_features(photos("owl"), top=0), "top=0 "),
    "before the backbone": (lambda m: m.predict([b"..."], top="2"), "top='2' "),
    "a number for a name": (lambda m: m.learn(5, [b"..."]), r"a class name must be text, got 5"),
    "a state of another type": (lambda m: m.undo(state="2"), "changed since state 2"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with new_model(tmp_path_factory.mktemp("models") / "model") as model:
        model.learn_features("owl", photos("owl"))
        yield model


@pytest.mark.parametrize("call", CALLS)
def test_wrong_types_are_named(model: Recognizer, call: str) -> None:
    function, said = CALLS[call]
    with pytest.raises(InputError, match=said):
        function(model)
    assert model.refresh().state == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"false_rejection": "a"}, "false_rejection='a' is not a number between 0 and 1"),
        ({"false_rejection": None}, "false_rejection=None "),
        ({"false_rejection": 0}, "false_rejection=0 .*both excluded"),
        ({"false_rejection": 2}, "false_rejection=2 .*between 0 and 1"),
        ({"seed": "a"}, "seed='a' "),
        ({"seed": -1}, "seed=-1 .*of at least 0"),
        ({"keep_photos": "no"}, "keep_photos='no' .*neither True nor False"),
        ({"thumbnails": 1}, "thumbnails=1 "),
    ],
)
def test_a_new_model_takes_no_wrong_types(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Recognizer.create(tmp_path / "model", **given)
    assert list(tmp_path.iterdir()) == []


def test_a_device_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    with pytest.raises(InputError, match="no device 'banana'"):
        Recognizer.create(tmp_path / "new", device="banana")
    assert not (tmp_path / "new").exists()
    Recognizer.create(tmp_path / "model").close()
    with pytest.raises(InputError, match="no device 'banana'; choose auto"):
        Recognizer.open(tmp_path / "model", device="banana")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"runtime": "onxn"}, "no runtime 'onxn'; did you mean 'onnx'"),
        ({"runtime": ["onnx"]}, "no runtime"),
    ],
)
def test_a_model_is_opened_with_what_there_is(model: Recognizer, given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Recognizer.open(**{"path": model.path} | given)


def test_a_path_alone_is_told_how_to_be_opened() -> None:
    with pytest.raises(InputError, match=r"do not call Recognizer\(\).*Recognizer\.open\(path\)"):
        Recognizer("things")


def test_numbers_of_other_libraries_are_numbers(model: Recognizer) -> None:
    (found,) = model.predict_features(photos("owl", 1), top=np.int64(3))
    assert len(found.candidates) == 1
    with Recognizer.open(model.path, device="cpu", timeout=np.float32(2)) as again:
        assert again.snapshot.classes == ("owl",)
    assert Options(seed=np.int64(3), false_rejection=np.float32(0.5)) == Options(seed=3, false_rejection=0.5)
