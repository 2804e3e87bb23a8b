"""Bundles on the hub. A stand-in speaks its protocol; downloads from the real hub were not tried."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("transformers", reason="the extra 'dev' is not installed")
onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
constants = pytest.importorskip("huggingface_hub.constants", reason="the extra 'hub' is not installed")

from bundles import make_bundles
from hub_stand_in import serving_hub

from fiveshot.backbones import BackboneSpec, backbone_choices, load_embedder
from fiveshot.errors import FiveshotError, InputError, StorageError
from fiveshot.recognizer import Recognizer, import_file

NAME = "hf://org/clip-vision"


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundles(tmp_path_factory.mktemp("bundles"), "clip")["clip"].folder


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clip: Path) -> Iterator[Any]:
    """The stand-in, with a repository that also holds a text model and other precisions."""
    with serving_hub(monkeypatch, tmp_path) as handler:
        files = {
            path.relative_to(clip).as_posix(): path.read_bytes() for path in clip.rglob("*") if path.is_file()
        }
        more = {"onnx/model.onnx": b"text and images", "onnx/vision_model_fp16.onnx": b"", "README.md": b"# CLIP"}
        handler.repositories["org/clip-vision"] = files | more
        yield handler


def features(name: str, **given: object) -> np.ndarray:
    embedder = load_embedder(BackboneSpec(name, **given))
    pixels = np.random.default_rng(0).integers(0, 256, (2, 1, 3, 224, 224), np.uint8)
    return embedder.features(pixels)


def commit(hub: Any) -> str:
    return hub.commit_of("org/clip-vision")


def fetched(hub: Any) -> list[str]:
    return sorted(
        {asked.rpartition("/")[2] for asked in hub.asked if asked.startswith("GET") and "resolve" in asked}
    )


def away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", "http://127.0.0.1:9/{repo_id}/{revision}/{filename}"
    )


def test_only_the_needed_files_are_fetched_and_the_commit_is_remembered(hub, clip):
    assert np.array_equal(features(NAME), features(str(clip)))
    assert fetched(hub) == ["config.json", "preprocessor_config.json", "vision_model.onnx"]
    pinned = f"{NAME}@{commit(hub)}/onnx/vision_model.onnx"
    assert load_embedder(BackboneSpec(NAME)).spec.name == pinned
    (choice,) = backbone_choices([NAME])
    assert (choice.note, choice.needs_torch, choice.license) == ("read: image_embeds", False, "apache-2.0")
    assert choice.download == len(hub.repositories["org/clip-vision"]["onnx/vision_model.onnx"])


def test_what_was_fetched_is_used_without_a_connection(hub, monkeypatch):
    expected = features(NAME)
    pinned = load_embedder(BackboneSpec(NAME)).name
    hub.asked.clear()
    assert np.array_equal(features(pinned), expected)
    assert hub.asked == []  # a commit never changes
    away(monkeypatch)
    assert np.array_equal(features(NAME), expected)
    assert np.array_equal(features(pinned), expected)
    with pytest.raises(StorageError) as caught:
        features("hf://org/another")
    assert caught.value.code == "no_connection"
    with pytest.raises(StorageError) as caught:
        features(f"{NAME}@{'0' * 40}")
    assert caught.value.code == "no_connection"


def test_a_model_stays_with_its_revision(hub, tmp_path, clip, monkeypatch):
    photo = Image.new("RGB", (200, 300), "gray")
    with Recognizer.create(tmp_path / "things", backbone=NAME) as things:
        things.learn("gray", [photo])
        first = things.show().backbone
        things.export(tmp_path / "things.fiveshot")
    assert first == f"{NAME}@{commit(hub)}/onnx/vision_model.onnx"
    files = hub.repositories["org/clip-vision"]
    graph = onnx.load_model_from_string(files["onnx/vision_model.onnx"])
    weights = next(one for one in graph.graph.initializer if len(one.raw_data) > 1000)
    weights.raw_data = bytes(len(weights.raw_data))
    files["onnx/vision_model.onnx"] = graph.SerializeToString()
    assert load_embedder(BackboneSpec(NAME)).name != first  # a newer revision
    with Recognizer.open(tmp_path / "things") as things:
        assert things.predict([photo])[0].candidates[0].label == "gray"
    import_file(tmp_path / "things.fiveshot", tmp_path / "copy").close()
    with Recognizer.open(tmp_path / "copy") as copy:
        assert copy.predict([photo])[0].candidates[0].label == "gray"
    away(monkeypatch)
    with Recognizer.open(tmp_path / "copy", weights=clip) as copy:  # a copy of the same files
        assert copy.predict([photo])[0].candidates[0].label == "gray"
    (tmp_path / "newer").mkdir()
    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / "newer" / name).write_bytes(files[name])
    (tmp_path / "newer" / "vision_model.onnx").write_bytes(files["onnx/vision_model.onnx"])
    with (
        Recognizer.open(tmp_path / "copy", weights=tmp_path / "newer") as copy,
        pytest.raises(InputError, match="that the model was made with"),
    ):
        copy.predict([photo])


def test_weights_beside_the_graph_are_fetched_too(hub, tmp_path, clip):
    model = onnx.load(clip / "onnx" / "vision_model.onnx")
    file = tmp_path / "vision_model.onnx"
    onnx.save(model, file, save_as_external_data=True, location="vision_model.onnx_data", size_threshold=100)
    files = hub.repositories["org/clip-vision"]
    files["onnx/vision_model.onnx"] = file.read_bytes()
    files["onnx/vision_model.onnx_data"] = (tmp_path / "vision_model.onnx_data").read_bytes()
    assert np.array_equal(features(NAME), features(str(clip)))
    del files["onnx/vision_model.onnx_data"]
    files["README.md"] = b"another commit"
    with pytest.raises(StorageError, match=r"holds no onnx/vision_model\.onnx_data"):
        features(NAME)


def test_a_revision_and_a_file_can_be_named(hub):
    old = commit(hub)
    expected = features(NAME)
    files = hub.repositories["org/clip-vision"]
    files["other.onnx"] = files.pop("onnx/vision_model.onnx")
    assert np.array_equal(features(f"{NAME}@{old}"), expected)
    assert np.array_equal(features(f"{NAME}/other.onnx"), expected)
    assert load_embedder(BackboneSpec(f"{NAME}@main/other.onnx")).name == f"{NAME}@{commit(hub)}/other.onnx"


def test_what_the_hub_lacks_has_a_way_out(hub):
    def refused(name: str) -> FiveshotError:
        with pytest.raises(FiveshotError) as caught:
            features(name)
        assert caught.value.hint
        return caught.value

    assert refused("hf://org/nothing").code == "not_found"
    assert refused(f"{NAME}@nothing").code == "not_found"
    assert "holds no onnx/other.onnx" in str(refused(f"{NAME}/onnx/other.onnx"))
    files = hub.repositories["org/clip-vision"]
    for name in [name for name in files if name.endswith(".onnx")]:
        del files[name]
    assert "backbone export" in refused(NAME).hint
    files["model.onnx"] = b"no graph"
    assert refused(NAME).code == "bad_bundle"
    files["config.json"] = json.dumps({"model_type": "clip", "more": "x" * (1 << 20)}).encode()
    assert "bytes" in str(refused(NAME)) or refused(NAME).code == "bad_bundle"


@pytest.mark.parametrize(
    "name", ["hf://", "hf://one", "hf://a/b@", "hf://a/b@x y", "hf://a/b/c", "hf://a/b/../c.onnx"]
)
def test_what_is_no_name_is_refused(name):
    with pytest.raises(InputError) as caught:
        load_embedder(BackboneSpec(name))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("status", "body", "headers", "words"),
    [
        (401, b"{}", {}, "the hub does not allow it"),
        (403, b"{}", {}, "the hub does not allow it"),
        (404, b"not found", {}, "the hub does not know it"),
        (429, b"{}", {}, "the hub answers 429"),
        (500, b"{}", {}, "the hub answers 500"),
        (302, b"", {"Location": "/api/models/org/clip-vision/revision/main"}, "cannot be reached"),
        (200, b"<html>Please log in</html>", {}, "what answers is not the hub"),
        (200, b"[]", {}, "what answers is not the hub"),
        (200, b'{"id": "org/clip-vision", "sha": "../../x"}', {}, "names no commit"),
    ],
)
def test_what_another_server_answers_has_a_way_out(status, body, headers, words, hub, monkeypatch, tmp_path):
    monkeypatch.setattr(hub, "_file", lambda self: (self._begin(), self._say(body, status, headers)))
    with pytest.raises(StorageError, match=words) as caught:
        Recognizer.create(tmp_path / "things", backbone=NAME)
    assert caught.value.hint
    assert not (tmp_path / "things").exists()
    assert not list((tmp_path / "hub").rglob("*.onnx"))


def test_the_reason_why_a_file_was_not_fetched_is_told(hub, monkeypatch, tmp_path):
    usual = hub._file

    def files_are_forbidden(self):
        if "resolve" in self.path:
            self._begin()
            return self._say({}, 403)
        return usual(self)

    monkeypatch.setattr(hub, "_file", files_are_forbidden)
    with pytest.raises(StorageError, match="the hub does not allow it"):
        load_embedder(BackboneSpec(NAME))
