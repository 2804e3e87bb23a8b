from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
timm = pytest.importorskip("timm", reason="the extra 'torch' is not installed")
onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

from fiveshot.backbones import (
    Backbone,
    BackboneSpec,
    Embedder,
    Preprocessing,
    Readout,
    load_embedder,
    torch_embedder,
)
from fiveshot.core.scorers import Scorer, make_scorer
from fiveshot.errors import InputError, StorageError
from fiveshot.recognizer import Recognizer
from fiveshot.recognizer.recognition.rejection import Rejection
from fiveshot.recognizer.shipping._onnx import write_onnx

TOLERANCE = 1e-3
Pixels = NDArray[np.uint8]
Vectors = NDArray[np.float32]


@pytest.fixture(scope="module")
def backbone() -> Embedder:
    torch.manual_seed(1)
    model = timm.create_model("test_vit.r160_in1k", num_classes=0).eval().requires_grad_(False)
    prepared = Preprocessing(
        size=160, resize=170, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4), interpolation="bilinear", views=2
    )
    tiny = Backbone(model, "tiny", prepared, Readout("cls+mean"))
    return torch_embedder(tiny, BackboneSpec(runtime="torch", device="cpu"))


@pytest.fixture(scope="module")
def images() -> Pixels:
    return np.random.default_rng(2).integers(0, 256, (46, 2, 3, 160, 160), np.uint8)


@pytest.fixture(scope="module")
def vectors(backbone: Embedder, images: Pixels) -> Vectors:
    """The features of all images."""
    return backbone.features(images)


