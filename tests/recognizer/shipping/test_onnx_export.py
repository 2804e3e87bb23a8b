from __future__ import annotations

import ast
import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import scipy
from numpy.typing import NDArray
from PIL import ExifTags, Image

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
timm = pytest.importorskip("timm", reason="the extra 'torch' is not installed")
onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

from tiny_vit import TINY

from fiveshot.backbones import (
    Backbone,
    BackboneSpec,
    Embedder,
    Preprocessing,
    Readout,
    export_backbone,
    load_embedder,
    torch_embedder,
)
from fiveshot.core.scorers import Scorer, make_scorer
from fiveshot.errors import InputError, StorageError
from fiveshot.recognizer import Recognizer, export_onnx
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
    write_onnx(backbone, head, tmp_path / "model.onnx", all_views=True)
    for count in (1, 9):  # any number of images
        given = backbone.preprocessing.normalize(images[:count])
        probabilities, logits, familiarity = answered(tmp_path / "model.onnx", given)
        wanted = head.probabilities(vectors[:count])
        assert np.abs(probabilities - wanted).max() < TOLERANCE
        assert np.abs(scipy.special.softmax(logits, axis=1) - wanted).max() < TOLERANCE
        wanted = head.familiarity(vectors[:count])
        assert np.abs(familiarity - wanted).max() < TOLERANCE * max(1, np.abs(head.scores(vectors[:count])).max())


def answered(graph: Path, images: NDArray[np.floating]) -> list[NDArray[np.float32]]:
    """Return all outputs of a graph for some images."""
    return onnxruntime.InferenceSession(str(graph)).run(None, {"images": images.astype(np.float32)})


def test_by_default_a_graph_sees_one_view_from_zero_to_one(
    backbone: Embedder, images: Pixels, vectors: Vectors, tmp_path: Path
) -> None:
    head = trained("unbiased-lda", vectors)
    write_onnx(backbone, head, tmp_path / "model.onnx")
    (taken,) = onnxruntime.InferenceSession(str(tmp_path / "model.onnx")).get_inputs()
    assert (taken.name, taken.shape, taken.type) == ("images", ["n", 3, 160, 160], "tensor(float)")
    prepared = replace(backbone.preprocessing, views=1)
    single = replace(backbone, preprocessing=prepared).features(images[:9, :1])
    for count in (1, 9):
        probabilities, _, familiarity = answered(tmp_path / "model.onnx", images[:count, 0] / 255)
        assert np.abs(probabilities - head.probabilities(single[:count])).max() < TOLERANCE
        assert np.abs(familiarity - head.familiarity(single[:count])).max() < TOLERANCE


def test_a_model_without_a_base_is_written_too(
    backbone: Embedder, images: Pixels, vectors: Vectors, tmp_path: Path
) -> None:
    head = make_scorer().learn(vectors[:15], [f"class {i % 3}" for i in range(15)])
    assert head.linear().shortened
    write_onnx(backbone, head, tmp_path / "model.onnx", all_views=True)
    probabilities, _, familiarity = answered(
        tmp_path / "model.onnx", backbone.preprocessing.normalize(images[15:24])
    )
    answer = head.answer(vectors[15:24])
    for values, wanted in ((probabilities, answer.probabilities), (familiarity, answer.familiarity)):
        assert np.abs(values - wanted).max() < TOLERANCE * max(1, np.abs(wanted).max())


