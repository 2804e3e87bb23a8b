from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from models import held, photos, picture

from fiveshot.errors import InputError
from fiveshot.recognizer import Recognizer, thumbnails

NAMES = ("ani", "owl")


def test_merged_equals_learned_here(make: Callable[..., Recognizer]) -> None:
    here, there, both = (make(name, base=NAMES) for name in ("here", "there", "both"))
    here.learn_features("rook", photos("rook"))
    there.learn_features("wren", photos("wren"), thumbnails=[picture()] * 5)
    there.learn_features("wren", photos("wren", 2, seed=1), add=True)
    there.learn_features("owl", photos("owl", 3, seed=2), add=True)
    both.learn_features("rook", photos("rook"))
    both.learn_features("wren", photos("wren"))
    both.learn_features("wren", photos("wren", 2, seed=1), add=True)
    both.learn_features("owl", photos("owl", 3, seed=2), add=True)
    report = here.merge(there.path)
    assert (report.added, report.same, report.photos) == (("owl", "wren"), (), 10)
    assert held(here)["classes"] == held(both)["classes"]
    assert here.predict_features(photos("wren", 3, seed=7)) == both.predict_features(photos("wren", 3, seed=7))
    assert thumbnails(here, "wren") == [picture()] * 5
    assert here.check() == []


def test_a_copy_that_went_its_own_way(
    make: Callable[..., Recognizer], reopen: Callable[..., Recognizer], tmp_path: Path
) -> None:
    here = make()
    for name in NAMES:
        here.learn_features(name, photos(name))
    here.close()
    shutil.copytree(here.path, tmp_path / "copy")
    here, there = reopen(here.path), reopen(tmp_path / "copy")
    here.learn_features("rook", photos("rook"))
    there.learn_features("wren", photos("wren"))
    report = here.merge(there.path)
    assert (report.added, report.same) == (("wren",), NAMES)
    assert here.merge(there.path).added == ()
    assert here.snapshot.classes == ("ani", "owl", "rook", "wren")


def test_an_exported_file_can_be_merged(make: Callable[..., Recognizer], tmp_path: Path) -> None:
    here, there = make("here", base=NAMES), make("there", base=NAMES)
    there.learn_features("wren", photos("wren"))
    there.export(tmp_path / "there.fiveshot")
    assert here.merge(tmp_path / "there.fiveshot").added == ("wren",)
    assert held(here)["classes"] == held(there)["classes"]


def test_conflicting_names_are_refused(make: Callable[..., Recognizer]) -> None:
    here, there = make("here", base=NAMES), make("there", base=NAMES)
    here.learn_features("wren", photos("wren"))
    there.learn_features("wren", photos("wren", seed=1))
    there.learn_features("rook", photos("rook"))
    before = held(here)
    with pytest.raises(InputError, match=r"'wren'; rename them in one of the two models"):
        here.merge(there.path)
    assert held(here) == before
    there.rename("wren", "winter wren")
    assert here.merge(there.path).added == ("rook", "winter wren")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"base": ("ani", "jay")}, "began with another base"),
        ({}, "no base, and the model here with another base"),
        ({"base": NAMES, "fingerprint": "b" * 64}, "another backbone or adapter"),
    ],
)
def test_another_origin_is_refused(make: Callable[..., Recognizer], given: dict[str, object], said: str) -> None:
    here, there = make("here", base=NAMES), make("there", **given)
    there.learn_features("wren", photos("wren"))
    with pytest.raises(InputError, match=said):
        here.merge(there.path)
    assert here.snapshot.classes == NAMES


def test_a_changed_base_is_still_the_same_base(make: Callable[..., Recognizer]) -> None:
    here, there = make("here", base=(*NAMES, "jay")), make("there", base=(*NAMES, "jay"))
    here.forget("jay", for_good=True)
    there.learn_features("wren", photos("wren"))
    assert here.merge(there.path).added == ("wren",)
    there.learn_features("jay", photos("jay", 2, seed=1), add=True)
    with pytest.raises(InputError, match="base class 'jay', which was forgotten or renamed here"):
        here.merge(there.path)


def test_what_is_no_model_is_refused(make: Callable[..., Recognizer], tmp_path: Path) -> None:
    here = make()
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(OSError, match=r"not a fiveshot model|no such model"):
            here.merge(path)
    (tmp_path / "file").write_bytes(b"not a model")
    with pytest.raises(
        OSError, match=r"file is not an export of fiveshot, or .*; give a file that 'fiveshot export' wrote"
    ):
        here.merge(tmp_path / "file")