def trained(name: str, vectors: Vectors, **parameters: object) -> Scorer:
    head = make_scorer(name, **parameters).learn(vectors[:40], [f"base {i % 3}" for i in range(40)])
    return head.learn(vectors[40:45], ["owl 🦉"] * 5).learn(vectors[45:], ["wren"])


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("unbiased-lda", {}),
        ("ncm", {}),
        ("ncm", {"metric": "cosine"}),
        ("teen", {}),
        ("fecam", {}),
        ("c-fecam+", {}),
        ("fecam", {"gamma": 0.01}),  # covariances that are factored whole
        ("fecam", {"normalization": "rows"}),
        ("fecam", {"normalize": False, "normalization": "none"}),
        ("c-fecam", {}),
    ],
)
def test_onnx_runtime_gives_what_the_head_gives(
    name: str, parameters: dict[str, object], backbone: Embedder, images: Pixels, vectors: Vectors, tmp_path: Path
) -> None:
    head = trained(name, vectors, **parameters)
    write_onnx(backbone, head, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    for count in (1, 9):  # any number of images
        given = {"images": backbone.preprocessing.normalize(images[:count])}
        scores, probabilities, familiarity = session.run(None, given)
        wanted = head.scores(vectors[:count])
        assert np.abs(scores - wanted).max() < TOLERANCE * max(1, np.abs(wanted).max())
        assert np.abs(probabilities - head.probabilities(vectors[:count])).max() < TOLERANCE
        assert np.abs(familiarity - head.familiarity(vectors[:count])).max() < TOLERANCE * max(
            1, np.abs(wanted).max()
        )


def test_a_model_without_a_base_is_written_too(
    backbone: Embedder, images: Pixels, vectors: Vectors, tmp_path: Path
) -> None:
    head = make_scorer().learn(vectors[:15], [f"class {i % 3}" for i in range(15)])
    assert head.linear().shortened
    write_onnx(backbone, head, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    found = session.run(None, {"images": backbone.preprocessing.normalize(images[15:24])})
    answer = head.answer(vectors[15:24])
    for values, wanted in zip(found, (answer.scores, answer.probabilities, answer.familiarity), strict=True):
        assert np.abs(values - wanted).max() < TOLERANCE * max(1, np.abs(wanted).max())


def test_a_file_says_how_to_use_it(backbone: Embedder, vectors: Vectors, tmp_path: Path) -> None:
    head = trained("ncm", vectors)
    rejection = Rejection(0.05, (1, 5), (-9.0, -7.0))
    sidecar = write_onnx(backbone, head, tmp_path / "birds.onnx", rejection=rejection)
    assert sidecar == tmp_path / "birds.json"
    said = json.loads(sidecar.read_text(encoding="utf-8"))
    assert said["classes"] == ["base 0", "base 1", "base 2", "owl 🦉", "wren"]
    assert said["unknown_below"] == [-7.0, -7.0, -7.0, -7.0, -9.0]
    assert said["false_rejection"] == 0.05
    assert said["input"]["mean"] == [0.4, 0.5, 0.6]
    assert said["input"]["shape"] == ["n", 2, 3, 160, 160]
    assert said["input"]["views"][0] == {"resize_both_sides_to": 160, "mirrored": False}
    assert said["input"]["interpolation"] == "bilinear"
    (prop,) = onnx.load(tmp_path / "birds.onnx").metadata_props
    assert (prop.key, json.loads(prop.value)) == ("fiveshot", said)
    onnx.checker.check_model(str(tmp_path / "birds.onnx"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["birds.json", "birds.onnx"]


def test_without_rejection_no_threshold_is_given(backbone: Embedder, vectors: Vectors, tmp_path: Path) -> None:
    sidecar = write_onnx(backbone, trained("ncm", vectors), tmp_path / "birds.onnx")
    assert json.loads(sidecar.read_text(encoding="utf-8"))["unknown_below"] == [None] * 5


def test_the_preprocessing_said_in_words_is_the_one_used(
    backbone: Embedder, vectors: Vectors, tmp_path: Path
) -> None:
    """A photo prepared by the JSON alone, without torch and torchvision, gives nearly the same input."""
    from PIL import Image

    sidecar = write_onnx(backbone, trained("ncm", vectors), tmp_path / "birds.onnx")
    said = json.loads(sidecar.read_text(encoding="utf-8"))["input"]
    noise = np.random.default_rng(0).integers(0, 256, (9, 12, 3), np.uint8)
    photo = Image.fromarray(noise).resize((400, 300), Image.Resampling.BICUBIC)
    mode = Image.Resampling[said["interpolation"].upper()]
    whole, inner = said["views"]
    squares = [photo.resize((whole["resize_both_sides_to"],) * 2, mode)]
    scale = inner["resize_short_side_to"] / min(photo.size)
    size = tuple(round(side * scale) for side in photo.size)
    left, top = ((side - inner["center_crop"]) // 2 for side in size)
    squares.append(photo.resize(size, mode).crop((left, top, left + 160, top + 160)))
    values = [(np.asarray(square, np.float32) / 255 - said["mean"]) / said["std"] for square in squares]
    ours = backbone.preprocessing.normalize(backbone.preprocessing.pixels(photo))
    assert np.abs(np.stack(values).transpose(0, 3, 1, 2) - ours).mean() < 0.05


def test_a_head_that_cannot_be_written_leaves_nothing(
    backbone: Embedder, vectors: Vectors, tmp_path: Path
) -> None:
    head = trained("ranpac", vectors, n_projections=50)
    with pytest.raises(InputError, match="ONNX"):
        write_onnx(backbone, head, tmp_path / "birds.onnx")
    assert list(tmp_path.iterdir()) == []


def test_another_suffix_is_refused(backbone: Embedder, vectors: Vectors, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in \.onnx"):
        write_onnx(backbone, trained("ncm", vectors), tmp_path / "birds.bin")


def test_only_the_files_of_an_earlier_export_are_replaced(
    backbone: Embedder, vectors: Vectors, tmp_path: Path
) -> None:
    head = trained("ncm", vectors)
    graph, sidecar = tmp_path / "birds.onnx", tmp_path / "birds.json"
    sidecar.write_text('{"made_with": "love"}')
    with pytest.raises(StorageError, match=r"birds\.json, which is written beside birds\.onnx, exists already"):
        write_onnx(backbone, head, graph)
    assert (sidecar.read_text(), graph.exists()) == ('{"made_with": "love"}', False)
    write_onnx(backbone, head, graph, overwrite=True)
    write_onnx(backbone, head, graph)  # every night
    foreign = onnx.load(graph)
    del foreign.metadata_props[:]
    for content in (b"", b"no graph at all", foreign.SerializeToString()):
        graph.write_bytes(content)
        with pytest.raises(StorageError, match=r"birds\.onnx exists already and is not an earlier.*--force"):
            write_onnx(backbone, head, graph)
        assert graph.read_bytes() == content


def test_no_file_of_an_export_lies_in_a_model(
    backbone: Embedder, vectors: Vectors, make: Callable[..., Recognizer], tmp_path: Path
) -> None:
    head, model = trained("ncm", vectors), make()
    (tmp_path / "birds.json").symlink_to(model.path / "model.toml")
    for target in (model.path / "birds.onnx", tmp_path / "birds.onnx"):
        with pytest.raises(InputError, match="lies inside the model"):
            write_onnx(backbone, head, target, overwrite=True)
        assert not target.exists()
    assert model.check() == []


def test_both_files_come_or_none(
    backbone: Embedder, vectors: Vectors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(StorageError, match=r"birds\.json: No space left on device; nothing was left behind"):
        write_onnx(backbone, trained("ncm", vectors), tmp_path / "birds.onnx")
    assert list(tmp_path.iterdir()) == []


def test_neither_file_of_an_earlier_export_is_replaced_alone(
    backbone: Embedder, images: Pixels, vectors: Vectors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = trained("ncm", vectors)
    write_onnx(backbone, head, tmp_path / "birds.onnx")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    flush = os.fsync

    def full_for_graphs(descriptor: int) -> None:
        if os.fstat(descriptor).st_size > 100_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", full_for_graphs)
    head = head.learn(vectors[:2], ["rook"] * 2)
    with pytest.raises(StorageError, match="No space left on device; nothing was left behind"):
        write_onnx(backbone, head, tmp_path / "birds.onnx")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "spec",
    [
        BackboneSpec(device="cpu"),
        BackboneSpec(device="cpu", adapter="cub200-small", views=1),
    ],
)
def test_the_embedded_backbone_is_written(spec: BackboneSpec, tmp_path: Path) -> None:
    embedder = load_embedder(spec)
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (6, embedder.preprocessing.views, 3, 224, 224), np.uint8)
    vectors = embedder.features(pixels)
    head = make_scorer("unbiased-lda").learn(vectors[:4], ["owl", "wren"] * 2)
    write_onnx(embedder, head, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    scores, _, _ = session.run(None, {"images": embedder.preprocessing.normalize(pixels[4:])})
    assert np.abs(scores - head.scores(vectors[4:])).max() < TOLERANCE