def test_a_file_says_how_to_use_it(backbone: Embedder, vectors: Vectors, tmp_path: Path) -> None:
    head = trained("ncm", vectors)
    rejection = Rejection(0.05, (1, 5), (-9.0, -7.0))
    written = write_onnx(backbone, head, tmp_path / "birds.onnx", rejection=rejection, all_views=True)
    assert written == tuple(tmp_path / name for name in ("birds.onnx", "birds.json", "labels.txt"))
    _, sidecar, labels = written
    assert labels.read_text(encoding="utf-8").splitlines() == ["base 0", "base 1", "base 2", "owl 🦉", "wren"]
    said = json.loads(sidecar.read_text(encoding="utf-8"))
    assert said["classes"] == ["base 0", "base 1", "base 2", "owl 🦉", "wren"]
    assert said["unknown_below"] == [-7.0, -7.0, -7.0, -7.0, -9.0]
    assert said["false_rejection"] == 0.05
    assert said["input"]["mean"] == [0.4, 0.5, 0.6]
    assert said["input"]["shape"] == ["n", 2, 3, 160, 160]
    assert said["input"]["views"][0] == {"resize_both_sides_to": 160, "mirrored": False}
    assert said["input"]["interpolation"] == "bilinear"
    properties = {one.key: one.value for one in onnx.load(tmp_path / "birds.onnx").metadata_props}
    assert json.loads(properties["fiveshot"]) == said
    onnx.checker.check_model(str(tmp_path / "birds.onnx"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["birds.json", "birds.onnx", "labels.txt"]


def test_the_metadata_are_those_of_a_classifier_of_ultralytics(
    backbone: Embedder, vectors: Vectors, tmp_path: Path
) -> None:
    write_onnx(backbone, trained("ncm", vectors), tmp_path / "birds.onnx")
    about = onnxruntime.InferenceSession(str(tmp_path / "birds.onnx")).get_modelmeta().custom_metadata_map
    assert json.loads(about["names"]) == ast.literal_eval(about["names"])
    assert json.loads(about["names"])["3"] == "owl 🦉"
    found = (about["task"], json.loads(about["imgsz"]), about["stride"], about["batch"], about["channels"])
    assert found == ("classify", [160, 160], "1", "1", "3")
    how = json.loads(about["fiveshot"])["input"]
    assert (how["shape"], how["mean"], how["std"]) == (["n", 3, 160, 160], [0, 0, 0], [1, 1, 1])
    center = {"resize_short_side_to": 170, "center_crop": 160, "mirrored": False}
    assert how["views"] == [center]


def test_without_rejection_no_threshold_is_given(backbone: Embedder, vectors: Vectors, tmp_path: Path) -> None:
    _, sidecar, _ = write_onnx(backbone, trained("ncm", vectors), tmp_path / "birds.onnx")
    assert json.loads(sidecar.read_text(encoding="utf-8"))["unknown_below"] == [None] * 5


def test_the_preprocessing_said_in_words_is_the_one_used(
    backbone: Embedder, vectors: Vectors, tmp_path: Path
) -> None:
    """A photo prepared only from the JSON, without torch and torchvision, gives nearly the same input."""
    _, sidecar, _ = write_onnx(backbone, trained("ncm", vectors), tmp_path / "birds.onnx", all_views=True)
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
    labels = tmp_path / "labels.txt"
    labels.write_text("of another model\n")
    with pytest.raises(StorageError, match=r"labels\.txt, which is written beside birds\.onnx, exists already"):
        write_onnx(backbone, head, graph)
    assert labels.read_text() == "of another model\n"
    labels.unlink()
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
    with pytest.raises(StorageError, match=r"labels\.txt: No space left on device; nothing was left behind"):
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
    write_onnx(embedder, head, tmp_path / "model.onnx", all_views=True)
    probabilities, _, _ = answered(tmp_path / "model.onnx", embedder.preprocessing.normalize(pixels[4:]))
    assert np.abs(probabilities - head.probabilities(vectors[4:])).max() < TOLERANCE


def test_a_model_of_an_onnx_bundle_is_written(images: Pixels, tiny_file: Path, tmp_path: Path) -> None:
    export_backbone(BackboneSpec(TINY, weights=tiny_file), tmp_path / "tiny.onnx")
    embedder = load_embedder(BackboneSpec(str(tmp_path / "tiny.onnx")))
    vectors = embedder.features(images)
    head = trained("unbiased-lda", vectors)
    write_onnx(embedder, head, tmp_path / "model.onnx", all_views=True)
    probabilities, _, _ = answered(tmp_path / "model.onnx", embedder.preprocessing.normalize(images[:9]))
    assert np.abs(probabilities - head.probabilities(vectors[:9])).max() < TOLERANCE
    write_onnx(embedder, head, tmp_path / "model.onnx")
    single = replace(embedder, preprocessing=replace(embedder.preprocessing, views=1)).features(images[:9, :1])
    probabilities, _, _ = answered(tmp_path / "model.onnx", images[:9, 0] / 255)
    assert np.abs(probabilities - head.probabilities(single)).max() < TOLERANCE


def test_graphs_of_older_versions_are_converted(tmp_path: Path) -> None:
    node = onnx.helper.make_node("ReduceMean", ["images"], ["features"], axes=[2, 3], keepdims=0)
    floats = onnx.TensorProto.FLOAT
    taken = onnx.helper.make_tensor_value_info("images", floats, ["n", 3, 160, 160])
    given = onnx.helper.make_tensor_value_info("features", floats, ["n", 3])
    graph = onnx.helper.make_graph([node], "colors", [taken], [given])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    prepared = Preprocessing(size=160, resize=160)
    onnx.helper.set_model_props(model, {"fiveshot.preprocessing": json.dumps(prepared.to_json())})
    onnx.save(model, tmp_path / "colors.onnx")
    embedder = load_embedder(BackboneSpec(str(tmp_path / "colors.onnx")))
    pixels = np.random.default_rng(0).integers(0, 256, (12, 1, 3, 1, 1), np.uint8).repeat(160, 3).repeat(160, 4)
    vectors = embedder.features(pixels)
    np.testing.assert_allclose(vectors, pixels[:, 0, :, 0, 0] / 127.5 - 1, atol=1e-4)
    head = make_scorer("ncm").learn(vectors, ["owl", "wren", "kite"] * 4)
    write_onnx(embedder, head, tmp_path / "model.onnx")
    probabilities, _, _ = answered(tmp_path / "model.onnx", pixels[:, 0] / 255)
    assert np.abs(probabilities - head.probabilities(vectors)).max() < TOLERANCE


PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "ship.md"


SQUEEZED = Preprocessing(size=224, resize=224, squash=224, interpolation="bilinear", rounding="down")


@pytest.mark.parametrize("prepared", [None, SQUEEZED], ids=["cropped", "squeezed"])
def test_the_program_on_the_page_answers_as_a_model_of_one_view(
    prepared: Preprocessing | None, tmp_path: Path
) -> None:
    """What the documentation shows runs with ONNX Runtime and Pillow, on a photo of an odd size."""
    from fiveshot.data import draw_samples

    samples, backbone = tmp_path / "samples", None
    draw_samples(samples, seed=0)
    photo = samples / "test" / "fish" / "1.jpg"
    turned = Image.Exif()
    turned[ExifTags.Base.Orientation] = 6  # of a camera on its side
    with Image.open(photo) as drawn:
        drawn.resize((401, 300), Image.Resampling.BICUBIC).save(photo, quality=95, exif=turned)
    if prepared is not None:
        backbone = str(tmp_path / "net.onnx")
        export_backbone(BackboneSpec(preprocessing=prepared, views=1), Path(backbone))
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    single, with_views = (text for text in blocks if "onnxruntime" in text)
    assert len([line for line in single.splitlines() if line and "import" not in line]) <= 18
    with Recognizer.create(tmp_path / "things", backbone=backbone, views=1, device="cpu") as model:
        model.learn_many(samples / "learn")
        (wanted,) = model.predict([photo])
        export_onnx(model, tmp_path / "things.onnx")
        name, probability = printed(single, tmp_path).split()
        export_onnx(model, tmp_path / "things.onnx", all_views=True)
        assert printed(with_views, tmp_path).strip() == (wanted.label or "unknown")
    best = wanted.candidates[0]
    assert (name, float(probability)) == (best.label, pytest.approx(best.probability, abs=2e-3))


def printed(program: str, folder: Path) -> str:
    """Return what a program of the documentation prints."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
