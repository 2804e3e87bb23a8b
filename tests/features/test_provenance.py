from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from fiveshot.errors import InputError
from fiveshot.features import Provenance

MADE = Provenance("birds", "vit", "ab12", {"size": (224, 224)}, adapter="cd34", note="first try")


def test_survives_json():
    assert Provenance.from_dict(json.loads(json.dumps(MADE.as_dict()))) == MADE


def test_can_be_used_in_sets():
    assert len({MADE, Provenance.from_dict(MADE.as_dict())}) == 1


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("dataset", "fish"),
        ("backbone", "cnn"),
        ("weights_hash", "ef56"),
        ("preprocessing", {"size": [256, 256]}),
        ("adapter", None),
        ("readout", "mean"),
        ("precision", "bf16"),
    ],
)
def test_differences_name_both_values(entry, value):
    made = replace(MADE, precision="float32")
    other = replace(made, **{entry: value}, note="second try")
    assert made.differences(other) == (f"{entry} is {value!r}, not {getattr(made, entry)!r}",)
    assert made.differences(made) == ()


def test_a_precision_that_is_not_known_is_no_other():
    exact = replace(MADE, precision="float32")
    assert exact.differences(MADE) == MADE.differences(exact) == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": None}, "dataset must be a text"),
        ({"adapter": 3}, "adapter must be a text or None"),
        ({"preprocessing": {"mean": np.zeros(3)}}, "JSON values"),
        ({"preprocessing": {"mean": float("nan")}}, "JSON values"),
    ],
)
def test_refuses_what_cannot_be_stored(changes, message):
    with pytest.raises(InputError, match=message):
        Provenance(**{**MADE.as_dict(), **changes})


def test_unknown_and_missing_entries_fail():
    with pytest.raises(InputError, match=r"missing entries \['note'\] and unknown entries \['remark'\]"):
        Provenance.from_dict({**{k: v for k, v in MADE.as_dict().items() if k != "note"}, "remark": ""})


def test_files_from_before_the_precision_was_noted():
    assert "precision" not in MADE.as_dict(), "so that they are written as they were"
    assert Provenance.from_dict(MADE.as_dict()).precision == "unknown"
    exact = Provenance.from_dict({**MADE.as_dict(), "precision": "float32"})
    assert Provenance.from_dict(exact.as_dict()).precision == "float32"
    with pytest.raises(InputError, match="precision must be a text"):
        Provenance.from_dict({**MADE.as_dict(), "precision": 32})
