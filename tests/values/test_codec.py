"""One JSON for every value, in both directions; and a client that needs nothing heavy to read it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest

from fiveshot.errors import InputError
from fiveshot.values import (
    BadImage,
    Candidate,
    Neighbor,
    PhotosMade,
    Prediction,
    Sorting,
    Suggestion,
    from_json,
    to_json,
)

OWL = Prediction(
    "a.jpg",
    "owl/barn owl",
    0.75,
    (Candidate("owl/barn owl", 0.75), Candidate("wren", 0.25)),
    None,
    -2.5,
    (Candidate("owl", 0.75), Candidate("owl/barn owl", 0.75)),
    box=(0.0, 0.0, 0.5, 1.0),
    why=(Neighbor("p1", "owl/barn owl", 0.9),),
)


def test_a_prediction_is_an_object_of_objects() -> None:
    assert to_json(OWL) == {
        "photo": "a.jpg",
        "label": "owl/barn owl",
        "probability": 0.75,
        "candidates": [{"label": "owl/barn owl", "probability": 0.75}, {"label": "wren", "probability": 0.25}],
        "familiarity": None,
        "threshold": -2.5,
        "levels": [{"label": "owl", "probability": 0.75}, {"label": "owl/barn owl", "probability": 0.75}],
        "unsure": False,
        "between": [],
        "box": [0.0, 0.0, 0.5, 1.0],
        "why": [{"id": "p1", "label": "owl/barn owl", "likeness": 0.9, "name": None}],
        "unknown": False,
        "can_be_unknown": True,
        "answer": "class",
    }


@pytest.mark.parametrize(
    "value",
    [
        OWL,
        replace(OWL, label=None, unsure=True, between=("owl/barn owl", "wren")),
        PhotosMade("move", ("p1", "p2"), {"owl": 3}, state=9, pending="later"),
        Suggestion("mixed-up", "p7", "owl", "move", "wren", "p2", 0.98, "it fits 'wren' better"),
        Sorting(("a.jpg",), (), (), (), bad=(BadImage("b.jpg", "the file is empty", "empty"),)),
    ],
)
def test_what_is_written_is_read(value: object) -> None:
    assert from_json(type(value), json.loads(json.dumps(to_json(value), allow_nan=False))) == value


def test_sources_of_photos_stay_here() -> None:
    assert "sources" not in to_json(Sorting((), (), (), (), sources=(object(),)))


def test_entries_of_a_later_release_are_passed_over() -> None:
    assert from_json(Candidate, {"label": "owl", "probability": 1, "rank": 1}) == Candidate("owl", 1.0)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"label": "owl"}, "'probability' is missing"),
        ({"label": 3, "probability": 0.5}, "'label' is 3, not str"),
        ({"label": "owl", "probability": True}, "'probability' is True, not float"),
        (["owl", 0.5], r"it is \['owl', 0.5\], not an object"),
        (None, "it is None, not an object"),
    ],
)
def test_what_does_not_fit_is_told(values: object, told: str) -> None:
    with pytest.raises(InputError, match=f"a Candidate cannot be read: {told}"):
        from_json(Candidate, values)


def test_the_place_of_a_mistake_is_told() -> None:
    values = to_json(OWL)
    values["candidates"][1]["probability"] = "much"
    with pytest.raises(InputError, match=r"'candidates\[1\].probability' is 'much', not float"):
        from_json(Prediction, values)


def test_plain_values_stay() -> None:
    @dataclass(frozen=True)
    class Own:
        parts: tuple[int, ...]

    assert to_json({"own": [Own((1, 2))], "text": "a", "none": None}) == {
        "own": [{"parts": [1, 2]}],
        "text": "a",
        "none": None,
    }


def test_the_client_needs_nothing_heavy() -> None:
    heavy = ("numpy", "scipy", "onnxruntime", "PIL", "sklearn", "torch", "sqlite3", "fiveshot.recognizer")
    program = f"""
import sys
import fiveshot.client
from fiveshot.values import Candidate, from_json
from_json(Candidate, {{"label": "owl", "probability": 1.0}})
fiveshot.client.Client().close()
print([name for name in {heavy!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
