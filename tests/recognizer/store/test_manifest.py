from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest

from fiveshot.errors import StorageError
from fiveshot.recognizer.store.manifest import FORMAT, BackboneRecord, BaseRecord, HeadRecord, Manifest, Options

hypothesis = pytest.importorskip("hypothesis", reason="hypothesis is not installed")
given, st = hypothesis.given, hypothesis.strategies

PLAIN = Manifest(
    BackboneRecord("vit", 384, "ab" * 32, {"size": 224, "squash": None, "mean": [0.5, 0.5, 0.5]}),
    HeadRecord("ncm", {"temperature": 0.0625, "calibration": None}, {"shrinkage": 0.3}),
    BaseRecord("base-0123456789abcdef.safetensors", "cd" * 32, 7),
    Options(keep_photos=True, false_rejection=0.1, seed=3),
    rejection={"counts": [1, 5], "thresholds": [-4.0, -2.5]},
)


def test_what_is_written_is_read() -> None:
    assert Manifest.from_toml(PLAIN.to_toml()) == PLAIN


@given(st.text(max_size=30))
def test_any_text_survives(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return  # lone surrogates are no text that a file can hold
    named = replace(PLAIN, backbone=replace(PLAIN.backbone, weights=text, preprocessing={text: text}))
    assert Manifest.from_toml(named.to_toml()) == named


def test_it_is_toml_that_people_can_read() -> None:
    values = tomllib.loads(PLAIN.to_toml())
    assert values["format"] == FORMAT
    assert values["backbone"]["name"] == "vit"
    assert values["options"]["keep_photos"] is True


@pytest.mark.parametrize("number", [0, 99])
def test_another_format_says_how_to_upgrade(number: int) -> None:
    with pytest.raises(StorageError, match=rf"format {number}.*pip install --upgrade fiveshot") as caught:
        Manifest.from_toml(PLAIN.to_toml().replace(f"format = {FORMAT}", f"format = {number}"))
    assert caught.value.code == "other_format"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("width = 384", 'width = "384"'),
        ("width = 384", ""),
        ("seed = 3", "seed = 3\nsalt = 4"),
        ("false_rejection = 0.1", "false_rejection = nan"),
        ("keep_photos = true", "keep_photos = 1"),
        ("format = 1", "format = true"),
        ("[options]", "[choices]"),
        ('rejection = "', 'rejection = "{'),
        ("[backbone]", "[backbone"),
        ("[base]", "[other]\nbase = 3"),
    ],
)
def test_damage_is_refused(old: str, new: str) -> None:
    text = PLAIN.to_toml()
    assert old in text
    with pytest.raises(StorageError, match=r"damaged or was changed by hand.*fiveshot check") as caught:
        Manifest.from_toml(text.replace(old, new))
    assert caught.value.code == "damaged_manifest"


def test_an_entry_with_a_default_must_be_there_too() -> None:
    text = PLAIN.to_toml()
    assert "keep_photos = true\n" in text
    with pytest.raises(StorageError, match=r"missing: options\.keep_photos"):
        Manifest.from_toml(text.replace("keep_photos = true\n", ""))
