from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from models import a_reader, held, new_model, photos

from fiveshot.core.scorers import own_parameters, plain_parameters
from fiveshot.errors import InputError, StorageError
from fiveshot.features import FeatureSet, embedded_features, embedded_packs
from fiveshot.recognizer import Recognizer
from fiveshot.recognizer.recognition.snapshot import head_record, restored_head
from fiveshot.recognizer.store.folder import create_model
from fiveshot.recognizer.store.manifest import BackboneRecord, HeadRecord, Manifest
from fiveshot.values import to_json

NOBODY = 65534


@pytest.mark.parametrize("name", ["unbiased-lda", "ncm", "teen", "fecam", "c-fecam", "ranpac", "c-ranpac"])
def test_a_head_is_written_down_and_made_again(name: str) -> None:
    record = head_record(name)
    kept = {
        key: value
        for key, value in plain_parameters(own_parameters(restored_head(record))).items()
        if key != "device"
    }
    assert kept == record.parameters


def test_values_of_an_earlier_release_are_kept() -> None:
    record = head_record("c-fecam")
    assert restored_head(replace(record, parameters={**record.parameters, "gamma": 7.5})).gamma == 7.5
    for other in ({"gamma": 1.0, "invented": 2}, {**record.parameters, "calibration": {"alpha": 0.1}}):
        with pytest.raises(StorageError, match=r"another 'c-fecam' head.*use the release that made it"):
            restored_head(HeadRecord("c-fecam", other))


@pytest.mark.parametrize("head", ["unbiased-lda", "ncm", "teen"])
@pytest.mark.parametrize("base", [(), ("ani", "jay")])
def test_other_heads_work_too(make: Callable[..., Recognizer], head: str, base: tuple[str, ...]) -> None:
    model = make(head=head, base=base)
    for name in ("owl", "rook", "wren"):
        model.learn_features(name, photos(name))
    model.forget("rook", for_good=True)
    X = photos("owl", 4, seed=3)
    found = model.predict_features(X, top=1)
    assert [one.candidates[0].label for one in found] == ["owl"] * 4
    with Recognizer.open(model.path, readonly=True) as again:
        for after, before in zip(again.predict_features(X, top=1), found, strict=True):
            assert after.candidates[0].label == before.candidates[0].label
            assert after.familiarity == pytest.approx(before.familiarity, rel=1e-4)


def test_top_names_as_many_as_there_are(make: Callable[..., Recognizer]) -> None:
    model = make(base=("ani", "jay"))
    (one,) = model.predict_features(photos("ani", 1), top=9)
    assert [each.label for each in one.candidates] == ["ani", "jay"]
    assert sum(each.probability for each in one.candidates) == pytest.approx(1)
    assert to_json(one)["unknown"] is one.unknown
    with pytest.raises(InputError, match="top=0"):
        model.predict_features(photos("ani", 1), top=0)
    with pytest.raises(TypeError, match="positional"):
        model.predict_features(photos("ani", 1), 2)


def test_what_is_unlike_every_class_is_unknown(make: Callable[..., Recognizer]) -> None:
    model = make(width=24)
    for number in range(12):
        model.learn_features(f"c{number}", photos(f"c{number}", 6, width=24))
    known = np.concatenate([photos(f"c{number}", 10, width=24, seed=2) for number in range(12)])
    strange = np.concatenate([photos(f"s{number}", 10, width=24) for number in range(12)])
    rejected = [one.unknown for one in model.predict_features(known)]
    assert np.mean(rejected) < 0.2
    found = model.predict_features(strange)
    assert np.mean([one.unknown for one in found]) > 0.8
    assert all((one.label is None) == (one.familiarity < one.threshold) for one in found)


@contextmanager
def without_permission(folder: Path) -> Iterator[None]:
    """Make a folder one that cannot be written to, for root too."""
    for path in (folder, *folder.iterdir()):
        path.chmod(0o555 if path.is_dir() else 0o444)
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
        folder.chmod(0o755)


def test_a_model_on_a_medium_that_cannot_be_written() -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        with new_model(Path(name) / "model", base=("ani", "jay")) as model:
            model.learn_features("owl", photos("owl"))
            expected = held(model)
        with without_permission(model.path):
            with Recognizer.open(model.path, readonly=True) as reader:
                assert held(reader) == expected
                assert reader.check() == []
            with pytest.raises(StorageError, match=r"read-only|cannot open"):
                Recognizer.open(model.path).learn_features("wren", photos("wren"))


def test_changes_in_a_log_are_not_overlooked() -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        with new_model(Path(name) / "model") as model, a_reader(model.path):
            model.learn_features("owl", photos("owl"))
            copied = Path(name) / "copy"
            copied.mkdir()
            for file in ("model.toml", "classes.sqlite", "classes.sqlite-wal"):
                (copied / file).write_bytes((model.path / file).read_bytes())
        with without_permission(copied), pytest.raises(StorageError, match=r"read-only|cannot open"):
            Recognizer.open(copied, readonly=True)


def few_classes(pack: str, count: int) -> FeatureSet:
    if pack not in embedded_packs():
        pytest.skip(f"the features {pack} are in a checkout, and not in a wheel")
    features = embedded_features(pack)
    train, test = (np.asarray(y) < count for y in (features.train_y, features.test_y))
    return replace(
        features,
        train_x=np.asarray(features.train_x)[train],
        train_y=np.asarray(features.train_y)[train],
        test_x=np.asarray(features.test_x)[test],
        test_y=np.asarray(features.test_y)[test],
        class_names=features.class_names[:count],
        train_names=None,
        test_names=None,
    )


def test_a_base_of_features_and_the_embedded_backbone(tmp_path: Path) -> None:
    base = few_classes("cub200-big", 12)
    with pytest.raises(InputError, match="of another backbone: their adapter_hash is"):
        Recognizer.create(tmp_path / "model", base=base, device="cpu")
    base.save(tmp_path / "base.safetensors")
    with Recognizer.create(
        tmp_path / "model", base=tmp_path / "base.safetensors", adapter="cub200-big", device="cpu"
    ) as model:
        assert model.embedder.identity()["adapter_hash"]
        found = model.predict_features(base.test_x)
        names = [base.class_names[label] for label in base.test_y]
        right = np.mean([one.candidates[0].label == name for one, name in zip(found, names, strict=True)])
        assert right > 0.7
        assert np.mean([one.unknown for one in found]) < 0.15
        assert model.show().adapter


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"readout": "mean"}, "their readout is 'mean', not 'own'"),
        ({"readout": "cls, last 4 blocks"}, "their readout is 'cls, last 4 blocks', not 'own'"),
        ({"precision": "bf16"}, "their precision is 'bf16', not 'float32'.*--precision float32"),
    ],
)
def test_features_read_otherwise_are_not_a_base(tmp_path: Path, made: dict[str, str], said: str) -> None:
    base = few_classes("cub200-big", 2)
    base = replace(base, provenance=replace(base.provenance, **made))
    with pytest.raises(InputError, match=said):
        Recognizer.create(tmp_path / "model", base=base, adapter="cub200-big", device="cpu")
    assert list(tmp_path.iterdir()) == []


SETTINGS = {
    "center": [0.5] * 12,
    "n_random": 0,
    "seed": 0,
    "shortened": False,
    "choice": {"offset": 0.5, "sharpness": 9.0, "offset_spread": 0.1, "episodes": 6},
}


def with_settings(path: Path, **changed: object) -> Path:
    """Make a model without classes whose head has these settings, written by anyone."""
    record = replace(head_record("unbiased-lda"), settings={**SETTINGS, **changed})
    create_model(path, Manifest(BackboneRecord("none", 12, "a" * 64), record))
    return path


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"choice": {**SETTINGS["choice"], "offset": "a"}}, "offset is 'a'"),
        ({"choice": {**SETTINGS["choice"], "sharpness": -1.0}}, "sharpness is -1.0"),
        ({"choice": {**SETTINGS["choice"], "episodes": 1.5}}, "episodes is 1.5"),
        ({"choice": {"offset": 0.5}}, "choice"),
        ({"choice": 3}, "choice"),
        ({"center": [0.5]}, "features of 12 numbers"),
        ({"center": [0.5] * 5000}, "features of 12 numbers"),
        ({"center": [0.5] * 100_000}, "center"),
        ({"center": [0.5] * 11 + ["x"]}, "center"),
        ({"center": []}, "center"),
        ({"center": 0.5}, "center"),
        ({"n_random": 16_384}, "n_random is 16384.*0 or 1000"),
        ({"n_random": True}, "n_random is True"),
        ({"seed": "0"}, "seed is '0'"),
        ({"shortened": 1}, "shortened is 1"),
        ({"more": 1}, "more"),
    ],
)
def test_wrong_settings_of_a_head_are_found_before_anything_is_learned(
    tmp_path: Path, changed: dict[str, object], said: str
) -> None:
    """And before anything large is made of them."""
    wrong = rf"settings of the 'unbiased-lda' head.*{said}.*restore the model from a copy"
    with Recognizer.open(with_settings(tmp_path / "model", **changed)) as model:
        with pytest.raises(StorageError, match=wrong):
            model.learn_features("ani", photos("ani"))
        assert model.refresh().classes == ()


def test_right_settings_of_a_head_are_taken(tmp_path: Path) -> None:
    """Otherwise the refusals above would show nothing."""
    with Recognizer.open(with_settings(tmp_path / "model", n_random=1000)) as model:
        model.learn_features("ani", photos("ani"))
        assert model.snapshot.head.settings() == SETTINGS | {"n_random": 1000}
        assert model.predict_features(photos("ani", 1))[0].candidates[0].label == "ani"
